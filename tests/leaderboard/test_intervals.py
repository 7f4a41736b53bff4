"""Means, intervals, ratios and ranks."""

import math

import numpy as np
import pytest

from leaderboard.intervals import (
    Estimate,
    Missing,
    Quotient,
    estimate,
    quotient,
    ranks,
    resamples,
    standard_error,
)


def between(low: float, high: float) -> Estimate:
    return Estimate(mean=(low + high) / 2, se=0.1, low=low, high=high, seeds=3)


def test_mean_and_standard_error_by_hand() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.se == pytest.approx(1 / math.sqrt(3))
    assert found.low is not None
    assert found.high is not None
    assert 1.0 <= found.low < 2.0 < found.high <= 3.0


def test_one_seed_has_no_error_and_no_interval() -> None:
    assert estimate([1.5]) == Estimate(mean=1.5, se=None, low=None, high=None, seeds=1)
    assert standard_error([1.0]) is None


def test_resampling_is_the_same_every_time() -> None:
    assert np.array_equal(resamples(3), resamples(3))
    assert resamples(4).max() == 3


def test_ratio_of_means_over_common_seeds() -> None:
    found = quotient({0: 0.2, 1: 0.4, 9: 50.0}, {0: 0.1, 1: 0.1, 5: 70.0})
    assert isinstance(found, Quotient)
    assert not found.is_difference
    assert found.estimate.mean == pytest.approx(3.0)
    assert found.estimate.seeds == 2


def test_pairing_takes_out_what_both_sides_share() -> None:
    found = quotient({0: 0.2, 1: 0.4, 2: 0.6}, {0: 0.1, 1: 0.2, 2: 0.3})
    assert isinstance(found, Quotient)
    assert found.estimate.se == pytest.approx(0.0, abs=1e-12)
    assert found.estimate.low == pytest.approx(2.0)
    assert found.estimate.high == pytest.approx(2.0)


@pytest.mark.parametrize("noise", [{0: 0.001, 1: 0.0015}, {0: -0.3, 1: 0.5}])
def test_noise_is_never_divided_by(noise: dict[int, float]) -> None:
    found = quotient({0: 0.2, 1: 0.2}, noise)
    assert isinstance(found, Quotient)
    assert found.is_difference
    assert found.estimate.mean == pytest.approx(0.2 - sum(noise.values()) / 2)


def test_no_common_seed_is_a_hole() -> None:
    assert quotient({0: 1.0}, {1: 1.0}) is Missing.INCOMPLETE


def test_overlapping_intervals_are_ties() -> None:
    scores = [between(0.8, 0.9), between(0.5, 0.7), between(0.6, 0.75), between(0.1, 0.2)]
    assert ranks(scores, "higher") == [(1, False), (2, True), (2, True), (4, False)]
    assert ranks(scores, "lower") == [(4, False), (2, True), (2, True), (1, False)]


def test_not_reached_is_last_and_a_hole_has_no_rank() -> None:
    scores: list[Estimate | Missing] = [
        Missing.NOT_REACHED,
        between(0.5, 0.7),
        Missing.INCOMPLETE,
        Missing.BY_CONTROL,
    ]
    assert ranks(scores, "lower") == [(2, False), (1, False), None, None]
    assert ranks([Missing.NOT_REACHED, Missing.NOT_REACHED], "lower") == [(1, True), (1, True)]
