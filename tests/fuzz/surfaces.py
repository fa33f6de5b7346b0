"""All surfaces by name, and how many of the cases each of them gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fuzz.campaigns import Campaigns
from tests.fuzz.command_lines import CommandLines
from tests.fuzz.core import Surface
from tests.fuzz.data_files import DataFiles
from tests.fuzz.plugin_files import PluginFiles
from tests.fuzz.published_figures import PublishedFigures
from tests.fuzz.specifications import Specifications
from tests.fuzz.toml_tables import TomlTables

SURFACES: dict[str, Callable[[Path], Surface]] = {
    "cli": CommandLines,
    "spec": Specifications,
    "data": DataFiles,
    "records": Campaigns,
    "toml": TomlTables,
    "published": PublishedFigures,
    "plugins": PluginFiles,
}
_SHARES = {"cli": 25, "spec": 20, "data": 20, "records": 25, "toml": 10, "published": 8, "plugins": 12}


def cases_of(total: int, only: str | None = None) -> dict[str, int]:
    """Number of cases of each surface; all of them of one that is named."""
    if only is not None:
        return {only: total}
    return {name: max(1, round(total * share / sum(_SHARES.values()))) for name, share in _SHARES.items()}
