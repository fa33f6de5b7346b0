"""The frame of the site's pages, their style sheet and script, and data files."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from bench.gate.history_page import choose_style_class
from bench.reports.formats.report_page import report_environment
from bench.version import __version__

_STYLES = ("report.css", "figure.css", "gate.css", "site/site.css")
_SCRIPTS = ("site/site.js", "report.js", "figures.js", "site/views.js")


@dataclass(frozen=True)
class Site:
    """The frame of a page."""

    title: str
    url: str = ""  # public address of the site, ending in "/"
    has_history: bool = False  # of builds
    root: str = ""  # relative path from the page
    here: str = ""  # name of the page

    def below(self, depth: int, here: str) -> Site:
        """Return the frame of a page ``depth`` folders below the root."""
        return replace(self, root="../" * depth, here=here)


def render_page(template: str, site: Site, **facts: Any) -> bytes:
    """Return a page."""
    environment = report_environment()
    environment.filters |= {"style": choose_style_class, "drawn": Markup}
    text = environment.get_template(f"site/{template}").render(**{"version": __version__} | facts, site=site)
    return (text.strip() + "\n").encode()


def render_data_file(name: str, data: Any) -> bytes:
    """Return data as a script, the only file that pages of file:// may load."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return f"bench.take({json.dumps(name)},{text});\n".encode()


def read_assets() -> dict[str, bytes]:
    """Return the style sheet and the script of all pages."""
    folder = files("bench.render") / "templates"
    assets = {}
    for asset, names in (("site.css", _STYLES), ("site.js", _SCRIPTS)):
        assets[asset] = b"".join((folder / name).read_bytes() for name in names)
    return assets
