"""Plain fine-tuning on retain text: the control without which no cost means anything."""

from dataclasses import dataclass

import torch

from bench.api import descend, mean_loss


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float


def unlearn(model, data, config, generator):
    """Minimise CE(retain), with the steps and batches of the other methods."""
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, lambda _forget, retain: mean_loss(model, retain))
