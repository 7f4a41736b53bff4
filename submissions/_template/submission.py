"""Copy this folder, rename it, and write your method into `unlearn`. This one runs as it is."""

from dataclasses import dataclass

import torch

from bench.api import mean_loss


@dataclass(frozen=True)
class Config:
    """Your hyperparameters. Each [[trial]] in submission.toml makes one Config."""

    learning_rate: float
    forget_weight: float


def unlearn(model, data, config, generator):
    """Gradient difference: descend on retain text, ascend on forget text.

    model       a transformers causal language model; change it in place
    data        data.forget and data.retain: endless streams of Batch(ids, lengths)
    config      one trial's Config
    generator   a seeded torch.Generator: the only source of randomness to use

    Yield the bare model whenever it should be measured; the answer says how much of the budget is
    used. The harness stops the run when the budget is decided, and measuring costs you nothing.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    for step, (forget, retain) in enumerate(zip(data.forget, data.retain), 1):
        loss = mean_loss(model, retain) - config.forget_weight * mean_loss(model, forget)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 4 == 0:
            reading = yield model
            if reading.accepted and reading.value > reading.limit:
                return  # a forget level is reached: nothing more to do
