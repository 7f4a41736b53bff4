"""Negative preference optimisation: ascent that fades as the model moves away from the member."""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from bench.api import descend, sequence_losses


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    beta: float
    """Inverse temperature; small ones approach gradient ascent."""


def preference_loss(losses, member_losses, beta):
    """(2 / beta) * mean(log(1 + (pi / pi_0) ** beta)) over sequences; losses are -log pi."""
    return 2 / beta * F.softplus(beta * (member_losses - losses)).mean()


def unlearn(model, data, config, generator):
    """Minimise -(2 / beta) * mean(log sigmoid(-beta * log(pi / pi_0))) on forget sequences."""
    # No block comes twice within the token limit: a pass per batch computes each target once.
    member = copy.deepcopy(model)

    def objective(forget, _retain):
        with torch.no_grad():
            before = sequence_losses(member(input_ids=forget.ids).logits, forget)
        now = sequence_losses(model(input_ids=forget.ids).logits, forget)
        return preference_loss(now, before, config.beta)

    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, objective)
