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


def theta_bio(model, config):
    """Views of θ_bio: rows of q, k, v and c_fc with its bias, columns of out_proj and c_proj.

    Its outputs alone would do for the loss, but leave in the rows what an attacker can wake up:
    the gradient of a zeroed column is zero only where what feeds it is zero too.
    """
    if model.config.model_type != "gpt_neo":
        msg = f"SGTM trains GPT-Neo; {model.config.model_type} has no such heads and units."
        raise ValueError(msg)
    width = config.heads * (model.config.hidden_size // model.config.num_heads)
    views = []
    for block in blocks(model):
        attention, mlp = block.attn.attention, block.mlp
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            views.append(linear.weight[-width:])
        views.append(attention.out_proj.weight[:, -width:])
        views += [mlp.c_fc.weight[-config.units :], mlp.c_fc.bias[-config.units :]]
        views.append(mlp.c_proj.weight[:, -config.units :])
    return views


@torch.no_grad()
def unlearn(model, data, config, generator):
    """θ_bio = (1 - k / n) * θ_bio_0, k = 1 ... n; the last model is the ablated one."""
    views = theta_bio(model, config)
    initial = [view.clone() for view in views]
    for number in range(1, config.yields + 1):
        for view, start in zip(views, initial):
            view.copy_((1 - number / config.yields) * start)
        yield model
