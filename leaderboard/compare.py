"""Two sets of results side by side: what got worse beyond the seeds' own noise.

Made for continuous integration. Every score is compared in its own direction; a score that is gone,
or a run that fails where it did not, is a regression.
"""

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from bench.errors import BenchError
from bench.record import read, read_all, to_frame
from leaderboard.columns import NATS, Direction
from leaderboard.intervals import Estimate, Missing
from leaderboard.ledger import BoardKey
from leaderboard.score import Scores, score

NOISE: Final = 2.0
"""Standard errors of the difference that count as the seeds' noise."""
STORED: Final = "leaderboard/results"
"""Where the results of a git revision lie."""


class Measure(NamedTuple):
    """A score that is compared."""

    title: str
    better: Direction
    unit: str


PARETO: Final = Measure("Pareto area", "higher", "")
COST: Final = Measure("retain cost", "lower", NATS)
GAIN: Final = Measure("gain", "higher", "")
LOST: Final = Measure("runs without a result", "lower", "")
ROBUSTNESS: Final = {
    "answer_probability": Measure("robustness", "higher", ""),
    "forget_loss": Measure("robustness on loss", "higher", ""),
}


class Key(NamedTuple):
    """What one score is of."""

    task: str
    submission: str
    member: str
    budget: str
    """"" where a score is over all runs at forget levels."""
    measure: Measure

    def __str__(self) -> str:
        budget = f" at {self.budget}" if self.budget else ""
        return f"{self.measure.title} of {self.submission} on {self.member}{budget} ({self.task})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One score before and after."""

    key: Key
    base: Estimate | Missing
    head: Estimate | Missing | None
    """None where the other side does not have it at all."""
    is_regression: bool
    sentence: str


def compare(
    base: Sequence[Scores],
    head: Sequence[Scores],
    *,
    tolerance: float = 0.0,
    only: Sequence[str] = (),
) -> list[Comparison]:
    """Every score of the base, against the same of the head.

    Args:
        base: Boards to compare with.
        head: Boards that may have got worse.
        tolerance: A change this small in a score's own unit never counts.
        only: Submissions to compare; empty for all.

    Raises:
        BenchError: The two were made under different rules, or a named submission is unknown.
    """
    rules = {board.ledger.key for board in head}
    for board in base:
        _same_rules(board.ledger.key, rules)
    before, after = _scores(base), _scores(head)
    known = {key.submission for key in before}
    for name in only:
        if name not in known:
            msg = f"no results of {name!r} to compare with. Known: {', '.join(sorted(known))}."
            raise BenchError(msg)
    return [
        _compare(key, value, after.get(key), tolerance)
        for key, value in sorted(before.items())
        if not only or key.submission in only
    ]


def _same_rules(key: BoardKey, rules: set[BoardKey]) -> None:
    others = {rule for rule in rules if (rule.task, rule.suite) == (key.task, key.suite)}
    if others and key not in others:
        found = ", ".join(sorted(f"version {r.version} ({r.fingerprint})" for r in others))
        msg = (
            f"{key.task}: base is version {key.version} ({key.fingerprint}), head is {found}; "
            "results under different rules do not compare."
        )
        raise BenchError(msg)


def _scores(boards: Sequence[Scores]) -> dict[Key, Estimate | Missing]:
    found: dict[Key, Estimate | Missing] = {}
    for board in boards:
        task = board.ledger.key.task
        for p in board.pareto:
            found[Key(task, p.submission, p.member, "", PARETO)] = p.area
        for f in board.forget:
            found[Key(task, *f.group, COST)] = f.cost
            found[Key(task, *f.group, LOST)] = _count(f.reached[1] - f.reached[0], f.reached[1])
        for k in board.kl:
            found[Key(task, *k.group, GAIN)] = k.gain
            found[Key(task, *k.group, LOST)] = _count(*k.lost)
        for r in board.robustness:
            found[Key(task, *r.group, ROBUSTNESS[r.scale])] = r.score
    return found


def _count(lost: int, runs: int) -> Estimate:
    """A number of runs: it has no noise, so that one more is worse."""
    return Estimate(mean=float(lost), se=None, low=None, high=None, seeds=runs)


def _compare(
    key: Key, base: Estimate | Missing, head: Estimate | Missing | None, tolerance: float
) -> Comparison:
    worse, sentence = False, f"{key}: {_told(base)}, now {_told(head)}"
    if isinstance(base, Estimate) and isinstance(head, Estimate):
        sign = 1 if key.measure.better == "lower" else -1
        change = sign * (head.mean - base.mean)
        noise = NOISE * hypot(base.se or 0.0, head.se or 0.0)
        worse = change > max(tolerance, noise)
        size = f"{abs(head.mean - base.mean):.4g}{key.measure.unit and ' ' + key.measure.unit}"
        if worse:
            sentence += f"; worse by {size}, noise is {noise:.4g}"
    elif isinstance(base, Estimate):
        worse = True
        sentence += "; there was a number before"
    return Comparison(key=key, base=base, head=head, is_regression=worse, sentence=f"{sentence}.")


def _told(value: Estimate | Missing | None) -> str:
    if value is None:
        return "not there"
    if isinstance(value, Missing):
        return str(value)
    return f"{value.mean:.4f}" + (f" ± {value.se:.4f}" if value.se is not None else "")


@contextmanager
def results_of(place: str) -> Iterator[Path]:
    """A file or folder of records, or the stored results of a git revision.

    Raises:
        BenchError: It is none of these.
    """
    path = Path(place)
    if path.exists():
        yield path
        return
    done = subprocess.run(
        ["git", "archive", "--format=tar", place, STORED], capture_output=True, check=False
    )
    if done.returncode:
        msg = f"{place!r} is no file, no folder and no git revision with {STORED}."
        raise BenchError(msg)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder) / STORED


def boards_of(path: Path) -> list[Scores]:
    """The scores of a file or a folder of records.

    Raises:
        BenchError: Nothing can be read there, or a file is torn or foreign.
    """
    if path.is_file():
        return score(to_frame(read(path)))
    frame, problems = read_all([path])
    if problems:
        msg = f"{problems[0].path}: {problems[0].reason}."
        raise BenchError(msg)
    if frame.empty:
        msg = f"{path}: no records."
        raise BenchError(msg)
    return score(frame)


def report(comparisons: Sequence[Comparison], form: str) -> str:
    """What a person, a pull request, or a CI service reads.

    Args:
        comparisons: All that was compared.
        form: One of the names in `FORMATS`.
    """
    return FORMATS[form](comparisons)


def _text(comparisons: Sequence[Comparison]) -> str:
    worse = [c.sentence for c in comparisons if c.is_regression]
    return "\n".join([*worse, f"{len(worse)} regressions in {len(comparisons)} scores."])


def _markdown(comparisons: Sequence[Comparison]) -> str:
    lines = ["| score | base | head | |", "| --- | --- | --- | --- |"]
    for c in comparisons:
        cells = (str(c.key), _told(c.base), _told(c.head), "**worse**" if c.is_regression else "")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def _junit(comparisons: Sequence[Comparison]) -> str:
    worse = sum(c.is_regression for c in comparisons)
    suite = ET.Element(
        "testsuite", name="leaderboard", tests=str(len(comparisons)), failures=str(worse)
    )
    for c in comparisons:
        case = ET.SubElement(suite, "testcase", classname=c.key.submission, name=str(c.key))
        if c.is_regression:
            ET.SubElement(case, "failure", message=c.sentence)
    return ET.tostring(suite, encoding="unicode")


def _github(comparisons: Sequence[Comparison]) -> str:
    lines = []
    for c in comparisons:
        if c.is_regression:
            # A workflow command ends at a line break and escapes the per cent sign.
            text = c.sentence.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
            lines.append(f"::error title=Regression::{text}")
    return "\n".join([*lines, _text(comparisons).rsplit("\n", maxsplit=1)[-1]])


FORMATS: Final[Mapping[str, Callable[[Sequence[Comparison]], str]]] = {
    "text": _text,
    "markdown": _markdown,
    "junit": _junit,
    "github": _github,
}
