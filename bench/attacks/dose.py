"""What every attack yields."""

from dataclasses import dataclass

from bench.measure import Answer, Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """An attacked model, measured on dev and test after so much of the attack."""

    attack: str
    learning_rate: float | None
    """None where nothing is trained."""
    step: int
    """Optimizer steps, 0 before the attack; for prompting the number of demonstrations."""
    amount: int
    """The dose: tokens seen, or demonstrations in the prompt."""
    dev: Measures
    test: Measures
    answers: tuple[tuple[str, Answer], ...]
    """(split, answer) of every probe."""
    diverged: bool = False
    """Stopped by its own learning rate; this and later doses repeat the last measures."""
