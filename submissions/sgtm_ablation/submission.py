"""SGTM ablation: scale θ_bio, the last heads and MLP units of every block, from 1 to 0."""

from dataclasses import dataclass

import torch

from bench.api import blocks


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    heads: int
    """Last attention heads of every block."""
    units: int
    """Last hidden units of every MLP."""
    yields: int = 10


def outputs(model, config):
    """The columns that θ_bio writes to the residual stream through, as views of the weights."""
    if model.config.model_type != "gpt_neo":
        msg = f"SGTM trains GPT-Neo; {model.config.model_type} has no such heads and units."
        raise ValueError(msg)
    width = config.heads * (model.config.hidden_size // model.config.num_heads)
    views = []
    for block in blocks(model):
        views.append(block.attn.attention.out_proj.weight[:, -width:])
        views.append(block.mlp.c_proj.weight[:, -config.units :])
    return views


@torch.no_grad()
def unlearn(model, data, config, generator):
    """Output columns times 1 - k / n, k = 1 ... n; the last model is the ablated one."""
    views = outputs(model, config)
    initial = [view.clone() for view in views]
    for number in range(1, config.yields + 1):
        for view, start in zip(views, initial):
            view.copy_((1 - number / config.yields) * start)
        yield model
