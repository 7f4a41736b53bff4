"""One RunSpec, start to records: load the member, unlearn under the budget, attack, write.

Three kinds of run share one path: `reference` (a member or the oracle as it is), `unlearn` (one
trial of a submission under one budget) and `attack` (a kept checkpoint, or a control). Each ends
as one immutable Parquet file named by its run id, so "already done" is exact.
"""

import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.budget import parse
from bench.canonical import fingerprint
from bench.data import data_sha256
from bench.errors import BenchError
from bench.members import ORACLE, is_oracle, sibling
from bench.provenance import provenance
from bench.record import (
    PROBES_SUFFIX,
    SCHEMA_VERSION,
    ProbeAnswer,
    Record,
    write,
    write_probes,
)
from bench.reference import Reference, load_model, load_reference, load_tokenizer
from bench.submission import Loaded, find_submission, load_submission
from bench.tasks import Task, get_task

if TYPE_CHECKING:
    from bench.weights import State

REFERENCE: Final = "reference"
"""The submission name of rows where nothing was unlearned."""
Report = Callable[[str], None]
"""Takes one short line about where a run stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything that determines a run."""

    task: str
    member: str
    submission: str = REFERENCE
    """Name or folder; `reference` for a model as it is."""
    trial: int = 0
    budget: str = ""
    seed: int = 0
    attack: bool = False
    """Attack what the same spec without this flag keeps, instead of unlearning."""

    def identity(self) -> str:
        """The run id: a hash of the rules, the weights, the code, the numbers and the seed."""
        task = get_task(self.task)
        parts: dict[str, Any] = {
            "task": task.fingerprint(),
            "member": load_reference(task.suite, self.member).sha256,
            "budget": self.budget,
            "seed": self.seed,
            "attack": self.attack,
        }
        if self.submission != REFERENCE:
            loaded = loaded_submission(self.submission, task.limits.trials)
            parts["code"] = loaded.submission.fingerprint
            parts["config"] = loaded.config_json(self.trial)
        if not is_oracle(self.member):
            parts["oracle"] = load_reference(task.suite, sibling(ORACLE, self.member)).sha256
        return fingerprint(parts)

    def command(self) -> str:
        """The command line that repeats the run."""
        words = ["bench run", self.submission, f"--task {self.task}", f"--member {self.member}"]
        if self.submission != REFERENCE:
            words += [f"--budget '{self.budget}'", f"--trial {self.trial}"]
        words.append(f"--seed {self.seed}")
        return " ".join(words)

    def path(self, results: Path) -> Path:
        """Where its records go."""
        return results / self.task / Path(self.submission).name / f"{self.identity()}.parquet"


@cache
def loaded_submission(name: str, max_trials: int) -> Loaded:
    """A submission found, validated and imported, once per process."""
    return load_submission(find_submission(name), max_trials)


def kept_path(spec: RunSpec, results: Path) -> Path:
    """Where a run's kept weights lie until they are attacked."""
    plain = replace(spec, attack=False)
    return results / "kept" / f"{plain.identity()}.safetensors"


def run(spec: RunSpec, results: Path, threads: int, report: Report = lambda _: None) -> str:
    """Do one run and write its records; a finished one is not done again.

    Returns:
        The status of the run.
    """
    path = spec.path(results)
    if path.exists():
        return "ok"
    stage = _attack if spec.attack else _unlearn if spec.submission != REFERENCE else _measure
    writer = Writer(spec, threads)
    status = stage(spec, results, writer, report)
    if writer.answers:
        write_probes(writer.answers, path.with_name(path.stem + PROBES_SUFFIX))
    # Last: the record's existence is what marks the run as done.
    write(writer.records, path)
    return status


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a run a row belongs; names as in `Record`."""

    stage: str
    split: str
    attack: str | None = None
    learning_rate: float | None = None
    step: int = 0
    dose: int = 0
    accepted: bool = True
    kept: bool = False
    interpolated: bool = False


class Writer:
    """Collects the rows of one run; fills in identity and provenance."""

    def __init__(self, spec: RunSpec, threads: int) -> None:
        task = get_task(spec.task)
        reference = load_reference(task.suite, spec.member)
        own = spec.submission != REFERENCE
        loaded = loaded_submission(spec.submission, task.limits.trials) if own else None
        submission = loaded.submission if loaded else None

        self.run_id, self.threads = spec.identity(), threads
        self.records: list[Record] = []
        self.answers: list[ProbeAnswer] = []
        self._fixed: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.run_id,
            "task": task.name,
            "task_version": task.version,
            "task_fingerprint": task.fingerprint(),
            "suite": task.suite,
            "member": spec.member,
            "submission": submission.name if submission else REFERENCE,
            "submission_fingerprint": submission.fingerprint if submission else "",
            "title": submission.title if submission else "Reference model",
            "trial": spec.trial,
            "config": loaded.config_json(spec.trial) if loaded else "{}",
            "budget": spec.budget,
            "limit": parse(spec.budget).limit if spec.budget else None,
            "seed": spec.seed,
            "reference_sha256": reference.sha256,
            **asdict(provenance(data_sha256(), threads, spec.command())),
        }

    def add(
        self,
        place: Place,
        measures: Any,
        cost: tuple[int, float, float],
        status: str = "ok",
        error: str | None = None,
    ) -> None:
        """One row; `cost` is tokens drawn, seconds of the method, seconds of the harness."""
        tokens, seconds, harness = cost
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.records.append(
            Record(
                **self._fixed,
                **asdict(place),
                **asdict(measures),
                tokens=tokens,
                seconds=seconds,
                harness_seconds=harness,
                peak_memory_bytes=peak,
                status=status,
                error=error,
            )
        )

    def answered(self, place: Place, answers: tuple[tuple[str, Any], ...]) -> None:
        """The answers to single probes, at the same place, with their own splits."""
        self.answers += [
            ProbeAnswer(
                run_id=self.run_id,
                stage=place.stage,
                attack=place.attack,
                learning_rate=place.learning_rate,
                dose=place.dose,
                split=split,
                **asdict(answer),
            )
            for split, answer in answers
        ]


class Workbench:
    """A member with all that runs on it share, loaded once per process."""

    def __init__(self, task: Task, member: str) -> None:
        from bench.measure import Evaluator
        from bench.unlearn import Baseline

        self.reference: Reference = load_reference(task.suite, member)
        self.model = load_model(self.reference.path)
        """The untouched member."""
        self.measured = load_model(self.reference.path)
        """The harness's own copy that yielded weights go into."""
        self.evaluator = Evaluator(self.model, load_tokenizer(self.reference))
        oracle = load_model(load_reference(task.suite, sibling(ORACLE, member)).path)
        own = self.evaluator.losses(self.model, "dev", "forget", "retain")
        theirs = self.evaluator.losses(oracle, "dev", "forget")
        assert own.forget_loss is not None
        assert own.retain_loss is not None
        assert theirs.forget_loss is not None
        self.baseline = Baseline(
            forget=own.forget_loss, retain=own.retain_loss, oracle_forget=theirs.forget_loss
        )


@cache
def workbench(task: str, member: str) -> Workbench:
    """The shared side of all runs on a member, loaded once per process."""
    return Workbench(get_task(task), member)


def _measure(spec: RunSpec, _results: Path, writer: Writer, report: Report) -> str:
    """A model as it is, everything on both splits."""
    from bench.measure import merge

    bench = workbench(spec.task, spec.member)
    report("measuring")
    for split in ("dev", "test"):
        start = time.perf_counter()
        probes, answers = bench.evaluator.probes(bench.model, split)
        losses = bench.evaluator.losses(bench.model, split, "forget", "adjacent", "retain")
        measures = merge(losses, probes)
        place = Place("reference", split, kept=True)
        writer.add(place, measures, (0, 0.0, time.perf_counter() - start))
        writer.answered(place, tuple((split, answer) for answer in answers))
    return "ok"


def _unlearn(spec: RunSpec, results: Path, writer: Writer, report: Report) -> str:
    """One trial under one budget; every yield, then the kept checkpoint."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    from bench.measure import Measures
    from bench.unlearn import Checkpoint, Drive

    task = get_task(spec.task)
    bench = workbench(spec.task, spec.member)
    loaded = loaded_submission(spec.submission, task.limits.trials)
    bench.measured.load_state_dict(bench.model.state_dict())
    rule = parse(spec.budget)

    def show(checkpoint: Checkpoint) -> None:
        report(f"yield {checkpoint.step}: {checkpoint.value:.3g} of {rule.name}")

    drive = Drive(
        task=task,
        budget=rule,
        evaluator=bench.evaluator,
        baseline=bench.baseline,
        measured=bench.measured,
        on_yield=show,
    )
    given = load_model(bench.reference.path)
    config = loaded.configs[spec.trial]
    outcome = drive.run(loaded.unlearn, given, config, bench.reference.path, spec.seed)
    total = (outcome.seconds, outcome.harness_seconds)
    for checkpoint in [*outcome.checkpoints, *([outcome.kept] if outcome.kept else [])]:
        for split, measures in (("dev", checkpoint.dev), ("test", checkpoint.test)):
            if measures is None or not measures.finite():
                continue
            place = Place(
                "unlearn",
                split,
                step=checkpoint.step,
                accepted=checkpoint.accepted,
                kept=checkpoint.kept,
                interpolated=checkpoint.interpolated,
            )
            writer.add(place, measures, (checkpoint.tokens, *total), outcome.status, outcome.error)
    if outcome.kept is not None:
        writer.answered(Place("unlearn", "dev"), outcome.kept.answers)
        if outcome.kept_state is not None and spec.budget == task.attacked_budget:
            file = kept_path(spec, results)
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_suffix(".part")
            try:
                # Clones: safetensors refuses tied tensors, which share their storage.
                state = {name: t.clone().contiguous() for name, t in outcome.kept_state.items()}
                save_file(state, temporary)
                temporary.replace(file)
            except (OSError, SafetensorError) as error:
                temporary.unlink(missing_ok=True)
                msg = f"{file}: cannot write: {error}."
                raise BenchError(msg) from error
    else:
        for split in ("dev", "test"):
            place = Place("unlearn", split, accepted=False, kept=True)
            cost = (outcome.tokens, *total)
            writer.add(place, Measures(), cost, outcome.status, outcome.error)
    return outcome.status


def _attack(spec: RunSpec, results: Path, writer: Writer, report: Report) -> str:
    """Both attacks on a kept checkpoint, or on a model as it is."""
    from bench.attacks.few_shot import few_shot
    from bench.attacks.relearn import relearn

    task = get_task(spec.task)
    bench = workbench(spec.task, spec.member)
    plain = replace(spec, attack=False)
    state = (
        bench.model.state_dict()
        if spec.submission == REFERENCE
        else _kept_state(plain, results, writer.threads, report)
    )
    if state is None:
        return _nothing_kept(writer)
    model = bench.measured
    model.load_state_dict(state)
    start = time.perf_counter()
    args = (bench.evaluator, bench.reference.path, spec.seed)
    for doses in (
        few_shot(model, task.few_shot, bench.evaluator, spec.seed),
        relearn(model, state, task.relearn, *args),
    ):
        for dose in doses:
            report(f"{dose.attack} {dose.step}")
            for split, measures in (("dev", dose.dev), ("test", dose.test)):
                place = Place(
                    "attack",
                    split,
                    attack=dose.attack,
                    learning_rate=dose.learning_rate,
                    step=dose.step,
                    dose=dose.amount,
                )
                status = "diverged" if dose.diverged else "ok"
                cost = (0, time.perf_counter() - start, 0.0)
                writer.add(place, measures, cost, status)
            writer.answered(place, dose.answers)
    return "ok"


def _kept_state(spec: RunSpec, results: Path, threads: int, report: Report) -> "State | None":
    """The weights that a run kept, made again where the file is gone or damaged.

    They are a function of the spec, bitwise at equal threads, so the stored record stays as it is.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = kept_path(spec, results)
    try:
        return load_file(file)
    except (OSError, SafetensorError):
        file.unlink(missing_ok=True)
    _unlearn(spec, results, Writer(spec, threads), report)
    return load_file(file) if file.exists() else None


def _nothing_kept(writer: Writer) -> str:
    from bench.measure import Measures

    for split in ("dev", "test"):
        place = Place("attack", split, attack="relearn")
        writer.add(place, Measures(), (0, 0.0, 0.0), "failed", "the run kept no checkpoint.")
    return "failed"
