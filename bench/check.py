"""`bench check`: run a submission's trials through the contract, briefly, and name each rule."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from bench.budget import KLBudget
from bench.errors import BenchError
from bench.reference import load_model
from bench.run import workbench
from bench.submission import find_submission, load_submission
from bench.tasks import get_task
from bench.unlearn import Drive

YIELDS: Final = 2
"""Measured models that end a check; tokens are the task's, as some methods prepare with many."""


def check_submission(name: str, task_name: str) -> Iterator[str]:
    """One line per rule that holds.

    Raises:
        BenchError: A rule does not hold (exit code 1), or the folder is wrong (2).
    """
    task = get_task(task_name)
    submission = find_submission(name)
    yield f"ok  {submission.folder.name}/submission.toml: {submission.title}"
    loaded = load_submission(submission, task.limits.trials)
    yield f"ok  submission.py: Config and unlearn; {len(loaded.configs)} trials"
    bench = workbench(task.name, task.members[0])
    brief = replace(task, limits=replace(task.limits, yields=YIELDS))
    for trial, config in enumerate(loaded.configs):
        bench.measured.load_state_dict(bench.model.state_dict())
        drive = Drive(
            task=brief,
            budget=KLBudget(limit=1e9),
            evaluator=bench.evaluator,
            baseline=bench.baseline,
            measured=bench.measured,
        )
        given = load_model(bench.reference.path)
        outcome = drive.run(loaded.unlearn, given, config, bench.reference.path, seed=0)
        if outcome.status != "ok":
            msg = f"{name} trial {trial}: {outcome.status}: {outcome.error}"
            raise BenchError(msg, exit_code=1)
        last = outcome.checkpoints[-1]
        moved = f"KL {last.value:.2g} after {last.tokens} tokens"
        yield f"ok  trial {trial}: {len(outcome.checkpoints)} yields, {moved}"
