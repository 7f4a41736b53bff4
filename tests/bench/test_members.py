"""Names of reference models: roles and training seeds."""

import pytest

from bench.members import ENTANGLED, ORACLE, base_of, is_oracle, sibling


@pytest.mark.parametrize(
    ("member", "base", "oracle"),
    [
        ("p000", "p000", "oracle"),
        ("p100-seed1", "p100", "oracle-seed1"),
        ("placebo", "placebo", "oracle"),
        ("oracle-seed12", "oracle", "oracle-seed12"),
        ("llama-seed", "llama-seed", "oracle"),
    ],
)
def test_a_member_belongs_to_the_oracle_of_its_seed(member: str, base: str, oracle: str) -> None:
    assert base_of(member) == base
    assert sibling(ORACLE, member) == oracle


def test_p000_of_a_seed_is_its_own_entangled_end() -> None:
    assert sibling(ENTANGLED, "p100-seed1") == "p000-seed1"
    assert sibling(ENTANGLED, "p000-seed1") == "p000-seed1"


def test_an_oracle_of_any_seed_is_one() -> None:
    assert is_oracle("oracle")
    assert is_oracle("oracle-seed1")
    assert not is_oracle("p000-seed1")
