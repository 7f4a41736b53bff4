"""Weighted gradient ascent: forget the tokens that the model still predicts well."""

from dataclasses import dataclass

import torch

from bench.api import descend, mean_loss, token_losses


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    forget_weight: float
    """Lambda."""
    exponent: float = 1.0
    """Alpha: a token's loss is weighted with p ** alpha."""


def unlearn(model, data, config, generator):
    """Minimise CE(retain) - lambda * mean(p ** alpha * CE) on forget; p is not differentiated."""

    def objective(forget, retain):
        losses = token_losses(model(input_ids=forget.ids).logits, forget)
        weights = (-losses.detach()).exp() ** config.exponent
        return mean_loss(model, retain) - config.forget_weight * (weights * losses).mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, objective)
