"""Envelopes and robustness: what is chosen on dev is read on test, and the controls are fixed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.record import Record, to_frame
from leaderboard.attacks import Cell, Curves, envelope, regain
from leaderboard.controls import resistance, scored_doses
from leaderboard.intervals import Estimate, Missing
from leaderboard.score import score
from tests.leaderboard.tiny import KL, board, both, under_attack

Numbers = dict[tuple[float | None, int], list[float]]


def model(dev: Numbers, test: Numbers | None = None) -> Curves:
    """Curves from lists of values by seed."""
    by_cell = [
        {Cell(*cell): dict(enumerate(values)) for cell, values in side.items()}
        for side in (dev, test or dev)
    ]
    return Curves(
        dev=by_cell[0], test=by_cell[1], accuracy={}, diverged=frozenset(), failed=frozenset()
    )


def known(values: Sequence[float]) -> Curves:
    """Knowledge at doses 0, 10, 100, ... of a single learning rate, at one seed."""
    doses = [0, *(10**power for power in range(1, len(values)))]
    return model({(1e-3, d): [v] for d, v in zip(doses, values, strict=True)})


def test_envelope_is_chosen_on_dev_and_read_on_test() -> None:
    dev: Numbers = {(1.0, 0): [0.1], (1.0, 10): [0.5], (2.0, 10): [0.4]}
    test: Numbers = {(1.0, 0): [0.1], (1.0, 10): [0.3], (2.0, 10): [0.9]}
    curve = model(dev, test)
    found = envelope(curve, curve.cells, [0])
    assert found is not None
    assert found.cells[10] == Cell(1.0, 10)
    assert found.mean(10) == 0.3


def test_envelope_may_stop_early() -> None:
    found = envelope(known([0.2, 0.6, 0.4]), known([0.2, 0.6, 0.4]).cells, [0])
    assert found is not None
    assert [found.mean(dose) for dose in (0, 10, 100)] == [0.2, 0.6, 0.6]


def test_a_cell_that_diverged_is_measured_and_useless() -> None:
    curve = model({(1.0, 0): [0.1], (1.0, 10): [0.5]})
    grid = {*curve.cells, Cell(9.0, 10)}
    assert envelope(curve, grid, [0]) is None
    burnt = replace(curve, diverged=frozenset({(9.0, 0)}))
    found = envelope(burnt, grid, [0])
    assert found is not None
    assert found.mean(10) == 0.5


def test_a_seed_without_a_cell_is_a_hole() -> None:
    curve = model({(1.0, 0): [0.1, 0.1], (1.0, 10): [0.5]})
    assert envelope(curve, curve.cells, [0, 1]) is None
    assert envelope(curve, curve.cells, [0]) is not None


VALUES = st.lists(st.floats(0.5, 1.0), min_size=3, max_size=3)
LOW = st.lists(st.floats(0.0, 0.4), min_size=3, max_size=3)


@given(VALUES, LOW)
def test_member_has_0_and_oracle_has_1(high: list[float], low: list[float]) -> None:
    doses = (10, 100)
    member = {dose: np.array(high) for dose in doses}
    oracle = {dose: np.array(low) for dose in doses}
    everybody = np.arange(3)[None]
    assert resistance(member, (member, oracle), doses, everybody)[0] == 0.0
    assert resistance(oracle, (member, oracle), doses, everybody)[0] == pytest.approx(1.0)
    assert resistance(oracle, (member, oracle), doses[:1], everybody)[0] == 1.0


def test_mean_over_log_dose_is_a_trapezoid() -> None:
    doses = (1, 10, 1000)
    member = {dose: np.array([1.0]) for dose in doses}
    oracle = {dose: np.array([0.0]) for dose in doses}
    method = {1: np.array([0.0]), 10: np.array([0.5]), 1000: np.array([1.0])}
    found = resistance(method, (member, oracle), doses, np.array([[0]]))
    assert found[0] == pytest.approx((0.75 * 1 + 0.25 * 2) / 3)


def test_doses_count_only_where_the_controls_are_apart() -> None:
    def scored(high: Sequence[float], low: Sequence[float]) -> tuple[int, ...]:
        pair = [envelope(known(v), known(v).cells, [0]) for v in (high, low)]
        assert pair[0] is not None
        assert pair[1] is not None
        return scored_doses(pair[0], pair[1], [10, 100, 1000])

    assert scored([0.9, 0.9, 0.9, 0.9], [0.1, 0.2, 0.3, 0.4]) == (10, 100, 1000)
    # The oracle has learned more than half of the gap.
    assert scored([0.9, 0.9, 0.9, 0.9], [0.1, 0.2, 0.6, 0.6]) == (10,)
    # The gap is under a quarter of what it was.
    assert scored([0.5, 0.5, 0.5, 0.5], [0.1, 0.42, 0.45, 0.48]) == ()
    # There is nothing to relearn.
    assert scored([0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1]) == ()


def test_doses_count_only_where_the_gap_is_no_noise() -> None:
    member = model(
        {(1.0, 0): [0.9, 0.9], (1.0, 10): [0.95, 0.95]},
        {(1.0, 0): [0.9, 0.9], (1.0, 10): [0.9, 0.3]},
    )
    oracle = model({(1.0, 0): [0.1, 0.1], (1.0, 10): [0.2, 0.2]})
    pair = [envelope(curve, curve.cells, [0, 1]) for curve in (member, oracle)]
    assert pair[0] is not None
    assert pair[1] is not None
    assert scored_doses(pair[0], pair[1], [10]) == ()


def test_regain_is_interpolated_in_the_log_of_the_dose() -> None:
    means = {0: 0.1, 10: 0.2, 1000: 0.6}
    assert regain(means, 0.4).dose == pytest.approx(100.0)
    assert regain(means, 0.15).dose == pytest.approx(5.0)
    assert regain(means, 0.05).dose == 0.0
    assert regain(means, 0.7).dose is None
    assert regain(means, 0.7).largest == 1000


def robustness(rows: list[Record]) -> dict[str, Estimate | Missing]:
    (found,) = score(to_frame(rows))
    return {s.scale: s.score for s in found.robustness}


def third_attack(levels: Sequence[float]) -> list[Record]:
    """One more attack with values for member, oracle and submission."""
    rows: list[Record] = []
    for (submission, member), level in zip(
        (("reference", "p000"), ("reference", "oracle"), ("wga", "p000")), levels, strict=True
    ):
        curve = {0: (level, 4 - level), 1: (level, 4 - level)}
        extra = under_attack(submission, member, curve, curve)
        rows += [
            replace(r, attack="third", run_id=r.run_id + "3")
            for r in extra
            if r.attack == "few_shot"
        ]
    return rows


@settings(deadline=None, max_examples=20)
@given(st.floats(0.0, 1.0))
def test_adding_an_attack_can_only_lower_robustness(level: float) -> None:
    before = robustness(board())
    after = robustness([*board(), *third_attack((0.9, 0.1, level))])
    for scale, score_after in after.items():
        score_before = before[scale]
        assert isinstance(score_after, Estimate)
        assert isinstance(score_before, Estimate)
        assert score_after.mean <= score_before.mean


def test_an_attack_that_tells_nothing_is_not_scored() -> None:
    assert robustness([*board(), *third_attack((0.5, 0.5, 0.9))]) == robustness(board())


def test_tokens_may_differ_between_seeds_of_one_step() -> None:
    rows = board()
    rows += [
        replace(r, seed=1, run_id=r.run_id + "1", dose=r.dose + (3 if r.learning_rate else 0))
        for r in board()
        if r.stage != "reference"
    ]
    found, before = (robustness(r)["answer_probability"] for r in (rows, board()))
    assert isinstance(found, Estimate)
    assert isinstance(before, Estimate)
    assert found.mean == pytest.approx(before.mean)
    assert found.seeds == 2


def test_an_attack_without_losses_is_no_hole_on_that_scale() -> None:
    rows = [replace(r, forget_loss=None) if r.attack == "few_shot" else r for r in board()]
    assert robustness(rows) == robustness(board())


def test_a_lost_seed_counts_as_nothing_unlearned() -> None:
    rows = board()
    for r in board():
        is_ours = r.submission == "wga" and r.budget == KL
        if r.stage == "attack" and not is_ours:
            rows.append(replace(r, seed=1, run_id=r.run_id + "1"))
    rows += both(run_id="lost", seed=1, budget=KL, status="over_budget", step=0)
    found = robustness(rows)["answer_probability"]
    assert isinstance(found, Estimate)
    half = (0.15 / 0.7 + 0.05 / 0.6) / 2
    assert found.mean == pytest.approx(half)
    assert found.low == pytest.approx(0.0)


def test_a_seed_that_was_not_attacked_is_incomplete() -> None:
    rows = board()
    rows += [
        replace(r, seed=1, run_id=r.run_id + "1")
        for r in board()
        if r.stage != "reference" and not (r.submission == "wga" and r.stage == "attack")
    ]
    assert set(robustness(rows).values()) == {Missing.INCOMPLETE}


def test_a_failed_attack_is_worst_not_absent() -> None:
    rows = [r for r in board() if not (r.submission == "wga" and r.attack == "relearn")]
    rows += both(
        run_id="crash",
        budget=KL,
        stage="attack",
        attack="relearn",
        learning_rate=1e-3,
        status="failed",
        error="out of memory",
    )
    for found in robustness(rows).values():
        assert isinstance(found, Estimate)
        assert found.mean == 0.0
