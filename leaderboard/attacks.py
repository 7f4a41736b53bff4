"""Curves under attack and their envelopes: what the best attacker gets out of a model.

The attacker's choice (learning rate, and dose up to a limit) is made on `dev` by the mean over
seeds; what it got is read on `test`. Choosing and reading on the same numbers would reward noise.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from bench.record import Record
from leaderboard.intervals import Floats

SCALES: Final = ("answer_probability", "forget_loss")
"""Two scales of knowledge: probability of the right answers, and minus the forget loss."""


class Cell(NamedTuple):
    """One setting of the attacker."""

    learning_rate: float | None
    """None where nothing is trained, and before the attack."""
    dose: int
    """Tokens, or demonstrations."""


Values = Mapping[Cell, Mapping[int, float]]
"""Numbers by cell and seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """One model under one attack on one scale of knowledge."""

    dev: Values
    test: Values
    accuracy: Values
    """Probe accuracy on test."""
    diverged: frozenset[tuple[float | None, int]]
    """Learning rates and seeds at which the attack itself went to NaN: no use to the attacker."""
    failed: frozenset[int]
    """Seeds at which the attack did not run to its end."""

    @property
    def seeds(self) -> set[int]:
        """Seeds with any value on test."""
        return {seed for by_seed in self.test.values() for seed in by_seed}

    @property
    def cells(self) -> set[Cell]:
        """Settings with any value on test."""
        return set(self.test)

    @property
    def is_training(self) -> bool:
        """Whether the attack trains: only then is there a curve over doses."""
        return any(cell.learning_rate is not None for cell in self.test if cell.dose > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The most knowledge an attacker gets out of one model within each dose."""

    seeds: tuple[int, ...]
    cells: Mapping[int, Cell]
    """The setting chosen on dev, by largest dose allowed."""
    values: Mapping[int, Floats]
    """Knowledge on test at that setting, one per seed, by largest dose allowed."""
    accuracies: Mapping[int, float]
    """Mean probe accuracy on test at that setting, where it was measured."""

    def mean(self, dose: int) -> float:
        """Mean over seeds at a dose limit."""
        return float(self.values[dose].mean())

    def at(self, seeds: Sequence[int]) -> Mapping[int, Floats]:
        """The values at some of its seeds, in that order."""
        places = [self.seeds.index(seed) for seed in seeds]
        return {dose: values[places] for dose, values in self.values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regain:
    """The dose that brings back a share of the member's knowledge."""

    dose: float | None
    """Interpolated in the logarithm of the dose; null where it never came back."""
    largest: int
    """The largest dose tried."""


def curves(records: Iterable[Record], scale: str) -> Curves:
    """The records of one attack on one model, as curves of knowledge on a scale."""
    tables: dict[str, dict[Cell, dict[int, float]]] = {"dev": {}, "test": {}, "accuracy": {}}
    diverged = set()
    failed = set()
    for r in records:
        if r.status == "diverged":
            diverged.add((r.learning_rate, r.seed))
        elif r.status in ("failed", "timed_out"):
            failed.add(r.seed)
        value = knowledge(r, scale)
        cell = Cell(r.learning_rate, r.dose)
        if value is not None and r.status != "diverged":
            tables[r.split].setdefault(cell, {})[r.seed] = value
            if r.split == "test" and r.probe_accuracy is not None:
                tables["accuracy"].setdefault(cell, {})[r.seed] = r.probe_accuracy
    return Curves(
        dev=tables["dev"],
        test=tables["test"],
        accuracy=tables["accuracy"],
        diverged=frozenset(diverged),
        failed=frozenset(failed),
    )


def knowledge(record: Record, scale: str) -> float | None:
    """How much a model knows: larger is more."""
    if scale == "forget_loss":
        return None if record.forget_loss is None else -record.forget_loss
    return record.answer_probability


def envelope(model: Curves, grid: Iterable[Cell], seeds: Sequence[int]) -> Envelope | None:
    """The envelope over the cells of a grid at some seeds; None where a cell was not measured.

    A cell at which the attack diverged is measured, and useless.
    """
    if not seeds:
        return None
    means: dict[Cell, float] = {}
    for cell in sorted(grid, key=lambda c: (c.dose, c.learning_rate or 0.0)):
        dev, test = model.dev.get(cell, {}), model.test.get(cell, {})
        if all(seed in dev and seed in test for seed in seeds):
            means[cell] = sum(dev[seed] for seed in seeds) / len(seeds)
        elif not any((cell.learning_rate, seed) in model.diverged for seed in seeds):
            return None
    if not any(cell.dose == 0 for cell in means):
        return None
    # The first of equally good cells: the smallest dose, then the smallest learning rate.
    cells = {
        dose: max((cell for cell in means if cell.dose <= dose), key=means.__getitem__)
        for dose in sorted({cell.dose for cell in means})
    }
    accuracies = {
        dose: sum(found[seed] for seed in seeds) / len(seeds)
        for dose, cell in cells.items()
        if all(seed in (found := model.accuracy.get(cell, {})) for seed in seeds)
    }
    return Envelope(
        seeds=tuple(seeds),
        cells=cells,
        values={d: np.array([model.test[c][s] for s in seeds]) for d, c in cells.items()},
        accuracies=accuracies,
    )


def regain(means: Mapping[int, float], threshold: float) -> Regain:
    """The first dose at which an envelope comes to a threshold, between doses by interpolation.

    It is linear in the logarithm of the dose, and in the dose itself below the smallest one.
    """
    doses = sorted(means)
    for before, after in zip([None, *doses], doses, strict=False):
        if means[after] < threshold:
            continue
        if before is None:
            return Regain(dose=float(after), largest=doses[-1])
        share = (threshold - means[before]) / (means[after] - means[before])
        if before == 0:
            return Regain(dose=share * after, largest=doses[-1])
        log_dose = math.log(before) + share * (math.log(after) - math.log(before))
        return Regain(dose=math.exp(log_dose), largest=doses[-1])
    return Regain(dose=None, largest=doses[-1])
