"""Errors that are the user's to mend."""

import difflib
from collections.abc import Iterable


class BenchError(Exception):
    """A mistake of the user's, told in one line: what, where, what is known, what to do."""

    def __init__(self, message: str, *, exit_code: int = 2) -> None:
        """Keep the message and the exit code: 1 the answer is no, 2 usage."""
        super().__init__(message)
        self.exit_code = exit_code


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A closing sentence for an unknown name: the nearest known ones, then all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    suggestion = f"Did you mean {near[0]!r}? " if near else ""
    return f"{suggestion}Known: {', '.join(names)}."
