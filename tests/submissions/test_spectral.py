"""RepSelect's collapse: what it does to singular values, and that its adversary leaves no trace."""

import pytest
import torch
from torch import Tensor

from bench.api import Data, mlps
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


def test_an_adversary_changes_the_gradient() -> None:
    repselect = code("repselect")
    found = []
    for rate in (0.0, 0.5):
        torch.manual_seed(0)
        config = repselect.Config(adversary_rate=rate, adversary_steps=5, gradient_steps=2)
        data = streams()
        if not rate:
            for _ in range(5):
                next(data.forget)
        found.append(repselect.forget_gradient(tiny_model(layers=3), data, config)[1][0])
    assert not torch.allclose(found[0], found[1], rtol=1e-3)
