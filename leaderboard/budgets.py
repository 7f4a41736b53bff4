"""What submissions achieve under a budget: cost at a forget level, gain at a KL limit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.members import ENTANGLED, sibling
from bench.record import Record
from bench.selection import FORGET_BUDGET, KL_BUDGET, Group
from leaderboard.intervals import Estimate, Missing, Quotient, estimate, quotient
from leaderboard.ledger import Checkpoint, Ledger, Run, Runs, expected

RETAIN_ONLY: Final = "retain_only"
"""The control: the same steps on retain text, and no forgetting term."""
YARDSTICK: Final = "wga"
"""The submission that relative cost is relative to."""
KL_USE: Final = (0.95, 1.0)
"""Share of a KL budget that a matched run has used."""

BySeed = Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetScore:
    """The price of one forget level."""

    group: Group
    trial: int
    cost: Estimate | Missing
    """Retain loss above the member's own, nats per token."""
    excess: Estimate | Missing
    """Cost above that of `retain_only` after equally many tokens, nats per token."""
    adjacent: Estimate | Missing
    """Adjacent loss above the member's own, nats per token."""
    relative: Quotient | Missing
    """Cost over the cost of the yardstick submission."""
    tokens: Estimate | Missing
    """Tokens drawn."""
    reached: tuple[int, int]
    """Seeds that reached the level, and seeds run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntanglementScore:
    """How much dearer a forget level is on the entangled member than on another."""

    submission: str
    budget: str
    member: str
    """The member in the denominator."""
    raw: Quotient | Missing
    """Ratio of costs."""
    excess: Quotient | Missing
    """Ratio of excess costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KLScore:
    """What one KL budget buys."""

    group: Group
    trial: int
    gain: Estimate | Missing
    """Share of the gap to the oracle's forget loss; 0 at seeds that left no model."""
    use: Estimate | Missing
    """KL on dev, where it was matched, over the limit; seeds that left no model are not in it."""
    cost: Estimate | Missing
    """Retain loss above the member's own, nats per token."""
    adjacent: Estimate | Missing
    """Adjacent loss above the member's own, nats per token."""
    lost: tuple[int, int]
    """Seeds that left no model inside the budget, and seeds run."""

    @property
    def is_matched(self) -> bool:
        """Whether the budget was used as far as the rules ask, on the mean over seeds."""
        return isinstance(self.use, Estimate) and KL_USE[0] <= self.use.mean <= KL_USE[1]


def forget_scores(ledger: Ledger) -> list[ForgetScore]:
    """One score per submission, member and forget level."""
    scores = []
    for group in sorted(ledger.runs):
        if not group.budget.startswith(FORGET_BUDGET):
            continue
        cost = costs(ledger, group)
        yardstick = group._replace(submission=YARDSTICK)
        relative = _over(cost, costs(ledger, yardstick))
        runs = ledger.best_runs(group)
        scores.append(
            ForgetScore(
                group=group,
                trial=ledger.best[group],
                cost=_mean(cost),
                excess=_mean(excess_costs(ledger, group)),
                adjacent=_mean(_at_level(ledger, group, lambda c: c.adjacent_cost)),
                relative=relative if yardstick in ledger.runs else Missing.NO_YARDSTICK,
                tokens=_mean(_at_level(ledger, group, lambda c: float(c.record.tokens))),
                reached=(sum(map(_reached, runs.values())), len(runs)),
            )
        )
    return scores


def entanglement_scores(ledger: Ledger) -> list[EntanglementScore]:
    """Ratios of `p000` to every other member of its seed, per submission and forget level."""
    scores = []
    for group in sorted(ledger.runs):
        entangled = group._replace(member=sibling(ENTANGLED, group.member))
        if not group.budget.startswith(FORGET_BUDGET) or group == entangled:
            continue
        scores.append(
            EntanglementScore(
                submission=group.submission,
                budget=group.budget,
                member=group.member,
                raw=_over(costs(ledger, entangled), costs(ledger, group)),
                excess=_over(excess_costs(ledger, entangled), excess_costs(ledger, group)),
            )
        )
    return scores


def kl_scores(ledger: Ledger) -> list[KLScore]:
    """One score per submission, member and KL budget."""
    scores = []
    for group in sorted(ledger.runs):
        if not group.budget.startswith(KL_BUDGET):
            continue
        runs = ledger.best_runs(group)
        kept = {s: run.kept for s, run in runs.items() if run.kept}
        gains = {s: c.gain for s, c in kept.items()} | {s: 0.0 for s in runs if runs[s].lost}
        scores.append(
            KLScore(
                group=group,
                trial=ledger.best[group],
                gain=_full(gains, expected_seeds(ledger, group)),
                use=_full({s: _use(runs[s].kept_dev) for s in kept}, set(kept)),
                cost=_full({s: c.cost for s, c in kept.items()}, set(kept)),
                adjacent=_full({s: c.adjacent_cost for s, c in kept.items()}, set(kept)),
                lost=(sum(run.lost for run in runs.values()), len(runs)),
            )
        )
    return scores


def expected_seeds(ledger: Ledger, group: Group) -> set[int]:
    """The seeds that a whole row has, by what the submission ran under this budget elsewhere."""
    done = {
        other.member: {seed for runs in trials.values() for seed in runs}
        for other, trials in ledger.runs.items()
        if (other.submission, other.budget) == (group.submission, group.budget)
    }
    return expected(done, group.member)


def is_reached_by_control(ledger: Ledger, member: str, budget: str) -> bool:
    """Whether the `retain_only` control reaches the forget level by itself, at any seed.

    Its other trials may: steps so large that they damage everything "forget" at their cost, and
    stand in the table with it, as a row that a method has to beat.
    """
    return any(map(_reached, control_runs(ledger, member, budget).values()))


def control_runs(ledger: Ledger, member: str, budget: str) -> Runs:
    """The runs by seed of the `retain_only` trial that is the control; empty without any.

    It is the one whose last models have the lowest dev retain loss: the best that training on
    retain text does.
    """
    trials = ledger.runs.get(Group(RETAIN_ONLY, member, budget), {})

    def last_loss(trial: int) -> tuple[float, int]:
        losses = [
            [r.retain_loss for r in run.records if r.split == "dev" and r.retain_loss is not None]
            for run in trials[trial].values()
        ]
        ends = [loss[-1] for loss in losses if loss]
        return (sum(ends) / len(ends) if ends else float("inf")), trial

    return trials[min(trials, key=last_loss)] if trials else {}


def costs(ledger: Ledger, group: Group) -> BySeed | Missing:
    """Cost by seed of the checkpoints matched to a forget level."""
    return _at_level(ledger, group, lambda checkpoint: checkpoint.cost)


def excess_costs(ledger: Ledger, group: Group) -> BySeed | Missing:
    """The same above the cost of the `retain_only` control after equally many tokens."""
    paths = _control_paths(ledger, group)

    def excess(checkpoint: Checkpoint) -> float | None:
        path = paths.get(checkpoint.record.seed)
        if path is None or checkpoint.cost is None:
            return None
        tokens, cost = zip(*path, strict=True)
        return checkpoint.cost - float(np.interp(checkpoint.record.tokens, tokens, cost))

    return _at_level(ledger, group, excess)


def _control_paths(ledger: Ledger, group: Group) -> dict[int, list[tuple[float, float]]]:
    """Tokens and cost along the control's runs, by seed; it starts as the member, at no cost.

    Beyond its last model the cost stays what it was.
    """
    paths = {}
    for seed, run in control_runs(ledger, group.member, group.budget).items():
        path = {0.0: 0.0}
        for c in run.checkpoints:
            if c.cost is not None and not c.record.interpolated:
                path[float(c.record.tokens)] = c.cost
        if len(path) > 1:
            paths[seed] = sorted(path.items())
    return paths


def _at_level(
    ledger: Ledger, group: Group, read: Callable[[Checkpoint], float | None]
) -> BySeed | Missing:
    if group not in ledger.runs:
        return Missing.INCOMPLETE
    if is_reached_by_control(ledger, group.member, group.budget):
        return Missing.BY_CONTROL
    runs = ledger.best_runs(group)
    if not all(map(_reached, runs.values())):
        return Missing.NOT_REACHED
    values = {seed: read(run.kept) for seed, run in runs.items() if run.kept}
    present = {seed: value for seed, value in values.items() if value is not None}
    if present.keys() != expected_seeds(ledger, group):
        return Missing.INCOMPLETE
    return present


def _reached(run: Run) -> bool:
    return run.kept is not None and run.kept.record.status == "ok"


def _use(record: Record | None) -> float | None:
    if record is None or record.kl is None or not record.limit:
        return None
    return record.kl / record.limit


def _over(top: BySeed | Missing, bottom: BySeed | Missing) -> Quotient | Missing:
    if isinstance(top, Missing):
        return top
    return bottom if isinstance(bottom, Missing) else quotient(top, bottom)


def _mean(values: BySeed | Missing) -> Estimate | Missing:
    if isinstance(values, Missing):
        return values
    return estimate([values[seed] for seed in sorted(values)])


def _full(values: Mapping[int, float | None], seeds: set[int]) -> Estimate | Missing:
    """The mean, if every one of the seeds has a value."""
    present = {seed: value for seed, value in values.items() if value is not None}
    return _mean(present) if present and present.keys() == seeds else Missing.INCOMPLETE
