"""Records sorted into boards, runs and attacks: one `Ledger` holds all that one board scores.

Results compare only under the same task, version, rules and suite, so each of these is a board.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final, NamedTuple, TypeVar

from bench.members import ORACLE, base_of, is_oracle, sibling
from bench.record import ACCEPTED_STATUSES, Record
from bench.selection import Group, best_trials
from leaderboard.pareto import Point

REFERENCE: Final = "reference"
"""The submission of rows in which nothing was unlearned."""

Key = TypeVar("Key", bound=Hashable)


class BoardKey(NamedTuple):
    """What must be equal for two results to compare."""

    task: str
    version: int
    fingerprint: str
    suite: str


class Attacked(NamedTuple):
    """A model that was attacked: a kept checkpoint, or a control with trial 0 and no budget."""

    submission: str
    member: str
    budget: str
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One unlearned model on the test split, seen from its own member and the oracle."""

    gain: float | None
    """(forget loss - member's own) / (oracle's - member's own); null without those."""
    cost: float | None
    """Retain loss - member's own, nats per token."""
    adjacent_cost: float | None
    """Adjacent loss - member's own, nats per token."""
    record: Record

    @property
    def point(self) -> Point | None:
        """Its place in the plane of cost and gain; None where either is not known."""
        if self.gain is None or self.cost is None:
            return None
        return Point(self.cost, self.gain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One submission under one budget at one seed."""

    kept: Checkpoint | None
    """The model it is judged by, on test; null where no model was inside the budget."""
    kept_dev: Record | None
    """The same model on dev, where the budget was matched."""
    checkpoints: tuple[Checkpoint, ...]
    """Every model it showed, on test, by step."""
    records: tuple[Record, ...]
    """All its rows outside attacks."""

    @property
    def lost(self) -> bool:
        """Whether it took place and left no model that may be judged."""
        return not any(r.kept and r.status in ACCEPTED_STATUSES for r in self.records)


Runs = Mapping[int, Run]
"""Runs by seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All that one board scores."""

    key: BoardKey
    members: tuple[str, ...]
    """Reference models that something was run on, `p000` first, without the oracles."""
    own: Mapping[tuple[str, str], Record]
    """The reference model's row, by member and split; the oracle is a member here."""
    runs: Mapping[Group, Mapping[int, Runs]]
    """Runs by what they are compared for, trial and seed."""
    best: Mapping[Group, int]
    """The trial that each is judged by."""
    attacks: Mapping[Attacked, Mapping[str, tuple[Record, ...]]]
    """Rows under attack, by model and name of the attack; doses are nominal."""
    titles: Mapping[str, str]
    """Display titles of submissions."""
    records: tuple[Record, ...]
    warnings: tuple[str, ...]
    """What a reader must know about these records."""

    def best_runs(self, group: Group) -> Runs:
        """The runs by seed of the trial that the group is judged by."""
        return self.runs[group][self.best[group]]


def ledgers(records: Iterable[Record]) -> list[Ledger]:
    """One ledger per board, by name, newest version first."""
    boards: dict[BoardKey, list[Record]] = defaultdict(list)
    for r in records:
        boards[BoardKey(r.task, r.task_version, r.task_fingerprint, r.suite)].append(r)
    keys = sorted(boards, key=lambda key: (key.task, -key.version, key.suite, key.fingerprint))
    return [ledger(key, boards[key]) for key in keys]


def ledger(key: BoardKey, rows: Sequence[Record]) -> Ledger:
    """The ledger of the records of one board."""
    records = _part_versions(rows)
    own, warnings = _own_rows(records)
    groups: dict[Group, dict[int, dict[int, list[Record]]]] = defaultdict(dict)
    attacks: dict[Attacked, dict[str, list[Record]]] = defaultdict(dict)
    doses = _nominal_doses(records)
    for r in records:
        if r.stage == "unlearn":
            trials = groups[Group(r.submission, r.member, r.budget)]
            trials.setdefault(r.trial, {}).setdefault(r.seed, []).append(r)
        elif r.stage == "attack" and r.attack is not None:
            # Controls have no hyperparameters, whatever trial they were filed under.
            trial = 0 if r.submission == REFERENCE else r.trial
            attacked = Attacked(r.submission, r.member, r.budget, trial)
            named = attacks[attacked].setdefault(r.attack, [])
            named.append(replace(r, dose=doses[r.attack, r.step]))
    members = {r.member for r in records if r.stage != "attack" and not is_oracle(r.member)}
    return Ledger(
        key=key,
        members=tuple(sorted(members, key=_member_order)),
        own=own,
        runs={
            group: {t: {s: _run(rs, own) for s, rs in seeds.items()} for t, seeds in trials.items()}
            for group, trials in groups.items()
        },
        best=best_trials(records),
        attacks={
            model: {name: tuple(rs) for name, rs in named.items()}
            for model, named in attacks.items()
        },
        titles=_titles(records),
        records=tuple(records),
        warnings=(*warnings, *_mixed_references(records)),
    )


def expected(done: Mapping[str, Collection[Key]], member: str) -> set[Key]:
    """What a whole row of a member has, given what was done on each member.

    It is what was done on this member, and what was done on more than half of all: less is a
    hole. Something extra on one member makes no hole in the others.
    """
    counts = Counter(key for keys in done.values() for key in set(keys))
    return set(done[member]) | {key for key, count in counts.items() if 2 * count > len(done)}


def is_p_member(member: str) -> bool:
    """Whether the member is one of the suite's `p000` ... `p100`, of any seed."""
    return re.fullmatch(r"p\d+", base_of(member)) is not None


def _member_order(member: str) -> tuple[str, bool, str]:
    return sibling("", member), not is_p_member(member), member


def _run(records: Sequence[Record], own: Mapping[tuple[str, str], Record]) -> Run:
    rows = sorted(records, key=lambda r: (r.step, r.tokens, r.kept))
    fit = [r for r in rows if r.status in ACCEPTED_STATUSES]
    checkpoints = [_checkpoint(r, own) for r in fit if r.split == "test"]
    kept = [c for c in checkpoints if c.record.kept]
    kept_dev = [r for r in fit if r.split == "dev" and r.kept]
    return Run(
        kept=kept[-1] if kept else None,
        kept_dev=kept_dev[-1] if kept_dev else None,
        checkpoints=tuple(checkpoints),
        records=tuple(rows),
    )


def _checkpoint(record: Record, own: Mapping[tuple[str, str], Record]) -> Checkpoint:
    member = own.get((record.member, record.split))
    oracle = own.get((sibling(ORACLE, record.member), record.split))
    gain = None
    if member and oracle:
        above = _difference(record.forget_loss, member.forget_loss)
        gap = _difference(oracle.forget_loss, member.forget_loss)
        gain = above / gap if above is not None and gap is not None and gap > 0 else None
    return Checkpoint(
        gain=gain,
        cost=_difference(record.retain_loss, member.retain_loss) if member else None,
        adjacent_cost=_difference(record.adjacent_loss, member.adjacent_loss) if member else None,
        record=record,
    )


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _own_rows(records: Sequence[Record]) -> tuple[dict[tuple[str, str], Record], list[str]]:
    own: dict[tuple[str, str], Record] = {}
    clashes = set()
    for r in sorted(records, key=lambda r: r.run_id):
        if r.stage != "reference":
            continue
        first = own.setdefault((r.member, r.split), r)
        if (first.forget_loss, first.retain_loss) != (r.forget_loss, r.retain_loss):
            clashes.add(f"{r.member} was measured twice on {r.split} with different results")
    return own, sorted(clashes)


def _mixed_references(records: Sequence[Record]) -> list[str]:
    hashes: dict[str, set[str]] = defaultdict(set)
    for r in records:
        hashes[r.member].add(r.reference_sha256)
    return [
        f"{member}: records come from {len(known)} different weight files"
        for member, known in sorted(hashes.items())
        if len(known) > 1
    ]


def _part_versions(records: Sequence[Record]) -> list[Record]:
    """Give an older version of a submission's files a name of its own, so versions never mix."""
    newest: dict[str, tuple[str, str]] = {}
    for r in records:
        if r.submission != REFERENCE:
            version = (r.started, r.submission_fingerprint)
            newest[r.submission] = max(newest.get(r.submission, version), version)
    parted = []
    for r in records:
        print_ = r.submission_fingerprint
        if r.submission != REFERENCE and print_ != newest[r.submission][1]:
            name, title = f"{r.submission}@{print_[:8]}", f"{r.title} ({print_[:8]}, superseded)"
            parted.append(replace(r, submission=name, title=title))
        else:
            parted.append(r)
    return parted


def _nominal_doses(records: Sequence[Record]) -> dict[tuple[str, int], int]:
    """The dose of each step of each attack, the same for all seeds and models.

    Batches of whole blocks differ a little in real tokens, so the tokens after a step differ by
    seed; the grid is one of steps. Nominal is the median over the controls, which no submission
    can move.
    """
    seen: dict[tuple[str, int], list[tuple[bool, int]]] = defaultdict(list)
    for r in records:
        if r.stage == "attack" and r.attack is not None:
            is_control = r.submission == REFERENCE and r.status == "ok"
            seen[r.attack, r.step].append((is_control, r.dose))
    return {
        key: median_low([dose for is_control, dose in found if is_control] or [d for _, d in found])
        for key, found in seen.items()
    }


def _titles(records: Sequence[Record]) -> dict[str, str]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for r in records:
        counts[r.submission][r.title] += 1
    return {
        name: max(sorted(titles), key=titles.__getitem__) for name, titles in sorted(counts.items())
    }
