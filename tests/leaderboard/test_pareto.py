"""Pareto fronts and areas, by hand and by property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard.pareto import C_MAX, Point, area, front, mean_front

POINTS = st.lists(st.builds(Point, st.floats(-0.1, 0.5), st.floats(-0.5, 1.5)), max_size=8)


def test_two_points_by_hand() -> None:
    points = [Point(0.1, 0.4), Point(0.2, 0.9)]
    assert area(points, c_max=0.4) == pytest.approx((0.1 * 0.4 + 0.2 * 0.9) / 0.4)


def test_member_scores_0_and_oracle_for_free_scores_1() -> None:
    assert area([]) == 0.0
    assert area([Point(0.0, 0.0)]) == 0.0
    assert area([Point(0.0, 1.0)]) == 1.0
    assert area([Point(-0.2, 1.7)]) == 1.0


def test_what_costs_too_much_counts_nothing() -> None:
    assert area([Point(C_MAX, 1.0), Point(9.0, 1.0)]) == 0.0


def test_front_drops_what_is_beaten() -> None:
    points = [Point(0.2, 0.3), Point(0.1, 0.5), Point(0.1, 0.4), Point(-1.0, 0.1)]
    assert front(points) == [Point(0.0, 0.1), Point(0.1, 0.5)]


def test_mean_front_is_the_mean_of_the_staircases() -> None:
    fronts = [[Point(0.0, 0.0), Point(0.1, 1.0)], [Point(0.0, 0.0), Point(0.2, 0.5)]]
    assert mean_front(fronts, c_max=0.3) == [
        Point(0.0, 0.0),
        Point(0.1, 0.5),
        Point(0.2, 0.75),
        Point(0.3, 0.75),
    ]


@given(POINTS)
def test_area_lies_between_0_and_1(points: list[Point]) -> None:
    assert 0.0 <= area(points) <= 1.0 + 1e-12


@given(POINTS, st.randoms())
def test_order_does_not_matter(points: list[Point], random: object) -> None:
    shuffled = points.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert area(shuffled) == area(points)


@given(POINTS, st.floats(0, 0.2), st.floats(0, 1))
def test_a_dominated_point_changes_nothing(
    points: list[Point], dearer: float, worse: float
) -> None:
    for point in points:
        dominated = Point(max(point.cost, 0.0) + dearer, point.gain - worse)
        assert area([*points, dominated]) == area(points)


@given(POINTS, st.builds(Point, st.floats(0, 0.3), st.floats(0, 1)))
def test_a_point_never_lowers_the_area(points: list[Point], point: Point) -> None:
    assert area([*points, point]) >= area(points) - 1e-12
