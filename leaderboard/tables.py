"""Scores laid out as rows of tables, unrounded: what a page shows, before it is shown."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bench.members import ORACLE, sibling
from bench.record import Problem, Record
from bench.selection import Group
from leaderboard import columns
from leaderboard.budgets import ForgetScore, KLScore
from leaderboard.columns import Direction
from leaderboard.intervals import Estimate, Missing, Quotient, ranks
from leaderboard.ledger import Ledger
from leaderboard.robustness import AttackScore, RobustnessScore
from leaderboard.rows import Decided, Flagged, Hinted, Rank, Source, Table, TableRow, Value
from leaderboard.score import Scores

_Pool = list[tuple[Estimate | Missing, TableRow]]
"""Rows that are ranked against each other, each with the score it is ranked by."""


def reference_models(scores: Scores) -> list[str]:
    """The members of a board, then the oracles of their seeds."""
    members = scores.ledger.members
    return list(dict.fromkeys((*members, *(sibling(ORACLE, member) for member in members))))


def reference_table(scores: Scores, localisation: Mapping[str, float]) -> Table:
    """The reference models on the test split."""
    own = scores.ledger.own
    rows = []
    for member in reference_models(scores):
        r = own.get((member, "test"))
        oracle = own.get((sibling(ORACLE, member), "test"))
        if r is None:
            rows.append(TableRow(member=member, values={"member": member}))
            continue
        gap = None
        if oracle and oracle.forget_loss is not None and r.forget_loss is not None:
            gap = oracle.forget_loss - r.forget_loss
        derived = {"member": member, "gap": gap, "localisation": localisation.get(member)}
        names = [column.key for column in columns.REFERENCES if column.key not in derived]
        values: dict[str, Value] = {name: getattr(r, name) for name in names} | derived
        rows.append(TableRow(member=member, values=values, sources=_sources([r])))
    return Table(
        key="references",
        title="Reference models",
        note="Before any unlearning, on test. The oracle never saw the forget domain.",
        columns=columns.REFERENCES,
        rows=tuple(rows),
    )


def pareto_table(scores: Scores) -> Table:
    """Pareto area, the best first within each member."""
    ledger = scores.ledger
    pinned = [
        _pinned(member, name, {"area": area})
        for member in ledger.members
        for name, area in (("member itself", 0.0), ("oracle", 1.0))
    ]
    pools: dict[str, _Pool] = defaultdict(list)
    for s in scores.pareto:
        values: dict[str, Value] = {
            "member": s.member,
            "submission": _titled(ledger, s.submission),
            "area": s.area,
            "seeds": len(s.fronts),
            "checkpoints": s.checkpoints,
        }
        runs = [
            run.records[-1]
            for group, trials in ledger.runs.items()
            if (group.submission, group.member) == (s.submission, s.member)
            and group.budget.startswith("forget>=")
            for seeds in trials.values()
            for run in seeds.values()
        ]
        row = TableRow(member=s.member, values=values, sources=_sources(runs))
        pools[s.member].append((s.area, row))
    return Table(
        key="pareto",
        title="Pareto area",
        note="The trade-off between forgetting and damage, over the checkpoints of all trials.",
        columns=columns.PARETO,
        rows=_ranked(ledger, pinned, pools.values(), "higher"),
    )


def forget_table(scores: Scores) -> Table:
    """Cost at each forget level, the cheapest first within member and level."""
    ledger = scores.ledger
    pools: dict[tuple[str, str], _Pool] = defaultdict(list)
    for s in scores.forget:
        pools[s.group.member, s.group.budget].append((s.cost, _forget_row(ledger, s)))
    pinned = []
    for member in ledger.members:
        own = ledger.own.get((member, "test"))
        oracle = ledger.own.get((sibling(ORACLE, member), "test"))
        pinned.append(_pinned(member, "member itself", {"cost": 0.0, "adjacent": 0.0}))
        if own and oracle:
            costs: dict[str, Value] = {}
            for key, loss in (("cost", "retain_loss"), ("adjacent", "adjacent_loss")):
                theirs, ours = getattr(oracle, loss), getattr(own, loss)
                costs[key] = None if theirs is None or ours is None else theirs - ours
            pinned.append(_pinned(member, "oracle", costs))
    return Table(
        key="forget",
        title="Retain cost at a forget level",
        note="Forgetting is fixed, less damage wins. A level that the retain_only control "
        "reaches by itself is not scored on that member.",
        columns=columns.FORGET,
        rows=_ranked(ledger, pinned, pools.values(), "lower"),
    )


def _forget_row(ledger: Ledger, s: ForgetScore) -> TableRow:
    values: dict[str, Value] = {
        **_identity(ledger, s.group, s.trial),
        "cost": s.cost,
        "excess": s.excess,
        "relative": s.relative,
        "adjacent": s.adjacent,
        "tokens": s.tokens,
        "reached": f"{s.reached[0]}/{s.reached[1]}",
    }
    return TableRow(
        member=s.group.member, values=values, sources=_run_sources(ledger, s.group, s.trial)
    )


def entanglement_table(scores: Scores) -> Table:
    """Entanglement ratios."""
    rows = []
    for s in scores.entanglement:
        seeds = s.raw.estimate.seeds if isinstance(s.raw, Quotient) else None
        values: dict[str, Value] = {
            "submission": _titled(scores.ledger, s.submission),
            "budget": s.budget,
            "member": s.member,
            "raw": s.raw,
            "excess": s.excess,
            "seeds": seeds,
        }
        rows.append(TableRow(member=s.member, values=values))
    return Table(
        key="entanglement",
        title="Entanglement ratio",
        note="How much dearer a forget level is on p000 than on a disentangled member. The "
        "placebo has the schedule without the disentangling: its ratio should be 1.",
        columns=columns.ENTANGLEMENT,
        rows=tuple(rows),
    )


def robustness_table(scores: Scores) -> Table:
    """Robustness and what the KL budget bought, the most robust first within member and budget."""
    ledger = scores.ledger
    worst = {(s.group, s.scale): s for s in scores.robustness}
    pools: dict[tuple[str, str], _Pool] = defaultdict(list)
    for s in scores.kl:
        main, on_loss = worst[s.group, "answer_probability"], worst[s.group, "forget_loss"]
        row = _robustness_row(ledger, s, main, on_loss)
        pools[s.group.member, s.group.budget].append((main.score, row))
    pinned = [
        _pinned(member, name, {"robustness": value, "robustness_loss": value, "gain": value})
        for member in ledger.members
        for name, value in (("member itself", 0.0), ("oracle", 1.0))
    ]
    return Table(
        key="robustness",
        title="Robustness at a KL budget",
        note="Damage is fixed; then the model is attacked, and the worst attack counts.",
        columns=columns.ROBUSTNESS,
        rows=_ranked(ledger, pinned, pools.values(), "higher"),
    )


def _robustness_row(
    ledger: Ledger, s: KLScore, main: RobustnessScore, on_loss: RobustnessScore
) -> TableRow:
    values: dict[str, Value] = {
        **_identity(ledger, s.group, s.trial),
        "robustness": main.score,
        "attack": _decided(main),
        "robustness_loss": on_loss.score,
        "attack_loss": _decided(on_loss),
        "gain": s.gain,
        "use": Flagged(s.use, not s.is_matched),
        "cost": s.cost,
        "adjacent": s.adjacent,
        "lost": f"{s.lost[0]}/{s.lost[1]}",
    }
    return TableRow(
        member=s.group.member, values=values, sources=_run_sources(ledger, s.group, s.trial)
    )


def attack_table(scores: Scores) -> Table:
    """Every submission under every attack."""
    on_loss = {(s.group, s.attack): s for s in scores.attacks if s.scale == "forget_loss"}
    return Table(
        key="attacks",
        title="Attack by attack",
        note="Before and after each attack, on test. A dose counts only where the attacked "
        "member and the attacked oracle are clearly apart.",
        columns=columns.ATTACKS,
        rows=tuple(
            _attack_row(scores.ledger, s, on_loss.get((s.group, s.attack)))
            for s in scores.attacks
            if s.scale == "answer_probability"
        ),
    )


def _attack_row(ledger: Ledger, s: AttackScore, on_loss: AttackScore | None) -> TableRow:
    values: dict[str, Value] = {
        **_identity(ledger, s.group, s.trial),
        "attack": s.attack,
        "raw": s.raw,
        "raw_loss": on_loss.raw if on_loss else None,
        "drop": s.drop,
    }
    if s.envelope is not None and s.dose is not None and s.regains is not None:
        values |= {
            "before": s.envelope.mean(0),
            "after": s.envelope.mean(s.dose),
            "accuracy_before": s.envelope.accuracies.get(0),
            "accuracy_after": s.envelope.accuracies.get(s.dose),
            "regain_50": s.regains[0],
            "regain_90": s.regains[1],
        }
    return TableRow(member=s.group.member, values=values)


def failure_table(scores: Scores) -> Table:
    """Runs and attacks that did not end well."""
    rows = [
        TableRow(
            member=r.member,
            values={
                **_identity(scores.ledger, Group(r.submission, r.member, r.budget), r.trial),
                "seed": r.seed,
                "stage": r.stage if r.attack is None else f"{r.stage}: {r.attack}",
                "status": r.status,
                "error": r.error,
            },
            sources=_sources([r]),
        )
        for r in scores.failures
    ]
    return Table(
        key="failures",
        title="Failed runs",
        note="They score worst and are never left out.",
        columns=columns.FAILURES,
        rows=tuple(rows),
    )


def problem_table(problems: Sequence[Problem]) -> Table:
    """Files that could not be used."""
    rows = sorted((problem.label, problem.reason) for problem in problems)
    return Table(
        key="problems",
        title="Files left out",
        note="These were found among the results and are in no score above.",
        columns=columns.PROBLEMS,
        rows=tuple(TableRow(values={"file": file, "reason": reason}) for file, reason in rows),
    )


def _identity(ledger: Ledger, group: Group, trial: int) -> dict[str, Value]:
    configs = {
        run.records[-1].config
        for run in ledger.runs.get(group, {}).get(trial, {}).values()
        if run.records
    }
    return {
        "member": group.member,
        "submission": _titled(ledger, group.submission),
        "budget": group.budget,
        "trial": Hinted(str(trial), " or ".join(sorted(configs))),
    }


def _titled(ledger: Ledger, submission: str) -> Hinted:
    return Hinted(submission, ledger.titles.get(submission, submission))


def _decided(score: RobustnessScore) -> Value:
    if score.decided_by is None or score.raw is None:
        return None
    return Decided(score.decided_by, score.raw)


def _pinned(member: str, name: str, values: Mapping[str, Value]) -> TableRow:
    return TableRow(
        member=member, values={"member": member, "submission": name, **values}, is_reference=True
    )


def _ranked(
    ledger: Ledger, pinned: Sequence[TableRow], pools: Iterable[_Pool], better: Direction
) -> tuple[TableRow, ...]:
    """Member by member: the reference rows, then each pool, the best first, no rank last."""
    rows = list(pinned)
    for pool in pools:
        places = ranks([score for score, _ in pool], better)
        sign = -1.0 if better == "higher" else 1.0
        keyed = []
        for place, (score, row) in zip(places, pool, strict=True):
            mean = sign * score.mean if isinstance(score, Estimate) else float("inf")
            keyed.append(((place is None, mean), Rank(*place) if place else None, row))
        for _, rank, row in sorted(keyed, key=lambda item: item[0]):
            rows.append(replace(row, values={**row.values, "rank": rank}))
    order = {member: place for place, member in enumerate(ledger.members)}
    return tuple(sorted(rows, key=lambda row: order[row.member]))


def _run_sources(ledger: Ledger, group: Group, trial: int) -> tuple[Source, ...]:
    return _sources(run.records[-1] for run in ledger.runs[group][trial].values())


def _sources(records: Iterable[Record]) -> tuple[Source, ...]:
    return tuple(sorted({Source(r.command, r.git_commit, r.git_dirty) for r in records}))
