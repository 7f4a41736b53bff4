"""Gradient difference: ascent on forget text, descent on retain text."""

from dataclasses import dataclass

import torch

from bench.api import descend, mean_loss


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    retain_weight: float
    """Weight of the retain loss."""


def unlearn(model, data, config, generator):
    """Minimise alpha * CE(retain) - CE(forget)."""

    def objective(forget, retain):
        return config.retain_weight * mean_loss(model, retain) - mean_loss(model, forget)

    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, objective)
