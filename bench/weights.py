"""Weights as data: what crosses the border between a submission and the harness."""

import torch
from transformers import PreTrainedModel

State = dict[str, torch.Tensor]


class ContractError(Exception):
    """A submission broke the contract; the message is one line."""


def copy_weights(source: object, target: PreTrainedModel) -> None:
    """Copy a yielded model's weights into the harness's own model.

    Raises:
        ContractError: It is no module, or a tensor is missing, extra, or of another shape or
            type, or tied tensors differ.
    """
    if not isinstance(source, torch.nn.Module):
        msg = f"yielded {type(source).__name__}, not the model."
        raise ContractError(msg)
    theirs, ours = source.state_dict(), target.state_dict()
    odd = sorted(theirs.keys() ^ ours.keys())
    if odd:
        msg = (
            f"the yielded model is not the one given: tensor {odd[0]!r} is "
            f"{'extra' if odd[0] in theirs else 'missing'} (and {len(odd) - 1} more); "
            "merge adapters and remove wrappers before the yield."
        )
        raise ContractError(msg)
    for name, tensor in ours.items():
        given = theirs[name]
        if given.shape != tensor.shape or given.dtype != tensor.dtype:
            msg = (
                f"tensor {name!r} is {given.dtype} {tuple(given.shape)}, "
                f"expected {tensor.dtype} {tuple(tensor.shape)}."
            )
            raise ContractError(msg)
    seen: dict[int, str] = {}
    with torch.no_grad():
        for name, tensor in ours.items():
            twin = seen.setdefault(tensor.data_ptr(), name)
            if twin != name and not _same(theirs[name], theirs[twin]):
                msg = f"tensors {twin!r} and {name!r} are tied and must stay equal."
                raise ContractError(msg)
            tensor.copy_(theirs[name])


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bitwise equality but for NaN: a diverged model's tied weights are still tied."""
    return torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)


def snapshot(model: PreTrainedModel) -> State:
    """A copy of all weights."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def blend(inside: State, outside: State, t: float) -> State:
    """The weights at fraction t of the straight line between two states."""
    return {name: torch.lerp(tensor, outside[name], t) for name, tensor in inside.items()}
