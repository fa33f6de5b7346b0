"""Paths in double quotes: how ``--methods`` takes a folder whose name has a comma, a bracket or a ``+``."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.errors import InputError
from bench.records.record import EXTERNAL
from bench.registry import METHODS

NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
"""Pattern of the name of a method, alias or option."""

OF_METHODS = ("ensemble", "distill", "static", "released")
"""Methods of methods (or of published towers), NAME:METHODS: all after the colon, brackets too, belongs to
the methods named there."""

PATH_FORM = 'NAME:"PATH", then :POOLING, [OPTION=VALUE,...] or the next method'

_OF = rf"(?:(?:{'|'.join(OF_METHODS)}):\s*)*"
_START = rf"[,+*=\[]\s*{_OF}"
"""Before the name of a method: the start of a text, or one of these."""
_ANY_PATH = re.compile(rf"(?:^\s*{_OF}|{_START})(?!(?:{'|'.join(OF_METHODS)}):){NAME}:\s*$")
_OWN_PATH = re.compile(rf"(?:^\s*{_OF}|{_START})(?:{'|'.join(EXTERNAL)}):\s*$")
_SINGLE = NAME.replace("+", "")  # in a sum the plus stands between names
_IN_QUOTES = re.compile(r'"((?:[^"]|"")*+)"')
_BARE = re.compile(rf"(?:^|[,+*=\[\"'])\s*(?P<of>{_OF})(?P<name>{_SINGLE}):(?!\s*\")")
_ESCAPED = re.compile(r"\\([][,=+\"\\ ])")
_WORD = re.compile(r"[a-z_]+")
_CUTS, _ENDS = ",[]+", ",[]+:\"'"
"""Where a path without quotes ends, and where it might."""
_EXAMPLE = 'hf:"PATH":avg'
_REACH = 200  # characters before a quote that are looked at


def quote_path(path: str) -> str:
    r"""Return a path in double quotes; a quote in it is doubled, a backslash stays one.

    >>> quote_path("my,folder"), quote_path('a"b'), quote_path(r"C:\a,b")
    ('"my,folder"', '"a""b"', '"C:\\a,b"')
    """
    doubled = path.replace('"', '""')
    return f'"{doubled}"'


def split_path(argument: str) -> tuple[str, str]:
    """Split an argument that begins with a quote into the path and what follows the closing quote.

    Raises:
        InputError: no closing quote, an empty path, or something that can't follow one.

    >>> split_path('"my,folder":avg')
    ('my,folder', ':avg')
    """
    found, where, form = _IN_QUOTES.match(argument), "--methods", PATH_FORM
    if found is None:
        raise InputError(f"the quote in '{argument}' is not closed", where=where, expected=form)
    path, rest = found[1].replace('""', '"'), argument[found.end() :].strip()
    if not path.strip():
        raise InputError(f"the path in '{argument}' is empty", where=where, expected=form)
    if rest and not (rest.startswith(":") and rest[1:].strip()):
        raise InputError(f"'{rest}' stands after the closing quote", where=where, expected=form)
    return path, rest


def bracket_depths(text: str, *, inside: bool = False) -> list[int | None]:
    r"""Return how many square brackets are open at each character, None for one that is only itself.

    Those are the characters of a path in quotes, and one after a backslash in brackets. Outside brackets a
    backslash is a character as any other, as in a path of Windows. A quote opens a path right after NAME: and
    nowhere else. In brackets, whose values may have quotes, NAME is a method of bench that takes a path.

    Args:
        text: Methods, or what stands in brackets.
        inside: The text stands in brackets.

    >>> bracket_depths('a[b]'), bracket_depths('hf:","')[3:], bracket_depths(r"\,", inside=True)
    ([0, 0, 1, 0], [None, None, None], [0, None])
    """
    found: list[int | None] = []
    depth = 0
    while (at := len(found)) < len(text):
        char = text[at]
        in_brackets = inside or depth > 0
        opens = _OWN_PATH if in_brackets else _ANY_PATH
        if char == '"' and opens.search(text, max(0, at - _REACH), at):
            closed = _IN_QUOTES.match(text, at)
            found += [None] * ((closed.end() if closed else len(text)) - at)
            continue
        if char == "\\" and in_brackets:
            found += [depth, None][: len(text) - at]
            continue
        depth -= char == "]"
        found.append(depth)
        depth += char == "["
    return found


@dataclass(frozen=True)
class Unquoted:
    """A path that stands without quotes, and is split or read as options.

    Args:
        path: The path, which is on disk.
        typed: The text with the path in quotes.
        needed: There is nothing on disk by the name that is left of it without quotes.
    """

    path: str
    typed: str
    needed: bool

    @property
    def error(self) -> InputError:
        """What is wrong, what is accepted, what to type."""
        found = " ".join(sorted({char for char in self.path if char in _CUTS}))
        return InputError(
            f"the path '{self.path}' has {found} and no quotes" if found else f"'{self.path}' is the path",
            where="--methods",
            expected=PATH_FORM,
            hint=f"type {shlex.quote(self.typed)}",
        )


def find_unquoted(text: str) -> Unquoted | None:
    """Return the first path in a text of methods that is on disk and is only read whole in quotes.

    A path with backslashes before its commas and brackets, or with quotes around parts of it, is looked for
    without them. Of several such paths all are in quotes in what to type.
    """
    first = _first_unquoted(text)
    while first and (more := _first_unquoted(first.typed)) and more.needed:
        first = replace(first, typed=more.typed)
    return first


def _first_unquoted(text: str) -> Unquoted | None:
    return next((found for start in _bare_paths(text) if (found := _on_disk(text, *start))), None)


def quoting_hint(text: str) -> str | None:
    """Return what to type for a text that is no method, where it may lack the quotes of a path."""
    if found := find_unquoted(text):
        return f"type {shlex.quote(found.typed)}"
    for match, begin in _bare_paths(text):
        path, colon, last = text[begin:].rpartition(":")
        path, more = (path, colon + last) if _WORD.fullmatch(last) else (text[begin:], "")
        cut = re.split(r"[][,]", path)[0].strip()
        there = _exists(cut) or _exists(cut.rpartition(":")[0])
        if not match["of"] and len(cut) < len(path.strip()) and not there:
            typed = _with_quotes(text, match, begin, len(text) - len(more), path.strip())
            return f"if this is one path, type {shlex.quote(typed)}"
    return None


def misplaced_hint(text: str) -> str | None:
    """Return what to type for a text with quotes that is no method; None where it has none."""
    return f"quotes go around the path alone: {shlex.quote(_EXAMPLE)}" if '"' in text else None


def misquoted_hint(text: str, path: str) -> str | None:
    r"""Return what to type for a path in quotes that isn't on disk, where it is without its backslashes.

    Inside quotes a backslash is only itself: ``\,`` is a backslash and a comma.
    """
    bare = _ESCAPED.sub(r"\1", path)
    if bare == path or not _exists(bare):
        return None
    return f"type {shlex.quote(text.replace(quote_path(path), quote_path(bare)))}"


def _bare_paths(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield where the paths begin that aren't in quotes."""
    depths = bracket_depths(text)
    for match in _BARE.finditer(text):
        begin = match.end()
        if depths[begin - 1] is not None and _takes_path(match["name"]):
            yield match, begin


def _takes_path(name: str) -> bool:
    return name in EXTERNAL or any(name == own and method.card.takes_path for own, method in METHODS)


def _on_disk(text: str, match: re.Match[str], begin: int) -> Unquoted | None:
    """The longest path from a place on that is on disk, where reading the text as it is would cut it."""
    depths = bracket_depths(text)
    outer = depths[begin - 1] or 0
    summed = bool(match["of"]) or match[0].lstrip()[:1] in ("+", "*")
    cuts = _CUTS if summed else _CUTS.replace("+", "")
    ends = [at for at in range(begin, len(text)) if text[at] in _ENDS]
    own = (at for at in ends if text[at] in cuts and (depth := depths[at]) is not None and depth <= outer)
    first = next(own, len(text))
    whole = text[begin:first].strip()
    needed = not _exists(whole) and not _exists(whole.rpartition(":")[0])
    for end in reversed([*ends, len(text)]):
        path = text[begin:end].strip()
        without = (_ESCAPED.sub(r"\1", path), path.replace('"', ""), path.replace("'", ""))
        for each in (path, *without):
            if _exists(each) and (end > first or each != path):
                return Unquoted(each, _with_quotes(text, match, begin, end, each), needed)
    return None


def _with_quotes(text: str, match: re.Match[str], begin: int, end: int, path: str) -> str:
    """The text with a path in quotes, without quotes around the whole method."""
    before, after, first = text[:begin], text[end:], match[0][:1]
    if first in ('"', "'"):
        before = before[: match.start()] + before[match.start() + 1 :]
        after = after.replace(first, "", 1)
    return before + quote_path(path) + after


def _exists(path: str) -> bool:
    return bool(path) and os.path.exists(os.path.expanduser(path))
