"""BibTeX entries of the methods' sources, from ``sources.bib``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

from bench.errors import unknown_name

_START = re.compile(r"^@\w+\{([^,\s]+),$", re.M)


@cache
def read_sources() -> dict[str, str]:
    """Return every entry of ``sources.bib`` by its key, without a newline at its end."""
    text = resources.files(__package__).joinpath("sources.bib").read_text(encoding="utf-8")
    starts = list(_START.finditer(text))
    ends = [start.start() for start in starts[1:]]
    return {
        start[1]: text[start.start() : end].strip()
        for start, end in zip(starts, [*ends, len(text)], strict=True)
    }


def find_entries(cites: Iterable[str], where: str) -> list[str]:
    """Return the BibTeX entries that a card cites.

    Args:
        cites: Keys of ``sources.bib``, or whole entries, which begin with ``@``.
        where: Place of the card, for errors.

    Raises:
        InputError: ``sources.bib`` lacks a key.
    """
    entries = []
    for cited in cites:
        if cited.lstrip().startswith("@"):
            entries.append(cited.strip())
        elif cited in read_sources():
            entries.append(read_sources()[cited])
        else:
            raise unknown_name("source", cited, read_sources(), where=where)
    return entries
