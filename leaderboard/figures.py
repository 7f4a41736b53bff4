"""Charts as plain data: the page draws them, so that they follow its colours and its width.

The colours "@ink" and "@faint" stand for the page's own text and grid colours.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from leaderboard.attacks import SCALES, Envelope
from leaderboard.columns import NATS
from leaderboard.controls import Controls, controls
from leaderboard.intervals import standard_error
from leaderboard.ledger import is_p_member
from leaderboard.pareto import C_MAX, Point, mean_front
from leaderboard.score import ParetoScore, Scores

PALETTE: Final = (
    "#3b82c4",
    "#d9822b",
    "#2f9e77",
    "#c4508f",
    "#8a6fd1",
    "#b8a021",
    "#4fb3c9",
    "#c25450",
    "#7d8b3a",
    "#9a7b66",
)
RAMP: Final = ((68, 57, 142), (49, 130, 150), (88, 178, 110), (214, 178, 52))
"""From the most to the least entangled member; no end of it is lost on a light or dark page."""
AXES: Final = {"answer_probability": "answer probability", "forget_loss": f"forget loss, {NATS}"}

Plot = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart."""

    key: str
    title: str
    plot: Plot
    """Plotly traces and layout."""
    member: str = ""
    """The member to filter by."""


def pareto_figures(scores: Scores) -> list[Figure]:
    """For each member, the mean front of every submission."""
    shades = _shades(scores)
    by_member: dict[str, list[ParetoScore]] = defaultdict(list)
    for s in scores.pareto:
        by_member[s.member].append(s)
    figures = []
    for member in scores.ledger.members:
        traces = [
            trace
            for s in by_member.get(member, ())
            for trace in _front_traces(s.fronts.values(), s.submission, shades[s.submission])
        ]
        if traces:
            plot = _plot(traces, f"cost, {NATS}", "gain", {"range": [0, C_MAX]})
            plot["layout"]["yaxis"]["range"] = [0, 1.02]
            figures.append(Figure(key=f"front-{member}", title=member, plot=plot, member=member))
    return figures


def suite_figures(scores: Scores, localisation: Mapping[str, float]) -> list[Figure]:
    """For each submission, the mean fronts of all members, coloured by their localisation.

    Args:
        scores: The board.
        localisation: Of each member, as `localisation_of` gives it; members are coloured by it
            if it knows them all, else in the order of p.
    """
    members = [member for member in scores.ledger.members if is_p_member(member)]
    known = bool(members) and all(member in localisation for member in members)
    order = sorted(members, key=lambda m: (localisation[m], m)) if known else members
    ramp = _ramp(order, localisation if known else None)
    figures = []
    for submission in sorted({s.submission for s in scores.pareto}):
        fronts = {s.member: s for s in scores.pareto if s.submission == submission}
        traces: list[Plot] = []
        for member in scores.ledger.members:
            if member in fronts:
                name = member
                if member in localisation:
                    name += f" (localisation {localisation[member]:.2f})"
                # The placebo has no place on the ramp: it is a control.
                steps = fronts[member].fronts.values()
                traces += _front_traces(steps, name, ramp.get(member, "@ink"), member not in ramp)
        plot = _plot(traces, f"cost, {NATS}", "gain", {"range": [0, C_MAX]})
        plot["layout"]["yaxis"]["range"] = [0, 1.02]
        figures.append(Figure(key=f"suite-{submission}", title=submission, plot=plot))
    return figures


def dose_figures(scores: Scores) -> list[Figure]:
    """For each member, attack and scale, the envelopes of all submissions and both controls."""
    shades = _shades(scores)
    figures = []
    known: dict[tuple[str, str, str], list[Plot]] = defaultdict(list)
    pairs: dict[tuple[str, str, str], Controls] = {}
    for s in scores.attacks:
        key = (s.group.member, s.attack, s.scale)
        if key not in known:
            pair = controls(scores.ledger, *key)
            if isinstance(pair, Controls):
                pairs[key] = pair
                known[key] += _control_traces(pair, s.scale)
        if s.envelope is not None:
            shade = shades[s.group.submission]
            scored = pairs[key].scored if key in pairs else ()
            name = s.group.submission
            known[key].append(_dose_trace(s.envelope, scored, s.scale, (name, shade, "solid")))
    order = {member: place for place, member in enumerate(scores.ledger.members)}
    for member, attack, scale in sorted(
        known, key=lambda k: (order[k[0]], k[1], SCALES.index(k[2]))
    ):
        traces = known[member, attack, scale]
        if traces:
            figures.append(
                Figure(
                    key=f"dose-{member}-{attack}-{scale}",
                    title=f"{member}, {attack}",
                    plot=_plot(traces, *_dose_axes(pairs.get((member, attack, scale)), scale)),
                    member=member,
                )
            )
    return figures


def _control_traces(pair: Controls, scale: str) -> list[Plot]:
    return [
        _dose_trace(pair.member, pair.scored, scale, ("attacked member", "@ink", "solid")),
        _dose_trace(pair.oracle, pair.scored, scale, ("attacked oracle", "@ink", "dash")),
    ]


def _dose_trace(
    envelope: Envelope, scored: Sequence[int], scale: str, look: tuple[str, str, str]
) -> Plot:
    name, colour, dash = look
    sign = -1.0 if scale == "forget_loss" else 1.0
    doses = sorted(envelope.values)
    errors = [standard_error(envelope.values[dose].tolist()) or 0.0 for dose in doses]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": _places(doses),
        "y": [sign * envelope.mean(dose) for dose in doses],
        "error_y": {"type": "data", "array": errors, "thickness": 1, "width": 2},
        "text": [f"dose {dose}" for dose in doses],
        "line": {"color": colour, "dash": dash, "width": 2},
        "marker": {
            "symbol": ["circle" if dose in scored else "circle-open" for dose in doses],
            "color": colour,
            "size": 7,
        },
    }


def _places(doses: Sequence[int]) -> list[float]:
    """Doses on a logarithmic axis, where no attack at all stands one step left of the first."""
    positive = [dose for dose in doses if dose > 0]
    ratio = positive[1] / positive[0] if len(positive) > 1 else 2.0
    return [dose if dose > 0 else (positive[0] / ratio if positive else 1.0) for dose in doses]


def _dose_axes(pair: Controls | None, scale: str) -> tuple[str, str, Plot]:
    doses = sorted(pair.member.values) if pair else []
    training = pair is not None and any(cell.learning_rate for cell in pair.grid)
    axis = {
        "type": "log",
        "tickvals": _places(doses),
        "ticktext": [_short(dose) for dose in doses],
    }
    return ("tokens of attack" if training else "demonstrations"), AXES[scale], axis


def _short(dose: int) -> str:
    return f"{dose / 1000:.3g}k" if dose >= 1000 else str(dose)  # noqa: PLR2004


def _front_traces(
    fronts: Iterable[Sequence[Point]], name: str, colour: str, dashed: bool = False
) -> list[Plot]:
    """The mean front as a staircase, and the points of the single seeds' fronts."""
    seeds = list(fronts)
    mean = mean_front(seeds)
    points = [p for steps in seeds for p in steps[1:] if p.cost <= C_MAX]
    line: Plot = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "legendgroup": name,
        "x": [p.cost for p in mean],
        "y": [p.gain for p in mean],
        "line": {
            "shape": "hv",
            "color": colour,
            "width": 2,
            "dash": "dash" if dashed else "solid",
        },
    }
    dots: Plot = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "legendgroup": name,
        "showlegend": False,
        "x": [p.cost for p in points],
        "y": [p.gain for p in points],
        "marker": {"color": colour, "size": 4, "opacity": 0.5},
    }
    return [line, dots]


def _plot(traces: list[Plot], x: str, y: str, xaxis: Plot) -> Plot:
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": x}, **xaxis},
            "yaxis": {"title": {"text": y}},
        },
    }


def _shades(scores: Scores) -> dict[str, str]:
    names = sorted({group.submission for group in scores.ledger.runs})
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(names)}


def _ramp(order: Sequence[str], values: Mapping[str, float] | None) -> dict[str, str]:
    """A colour for each member: by its value, or by its place."""
    if values is None:
        shares = [place / max(len(order) - 1, 1) for place in range(len(order))]
    else:
        low, high = min(values[m] for m in order), max(values[m] for m in order)
        shares = [(values[m] - low) / (high - low) if high > low else 0.0 for m in order]
    return {member: _blend(share) for member, share in zip(order, shares, strict=True)}


def _blend(share: float) -> str:
    place = share * (len(RAMP) - 1)
    left = min(int(place), len(RAMP) - 2)
    mixed = [
        round(a + (b - a) * (place - left)) for a, b in zip(RAMP[left], RAMP[left + 1], strict=True)
    ]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def localisation_of(members: Iterable[str], manifest: Mapping[str, Any]) -> dict[str, float]:
    """How much of the forget domain alone sits in each member's θ_bio, where it is known.

    It is what switching θ_bio off costs on forget text beyond what it costs on retain text, test
    loss in nats per token: near 0 where those heads and units are like any others.
    """
    found = {}
    for member in members:
        table = manifest.get("members", {}).get(member, {})
        own, off = table.get("test_loss"), table.get("test_loss_without_bio")
        if own and off:
            dearer = {domain: off[domain] - own[domain] for domain in ("forget", "retain")}
            found[member] = dearer["forget"] - dearer["retain"]
    return found
