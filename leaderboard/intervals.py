"""Means over seeds, with standard errors and paired bootstrap intervals; ratios; ranks with ties.

Paired: every quantity measured on the same seeds is resampled with the same draws, so that a
ratio or a difference keeps what its two sides share.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

DRAWS: Final = 2000
"""Bootstrap draws."""
LEVEL: Final = 95.0
"""Coverage of the intervals, per cent."""
NOISE_SE: Final = 2.0
"""A denominator nearer to 0 than this many of its standard errors is noise."""
NOISE_FLOOR: Final = 0.002
"""A denominator nearer to 0 than this many nats per token is noise, whatever its error."""

Floats = NDArray[np.float64]


class Missing(StrEnum):
    """Why there is no number. Never a 0 and never NaN."""

    INCOMPLETE = "incomplete"
    """Something was not measured."""
    NOT_REACHED = "not reached"
    """The forget level was not reached, or the run failed: worse than any number."""
    BY_CONTROL = "reached by retain_only"
    """The level asks for nothing that training on retain text alone does not give."""
    NOT_APART = "controls not apart"
    """The attacked member and the attacked oracle are too close to tell anything."""
    NO_YARDSTICK = "no yardstick"
    """The method to compare with was not run here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over seeds and how sure it is."""

    mean: float
    """The statistic itself: a mean over seeds, or a function of such means."""
    se: float | None
    """One standard error over seeds; null with a single seed."""
    low: float | None
    """Lower end of the 95 % bootstrap interval; null with a single seed."""
    high: float | None
    """Upper end of it."""
    seeds: int
    """How many seeds it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotient:
    """A ratio of two means; or their difference, where the denominator is noise."""

    estimate: Estimate
    is_difference: bool
    """Whether the estimate is numerator minus denominator, in the unit of both."""


@cache
def resamples(seeds: int) -> NDArray[np.int64]:
    """Indices of the bootstrap draws, shape (DRAWS, seeds): the same for everything."""
    draws = np.random.default_rng(0).integers(0, seeds, size=(DRAWS, seeds))
    draws.flags.writeable = False
    return draws


def standard_error(values: Sequence[float]) -> float | None:
    """One standard error of the mean; None for fewer than two values."""
    if len(values) < 2:  # noqa: PLR2004
        return None
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def interval(draws: Floats) -> tuple[float, float]:
    """The central 95 % of bootstrap draws; a draw that divided by 0 says nothing."""
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(draws[np.isfinite(draws)], [tail, 100 - tail])
    return float(low), float(high)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean over seeds with its standard error and interval; one value per seed, at least one."""
    array = np.asarray(values, dtype=np.float64)
    low = high = None
    if len(array) > 1:
        low, high = interval(array[resamples(len(array))].mean(axis=1))
    return Estimate(
        mean=float(array.mean()),
        se=standard_error(values),
        low=low,
        high=high,
        seeds=len(array),
    )


def is_noise(mean: float, se: float | None) -> bool:
    """Whether a denominator is too near 0 to divide by."""
    return abs(mean) < max(NOISE_FLOOR, NOISE_SE * (se or 0.0))


def quotient(
    numerator: Mapping[int, float], denominator: Mapping[int, float]
) -> Quotient | Literal[Missing.INCOMPLETE]:
    """Ratio of the means over the seeds that both have, with a paired interval.

    Where the denominator is under the noise floor it is their difference instead. Its standard
    error is that of the first-order expansion of the ratio.
    """
    seeds = sorted(numerator.keys() & denominator.keys())
    if not seeds:
        return Missing.INCOMPLETE
    top = np.array([numerator[seed] for seed in seeds])
    bottom = np.array([denominator[seed] for seed in seeds])
    mean = float(bottom.mean())
    if is_noise(mean, standard_error(bottom.tolist())):
        return Quotient(estimate=estimate((top - bottom).tolist()), is_difference=True)
    ratio = float(top.mean()) / mean
    low = high = None
    if len(seeds) > 1:
        draws = resamples(len(seeds))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = top[draws].mean(axis=1) / bottom[draws].mean(axis=1)
        low, high = interval(ratios)
    se = standard_error(((top - ratio * bottom) / mean).tolist())
    return Quotient(
        estimate=Estimate(mean=ratio, se=se, low=low, high=high, seeds=len(seeds)),
        is_difference=False,
    )


def ranks(
    scores: Sequence[Estimate | Missing], better: Literal["higher", "lower"]
) -> list[tuple[int, bool] | None]:
    """Rank of each score and whether it shares it; None where something was not measured.

    A score's rank is 1 + the number of scores whose interval lies wholly on the better side of
    its own, so overlapping intervals are ties. What was not reached comes after every number.
    """
    sign = 1.0 if better == "higher" else -1.0

    def ends(score: Estimate | Missing) -> tuple[float, float] | None:
        if score is Missing.NOT_REACHED:
            return -math.inf, -math.inf
        if not isinstance(score, Estimate):
            return None
        low = score.mean if score.low is None else score.low
        high = score.mean if score.high is None else score.high
        return min(sign * low, sign * high), max(sign * low, sign * high)

    spans = [ends(score) for score in scores]
    known = [span for span in spans if span is not None]
    places = [
        None if span is None else 1 + sum(other[0] > span[1] for other in known) for span in spans
    ]
    return [None if p is None else (p, places.count(p) > 1) for p in places]
