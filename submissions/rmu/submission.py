"""Representation misdirection: steer forget activations to a random vector, anchor retain ones."""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F

YIELD_AT = (2, 4, 6, 9, 13, 18, 28, 42)


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
    trained = [f".{layer}.mlp." for layer in range(config.layer - 2, config.layer + 1)]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(part in name for part in trained))
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=0.0)
    target = None
    for step, (forget, retain) in enumerate(zip(data.forget, data.retain), 1):
        if target is None:
            with torch.no_grad():
                states = hidden(frozen, forget, config.layer)
            direction = torch.rand(states.shape[1], generator=generator)
            length = config.steering * states.norm(dim=1).mean()
            target = length * direction / direction.norm()
        with torch.no_grad():
            anchor = hidden(frozen, retain, config.layer)
        steered = hidden(model, forget, config.layer)
        loss = F.mse_loss(steered, target.expand_as(steered))
        loss = loss + config.retain_weight * F.mse_loss(hidden(model, retain, config.layer), anchor)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in YIELD_AT:
            yield model
