"""Drive one submission under one budget: hand out data, measure checkpoints, match the budget.

What leaves a submission is a state dict, copied strictly into a model of the harness's own, so
wrappers, hooks and subclasses do not survive. What goes in is token batches and readings.
"""

import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from transformers import PreTrainedModel

from bench.api import Reading, Unlearn
from bench.budget import Budget, ForgetBudget, match
from bench.domains import Domain
from bench.measure import Answer, Evaluator, Measures, merge
from bench.streams import Meter, open_streams
from bench.tasks import Task
from bench.weights import ContractError, State, blend, copy_weights, snapshot

FRONT: Final[tuple[Domain, ...]] = ("forget", "retain")
"""The losses that a front is made of."""


class TimedOutError(BaseException):
    """A submission used up its wall time; no `except Exception` of its own swallows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The untouched losses that gain and cost are counted from, on dev data."""

    forget: float
    retain: float
    oracle_forget: float

    def gain(self, forget_loss: float) -> float:
        """Share of the gap between member and oracle that is closed."""
        return (forget_loss - self.forget) / (self.oracle_forget - self.forget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One measured model of a run."""

    step: int
    """Which yield this is, from 1; the kept checkpoint carries that of its crossing."""
    tokens: int
    """Drawn by the submission so far."""
    value: float
    """The budgeted quantity on dev."""
    accepted: bool
    dev: Measures
    test: Measures | None
    kept: bool = False
    interpolated: bool = False
    answers: tuple[tuple[str, Answer], ...] = ()
    """(split, answer) of every probe; of the kept checkpoint only."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """All that came of a run."""

    status: str = "ok"
    error: str | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list)
    kept: Checkpoint | None = None
    kept_state: State | None = None
    seconds: float = 0.0
    """The submission's own wall time."""
    harness_seconds: float = 0.0
    """Wall time of measuring and matching."""
    tokens: int = 0


@contextmanager
def wall_limit(seconds: float) -> Iterator[None]:
    """Raise TimedOutError in this block after so many seconds (main thread, POSIX)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(*_: object) -> None:
        msg = "no yield within the time limit."
        raise TimedOutError(msg)

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@dataclass(slots=True, kw_only=True)
class Drive:
    """One run of a submission under a budget. Call `run` once."""

    task: Task
    budget: Budget
    evaluator: Evaluator
    baseline: Baseline
    measured: PreTrainedModel
    """A fresh copy of the member, the harness's own: yielded weights are copied into it."""
    on_yield: Callable[[Checkpoint], None] = lambda _: None
    outcome: Outcome = field(default_factory=Outcome)
    _inside: State = field(init=False)
    """Weights of the last finite checkpoint before the crossing; at first, the member's."""

    def run(
        self,
        unlearn: Unlearn,
        given: PreTrainedModel,
        config: Any,  # the submission's own Config
        folder: Path,
        seed: int,
    ) -> Outcome:
        """Let `unlearn` work on `given`, a fresh copy of the member; never raises for its faults.

        Args:
            unlearn: The submission.
            given: The model it may change.
            config: The trial.
            folder: The member's folder, for its tokenizer.
            seed: Data order, and all the submission's randomness.
        """
        meter = Meter(self.task.limits.tokens)
        self._inside = snapshot(self.measured)
        try:
            data = open_streams(meter, folder, self.task.batch_blocks, seed)
            torch.manual_seed(seed)
            with wall_limit(self.task.limits.seconds):  # a plain function works right here
                process = unlearn(given, data, config, torch.Generator().manual_seed(seed))
            if not isinstance(process, Generator):
                msg = "unlearn returned instead of yielding; write `yield model`."
                raise ContractError(msg)
            self._converse(process, meter)
            self._finish()
        except TimedOutError as error:
            self._fail("timed_out", str(error))
        except ContractError as error:
            self._fail("failed", str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001  # foreign code raises anything
            self._fail("failed", _one_line(error))
        self.outcome.tokens = meter.tokens
        return self.outcome

    def _converse(self, process: Generator[PreTrainedModel, Reading, None], meter: Meter) -> None:
        reading: Reading | None = None
        going = True
        while going:
            start = time.perf_counter()
            try:
                with wall_limit(self.task.limits.seconds - self.outcome.seconds):
                    yielded = process.send(reading)  # type: ignore[arg-type]  # None starts it
            except StopIteration:
                return
            finally:
                self.outcome.seconds += time.perf_counter() - start
            start = time.perf_counter()
            checkpoint = self._measure(yielded, meter.tokens)
            self.outcome.harness_seconds += time.perf_counter() - start
            self.on_yield(checkpoint)
            reading = Reading(checkpoint.value, self.budget.limit, checkpoint.accepted)
            going = self._goes_on(checkpoint)
        with wall_limit(self.task.limits.seconds - self.outcome.seconds):
            process.close()

    def _measure(self, yielded: object, tokens: int) -> Checkpoint:
        """Measure a yielded model and, at the first crossing, match the budget."""
        copy_weights(yielded, self.measured)
        dev = self._quick("dev")
        value = self._value(dev)
        # Only a forget-budget run traces a front, which needs test rows at every yield.
        traced = isinstance(self.budget, ForgetBudget) and dev.finite()
        checkpoint = Checkpoint(
            step=len(self.outcome.checkpoints) + 1,
            tokens=tokens,
            value=value,
            accepted=self.budget.accepts(value),
            dev=dev,
            test=self.evaluator.losses(self.measured, "test", *FRONT) if traced else None,
        )
        self.outcome.checkpoints.append(checkpoint)
        if self.outcome.kept is None and dev.finite():
            if self.budget.crossed(value):
                self._match(checkpoint)
            else:
                self._inside = snapshot(self.measured)
        return checkpoint

    def _match(self, crossing: Checkpoint) -> None:
        """Keep the point on the line over the crossing where the budget is exactly used."""
        outside = snapshot(self.measured)

        def value_at(t: float) -> float:
            self.measured.load_state_dict(blend(self._inside, outside, t))
            return self._budgeted()

        earlier = self.outcome.checkpoints[:-1]
        start = earlier[-1].value if earlier else 0.0
        t = match(self.budget, value_at, (start, crossing.value))
        if t < 1:
            self._keep(blend(self._inside, outside, t), crossing, interpolated=True)
        else:
            self._keep(outside, crossing)

    def _keep(self, state: State, at: Checkpoint, *, interpolated: bool = False) -> None:
        """Measure everything of the checkpoint that the run is judged by.

        Args:
            state: Its weights.
            at: The yield that it is, or that it was found before.
            interpolated: Whether it lies before that yield, so that nothing of it is measured yet.
        """
        known = {} if interpolated else {"dev": at.dev}
        self.measured.load_state_dict(state)
        full: dict[str, Measures] = {}
        answers: list[tuple[str, Answer]] = []
        for split in ("dev", "test"):
            probes, answered = self.evaluator.probes(self.measured, split)
            adjacent = self.evaluator.losses(self.measured, split, "adjacent")
            quick = known.get(split) or self._quick(split)
            full[split] = merge(quick, adjacent, probes)
            answers += [(split, answer) for answer in answered]
        value = self._value(full["dev"])
        self.outcome.kept = Checkpoint(
            step=at.step,
            tokens=at.tokens,
            value=value,
            accepted=self.budget.accepts(value),
            dev=full["dev"],
            test=full["test"],
            kept=True,
            interpolated=interpolated,
            answers=tuple(answers),
        )
        self.outcome.kept_state = state

    def _finish(self) -> None:
        """Decide the status; a run that never crossed its limit keeps its last checkpoint."""
        checkpoints = self.outcome.checkpoints
        if not checkpoints:
            msg = "unlearn ended without a yield."
            raise ContractError(msg)
        if self.outcome.kept is not None:
            return
        usable = [c for c in checkpoints if c.dev.finite() and not self.budget.crossed(c.value)]
        if not usable:
            self._fail("diverged", "no finite checkpoint.")
            return
        start = time.perf_counter()
        self._keep(self._inside, usable[-1])
        self.outcome.harness_seconds += time.perf_counter() - start
        if isinstance(self.budget, ForgetBudget):
            self.outcome.status = "unreached"

    def _goes_on(self, checkpoint: Checkpoint) -> bool:
        """A KL budget ends at its crossing; a forget budget goes on, to trace the front."""
        dev = checkpoint.dev
        if not dev.finite() or dev.forget_loss is None or dev.retain_loss is None:
            return False
        ends = self.budget.crossed(checkpoint.value) and not isinstance(self.budget, ForgetBudget)
        return (
            not ends
            and self.baseline.gain(dev.forget_loss) < self.task.stop_gain
            and dev.retain_loss - self.baseline.retain < self.task.stop_cost
            and checkpoint.step < self.task.limits.yields
        )

    def _fail(self, status: str, error: str) -> None:
        """A failed run keeps the checkpoints it had measured, and no result."""
        self.outcome.status, self.outcome.error = status, error
        self.outcome.kept = self.outcome.kept_state = None

    def _quick(self, split: str) -> Measures:
        """What is measured at every yield: KL, retain loss and forget loss."""
        retain = self.evaluator.retain(self.measured, split)
        return merge(retain, self.evaluator.losses(self.measured, split, "forget"))

    def _value(self, dev: Measures) -> float:
        """The budgeted quantity."""
        if isinstance(self.budget, ForgetBudget):
            assert dev.forget_loss is not None
            return self.baseline.gain(dev.forget_loss)
        assert dev.kl is not None
        return dev.kl

    def _budgeted(self) -> float:
        """The budgeted quantity of the measured model, and nothing else."""
        if isinstance(self.budget, ForgetBudget):
            return self._value(self.evaluator.losses(self.measured, "dev", "forget"))
        return self._value(self.evaluator.retain(self.measured, "dev"))


def _one_line(error: BaseException) -> str:
    """Type, message and place of an error in the submission's own code."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "submission" in f.filename]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}{place}".split())[:300]
