"""Random walk: one random direction in weight space, followed until the budget is used."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    first: float
    """Length of the first step, relative to each matrix's own norm."""
    growth: float
    """Ratio of one distance to the one before."""
    yields: int = 24


@torch.no_grad()
def unlearn(model, data, config, generator):
    """W = W_0 + distance * |W_0| * noise / |noise|, at growing distances."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    initial = [p.clone() for p in matrices]
    noise = [torch.randn(p.shape, generator=generator) for p in matrices]
    for number in range(config.yields):
        distance = config.first * config.growth**number
        for parameter, start, direction in zip(matrices, initial, noise):
            parameter.copy_(start + distance * start.norm() / direction.norm() * direction)
        yield model
