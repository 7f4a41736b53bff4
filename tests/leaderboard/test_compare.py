"""The regression check: what is worse, what is noise, what is gone, and how it is told."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from bench.errors import BenchError
from bench.record import Record, to_frame, write
from leaderboard.cli import app
from leaderboard.compare import COST, FORMATS, LOST, PARETO, Comparison, compare, report
from leaderboard.score import score
from tests.synthetic import records


@pytest.fixture(scope="module")
def base() -> list[Record]:
    return records(members=("p000",), seeds=(0, 1))


def changed(rows: list[Record], change: Callable[[Record], Record | None]) -> list[Record]:
    return [new for row in rows if (new := change(row)) is not None]


def dearer(by: float) -> Callable[[Record], Record]:
    """Every unlearned WGA model loses more on retain text."""

    def change(row: Record) -> Record:
        if row.submission != "wga" or row.stage != "unlearn" or row.retain_loss is None:
            return row
        return replace(row, retain_loss=row.retain_loss + by)

    return change


def worse(base: list[Record], head: list[Record], **options: float) -> list[Comparison]:
    found = compare(score(to_frame(base)), score(to_frame(head)), **options)  # type: ignore[arg-type]
    return [comparison for comparison in found if comparison.is_regression]


def test_nothing_is_worse_than_itself(base: list[Record]) -> None:
    assert worse(base, base) == []


def test_a_dearer_method_is_named_with_its_score_and_no_other_is(base: list[Record]) -> None:
    found = worse(base, changed(base, dearer(0.05)))
    assert {c.key.submission for c in found} == {"wga"}
    assert {COST, PARETO} <= {c.key.measure for c in found}
    cost = next(c for c in found if c.key.measure is COST)
    assert cost.sentence.count("\n") == 0
    assert "retain cost of wga on p000 at forget>=0.5" in cost.sentence
    assert "worse by 0.05 nats/token" in cost.sentence


def test_a_cheaper_method_is_no_regression(base: list[Record]) -> None:
    found = worse(base, changed(base, dearer(-0.01)))
    assert not [c for c in found if c.key.measure is COST]


def test_a_change_inside_the_noise_of_the_seeds_is_no_regression(base: list[Record]) -> None:
    def wobble(row: Record) -> Record:
        return dearer(0.02 if row.seed else -0.018)(row)

    assert not [c for c in worse(base, changed(base, wobble)) if c.key.measure is COST]


def test_a_change_inside_the_tolerance_is_no_regression(base: list[Record]) -> None:
    head = changed(base, dearer(0.05))
    assert not [c for c in worse(base, head, tolerance=0.06) if c.key.measure is COST]


def test_what_is_gone_is_a_regression(base: list[Record]) -> None:
    found = worse(base, changed(base, lambda row: None if row.submission == "wdr" else row))
    assert {c.key.submission for c in found} == {"wdr"}
    assert all(c.head is None for c in found)


def test_a_run_that_fails_now_is_a_regression(base: list[Record]) -> None:
    def fail(row: Record) -> Record | None:
        if row.submission != "wga" or row.stage != "unlearn" or row.seed:
            return row
        return replace(row, kept=False, status="failed", error="it broke") if row.kept else None

    lost = [c for c in worse(base, changed(base, fail)) if c.key.measure is LOST]
    assert {c.key.budget for c in lost} == {"forget>=0.5", "kl<=0.05"}
    assert all("0.0000, now 1.0000" in c.sentence for c in lost)


def test_results_under_other_rules_are_refused(base: list[Record]) -> None:
    head = changed(base, lambda row: replace(row, task_fingerprint="0" * 16))
    with pytest.raises(BenchError, match="different rules"):
        worse(base, head)


def store(rows: list[Record], file: Path) -> Path:
    write(rows, file)
    return file


def call(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compare", *map(str, words)])
    return result.exit_code, result.output


def test_the_command_takes_files_folders_and_git_revisions(
    tmp_path: Path, base: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store(base, tmp_path / "leaderboard" / "results" / "a.parquet")
    new = store(changed(base, dearer(0.05)), tmp_path / "new" / "b.parquet")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "leaderboard"], ["commit", "-qm", "base"]):
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    for place in (old, old.parent, "HEAD"):
        code, output = call(place, new.parent)
        assert code == 1
        assert "retain cost of wga" in output
        assert call(place, old)[0] == 0
    assert call("HEAD", new, "--only", "rmu")[0] == 0
    code, output = call("no-such-thing", new)
    assert code == 2
    assert "no git revision" in output


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--format", "junitt"], "Did you mean 'junit'?"), (["--only", "wgaa"], "no results of")],
)
def test_wrong_options_are_one_line(
    tmp_path: Path, base: list[Record], words: list[str], said: str
) -> None:
    file = store(base, tmp_path / "a.parquet")
    code, output = call(file, file, *words)
    assert code == 2
    assert said in output
    assert len(output.strip().splitlines()) == 1


def test_every_format_tells_the_same_regressions(base: list[Record]) -> None:
    found = compare(score(to_frame(base)), score(to_frame(changed(base, dearer(0.05)))))
    count = sum(c.is_regression for c in found)
    assert count
    told = {form: report(found, form) for form in FORMATS}
    assert len(told["text"].splitlines()) == count + 1
    assert told["markdown"].count("**worse**") == count
    assert told["github"].count("::error ") == count
    suite = ET.fromstring(told["junit"])
    assert len(suite.findall(".//failure")) == count == int(suite.attrib["failures"])
    assert len(suite.findall("testcase")) == len(found) == int(suite.attrib["tests"])
