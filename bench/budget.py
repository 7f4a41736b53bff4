"""Budgets: how much damage is allowed, or how much forgetting is demanded; and exact matching.

Methods stop at different damage, so their raw checkpoints do not compare. Where a run crosses its
limit, `match` bisects on the straight line between the weights before and after the crossing,
until the budgeted quantity lies within `TOLERANCE` of the limit, on the side that keeps the rule.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from bench.errors import BenchError

TOLERANCE: Final = 0.05
"""A matched run uses [0.95, 1] of a KL budget, or [1, 1.05] of a forget level."""
MAX_BISECTIONS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class KLBudget:
    """Damage is fixed: KL(member || unlearned) on retain-dev text, nats per token."""

    limit: float

    @property
    def name(self) -> str:
        """How the budget is written in commands and records."""
        return f"kl<={self.limit:g}"

    def crossed(self, value: float) -> bool:
        """Whether a checkpoint is beyond the limit; NaN and infinity are."""
        return not value <= self.limit

    def accepts(self, value: float) -> bool:
        """Whether a checkpoint keeps the rule."""
        return value <= self.limit

    def matched(self, value: float) -> bool:
        """Whether the budget is used up to the tolerance and not exceeded."""
        return (1 - TOLERANCE) * self.limit <= value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetBudget:
    """Forgetting is fixed: a share of the gap between the member's and the oracle's forget loss."""

    limit: float

    @property
    def name(self) -> str:
        """How the budget is written in commands and records."""
        return f"forget>={self.limit:g}"

    def crossed(self, value: float) -> bool:
        """Whether a checkpoint has reached the level."""
        return value >= self.limit

    def accepts(self, value: float) -> bool:
        """Whether a checkpoint keeps the rule; NaN and infinity do not."""
        return self.limit <= value < math.inf

    def matched(self, value: float) -> bool:
        """Whether the level is reached and not overshot beyond the tolerance."""
        return self.limit <= value <= (1 + TOLERANCE) * self.limit


class Budget(Protocol):
    """What the two budgets have in common."""

    @property
    def limit(self) -> float:
        """The limit in the unit of the budgeted quantity."""
        ...

    @property
    def name(self) -> str:
        """How the budget is written in commands and records."""
        ...

    def crossed(self, value: float) -> bool:
        """Whether a checkpoint is at or beyond the limit."""
        ...

    def accepts(self, value: float) -> bool:
        """Whether a checkpoint keeps the rule."""
        ...

    def matched(self, value: float) -> bool:
        """Whether a checkpoint keeps the rule and lies within the tolerance of the limit."""
        ...


def parse(text: str) -> KLBudget | ForgetBudget:
    """The budget written as `kl<=x` or `forget>=g`.

    Raises:
        BenchError: The text is neither, or the number is not positive and finite.
    """
    found = re.fullmatch(r"(kl<=|forget>=)(\d*\.?\d+(?:e-?\d+)?)", text.replace(" ", ""))
    if not found or not 0 < float(found[2]) < math.inf:
        msg = f"budget: {text!r} is not a budget; write kl<=0.05 or forget>=0.5."
        raise BenchError(msg)
    limit = float(found[2])
    return KLBudget(limit=limit) if found[1] == "kl<=" else ForgetBudget(limit=limit)


def match(budget: Budget, value_at: Callable[[float], float], ends: tuple[float, float]) -> float:
    """The fraction of the way over the crossing at which the budget is matched.

    Args:
        budget: The rule.
        value_at: The budgeted quantity at fraction t of the straight line from the last
            weights before the crossing (t = 0) to the first weights beyond it (t = 1).
        ends: Its values at t = 0 and t = 1; one of the two keeps the rule.

    Returns:
        The first t found whose value is matched; failing that (a jump in the quantity) the tried
        t nearest to the crossing that keeps the rule.
    """
    best = 0.0
    for t, value in zip((0.0, 1.0), ends, strict=True):
        if budget.matched(value):
            return t
        if budget.accepts(value):
            best = t
    low, high = 0.0, 1.0
    for _ in range(MAX_BISECTIONS):
        t = (low + high) / 2
        value = value_at(t)
        if budget.matched(value):
            return t
        if budget.accepts(value):
            best = t
        if budget.crossed(value):
            high = t
        else:
            low = t
    return best
