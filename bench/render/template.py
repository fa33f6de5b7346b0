"""The template environment of pages, which escapes every text, and the hashes of their own files."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from bench.errors import printable


def page_environment() -> Environment:
    """Return an environment over ``bench/render/templates`` with escaped, printable texts."""
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
    """Return files of the templates' folder as one text under a name, and its hash under NAME_hash."""
    folder = files("bench.render") / "templates"
    text = "".join((folder / part).read_text(encoding="utf-8") for part in parts)
    own = Markup(text)  # noqa: S704 - our own files
    hashed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {name: own, f"{name}_hash": f"sha256-{hashed}"}


def _break_name(text: str) -> Markup:
    """A name with break points after its punctuation; joining escapes every piece."""
    return Markup("<wbr>").join(re.findall(r"[^,\[+_=:/]+[,\[+_=:/]*|[,\[+_=:/]+", printable(text)))


def _printable_value(value: object) -> object:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
