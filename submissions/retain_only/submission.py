"""Plain fine-tuning on retain text: the control without which no cost means anything."""

from dataclasses import dataclass

import torch

from bench.api import mean_loss

YIELD_AT = (2, 4, 6, 9, 13, 18, 28, 42)


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    clip: float = 1.0
    """Largest gradient norm of a step."""


def unlearn(model, data, config, generator):
    """Minimise CE(retain), with the steps and batches of the other methods."""
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    # The forget stream is drawn and left unread, so that tokens count steps as for other methods.
    for step, (_, retain) in enumerate(zip(data.forget, data.retain), 1):
        loss = mean_loss(model, retain)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        if step in YIELD_AT:
            yield model
