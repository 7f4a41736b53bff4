"""Representation misdirection: steer forget activations to a random vector, anchor retain ones."""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from bench.api import descend, mlps


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    layer: int
    """Block whose output is steered, from 0; its MLP and the two before are trained."""
    retain_weight: float
    """Alpha."""
    steering: float = 3.0
    """Length of the target vector, in mean activation norms of forget text."""


def hidden(model, batch, layer):
    """Output of a block at every real position; (n, width)."""
    states = model.base_model(input_ids=batch.ids, output_hidden_states=True).hidden_states
    real = torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]
    return states[layer + 1][real]


def unlearn(model, data, config, generator):
    """Minimise MSE(h(forget), c * u) + alpha * MSE(h(retain), h_0(retain))."""
    frozen = copy.deepcopy(model)
    model.requires_grad_(False)
    weights = [
        linear.weight
        for linears in mlps(model)[max(0, config.layer - 2) : config.layer + 1]
        for linear in linears.values()
    ]
    for weight in weights:
        weight.requires_grad_(True)
    target = None

    def objective(forget, retain):
        nonlocal target
        with torch.no_grad():
            anchor = hidden(frozen, retain, config.layer)
            if target is None:
                states = hidden(frozen, forget, config.layer)
                direction = torch.rand(states.shape[1], generator=generator)
                length = config.steering * states.norm(dim=1).mean()
                target = length * direction / direction.norm()
        steered = hidden(model, forget, config.layer)
        kept = F.mse_loss(hidden(model, retain, config.layer), anchor)
        return F.mse_loss(steered, target.expand_as(steered)) + config.retain_weight * kept

    optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, weight_decay=0.0)
    yield from descend(model, data, optimizer, objective, clip=None)
