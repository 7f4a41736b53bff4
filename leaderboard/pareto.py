"""The trade-off between forgetting and damage: fronts of checkpoints and the area under them."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

C_MAX: Final = 0.1
"""Largest cost that counts, nats per token on retain text."""


class Point(NamedTuple):
    """One unlearned model."""

    cost: float
    """Retain loss above the member's own, nats per token."""
    gain: float
    """Share of the gap to the oracle's forget loss."""


ORIGIN: Final = Point(0.0, 0.0)
"""The member itself: doing nothing is free and open to everybody."""


def front(points: Iterable[Point]) -> list[Point]:
    """The points that no cheaper one beats, by rising cost, from the origin on.

    Costs below 0 count as 0; gains are clipped to [0, 1].
    """
    best: list[Point] = [ORIGIN]
    clipped = (Point(max(p.cost, 0.0), min(max(p.gain, 0.0), 1.0)) for p in points)
    for point in sorted(clipped, key=lambda p: (p.cost, -p.gain)):
        if point.gain > best[-1].gain:
            if point.cost == best[-1].cost:
                best.pop()
            best.append(point)
    return best


def area(points: Iterable[Point], c_max: float = C_MAX) -> float:
    """`1/c_max` times the integral over c in [0, c_max] of the largest gain at cost <= c.

    Exact, as the front is a staircase. The member alone has 0, the oracle for free has 1.
    """
    steps = [point for point in front(points) if point.cost < c_max]
    ends = [*(point.cost for point in steps[1:]), c_max]
    stairs = zip(steps, ends, strict=True)
    return sum(point.gain * (end - point.cost) for point, end in stairs) / c_max


def mean_front(fronts: Sequence[Sequence[Point]], c_max: float = C_MAX) -> list[Point]:
    """The mean over seeds of the best gain at each cost, at every cost where it changes."""
    costs = sorted({point.cost for steps in fronts for point in steps if point.cost <= c_max})
    return [
        Point(cost, sum(_gain_at(steps, cost) for steps in fronts) / len(fronts))
        for cost in [*costs, c_max]
    ]


def _gain_at(steps: Sequence[Point], cost: float) -> float:
    return max((point.gain for point in steps if point.cost <= cost), default=0.0)
