"""Budgets: what counts as inside, and matching to the tolerance."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.budget import ForgetBudget, KLBudget, match, parse
from bench.errors import BenchError

LIMITS = st.floats(1e-4, 2.0)
POWERS = st.floats(0.5, 4.0)
STARTS = st.floats(0.0, 0.9)
ENDS = st.floats(1.06, 20.0)
JUMPS = st.floats(0.01, 0.99)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("kl<=0.05", KLBudget(limit=0.05)),
        ("kl <= .05", KLBudget(limit=0.05)),
        ("kl<=1e-3", KLBudget(limit=0.001)),
        ("forget>=0.5", ForgetBudget(limit=0.5)),
        (" forget >= 1 ", ForgetBudget(limit=1.0)),
    ],
)
def test_a_budget_is_read_and_its_name_reads_back(
    text: str, budget: KLBudget | ForgetBudget
) -> None:
    assert parse(text) == budget
    assert parse(budget.name) == budget


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kl",
        "kl<0.05",
        "kl>=0.05",
        "forget<=0.5",
        "kl<=0",
        "kl<=-1",
        "kl<=nan",
        "kl<=inf",
        "kl<=1e999",
        "kl<=1e-999",
        "KL<=0.05",
        "kl<=0.05,forget>=0.5",
        "forget>=half",
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BenchError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def curve(limit: float, power: float, start: float, end: float):  # type: ignore[no-untyped-def]
    """A rising function from start * limit to end * limit."""
    return lambda t: limit * (start + (end - start) * t**power)


@given(LIMITS, POWERS, STARTS, ENDS)
def test_a_rising_kl_is_matched_within_the_limit(
    limit: float, power: float, start: float, end: float
) -> None:
    value_at = curve(limit, power, start, end)
    t = match(KLBudget(limit=limit), value_at, (value_at(0.0), value_at(1.0)))
    assert 0.95 * limit <= value_at(t) <= limit


@given(LIMITS, POWERS, STARTS, ENDS)
def test_a_rising_gain_is_matched_at_or_above_the_level(
    limit: float, power: float, start: float, end: float
) -> None:
    value_at = curve(limit, power, start, end)
    t = match(ForgetBudget(limit=limit), value_at, (value_at(0.0), value_at(1.0)))
    assert limit <= value_at(t) <= 1.05 * limit


@given(LIMITS, JUMPS)
def test_a_jump_ends_on_the_side_that_keeps_the_rule_next_to_the_jump(
    limit: float, jump: float
) -> None:
    def value_at(t: float) -> float:
        return 0.1 * limit if t < jump else 9 * limit

    ends = (value_at(0.0), value_at(1.0))
    inside = match(KLBudget(limit=limit), value_at, ends)
    reached = match(ForgetBudget(limit=limit), value_at, ends)
    assert jump - 2**-15 <= inside < jump
    assert jump <= reached <= jump + 2**-15


@given(LIMITS, JUMPS)
def test_nan_on_the_way_is_never_chosen(limit: float, jump: float) -> None:
    def value_at(t: float) -> float:
        return 0.1 * limit if t < jump else math.nan

    t = match(KLBudget(limit=limit), value_at, (value_at(0.0), 2 * limit))
    assert t < jump


def test_ends_that_match_are_taken_without_asking_again() -> None:
    def never(_t: float) -> float:
        raise AssertionError

    assert match(KLBudget(limit=1.0), never, (0.96, 5.0)) == 0.0
    assert match(KLBudget(limit=1.0), never, (0.5, 1.0)) == 1.0
    assert match(ForgetBudget(limit=1.0), never, (0.5, 1.05)) == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("budget", [KLBudget(limit=1.0), ForgetBudget(limit=1.0)])
def test_nan_and_infinity_are_outside(value: float, budget: KLBudget | ForgetBudget) -> None:
    assert not budget.accepts(value)
    assert not budget.matched(value)


def test_kl_is_crossed_beyond_its_limit_and_a_level_at_it() -> None:
    kl, level = KLBudget(limit=1.0), ForgetBudget(limit=1.0)
    assert [kl.crossed(v) for v in (0.5, 1.0, 1.1, math.nan, math.inf)] == [0, 0, 1, 1, 1]
    assert [level.crossed(v) for v in (0.5, 1.0, 1.1, math.nan)] == [0, 1, 1, 0]
