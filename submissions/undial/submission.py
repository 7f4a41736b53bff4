"""UNDIAL: learn forget text from a teacher that hides the true token."""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from bench.api import descend, mean_loss, next_tokens


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    beta: float
    """What the true token's logit loses."""
    retain_weight: float


def distillation_loss(logits, teacher, targets, beta):
    """CE(softmax(teacher - beta * onehot(target)), model), mean over tokens."""
    hidden = teacher - beta * F.one_hot(targets, teacher.shape[-1])
    return F.cross_entropy(logits, hidden.softmax(-1))


def unlearn(model, data, config, generator):
    """Minimise the distillation loss on forget + alpha * CE(retain)."""
    # No block comes twice within the token limit: a pass per batch computes each target once.
    member = copy.deepcopy(model)

    def objective(forget, retain):
        with torch.no_grad():
            teacher, targets = next_tokens(member(input_ids=forget.ids).logits, forget)
        logits, _ = next_tokens(model(input_ids=forget.ids).logits, forget)
        distilled = distillation_loss(logits, teacher, targets, config.beta)
        return distilled + config.retain_weight * mean_loss(model, retain)

    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    yield from descend(model, data, optimizer, objective)
