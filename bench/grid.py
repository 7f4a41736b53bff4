"""Many RunSpecs on one machine: what is missing, in which order, on how many processes.

A run is done when its record exists, so a killed grid resumes where it stood and nothing is
computed twice. Attacks come after the unlearning runs they depend on: which trial is attacked is
decided from dev rows alone.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from bench.errors import BenchError
from bench.members import ORACLE, sibling
from bench.record import from_frame
from bench.run import RunSpec, run
from bench.selection import best_trials
from bench.store import is_done
from bench.submission import find_submission
from bench.tasks import get_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a command asks for: a grid of runs of some submissions on one task."""

    task: str
    submissions: tuple[str, ...]
    members: tuple[str, ...]
    budgets: tuple[str, ...]
    seeds: tuple[int, ...]
    trials: tuple[int, ...] | None = None
    """None: all that the submission declares."""
    attack: bool = True

    def unlearning(self) -> list[RunSpec]:
        """Every unlearning run, members outermost, so that a process keeps its member loaded."""
        return [
            RunSpec(
                task=self.task,
                member=member,
                submission=submission,
                trial=trial,
                budget=budget,
                seed=seed,
            )
            for member in self.members
            for submission in self.submissions
            for budget in self.budgets
            for trial in self._trials(submission)
            for seed in self.seeds
        ]

    def _trials(self, submission: str) -> tuple[int, ...]:
        declared = len(find_submission(submission).trials)
        wanted = range(declared) if self.trials is None else self.trials
        for trial in wanted:
            if trial not in range(declared):
                msg = f"{submission} has trials 0 to {declared - 1}; there is no trial {trial}."
                raise BenchError(msg)
        return tuple(wanted)

    def references(self) -> list[RunSpec]:
        """The members and the oracles of their seeds as they are."""
        oracles = [sibling(ORACLE, member) for member in self.members]
        names = dict.fromkeys((*oracles, *self.members))
        return [RunSpec(task=self.task, member=member) for member in names]

    def controls(self) -> list[RunSpec]:
        """The attacked members and the attacked oracle, at every seed."""
        return [replace(s, seed=k, attack=True) for s in self.references() for k in self.seeds]

    def attacks(self, frame: pd.DataFrame) -> list[RunSpec]:
        """The best trial of each submission on each member, by the dev rows of all records.

        Where the plan names trials, the best of those.
        """
        frame = frame[(frame["task"] == self.task) & (frame["stage"] == "unlearn")]
        if self.trials is not None:
            frame = frame[frame["trial"].isin(self.trials)]
        best = best_trials(from_frame(frame))
        budget = get_task(self.task).attacked_budget
        names = {find_submission(s).name: s for s in self.submissions if s != "none"}
        return [
            RunSpec(
                task=self.task,
                member=group.member,
                submission=names[group.submission],
                trial=trial,
                budget=budget,
                seed=seed,
                attack=True,
            )
            for group, trial in sorted(best.items())
            if group.budget == budget and group.member in self.members
            if group.submission in names and budget in self.budgets
            for seed in self.seeds
        ]


def missing(specs: Sequence[RunSpec], folders: Sequence[Path]) -> list[RunSpec]:
    """Those without a record in any of the folders."""
    return [s for s in specs if not any(is_done(s, folder) for folder in folders)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One finished run."""

    spec: RunSpec
    status: str


def execute(
    specs: Sequence[RunSpec],
    results: Path,
    *,
    jobs: int,
    report: Callable[[RunSpec, str], None] = lambda _spec, _line: None,
) -> Iterator[Done]:
    """Do all runs; yields each as it ends. One process per job, the cores shared out evenly.

    Args:
        specs: Runs to do, in this order.
        results: Folder for their records.
        jobs: Processes; 1 works in this process and reports on the way.
        report: Called with lines about a run under way (jobs = 1 only).

    Raises:
        BenchError: A record could not be written, or a worker died.
    """
    if jobs == 1:
        for spec in specs:
            status = _work(spec, results, 1, partial(report, spec))
            yield Done(spec=spec, status=status)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting: dict[Future[str], RunSpec] = {
            pool.submit(_work, spec, results, 1): spec for spec in specs
        }
        try:
            while waiting:
                ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield Done(spec=waiting.pop(future), status=future.result())
        except BrokenProcessPool:
            msg = "a worker process died (out of memory?); run the same command to go on."
            raise BenchError(msg, exit_code=1) from None
        finally:
            for future in waiting:
                future.cancel()


def _work(
    spec: RunSpec, results: Path, threads: int, report: Callable[[str], None] = lambda _: None
) -> str:
    """One run in this process, on so many threads: losses are bitwise equal only at equal ones."""
    import torch

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(threads)
    return run(spec, results, threads, report)
