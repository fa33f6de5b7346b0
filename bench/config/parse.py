"""The little language of --methods, --seeds, --set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from bench.config.quoting import (
    NAME,
    OF_METHODS,
    bracket_depths,
    find_unquoted,
    misplaced_hint,
    quoting_hint,
    split_path,
)
from bench.config.spec import MethodRequest, Override
from bench.errors import InputError

MAX_SEEDS = 10_000


METHOD_NAME = re.compile(NAME)
"""Names of methods, aliases and options."""


_OF_METHODS = re.compile(
    rf"(?:(?P<alias>{METHOD_NAME.pattern})=)?(?P<name>{'|'.join(OF_METHODS)}):(?P<methods>.*\S.*)"
)


_STATIC = re.compile(r"static(?=[:\[]|$)")
"""``distill:static:METHOD`` is ``static:METHOD``: distilled into token vectors, not into a transformer."""


_SEED_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


_SHARD = re.compile(r"([1-9]\d{0,4})/([1-9]\d{0,4})")


def parse_shard(text: str) -> tuple[int, int]:
    """Parse ``3/16``: the third of sixteen.

    Raises:
        InputError: anything else, or a number above how many there are.
    """
    match = _SHARD.fullmatch(text.strip())
    if match is None or int(match[1]) > int(match[2]):
        form = "the share and how many there are, such as 3/16; the first is 1/16, the last 16/16"
        raise InputError(f"'{text}' is not a share", where="--shard", expected=form)
    return int(match[1]), int(match[2])


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse ``1-5`` or ``1,3,7-9`` into increasing distinct seeds.

    Raises:
        InputError: empty text, something that is neither a number nor a range, a falling range, a seed given
            twice, or more than 10,000 seeds.
    """
    where = "--seeds"
    form = "numbers and rising ranges such as 1-5 or 1,3,7-9"
    seeds: list[int] = []
    for part in text.split(","):
        match = _SEED_RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(f"'{part.strip()}' in '{text}' is not a seed", where=where, expected=form)
        low = int(match[1])
        high = int(match[2]) if match[2] else low
        if high < low:
            raise InputError(
                f"the range '{part.strip()}' falls", where=where, expected=form, hint=f"write {high}-{low}"
            )
        if len(seeds) + high - low + 1 > MAX_SEEDS:
            raise InputError(
                f"'{text}' asks for too many seeds", where=where, expected=f"at most {MAX_SEEDS}"
            )
        seeds.extend(range(low, high + 1))
    seeds.sort()
    repeated = [seed for seed, following in pairwise(seeds) if seed == following]
    if repeated:
        raise InputError(f"seed {repeated[0]} is given twice in '{text}'", where=where, expected=form)
    return tuple(seeds)


def split_outside_brackets(text: str, at: str = ",", *, inside: bool = False) -> list[str]:
    r"""Split at the commas (or another character) that stand outside square brackets and quoted paths.

    Args:
        text: Methods, or with ``inside`` the options that stand in brackets.
        at: The character.
        inside: A character after a backslash is only itself.

    >>> split_outside_brackets('a[b=1,c=2],hf:"my,folder":avg')
    ['a[b=1,c=2]', 'hf:"my,folder":avg']
    """
    depths = bracket_depths(text, inside=inside)
    cuts = [i for i, char in enumerate(text) if char == at and depths[i] == 0]
    return [text[i + 1 : j].strip() for i, j in pairwise((-1, *cuts, len(text)))]


def quoted(value: str) -> str:
    """Return an option's value as it is written in a method's brackets, so that it is read as itself.

    A backslash makes a comma, a bracket or a backslash a part of the value. A value that is a method with
    options of its own stays as it is.
    """
    depths = bracket_depths(value, inside=True)
    escapes = any(char == "\\" and depth == 0 for char, depth in zip(value, depths, strict=True))
    whole = split_outside_brackets(value, inside=True) == [value] and _is_balanced(value, inside=True)
    return value if whole and not escapes else re.sub(r"([\\,\[\]])", r"\\\1", value)


def _unquoted(value: str) -> str:
    """Drop backslashes before , [ ] and another one; those inside brackets belong to a method named there."""
    depths = [*bracket_depths(value, inside=True), 0]
    following = f"{value} "[1:]
    escapes = [
        char == "\\" and depths[at] == 0 and depths[at + 1] is None and following[at] in "\\,[]"
        for at, char in enumerate(value)
    ]
    return "".join(char for char, escape in zip(value, escapes, strict=True) if not escape)


def _is_balanced(text: str, *, inside: bool = False) -> bool:
    depths = bracket_depths(text, inside=inside)
    bare = [char for char, depth in zip(text, depths, strict=True) if depth is not None]
    return bare.count("[") == bare.count("]")


def parse_methods(text: str, *, recorded: bool = False) -> tuple[MethodRequest, ...]:
    """Parse ``--methods``; names are resolved later, by the plan.

    Args:
        text: The methods, with commas between them.
        recorded: The text is a name in a record: no file is looked for.

    Raises:
        InputError: an empty entry, unbalanced brackets, an option without ``=`` or given twice, a bad alias,
            a quote that isn't closed, a path on disk that lacks its quotes.
    """
    _refuse_unprintable(text, "--methods")
    unquoted = None if recorded else find_unquoted(text)
    if unquoted and unquoted.needed:
        raise unquoted.error
    return tuple(_parse_method(part) for part in split_outside_brackets(text))


def parse_method(text: str, where: str, *, recorded: bool = False) -> MethodRequest:
    """Parse a single method; see :func:`parse_methods` for arguments and errors.

    Raises:
        InputError: also for several.
    """
    requests = parse_methods(text, recorded=recorded)
    if len(requests) != 1:
        what = f"'{text}' names {len(requests)} methods"
        raise InputError(what, where=where, expected="one method", hint=quoting_hint(text))
    return requests[0]


def _parse_method(text: str) -> MethodRequest:
    where = "--methods"
    form = "[ALIAS=]NAME[:ARGUMENT][[OPTION=VALUE,...]] with commas between methods"
    of = _OF_METHODS.fullmatch(text)
    if of and of["name"] == "distill" and _STATIC.match(of["methods"].strip()):
        row = f"{of['alias']}=" if of["alias"] else ""
        return replace(_parse_method(row + of["methods"].strip()), text=text)
    if of and _is_balanced(text):
        return MethodRequest(text, of["name"], of["methods"].strip(), (), of["alias"])
    head, options = _split_options(text, form)
    alias: str | None = None
    before, equals, after = head.partition("=")
    if equals and ":" not in before:
        alias, head = before.strip(), after.strip()
        if not METHOD_NAME.fullmatch(alias):
            raise InputError(
                f"'{alias}' in '{text}' is not an alias", where=where, expected="letters, digits, _ . + -"
            )
    name, colon, argument = head.partition(":")
    if not METHOD_NAME.fullmatch(name) or (colon and not argument):
        hint = quoting_hint(text) or misplaced_hint(text)
        raise InputError(f"'{text}' is not a method", where=where, expected=form, hint=hint)
    in_quotes = argument.lstrip().startswith('"')
    if in_quotes:
        argument = argument.strip()
        split_path(argument)
    return MethodRequest(text, name, argument or None, options, alias, in_quotes)


def _split_options(text: str, form: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Split a method from the options in brackets at its end; raises InputError."""
    where, depths = "--methods", bracket_depths(text)
    opened = [i for i, char in enumerate(text) if char == "[" and depths[i] == 0]
    closed = text.endswith("]") and depths[-1] == 0
    if not text or not _is_balanced(text) or bool(opened) != closed:
        hint = quoting_hint(text) or misplaced_hint(text)
        raise InputError(f"'{text}' is not a method", where=where, expected=form, hint=hint)
    if not opened:
        return text, ()
    options: dict[str, str] = {}
    inner = text[opened[0] + 1 : -1]
    for item in split_outside_brackets(inner, inside=True) if inner else []:
        key, equals, value = item.partition("=")
        if not equals or not METHOD_NAME.fullmatch(key.strip()):
            what = f"'{item}' in '{text}' is not an OPTION=VALUE"
            hint = quoting_hint(text) or r"write a comma of a value as \,"
            raise InputError(what, where=where, expected=form, hint=hint)
        if key.strip() in options:
            what = f"{key.strip()} is given twice in '{text}'"
            raise InputError(what, where=where, expected="one value")
        options[key.strip()] = _unquoted(value.strip())
    return text[: opened[0]], tuple(options.items())


def parse_overrides(texts: Sequence[str]) -> tuple[Override, ...]:
    """Parse all ``--set`` values.

    Raises:
        InputError: as :func:`parse_override`, or one option given twice.
    """
    found: dict[tuple[str, str | None, str], Override] = {}
    for override in map(parse_override, texts):
        key = override.method, override.stage, override.option
        if key in found:
            raise InputError(f"given twice, first as {found[key].text}", where=f"--set {override.text}")
        found[key] = override
    return tuple(found.values())


def parse_override(text: str) -> Override:
    """Parse one ``--set`` value.

    Raises:
        InputError: not of the form METHOD[.STAGE].OPTION=VALUE.
    """
    _refuse_unprintable(text, "--set")
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or len(parts) not in (2, 3) or not all(METHOD_NAME.fullmatch(part) for part in parts):
        raise InputError(
            f"'{text}' is not an override",
            where="--set",
            expected="METHOD[.STAGE].OPTION=VALUE, e.g. untrained.pooling=avg",
        )
    return Override(text, parts[0], parts[1] if len(parts) == 3 else None, parts[-1], value.strip())


def parse_copies(texts: Sequence[str]) -> tuple[tuple[str, Path], ...]:
    """Parse the ``--copy`` values, NAME=FILE.

    Raises:
        InputError: not of that form, or a name given twice.
    """
    copies: dict[str, Path] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or not file or not METHOD_NAME.fullmatch(name):
            raise InputError(
                f"'{text}' is not a copy", where="--copy", expected="NAME=FILE, e.g. a=wiki.en-fr-en.txt"
            )
        if name in copies:
            raise InputError(f"copy '{name}' is given twice", where="--copy")
        copies[name] = Path(file)
    return tuple(copies.items())


def _refuse_unprintable(text: str, where: str) -> None:
    """Control characters and broken encodings would end up in file names, terminals and tables."""
    if not text.isprintable():
        raise InputError(f"{text!a} has a character that can't be printed", where=where)
