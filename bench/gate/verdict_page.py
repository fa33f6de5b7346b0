"""The gate's verdict as one self-contained page without scripts; any text in it is inert."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from bench.gate.verdict import BAD, POWER, CellVerdict, Drop, Gate, Status, cell_name
from bench.gate.verdict_tables import (
    WORDS,
    collect_gate_notes,
    describe_cell_verdict,
    format_drop,
    format_headline,
    format_seed_counts,
    format_short_p_value,
    select_headline_cells,
)
from bench.render.grid import DASH, SCALE, format_difference, format_interval, format_score
from bench.render.svg_marks import Axis, escape_markup, line_between
from bench.render.template import own_file, page_environment
from bench.version import __version__

_WIDE, _HIGH, _MIDDLE = 190, 26, 13
_BEYOND = 4
"""End of the bars' common axis in multiples of the cells' median: an outlier flattens no other."""


@dataclass(frozen=True)
class VerdictRow:
    """One verdict on the page."""

    cell: CellVerdict
    style: str
    bar: Markup

    @property
    def figures(self) -> tuple[str, ...]:
        """Reference, new, drop and its interval."""
        return format_drop(self.cell.average)

    @property
    def tasks(self) -> list[tuple[str, ...]]:
        """Name, figures and p of every task of a changed cell with several tasks."""
        if self.cell.status is Status.EQUAL or len(self.cell.drops) < 3:
            return []
        rows: list[tuple[str, ...]] = []
        for task, drop in list(self.cell.drops.items())[:-1]:
            p = DASH if drop.adjusted_p is None else format_short_p_value(drop.adjusted_p)
            rows.append((task, *format_drop(drop)[:3], p))
        return rows


def page(gate: Gate) -> str:
    """Return the verdict as one HTML file."""
    reach, rows = _compute_axis_reach(gate), []
    for cell in gate.verdicts:
        rows.append(VerdictRow(cell, _choose_style(cell), _draw_bar(cell, gate.tolerance, reach)))
    named = [describe_cell_verdict(cell) for cell in select_headline_cells(gate)]
    environment = page_environment()
    environment.filters |= {"points": format_score, "cell_name": cell_name}
    text = environment.get_template("gate.html").render(
        gate=gate,
        rows=rows,
        head=format_headline(gate),
        named=named,
        style_of={0: "good", 1: "bad"}.get(gate.exit_code, "other"),
        words=WORDS,
        seeds=format_seed_counts,
        notes=collect_gate_notes(gate),
        profiles={cell.key[0] for cell in gate.cells},
        facts=_list_facts(gate),
        power=f"{POWER:.0%}",
        reach=f"{SCALE * reach:.3g}",
        version=__version__,
        **own_file("style", "report.css", "figure.css", "gate.css"),
    )
    return text.strip() + "\n"


def _list_facts(gate: Gate) -> list[tuple[str, str]]:
    """List the build and the settings."""
    return [
        *gate.build.items(),
        ("tolerance", f"{SCALE * gate.tolerance:g} points"),
        ("confidence", f"{gate.level:.0%}, all intervals together"),
        ("cells with a test or a limit", str(gate.tested)),
        ("records scored again, equal", str(gate.rescored)),
        ("known values computed", str(gate.known_values)),
        ("changed numbers fail", "yes (strict)" if gate.strict else "no"),
    ]


def _choose_style(cell: CellVerdict) -> str:
    if cell.status in BAD:
        return "bad"
    known = {Status.UNCLEAR: "unclear", Status.DIFFERENT: "other", Status.IMPROVED: "good"}
    return known.get(cell.status, "plain")


def _drop_interval(drop: Drop) -> tuple[float, float]:
    if drop.low is None or drop.high is None:
        return drop.drop, drop.drop
    return drop.low, drop.high


def _compute_axis_reach(gate: Gate) -> float:
    """Return the end of the bars' common axis, in the metric's unit."""
    extents = []
    for cell in gate.verdicts:
        ends = (0.0, 0.0) if cell.average is None else _drop_interval(cell.average)
        if extent := max(*map(abs, ends), cell.sees or 0.0):
            extents.append(extent)
    far = min(max(extents), _BEYOND * median(extents)) if extents else 0.0
    return 1.1 * max(far, 2 * gate.tolerance) or 0.01


def _draw_bar(cell: CellVerdict, tolerance: float, reach: float) -> Markup:
    """Draw the drop and its interval on an axis with 0, tolerance and detectable drop; worse is right."""
    average = cell.average
    if average is None:
        return Markup("")
    axis = Axis((-reach / 2, reach), 6, _WIDE - 6, margin=1e-9)
    low, high = _drop_interval(average)
    left, right, at = (axis.at(min(max(v, axis.low), axis.high)) for v in (low, high, average.drop))
    parts = [
        line_between(axis.at(0), 2, axis.at(0), _HIGH - 2, "axis"),
        line_between(axis.at(tolerance), 2, axis.at(tolerance), _HIGH - 2, "limit"),
    ]
    if cell.sees is not None and cell.sees <= axis.high:
        x = axis.at(cell.sees)
        parts.append(f'<path d="M{x - 4:.1f} 1h8l-4 7z" class="sees"/>')
    if right > left:
        parts.append(line_between(left, _MIDDLE, right, _MIDDLE, "span"))
    is_beyond = not axis.low <= average.drop <= axis.high
    dot = f"M{at - 4.5:.1f} {_MIDDLE}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z"
    if is_beyond:
        way = 8 if average.drop > axis.high else -8
        dot = f"M{at - way:.1f} {_MIDDLE - 6}l{way} 6l{-way} 6z"
    parts.append(f'<path d="{dot}" class="dot"/>')
    label = f"drop {format_difference(average.drop)} points"
    if average.low is not None:
        label += f", interval {format_interval(average.low, average.high)}"
    if cell.sees is not None:
        label += f", sees {format_score(cell.sees)}"
    label = escape_markup(f"{label}, tolerance {SCALE * tolerance:g}{', beyond the axis' * is_beyond}")
    svg = f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{label}"><title>{label}</title>'
    return Markup(f"{svg}{''.join(parts)}</svg>")  # noqa: S704 - numbers alone, and an escaped label
