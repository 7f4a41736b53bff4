"""Packing: nothing lost, nothing twice, and a packed run counts as done."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench import store
from bench.errors import BenchError
from bench.record import PROBES_SUFFIX, ProbeAnswer, Record, read_all, read_probes, to_frame, write
from bench.record import write_probes as write_answers
from bench.run import RunSpec
from tests.synthetic import record


def run_file(folder: Path, row: Record) -> None:
    """One run of two rows and one answer, as `bench run` leaves it."""
    home = folder / row.task / row.submission
    write([row, replace(row, split="dev")], home / f"{row.run_id}.parquet")
    answer = ProbeAnswer(
        run_id=row.run_id,
        stage=row.stage,
        attack=None,
        learning_rate=None,
        dose=0,
        split="test",
        probe=1,
        template="trained",
        probability=0.25,
        correct=True,
    )
    write_answers([answer], home / f"{row.run_id}{PROBES_SUFFIX}")


def test_packing_keeps_every_row_and_answer_of_all_calls(tmp_path: Path) -> None:
    rows = [record(run_id=f"{n:016x}", submission=name) for n, name in enumerate(("a", "a", "b"))]
    whole, packed = tmp_path / "runs", tmp_path / "packed"
    run_file(whole, rows[0])
    store.pack(whole, packed)
    for row in rows[1:]:
        run_file(whole, row)
    written = store.pack(whole, packed)
    assert [file.name for file in written] == ["a.parquet", "b.parquet"]
    before, after = read_all([whole]), read_all([packed])
    assert before[0].equals(after[0])
    assert after[1] == []
    assert len(before[0]) == 6
    answers = read_probes(packed / "toy" / f"a{PROBES_SUFFIX}")
    assert [answer.run_id for answer in answers] == [rows[0].run_id, rows[1].run_id]


def test_equal_runs_pack_to_equal_bytes(tmp_path: Path) -> None:
    rows = [record(run_id=f"{n:016x}", seed=n) for n in range(3)]
    for name, order in (("one", rows), ("other", rows[::-1])):
        for row in order:
            run_file(tmp_path / name, row)
        store.pack(tmp_path / name, tmp_path / f"packed-{name}")
    one, other = (
        (tmp_path / f"packed-{name}" / "toy" / "wga.parquet").read_bytes()
        for name in ("one", "other")
    )
    assert one == other


def test_a_contradiction_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    run_file(tmp_path / "runs", record(kl=0.1))
    store.pack(tmp_path / "runs", tmp_path / "packed")
    before = (tmp_path / "packed" / "toy" / "wga.parquet").read_bytes()
    run_file(tmp_path / "other", record(kl=0.2))
    with pytest.raises(BenchError, match="other measurements"):
        store.pack(tmp_path / "other", tmp_path / "packed")
    assert (tmp_path / "packed" / "toy" / "wga.parquet").read_bytes() == before


def test_a_packed_run_is_done_and_another_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, open_ = (RunSpec(task="toy", member="p000", submission="wga", seed=s) for s in (0, 1))
    monkeypatch.setattr(RunSpec, "identity", lambda self: f"{self.seed:016x}")
    run_file(tmp_path / "runs", record(run_id=f"{0:016x}"))
    assert store.is_done(done, tmp_path / "runs")
    store.pack(tmp_path / "runs", tmp_path / "packed")
    assert store.is_done(done, tmp_path / "packed")
    assert not store.is_done(open_, tmp_path / "packed")


def test_packed_results_give_the_frame_of_single_files(tmp_path: Path) -> None:
    run_file(tmp_path / "runs", record())
    store.pack(tmp_path / "runs", tmp_path / "packed")
    rows = [record(), replace(record(), split="dev")]
    assert read_all([tmp_path / "packed"])[0].equals(to_frame(rows))
