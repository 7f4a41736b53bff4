"""RepSelect: follow a forget gradient without the directions that forget text shares with all."""

from dataclasses import dataclass
from itertools import islice

import torch
from peft import LoraConfig, get_peft_model

from bench.api import mean_loss, mlps


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    adversary_rate: float
    """Learning rate of the adversary's plain SGD; 0 for no adversary."""
    sides: str = "both"
    """Sides of a gradient that are collapsed: "input", "both" or "none"."""
    form: str = "soft"
    """"soft" divides a direction by its excess variance, "hard" removes it."""
    directions: int = 32
    """K: singular directions of each gradient that are collapsed."""
    adversary_steps: int = 80
    gradient_steps: int = 80
    rank: int = 8
    """Of the adversary; its alpha is the same, so its scale is 1."""
    first: float = 0.005
    """First step, relative to the norm of the MLP weights."""
    growth: float = 1.3
    """Ratio of one distance to the one before."""
    yields: int = 22


def collapse(gradient, directions, sides, form):
    """A gradient (out, in) with its strongest singular directions made weak.

    Soft: along direction i the gradient is divided by sigma_i / sigma_k on each collapsed side, so
    one side levels the first k singular values at sigma_k and two sides turn sigma_i into
    sigma_k ** 2 / sigma_i. Hard: the directions are projected out.
    """
    if sides == "none":
        return gradient
    left, values, right = torch.linalg.svd(gradient, full_matrices=False)
    left, values, right = left[:, :directions], values[:directions], right[:directions].mT
    # A gradient of rank below k has sigma_k = 0, and directions without any: 0 / 0 is no number.
    kept = values[-1] / values.clamp(min=torch.finfo(values.dtype).tiny)
    shrink = 1 - kept if form == "soft" else torch.ones_like(kept)
    gradient = gradient - (gradient @ right * shrink) @ right.mT
    if sides == "both":
        gradient = gradient - left @ (shrink[:, None] * (left.mT @ gradient))
    return gradient


def forget_gradient(model, data, config):
    """Sum of the gradients of -CE(forget) in all MLP weights, the adversary active and frozen."""
    wanted = [linear for linears in mlps(model) for linear in linears.values()]
    chosen = {id(linear) for linear in wanted}
    names = [name for name, module in model.named_modules() if id(module) in chosen]
    lora = LoraConfig(r=config.rank, lora_alpha=config.rank, target_modules=names)
    attacked = get_peft_model(model, lora)
    if config.adversary_rate:
        adapter = [p for p in attacked.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(adapter, lr=config.adversary_rate)
        for forget in islice(data.forget, config.adversary_steps):
            optimizer.zero_grad()
            mean_loss(attacked, forget).backward()
            optimizer.step()
    attacked.requires_grad_(False)
    weights = [linear.weight.requires_grad_(True) for linear in wanted]
    for forget in islice(data.forget, config.gradient_steps):
        (-mean_loss(attacked, forget)).backward()
    gradients = [weight.grad for weight in weights]
    for weight in weights:
        weight.grad = None
    attacked.unload()
    model.requires_grad_(True)
    return weights, gradients


def unlearn(model, data, config, generator):
    """W = W_0 - distance * |W_0| * G / |G|, G the collapsed gradient, at growing distances."""
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))  # the adversary's A
        weights, gradients = forget_gradient(model, data, config)
    steps = [collapse(g, config.directions, config.sides, config.form) for g in gradients]
    initial = [weight.detach().clone() for weight in weights]
    length = sum((w**2).sum() for w in initial).sqrt() / sum((s**2).sum() for s in steps).sqrt()
    for number in range(config.yields):
        distance = config.first * config.growth**number * length
        with torch.no_grad():
            for weight, start, step in zip(weights, initial, steps):
                weight.copy_(start - distance * step)
        yield model
