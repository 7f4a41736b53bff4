"""The architecture, its seeded weights, and the fast forward."""

import pytest
import torch
from torch import Tensor
from transformers import GPTNeoForCausalLM

from bench.losses import next_token_loss
from bench.neo import fast_attention
from reference_models.model import Shape, initialise, new_model
from reference_models.recipe import load_recipe

LOCAL = Shape(
    vocabulary=97, positions=160, width=24, layers=2, heads=2, units=40,
    attention=("global", "local"), window=9,
)  # fmt: skip


def _pair() -> tuple[GPTNeoForCausalLM, GPTNeoForCausalLM]:
    """One model twice: eager as transformers has it, and fast. Large weights make sharp scores."""
    eager, fast = (initialise(new_model(LOCAL), 1) for _ in range(2))
    with torch.no_grad():
        for model in (eager, fast):
            for parameter in model.parameters():
                parameter.mul_(8.0 if parameter.dim() > 1 else 1.0)
    return eager, fast_attention(fast)


@pytest.mark.parametrize("length", [1, 63, 64, 130, 160])
def test_fast_forward_equals_transformers(length: int) -> None:
    eager, fast = _pair()
    ids = torch.randint(0, 97, (3, length), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(fast(ids).logits, eager(ids).logits, atol=1e-5, rtol=1e-5)


def test_fast_gradients_equal_those_of_transformers() -> None:
    eager, fast = _pair()
    ids = torch.randint(0, 97, (3, 130))
    for model in (eager, fast):
        next_token_loss(model(ids).logits, ids, torch.tensor([130, 2, 77])).backward()  # type: ignore[no-untyped-call]
    for one, other in zip(fast.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("left", [False, True])
def test_padding_on_either_side(left: bool) -> None:
    eager, fast = _pair()
    ids = torch.randint(0, 97, (2, 100))
    mask = torch.ones_like(ids)
    mask[1, :30] = 0
    if not left:
        mask = mask.flip(1)
    real = mask.bool()
    outputs = [model(ids, attention_mask=mask).logits[real] for model in (fast, eager)]
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)


def test_generation_and_attention_weights_still_work() -> None:
    eager, fast = _pair()
    ids = torch.randint(0, 97, (2, 70))
    tokens = [
        m.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0) for m in (fast, eager)
    ]
    assert torch.equal(*tokens)
    weights = [model(ids, output_attentions=True).attentions[1] for model in (fast, eager)]
    torch.testing.assert_close(*weights)


def test_the_loss_ignores_padding() -> None:
    logits = torch.randn(2, 5, 7)
    ids = torch.randint(0, 7, (2, 5))
    lengths = torch.tensor([5, 3])

    def rows(logits: Tensor) -> list[Tensor]:
        return [
            -logits[b, t].log_softmax(-1)[ids[b, t + 1]]
            for b, n in ((0, 5), (1, 3))
            for t in range(n - 1)
        ]

    expected = torch.stack(rows(logits)).mean()
    torch.testing.assert_close(next_token_loss(logits, ids, lengths), expected)
    logits[1, 2:] = 100 * torch.randn(3, 7)
    torch.testing.assert_close(next_token_loss(logits, ids, lengths), expected)


def test_seeded_weights_are_equal_and_apart_from_torch_state() -> None:
    one = initialise(new_model(LOCAL), 3).state_dict()
    torch.manual_seed(99)
    other = initialise(new_model(LOCAL), 3).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert abs(float(one["transformer.wte.weight"].std()) - 0.02) < 0.001
    assert not one["transformer.h.0.mlp.c_fc.bias"].any()
    assert (one["transformer.ln_f.weight"] == 1).all()


def test_the_paper_model_has_its_number_of_parameters() -> None:
    with torch.device("meta"):
        model = new_model(load_recipe("wikipedia-254m").model)
    assert sum(p.numel() for p in model.parameters()) == 254_054_481
    assert model.lm_head.weight is model.transformer.wte.weight
