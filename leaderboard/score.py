"""All scores of one board: pure functions of its records."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from bench.record import Record, from_frame
from bench.selection import FORGET_BUDGET
from leaderboard.budgets import (
    EntanglementScore,
    ForgetScore,
    KLScore,
    entanglement_scores,
    forget_scores,
    kl_scores,
)
from leaderboard.intervals import Estimate, Missing, estimate
from leaderboard.ledger import Ledger, Run, expected, ledgers
from leaderboard.pareto import Point, area, front
from leaderboard.robustness import AttackScore, RobustnessScore, attack_scores


class _Place(NamedTuple):
    """One run at a forget level, among those of a submission on a member."""

    seed: int
    budget: str
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoScore:
    """The trade-off of one submission on one member."""

    submission: str
    member: str
    area: Estimate | Missing
    """Pareto area, in [0, 1]."""
    fronts: Mapping[int, tuple[Point, ...]]
    """The front by seed, over all trials."""
    checkpoints: int
    """Test checkpoints that the fronts are taken from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """All tables of one board."""

    ledger: Ledger
    pareto: tuple[ParetoScore, ...]
    forget: tuple[ForgetScore, ...]
    entanglement: tuple[EntanglementScore, ...]
    kl: tuple[KLScore, ...]
    attacks: tuple[AttackScore, ...]
    robustness: tuple[RobustnessScore, ...]
    failures: tuple[Record, ...]
    """One row for each run or attack that left no model that may be judged."""


def score(frame: pd.DataFrame) -> list[Scores]:
    """The scores of every board in a frame of records."""
    return [score_ledger(ledger) for ledger in ledgers(from_frame(frame))]


def score_ledger(ledger: Ledger) -> Scores:
    """The scores of one board."""
    attacks, robustness = attack_scores(ledger)
    return Scores(
        ledger=ledger,
        pareto=tuple(pareto_scores(ledger)),
        forget=tuple(forget_scores(ledger)),
        entanglement=tuple(entanglement_scores(ledger)),
        kl=tuple(kl_scores(ledger)),
        attacks=tuple(attacks),
        robustness=tuple(robustness),
        failures=tuple(failures(ledger.records)),
    )


def pareto_scores(ledger: Ledger) -> list[ParetoScore]:
    """One score per submission and member, over the runs of all trials at forget levels.

    Those runs go on to beyond their level, so their checkpoints trace a front. A seed at which
    every run failed has the member itself and nothing else: area 0.
    """
    runs: dict[str, dict[str, dict[_Place, Run]]] = defaultdict(lambda: defaultdict(dict))
    for group, trials in ledger.runs.items():
        if group.budget.startswith(FORGET_BUDGET):
            for trial, seeds in trials.items():
                for seed, run in seeds.items():
                    place = _Place(seed, group.budget, trial)
                    runs[group.submission][group.member][place] = run
    return [
        _pareto_score(submission, member, runs[submission])
        for submission in sorted(runs)
        for member in sorted(runs[submission])
    ]


def _pareto_score(
    submission: str, member: str, by_member: Mapping[str, Mapping[_Place, Run]]
) -> ParetoScore:
    runs = by_member[member]
    points: dict[int, list[Point]] = {seed: [] for seed, _, _ in sorted(runs)}
    wanted = expected(by_member, member)
    # Every seed has every trial: a front over fewer trials is no worse a method's.
    wanted |= {place._replace(seed=seed) for place in wanted for seed in points}
    is_whole = runs.keys() == wanted
    for place, run in runs.items():
        for checkpoint in run.checkpoints:
            if checkpoint.point is None:
                is_whole = False
            else:
                points[place.seed].append(checkpoint.point)
    return ParetoScore(
        submission=submission,
        member=member,
        area=estimate([area(points[s]) for s in points]) if is_whole else Missing.INCOMPLETE,
        fronts={seed: tuple(front(found)) for seed, found in points.items()},
        checkpoints=sum(map(len, points.values())),
    )


def failures(records: Iterable[Record]) -> list[Record]:
    """The last row of each run and attack that did not end well, in a fixed order."""
    bad: dict[tuple[object, ...], Record] = {}
    for r in sorted(records, key=lambda r: (r.step, r.dose)):
        if r.status not in ("ok", "unreached"):
            bad[r.run_id, r.stage, r.attack, r.learning_rate] = r
    return sorted(
        bad.values(),
        key=lambda r: (r.submission, r.member, r.budget, r.trial, r.seed, r.stage, r.run_id),
    )
