"""Finished runs on disk: a file each while a grid runs, a file per submission once packed."""

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import BenchError
from bench.parquet import UnusableError, read_table
from bench.record import (
    PROBES_SUFFIX,
    ProbeAnswer,
    Record,
    from_frame,
    read_all,
    read_probes,
    write,
    write_probes,
)

if TYPE_CHECKING:
    from bench.run import RunSpec


def is_done(spec: "RunSpec", folder: Path) -> bool:
    """Whether a folder of results holds the run, in a file of its own or packed."""
    own = spec.path(folder)
    packed = own.parent.with_name(f"{own.parent.name}.parquet")
    return own.exists() or own.stem in _packed_ids(packed)


@cache
def _packed_ids(file: Path) -> frozenset[str]:
    try:
        return frozenset(read_table(file)["run_id"].to_pylist()) if file.exists() else frozenset()
    except (UnusableError, KeyError):
        return frozenset()  # whoever reads the results is told what is wrong with the file


def pack(results: Path, into: Path) -> list[Path]:
    """Add the finished runs of a folder to the packed files of another, one per submission.

    Args:
        results: Folder that `bench run` wrote to; it stays as it is.
        into: Folder of `TASK/SUBMISSION.parquet`, and of the answers to probes beside them.

    Returns:
        The files written. Equal records give equal bytes.

    Raises:
        BenchError: A file cannot be used, or two copies of one run disagree.
    """
    folders = [results, into] if into.is_dir() else [results]
    frame, problems = read_all(folders)
    if problems:
        msg = f"{problems[0].path}: {problems[0].reason}. Nothing was packed."
        raise BenchError(msg)
    homes: dict[Path, list[Record]] = defaultdict(list)
    for record in from_frame(frame):
        homes[into / record.task / f"{record.submission}.parquet"].append(record)
    answers = _answers(folders)
    written = []
    for path, records in sorted(homes.items()):
        write(records, path)
        ids = dict.fromkeys(record.run_id for record in records)
        rows = [answer for run_id in ids for answer in answers.get(run_id, ())]
        if rows:
            write_probes(rows, path.with_name(path.stem + PROBES_SUFFIX))
        written.append(path)
    return written


def _answers(folders: list[Path]) -> dict[str, list[ProbeAnswer]]:
    """Answers to probes by run, those of the first file that has any."""
    found: dict[str, list[ProbeAnswer]] = {}
    for folder in folders:
        for path in sorted(folder.rglob(f"*{PROBES_SUFFIX}")):
            own: dict[str, list[ProbeAnswer]] = defaultdict(list)
            for answer in read_probes(path):
                own[answer.run_id].append(answer)
            for run_id, rows in own.items():
                found.setdefault(run_id, rows)
    return found
