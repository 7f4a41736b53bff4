"""Learning with forgetting: fine-tune on retain text, periodically unlearn self-written text."""

import copy
from dataclasses import dataclass
from itertools import islice

import torch

from bench.api import MEASURED_AFTER, Batch, mean_loss


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    learning_rate: float
    forget_rate: float
    """Beta: the ascent's learning rate over that of the descent."""
    interval: int = 7
    """Every so many steps one ascent follows the descent."""
    update: float = 1e-2
    """Alpha: size of the single step whose conflict with the learning task is judged."""
    learning_steps: int = 10
    """Fine-tuning steps that stand for the learning task's optimum."""
    texts: int = 24
    """Self-written texts."""
    share: float = 0.5
    """Of them, those of the highest confidence, that are unlearned."""
    shots: int = 3
    """Pieces of forget text in the prompt of each."""
    shot_tokens: int = 24
    written_tokens: int = 48


@torch.no_grad()
def write_texts(model, data, config):
    """Greedy continuations of prompts made of pieces of different forget texts; (texts, tokens)."""
    blocks = []
    for forget in data.forget:
        full = forget.ids[forget.lengths >= config.shot_tokens]
        blocks += list(full[:, : config.shot_tokens])
        if len(blocks) >= config.texts * config.shots:
            break
    ids = torch.stack(blocks[: config.texts * config.shots]).view(config.texts, -1)
    start = ids.shape[1]
    for _ in range(config.written_tokens):
        following = model(input_ids=ids).logits[:, -1].argmax(-1)
        ids = torch.cat([ids, following[:, None]], 1)
    return ids[:, start:]


def learned(model, data, config):
    """The learning task's optimum, and the diagonal Fisher information there, per block."""
    optimum = copy.deepcopy(model)
    optimizer = torch.optim.SGD(optimum.parameters(), lr=config.learning_rate)
    for retain in islice(data.retain, config.learning_steps):
        optimizer.zero_grad()
        mean_loss(optimum, retain).backward()
        optimizer.step()
    fisher = [torch.zeros_like(p) for p in optimum.parameters()]
    blocks = [Batch(*pair) for pair in _single(next(data.retain))]
    for block in blocks:
        squares = [gradient**2 / len(blocks) for gradient in gradients(optimum, block)]
        fisher = [total + square for total, square in zip(fisher, squares)]
    return [p.detach() for p in optimum.parameters()], fisher


def gradients(model, batch):
    """Gradient of the mean loss in every parameter."""
    return torch.autograd.grad(mean_loss(model, batch), list(model.parameters()))


def _single(batch):
    return zip(batch.ids.split(1), batch.lengths.split(1))


def confidence(base, gradient, optimum, fisher, update):
    """FC(x) = 1/2 * sum_i F_i * (theta_base_i - alpha * dL(x)/dtheta_i - theta_L_i) ** 2."""
    return 0.5 * sum(
        float((f * (p - update * g - q) ** 2).sum())
        for p, g, q, f in zip(base, gradient, optimum, fisher)
    )


def unlearn(model, data, config, generator):
    """Descend on CE(retain); every `interval` steps ascend on the loss of a chosen text batch.

    Read for plain text: the learning task is retain text, and its optimum is taken to be where a
    few of the same steps lead; a shot is the beginning of a forget block, as there are no
    questions; decoding is greedy, as in the paper; a fixed share of the texts, the most confident,
    is unlearned.
    """
    texts = write_texts(model, data, config)
    lengths = torch.full((1,), texts.shape[1])
    optimum, fisher = learned(model, data, config)
    base = [p.detach() for p in model.parameters()]
    scores = [
        confidence(
            base, gradients(model, Batch(text[None], lengths)), optimum, fisher, config.update
        )
        for text in texts
    ]
    chosen = torch.tensor(scores).argsort(descending=True)[: int(config.share * len(texts))]
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    for step, (forget, retain) in enumerate(zip(data.forget, data.retain), 1):
        _step(model, optimizer, mean_loss(model, retain), config.learning_rate)
        if step % config.interval == 0:
            rows = chosen[torch.randint(len(chosen), (len(forget.ids),), generator=generator)]
            written = Batch(texts[rows], lengths.expand(len(rows)))
            rate = config.forget_rate * config.learning_rate
            _step(model, optimizer, -mean_loss(model, written), rate)
        if step in MEASURED_AFTER:
            yield model


def _step(model, optimizer, loss, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
