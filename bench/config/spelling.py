"""One row by several spellings: what `bench run` takes for a method, where a record has one name for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from bench.card import MethodCard
from bench.config.budget import counted_by_epochs
from bench.config.parse import parse_methods
from bench.config.quoting import quote_path, split_path
from bench.config.spec import MethodRequest
from bench.errors import InputError
from bench.records.record import RunRecord
from bench.registry import discover


def recorded(
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
    >>> recorded("untrained:avg", names), recorded("tncse[lr=1e-5, icnce=false]", names)
    ('untrained[pooling=avg]', 'tncse[icnce=False,lr=1e-05]')
    >>> recorded("untrained", names), recorded("simcse", names)
    ('untrained', 'simcse')
    """
    asked = _request(text)
    if text in names or asked is None:
        return text
    found = [name for name in names if (row := _request(name)) and _means(asked, row)]
    found = found or _by_options(asked, records, folder_hash(asked))
    return found[0] if len(found) == 1 else text


def _by_options(asked: MethodRequest, records: Iterable[RunRecord], model: str | None) -> list[str]:
    """Rows of which every record has the asked options, and whose name says no other."""
    if (ours := _said(asked)) is None:
        return []
    if model is not None:
        rows = [r for r in records if r.name == asked.name and (r.backbone or {}).get("sha256") == model]
        return list(dict.fromkeys(row.method for row in rows if ours.items() <= _values(row).items()))
    fits: dict[str, bool] = {}
    for record in records:
        if asked.name == record.name and asked.alias in (None, record.method):
            fits[record.method] = fits.get(record.method, True) and _fits(asked, ours, record)
    return [method for method, fit in fits.items() if fit]


def _values(record: RunRecord) -> dict[str, str | float]:
    return {option: _value(str(value)) for option, value in record.options.items()}


def _fits(asked: MethodRequest, ours: Mapping[str, str | float], record: RunRecord) -> bool:
    had = _values(record)
    named: Mapping[str, str | float] = {}
    if not asked.alias:  # else the row's name says nothing of its options
        row = _request(record.method)
        said = None if row is None or (row.name, row.alias) != (asked.name, None) else _said(row)
        if said is None:
            return False
        named = said
    ours = {**dict.fromkeys(counted_by_epochs(ours, had), 0.0), **ours}
    had = {**named, **had}  # a ``match`` stands in the name alone
    return named.keys() <= ours.keys() and named.items() <= had.items() and ours.items() <= had.items()


def _said(request: MethodRequest) -> dict[str, str | float] | None:
    """The options that a request gives, that after its colon too; None where they can't be told."""
    options = _options(request)
    if request.argument is None:
        return options
    try:
        _, short = split_argument(request, discover().get(request.name).card)
    except InputError:  # no such method here, or nothing that it takes
        return None
    return options | ({short[0]: _value(short[1])} if short else {})


def _request(text: str) -> MethodRequest | None:
    try:
        (request,) = parse_methods(text, recorded=True)
    except (InputError, ValueError):  # no method, or several
        return None
    return request


def _means(asked: MethodRequest, row: MethodRequest) -> bool:
    if (asked.name, asked.alias) != (row.name, row.alias):
        return False
    ours, theirs = _options(asked), _options(row)
    if asked.argument == row.argument:
        return ours == theirs
    more = [value for option, value in theirs.items() if option not in ours]
    return row.argument is None and more == [_value(asked.argument or "")] and ours.items() <= theirs.items()


def _options(request: MethodRequest) -> dict[str, str | float]:
    return {option: _value(value) for option, value in request.options}


def _value(text: str) -> str | float:
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
            return _split_quoted(argument, card, where)
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


def _split_quoted(argument: str, card: MethodCard, where: str) -> tuple[str, tuple[str, str] | None]:
    """Split a path in quotes from the short option behind it; raises InputError."""
    path, rest = split_path(argument)
    if not rest:
        return path, None
    if card.short_option is None:
        what = f"'{card.name}' takes nothing after its path, and there is '{rest}'"
        raise InputError(what, where=where, expected=f"{card.name}:{quote_path(path)}")
    return path, (card.short_option, rest.removeprefix(":").strip())
