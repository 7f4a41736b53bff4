"""Progress of a training run: a live bar on a terminal, a line each 5 % in a log."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reference_models.states import Run

LINES: Final = 20
"""Lines that a whole run writes to a log."""
_LOG: Final = logging.getLogger(__name__)


@contextmanager
def watch(name: str) -> Iterator[Callable[[Run, int], None]]:
    """Show a run named `name`; gives what to call after every step with the total of steps."""
    console = Console(stderr=True)
    if not console.is_terminal:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        _LOG.setLevel(logging.INFO)
        yield _logger(name)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
    )
    # Drawing is kept rare: it takes its time from the same core as the training.
    with Progress(*columns, console=console, refresh_per_second=1) as progress:
        task = progress.add_task(name, total=None, status="")
        rate = _Rate()

        def on_step(run: Run, total: int) -> None:
            progress.update(task, total=total, completed=run.step, status=rate.describe(run))

        yield on_step


def _logger(name: str) -> Callable[[Run, int], None]:
    rate = _Rate()

    def on_step(run: Run, total: int) -> None:
        if run.step * LINES // total > (run.step - 1) * LINES // total:
            left = rate.seconds_left(run, total)
            message = "%s %d/%d %s, %.0f min left"
            _LOG.info(message, name, run.step, total, rate.describe(run), left / 60)

    return on_step


class _Rate:
    """Speed since the first step seen, so that a resumed run does not count what it did not do."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self._tokens = self._step = -1

    def describe(self, run: Run) -> str:
        """Tokens per second and the running losses."""
        self._begin(run)
        speed = (run.tokens - self._tokens) / max(perf_counter() - self._began, 1e-9)
        losses = " ".join(f"{domain} {loss:.3f}" for domain, loss in sorted(run.losses.items()))
        return f"{speed:,.0f} tokens/s {losses}"

    def seconds_left(self, run: Run, total: int) -> float:
        """Time to the end at the mean speed so far."""
        self._begin(run)
        done = max(1, run.step - self._step)
        return (total - run.step) * (perf_counter() - self._began) / done

    def _begin(self, run: Run) -> None:
        if self._step < 0:
            self._began, self._tokens, self._step = perf_counter(), run.tokens, run.step
