"""Compare printed hyperparameters with the options that a paper's profiles give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.data.published_tables import PublishedFigure
from bench.errors import DataError
from bench.papers.flops import resolve_options
from bench.papers.item_cells import match_figure
from bench.papers.paper_items import Item

LITERAL_PREFIX = "= "
"""Begins the value here of a printed hyperparameter that is fixed, so that no option has it."""


@dataclass(frozen=True)
class Hyperparameter:
    """A printed hyperparameter and ours.

    Args:
        figure: The printed one.
        option: "METHOD.OPTION" or "METHOD.STAGE.OPTION", several with commas; "" for a fixed value.
        ours: Its value in the profile of the figure's backbone (of several, each that occurs).
        differs: Why ours is another, or "".
    """

    figure: PublishedFigure
    option: str
    ours: str
    differs: str = ""

    @property
    def equal(self) -> bool:
        """True for the same number or text, and for a fixed value."""
        if not self.option:
            return True
        try:
            return float(self.figure.text) == float(self.ours)
        except ValueError:
            return self.figure.text == self.ours


def compare_hyperparameters(item: Item) -> tuple[Hyperparameter, ...]:
    """Return an item's printed hyperparameters with ours; raises DataError for an unmatched one."""
    return tuple(_compare_figure(item, figure) for figure in item.figures)


def _compare_figure(item: Item, figure: PublishedFigure) -> Hyperparameter:
    where = f"bench/papers: {item.id}"
    text = _find_entry(item.settings, figure)
    if text is None:
        raise DataError(f"no option for the printed {figure.method} {figure.metric}", where=where)
    differs = _find_entry(item.differs, figure) or ""
    if text.startswith(LITERAL_PREFIX):
        return Hyperparameter(figure, "", text.removeprefix(LITERAL_PREFIX), differs)
    values: dict[str, None] = {}
    for name in text.split(","):
        method, _, option = name.strip().partition(".")
        options = resolve_options(method, figure.backbone or item.backbones[0])
        if option not in options:
            raise DataError(f"{method} has no option '{option}'", where=where)
        value = options[option]
        values[f"{value:g}" if isinstance(value, float) else str(value)] = None
    return Hyperparameter(figure, text, ", ".join(values), differs)


def _find_entry(table: Mapping[str, str], figure: PublishedFigure) -> str | None:
    """The entry of "METHOD[ KEY=VALUE,...] METRIC" for a figure."""
    keys = {}
    for key, value in table.items():
        method, *pairs, metric = key.split(" ")
        keys[f"{method} {','.join((*pairs, f'metric={metric}'))}"] = value
    return match_figure(keys, figure)
