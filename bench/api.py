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

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from transformers import PreTrainedModel

from bench import losses


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


def mean_loss(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of a batch, nats per real token; NaN where there is none."""
    logits = model(input_ids=batch.ids).logits
    return losses.next_token_loss(logits, batch.ids, batch.lengths)
