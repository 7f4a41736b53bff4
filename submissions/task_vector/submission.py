"""Task-vector negation: subtract what fine-tuning on forget text would add."""

import copy
from dataclasses import dataclass
from itertools import islice

import torch

from bench.api import mean_loss


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    steps: int
    """Of fine-tuning."""
    first: float = 0.1
    """First scale of the vector."""
    growth: float = 1.25
    """Ratio of one scale to the one before."""
    yields: int = 20


def unlearn(model, data, config, generator):
    """theta = theta_0 - scale * (theta_forget - theta_0), at growing scales."""
    tuned = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(tuned.parameters(), lr=config.learning_rate, weight_decay=0.0)
    for forget in islice(data.forget, config.steps):
        optimizer.zero_grad()
        mean_loss(tuned, forget).backward()
        optimizer.step()
    initial = [p.detach().clone() for p in model.parameters()]
    vector = [q.detach() - p for p, q in zip(initial, tuned.parameters())]
    for number in range(config.yields):
        scale = config.first * config.growth**number
        with torch.no_grad():
            for parameter, start, direction in zip(model.parameters(), initial, vector):
                parameter.copy_(start - scale * direction)
        yield model
