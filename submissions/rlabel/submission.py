"""Random labels: teach forget text with next tokens drawn at random."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from bench.api import descend, next_tokens


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float


def unlearn(model, data, config, generator):
    """Minimise the cross-entropy of uniformly random tokens in place of forget's next ones."""

    def objective(forget, _retain):
        logits, targets = next_tokens(model(input_ids=forget.ids).logits, forget)
        labels = torch.randint(logits.shape[-1], targets.shape, generator=generator)
        return F.cross_entropy(logits, labels)

    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, objective)
