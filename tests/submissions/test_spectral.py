"""RepSelect's collapse: what it does to singular values, and that its adversary leaves no trace."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # the field's usual name
from peft import get_peft_model
from torch import Tensor
from transformers import PreTrainedModel

from bench.api import Batch, Data, mlps
from bench.streams import Meter
from tests.bench.tiny import tiny_blocks, tiny_model
from tests.submissions.code import code

VALUES = torch.tensor([8.0, 4.0, 2.0, 1.0, 0.5], dtype=torch.float64)
K = 3


def orthogonal(size: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    square = torch.randn(size, size, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(square)[0]


def matrix() -> Tensor:
    return orthogonal(7, 0)[:, :5] @ torch.diag(VALUES) @ orthogonal(5, 1)


@pytest.mark.parametrize(
    ("sides", "form", "expected"),
    [
        ("input", "soft", [2.0, 2.0, 2.0, 1.0, 0.5]),  # the first k at sigma_k
        ("both", "soft", [0.5, 1.0, 2.0, 1.0, 0.5]),  # sigma_k ** 2 / sigma_i
        ("input", "hard", [0.0, 0.0, 0.0, 1.0, 0.5]),
        ("both", "hard", [0.0, 0.0, 0.0, 1.0, 0.5]),
        ("none", "soft", [8.0, 4.0, 2.0, 1.0, 0.5]),
    ],
)
def test_the_collapse_is_a_filter_of_the_spectrum(
    sides: str, form: str, expected: list[float]
) -> None:
    collapsed = code("repselect").collapse(matrix(), K, sides, form)
    spectrum = orthogonal(7, 0)[:, :5].mT @ collapsed @ orthogonal(5, 1).mT
    wanted = torch.diag(torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(spectrum, wanted, atol=1e-10, rtol=0)


@pytest.mark.parametrize("sides", ["input", "both"])
def test_the_collapse_turns_with_the_basis(sides: str) -> None:
    collapse = code("repselect").collapse
    left, right = orthogonal(7, 4), orthogonal(5, 5)
    turned = collapse(left @ matrix() @ right, K, sides, "soft")
    torch.testing.assert_close(turned, left @ collapse(matrix(), K, sides, "soft") @ right)


@pytest.mark.parametrize("sides", ["input", "both"])
def test_a_gradient_of_lower_rank_than_k_collapses_to_what_its_spectrum_says(sides: str) -> None:
    values = torch.tensor([8.0, 4.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    exact = torch.diag(values)
    # sigma_k is 0, and so is the limit of both sigma_k and sigma_k ** 2 / sigma_i.
    assert not code("repselect").collapse(exact, K, sides, "soft").any()
    assert not code("repselect").collapse(torch.zeros(4, 5), K, sides, "soft").any()


def streams() -> Data:
    meter = Meter(10**6)
    return Data(
        forget=meter.stream(tiny_blocks(30, 8), 4, 0), retain=meter.stream(tiny_blocks(31, 8), 4, 1)
    )


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_the_adversary_leaves_the_model_bare_and_its_weights_untouched(rate: float) -> None:
    repselect = code("repselect")
    model = tiny_model(layers=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modules = [type(module) for module in model.modules()]
    config = repselect.Config(adversary_rate=rate, adversary_steps=3, gradient_steps=2)
    torch.manual_seed(0)
    repselect.forget_gradient(model, streams(), config)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert [type(module) for module in model.modules()] == modules
    assert all(p.requires_grad for p in model.parameters())
    assert all(p.grad is None for p in model.parameters())


def test_without_an_adversary_the_gradient_is_that_of_the_bare_model() -> None:
    repselect = code("repselect")
    model = tiny_model(layers=3)
    config = repselect.Config(adversary_rate=0.0, gradient_steps=2)
    weights, gradients = repselect.forget_gradient(model, streams(), config)
    assert [id(w) for w in weights] == [
        id(linear.weight) for linears in mlps(model) for linear in linears.values()
    ]
    bare = tiny_model(layers=3)
    forget = streams().forget
    for _ in range(2):
        ids, lengths = next(forget)
        logits = bare(input_ids=ids).logits
        rows = [
            torch.nn.functional.cross_entropy(row[: n - 1], own[1:n], reduction="sum")
            for row, own, n in zip(logits, ids, lengths.tolist(), strict=True)
        ]
        (-torch.stack(rows).sum() / (lengths - 1).sum()).backward()
    for found, linears in zip(gradients[::2], mlps(bare), strict=True):
        wanted = linears["c_fc"].weight.grad
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-7)


def mean_forget_loss(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Summed over blocks and divided by their targets, without the benchmark's losses."""
    ids, lengths = batch
    rows = [
        F.cross_entropy(row[: n - 1], own[1:n], reduction="sum")
        for row, own, n in zip(model(input_ids=ids).logits, ids, lengths.tolist(), strict=True)
    ]
    return torch.stack(rows).sum() / (lengths - 1).sum()


def test_the_gradient_is_that_of_the_model_with_the_adversary_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The adversary W + B A, kept before it is dropped, knows more; -CE is taken at its weights."""
    repselect, merged, peft_model = code("repselect"), tiny_model(layers=3), []

    def watched(model: Any, config: Any) -> Any:
        attacked = get_peft_model(model, config)
        peft_model.append(attacked)
        unload = attacked.unload

        def keep_and_unload() -> Any:
            for own, lora in zip(linears(merged), adapted(attacked), strict=True):
                delta = lora.lora_B["default"].weight @ lora.lora_A["default"].weight
                with torch.no_grad():
                    own.weight += delta
            return unload()

        monkeypatch.setattr(attacked, "unload", keep_and_unload)
        return attacked

    monkeypatch.setattr(repselect, "get_peft_model", watched)
    config = repselect.Config(adversary_rate=0.5, adversary_steps=5, gradient_steps=2)
    torch.manual_seed(0)
    _, gradients = repselect.forget_gradient(tiny_model(layers=3), streams(), config)
    bare, data = tiny_model(layers=3), streams()
    learned = [next(data.forget) for _ in range(5)]
    for batch in (next(data.forget), next(data.forget)):
        (-mean_forget_loss(merged, batch)).backward()
    for found, linear in zip(gradients, linears(merged), strict=True):
        torch.testing.assert_close(found, linear.weight.grad, rtol=1e-3, atol=1e-6)
    known, unknown = (sum(mean_forget_loss(m, b) for b in learned) for m in (merged, bare))
    assert known < unknown
    assert peft_model[0].peft_config["default"].r == config.rank == 8
    assert peft_model[0].peft_config["default"].lora_alpha == 8
    assert peft_model[0].peft_config["default"].lora_dropout == 0


def linears(model: Any) -> list[Any]:
    return [linear for block in mlps(model) for linear in block.values()]


def adapted(attacked: Any) -> list[Any]:
    return [module for module in attacked.modules() if hasattr(module, "lora_A")]
