"""The command `bench`: list, check and run."""

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from bench.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.grid import Plan
    from bench.run import RunSpec

app = typer.Typer(
    help="Unlearn under a fixed budget, attack, measure, record.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()
STORED: Final = Path(__file__).resolve().parent.parent / "leaderboard" / "results"
"""Results that come with the repository; controls found there are not run again."""
INTERRUPTED: Final = 130
"""Exit code of a command ended by Ctrl-C, as shells have it."""


@app.command("list")
def list_all() -> None:
    """Show tasks, members, budgets and submissions."""
    from bench.submission import find_submission, list_submissions
    from bench.tasks import TASKS

    for task in TASKS.values():
        console.print(f"[bold]{task.name}[/] v{task.version}: {task.title}")
        console.print(f"  members  {', '.join(task.members)}")
        console.print(f"  budgets  {', '.join(task.budgets)}")
    for name in list_submissions():
        submission = find_submission(name)
        trials = len(submission.trials)
        console.print(f"[bold]{name}[/]  {submission.title}, {trials} trials", highlight=False)


@app.command()
def check(submission: str, task: str = "vital") -> None:
    """Run a submission's first trial for a few yields on real data and say what is wrong."""
    from bench.check import check_submission

    for line in check_submission(submission, task):
        console.print(line, highlight=False)


@app.command()
def run(  # noqa: PLR0913, PLR0917  # one option per axis of the grid
    submissions: Annotated[list[str], typer.Argument(help="Names or folders.")],
    task: str = "vital",
    member: Annotated[list[str] | None, typer.Option(help="Default: the task's.")] = None,
    budget: Annotated[list[str] | None, typer.Option(help="Default: the task's.")] = None,
    trial: Annotated[list[int] | None, typer.Option(help="Default: all.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Default: 0 1 2.")] = None,
    attack: Annotated[bool, typer.Option(help="Attack the best trial's models.")] = True,
    jobs: Annotated[int, typer.Option(help="Processes, one thread each.", min=1)] = 1,
    results: Annotated[Path, typer.Option(help="Where records go.")] = Path("results"),
) -> None:
    """Unlearn, match the budget, attack, record. Finished runs are skipped."""
    from bench.budget import parse
    from bench.grid import Plan
    from bench.members import is_oracle
    from bench.reference import load_reference
    from bench.submission import find_submission
    from bench.tasks import get_task

    rules = get_task(task)
    for name in submissions:
        if name != "reference":
            find_submission(name)
    plan = Plan(
        task=task,
        submissions=tuple(n for n in submissions if n != "reference"),
        members=tuple(member or rules.members),
        budgets=tuple(parse(b).name for b in budget or rules.budgets),
        seeds=tuple(seed or (0, 1, 2)),
        trials=tuple(trial) if trial else None,
        attack=attack,
    )
    for name in plan.members:
        load_reference(rules.suite, name)
    oracles = [name for name in plan.members if is_oracle(name)]
    if plan.submissions and oracles:
        msg = f"member: {oracles[0]!r} never knew the forget text, so there is nothing to unlearn."
        raise BenchError(msg)
    failed = _run_plan(plan, results, jobs)
    console.print(f"records in {results}")
    if failed:
        raise typer.Exit(1)


@app.command()
def pack(
    results: Annotated[Path, typer.Argument(help="Folder that `bench run` wrote to.")],
    into: Annotated[Path, typer.Option(help="Folder of one file per submission.")] = STORED,
) -> None:
    """Add finished runs to the results that come with the repository."""
    from bench.store import pack as pack_results

    for path in pack_results(results, into):
        console.print(str(path), highlight=False, soft_wrap=True)


def _run_plan(plan: "Plan", results: Path, jobs: int) -> int:
    """Reference rows, unlearning runs, then attacks; the number of runs that failed."""
    from bench.grid import missing
    from bench.record import read_all

    unlearning = missing(plan.unlearning(), [results])  # first: it finds a user's mistakes
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{results}: cannot be a folder for records ({error.strerror})."
        raise BenchError(msg) from error
    stored = [STORED] if STORED.is_dir() else []
    everywhere = [results, *stored]
    failed = _stage("reference", missing(plan.references(), everywhere), results, jobs)
    failed += _stage("unlearn", unlearning, results, jobs)
    if plan.attack:
        failed += _stage("controls", missing(plan.controls(), everywhere), results, jobs)
        records, problems = read_all(everywhere)
        for problem in problems:
            console.print(f"{problem.path}: {problem.reason}; not used.", highlight=False)
        attacks = missing(plan.attacks(records), [results])
        failed += _stage("attack", attacks, results, jobs)
    return failed


def _stage(name: str, specs: "Sequence[RunSpec]", results: Path, jobs: int) -> int:
    """Run one stage with a progress bar; a line per run where there is no terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from bench.grid import execute

    if not specs:
        return 0
    statuses: Counter[str] = Counter()
    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("eta"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(name, total=len(specs), note="")

        def note(spec: "RunSpec", line: str) -> None:
            progress.update(bar, note=f"{spec.submission} {spec.member}: {line}")

        for number, done in enumerate(execute(specs, results, jobs=jobs, report=note), 1):
            statuses[done.status] += 1
            progress.update(bar, advance=1)
            if not console.is_terminal:
                what = f"{done.spec.submission} {done.spec.member} trial {done.spec.trial}"
                what += f" seed {done.spec.seed} {done.spec.budget} {done.status}"
                typer.echo(f"{name} {number}/{len(specs)} {what}")
            elif done.status not in ("ok", "unreached"):
                progress.console.print(f"{done.spec.submission} {done.spec.member}: {done.status}")
    return sum(count for status, count in statuses.items() if status not in ("ok", "unreached"))


def main() -> None:
    """Entry point: a user's mistake is one line and an exit code, never a traceback."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app()
    except BenchError as error:
        Console(stderr=True).print(f"bench: {error}", highlight=False, soft_wrap=True, markup=False)
        raise SystemExit(error.exit_code) from None
    except (KeyboardInterrupt, SystemExit) as end:
        # typer ends an interruption with SystemExit and says nothing.
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        Console(stderr=True).print("bench: interrupted; run the same command to go on.")
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
