"""The contract: all that a submitter must read.

A submission is a folder with `submission.toml` and `submission.py`. The latter holds a frozen
dataclass `Config` (hyperparameters) and one generator function:

    def unlearn(model, data, config, generator):
        optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
        for forget, retain in zip(data.forget, data.retain):
            ...                                  # one step
            reading = yield model                # measured here; or nothing, and go on

The harness copies the yielded weights, measures them on data that the submission never sees, and
answers with a `Reading`. It stops asking once the budget is decided; a submission may also return.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import nn
from transformers import PreTrainedModel

from bench import losses

MEASURED_AFTER: Final = (4, 8, 12, 16, 22, 28, 42, 60, 84)
"""Steps after which `descend` yields: dense where a budget is usually crossed."""


class Batch(NamedTuple):
    """Token blocks of one domain.

    Attributes:
        ids: (blocks, tokens) int64, padded on the right.
        lengths: (blocks,) int64; real tokens in each block.
    """

    ids: torch.Tensor
    lengths: torch.Tensor


@dataclass(frozen=True, slots=True)
class Data:
    """What a submission may learn from: two endless, seeded streams.

    They end when the task's token limit is drawn, so a plain `for` loop ends with them.
    """

    forget: Iterator[Batch]
    """Text to be unlearned."""
    retain: Iterator[Batch]
    """Text whose knowledge is to be kept."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The harness's answer to a yield."""

    value: float
    """The budgeted quantity, on dev data: KL in nats per token, or the forget gain."""
    limit: float
    """The budget's limit in the same unit."""
    accepted: bool
    """KL budget: value <= limit. Forget budget: value >= limit."""


class Unlearn(Protocol):
    """The type of a submission's `unlearn`."""

    def __call__(
        self,
        model: PreTrainedModel,
        data: Data,
        config: Any,  # each submission has its own Config
        generator: torch.Generator,
    ) -> Generator[PreTrainedModel, Reading, None]:
        """Unlearn in place and yield the model whenever it should be measured."""
        ...


def token_losses(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Cross-entropy of every real next token of a batch; (n,) nats."""
    return losses.token_losses(logits, batch.ids, batch.lengths)


def next_tokens(logits: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (n, vocabulary) and targets (n,) of every real next token of a batch."""
    return losses.next_tokens(logits, batch.ids, batch.lengths)


def sequence_losses(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Cross-entropy of each block, summed over its real next tokens; (blocks,) nats."""
    return losses.sequence_losses(logits, batch.ids, batch.lengths)


def mean_kl(logits: torch.Tensor, reference: torch.Tensor, batch: Batch) -> torch.Tensor:
    """KL(reference || model) of the next token, nats per real token; both as logits."""
    return losses.mean_kl(logits, reference, batch.ids, batch.lengths)


def mean_loss(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of a batch, nats per real token; NaN where there is none."""
    logits = model(input_ids=batch.ids).logits
    return losses.next_token_loss(logits, batch.ids, batch.lengths)


def descend(
    model: PreTrainedModel,
    data: Data,
    optimizer: torch.optim.Optimizer,
    objective: Callable[[Batch, Batch], torch.Tensor],
    *,
    clip: float | None = 1.0,
) -> Generator[PreTrainedModel, Reading, None]:
    """Minimise an objective step by step, yielding the model after `MEASURED_AFTER` steps.

    Most methods are one objective; what they share, so that they differ in nothing else, is here.

    Args:
        model: What is yielded.
        data: The two streams; every step draws one batch of each, whether it reads them or not,
            so that tokens count steps alike for all methods.
        optimizer: Over the parameters that may move.
        objective: (forget, retain) to a scalar, differentiable in those parameters.
        clip: Largest Euclidean norm of the gradient; None for no limit.
    """
    moved = [p for group in optimizer.param_groups for p in group["params"]]
    for step, (forget, retain) in enumerate(zip(data.forget, data.retain, strict=False), 1):
        optimizer.zero_grad()
        objective(forget, retain).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(moved, clip)
        optimizer.step()
        if step in MEASURED_AFTER:
            yield model


def blocks(model: PreTrainedModel) -> nn.ModuleList:
    """The transformer blocks of a causal LM, first to last: its longest list of modules.

    Raises:
        ValueError: There is no list of modules.
    """
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        msg = f"{type(model).__name__} has no list of blocks."
        raise ValueError(msg)
    return max(lists, key=len)


def mlps(model: PreTrainedModel) -> list[dict[str, nn.Linear]]:
    """The linear layers of each block's MLP by name: (c_fc, c_proj), or (gate, up, down)_proj.

    Raises:
        ValueError: A block has no module named `mlp`, or that has no linear layer.
    """
    found = []
    for number, block in enumerate(blocks(model)):
        mlp = getattr(block, "mlp", None)
        linear = {n: m for n, m in mlp.named_modules() if isinstance(m, nn.Linear)} if mlp else {}
        if not linear:
            msg = f"block {number} of {type(model).__name__} has no `mlp` with linear layers."
            raise ValueError(msg)
        found.append(linear)
    return found
