"""What pages are made with: templates that escape every text, and a policy that allows our files alone."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from bench.errors import printable


def page_environment() -> Environment:
    """Return an environment over ``bench/render/templates``: any text in a page is inert and can be seen."""
    environment = Environment(
        loader=PackageLoader("bench.render", "templates"),
        autoescape=select_autoescape(default_for_string=True, default=True),
        finalize=_printable_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breaks"] = _break_name
    return environment


def own_file(name: str, *parts: str) -> dict[str, Markup | str]:
    """Return our own files as one text under a name, and its hash for the page's policy under NAME_hash.

    Args:
        name: "style" or "script".
        parts: Files of ``bench/render/templates``.
    """
    folder = files("bench.render") / "templates"
    text = "".join((folder / part).read_text(encoding="utf-8") for part in parts)
    own = Markup(text)  # noqa: S704 - our own files
    hashed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {name: own, f"{name}_hash": f"sha256-{hashed}"}


def _break_name(text: str) -> Markup:
    """A name that may break after its punctuation; joining escapes every piece."""
    return Markup("<wbr>").join(re.findall(r"[^,\[+_=:/]+[,\[+_=:/]*|[,\[+_=:/]+", printable(text)))


def _printable_value(value: object) -> object:
    """A value as the page shows it: nothing in its texts turns a line or can't be seen."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
