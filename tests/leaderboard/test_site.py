"""Pages: safe, complete, and the same for the same records."""

import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.record import Record, to_frame, write
from leaderboard.cli import app
from leaderboard.columns import Column
from leaderboard.filters import show
from leaderboard.intervals import Estimate, Missing
from leaderboard.score import score
from leaderboard.site import PLOTLY, markdown_cell, read_manifests, render, script_json
from tests.synthetic import records

HOSTILE = "<script>alert(1)</script>"


def store(rows: list[Record], folder: Path) -> Path:
    """One file per run, as the benchmark does it."""
    ordered = sorted(rows, key=lambda r: r.run_id)
    for run_id, run in groupby(ordered, key=lambda r: r.run_id):
        write(list(run), folder / f"{run_id}.parquet")
    return folder


@pytest.fixture(scope="module")
def small() -> list[Record]:
    return records(members=("p000", "p100"), seeds=(0, 1))


def build(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["build", *map(str, arguments)])
    return result.exit_code, result.output


def test_equal_records_give_byte_equal_pages(tmp_path: Path, small: list[Record]) -> None:
    first, second = store(small, tmp_path / "a"), store(small[::-1], tmp_path / "deep" / "b")
    for results, out in ((first, "one"), (second, "two")):
        code, output = build("--results", results, "--out", tmp_path / out)
        assert code == 0, output
        assert output.strip().endswith("index.html")
    for name in ("index.html", "LEADERBOARD.md", PLOTLY):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_page_needs_nothing_from_outside(small: list[Record]) -> None:
    page, _ = render(score(to_frame(small)), [], {})
    sources = re.findall(r"""(?:src|href)="([^"#]+)""", page)
    assert set(sources) == {
        PLOTLY,
        "LEADERBOARD.md",
        "https://creativecommons.org/licenses/by-sa/4.0/",
    }
    assert "@import" not in page
    assert "CC BY-SA 4.0" in page


def test_text_of_records_is_never_markup(small: list[Record]) -> None:
    rows = [
        replace(
            r,
            title=HOSTILE,
            command=HOSTILE,
            submission="rmu" if r.submission == "rmu" else r.submission,
            error=HOSTILE if r.error else None,
            task=HOSTILE,
            member=r.member,
        )
        for r in small
    ]
    rows = [replace(r, submission=HOSTILE) if r.submission == "wdr" else r for r in rows]
    page, markdown = render(score(to_frame(rows)), [], {})
    assert HOSTILE not in page
    assert HOSTILE not in markdown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\\u003cscript\\u003e" in page


def test_a_pipe_cannot_end_a_cell() -> None:
    assert markdown_cell("a|b\nc") == "a\\|b c"
    assert "</" not in script_json({"a": "</script>"})


def test_sources_failures_and_problems_are_shown(tmp_path: Path) -> None:
    rows = [replace(r, git_dirty=r.submission == "wga") for r in records(("p000",), (0, 1, 2))]
    folder = store(rows, tmp_path / "results")
    (folder / "torn.parquet").write_bytes(b"PAR1")
    code, output = build("--results", folder, "--out", tmp_path / "site")
    assert code == 0
    assert "1 file(s) left out" in output
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "torn.parquet" in page
    assert str(tmp_path) not in page
    assert "KL 0.31 at step 1" in page
    assert "bench run wga --member p000" in page
    assert "at 0123456789" in page
    assert "uncommitted changes" in page


def test_members_are_coloured_by_localisation(tmp_path: Path, small: list[Record]) -> None:
    (tmp_path / "vital").mkdir()
    (tmp_path / "vital" / "manifest.toml").write_text(
        "[members.p000.test_loss]\nforget = 3.0\nretain = 2.0\n"
        "[members.p000.test_loss_without_bio]\nforget = 3.5\nretain = 2.5\n"
        "[members.p100.test_loss]\nforget = 3.0\nretain = 2.0\n"
        "[members.p100.test_loss_without_bio]\nforget = 3.75\nretain = 2.25\n"
    )
    boards = score(to_frame(small))
    page, _ = render(boards, [], read_manifests(tmp_path, ["vital", "absent"]))
    assert "p100 (localisation 0.50)" in page
    assert "p000 (localisation 0.00)" in page
    assert "coloured by localisation" in page
    assert "in the order of p" in render(boards, [], {})[0]


def test_no_records_is_a_page_too(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _ = build("--results", tmp_path / "empty", "--out", tmp_path / "site")
    assert code == 0
    assert "No records." in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


def test_no_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = build("--results", tmp_path / "absent", "--out", tmp_path / "site")
    assert (code, output.count("\n")) == (2, 1)
    monkeypatch.chdir(tmp_path)
    code, output = build()
    assert code == 2
    assert "--results" in output


def test_markdown_goes_where_it_is_asked_to(tmp_path: Path, small: list[Record]) -> None:
    folder = store(small, tmp_path / "results")
    wanted = tmp_path / "docs" / "BOARD.md"
    code, _ = build("--results", folder, "--out", tmp_path / "site", "--markdown", wanted)
    assert code == 0
    assert wanted.read_bytes() == (tmp_path / "site" / "LEADERBOARD.md").read_bytes()


def test_numbers_are_rounded_when_shown_only() -> None:
    column = Column(key="x", title="x", digits=2)
    value = Estimate(mean=-0.125678, se=0.01, low=-0.2, high=0.0, seeds=3)
    shown = show(value, column)
    assert shown.text == "\N{MINUS SIGN}0.13 \N{PLUS-MINUS SIGN} 0.01"
    assert shown.sort == -0.125678
    assert show(-0.001, column).text == "0.00"
    assert show(None, column).sort is None
    assert show(Missing.NOT_REACHED, column).text == "not reached"
