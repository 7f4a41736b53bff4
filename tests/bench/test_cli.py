"""The command `bench`: a mistake is one line and an exit code; a killed run is taken up again."""

import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import bench.cli
import bench.grid
import bench.run
from bench.errors import BenchError
from bench.grid import execute
from bench.record import _CIRCUMSTANCES, read
from bench.run import RunSpec, kept_path

ROOT = Path(__file__).parents[2]
ONE_RUN = """\
import sys
from pathlib import Path
from bench.grid import execute
from bench.run import RunSpec

spec = RunSpec(
    task="vital", member="p000", submission="retain_only", budget="kl<=0.05", seed=0
)


def show(_spec, line):
    print(line, flush=True)


for done in execute([spec], Path(sys.argv[1]), jobs=1, report=show):
    print(done.status, flush=True)
"""


def call(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Exit code, standard output and error of `bench WORDS`."""
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    with pytest.raises(SystemExit) as caught:
        bench.cli.main()
    out, err = capfd.readouterr()
    code = caught.value.code
    return code if isinstance(code, int) else 0, out, err


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake must be found before anything is computed."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(bench.cli, "_stage", never)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "wgaa"], "Did you mean 'wga'?"),
        (["run", "wga", "--task", "vitall"], "Did you mean 'vital'?"),
        (["run", "wga", "--member", "p0000"], "Did you mean 'p000'?"),
        (["run", "wga", "--budget", "kl<0.05"], "'kl<0.05' is not a budget"),
        (["run", "wga", "--member", "p000", "--trial", "99"], "there is no trial 99"),
        (["run", "wga", "--member", "oracle"], "nothing to unlearn"),
        (["check", "nothing_like_it"], "unknown submission 'nothing_like_it'"),
        (["check", "wga", "--task", "vitall"], "Did you mean 'vital'?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(
    words: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    if words[0] == "run":
        words = [*words, "--results", str(tmp_path / "results")]
    code, _, err = call(words, monkeypatch, capfd)
    assert code == 2
    assert told in err
    assert err.startswith("bench: ")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_a_file_in_the_place_of_the_results_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "results").write_text("mine")
    words = ["run", "none", "--member", "p000", "--results", str(tmp_path / "results")]
    code, _, err = call(words, monkeypatch, capfd)
    assert code == 2
    assert "cannot be a folder for records" in err
    assert len(err.splitlines()) == 1


def test_a_foreign_file_among_the_results_is_named_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign.parquet"
    foreign.write_text("mine")
    monkeypatch.setattr(bench.cli, "_stage", lambda *_: 0)
    words = ["run", "none", "--member", "p000", "--results", str(tmp_path)]
    code, out, _ = call(words, monkeypatch, capfd)
    assert code == 0
    assert "foreign.parquet" in "".join(out.split())
    assert "not used" in out
    assert foreign.read_text() == "mine"


def test_an_interruption_ends_with_130_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench.cli, "_run_plan", interrupted)
    words = ["run", "none", "--member", "p000", "--results", str(tmp_path)]
    code, _, err = call(words, monkeypatch, capfd)
    assert code == 130
    assert "run the same command to go on" in err
    assert "Traceback" not in err


def test_a_failed_run_ends_with_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(bench.cli, "_run_plan", lambda *_: 1)
    words = ["run", "none", "--member", "p000", "--results", str(tmp_path)]
    assert call(words, monkeypatch, capfd)[0] == 1


def test_the_list_names_everything_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['bench', 'list']\n"
        "from bench.cli import app\n"
        "app(standalone_mode=False)\n"
        "sys.exit(bool({'torch', 'transformers'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for word in ("vital", "p000", "kl<=0.05", "wga", "rmu", "retain_only"):
        assert word in done.stdout
    assert "_template" not in done.stdout


def die(*_: object) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "ok"


@pytest.mark.slow
def test_a_worker_that_dies_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench.grid, "_work", die)
    specs = [RunSpec(task="vital", member="p000", seed=seed) for seed in (0, 1)]
    with pytest.raises(BenchError, match="a worker process died") as caught:
        list(execute(specs, tmp_path, jobs=2))
    assert caught.value.exit_code == 1


def measured(results: Path) -> list[dict[str, object]]:
    """What the one record file below a folder holds, circumstances left out."""
    files = [p for p in results.rglob("*.parquet") if not p.name.endswith(".probes.parquet")]
    assert len(files) == 1
    rows = [asdict(row) for row in read(files[0])]
    return [{k: v for k, v in row.items() if k not in _CIRCUMSTANCES} for row in rows]


@pytest.mark.slow
def test_a_run_killed_in_the_middle_is_done_again_with_the_same_records(tmp_path: Path) -> None:
    torn, whole = tmp_path / "torn", tmp_path / "whole"
    command = [sys.executable, "-c", ONE_RUN]
    with subprocess.Popen(
        [*command, str(torn)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("yield"):
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL
    assert list(torn.rglob("*.parquet")) == []
    for results in (torn, whole):
        subprocess.run([*command, str(results)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert measured(torn) == measured(whole)
    assert {p.relative_to(torn) for p in torn.rglob("*")} == {
        p.relative_to(whole) for p in whole.rglob("*")
    }


@pytest.mark.slow
def test_kept_weights_that_are_damaged_or_gone_are_made_again(tmp_path: Path) -> None:
    spec = RunSpec(task="vital", member="p000", submission="retain_only", budget="kl<=0.05")
    assert [done.status for done in execute([spec], tmp_path, jobs=1)] == ["ok"]
    kept, record = kept_path(spec, tmp_path), spec.path(tmp_path)
    weights, row = kept.read_bytes(), record.read_bytes()
    kept.write_bytes(weights[:100])
    for _ in range(2):
        assert bench.run._kept_state(spec, tmp_path, 1, lambda _: None) is not None
        assert kept.read_bytes() == weights
        assert record.read_bytes() == row
        kept.unlink()
