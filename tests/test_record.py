"""Records: written whole or not at all, read back with nothing dropped in silence."""

import errno
import os
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.canonical import canonical_json, fingerprint
from bench.errors import BenchError
from bench.parquet import schema_of
from bench.record import (
    ProbeAnswer,
    Record,
    from_frame,
    read,
    read_all,
    read_probes,
    to_frame,
    write,
    write_probes,
)
from tests.synthetic import record

ANSWER = ProbeAnswer(
    run_id="a",
    stage="attack",
    attack="relearn",
    learning_rate=1e-3,
    dose=10,
    split="test",
    probe=3,
    template="trained",
    probability=0.5,
    correct=None,
)


def test_schema_follows_the_dataclass() -> None:
    schema = schema_of(Record)
    assert schema.names == [field.name for field in fields(Record)]
    assert schema.field("kl") == pa.field("kl", pa.float64(), nullable=True)
    assert schema.field("seed") == pa.field("seed", pa.int64(), nullable=False)
    assert schema.field("attack").nullable
    assert not schema.field("git_dirty").nullable


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rows = [record(kl=0.1), record(kl=None, attack="relearn", stage="attack", dose=5)]
    write(rows, tmp_path / "deep" / "a.parquet")
    assert read(tmp_path / "deep" / "a.parquet") == rows
    assert pq.read_metadata(tmp_path / "deep" / "a.parquet").row_group(0).column(0).compression == (
        "ZSTD"
    )


def test_frame_and_back(tmp_path: Path) -> None:
    rows = [record(kl=0.1), record(kl=None, error="a"), record(limit=None)]
    frame = to_frame(rows)
    assert from_frame(frame) == rows
    assert frame["kl"].isna().tolist() == [False, True, True]
    assert to_frame([]).columns.tolist() == frame.columns.tolist()


def test_answers_lie_beside_and_are_no_records(tmp_path: Path) -> None:
    write([record(run_id="a")], tmp_path / "a.parquet")
    write_probes([ANSWER], tmp_path / "a.probes.parquet")
    assert read_probes(tmp_path / "a.probes.parquet") == [ANSWER]
    frame, problems = read_all([tmp_path])
    assert (len(frame), problems) == (1, [])
    with pytest.raises(BenchError, match="probes"):
        write_probes([ANSWER], tmp_path / "a.parquet")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(BenchError, match="forget_loss"):
        write([record(forget_loss=value)], tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changes", [{"stage": "train"}, {"split": "relearn"}, {"status": "fine"}, {"seed": None}]
)
def test_words_and_nulls_are_checked(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(BenchError, match=next(iter(changes))):
        write([record(**changes)], tmp_path / "a.parquet")
    with pytest.raises(BenchError, match="no records"):
        write([], tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BenchError, match="No space left") as caught:
        write([record()], tmp_path / "a.parquet")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write([record(kl=0.1)], tmp_path / "a.parquet")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BenchError):
        write([record(kl=0.2)], tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [record(kl=0.1)]


def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    write([record(run_id="good")], tmp_path / "sub" / "good.parquet")
    whole = (tmp_path / "sub" / "good.parquet").read_bytes()
    (tmp_path / "torn.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.parquet").write_bytes(b"")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "foreign.parquet")
    write([record(run_id="new", schema_version=2)], tmp_path / "new.parquet")
    table = pq.read_table(tmp_path / "sub" / "good.parquet")
    nan = pa.array([float("nan")], pa.float64())
    pq.write_table(
        table.set_column(table.schema.get_field_index("kl"), "kl", nan), tmp_path / "nan.parquet"
    )
    frame, problems = read_all([tmp_path])
    assert frame["run_id"].tolist() == ["good"]
    assert {p.label: p.reason.split(":")[0].split("(")[0].strip() for p in problems} == {
        "empty.parquet": "not readable as Parquet",
        "foreign.parquet": "not a table of Record",
        "nan.parquet": "column 'kl' has NaN or infinite values",
        "new.parquet": "schema version 2; this program reads version 1",
        "torn.parquet": "not readable as Parquet",
    }
    assert not any(str(tmp_path) in p.reason for p in problems)
    with pytest.raises(BenchError, match=r"torn\.parquet"):
        read(tmp_path / "torn.parquet")


def test_copies_of_a_run_collapse(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    write([record(run_id="x", kl=0.1, seconds=1.0)], first / "x.parquet")
    write([record(run_id="x", kl=0.1, seconds=9.0, git_commit="f")], second / "x.parquet")
    frame, problems = read_all([first, second])
    assert frame["seconds"].tolist() == [1.0]
    assert problems == []


def test_copies_that_differ_are_a_problem(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    write([record(run_id="x", kl=0.1)], first / "x.parquet")
    write([record(run_id="x", kl=0.2)], second / "x.parquet")
    frame, problems = read_all([first, second])
    assert frame["kl"].tolist() == [0.1]
    assert [p.path for p in problems] == [second / "x.parquet"]
    assert "other measurements" in problems[0].reason


def test_no_folder_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="no such folder"):
        read_all([tmp_path / "absent"])


def test_canonical_json_and_fingerprint() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None, "é"]}) == '{"a":[1.5,null,"é"],"b":1}'
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint(replace(record(), seed=1)) != fingerprint(record())
    assert len(fingerprint(1)) == 16
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))
    with pytest.raises(TypeError, match="set"):
        canonical_json({1, 2})
