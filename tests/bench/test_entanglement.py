"""VES, MMD² and SW² against closed forms and a naive computation of their definitions."""

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.diagnostics.entanglement import METRICS, compare, mmd2, sliced_w2, ves

Cloud = NDArray[np.float64]


def gaussian(
    seed: int, count: int, width: int, *, centre: float = 0.0, spread: float = 1.0
) -> Cloud:
    cloud = np.random.default_rng(seed).standard_normal((count, width)) * spread
    cloud[:, 0] += centre
    return cloud


def points(count: int, width: int, at: float) -> Cloud:
    cloud = np.zeros((count, width))
    cloud[:, 0] = at
    return cloud


# VES


def test_ves_of_two_point_masses_is_zero() -> None:
    assert ves(points(5, 3, 0.0), points(5, 3, 2.0)) == 0.0


def test_ves_of_clouds_with_one_mean_is_infinite() -> None:
    cloud = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert ves(cloud, cloud) == math.inf


def test_ves_of_two_pairs_is_that_of_the_definition() -> None:
    first, second = np.array([[-1.0], [1.0]]), np.array([[5.0], [9.0]])
    # Means 0, 7, overall 3.5; spreads 1 and 4; between = (3.5² + 3.5²) / 2.
    assert ves(first, second) == pytest.approx(5 / 12.25)


def test_ves_of_gaussian_clouds_is_eight_d_s2_over_distance2() -> None:
    first = gaussian(0, 20_000, 4, spread=0.5)
    second = gaussian(1, 20_000, 4, centre=3.0, spread=0.5)
    assert ves(first, second) == pytest.approx(8 * 4 * 0.25 / 9, rel=0.03)


# MMD²


def naive_mmd2(first: Cloud, second: Cloud) -> float:
    both = [*first, *second]
    gaps = [
        sum((a - b) ** 2 for a, b in zip(both[i], both[j], strict=True))
        for i in range(len(both))
        for j in range(i + 1, len(both))
    ]
    median = sorted(gaps)[len(gaps) // 2] if len(gaps) % 2 else np.median(gaps)

    def kernel(a: Cloud, b: Cloud) -> float:
        return math.exp(-sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) / median)

    def own(cloud: Cloud) -> float:
        pairs = [(i, j) for i, j in product(range(len(cloud)), repeat=2) if i != j]
        return sum(kernel(cloud[i], cloud[j]) for i, j in pairs) / len(pairs)

    cross = sum(kernel(a, b) for a in first for b in second) / (len(first) * len(second))
    return own(first) + own(second) - 2 * cross


def test_mmd2_of_two_point_masses_is_two_minus_two_over_e() -> None:
    # More than half of all pairs lie between the masses, so the median is their distance.
    assert mmd2(points(6, 2, 0.0), points(6, 2, 3.0)) == pytest.approx(2 - 2 / math.e)


@pytest.mark.parametrize(("n", "m"), [(7, 7), (6, 9)])
def test_mmd2_equals_a_double_loop_over_the_definition(n: int, m: int) -> None:
    first, second = gaussian(2, n, 3), gaussian(3, m, 3, centre=0.7)
    assert mmd2(first, second) == pytest.approx(naive_mmd2(first, second), rel=1e-10)


def test_mmd2_is_unbiased_around_zero_for_one_distribution() -> None:
    draws = [mmd2(gaussian(2 * k, 40, 3), gaussian(2 * k + 1, 40, 3)) for k in range(200)]
    assert abs(np.mean(draws)) < 4 * np.std(draws) / math.sqrt(len(draws))
    assert min(draws) < 0 < max(draws)


# SW²


def test_sw2_of_shifted_clouds_on_a_line_is_the_squared_shift() -> None:
    cloud = gaussian(4, 30, 1)
    assert sliced_w2(cloud, cloud + 2.5) == pytest.approx(6.25)


def test_sw2_of_scaled_clouds_on_a_line_is_the_gap_of_their_quantiles() -> None:
    cloud = gaussian(5, 40, 1)
    expected = ((3 * np.sort(cloud, 0) - np.sort(cloud, 0)) ** 2).mean()
    assert sliced_w2(cloud, 3 * cloud) == pytest.approx(expected)


@pytest.mark.parametrize("width", [2, 8])
def test_sw2_of_two_point_masses_is_distance2_over_width(width: int) -> None:
    # E[θ₁²] = 1 / width; 512 directions leave a relative error of about sqrt(2 / 512).
    found = sliced_w2(points(5, width, 0.0), points(5, width, 3.0))
    assert found == pytest.approx(9 / width, rel=0.25)


def test_sw2_of_gaussians_of_two_spreads_is_the_squared_difference() -> None:
    first, second = gaussian(6, 5000, 3), gaussian(7, 5000, 3, spread=2.0)
    assert sliced_w2(first, second) == pytest.approx(1.0, rel=0.1)


def test_sw2_needs_equal_sizes() -> None:
    with pytest.raises(ValueError, match="equal sizes"):
        sliced_w2(points(4, 2, 0.0), points(5, 2, 1.0))


# All three


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
def test_metrics_are_symmetric(metric) -> None:  # type: ignore[no-untyped-def]
    first, second = gaussian(8, 20, 4), gaussian(9, 20, 4, centre=1.0)
    assert metric(first, second) == pytest.approx(metric(second, first))


def test_identical_clouds_are_as_entangled_as_can_be() -> None:
    cloud = gaussian(10, 25, 4)
    assert ves(cloud, cloud) > 1e20  # infinite but for the rounding of the means
    assert sliced_w2(cloud, cloud) == 0.0
    assert mmd2(cloud, cloud) < 0  # the diagonal is left out of the cloud's own terms alone


def test_pulling_clouds_apart_lowers_ves_and_raises_the_distances() -> None:
    first = gaussian(11, 60, 4)
    near, far = gaussian(12, 60, 4, centre=1.0), gaussian(12, 60, 4, centre=3.0)
    assert ves(first, far) < ves(first, near)
    assert mmd2(first, far) > mmd2(first, near)
    assert sliced_w2(first, far) > sliced_w2(first, near)


def trio(gap: float) -> dict[str, Cloud]:
    return {
        "forget": gaussian(13, 24, 3),
        "retain": gaussian(14, 24, 3, centre=gap),
        "adjacent": gaussian(15, 24, 3, centre=-gap),
    }


def test_a_member_against_itself_has_log_ratio_zero() -> None:
    for row in compare(trio(3.0), trio(3.0)):  # type: ignore[arg-type]  # domains
        assert row.log_ratio == 0.0
        assert row.interval == (0.0, 0.0)


def test_log_ratios_have_the_sign_of_the_change_and_lie_in_their_interval() -> None:
    rows = compare(trio(4.0), trio(2.0))  # type: ignore[arg-type]
    assert len(rows) == 9
    for row in rows:
        assert (row.log_ratio < 0) is (row.metric == "ves")
        assert row.interval[0] <= row.log_ratio <= row.interval[1]
