"""Negative preference optimisation with a KL anchor on retain text."""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from bench.api import descend, mean_kl, sequence_losses


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    beta: float
    """Inverse temperature; small ones approach gradient ascent."""
    retain_weight: float
    """Weight of the KL term; NPO's loss is a sum over the tokens of a sequence, KL a mean."""


def unlearn(model, data, config, generator):
    """Minimise NPO(forget) + lambda * KL(member || model) on retain."""
    # No block comes twice within the token limit: a pass per batch computes each target once.
    member = copy.deepcopy(model)

    def objective(forget, retain):
        with torch.no_grad():
            before = sequence_losses(member(input_ids=forget.ids).logits, forget)
            reference = member(input_ids=retain.ids).logits
        now = sequence_losses(model(input_ids=forget.ids).logits, forget)
        preference = 2 / config.beta * F.softplus(config.beta * (before - now)).mean()
        kept = mean_kl(model(input_ids=retain.ids).logits, reference, retain)
        return preference + config.retain_weight * kept

    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, objective)
