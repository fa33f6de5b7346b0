"""How methods are written: names, options, paths and quotes, and the ids of their rows."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from bench.config.profiles import zero_steps
from bench.config.run_spec import METHOD_NAME, NAME, MethodRequest, Override
from bench.errors import InputError
from bench.method_card import MethodCard
from bench.records.record import EXTERNAL, RunRecord
from bench.registry import METHODS, discover

OF_METHODS = ("ensemble", "distill", "static", "released", "compressed")
"""Methods of methods (or of published towers): all after the colon of NAME:METHODS belongs to METHODS."""
MAX_SEEDS = 10_000
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
_EARLY_OPTIONS = re.compile(rf"(?P<row>(?:{NAME}=)?{NAME})(?P<options>\[[^][]*\]):(?P<path>[^][]+)$")
_WORD = re.compile(r"[a-z_]+")
_CUTS, _ENDS = ",[]+", ",[]+:\"'"
"""Where a path without quotes ends, and where it might."""
_REACH = 200  # characters before a quote that are looked at
_OF_METHODS = re.compile(
    rf"(?:(?P<alias>{METHOD_NAME.pattern})=)?(?P<name>{'|'.join(OF_METHODS)}):(?P<methods>.*\S.*)"
)
_STATIC = re.compile(r"static(?=[:\[]|$)")
"""``distill:static:METHOD`` is ``static:METHOD``: distilled into token vectors, not into a transformer."""
_SEED_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_SHARD = re.compile(r"([1-9]\d{0,4})/([1-9]\d{0,4})")


def quote_path(path: str) -> str:
    """Return a path in double quotes; inside a quote is doubled, a backslash stays as it is."""
    doubled = path.replace('"', '""')
    return f'"{doubled}"'


def split_path(argument: str) -> tuple[str, str]:
    """Split an argument that begins with a quote into the path and the rest; raises InputError."""
    match, where, form = _IN_QUOTES.match(argument), "--methods", PATH_FORM
    if match is None:
        raise InputError(f"the quote in '{argument}' is not closed", where=where, expected=form)
    path, rest = match[1].replace('""', '"'), argument[match.end() :].strip()
    if not path.strip():
        raise InputError(f"the path in '{argument}' is empty", where=where, expected=form)
    if rest and not (rest.startswith(":") and rest[1:].strip()):
        raise InputError(f"'{rest}' follows the closing quote", where=where, expected=form)
    return path, rest


def bracket_depths(text: str, *, inside: bool = False) -> list[int | None]:
    r"""Return the number of open square brackets at each character, None for an escaped one.

    Escaped are the characters of a path in quotes, and one after a backslash ``inside`` brackets.
    A quote opens a path only right after NAME:, in brackets only after a method of bench that takes a path.

    >>> bracket_depths('a[b]'), bracket_depths('hf:","')[3:], bracket_depths(r"\,", inside=True)
    ([0, 0, 1, 0], [None, None, None], [0, None])
    """
    depths: list[int | None] = []
    depth = 0
    while (at := len(depths)) < len(text):
        char = text[at]
        in_brackets = inside or depth > 0
        opens = _OWN_PATH if in_brackets else _ANY_PATH
        if char == '"' and opens.search(text, max(0, at - _REACH), at):
            closed = _IN_QUOTES.match(text, at)
            depths += [None] * ((closed.end() if closed else len(text)) - at)
        elif char == "\\" and in_brackets:
            depths += [depth, None][: len(text) - at]
        else:
            depth -= char == "]"
            depths.append(depth)
            depth += char == "["
    return depths


@dataclass(frozen=True)
class UnquotedPath:
    """A path that lacks quotes, and would be split or read as options."""

    path: str  # on disk
    typed: str  # the text with the path in quotes
    needed: bool  # the text up to the first separator is missing on disk

    @property
    def error(self) -> InputError:
        """What is wrong, what is accepted, what to type."""
        cuts = " ".join(sorted(set(self.path) & set(_CUTS)))
        what = f"the path '{self.path}' has {cuts} and no quotes" if cuts else f"'{self.path}' is the path"
        return InputError(what, where="--methods", expected=PATH_FORM, hint=f"type {shlex.quote(self.typed)}")


def find_unquoted_path(text: str) -> UnquotedPath | None:
    """Return the first path on disk that needs quotes, with quotes around all such paths in ``typed``."""
    first: UnquotedPath | None = None
    typed = text
    while True:
        paths = (_longest_path(typed, *start) for start in _bare_paths(typed))
        path = next((path for path in paths if path), None)
        if path is None or (first and not path.needed):
            return first and replace(first, typed=typed)
        first, typed = first or path, path.typed


def quoting_hint(text: str) -> str | None:
    """Return what to type for an invalid method that may lack the quotes of a path."""
    if unquoted := find_unquoted_path(text):
        return f"type {shlex.quote(unquoted.typed)}"
    for match, begin in _bare_paths(text):
        path, colon, last = text[begin:].rpartition(":")
        path, rest = (path, colon + last) if _WORD.fullmatch(last) else (text[begin:], "")
        cut = re.split(r"[][,]", path)[0].strip()
        on_disk = _path_exists(cut) or _path_exists(cut.rpartition(":")[0])
        if not match["of"] and len(cut) < len(path.strip()) and not on_disk:
            typed = _insert_quotes(text, match, begin, len(text) - len(rest), path.strip())
            return f"if this is one path, type {shlex.quote(typed)}"
    return None


def misplaced_hint(text: str) -> str | None:
    """Return what to type for an invalid method with quotes, or with options before its path."""
    if early := _EARLY_OPTIONS.match(text):
        return f"options stand last, after the path: {early['row']}:{early['path']}{early['options']}"
    return """quotes go around the path only: 'hf:"PATH":avg'""" if '"' in text else None


def misquoted_hint(text: str, path: str) -> str | None:
    r"""Return what to type for a quoted path that is on disk only without its backslashes, as in ``\,``."""
    bare = _ESCAPED.sub(r"\1", path)
    if bare == path or not _path_exists(bare):
        return None
    return f"type {shlex.quote(text.replace(quote_path(path), quote_path(bare)))}"


def _bare_paths(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield where the unquoted paths begin."""
    depths = bracket_depths(text)
    takers = {*EXTERNAL, *(name for name, method in METHODS if method.card.takes_path)}
    for match in _BARE.finditer(text):
        if depths[match.end() - 1] is not None and match["name"] in takers:
            yield match, match.end()


def _longest_path(text: str, match: re.Match[str], begin: int) -> UnquotedPath | None:
    """Return the longest path on disk from a place on, where reading the text as it is would cut it."""
    depths = bracket_depths(text)
    outer = depths[begin - 1] or 0
    summed = bool(match["of"]) or match[0].lstrip()[:1] in ("+", "*")
    cuts = _CUTS if summed else _CUTS.replace("+", "")
    ends = [at for at in range(begin, len(text)) if text[at] in _ENDS]
    first = len(text)
    for at in reversed(ends):
        depth = depths[at]
        if text[at] in cuts and depth is not None and depth <= outer:
            first = at
    whole = text[begin:first].strip()
    needed = not _path_exists(whole) and not _path_exists(whole.rpartition(":")[0])
    for end in reversed([*ends, len(text)]):
        path = text[begin:end].strip()
        for bare in (path, _ESCAPED.sub(r"\1", path), path.replace('"', ""), path.replace("'", "")):
            if _path_exists(bare) and (end > first or bare != path):
                return UnquotedPath(bare, _insert_quotes(text, match, begin, end, bare), needed)
    return None


def _insert_quotes(text: str, match: re.Match[str], begin: int, end: int, path: str) -> str:
    """Return the text with quotes around a path in place of the whole method."""
    before, after, first = text[:begin], text[end:], match[0][:1]
    if first in ('"', "'"):
        before = before[: match.start()] + before[match.start() + 1 :]
        after = after.replace(first, "", 1)
    return before + quote_path(path) + after


def _path_exists(path: str) -> bool:
    return bool(path) and os.path.exists(os.path.expanduser(path))


def parse_shard(text: str) -> tuple[int, int]:
    """Parse ``3/16``, the third of sixteen; raises InputError."""
    match = _SHARD.fullmatch(text.strip())
    if match is None or int(match[1]) > int(match[2]):
        form = "SHARE/SHARES, such as 3/16; the first is 1/16, the last 16/16"
        raise InputError(f"'{text}' is not a share", where="--shard", expected=form)
    return int(match[1]), int(match[2])


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse ``1-5`` or ``1,3,7-9`` into increasing distinct seeds, at most 10,000; raises InputError."""
    where, form = "--seeds", "numbers and rising ranges such as 1-5 or 1,3,7-9"
    seeds: list[int] = []
    for part in map(str.strip, text.split(",")):
        match = _SEED_RANGE.fullmatch(part)
        if match is None:
            raise InputError(f"'{part}' in '{text}' is not a seed", where=where, expected=form)
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            hint = f"write {high}-{low}"
            raise InputError(f"the range '{part}' falls", where=where, expected=form, hint=hint)
        if len(seeds) + high - low + 1 > MAX_SEEDS:
            expected = f"at most {MAX_SEEDS}"
            raise InputError(f"'{text}' asks for too many seeds", where=where, expected=expected)
        seeds.extend(range(low, high + 1))
    seeds.sort()
    for seed, following in pairwise(seeds):
        if seed == following:
            raise InputError(f"seed {seed} is given twice in '{text}'", where=where, expected=form)
    return tuple(seeds)


def split_outside_brackets(text: str, at: str = ",", *, inside: bool = False) -> list[str]:
    """Split at the commas (or another character) outside brackets and quoted paths, see bracket_depths."""
    depths = bracket_depths(text, inside=inside)
    cuts = [i for i, char in enumerate(text) if char == at and depths[i] == 0]
    return [text[i + 1 : j].strip() for i, j in pairwise((-1, *cuts, len(text)))]


def quote_value(value: str) -> str:
    """Escape commas, brackets and backslashes of an option's value, except in a method with options."""
    depths = bracket_depths(value, inside=True)
    escapes = any(char == "\\" and depth == 0 for char, depth in zip(value, depths, strict=True))
    whole = split_outside_brackets(value, inside=True) == [value] and _is_balanced(value, inside=True)
    return value if whole and not escapes else re.sub(r"([\\,\[\]])", r"\\\1", value)


def _unescape_value(value: str) -> str:
    r"""Drop backslashes before , [ ] and \, except inside the brackets of a method named there."""
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
    """Parse ``--methods``, or with ``recorded`` a name in a record; raises InputError for any other form."""
    _refuse_unprintable(text, "--methods")
    unquoted = None if recorded else find_unquoted_path(text)
    if unquoted and unquoted.needed:
        raise unquoted.error
    return tuple(_parse_method(part) for part in split_outside_brackets(text))


def parse_method(text: str, where: str, *, recorded: bool = False) -> MethodRequest:
    """Parse one method as :func:`parse_methods` does; raises InputError also for several."""
    requests = parse_methods(text, recorded=recorded)
    if len(requests) != 1:
        what = f"'{text}' names {len(requests)} methods"
        raise InputError(what, where=where, expected="one method", hint=quoting_hint(text))
    return requests[0]


def _parse_method(text: str) -> MethodRequest:
    where, form = "--methods", "[ALIAS=]NAME[:ARGUMENT][[OPTION=VALUE,...]] with commas between methods"
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
            what = f"'{alias}' in '{text}' is not an alias"
            raise InputError(what, where=where, expected="letters, digits, _ . + -")
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
        key, equals, value = map(str.strip, item.partition("="))
        if not equals or not METHOD_NAME.fullmatch(key):
            what = f"'{item}' in '{text}' is not an OPTION=VALUE"
            hint = quoting_hint(text) or r"write a comma of a value as \,"
            raise InputError(what, where=where, expected=form, hint=hint)
        if key in options:
            raise InputError(f"{key} is given twice in '{text}'", where=where, expected="one value")
        options[key] = _unescape_value(value)
    return text[: opened[0]], tuple(options.items())


def parse_overrides(texts: Sequence[str]) -> tuple[Override, ...]:
    """Parse all ``--set`` values; raises InputError also for an option given twice."""
    overrides: dict[tuple[str, str | None, str], Override] = {}
    for override in map(parse_override, texts):
        first = overrides.setdefault((override.method, override.stage, override.option), override)
        if first is not override:
            raise InputError(f"given twice, first as {first.text}", where=f"--set {override.text}")
    return tuple(overrides.values())


def parse_override(text: str) -> Override:
    """Parse one ``--set METHOD[.STAGE].OPTION=VALUE``; raises InputError."""
    _refuse_unprintable(text, "--set")
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or len(parts) not in (2, 3) or not all(METHOD_NAME.fullmatch(part) for part in parts):
        form = "METHOD[.STAGE].OPTION=VALUE, e.g. untrained.pooling=avg"
        raise InputError(f"'{text}' is not an override", where="--set", expected=form)
    return Override(text, parts[0], parts[1] if len(parts) == 3 else None, parts[-1], value.strip())


def parse_copies(texts: Sequence[str]) -> tuple[tuple[str, Path], ...]:
    """Parse all ``--copy NAME=FILE`` values; raises InputError also for a name given twice."""
    copies: dict[str, Path] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or not file or not METHOD_NAME.fullmatch(name):
            form = "NAME=FILE, e.g. a=wiki.en-fr-en.txt"
            raise InputError(f"'{text}' is not a copy", where="--copy", expected=form)
        if name in copies:
            raise InputError(f"copy '{name}' is given twice", where="--copy")
        copies[name] = Path(file)
    return tuple(copies.items())


def _refuse_unprintable(text: str, where: str) -> None:
    if not text.isprintable():  # it would end up in file names, terminals and tables
        raise InputError(f"{text!a} has a character that can't be printed", where=where)


def match_recorded_id(
    text: str,
    names: Collection[str],
    records: Iterable[RunRecord] = (),
    folder_hash: Callable[[MethodRequest], str | None] = lambda _: None,
) -> str:
    """Return the recorded name that a text means; the text itself if that is ambiguous or unknown.

    Options may stand in any order, with another spelling of the value, and one after a colon. With records,
    options may also have the profile's value, and NAME=METHOD names a row with an alias. The path of a
    folder names the row with its hash, by ``folder_hash``.

    >>> names = ["untrained", "untrained[pooling=avg]", "tncse[icnce=False,lr=1e-05]"]
    >>> match_recorded_id("untrained:avg", names), match_recorded_id("tncse[lr=1e-5, icnce=false]", names)
    ('untrained[pooling=avg]', 'tncse[icnce=False,lr=1e-05]')
    >>> match_recorded_id("untrained", names), match_recorded_id("simcse", names)
    ('untrained', 'simcse')
    """
    asked = _parse_recorded(text)
    if text in names or asked is None:
        return text
    matches = [name for name in names if (row := _parse_recorded(name)) and _is_same_method(asked, row)]
    matches = matches or _match_options(asked, records, folder_hash(asked))
    return matches[0] if len(matches) == 1 else text


def _match_options(asked: MethodRequest, records: Iterable[RunRecord], model: str | None) -> list[str]:
    """Return the rows whose records all have the asked options, and whose names agree."""
    given = _request_options(asked)
    if given is None:
        return []
    fits: dict[str, bool] = {}
    for record in records:
        if record.name != asked.name:
            continue
        if model is not None:
            same = (record.backbone or {}).get("sha256") == model
            if same and given.items() <= _parse_options(record.options.items()).items():
                fits[record.method] = True
        elif asked.alias in (None, record.method):
            fits[record.method] = fits.get(record.method, True) and _record_fits(asked, given, record)
    return [method for method, fit in fits.items() if fit]


def _record_fits(asked: MethodRequest, given: Mapping[str, str | float], record: RunRecord) -> bool:
    recorded = _parse_options(record.options.items())
    named: Mapping[str, str | float] | None = {}
    if not asked.alias:  # an alias leaves the options out of the row's name
        row = _parse_recorded(record.method)
        named = _request_options(row) if row and (row.name, row.alias) == (asked.name, None) else None
    if named is None:
        return False
    given = {**dict.fromkeys(zero_steps(given, recorded), 0.0), **given}
    recorded = {**named, **recorded}  # only the name has a ``match``
    consistent = named.keys() <= given.keys() and named.items() <= recorded.items()
    return consistent and given.items() <= recorded.items()


def _request_options(request: MethodRequest) -> dict[str, str | float] | None:
    """Return the options that a request gives, also after its colon; None for an unknown method."""
    options = _parse_options(request.options)
    if request.argument is None:
        return options
    try:
        _, short = split_argument(request, discover().get(request.name).card)
    except InputError:
        return None
    return options | _parse_options([short] if short else [])


def _parse_recorded(text: str) -> MethodRequest | None:
    try:
        (request,) = parse_methods(text, recorded=True)
    except (InputError, ValueError):  # not a method, or several
        return None
    return request


def _is_same_method(asked: MethodRequest, row: MethodRequest) -> bool:
    if (asked.name, asked.alias) != (row.name, row.alias):
        return False
    given, recorded = _parse_options(asked.options), _parse_options(row.options)
    if asked.argument == row.argument:
        return given == recorded
    added = [value for option, value in recorded.items() if option not in given]
    short = [_parse_value(asked.argument or "")]
    return row.argument is None and added == short and given.items() <= recorded.items()


def _parse_options(options: Iterable[tuple[str, object]]) -> dict[str, str | float]:
    return {option: _parse_value(str(value)) for option, value in options}


def _parse_value(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text.lower() if text.lower() in ("true", "false") else text


def split_argument(request: MethodRequest, card: MethodCard) -> tuple[str | None, tuple[str, str] | None]:
    """Split NAME:ARGUMENT into a model path and the short option (name, value); raises InputError."""
    argument, where = request.argument, f"--methods {request.text}"
    short = card.short_option
    if not card.takes_path:
        if argument is None:
            return None, None
        if short is None:
            raise InputError(f"'{card.name}' takes nothing after a colon", where=where, expected=card.name)
        if request.in_quotes:
            raise InputError(f"'{card.name}' takes no path", where=where, expected="no quotes")
        return None, (short, argument)
    if argument is None:
        raise InputError(f"'{card.name}' needs a model", where=where, expected=f"{card.name}:PATH")
    if request.in_quotes:
        path, rest = split_path(argument)
        if rest and short is None:
            what = f"'{card.name}' takes nothing after its path, but '{rest}' follows"
            raise InputError(what, where=where, expected=f"{card.name}:{quote_path(path)}")
        return path, (short, rest.removeprefix(":").strip()) if short and rest else None
    path, colon, last = argument.rpartition(":")
    if not colon or not short or "/" in last or "\\" in last:
        return argument, None
    if last not in card.option(short, where).choices and Path(argument).exists():
        return argument, None  # the colon is part of the path
    return path, (short, last)
