"""The record: one row is one model measured on one split.

Records are written once, whole or not at all, and read back with nothing dropped in silence: what
cannot be read comes back as a `Problem`. Missing is null, never NaN, 0 or "".
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

import pandas as pd

from bench.errors import BenchError
from bench.parquet import UnusableError, load, read_table, save, schema_of

SCHEMA_VERSION: Final = 1
PROBES_SUFFIX: Final = ".probes.parquet"

STAGES: Final = ("reference", "unlearn", "attack")
MEASURED_SPLITS: Final = ("dev", "test")
TEMPLATES: Final = ("trained", "unseen")
STATUSES: Final = ("ok", "over_budget", "unreached", "diverged", "failed", "timed_out")
ACCEPTED_STATUSES: Final = ("ok", "unreached")
"""Outcomes of a run that leave a model which may be judged."""

_VOCABULARY: Final = {
    "stage": STAGES,
    "split": MEASURED_SPLITS,
    "template": TEMPLATES,
    "status": STATUSES,
}
_CIRCUMSTANCES: Final = frozenset(
    {
        "seconds",
        "harness_seconds",
        "peak_memory_bytes",
        "bench_version",
        "git_commit",
        "git_dirty",
        "torch",
        "transformers",
        "device",
        "threads",
        "started",
        "command",
    }
)
"""Fields that may differ between two honest copies of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One model, measured on one split."""

    schema_version: int
    """Version of this schema: `SCHEMA_VERSION`."""
    run_id: str
    """Hash of everything that determines the run; also the name of its file."""
    task: str
    """Name of the task."""
    task_version: int
    """Version of the task: results of different versions do not compare."""
    task_fingerprint: str
    """Hash of every number of the task's rules."""
    suite: str
    """Family of reference models."""
    member: str
    """The reference model that was unlearned or attacked: `p000` ... `p100`, `oracle`."""
    submission: str
    """Folder name of the method; "reference" where nothing was unlearned."""
    submission_fingerprint: str
    """Hash of the submission's files."""
    title: str
    """Display title of the submission."""
    trial: int
    """Index in the submission's list of hyperparameters."""
    config: str
    """The trial's hyperparameters as canonical JSON."""
    budget: str
    """Like "kl<=0.05" or "forget>=0.5"; "" for reference rows and attacked controls."""
    limit: float | None
    """The number in the budget: nats per token for KL, a gain for a forget level."""
    seed: int
    """Seed of data order and randomness."""

    stage: str
    """What was measured: a "reference" model, an "unlearn" checkpoint, an "attack" checkpoint."""
    attack: str | None
    """Name of the attack, like "relearn" or "few_shot"; null outside attacks."""
    learning_rate: float | None
    """Learning rate of the attacker; null where nothing is trained."""
    step: int
    """Steps so far of the submission (index of the yield) or of the attack."""
    dose: int
    """Tokens the attack has seen, or demonstrations in its prompt; 0 before any attack."""
    split: str
    """Split it was measured on: "dev" or "test"."""
    accepted: bool
    """Whether the checkpoint was inside the budget."""
    kept: bool
    """Whether this is the one checkpoint that the run is judged by."""
    interpolated: bool
    """Whether the weights lie between two yields, to match the budget exactly."""

    kl: float | None
    """KL(member || unlearned) on retain text, nats per token."""
    forget_loss: float | None
    """Mean cross-entropy on forget text, nats per token."""
    retain_loss: float | None
    """Mean cross-entropy on retain text, nats per token."""
    adjacent_loss: float | None
    """Mean cross-entropy on adjacent text, nats per token."""
    probe_accuracy: float | None
    """Share of multiple-choice probes answered correctly."""
    answer_probability: float | None
    """Mean probability of the right answer to a probe, in the template of training."""
    unseen_answer_probability: float | None
    """The same in a template that training never showed."""

    tokens: int
    """Tokens drawn by the submission so far."""
    seconds: float
    """Wall time of the submission or the attack itself."""
    harness_seconds: float
    """Wall time of measuring and of matching the budget."""
    peak_memory_bytes: int
    """Peak memory of the process or device."""

    status: str
    """Outcome: one of `STATUSES`."""
    error: str | None
    """One line that says what went wrong; null where nothing did."""

    bench_version: str
    """Version of this package."""
    git_commit: str
    """Commit of the working tree that ran."""
    git_dirty: bool
    """Whether that tree had uncommitted changes."""
    reference_sha256: str
    """SHA-256 of the reference model's weights."""
    data_sha256: str
    """SHA-256 of the frozen splits."""
    torch: str
    """Version of torch."""
    transformers: str
    """Version of transformers."""
    device: str
    """Device the run used."""
    threads: int
    """Threads the run used: losses are bitwise reproducible only at an equal number."""
    started: str
    """Start of the run, ISO 8601, UTC."""
    command: str
    """Command line that repeats the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """One model's answer to one probe."""

    run_id: str
    """The run it belongs to."""
    stage: str
    """As in `Record`."""
    attack: str | None
    """As in `Record`."""
    learning_rate: float | None
    """As in `Record`."""
    dose: int
    """As in `Record`."""
    split: str
    """As in `Record`."""
    probe: int
    """Index of the probe in its split."""
    template: str
    """"trained" or "unseen"."""
    probability: float
    """Probability of the right answer."""
    correct: bool | None
    """Whether the right choice was the likeliest; null where no choices were offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A file that could not be used, and why."""

    path: Path
    """The file."""
    reason: str
    """One line, the same on every machine."""
    folder: Path
    """The results folder it was found in."""

    @property
    def label(self) -> str:
        """The path within its results folder, the same on every machine."""
        return self.path.relative_to(self.folder).as_posix()


def write(records: Sequence[Record], path: Path) -> None:
    """Write the records of one run as one file that is either whole or absent.

    Raises:
        BenchError: There are none, a word is not in its vocabulary, a number is NaN or infinite,
            or the disk refuses.
    """
    if not records:
        msg = f"{path}: no records to write."
        raise BenchError(msg)
    for record in records:
        odd = _odd_word(record)
        if odd is not None:
            msg = f"{path}: {odd}"
            raise BenchError(msg)
    save(records, Record, path)


def write_probes(answers: Sequence[ProbeAnswer], path: Path) -> None:
    """Write one run's answers to single probes; the name must end in `PROBES_SUFFIX`.

    Raises:
        BenchError: The name or a word is wrong, a number is NaN or infinite, or the disk refuses.
    """
    if not path.name.endswith(PROBES_SUFFIX):
        msg = f"{path}: answers to probes go to a file <run_id>{PROBES_SUFFIX}"
        raise BenchError(msg)
    for answer in answers:
        odd = _odd_word(answer)
        if odd is not None:
            msg = f"{path}: {odd}"
            raise BenchError(msg)
    save(answers, ProbeAnswer, path)


def _odd_word(row: Record | ProbeAnswer) -> str | None:
    for name, words in _VOCABULARY.items():
        word = getattr(row, name, None)
        if word is not None and word not in words:
            return f"{name} is {word!r}. Known: {', '.join(words)}."
    return None


def read(path: Path) -> list[Record]:
    """The records of one file.

    Raises:
        BenchError: The file is torn, foreign, or of another schema version.
    """
    try:
        return _records(path)
    except UnusableError as error:
        msg = f"{path}: {error}"
        raise BenchError(msg) from error


def read_probes(path: Path) -> list[ProbeAnswer]:
    """The answers to single probes in one file.

    Raises:
        BenchError: The file is torn or foreign.
    """
    try:
        return load(path, ProbeAnswer)
    except UnusableError as error:
        msg = f"{path}: {error}"
        raise BenchError(msg) from error


def _records(path: Path) -> list[Record]:
    table = read_table(path)
    if "schema_version" in table.column_names:
        versions = set(table["schema_version"].to_pylist())
        if versions - {SCHEMA_VERSION}:
            seen = ", ".join(sorted(map(str, versions)))
            msg = f"schema version {seen}; this program reads version {SCHEMA_VERSION}"
            raise UnusableError(msg)
    records = load(path, Record)
    for record in records:
        odd = _odd_word(record)
        if odd is not None:
            raise UnusableError(odd)
    return records


def read_all(folders: Iterable[Path]) -> tuple[pd.DataFrame, list[Problem]]:
    """All records below the folders, sorted by run, and every file that could not be used.

    Copies of one run with equal measurements collapse to the first; a copy that differs in what
    was measured is a problem, and the first is kept.

    Raises:
        BenchError: A folder does not exist.
    """
    runs: dict[str, list[Record]] = {}
    homes: dict[str, Problem] = {}
    problems: list[Problem] = []
    for folder in folders:
        if not folder.is_dir():
            msg = f"{folder}: no such folder of results."
            raise BenchError(msg)
        for path in sorted(folder.rglob("*.parquet")):
            if path.name.endswith(PROBES_SUFFIX):
                continue
            try:
                records = _records(path)
            except UnusableError as error:
                problems.append(Problem(path=path, reason=str(error), folder=folder))
                continue
            for run_id in sorted({record.run_id for record in records}):
                rows = [record for record in records if record.run_id == run_id]
                if run_id not in runs:
                    runs[run_id] = rows
                    homes[run_id] = Problem(path=path, reason="", folder=folder)
                elif _measured(rows) != _measured(runs[run_id]):
                    reason = f"run {run_id} has other measurements in {homes[run_id].label}"
                    problems.append(Problem(path=path, reason=reason, folder=folder))
    return to_frame([row for run_id in sorted(runs) for row in runs[run_id]]), problems


def _measured(records: Sequence[Record]) -> list[dict[str, object]]:
    """What was measured, without when, where and by whom."""
    rows = [asdict(record) for record in records]
    return [{k: v for k, v in row.items() if k not in _CIRCUMSTANCES} for row in rows]


def to_frame(records: Sequence[Record]) -> pd.DataFrame:
    """The records as a data frame, one column per field."""
    names = [field.name for field in fields(Record)]
    columns = {name: [getattr(record, name) for record in records] for name in names}
    types = {n: "float64" for n in names if str(schema_of(Record).field(n).type) == "double"}
    return pd.DataFrame(columns, columns=names).astype(types)


def from_frame(frame: pd.DataFrame) -> list[Record]:
    """The records in a frame made by `to_frame`, or in part of its rows."""
    columns = [
        frame[field.name].astype(object).where(frame[field.name].notna(), None).tolist()
        for field in fields(Record)
    ]
    names = [field.name for field in fields(Record)]
    return [Record(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
