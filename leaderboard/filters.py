"""Values as text: the only place where a number is rounded."""

from typing import NamedTuple

from leaderboard.attacks import Regain
from leaderboard.columns import NATS, Column
from leaderboard.intervals import LEVEL, Estimate, Missing, Quotient
from leaderboard.rows import Decided, Flagged, Hinted, Rank, Value

NONE = "\N{EM DASH}"
MINUS = "\N{MINUS SIGN}"


class Shown(NamedTuple):
    """A cell as a reader sees it."""

    text: str
    sort: float | None
    """What to sort by; null sorts last, whichever way."""
    hint: str
    is_number: bool
    """Whether it lines up on the right."""


def show(value: Value, column: Column) -> Shown:
    """A value as text, with what to sort it by and what to say on demand."""
    match value:
        case None:
            shown = Shown(NONE, None, "not measured", True)
        case Missing():
            shown = Shown(str(value), None, "", True)
        case str():
            shown = Shown(value, None, "", False)
        case Hinted():
            shown = Shown(value.text, None, value.hint, False)
        case Decided():
            hint = f"R before clipping to [0, 1]: {number(value.raw, 3)}"
            shown = Shown(value.attack, None, hint, False)
        case Rank():
            hint = "tie: 95 % intervals overlap" if value.shared else ""
            shown = Shown(f"{value.place}{'=' * value.shared}", value.place, hint, True)
        case Flagged():
            inner = show(value.value, column)
            shown = inner._replace(text=inner.text + " !" * value.flagged)
        case Quotient():
            shown = _quotient(value, column)
        case Regain():
            shown = _regain(value, column)
        case Estimate():
            text, hint = _mean(value, column.digits), _hint(value, column.digits)
            shown = Shown(text, value.mean, hint, True)
        case _:
            shown = Shown(number(value, column.digits), float(value), "", True)
    return shown


def number(value: float, digits: int) -> str:
    """A number with so many decimals, thousands parted by thin spaces, and a true minus sign."""
    text = f"{abs(value):,.{digits}f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    is_zero = not any(digit in text for digit in "123456789")
    return text if value >= 0 or is_zero else f"{MINUS}{text}"


def _mean(value: Estimate, digits: int) -> str:
    mean = number(value.mean, digits)
    return mean if value.se is None else f"{mean} \N{PLUS-MINUS SIGN} {number(value.se, digits)}"


def _hint(value: Estimate, digits: int) -> str:
    if value.low is None or value.high is None:
        return "1 seed: no interval"
    ends = f"{number(value.low, digits + 1)} to {number(value.high, digits + 1)}"
    return f"{LEVEL:g} % interval {ends}; mean and 1 SE over {value.seeds} seeds"


def _quotient(value: Quotient, column: Column) -> Shown:
    if not value.is_difference:
        return show(value.estimate, column)
    hint = _hint(value.estimate, 3)
    text = f"\N{GREEK CAPITAL LETTER DELTA} {_mean(value.estimate, 3)}"
    why = f"a difference in {NATS}: the denominator is under the noise floor"
    return Shown(text, None, f"{why}; {hint}", True)


def _regain(value: Regain, column: Column) -> Shown:
    if value.dose is None:
        # Past the largest dose: better than any dose that was enough.
        text, hint = f"> {number(value.largest, 0)}", "it did not come back"
        return Shown(text, value.largest + 1.0, hint, True)
    return Shown(number(value.dose, column.digits), value.dose, "", True)
