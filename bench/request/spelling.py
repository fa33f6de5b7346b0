"""One row by several spellings: what `bench run` takes for a method, where a record has one name for it."""

from __future__ import annotations

from collections.abc import Collection

from bench.errors import InputError
from bench.request.parse import parse_methods
from bench.request.spec import MethodRequest


def recorded(text: str, names: Collection[str]) -> str:
    """Return the name, of those that records have, that a text means; the text itself if none or several.

    Options may stand in any order, values be written otherwise, and one option stand after a colon.

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
    return found[0] if len(found) == 1 else text


def _request(text: str) -> MethodRequest | None:
    try:
        (request,) = parse_methods(text)
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
