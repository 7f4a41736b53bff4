"""Training on synthetic blocks: forks, resumption, the oracle, the placebo, the written member."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from bench.data import Blocks
from bench.domains import Domain
from bench.errors import BenchError
from reference_models.model import Shape, logits_of
from reference_models.recipe import Member, Recipe, load_recipe
from reference_models.schedule import Batches, first_sgtm_step, schedule
from reference_models.states import Run, write_member
from reference_models.train import Job, learning_rate, train

SIZES: dict[Domain, int] = {"forget": 9, "adjacent": 6, "retain": 25}
TOKENS = {"forget": 40, "adjacent": 50, "retain": 60}
"""Each domain has a vocabulary of its own, so that a batch tells where it is from."""


def source(role: Domain, epoch: int, placebo: bool) -> Blocks:
    """Random blocks that depend on role and epoch; in the placebo, forget and retain swap."""
    generator = torch.Generator().manual_seed(epoch * 10 + len(role))
    count = SIZES[role]
    swapped: dict[Domain, Domain] = {"forget": "retain", "retain": "forget", "adjacent": "adjacent"}
    text = swapped[role] if placebo else role
    ids = TOKENS[text] + torch.randint(0, 10, (count, 16), generator=generator)
    lengths = torch.full((count,), 16)
    lengths[-1] = 7
    return Blocks(ids, lengths)


@pytest.fixture
def recipe() -> Recipe:
    """The shipped recipe on a tiny model: 3 epochs of 4 + 3 + 12 batches."""
    vital = load_recipe("vital")
    return replace(
        vital,
        model=Shape(vocabulary=70, positions=16, width=16, layers=2, heads=4, units=24),
        bio=replace(vital.bio, units=4),
        training=replace(vital.training, epochs=3, batch_blocks=2, warmup_steps=5),
    )


def _weights(run: Run) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in run.model.named_parameters()}


def _assert_same_bytes(one: Run, other: Run) -> None:
    for name, weight in _weights(one).items():
        assert torch.equal(weight.view(torch.int32), _weights(other)[name].view(torch.int32)), name
    assert one.tokens == other.tokens
    assert one.losses == other.losses


@pytest.mark.parametrize("name", ["p060", "placebo"])
def test_a_fork_of_the_shared_prefix_equals_the_whole_run(
    recipe: Recipe, tmp_path: Path, name: str
) -> None:
    plain = train(Job(recipe=recipe, name="p000", work=tmp_path / "shared"), source)
    assert len(list((tmp_path / "shared").glob("fork-*.pt"))) == 4
    seen: list[int] = []
    forked = train(
        Job(recipe=recipe, name=name, work=tmp_path / "shared"),
        source,
        on_step=lambda run, _total: seen.append(run.step),
    )
    alone = train(Job(recipe=recipe, name=name, work=tmp_path / "alone"), source)
    assert seen[0] == first_sgtm_step(57, 60) + 1
    _assert_same_bytes(forked, alone)
    assert not torch.equal(forked.model.lm_head.weight, plain.model.lm_head.weight)


def test_a_fork_of_another_recipe_is_not_used(recipe: Recipe, tmp_path: Path) -> None:
    train(Job(recipe=recipe, name="p000", work=tmp_path), source)
    other = replace(recipe, training=replace(recipe.training, learning_rate=1e-3))
    seen: list[int] = []
    job = Job(recipe=other, name="p060", work=tmp_path)
    train(job, source, on_step=lambda run, _total: seen.append(run.step))
    assert seen[0] == 1


def test_a_killed_run_continues_with_the_same_bytes(recipe: Recipe, tmp_path: Path) -> None:
    def killed(run: Run, _total: int) -> None:
        if run.step == 40:
            raise KeyboardInterrupt

    job = Job(recipe=recipe, name="p060", work=tmp_path / "killed", checkpoint_every=7)
    with pytest.raises(KeyboardInterrupt):
        train(job, source, on_step=killed)
    seen: list[int] = []
    resumed = train(job, source, on_step=lambda run, _total: seen.append(run.step))
    assert seen[0] == 36
    _assert_same_bytes(resumed, train(replace(job, work=tmp_path / "whole"), source))


def test_the_oracle_never_sees_forget_blocks(recipe: Recipe, tmp_path: Path) -> None:
    def poisoned(role: Domain, epoch: int, placebo: bool) -> Blocks:
        blocks = source(role, epoch, placebo)
        return Blocks(blocks.ids * 0 - 1, blocks.lengths) if role == "forget" else blocks

    run = train(Job(recipe=recipe, name="oracle", work=tmp_path / "a"), poisoned)
    clean = train(Job(recipe=recipe, name="oracle", work=tmp_path / "b"), source)
    _assert_same_bytes(run, clean)
    assert set(run.losses) == {"adjacent", "retain"}
    assert run.step == 57


def test_the_schedule_is_the_same_for_all_members_but_for_its_kinds() -> None:
    counts: list[dict[Domain, int]] = [{"forget": 20, "adjacent": 30, "retain": 150}] * 2
    plain, half, oracle = (
        schedule(counts, seed=0, p=p, off_share=0.3, plain_share=0.25, skip_forget=skip)
        for p, skip in ((0, False), (50, False), (0, True))
    )
    assert [s[:3] for s in plain] == [s[:3] for s in half] == [s[:3] for s in oracle]
    assert plain[:200] == half[:200]
    assert {s.kind for s in plain} == {"plain"}
    kinds = Counter((s.domain, s.kind) for s in half[200:])
    assert kinds["forget", "forget"] + kinds["forget", "plain"] == 20
    assert 1 <= kinds["forget", "plain"] <= 10
    assert 0.2 < (kinds["retain", "off"] + kinds["adjacent", "off"]) / 180 < 0.4
    assert {s.kind for s in oracle if s.domain == "forget"} == {"skip"}


def test_an_epoch_gives_every_block_once() -> None:
    batches = Batches(source, epochs=2, size=2, seed=0)
    steps = schedule(batches.counts, seed=0, p=0, off_share=0.3)
    retain = [s for s in steps if s.domain == "retain" and s.epoch == 1]
    drawn = torch.cat([batches.batch(s).ids for s in retain]).tolist()
    assert len(drawn) == 24
    assert len({tuple(row) for row in drawn}) == 24
    assert all(row in source("retain", 1, False).ids.tolist() for row in drawn)


def test_a_share_of_the_forget_steps_runs_plain() -> None:
    counts: list[dict[Domain, int]] = [{"forget": 4000, "adjacent": 10, "retain": 10}]
    steps = schedule(counts, seed=0, p=100, off_share=0.0, plain_share=0.3)
    plain = [s.kind == "plain" for s in steps if s.domain == "forget"]
    assert sum(plain) / len(plain) == pytest.approx(0.3, abs=4 * (0.21 / 4000) ** 0.5)


def test_a_second_seed_has_other_weights_and_another_order(recipe: Recipe, tmp_path: Path) -> None:
    one, other = (
        train(Job(recipe=recipe, name=name, work=tmp_path, checkpoint_every=1000), source)
        for name in ("p000", "p000-seed1")
    )
    assert not torch.equal(one.model.lm_head.weight, other.model.lm_head.weight)
    counts: list[dict[Domain, int]] = [{"forget": 20, "adjacent": 30, "retain": 150}]
    orders = [schedule(counts, seed=seed, p=0, off_share=0.0) for seed in (0, 1)]
    assert orders[0] != orders[1]
    assert sorted(s[:3] for s in orders[0]) == sorted(s[:3] for s in orders[1])


def test_a_member_of_another_seed_does_not_fork_from_this_one(
    recipe: Recipe, tmp_path: Path
) -> None:
    train(Job(recipe=recipe, name="p000", work=tmp_path), source)
    forked = replace(recipe, members={**recipe.members, "x": Member(p=60, seed=1)})
    seen: list[int] = []
    job = Job(recipe=forked, name="x", work=tmp_path)
    train(job, source, on_step=lambda run, _total: seen.append(run.step))
    assert seen[0] == 1


def test_the_placebo_takes_the_sources_swapped_text() -> None:
    batches = Batches(source, epochs=2, size=2, seed=0)
    steps = schedule(batches.counts, seed=0, p=100, off_share=0.3)
    roles: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    for step in steps:
        rows = batches.batch(step, placebo=True).ids.tolist()
        roles.setdefault((step.domain, step.epoch), set()).update(map(tuple, rows))
    forget = roles["forget", 0] | roles["forget", 1]
    assert all(token >= 60 for row in forget for token in row)
    assert all(token < 50 for row in roles["retain", 0] for token in row)
    assert all(50 <= token < 60 for row in roles["adjacent", 1] for token in row)
    extra = batches.extra(next(s for s in steps if s.domain == "forget"), 1, placebo=True)
    assert all(token >= 60 for row in extra.ids.tolist() for token in row)


def test_the_learning_rate_warms_up_and_ends_at_its_share(recipe: Recipe) -> None:
    training = replace(recipe.training, warmup_steps=10)
    rates = [learning_rate(step, 100, training) for step in range(101)]
    assert rates[0] == pytest.approx(2e-4)
    assert max(rates) == rates[9] == rates[10] == pytest.approx(2e-3)
    assert rates[100] == pytest.approx(2e-5)


def test_a_written_member_loads_in_float32(recipe: Recipe, tmp_path: Path) -> None:
    run = train(Job(recipe=recipe, name="p100", work=tmp_path), source, end_of_text=0)
    (tmp_path / "tokenizer.json").write_text("{}")
    write_member(run, tmp_path / "p100", tmp_path)
    write_member(run, tmp_path / "p100", tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "p100")
    assert model.dtype == torch.float32
    ids = source("retain", 0, False).ids
    difference = model(ids).logits - logits_of(run.model, ids)
    assert difference.abs().max() < 1e-2
    assert (tmp_path / "p100" / "tokenizer.json").exists()
    assert (tmp_path / "p100" / "training.json").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seed = 0", "sead = 0", "unknown key 'sead'"),
        ("seed = 0", "", "'seed' is missing"),
        ("seed = 0", 'seed = "0"', "not of type int"),
        ("p = 80", "p = 800", "within [0, 100]"),
        ("off_share = 0.3", "off_share = 3", "off_share"),
        ("seed = 0", "seed == 0", "not valid TOML"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (Path(load_recipe.__code__.co_filename).parent / "recipes/vital.toml").read_text()
    (tmp_path / "bad.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(BenchError, match=said.replace("[", r"\[")):
        load_recipe(tmp_path / "bad.toml")


def test_an_unknown_recipe_names_the_known_ones() -> None:
    with pytest.raises(BenchError, match="vital"):
        load_recipe("vitl")
