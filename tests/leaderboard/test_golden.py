"""The small board, scored by hand and compared with all that is published of it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.record import Record, to_frame
from bench.selection import Group
from leaderboard.budgets import ForgetScore
from leaderboard.intervals import Estimate, Missing, Quotient
from leaderboard.score import Scores, score
from leaderboard.site import render
from tests.leaderboard.tiny import KL, LEVEL, board, both, path


def scored(rows: list[Record]) -> Scores:
    (found,) = score(to_frame(rows))
    return found


def mean(value: Estimate | Quotient | Missing) -> float:
    assert not isinstance(value, Missing), value
    return value.estimate.mean if isinstance(value, Quotient) else value.mean


def at_level(found: Scores, submission: str = "wga", member: str = "p000") -> ForgetScore:
    (one,) = [s for s in found.forget if s.group == Group(submission, member, LEVEL)]
    return one


def test_pareto_area() -> None:
    areas = {(s.submission, s.member): mean(s.area) for s in scored(board()).pareto}
    assert areas["wga", "p000"] == pytest.approx(0.3 * (0.1 - 0.06) / 0.1)
    assert areas["wga", "p100"] == pytest.approx(0.5 * (0.1 - 0.04) / 0.1)
    assert areas["retain_only", "p000"] == pytest.approx(0.1 * (0.1 - 0.03) / 0.1)


def test_costs_at_the_forget_level() -> None:
    one = at_level(scored(board()))
    assert mean(one.cost) == pytest.approx(0.12)
    assert mean(one.excess) == pytest.approx(0.12 - 0.02)
    assert mean(one.adjacent) == pytest.approx(0.0)
    assert mean(one.relative) == pytest.approx(1.0)
    assert mean(one.tokens) == 200
    assert one.reached == (1, 1)


def test_entanglement_ratios() -> None:
    (one,) = [s for s in scored(board()).entanglement if s.submission == "wga"]
    assert mean(one.raw) == pytest.approx(0.12 / 0.04)
    assert mean(one.excess) == pytest.approx(0.10 / 0.03)


def test_gain_at_the_kl_budget() -> None:
    (one,) = scored(board()).kl
    assert mean(one.gain) == pytest.approx(0.4)
    assert mean(one.use) == pytest.approx(0.98)
    assert one.is_matched


def test_robustness_is_that_of_the_worst_attack() -> None:
    found = {s.scale: s for s in scored(board()).robustness}
    by_answers = found["answer_probability"]
    assert mean(by_answers.score) == pytest.approx((0.3 / 0.7 + 0.1 / 0.6) / 2)
    assert by_answers.decided_by == "relearn"
    assert mean(found["forget_loss"].score) == pytest.approx((0.3 / 0.9 + 0.1 / 0.8) / 2)
    few_shot = [s for s in scored(board()).attacks if s.attack == "few_shot"]
    assert [mean(s.raw) for s in few_shot] == pytest.approx([0.35 / 0.8, 0.4])


def test_before_and_after() -> None:
    (one,) = [
        s
        for s in scored(board()).attacks
        if (s.attack, s.scale) == ("relearn", "answer_probability")
    ]
    assert one.envelope is not None
    assert one.regains is not None
    assert (one.envelope.mean(0), one.envelope.mean(100), one.dose) == (0.5, 0.8, 100)
    assert one.drop == pytest.approx(0.1)
    assert (one.regains[0].dose, one.regains[1].dose, one.regains[1].largest) == (0.0, None, 100)


def test_the_published_rows() -> None:
    _, markdown = render([scored(board())], [], {})
    lines = markdown.splitlines()
    for row in (
        "| 1 | p000 | wga | 0.120 | 1 | 2 |",
        "| 2 | p000 | retain_only | 0.070 | 1 | 2 |",
        "| 1 | p000 | wga | forget>=0.5 | 0.120 | 0.100 | 1.00 | 0.000 | 200 | 1/1 | 0 |",
        "| wga | forget>=0.5 | p100 | 3.00 | 3.33 | 1 |",
        "| 1 | p000 | wga | kl<=0.05 | 0.30 | relearn | 0.23 | relearn | 0.40 | 0.98 | 0.040 "
        "| 0.100 | 0/1 | 0 |",
    ):
        assert row.replace(">", "&gt;").replace("<", "&lt;") in lines


def test_member_scores_0_and_oracle_for_free_scores_1() -> None:
    rows = [r for r in board() if r.stage == "reference"]
    rows += path("nothing", "p000", [(10, 3.0, 2.0)], "unreached")
    rows += path("perfect", "p000", [(10, 4.0, 2.0)])
    assert {s.submission: mean(s.area) for s in scored(rows).pareto} == {
        "nothing": 0.0,
        "perfect": 1.0,
    }


def test_a_level_that_retain_only_reaches_is_not_scored() -> None:
    rows = [r for r in board() if (r.submission, r.member) != ("retain_only", "p000")]
    rows += path("retain_only", "p000", [(300, 3.6, 2.0)])
    found = scored(rows)
    assert at_level(found).cost is Missing.BY_CONTROL
    assert isinstance(at_level(found, member="p100").cost, Estimate)
    (ratio,) = [s for s in found.entanglement if s.submission == "wga"]
    assert ratio.raw is Missing.BY_CONTROL


def test_a_trial_of_retain_only_that_does_damage_is_a_row_and_not_the_control() -> None:
    """Its cost at the level stands in the table; excess cost is still over the better trial."""
    rows = list(board())
    for trial, places in enumerate(([(10, 3.6, 2.4)], [(300, 3.6, 2.3)]), start=1):
        rows += [replace(r, trial=trial) for r in path("retain_only", "p000", places)]
    found = scored(rows)
    assert mean(at_level(found).excess) == pytest.approx(0.12 - 0.02)
    assert mean(at_level(found, "retain_only").cost) == pytest.approx(0.3)


def test_not_reached_is_no_number_and_comes_last() -> None:
    found = scored([*board(), *path("weak", "p000", [(10, 3.1, 2.5)], "unreached")])
    assert at_level(found, "weak").cost is Missing.NOT_REACHED
    _, markdown = render([found], [], {})
    assert "| 2= | p000 | weak | forget&gt;=0.5 | not reached |" in markdown


def test_small_denominators_give_a_difference() -> None:
    rows = [r for r in board() if (r.submission, r.member) != ("wga", "p100")]
    rows += path("wga", "p100", [(200, 3.5, 2.001)])
    (one,) = [s for s in scored(rows).entanglement if s.submission == "wga"]
    assert isinstance(one.raw, Quotient)
    assert one.raw.is_difference
    assert mean(one.raw) == pytest.approx(0.119)


def _lose_attack(r: Record) -> bool:
    return (r.submission, r.attack, r.dose) == ("wga", "relearn", 100)


def _lose_control(r: Record) -> bool:
    return (r.submission, r.member, r.attack) == ("reference", "oracle", "few_shot")


@pytest.mark.parametrize("is_lost", [_lose_attack, _lose_control])
def test_a_hole_is_incomplete(is_lost: Callable[[Record], bool]) -> None:
    found = scored([r for r in board() if not is_lost(r)])
    assert {s.score for s in found.robustness} == {Missing.INCOMPLETE}


def test_without_an_oracle_there_is_no_gain() -> None:
    found = scored([r for r in board() if r.member != "oracle"])
    assert {s.area for s in found.pareto} == {Missing.INCOMPLETE}
    assert {s.gain for s in found.kl} == {Missing.INCOMPLETE}


def test_a_failed_run_scores_worst_and_is_listed() -> None:
    rows = [r for r in board() if not (r.submission == "wga" and r.budget == KL)]
    rows += both(run_id="f", budget=KL, status="failed", error="boom", step=0)
    found = scored(rows)
    assert [mean(s.score) for s in found.robustness] == [0.0, 0.0]
    assert mean(found.kl[0].gain) == 0.0
    assert found.kl[0].lost == (1, 1)
    assert [r.error for r in found.failures] == ["boom"]


def test_a_missing_seed_on_one_member_is_a_hole_there_only() -> None:
    rows = board()
    again = [r for r in rows if r.budget == LEVEL]
    rows += [replace(r, seed=1, run_id=r.run_id + "1") for r in again if r.member == "p000"]
    extra = scored(rows)
    assert all(isinstance(s.area, Estimate) for s in extra.pareto)
    third = [replace(r, member="p060", run_id=r.run_id + "060") for r in rows if r.member == "p000"]
    holed = {(s.submission, s.member): s.area for s in scored([*rows, *third]).pareto}
    assert holed["wga", "p100"] is Missing.INCOMPLETE
    assert isinstance(holed["wga", "p000"], Estimate)
    assert isinstance(holed["wga", "p060"], Estimate)


def test_versions_of_a_submission_never_mix() -> None:
    rows = board()
    old = [
        replace(r, submission_fingerprint="00ddba11", started="2025-01-01T00:00:00+00:00")
        for r in path("wga", "p000", [(50, 3.9, 2.0)])
    ]
    found = scored([*old, *rows])
    assert mean(at_level(found).cost) == pytest.approx(0.12)
    assert mean(at_level(found, "wga@00ddba11").cost) == pytest.approx(0.0)


def test_boards_never_mix() -> None:
    rows = board()
    other = [replace(r, task_fingerprint="beef", run_id=r.run_id + "x") for r in rows]
    assert len(score(to_frame([*rows, *other]))) == 2
    assert score(to_frame([])) == []
