"""The one rule for which trial of a submission is its best: it reads `dev` rows only.

The benchmark uses it to decide which model to attack, the leaderboard to decide which model to
report. Both must agree, so there is one rule.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from bench.record import ACCEPTED_STATUSES, Record

KL_BUDGET: Final = "kl<="
FORGET_BUDGET: Final = "forget>="


class Group(NamedTuple):
    """What a trial is chosen for."""

    submission: str
    member: str
    budget: str


class _Standing(NamedTuple):
    """How a trial did on dev; the smallest is the best."""

    lost: int
    """Seeds without a model inside the budget."""
    unreached: int
    """Seeds that stopped short of the forget level."""
    loss: float
    """Mean over the other seeds of what is to be small."""
    trial: int


def best_trials(records: Iterable[Record]) -> dict[Group, int]:
    """The best trial of every submission on every member under every budget.

    Under a KL budget the best trial has the highest mean dev forget loss over seeds, which on one
    member is the highest gain; at a forget level it has the lowest mean dev retain loss. A trial
    that failed, diverged, or was never run at some seed ranks below all that did not, and one
    that missed the forget level below all that reached it. Ties go to the lowest trial.
    """
    runs: dict[Group, dict[int, dict[int, Record | None]]] = defaultdict(dict)
    for record in records:
        if record.stage != "unlearn":
            continue
        group = Group(record.submission, record.member, record.budget)
        # Any row tells that the run took place; only the kept dev row tells how it went.
        seeds = runs[group].setdefault(record.trial, {})
        seeds.setdefault(record.seed, None)
        if record.kept and record.split == "dev":
            seeds[record.seed] = record
    return {group: _best(group.budget, trials) for group, trials in runs.items()}


def _best(budget: str, trials: dict[int, dict[int, Record | None]]) -> int:
    seeds = {seed for kept in trials.values() for seed in kept}
    return min(_standing(budget, trial, kept, seeds) for trial, kept in trials.items()).trial


def _standing(
    budget: str, trial: int, kept: dict[int, Record | None], seeds: set[int]
) -> _Standing:
    losses = []
    unreached = 0
    for seed in sorted(seeds):
        record = kept.get(seed)
        if record is None or record.status not in ACCEPTED_STATUSES:
            continue
        loss = _to_be_small(budget, record)
        if loss is not None:
            losses.append(loss)
            # A KL budget is a ceiling: a run that stays below it has broken no promise.
            unreached += record.status == "unreached" and budget.startswith(FORGET_BUDGET)
    mean = sum(losses) / len(losses) if losses else 0.0
    return _Standing(len(seeds) - len(losses), unreached, mean, trial)


def _to_be_small(budget: str, record: Record) -> float | None:
    if budget.startswith(FORGET_BUDGET):
        return record.retain_loss
    return None if record.forget_loss is None else -record.forget_loss
