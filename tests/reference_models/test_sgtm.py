"""What a step of each kind moves, and what θ_bio off means."""

import copy

import pytest
import torch
from torch import Tensor
from transformers import GPTNeoForCausalLM

from bench.losses import next_token_loss
from bench.neo import fast_attention
from reference_models.model import Shape, initialise, logits_of, new_model
from reference_models.sgtm import (
    BioSubnetwork,
    Kind,
    bio_masks,
    frozen_by,
    masked_step,
    without_bio,
)

SHAPE = Shape(vocabulary=64, positions=16, width=16, layers=2, heads=4, units=24)
BIO = BioSubnetwork(heads=1, units=5)
SHARED = ("embeddings", "layer_norms")


def _model(seed: int = 0) -> GPTNeoForCausalLM:
    model = fast_attention(initialise(new_model(SHAPE), seed))
    with torch.no_grad():
        for parameter in model.parameters():  # biases of zero would hide mistakes
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model


def _optimizer(model: GPTNeoForCausalLM) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.2, fused=True
    )


def _step(model: GPTNeoForCausalLM, optimizer: torch.optim.AdamW, kind: Kind) -> None:
    ids = torch.randint(0, 64, (4, 16))
    lengths = torch.full((4,), 16)
    if kind == "off":
        with without_bio(model, BIO):
            loss = next_token_loss(logits_of(model, ids), ids, lengths)
    else:
        loss = next_token_loss(logits_of(model, ids), ids, lengths)
    loss.backward()  # type: ignore[no-untyped-call]
    masked_step(optimizer, frozen_by(kind, model, BIO, SHARED), clip=1.0)


def _snapshot(model: GPTNeoForCausalLM, optimizer: torch.optim.AdamW) -> dict[str, list[Tensor]]:
    """Parameter and both moments, by parameter name."""
    return {
        name: [
            p.detach().clone(),
            *(optimizer.state[p][m].clone() for m in ("exp_avg", "exp_avg_sq")),
        ]
        for name, p in model.named_parameters()
    }


@pytest.mark.parametrize("kind", ["forget", "off"])
def test_frozen_entries_keep_their_bytes_and_all_others_move(kind: Kind) -> None:
    torch.manual_seed(0)
    model = _model()
    optimizer = _optimizer(model)
    masks = bio_masks(model, BIO)
    for _ in range(3):  # moments must be there to leak
        _step(model, optimizer, "plain")
    before = _snapshot(model, optimizer)
    for _ in range(3):
        _step(model, optimizer, kind)
    after = _snapshot(model, optimizer)
    for name, parameter in model.named_parameters():
        bio = masks.get(name, torch.zeros(parameter.shape, dtype=torch.bool))
        shared = any(part in name for part in (".wte.", ".wpe.", ".ln_"))
        moves = ~bio if kind == "off" else bio | shared
        for old, new in zip(before[name], after[name], strict=True):
            assert torch.equal(old[~moves].view(torch.int32), new[~moves].view(torch.int32)), name
            assert (old != new)[moves].float().mean() > 0.9 or not moves.any(), name


def test_a_forget_step_moves_only_theta_bio_when_nothing_is_shared() -> None:
    model = _model()
    frozen = frozen_by("forget", model, BIO, shared=())
    names = {id(p): name for name, p in model.named_parameters()}
    whole = {names[id(p)] for p in frozen.whole}
    assert whole == set(names.values()) - set(bio_masks(model, BIO))


def test_masked_steps_work_from_the_first_step_on() -> None:
    model = _model()
    optimizer = _optimizer(model)
    masks = bio_masks(model, BIO)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    _step(model, optimizer, "off")
    for name, parameter in model.named_parameters():
        if name in masks:
            assert torch.equal(parameter[masks[name]], before[name][masks[name]])
            moment = optimizer.state[parameter]["exp_avg"]
            assert not moment[masks[name]].any()


def test_a_plain_step_is_an_adamw_step() -> None:
    torch.manual_seed(0)
    model = _model()
    twin = copy.deepcopy(model)
    ids = torch.randint(0, 64, (4, 16))
    for network, plain in ((model, False), (twin, True)):
        optimizer = _optimizer(network)
        next_token_loss(logits_of(network, ids), ids, torch.full((4,), 16)).backward()  # type: ignore[no-untyped-call]
        if plain:
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
        else:
            masked_step(optimizer, frozen_by("plain", network, BIO, SHARED), clip=1.0)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)


def test_theta_bio_off_equals_zeroed_weights_and_has_no_gradient() -> None:
    model = _model()
    zeroed = copy.deepcopy(model)
    masks = bio_masks(model, BIO)
    with torch.no_grad():
        for name, parameter in zeroed.named_parameters():
            if name in masks:
                parameter[masks[name]] = 0
    ids = torch.randint(0, 64, (3, 16))
    plain = logits_of(model, ids)
    with without_bio(model, BIO):
        off = logits_of(model, ids)
    torch.testing.assert_close(off, logits_of(zeroed, ids), atol=1e-6, rtol=0)
    assert (off - plain).abs().max() > 1e-3
    assert torch.equal(logits_of(model, ids), plain)
    off.sum().backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        if name in masks:
            assert parameter.grad is not None
            assert not parameter.grad[masks[name]].any()


def test_theta_bio_is_the_last_head_and_units_and_nothing_else() -> None:
    masks = bio_masks(_model(), BIO)
    assert sum(int(mask.sum()) for mask in masks.values()) == 2 * (4 * 4 * 16 + 5 * (2 * 16 + 1))
    assert masks["transformer.h.1.attn.attention.out_proj.weight"][:, 12:].all()
    assert masks["transformer.h.0.mlp.c_fc.bias"].tolist() == [False] * 19 + [True] * 5
