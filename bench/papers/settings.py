"""Printed hyperparameters next to the options that a paper's profiles give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.card import OptionValue
from bench.data.published import Figure
from bench.errors import DataError
from bench.papers.flops import options_of
from bench.papers.items import Item
from bench.papers.places import matching

SAID = "= "
"""Begins what is so here where no option has a printed hyperparameter."""


@dataclass(frozen=True)
class Setting:
    """A printed hyperparameter and ours.

    Args:
        figure: The printed one.
        option: Our option, "METHOD.OPTION" or "METHOD.STAGE.OPTION", several with commas, "" for none.
        ours: Its value in the profile of the figure's backbone (of several, each that occurs), or what is so.
        differs: Why ours is another, or "".
    """

    figure: Figure
    option: str
    ours: str
    differs: str = ""

    @property
    def equal(self) -> bool:
        """True if both are the same number, or the same text; also where no option has it."""
        if not self.option:
            return True
        try:
            return float(self.figure.text) == float(self.ours)
        except ValueError:
            return self.figure.text == self.ours


def settings(item: Item) -> tuple[Setting, ...]:
    """Return an item's printed hyperparameters with ours; raises DataError for one that nothing names."""
    return tuple(_setting(item, figure) for figure in item.figures)


def _setting(item: Item, figure: Figure) -> Setting:
    where = f"bench/papers: {item.id}"
    text = _entry(item.settings, figure)
    if text is None:
        raise DataError(f"no option for the printed {figure.method} {figure.metric}", where=where)
    differs = _entry(item.differs, figure) or ""
    if text.startswith(SAID):
        return Setting(figure, "", text.removeprefix(SAID), differs)
    profile = figure.backbone or item.backbones[0]
    ours = dict.fromkeys(_value(name.strip(), profile, where) for name in text.split(","))
    return Setting(figure, text, ", ".join(ours), differs)


def _value(name: str, profile: str, where: str) -> str:
    """Value of METHOD.OPTION in a profile; raises DataError where there is no such option."""
    method, _, option = name.partition(".")
    values: Mapping[str, OptionValue] = options_of(method, profile)
    if option not in values:
        raise DataError(f"{method} has no option '{option}'", where=where)
    value = values[option]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _entry(table: Mapping[str, str], figure: Figure) -> str | None:
    """The entry of "METHOD[ KEY=VALUE,...] METRIC" for a figure."""
    keys = {}
    for key, value in table.items():
        method, *pairs, metric = key.split(" ")
        keys[f"{method} {','.join((*pairs, f'metric={metric}'))}"] = value
    return matching(keys, figure)
