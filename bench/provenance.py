"""Where a number came from: code, versions, machine and command, as every record carries it."""

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

import bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The circumstances of a run; names as in `Record`."""

    bench_version: str
    git_commit: str
    git_dirty: bool
    data_sha256: str
    torch: str
    transformers: str
    device: str
    threads: int
    started: str
    command: str


@cache
def _git() -> tuple[str, bool]:
    """Commit of this package's working tree, and whether tracked files differ from it."""
    root = Path(__file__).resolve().parent.parent

    def ask(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(root), *words],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    commit = ask("rev-parse", "HEAD")
    return commit or "unknown", bool(ask("status", "--porcelain", "--untracked-files=no"))


def provenance(data_sha256: str, threads: int, command: str) -> Provenance:
    """The circumstances of a run that starts now."""
    commit, dirty = _git()
    return Provenance(
        bench_version=bench.__version__,
        git_commit=commit,
        git_dirty=dirty,
        data_sha256=data_sha256,
        torch=metadata.version("torch"),
        transformers=metadata.version("transformers"),
        device="cpu",
        threads=threads,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
    )
