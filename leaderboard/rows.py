"""What tables are made of: values that keep their uncertainty, rows, and where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from leaderboard.attacks import Regain
from leaderboard.columns import Column
from leaderboard.intervals import Estimate, Missing, Quotient


class Rank(NamedTuple):
    """A place in a ranking."""

    place: int
    shared: bool
    """Whether another has the same place."""


class Flagged(NamedTuple):
    """A value that a reader must not take at face value."""

    value: Estimate | Missing
    flagged: bool


class Hinted(NamedTuple):
    """A word with an explanation."""

    text: str
    hint: str


class Decided(NamedTuple):
    """The attack that decided a robustness."""

    attack: str
    raw: float
    """R under it, not clipped."""


class Source(NamedTuple):
    """Where a row comes from."""

    command: str
    commit: str
    dirty: bool


Value = (
    Estimate
    | Quotient
    | Missing
    | Regain
    | Rank
    | Flagged
    | Hinted
    | Decided
    | float
    | int
    | str
    | None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row."""

    values: Mapping[str, Value]
    """By column key; what is absent is not known."""
    member: str = ""
    """The member to filter by; "" where the row belongs to none."""
    is_reference: bool = False
    """Whether it stays on top: nothing was unlearned here."""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table."""

    key: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...] = field(default=())

    @property
    def has_sources(self) -> bool:
        """Whether any row says where it comes from."""
        return any(row.sources for row in self.rows)
