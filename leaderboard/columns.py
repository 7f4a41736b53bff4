"""Every column of every table, declared once: title, unit, direction, digits, explanation."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from leaderboard.pareto import C_MAX

NATS: Final = "nats/token"
Direction = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    key: str
    """Name of the value in a row."""
    title: str
    unit: str = ""
    better: Direction | None = None
    """Which way is better; null where neither is."""
    digits: int = 3
    """Decimals shown; records and scores are never rounded."""
    tooltip: str = ""


MEMBER: Final = Column(key="member", title="Member", tooltip="The reference model unlearned")
SUBMISSION: Final = Column(key="submission", title="Submission", tooltip="The method")
BUDGET: Final = Column(key="budget", title="Budget", tooltip="What was fixed for everybody")
TRIAL: Final = Column(
    key="trial",
    title="Trial",
    tooltip="Hyperparameter setting, chosen on dev: the hyperparameters are in the tooltip",
)
RANK: Final = Column(
    key="rank",
    title="Rank",
    better="lower",
    digits=0,
    tooltip="Within member and budget; overlapping 95 % intervals share a rank (=)",
)
SEEDS: Final = Column(key="seeds", title="Seeds", digits=0, tooltip="Seeds the mean rests on")

REFERENCES: Final = (
    MEMBER,
    Column(key="forget_loss", title="Forget loss", unit=NATS, tooltip="Test text of the domain"),
    Column(key="gap", title="Gap to oracle", unit=NATS, tooltip="Gain 1 closes it"),
    Column(key="retain_loss", title="Retain loss", unit=NATS, better="lower"),
    Column(key="adjacent_loss", title="Adjacent loss", unit=NATS, better="lower"),
    Column(key="probe_accuracy", title="Probe accuracy", tooltip="Share of probes answered right"),
    Column(
        key="answer_probability",
        title="Answer probability",
        tooltip="Mean probability of the right answer, in the template of training",
    ),
    Column(
        key="unseen_answer_probability",
        title="... unseen template",
        tooltip="The same in a template that training never showed",
    ),
    Column(
        key="localisation",
        title="Localisation",
        unit=NATS,
        tooltip="Cost of switching θ_bio off on forget text beyond that on retain text",
    ),
)

PARETO: Final = (
    RANK,
    MEMBER,
    SUBMISSION,
    Column(
        key="area",
        title="Pareto area",
        better="higher",
        tooltip=f"Mean best gain over costs from 0 to {C_MAX:g} {NATS}, test checkpoints; "
        "0 is the member, 1 the oracle for free",
    ),
    SEEDS,
    Column(key="checkpoints", title="Checkpoints", digits=0, tooltip="Models on the test split"),
)

FORGET: Final = (
    RANK,
    MEMBER,
    SUBMISSION,
    BUDGET,
    Column(
        key="cost",
        title="Retain cost",
        unit=NATS,
        better="lower",
        tooltip="Retain loss above the member's own, at the forget level",
    ),
    Column(
        key="excess",
        title="Excess cost",
        unit=NATS,
        better="lower",
        tooltip="Cost above that of the retain_only control after equally many tokens",
    ),
    Column(
        key="relative",
        title="Relative cost",
        unit="x wga",
        better="lower",
        digits=2,
        tooltip="Cost over the cost of the yardstick on the same member; a difference where "
        "the yardstick's cost is under the noise floor",
    ),
    Column(
        key="adjacent",
        title="Adjacent cost",
        unit=NATS,
        better="lower",
        tooltip="Adjacent loss above the member's own",
    ),
    Column(key="tokens", title="Tokens", better="lower", digits=0, tooltip="Tokens drawn"),
    Column(key="reached", title="Reached", tooltip="Seeds that reached the level"),
    TRIAL,
)

ENTANGLEMENT: Final = (
    SUBMISSION,
    BUDGET,
    Column(key="member", title="p000 over", tooltip="The member in the denominator"),
    Column(
        key="raw",
        title="Cost ratio",
        digits=2,
        tooltip="Retain cost on p000 over that on the member; a difference in nats per token "
        "where the denominator is under the noise floor",
    ),
    Column(
        key="excess",
        title="Excess cost ratio",
        digits=2,
        tooltip="The same of excess costs: what is left when a member's slack is taken out",
    ),
    SEEDS,
)

ROBUSTNESS: Final = (
    RANK,
    MEMBER,
    SUBMISSION,
    BUDGET,
    Column(
        key="robustness",
        title="Robustness",
        better="higher",
        digits=2,
        tooltip="On answer probability, under the worst attack: 1 = no more comes back than "
        "from the oracle, 0 = as if nothing had been unlearned",
    ),
    Column(key="attack", title="by", tooltip="The attack that is the worst"),
    Column(
        key="robustness_loss",
        title="... on loss",
        better="higher",
        digits=2,
        tooltip="The same with minus the forget loss as knowledge",
    ),
    Column(key="attack_loss", title="by", tooltip="The attack that is the worst"),
    Column(
        key="gain",
        title="Gain",
        better="higher",
        digits=2,
        tooltip="Before any attack: 0 nothing forgotten, 1 as if never seen",
    ),
    Column(
        key="use",
        title="Budget used",
        digits=2,
        tooltip="KL over its limit, on dev where it is matched; ! is outside 0.95 to 1",
    ),
    Column(key="cost", title="Retain cost", unit=NATS, better="lower"),
    Column(key="adjacent", title="Adjacent cost", unit=NATS, better="lower"),
    Column(
        key="lost",
        title="Failed",
        better="lower",
        tooltip="Seeds that left no model inside the budget; they count as nothing unlearned",
    ),
    TRIAL,
)

ATTACKS: Final = (
    MEMBER,
    SUBMISSION,
    BUDGET,
    Column(key="attack", title="Attack"),
    Column(
        key="raw",
        title="R",
        better="higher",
        digits=2,
        tooltip="On answer probability, not clipped; above 1 is a warning, not a win",
    ),
    Column(key="raw_loss", title="R on loss", better="higher", digits=2, tooltip="The same"),
    Column(key="before", title="Answer prob. before", digits=2),
    Column(
        key="after",
        title="after",
        better="lower",
        digits=2,
        tooltip="At the largest scored dose, with the learning rate and dose chosen on dev",
    ),
    Column(
        key="drop",
        title="Drop",
        better="higher",
        digits=2,
        tooltip="Answer probability of the attacked member minus that of the attacked model",
    ),
    Column(key="accuracy_before", title="Accuracy before", digits=2),
    Column(key="accuracy_after", title="after", better="lower", digits=2),
    Column(
        key="regain_50",
        title="Dose to 50 %",
        better="higher",
        digits=0,
        tooltip="Tokens (few_shot: demonstrations) that bring back half of what the member "
        "knows and the oracle does not; > means never, up to the largest dose",
    ),
    Column(key="regain_90", title="Dose to 90 %", better="higher", digits=0),
)

FAILURES: Final = (
    SUBMISSION,
    MEMBER,
    BUDGET,
    TRIAL,
    Column(key="seed", title="Seed", digits=0),
    Column(key="stage", title="Stage"),
    Column(key="status", title="Status"),
    Column(key="error", title="Error"),
)

PROBLEMS: Final = (
    Column(key="file", title="File"),
    Column(key="reason", title="Why it was left out"),
)

ARROWS: Final[Mapping[Direction | None, str]] = MappingProxyType(
    {"higher": "\N{UPWARDS ARROW}", "lower": "\N{DOWNWARDS ARROW}", None: ""}
)
