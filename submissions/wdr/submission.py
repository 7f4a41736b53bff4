"""Weight-divergence regularisation: move away from the initial weights, keep retain loss low."""

from dataclasses import dataclass

import torch

from bench.api import descend, mean_loss

FLOOR = 1e-16
"""Under the root, whose gradient at the initial weights would be NaN."""
NUDGE = 1e-6
"""Standard deviation of the noise that gives the divergence its first direction."""


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    divergence_weight: float
    """Lambda."""


def unlearn(model, data, config, generator):
    """Minimise CE(retain) - lambda * sqrt(mean((theta - theta_0) ** 2)); uses no forget text."""
    parameters = list(model.parameters())
    initial = [parameter.detach().clone() for parameter in parameters]
    count = sum(parameter.numel() for parameter in parameters)
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=NUDGE)

    def objective(_forget, retain):
        moved = sum(((p - q) ** 2).sum() for p, q in zip(parameters, initial))
        divergence = (moved / count + FLOOR).sqrt()
        return mean_loss(model, retain) - config.divergence_weight * divergence

    optimizer = torch.optim.SGD(parameters, lr=config.learning_rate)
    yield from descend(model, data, optimizer, objective)
