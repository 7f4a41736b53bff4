"""CIR: unlearn in what is left of activations and gradients without their main directions."""

import copy
from dataclasses import dataclass
from itertools import islice

import torch

from bench.api import MEASURED_AFTER, mlps


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    step_norm: float
    """Norm of each update over all MLP weights."""
    activation_components: int = 23
    """Removed from the inputs of each weight, beside their mean."""
    gradient_components: int = 35
    """Removed from the gradients of its outputs, beside their mean."""
    collected_steps: int = 8
    """Batches that the components are taken from before anything moves."""
    retain_rate: float = 3e-3
    """Of the SGD step that pulls retain activations back."""


class Taps:
    """What flows through some linear layers at the real positions of a batch."""

    def __init__(self, linears):
        self.linears, self.real = linears, None
        self.inputs, self.outputs, self.gradients = {}, {}, {}

    def _keep(self, number):
        def hook(_module, args, output):
            self.inputs[number] = args[0][self.real].detach()
            self.outputs[number] = output[self.real]
            if output.requires_grad:
                output.register_hook(self._keep_gradient(number))

        return hook

    def _keep_gradient(self, number):
        def hook(gradient):
            self.gradients[number] = gradient[self.real].detach()

        return hook

    def run(self, model, batch):
        """A forward pass; the last token predicts nothing and is left out."""
        self.real = torch.arange(1, batch.ids.shape[1] + 1) < batch.lengths[:, None]
        # Hooks live as long as the pass: what is yielded in between is the bare model.
        numbered = enumerate(self.linears)
        hooks = [linear.register_forward_hook(self._keep(n)) for n, linear in numbered]
        try:
            return model.base_model(input_ids=batch.ids).last_hidden_state[self.real]
        finally:
            for hook in hooks:
                hook.remove()


def breaking_loss(outputs, before):
    """mean(max(0, <out, out_0>)) / mean(|out_0|) ** 2, over tokens."""
    alignment = (outputs * before).sum(1).clamp(min=0).mean()
    return alignment / before.norm(dim=1).mean() ** 2


def components(rows, count):
    """(width, count + 1) orthonormal: the mean of the rows and their first principal components."""
    mean = rows.mean(0)
    count = min(count, *rows.shape)
    _, _, right = torch.linalg.svd(rows - mean, full_matrices=False)
    basis, _ = torch.linalg.qr(torch.cat([mean[:, None], right[:count].mT], 1))
    return basis


def without(rows, basis):
    """Rows with their part in the span of the basis removed."""
    return rows - rows @ basis @ basis.mT


def unlearn(model, data, config, generator):
    """W = W - step_norm * G / |G|, G = sum over tokens of collapsed gradient x collapsed input.

    Read for models of any depth and a run of one pass: the MLPs of all blocks are broken, not those
    of a middle third; the components are found once, not once per epoch; retain activations are
    held at the last hidden state. Nothing is cached, as no block comes twice.
    """
    member = copy.deepcopy(model)
    layers = [list(linears.values()) for linears in mlps(model)]
    linears = [linear for layer in layers for linear in layer]
    last = [sum(map(len, layers[: number + 1])) - 1 for number in range(len(layers))]
    model.requires_grad_(False)
    for linear in linears:
        linear.weight.requires_grad_(True)
    taps = Taps(linears)
    theirs = Taps([linear for linears in mlps(member) for linear in linears.values()])

    def forget_pass(batch):
        with torch.no_grad():
            theirs.run(member, batch)
        taps.run(model, batch)
        loss = sum(breaking_loss(taps.outputs[n], theirs.outputs[n]) for n in last)
        loss.backward()
        for linear in linears:
            linear.weight.grad = None
        return dict(taps.inputs), dict(taps.gradients)

    collected = [forget_pass(batch) for batch in islice(data.forget, config.collected_steps)]
    bases = []
    for number in range(len(linears)):
        inputs = torch.cat([inputs[number] for inputs, _ in collected])
        gradients = torch.cat([gradients[number] for _, gradients in collected])
        basis = components(inputs, config.activation_components)
        bases.append((basis, components(gradients, config.gradient_components)))
    for step, (forget, retain) in enumerate(zip(data.forget, data.retain), 1):
        inputs, gradients = forget_pass(forget)
        updates = [
            without(gradients[n], bases[n][1]).mT @ without(inputs[n], bases[n][0])
            for n in range(len(linears))
        ]
        norm = sum((update**2).sum() for update in updates).sqrt().clamp(min=1e-12)
        with torch.no_grad():
            for linear, update in zip(linears, updates):
                linear.weight.sub_(config.step_norm / norm * update)
        hold(model, member, taps, theirs, retain, config)
        if step in MEASURED_AFTER:
            yield model


def hold(model, member, taps, theirs, retain, config):
    """One SGD step on mean(|h - h_0|) / mean(|h_0|) of the last hidden states of retain text."""
    with torch.no_grad():
        before = theirs.run(member, retain)
    moved = (taps.run(model, retain) - before).norm(dim=1).mean() / before.norm(dim=1).mean()
    moved.backward()
    with torch.no_grad():
        for linear in taps.linears:
            linear.weight.sub_(config.retain_rate * linear.weight.grad)
            linear.weight.grad = None
