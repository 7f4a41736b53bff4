"""Scores to pages: one HTML file that works from disk, and the same tables in Markdown.

Equal records and equal manifests give byte-equal pages: no clock, no random names, all sorted.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bench.errors import BenchError
from bench.record import Problem
from leaderboard import tables
from leaderboard.columns import ARROWS
from leaderboard.controls import GAP_SE, GAP_SHARE, ORACLE_CLOSED
from leaderboard.figures import (
    Figure,
    dose_figures,
    localisation_of,
    pareto_figures,
    suite_figures,
)
from leaderboard.filters import show
from leaderboard.intervals import LEVEL, NOISE_FLOOR
from leaderboard.pareto import C_MAX
from leaderboard.rows import Table
from leaderboard.score import Scores

TEMPLATES: Final = Path(__file__).parent / "templates"
PLOTLY: Final = "plotly.min.js"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One board on the page."""

    anchor: str
    scores: Scores
    tables: tuple[Table, ...]
    groups: tuple[tuple[str, str, tuple[Figure, ...]], ...]
    """Title, note and figures."""
    is_localised: bool
    """Whether members are coloured by their measured localisation."""


def render(
    boards: Sequence[Scores],
    problems: Sequence[Problem],
    manifests: Mapping[str, Mapping[str, Any]],
) -> tuple[str, str]:
    """The page and its Markdown twin.

    Args:
        boards: Scores of every board.
        problems: Files that could not be used.
        manifests: What is known of each suite's reference models, by suite.
    """
    sections = [
        _section(place, scores, manifests.get(scores.ledger.key.suite, {}))
        for place, scores in enumerate(boards)
    ]
    members = sorted({member for scores in boards for member in scores.ledger.members})
    context = {
        "sections": sections,
        "problems": tables.problem_table(problems),
        "members": members,
        "arrows": ARROWS,
        "plotly": PLOTLY,
        "rules": {
            "c_max": C_MAX,
            "level": LEVEL,
            "noise_floor": NOISE_FLOOR,
            "gap_share": GAP_SHARE,
            "gap_se": GAP_SE,
            "oracle_closed": ORACLE_CLOSED,
        },
    }
    environment = _environment()
    page = environment.get_template("index.html.j2").render(context)
    return page, environment.get_template("leaderboard.md.j2").render(context)


def write(page: str, markdown: str, out: Path) -> Path:
    """Write the site and give the path of its page.

    Raises:
        BenchError: The disk refuses.
    """
    # Not needed to make the page, and slow to import.
    from plotly.offline import get_plotlyjs

    index = out / "index.html"
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / PLOTLY).write_text(get_plotlyjs(), encoding="utf-8")
        (out / "LEADERBOARD.md").write_text(markdown, encoding="utf-8")
        index.write_text(page, encoding="utf-8")
    except OSError as error:
        msg = f"{out}: cannot write the site: {error.strerror or error}."
        raise BenchError(msg) from error
    return index


def read_manifests(folder: Path, suites: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The manifests of those suites that have one.

    Raises:
        BenchError: One is not valid TOML.
    """
    found = {}
    for suite in suites:
        path = folder / suite / "manifest.toml"
        if path.is_file():
            try:
                found[suite] = tomllib.loads(path.read_text(encoding="utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                msg = f"{path}: not valid TOML: {error}"
                raise BenchError(msg) from error
    return found


def _section(place: int, scores: Scores, manifest: Mapping[str, Any]) -> Section:
    localisation = localisation_of(tables.reference_models(scores), manifest)
    return Section(
        anchor=f"board-{place + 1}",
        scores=scores,
        tables=(
            tables.pareto_table(scores),
            tables.forget_table(scores),
            tables.entanglement_table(scores),
            tables.robustness_table(scores),
            tables.attack_table(scores),
            tables.reference_table(scores, localisation),
            tables.failure_table(scores),
        ),
        groups=(
            (
                "pareto",
                "Mean over seeds of the best gain at each cost; dots are single seeds.",
                tuple(pareto_figures(scores)),
            ),
            (
                "entanglement",
                "One panel per submission: the fronts of all members.",
                tuple(suite_figures(scores, localisation)),
            ),
            (
                "robustness",
                "What the best attacker gets out within each dose, chosen on dev, read on test; "
                "bars are 1 SE. Open circles: doses that do not count.",
                tuple(dose_figures(scores)),
            ),
        ),
        is_localised=bool(localisation),
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        # By name it would be off for templates that end in .j2.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["show"] = show
    environment.filters["script_json"] = script_json
    environment.filters["md"] = markdown_cell
    environment.globals["own_file"] = _own_file
    return environment


def _own_file(name: str) -> Markup:
    """One of our own style sheets or scripts, as it is; never text from a record."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def script_json(value: object) -> Markup:
    """JSON that is safe inside a script element, whatever text is in it."""
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def markdown_cell(text: str) -> str:
    """Text that cannot end its cell of a Markdown table."""
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())
