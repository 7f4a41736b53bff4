"""A board small enough to score by hand: two members, one submission, one control, one seed."""

from collections.abc import Iterator, Sequence

from bench.record import Record
from tests.synthetic import record

KL, LEVEL = "kl<=0.05", "forget>=0.5"
RELEARN: dict[str, dict[int, tuple[float, float]]] = {
    # dose: (answer probability, forget loss)
    "member": {0: (0.9, 3.0), 10: (0.9, 3.0), 100: (0.9, 3.0)},
    "oracle": {0: (0.1, 4.0), 10: (0.2, 3.9), 100: (0.3, 3.8)},
    "wga": {0: (0.5, 3.4), 10: (0.6, 3.3), 100: (0.8, 3.1)},
}
FEW_SHOT: dict[str, dict[int, tuple[float, float]]] = {
    "member": {0: (0.9, 3.0), 1: (0.9, 3.0), 2: (0.9, 3.0)},
    "oracle": {0: (0.1, 4.0), 1: (0.1, 4.0), 2: (0.1, 4.0)},
    "wga": {0: (0.5, 3.4), 1: (0.55, 3.4), 2: (0.52, 3.4)},
}


def board() -> list[Record]:
    """All records of it."""
    rows: list[Record] = []
    for member in ("p000", "p100", "oracle"):
        known, loss = (0.1, 4.0) if member == "oracle" else (0.9, 3.0)
        rows += both(
            run_id=f"own-{member}",
            member=member,
            submission="reference",
            stage="reference",
            budget="",
            limit=None,
            forget_loss=loss,
            retain_loss=2.0,
            adjacent_loss=2.5,
            answer_probability=known,
        )
    rows += path("wga", "p000", [(100, 3.3, 2.06), (200, 3.5, 2.12)])
    rows += path("wga", "p100", [(200, 3.5, 2.04)])
    rows += path("retain_only", "p000", [(100, 3.0, 2.01), (300, 3.1, 2.03)], "unreached")
    rows += path("retain_only", "p100", [(100, 3.0, 2.01), (300, 3.1, 2.01)], "unreached")
    rows += both(
        run_id="kl-wga-p000",
        budget=KL,
        limit=0.05,
        kept=True,
        kl=0.049,
        forget_loss=3.4,
        retain_loss=2.04,
        adjacent_loss=2.6,
        answer_probability=0.5,
    )
    rows += under_attack("reference", "p000", RELEARN["member"], FEW_SHOT["member"])
    rows += under_attack("reference", "oracle", RELEARN["oracle"], FEW_SHOT["oracle"])
    rows += under_attack("wga", "p000", RELEARN["wga"], FEW_SHOT["wga"])
    return rows


def both(**changes: object) -> Iterator[Record]:
    """The same row on dev and on test."""
    yield record(split="dev", **changes)
    yield record(split="test", **changes)


def path(
    submission: str, member: str, places: Sequence[tuple[int, float, float]], status: str = "ok"
) -> Iterator[Record]:
    """A run at the forget level through (tokens, forget loss, retain loss); the last is kept."""
    for step, (tokens, forget, retain) in enumerate(places, start=1):
        yield from both(
            run_id=f"level-{submission}-{member}",
            submission=submission,
            title=submission.upper(),
            member=member,
            budget=LEVEL,
            step=step,
            tokens=tokens,
            forget_loss=forget,
            retain_loss=retain,
            adjacent_loss=2.5,
            kept=step == len(places),
            status=status,
        )


def under_attack(
    submission: str,
    member: str,
    relearn: dict[int, tuple[float, float]],
    few_shot: dict[int, tuple[float, float]],
    seed: int = 0,
) -> Iterator[Record]:
    """One model under both attacks."""
    control = submission == "reference"
    for attack, rate, curve in (("relearn", 1e-3, relearn), ("few_shot", None, few_shot)):
        for dose, (known, loss) in curve.items():
            yield from both(
                run_id=f"attack-{submission}-{member}-{seed}",
                submission=submission,
                member=member,
                budget="" if control else KL,
                limit=None if control else 0.05,
                seed=seed,
                stage="attack",
                attack=attack,
                learning_rate=rate,
                step=dose,
                dose=dose,
                answer_probability=known,
                probe_accuracy=known,
                forget_loss=loss,
            )
