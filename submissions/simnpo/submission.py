"""SimNPO: a length-normalised preference against forget text, with no reference model."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from bench.api import descend, mean_loss, sequence_losses


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    beta: float
    retain_weight: float
    margin: float = 0.0
    """Gamma."""


def preference_loss(losses, tokens, beta, margin):
    """-(2 / beta) * mean(log sigmoid(beta * loss / tokens - margin)) over sequences."""
    return -2 / beta * F.logsigmoid(beta * losses / tokens - margin).mean()


def unlearn(model, data, config, generator):
    """Minimise SimNPO(forget) + alpha * CE(retain)."""

    def objective(forget, retain):
        losses = sequence_losses(model(input_ids=forget.ids).logits, forget)
        tokens = (forget.lengths - 1).clamp(min=1)
        preference = preference_loss(losses, tokens, config.beta, config.margin)
        return preference + config.retain_weight * mean_loss(model, retain)

    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, objective)
