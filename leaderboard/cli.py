"""The command `leaderboard`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.errors import BenchError, did_you_mean
from bench.record import read_all
from leaderboard.score import score
from leaderboard.site import read_manifests, render, write

app = typer.Typer(
    name="leaderboard",
    help="Build the leaderboard from stored records.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command."""
    app()


@app.callback()
def _root() -> None:
    # With one subcommand and no callback, typer would drop the subcommand's name.
    pass


@app.command()
def build(
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of records; may be repeated. Default: leaderboard/results and results."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the site.")] = Path("site"),
    references: Annotated[Path, typer.Option(help="Folder with <suite>/manifest.toml.")] = Path(
        "reference_models"
    ),
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables in Markdown here too.")
    ] = None,
) -> None:
    """Score the records, write the site, and print the path of its page."""
    with _told_in_one_line():
        index, left_out = _build(_folders(results), out, references, markdown)
    if left_out:
        typer.echo(f"{left_out} file(s) left out: see the end of the page", err=True)
    typer.echo(str(index))


@app.command()
def compare(  # one option per way to read the result
    base: Annotated[str, typer.Argument(help="File, folder or git revision to compare with.")],
    head: Annotated[str, typer.Argument(help="The same, which may have got worse.")],
    tolerance: Annotated[float, typer.Option(help="Changes this small never count.", min=0)] = 0.0,
    only: Annotated[list[str] | None, typer.Option(help="Submission; may be repeated.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown, junit, github.")] = "text",
) -> None:
    """Say what got worse beyond the seeds' noise; exit code 1 if anything did."""
    from leaderboard import compare as comparing

    with _told_in_one_line():
        if form not in comparing.FORMATS:
            msg = f"unknown format {form!r}. {did_you_mean(form, comparing.FORMATS)}"
            raise BenchError(msg)
        with comparing.results_of(base) as one, comparing.results_of(head) as other:
            boards = comparing.boards_of(one), comparing.boards_of(other)
        found = comparing.compare(*boards, tolerance=tolerance, only=only or ())
    typer.echo(comparing.report(found, form))
    if any(comparison.is_regression for comparison in found):
        raise typer.Exit(1)


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """A user's mistake is one line and an exit code, never a traceback."""
    try:
        yield
    except BenchError as error:
        Console(stderr=True, soft_wrap=True).print(f"error: {error}", markup=False)
        raise typer.Exit(error.exit_code) from error


def _folders(results: list[Path] | None) -> list[Path]:
    if results:
        return results
    found = [path for path in (Path("leaderboard/results"), Path("results")) if path.is_dir()]
    if not found:
        msg = "no leaderboard/results and no results here; name a folder of records: --results DIR"
        raise BenchError(msg)
    return found


def _build(
    folders: list[Path], out: Path, references: Path, markdown: Path | None
) -> tuple[Path, int]:
    frame, problems = read_all(folders)
    boards = score(frame)
    suites = sorted({board.ledger.key.suite for board in boards})
    page, text = render(boards, problems, read_manifests(references, suites))
    index = write(page, text, out)
    if markdown is not None:
        try:
            markdown.parent.mkdir(parents=True, exist_ok=True)
            markdown.write_text(text, encoding="utf-8")
        except OSError as error:
            msg = f"{markdown}: cannot write: {error.strerror or error}."
            raise BenchError(msg) from error
    return index, len(problems)
