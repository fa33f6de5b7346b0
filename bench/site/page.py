"""How the site's pages are made: one frame, one style sheet, one script, data in files of their own."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from bench.gate.history_page import choose_style_class
from bench.reports.formats.report_page import report_environment
from bench.version import __version__

_STYLES = ("report.css", "gate.css", "site/site.css")
_SCRIPTS = ("site/site.js", "report.js", "figures.js", "site/views.js")


@dataclass(frozen=True)
class Site:
    """What every page shows around its own content.

    Args:
        title: Of the site.
        url: Where it will be published, ending in "/"; "" where nobody says.
        has_history: True if it has a page of builds.
        root: From this page to the site's root.
        here: What this page is.
    """

    title: str
    url: str = ""
    has_history: bool = False
    root: str = ""
    here: str = ""

    def below(self, depth: int, here: str) -> Site:
        """The same for a page some folders below the root."""
        return replace(self, root="../" * depth, here=here)


def render_page(template: str, site: Site, **facts: Any) -> bytes:
    """Return a page."""
    made = report_environment()
    made.filters |= {"style": choose_style_class, "drawn": Markup}
    text = made.get_template(f"site/{template}").render(**{"version": __version__} | facts, site=site)
    return (text.strip() + "\n").encode()


def render_data_file(name: str, data: Any) -> bytes:
    """Return a script that hands data to the page that asked: pages of file:// may load nothing else."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return f"bench.take({json.dumps(name)},{text});\n".encode()


def read_assets() -> dict[str, bytes]:
    """Return the style sheet and the script of all pages."""
    folder = files("bench.render") / "templates"

    def whole(names: tuple[str, ...]) -> bytes:
        return b"".join((folder / name).read_bytes() for name in names)

    return {"site.css": whole(_STYLES), "site.js": whole(_SCRIPTS)}
