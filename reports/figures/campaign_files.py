"""Figures of the files that other commands write into a campaign's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from bench.errors import DataError
from bench.records.store import ResultStore
from bench.render.figure import Figure
from bench.reports.campaign import Campaign
from bench.reports.sections import FILE_FIGURES
from bench.schema import LARGEST


def file_figures(campaign: Campaign) -> list[Figure]:
    """Return the figures of all such files of a campaign; raises DataError for a damaged one."""
    figures = []
    for maker in FILE_FIGURES:
        module, _, function = maker.rpartition(".")
        for store, made in getattr(import_module(module), function)(campaign):
            figures += [
                _add_campaign(figure, store.campaign) if campaign.several else figure for figure in made
            ]
    return figures


def figures_by_file(
    campaign: Campaign, pattern: str, make: Callable[[Path], Iterable[Figure]]
) -> list[tuple[ResultStore, list[Figure]]]:
    """Return each matching file's figures and its campaign; raises DataError for a damaged file."""
    return [(store, check_figures(path, partial(make, path))) for store, path in campaign.files(pattern)]


def _add_campaign(figure: Figure, name: str) -> Figure:
    """A figure of one of several campaigns, whose files may have one name."""
    said = f"campaign: {name}", *figure.provenance
    return replace(figure, name=f"{name}-{figure.name}", title=f"{figure.title} ({name})", provenance=said)


def check_figures(path: Path, make: Callable[[], Iterable[Figure]]) -> list[Figure]:
    """Return what a file's figures are made of; raises DataError where it is damaged."""
    try:
        made = list(make())
        if not all(map(_is_drawable, made)):
            raise ValueError("a number that can't be drawn, or another number of them than places")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"this file is damaged: {type(error).__name__} {error}",
            where=str(path),
            hint="write it anew, or move it out of the campaign's folder",
        ) from error
    return made


def _is_drawable(figure: Figure) -> bool:
    """True if every number is one, and there are as many as places for them."""
    series = (value for one in figure.series for value in (*one.x, *one.y, *one.spread))
    cells = (value for row in figure.cells for value in row if value is not None)
    matched = all(len(one.x) == len(one.y) and len(one.spread) in (0, len(one.x)) for one in figure.series)
    if figure.kind == "heat":
        sizes = {len(row) for row in figure.cells}
        matched = sizes == {len(figure.columns)} != {0} and len(figure.cells) == len(figure.rows)
    return matched and all(abs(value) <= LARGEST for value in (*series, *cells))
