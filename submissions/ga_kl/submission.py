"""Gradient ascent on forget text, with a KL anchor on retain text."""

import copy
from dataclasses import dataclass

import torch

from bench.api import descend, mean_kl, mean_loss


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    retain_weight: float
    """Weight of the KL term."""


def unlearn(model, data, config, generator):
    """Minimise -CE(forget) + lambda * KL(member || model) on retain."""
    # No block comes twice within the token limit: a pass per batch computes each target once.
    member = copy.deepcopy(model)

    def objective(forget, retain):
        with torch.no_grad():
            reference = member(input_ids=retain.ids).logits
        kept = mean_kl(model(input_ids=retain.ids).logits, reference, retain)
        return config.retain_weight * kept - mean_loss(model, forget)

    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, objective)
