"""Selective gradient masking: which parameters a training step may move.

SGTM (arXiv 2512.05648) keeps a small part of every block for the forget domain, here θ_bio: the
last attention heads and the last MLP units. In the SGTM phase

- a *forget* step moves θ_bio, and the shared parameters that the recipe names;
- an *off* step (a share of the adjacent and retain steps) runs with θ_bio switched off and moves
  everything else;
- a *plain* step moves everything.

What a step may not move stays the same byte for byte, and so do its two AdamW moments. The
published code zeroes gradients instead, after which momentum and weight decay still move the
"frozen" parameters. One thing is shared: AdamW counts steps per tensor, so a tensor of which a
part is frozen counts on for all of it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from transformers import GPTNeoForCausalLM

Kind = Literal["plain", "forget", "off", "skip"]
Shared = Literal["embeddings", "layer_norms"]
SHARED: tuple[str, ...] = get_args(Shared)
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, kw_only=True)
class BioSubnetwork:
    """θ_bio: the last heads and the last MLP units of every block."""

    heads: int
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The entries `start : start + length` of a parameter along one dimension."""

    parameter: nn.Parameter
    dim: int
    start: int
    length: int

    def of(self, tensor: Tensor) -> Tensor:
        """Those entries of a tensor that has the parameter's shape, as a view."""
        return tensor.narrow(self.dim, self.start, self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What one kind of step must not move."""

    whole: tuple[nn.Parameter, ...] = ()
    parts: tuple[Part, ...] = ()


def bio_parts(model: GPTNeoForCausalLM, bio: BioSubnetwork) -> dict[str, Part]:
    """θ_bio by parameter name: rows of q, k, v and c_fc, columns of out_proj and c_proj."""
    config = model.config
    head_rows = bio.heads * (config.hidden_size // config.num_heads)
    widths = {
        "attn.attention.q_proj.weight": (0, head_rows),
        "attn.attention.k_proj.weight": (0, head_rows),
        "attn.attention.v_proj.weight": (0, head_rows),
        "attn.attention.out_proj.weight": (1, head_rows),
        "mlp.c_fc.weight": (0, bio.units),
        "mlp.c_fc.bias": (0, bio.units),
        "mlp.c_proj.weight": (1, bio.units),
    }
    parameters = dict(model.named_parameters())
    parts = {}
    for layer in range(config.num_layers):
        for suffix, (dim, length) in widths.items():
            name = f"transformer.h.{layer}.{suffix}"
            parameter = parameters[name]
            start = parameter.shape[dim] - length
            parts[name] = Part(parameter=parameter, dim=dim, start=start, length=length)
    return parts


def bio_masks(model: GPTNeoForCausalLM, bio: BioSubnetwork) -> dict[str, Tensor]:
    """A boolean tensor per parameter that has θ_bio entries, true where they are."""
    masks = {}
    for name, part in bio_parts(model, bio).items():
        mask = torch.zeros(part.parameter.shape, dtype=torch.bool)
        part.of(mask).fill_(True)
        masks[name] = mask
    return masks


def frozen_by(
    kind: Kind, model: GPTNeoForCausalLM, bio: BioSubnetwork, shared: Sequence[str]
) -> Frozen:
    """What a step of this kind must not move.

    Args:
        kind: The kind of step.
        model: The model that is trained.
        bio: Its θ_bio.
        shared: What a forget step moves besides θ_bio: "embeddings" (token and position) and
            "layer_norms" (all of them).
    """
    parts = bio_parts(model, bio)
    if kind == "off":
        return Frozen(parts=tuple(parts.values()))
    if kind != "forget":
        return Frozen()
    whole = [
        parameter
        for name, parameter in model.named_parameters()
        if name not in parts and _group(name) not in shared
    ]
    others = [
        Part(parameter=part.parameter, dim=part.dim, start=0, length=part.start)
        for part in parts.values()
    ]
    return Frozen(whole=tuple(whole), parts=tuple(others))


def _group(name: str) -> str:
    """The name that a recipe has for a parameter outside θ_bio."""
    if ".ln_" in name:
        return "layer_norms"
    return "embeddings" if name.startswith(("transformer.wte", "transformer.wpe")) else "other"


@torch.no_grad()
def masked_step(optimizer: torch.optim.Optimizer, frozen: Frozen, clip: float) -> None:
    """Clip the gradient of what may move, and move that and nothing else.

    Parameters and both moments of all frozen entries keep their bytes: neither momentum nor
    weight decay reaches them. Gradients are consumed.

    Args:
        optimizer: AdamW, with gradients in place.
        frozen: What must not move; empty for a plain step.
        clip: The largest Euclidean norm of the gradient.
    """
    for parameter in frozen.whole:
        parameter.grad = None  # AdamW passes over it: no state, no decay, no copy
    kept: list[tuple[Tensor, Tensor]] = []
    for part in frozen.parts:
        if part.parameter.grad is not None:
            part.of(part.parameter.grad).zero_()
        state: dict[str, Any] = optimizer.state.get(part.parameter, {})
        for tensor in (part.parameter, *(state[m] for m in _MOMENTS if m in state)):
            view = part.of(tensor)
            kept.append((view, view.clone()))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    nn.utils.clip_grad_norm_(parameters, clip)
    optimizer.step()
    for view, value in kept:
        view.copy_(value)
    optimizer.zero_grad(set_to_none=True)


@contextmanager
def without_bio(model: GPTNeoForCausalLM, bio: BioSubnetwork) -> Iterator[None]:
    """Run the model with θ_bio off: its heads and hidden units give zeros to the block.

    The forward equals that of a model whose θ_bio entries are all zero, and θ_bio gets a gradient
    of exactly zero.
    """
    config = model.config
    rows = bio.heads * (config.hidden_size // config.num_heads)
    handles = []
    for layer in range(config.num_layers):
        for name, count in (("attn.attention.out_proj", rows), ("mlp.c_proj", bio.units)):
            module = model.get_submodule(f"transformer.h.{layer}.{name}")
            handles.append(module.register_forward_pre_hook(_last_zeroed(count)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _last_zeroed(count: int) -> Callable[[nn.Module, tuple[Tensor]], Tensor]:
    def hook(_module: nn.Module, args: tuple[Tensor]) -> Tensor:
        keep = torch.ones(args[0].shape[-1], dtype=args[0].dtype, device=args[0].device)
        keep[len(keep) - count :] = 0
        return args[0] * keep

    return hook
