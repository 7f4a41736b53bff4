"""Gradient ascent: raise the loss of forget text."""

from dataclasses import dataclass

import torch

from bench.api import descend, mean_loss


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float


def unlearn(model, data, config, generator):
    """Minimise -CE(forget)."""
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, lambda forget, _retain: -mean_loss(model, forget))
