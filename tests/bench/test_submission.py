"""Submission folders and reference models: what is wrong is told in one line."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.record import Record, write
from bench.reference import SUITES, load_reference
from bench.submission import Loaded, find_submission, list_submissions, load_submission
from bench.tasks import get_task
from tests.synthetic import record

TEXTS = 'title = "T"\nauthors = "A"\npaper = "P"\ndescription = "D"\n'
CODE = """\
from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    rate: float
    steps: int = 3


def unlearn(model, data, config, generator):
    yield model
"""
TRIAL = "[[trial]]\nrate = 0.5\n"


def folder(tmp_path: Path, table: str = TEXTS + TRIAL, code: str | None = CODE) -> Path:
    place = tmp_path / "mine"
    place.mkdir(exist_ok=True)
    (place / "submission.toml").write_text(table, encoding="utf-8")
    if code is not None:
        (place / "submission.py").write_text(code, encoding="utf-8")
    return place


def load(place: Path) -> Loaded:
    return load_submission(find_submission(str(place)), 6)


def refused(place: Path) -> str:
    with pytest.raises(BenchError) as caught:
        load(place)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.exit_code == 2
    return text


def test_a_folder_loads_with_whole_numbers_and_defaults_filled_in(tmp_path: Path) -> None:
    loaded = load(folder(tmp_path, TEXTS + "[[trial]]\nrate = 1\n[[trial]]\nrate = 2.5\nsteps = 9"))
    assert loaded.submission.name == "mine"
    assert loaded.config_json(0) == '{"rate":1.0,"steps":3}'
    assert loaded.config_json(1) == '{"rate":2.5,"steps":9}'


def test_every_shipped_submission_loads() -> None:
    for name in [*list_submissions(), "_template"]:
        loaded = load_submission(find_submission(name), get_task("vital").limits.trials)
        assert len(loaded.configs) == len(loaded.submission.trials) >= 1


def test_the_template_is_not_listed() -> None:
    assert "_template" not in list_submissions()


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("title =", "cannot be read"),
        (TEXTS + "titel = 'x'\n" + TRIAL, "Did you mean 'title'?"),
        (TRIAL, "'title' must be a non-empty text"),
        (TEXTS.replace('"P"', "3") + TRIAL, "'paper' must be a non-empty text"),
        (TEXTS, "at least one [[trial]]"),
        (TEXTS + "trial = 5", "at least one [[trial]]"),
        (TEXTS + "trial = [1, 2]", "at least one [[trial]]"),
        (TEXTS + "[trial]\nrate = 0.5", "at least one [[trial]]"),
        (TEXTS + 7 * TRIAL, "7 trials; the task allows 6"),
        (TEXTS + "[[trial]]\nrates = 0.5", "Did you mean 'rate'?"),
        (TEXTS + "[[trial]]\nsteps = 2", "rate is missing and has no default"),
        (TEXTS + "[[trial]]\nrate = '0.5'", "rate is '0.5'; float is needed"),
        (TEXTS + TRIAL + "steps = 1.5", "steps is 1.5; int is needed"),
        (TEXTS + TRIAL + "steps = true", "steps is True; int is needed"),
        (TEXTS + "[[trial]]\nrate = nan", "Config refuses its values"),
        (TEXTS + "[[trial]]\nrate = inf", "Config refuses its values"),
    ],
)
def test_a_wrong_table_is_told_in_one_line(table: str, told: str, tmp_path: Path) -> None:
    assert told in refused(folder(tmp_path, table))


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (None, "submission.py is missing"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("def unlearn(:\n", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (CODE.replace("class Config", "class Settings"), "dataclass named Config"),
        (CODE.replace("@dataclass(frozen=True)", ""), "dataclass named Config"),
        (CODE.replace("def unlearn", "def forget"), "a function unlearn("),
        (CODE.replace(", generator", ""), "a function unlearn("),
        (
            CODE.replace("    steps", "    def __post_init__(self):\n        1 / 0\n    steps"),
            "Config refuses its values (ZeroDivisionError",
        ),
        (CODE.replace("int = 3", "object = object()"), "Config refuses its values"),
    ],
)
def test_wrong_code_is_told_in_one_line(code: str | None, told: str, tmp_path: Path) -> None:
    assert told in refused(folder(tmp_path, code=code))


def test_types_are_checked_where_annotations_are_postponed(tmp_path: Path) -> None:
    code = "from __future__ import annotations\n" + CODE
    assert load(folder(tmp_path, code=code)).configs[0].rate == 0.5
    assert "float is needed" in refused(folder(tmp_path, TEXTS + "[[trial]]\nrate = 'x'", code))


def test_a_changed_line_of_code_is_another_submission_and_a_changed_trial_is_not(
    tmp_path: Path,
) -> None:
    first = load(folder(tmp_path)).submission.fingerprint
    assert load(folder(tmp_path, TEXTS + TRIAL + "steps = 4")).submission.fingerprint == first
    assert load(folder(tmp_path, code=CODE + "# more\n")).submission.fingerprint != first


@pytest.mark.parametrize(("name", "meant"), [("wgaa", "'wga'"), ("rnu", "'rmu'")])
def test_an_unknown_submission_is_answered_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(BenchError, match=f"Did you mean {meant}"):
        find_submission(name)


def test_an_unknown_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(BenchError, match="Did you mean 'vital'"):
        get_task("vitals")


# Reference models


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    for part in ("manifest.toml", "p000"):
        source, target = SUITES / "vital" / part, tmp_path / "vital" / part
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    return tmp_path


def test_an_intact_member_loads_with_the_hash_of_its_weights(suites: Path) -> None:
    found = load_reference("vital", "p000", suites)
    assert found.path == suites / "vital" / "p000"
    assert found.sha256 == load_reference("vital", "p000").sha256


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_flipped_byte_is_refused(name: str, suites: Path) -> None:
    file = suites / "vital" / "p000" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(BenchError) as caught:
        load_reference("vital", "p000", suites)
    assert f"{name} was altered" in str(caught.value)
    assert "git checkout" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(suites: Path) -> None:
    (suites / "vital" / "p000" / "model.safetensors").unlink()
    with pytest.raises(BenchError, match=r"model\.safetensors is missing; restore it"):
        load_reference("vital", "p000", suites)


def test_unknown_members_and_suites_are_answered_with_the_nearest(suites: Path) -> None:
    with pytest.raises(BenchError, match="Did you mean 'p000'"):
        load_reference("vital", "p0000", suites)
    with pytest.raises(BenchError, match="Did you mean 'vital'"):
        load_reference("vitals", "p000", suites)


def test_a_torn_manifest_is_refused(suites: Path) -> None:
    (suites / "vital" / "manifest.toml").write_text("[members", encoding="utf-8")
    with pytest.raises(BenchError, match=r"manifest\.toml cannot be read"):
        load_reference("vital", "p000", suites)


# Records


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rows: list[Record] = [record()]
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BenchError, match="No space left on device"):
        write(rows, tmp_path / "deep" / "run.parquet")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
