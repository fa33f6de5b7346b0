"""Draw figures as SVG, with colours by class from the style sheet, for both themes."""

from __future__ import annotations

from collections.abc import Callable

from bench.render.critical_difference import draw_ranking
from bench.render.figure import MOST_ROWS, Figure
from bench.render.forest import draw_forest
from bench.render.heat_maps import draw_heat_map
from bench.render.line_plots import draw_lines
from bench.render.point_plots import draw_front, draw_points
from bench.render.rank_bars import draw_rank_bars
from bench.render.strip_plots import draw_strip
from bench.render.svg_marks import WIDTH, escape_markup, legend_mark

KINDS: dict[str, Callable[[Figure], tuple[list[str], float]]] = {
    "front": draw_front,
    "heat": draw_heat_map,
    "lines": draw_lines,
    "points": draw_points,
    "ranking": draw_ranking,
    "ranks": draw_rank_bars,
    "forest": draw_forest,
    "strip": draw_strip,
}
"""Functions that return the parts of each kind, and their height."""
_UNNAMED = ("forest", "heat", "ranking", "ranks")
"""Kinds without a legend."""


def draw_svg(figure: Figure) -> str:
    """Return one ``<svg>`` element of a page, with escaped texts."""
    body, height = draw_body(figure)
    label = escape_markup(describe_figure(figure))
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}" '
        f'class="figure-{figure.kind}">{"".join(body)}</svg>'
    )


def draw_body(figure: Figure) -> tuple[list[str], float]:
    """Return the parts of a figure without its title and its legend, and their height."""
    return KINDS[figure.kind](figure)


def describe_figure(figure: Figure) -> str:
    """Return a figure's alternative text."""
    content = f"{figure.x} against {figure.y}." if figure.y else figure.alt
    return f"{figure.title}. {content}" if content else figure.title


def legend_marks(figure: Figure) -> list[tuple[str, str]]:
    """Return the mark, 26 wide and 14 high, and the name of each series of a figure that needs a legend."""
    if figure.kind in _UNNAMED or figure.panels or not 1 < len(figure.series) <= MOST_ROWS:
        return []
    line = figure.kind == "lines"
    looks = map(figure.look, range(len(figure.series)))
    return [(legend_mark(look, line=line), one.name) for look, one in zip(looks, figure.series, strict=True)]


def legend_entries(figure: Figure) -> list[tuple[str, str]]:
    """Return the marks of a page's legend, each an ``<svg>``, and their names."""
    frame = '<svg viewBox="0 0 26 14" aria-hidden="true">{}</svg>'
    return [(frame.format(mark), name) for mark, name in legend_marks(figure)]
