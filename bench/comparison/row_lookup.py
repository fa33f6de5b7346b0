"""Find the row of a campaign that a user names: by its id in any spelling, or by its method."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Sequence

from bench.config.method_ids import match_recorded_id, parse_method
from bench.errors import InputError, unknown_name
from bench.nn.model_folder import hash_requested_model
from bench.records.imported import MARK
from bench.records.record import RunRecord
from bench.render.method_names import printed_name

_PRINTED = re.compile(r"([^,\[\]]+?)\s*,\s*([\w.]+\s*=.*)")
"""A row's name as tables print it, such as ``SimCSE, steps=20``."""


def find_row(text: str, names: Collection[str], records: Iterable[RunRecord] = (), *, where: str) -> str:
    """Return the id of the row that a text names.

    Args:
        text: A row's id, with its options in any spelling or only some of them, or the name of a method of
            which there is one row. The papers' names count too, and case doesn't.
        names: Ids of the rows.
        records: Records of these rows; without them, only an id tells a row's method.
        where: Command or option, for the error.

    Raises:
        InputError: no such row, or several.

    >>> rows = ["simcse[eval_every=10,steps=20]", "tncse", "tncse[nce=False]"]
    >>> [find_row(text, rows, where="test") for text in ("SimCSE", "simcse[steps=20]", "TNCSE")]
    ['simcse[eval_every=10,steps=20]', 'simcse[eval_every=10,steps=20]', 'tncse']
    """
    rows = search_rows(text, names, records)
    if len(rows) == 1:
        return rows[0]
    if rows:
        listed = ", ".join(map(shlex.quote, rows))
        raise InputError(f"'{text}' names {len(rows)} rows", where=where, expected=f"one of {listed}")
    raise unknown_name("method", text, names, where=where)


def search_rows(text: str, names: Collection[str], records: Iterable[RunRecord] = ()) -> list[str]:
    """Return the ids of the rows that a text may mean, see :func:`find_row`; one of them if it is clear."""
    records, text = list(records), text.strip().removesuffix(MARK)
    row = match_recorded_id(text, names, records, hash_requested_model)
    if row in names:
        return [row]
    if same := [name for name in names if name.casefold() == text.strip().casefold()]:
        return same
    if printed := _PRINTED.fullmatch(text.strip()):
        text = f"{printed[1]}[{printed[2]}]"
    if ends := [name for name in names if _fold(name.rpartition("/")[2]) == _fold(text)]:
        return ends
    head, bracket, _ = text.partition("[")
    rows = _list_rows_of_method(head, names, records)
    if not bracket:
        plain = [name for name, method in rows.items() if name == method]
        return plain if len(plain) == 1 else list(rows)
    asked = _read_options(f"method[{text.partition('[')[2]}")
    return [name for name in rows if asked and asked <= _read_options(name)]


def _list_rows_of_method(head: str, names: Collection[str], records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the rows of the methods that have a name, each with its method."""
    methods = {record.method: record.name for record in records}
    sought = _fold(head)
    rows = {}
    for name in names:
        method = methods.get(name) or name.partition("[")[0]
        if sought and sought in (_fold(method), _fold(printed_name(method))):
            rows[name] = method
    return rows


def _fold(name: str) -> str:
    """A name without case and blanks: ``TNCSE + UC`` is ``TNCSE+UC``."""
    return "".join(name.split()).casefold()


def _read_options(text: str) -> set[tuple[str, str]]:
    """Return the options of a row's id; values in lower case."""
    try:
        options = parse_method(text, "", recorded=True).options
    except InputError:
        return set()
    return {(name, _normalise_value(value)) for name, value in options}


def _normalise_value(value: str) -> str:
    try:
        return repr(float(value))
    except ValueError:
        return value.strip().lower()
