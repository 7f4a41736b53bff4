"""Full relearning: fine-tune every parameter on the attacker's forget documents.

AdamW in float32 with a short warm-up and then a constant rate, so that one run yields every dose;
one grid of rates for every model, in fractions of the suite's pre-training peak. The documents are
disjoint from those whose facts are probed (Deeb & Roger, arXiv 2410.08827).
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import torch
from transformers import PreTrainedModel

from bench.api import Batch, mean_loss
from bench.attacks.dose import Dose
from bench.data import Blocks, load_tokenizer, text_blocks
from bench.measure import Evaluator, merge
from bench.streams import Meter
from bench.tasks import Relearn
from bench.weights import State

NAME: Final = "relearn"
STOP_COST: Final = 3.0
"""Retain-dev loss above the model's own at which a rate counts as diverged, nats per token."""


@cache
def attack_blocks(folder: Path) -> Blocks:
    """The attacker's documents with their facts, packed; `folder` holds the tokenizer."""
    return text_blocks("forget", ("relearn",), 0, load_tokenizer(folder))


def relearn(
    model: PreTrainedModel,
    state: State,
    config: Relearn,
    evaluator: Evaluator,
    folder: Path,
    seed: int,
) -> Iterator[Dose]:
    """Every dose at every rate, from the same weights each time.

    Args:
        model: The harness's own model; changed.
        state: Weights under attack.
        config: Grid and doses.
        evaluator: The member's.
        folder: The member's folder, for its tokenizer.
        seed: Order of the attack's batches.
    """
    start: Dose | None = None
    for rate in config.learning_rates:
        model.load_state_dict(state)
        if start is None:
            start = _dose(model, evaluator, rate, 0, 0)
        yield replace(start, learning_rate=rate)
        yield from _one_rate(model, config, rate, evaluator, _Run(folder, seed, start))


class _Run:
    """What one rate's run starts from."""

    def __init__(self, folder: Path, seed: int, start: Dose) -> None:
        self.folder, self.seed, self.start = folder, seed, start


def _one_rate(
    model: PreTrainedModel, config: Relearn, rate: float, evaluator: Evaluator, run: _Run
) -> Iterator[Dose]:
    meter = Meter(limit=2**62)
    batches = meter.stream(attack_blocks(run.folder), config.batch_blocks, run.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, betas=config.betas, weight_decay=0.0, fused=True
    )
    last = run.start
    diverged = False
    for step in range(1, config.steps[-1] + 1):
        if not diverged:
            factor = min(1.0, step / config.warmup)
            diverged = not _step(model, optimizer, rate * factor, next(batches), config.clip)
        if step in config.steps:
            if not diverged:
                dose = _dose(model, evaluator, rate, step, meter.tokens)
                diverged = _destroyed(dose, run.start)
                last = dose if dose.dev.finite() and dose.test.finite() else last
            yield replace(last, learning_rate=rate, step=step, diverged=diverged)


def _step(
    model: PreTrainedModel, optimizer: torch.optim.Optimizer, rate: float, batch: Batch, clip: float
) -> bool:
    """One step; False where the gradient is not finite and nothing was changed."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    mean_loss(model, batch).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    if not math.isfinite(float(norm)):
        return False
    optimizer.step()
    return True


def _dose(
    model: PreTrainedModel, evaluator: Evaluator, rate: float, step: int, amount: int
) -> Dose:
    """Measure what the score needs on dev and test, and retain loss on dev for context."""
    dev_probes, dev_answers = evaluator.probes(model, "dev")
    test_probes, test_answers = evaluator.probes(model, "test")
    return Dose(
        attack=NAME,
        learning_rate=rate,
        step=step,
        amount=amount,
        dev=merge(evaluator.losses(model, "dev", "forget", "retain"), dev_probes),
        test=merge(evaluator.losses(model, "test", "forget"), test_probes),
        answers=tuple(("dev", a) for a in dev_answers) + tuple(("test", a) for a in test_answers),
    )


def _destroyed(dose: Dose, start: Dose) -> bool:
    if not (dose.dev.finite() and dose.test.finite()):
        return True
    assert dose.dev.retain_loss is not None
    assert start.dev.retain_loss is not None
    return dose.dev.retain_loss - start.dev.retain_loss > STOP_COST
