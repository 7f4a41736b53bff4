"""Weighted gradient ascent: forget the tokens that the model still predicts well."""

from dataclasses import dataclass

import torch

from bench.api import mean_loss, token_losses

YIELD_AT = (2, 4, 6, 9, 13, 18, 28, 42)


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    forget_weight: float
    """Lambda."""
    exponent: float = 1.0
    """Alpha: a token's loss is weighted with p ** alpha."""
    clip: float = 1.0
    """Largest gradient norm of a step."""


def unlearn(model, data, config, generator):
    """Minimise CE(retain) - lambda * mean(p ** alpha * CE) on forget; p is not differentiated."""
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    for step, (forget, retain) in enumerate(zip(data.forget, data.retain), 1):
        losses = token_losses(model(input_ids=forget.ids).logits, forget)
        weights = (-losses.detach()).exp() ** config.exponent
        loss = mean_loss(model, retain) - config.forget_weight * (weights * losses).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        if step in YIELD_AT:
            yield model
