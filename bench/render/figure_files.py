"""Write figures as PDF, PNG and SVG, all from the SVG of the page, and rankings as LaTeX."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import vl_convert

from bench.errors import InputError, printable
from bench.render.critical_difference import ranking_picture
from bench.render.figure import SCORES, Figure, clip_text
from bench.render.heat_maps import draw_heat_panels
from bench.render.pdf_objects import sort_pdf_objects
from bench.render.svg import describe_figure, draw_body, legend_marks
from bench.render.svg_marks import WIDTH, escape_markup, text_at, widest_text

FORMATS = ("pdf", "png", "svg")
_FONTS = "'Liberation Sans', Arial, Helvetica, sans-serif"
_MARGIN = 12
_HEAD, _FOOT = 7.2, 4.6
"""Mean width of a letter of a title and of a line at the foot."""
_MORE_STYLE = "svg .title { font-size: 13px; font-weight: bold; } svg .foot { font-size: 9px; }"


def draw_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Draw figures into a folder, and return the files: NAME.pdf, .png and .svg, of a ranking also .tex.

    Raises InputError for an empty list, or an unwritable folder.
    """
    if not figures:
        raise InputError("nothing to draw", where="--figures", hint="bench run makes records")
    return [path for figure in figures for path in _save_formats(figure, folder)]


def _save_formats(figure: Figure, folder: Path) -> list[Path]:
    drawing, paths = draw_picture(figure), []
    contents = {ending: convert_svg(drawing, ending) for ending in FORMATS}
    if figure.kind == "ranking":
        contents["tex"] = ranking_picture(figure).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for ending, content in contents.items():
            paths.append(folder / f"{figure.name}.{ending}")
            paths[-1].write_bytes(content)
    except OSError as error:
        raise InputError(f"a figure can't be written: {error.strerror}", where=str(folder)) from error
    return paths


def convert_svg(drawing: str, ending: str) -> bytes:
    """Return an SVG in one of FORMATS; equal drawings give equal bytes."""
    if ending == "png":
        return vl_convert.svg_to_png(drawing, scale=2)
    if ending == "pdf":
        return sort_pdf_objects(vl_convert.svg_to_pdf(drawing))
    return drawing.encode()


def draw_picture(figure: Figure) -> str:
    """Return an SVG for itself: title, drawing, legend, and at the foot what is doubtful of its scores."""
    parts, height = draw_body(figure)
    marks, legend_height = _draw_legend(figure, height)
    doubts = [line for line in figure.provenance if line.startswith(SCORES)]
    return _frame_picture(
        figure.title, describe_figure(figure), [*parts, *marks], height + legend_height, doubts
    )


def _draw_legend(figure: Figure, top: float) -> tuple[list[str], float]:
    """Return the legend's parts in columns, and its height."""
    entries = legend_marks(figure)
    if not entries:
        return [], 0.0
    width = 48 + widest_text([name for _, name in entries], 60)
    columns = max(1, int((WIDTH - 2 * _MARGIN) / width))
    parts = []
    for number, (mark, name) in enumerate(entries):
        row, column = divmod(number, columns)
        x, y = _MARGIN + column * width, top + 8 + 17 * row
        parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{mark}</g>')
        parts.append(text_at(x + 32, y + 11, clip_text(name, 60), "start", "name"))
    return parts, 12 + 17 * (1 + (len(entries) - 1) // columns)


def _frame_picture(
    title: str, description: str, parts: Sequence[str], height: float, foot: Sequence[str]
) -> str:
    """Return an SVG on white with a title above its parts and small lines below them."""
    heads = textwrap.wrap(printable(title), int((WIDTH - 2 * _MARGIN) / _HEAD)) or [""]
    feet = [line for text in foot for line in textwrap.wrap(text, int((WIDTH - 2 * _MARGIN) / _FOOT))]
    shift = 12 + 17 * len(heads)
    lines = [text_at(_MARGIN, 20 + 17 * i, line, "start", "title") for i, line in enumerate(heads)]
    bottom = shift + height + 10
    lines += [text_at(_MARGIN, bottom + 12 * i, line, "start", "tick foot") for i, line in enumerate(feet)]
    tall = bottom + 12 * len(feet)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{tall:g}" '
        f'viewBox="0 0 {WIDTH} {tall:g}" font-family="{_FONTS}">'
        f"<title>{escape_markup(title)}</title>"
        f"<desc>{escape_markup(' '.join([description, *foot]))}</desc>"
        f"<style>{picture_style()}</style>"
        f'<rect width="{WIDTH}" height="{tall:g}" fill="#ffffff"/>{"".join(lines)}'
        f'<g transform="translate(0 {shift})">{"".join(parts)}</g></svg>\n'
    )


@cache
def picture_style() -> str:
    """Return the style of a page's figures in the colours of its light theme."""
    folder = files("bench.render") / "templates"
    page, rules = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "figure.css"))
    theme = re.search(r":root \{(.*?)\}", page, re.DOTALL)
    colours = dict(re.findall(r"(--[\w-]+): ([^;]+);", theme[1] if theme else ""))
    return re.sub(r"var\((--[\w-]+)\)", lambda found: colours[found[1]], rules) + _MORE_STYLE


def draw_heatmaps(
    tokens: Sequence[str], layers: Sequence[Sequence[Sequence[float]]], title: str, path: Path
) -> None:
    """Draw the maps of one tower as SVG; rows are queries, columns keys, all layers on one scale from 0 to 1.

    ``layers``: (layers, T, T) attention weights, mean over heads. Raises InputError for an unwritable file.
    """
    panels = [(f"layer {number}", weights) for number, weights in enumerate(layers, start=1)]
    label = "attention, mean over heads; rows are queries"
    parts, height = draw_heat_panels(tokens, panels, label)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_frame_picture(title, label, parts, height, ()), encoding="utf-8")
    except OSError as error:
        raise InputError(f"a heatmap can't be written: {error.strerror}", where=str(path)) from error
