"""The figures of a suite's model card: tables made from what was measured, between two markers."""

import csv
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.data import DOMAINS
from bench.errors import BenchError

BEGIN: Final = "<!-- figures: written by reference_models.manifest -->"
END: Final = "<!-- end of figures -->"


def figures(folder: Path) -> str:
    """Markdown tables of a suite's manifest and entanglement file."""
    manifest = tomllib.loads((folder / "manifest.toml").read_text())
    with (folder / "entanglement.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    members = manifest["members"]
    return "\n\n".join(
        [
            "Test loss, nats per token, forget / adjacent / retain; probes as accuracy / answer "
            "probability, four options. θ_bio off: its heads and units give zeros.",
            _table(
                ("member", "loss", "θ_bio off", "forget probes", "unseen words", "retain probes"),
                [_knowledge(name, member) for name, member in members.items()],
            ),
            "Entanglement of forget and retain text by layer (0 is the embeddings, the last one "
            "the final layer norm): log-ratio to p000 of the same seed [95 % over texts]. Less "
            "entangled means lower VES, higher MMD² and higher SW².",
            _table(
                ("member", "metric", *_layers(rows)),
                [
                    (name, title, *_ratios(rows, name, metric))
                    for name in members
                    if not name.startswith("p000")
                    for metric, title in (("ves", "VES"), ("mmd2", "MMD²"), ("sw2", "SW²"))
                ],
            ),
            "Training: steps of one domain each, one thread.",
            _table(
                ("member", "steps", "tokens", "seconds"),
                [
                    (name, f"{t['steps']:,}", f"{t['tokens']:,}", f"{t['seconds']:,.0f}")
                    for name, t in ((name, member["training"]) for name, member in members.items())
                ],
            ),
        ]
    )


def write_figures(folder: Path) -> str:
    """Put a suite's figures into its card.

    Returns:
        The figures.

    Raises:
        BenchError: The card lacks the markers.
    """
    card = folder / "README.md"
    text = card.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        msg = f"{card}: needs one line {BEGIN!r} and one line {END!r} for the figures."
        raise BenchError(msg)
    made = figures(folder)
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    card.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}")
    return made


def _knowledge(name: str, member: Mapping[str, Any]) -> tuple[str, ...]:
    def losses(key: str) -> str:
        return " / ".join(f"{member[key][domain]:.3f}" for domain in DOMAINS)

    def probes(domain: str) -> str:
        accuracy = member["probe_accuracy"][domain]
        return f"{accuracy:.2f} / {member['answer_probability'][domain]:.2f}"

    unseen = f"{member['unseen_answer_probability']['forget']:.2f}"
    off = losses("test_loss_without_bio")
    return name, losses("test_loss"), off, probes("forget"), unseen, probes("retain")


def _layers(rows: Sequence[Mapping[str, str]]) -> list[str]:
    return [f"layer {number}" for number in sorted({int(row["layer"]) for row in rows})]


def _ratios(rows: Sequence[Mapping[str, str]], member: str, metric: str) -> list[str]:
    found = [
        row
        for row in rows
        if (row["member"], row["metric"], row["pair"]) == (member, metric, "forget-retain")
    ]
    return [
        f"{float(row['log_ratio']):+.2f} [{float(row['low']):+.2f}, {float(row['high']):+.2f}]"
        for row in sorted(found, key=lambda row: int(row["layer"]))
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
