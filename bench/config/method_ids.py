"""How methods are written: names, options, paths and quotes, and the ids of their rows."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from bench.card import MethodCard
from bench.config.profiles import zero_steps
from bench.config.spec import METHOD_NAME, NAME, MethodRequest, Override
from bench.errors import InputError
from bench.records.record import EXTERNAL, RunRecord
from bench.registry import METHODS, discover

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
class UnquotedPath:
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


def find_unquoted_path(text: str) -> UnquotedPath | None:
    """Return the first path in a text of methods that is on disk and is only read whole in quotes.

    A path with backslashes before its commas and brackets, or with quotes around parts of it, is looked for
    without them. Of several such paths all are in quotes in what to type.
    """
    first = _find_first_unquoted(text)
    while first and (more := _find_first_unquoted(first.typed)) and more.needed:
        first = replace(first, typed=more.typed)
    return first


def _find_first_unquoted(text: str) -> UnquotedPath | None:
    return next((found for start in _bare_paths(text) if (found := _longest_path(text, *start))), None)


def quoting_hint(text: str) -> str | None:
    """Return what to type for a text that is no method, where it may lack the quotes of a path."""
    if found := find_unquoted_path(text):
        return f"type {shlex.quote(found.typed)}"
    for match, begin in _bare_paths(text):
        path, colon, last = text[begin:].rpartition(":")
        path, more = (path, colon + last) if _WORD.fullmatch(last) else (text[begin:], "")
        cut = re.split(r"[][,]", path)[0].strip()
        there = _path_exists(cut) or _path_exists(cut.rpartition(":")[0])
        if not match["of"] and len(cut) < len(path.strip()) and not there:
            typed = _insert_quotes(text, match, begin, len(text) - len(more), path.strip())
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
    if bare == path or not _path_exists(bare):
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


def _longest_path(text: str, match: re.Match[str], begin: int) -> UnquotedPath | None:
    """The longest path from a place on that is on disk, where reading the text as it is would cut it."""
    depths = bracket_depths(text)
    outer = depths[begin - 1] or 0
    summed = bool(match["of"]) or match[0].lstrip()[:1] in ("+", "*")
    cuts = _CUTS if summed else _CUTS.replace("+", "")
    ends = [at for at in range(begin, len(text)) if text[at] in _ENDS]
    own = (at for at in ends if text[at] in cuts and (depth := depths[at]) is not None and depth <= outer)
    first = next(own, len(text))
    whole = text[begin:first].strip()
    needed = not _path_exists(whole) and not _path_exists(whole.rpartition(":")[0])
    for end in reversed([*ends, len(text)]):
        path = text[begin:end].strip()
        without = (_ESCAPED.sub(r"\1", path), path.replace('"', ""), path.replace("'", ""))
        for each in (path, *without):
            if _path_exists(each) and (end > first or each != path):
                return UnquotedPath(each, _insert_quotes(text, match, begin, end, each), needed)
    return None


def _insert_quotes(text: str, match: re.Match[str], begin: int, end: int, path: str) -> str:
    """The text with a path in quotes, without quotes around the whole method."""
    before, after, first = text[:begin], text[end:], match[0][:1]
    if first in ('"', "'"):
        before = before[: match.start()] + before[match.start() + 1 :]
        after = after.replace(first, "", 1)
    return before + quote_path(path) + after


def _path_exists(path: str) -> bool:
    return bool(path) and os.path.exists(os.path.expanduser(path))


MAX_SEEDS = 10_000


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


def quote_value(value: str) -> str:
    """Return an option's value as it is written in a method's brackets, so that it is read as itself.

    A backslash makes a comma, a bracket or a backslash a part of the value. A value that is a method with
    options of its own stays as it is.
    """
    depths = bracket_depths(value, inside=True)
    escapes = any(char == "\\" and depth == 0 for char, depth in zip(value, depths, strict=True))
    whole = split_outside_brackets(value, inside=True) == [value] and _is_balanced(value, inside=True)
    return value if whole and not escapes else re.sub(r"([\\,\[\]])", r"\\\1", value)


def _unescape_value(value: str) -> str:
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
    unquoted = None if recorded else find_unquoted_path(text)
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
        options[key.strip()] = _unescape_value(value.strip())
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


def match_recorded_id(
    text: str,
    names: Collection[str],
    records: Iterable[RunRecord] = (),
    folder_hash: Callable[[MethodRequest], str | None] = lambda _: None,
) -> str:
    """Return the name, of those that records have, that a text means; the text itself if none or several.

    Options may stand in any order, values be written otherwise, and one option stand after a colon. Where
    records are given, options may also have the value that the profile gives them, and a row with a name of
    its own may be called by all that was typed for it, NAME=METHOD. A row that is called by its folder's name
    and hash is meant by the folder's path too, if ``folder_hash`` finds that.

    >>> names = ["untrained", "untrained[pooling=avg]", "tncse[icnce=False,lr=1e-05]"]
    >>> match_recorded_id("untrained:avg", names), match_recorded_id("tncse[lr=1e-5, icnce=false]", names)
    ('untrained[pooling=avg]', 'tncse[icnce=False,lr=1e-05]')
    >>> match_recorded_id("untrained", names), match_recorded_id("simcse", names)
    ('untrained', 'simcse')
    """
    asked = _parse_recorded(text)
    if text in names or asked is None:
        return text
    found = [name for name in names if (row := _parse_recorded(name)) and _is_same_method(asked, row)]
    found = found or _match_options(asked, records, folder_hash(asked))
    return found[0] if len(found) == 1 else text


def _match_options(asked: MethodRequest, records: Iterable[RunRecord], model: str | None) -> list[str]:
    """Rows of which every record has the asked options, and whose name says no other."""
    if (ours := _request_options(asked)) is None:
        return []
    if model is not None:
        rows = [r for r in records if r.name == asked.name and (r.backbone or {}).get("sha256") == model]
        return list(dict.fromkeys(row.method for row in rows if ours.items() <= _record_options(row).items()))
    fits: dict[str, bool] = {}
    for record in records:
        if asked.name == record.name and asked.alias in (None, record.method):
            fits[record.method] = fits.get(record.method, True) and _record_fits(asked, ours, record)
    return [method for method, fit in fits.items() if fit]


def _record_options(record: RunRecord) -> dict[str, str | float]:
    return {option: _parse_value(str(value)) for option, value in record.options.items()}


def _record_fits(asked: MethodRequest, ours: Mapping[str, str | float], record: RunRecord) -> bool:
    had = _record_options(record)
    named: Mapping[str, str | float] = {}
    if not asked.alias:  # else the row's name says nothing of its options
        row = _parse_recorded(record.method)
        said = None if row is None or (row.name, row.alias) != (asked.name, None) else _request_options(row)
        if said is None:
            return False
        named = said
    ours = {**dict.fromkeys(zero_steps(ours, had), 0.0), **ours}
    had = {**named, **had}  # a ``match`` stands in the name alone
    return named.keys() <= ours.keys() and named.items() <= had.items() and ours.items() <= had.items()


def _request_options(request: MethodRequest) -> dict[str, str | float] | None:
    """The options that a request gives, that after its colon too; None where they can't be told."""
    options = _parse_options(request)
    if request.argument is None:
        return options
    try:
        _, short = split_argument(request, discover().get(request.name).card)
    except InputError:  # no such method here, or nothing that it takes
        return None
    return options | ({short[0]: _parse_value(short[1])} if short else {})


def _parse_recorded(text: str) -> MethodRequest | None:
    try:
        (request,) = parse_methods(text, recorded=True)
    except (InputError, ValueError):  # no method, or several
        return None
    return request


def _is_same_method(asked: MethodRequest, row: MethodRequest) -> bool:
    if (asked.name, asked.alias) != (row.name, row.alias):
        return False
    ours, theirs = _parse_options(asked), _parse_options(row)
    if asked.argument == row.argument:
        return ours == theirs
    more = [value for option, value in theirs.items() if option not in ours]
    return (
        row.argument is None
        and more == [_parse_value(asked.argument or "")]
        and ours.items() <= theirs.items()
    )


def _parse_options(request: MethodRequest) -> dict[str, str | float]:
    return {option: _parse_value(value) for option, value in request.options}


def _parse_value(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text.lower() if text.lower() in ("true", "false") else text


def split_argument(request: MethodRequest, card: MethodCard) -> tuple[str | None, tuple[str, str] | None]:
    """Split NAME:ARGUMENT into a model path and the short option (name, value); raises InputError."""
    argument, where = request.argument, f"--methods {request.text}"
    if card.takes_path:
        if argument is None:
            raise InputError(f"'{card.name}' needs a model", where=where, expected=f"{card.name}:PATH")
        if request.in_quotes:
            return _split_quoted_path(argument, card, where)
        path, colon, last = argument.rpartition(":")
        if not colon or not card.short_option or "/" in last or "\\" in last:
            return argument, None
        if last not in card.option(card.short_option, where).choices and Path(argument).exists():
            return argument, None  # the colon is the path's
        return path, (card.short_option, last)
    if argument is None:
        return None, None
    if card.short_option is None:
        raise InputError(f"'{card.name}' takes nothing after a colon", where=where, expected=card.name)
    if request.in_quotes:
        raise InputError(f"'{card.name}' takes no path", where=where, expected="no quotes")
    return None, (card.short_option, argument)


def _split_quoted_path(argument: str, card: MethodCard, where: str) -> tuple[str, tuple[str, str] | None]:
    """Split a path in quotes from the short option behind it; raises InputError."""
    path, rest = split_path(argument)
    if not rest:
        return path, None
    if card.short_option is None:
        what = f"'{card.name}' takes nothing after its path, and there is '{rest}'"
        raise InputError(what, where=where, expected=f"{card.name}:{quote_path(path)}")
    return path, (card.short_option, rest.removeprefix(":").strip())
