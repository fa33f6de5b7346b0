"""Choose, order and name the methods of a report."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.comparison.row_lookup import find_row, search_rows
from bench.comparison.selection import group_by
from bench.config.method_ids import split_outside_brackets
from bench.errors import InputError
from bench.records.imported import MARK, is_imported
from bench.records.record import RunRecord
from bench.render.method_names import printed_name
from bench.render.row_names import RowNames, RowParts, name_rows
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method
from bench.reports.tables.published_figures import paper_backbone, published_names, released_checkpoint

PUBLISHED = "published"
"""Value of ``--names`` for the papers' names."""
_MOST = 200  # characters of a name
_MODEL = re.compile(r"[\w.-]+/([\w.-]+(?:@[\w.-]+)?(?: \(.*\))?)", re.DOTALL)
"""A model of a hub with its organisation, revision and settings."""
_POOLINGS = {"avg": "avg.", "avg_first_last": "first-last avg.", "cls": "[CLS]"}


def parse_method_list(text: str | None, records: Collection[RunRecord]) -> tuple[str, ...]:
    """Return the methods of ``--methods`` in its order; raises InputError for an unknown or repeated one."""
    texts, where = split_outside_brackets(text) if text is not None else (), "--methods"
    known = set(by_method(records))
    methods = tuple(find_row(each, known, records, where=where) for each in texts)
    for method in methods:
        if methods.count(method) > 1:
            raise InputError(f"'{method}' is listed twice", where=where)
    return methods


def restrict_campaign(
    campaign: Campaign, methods: Sequence[str], known: Iterable[RunRecord], *, given: bool = False
) -> Campaign:
    """Return a campaign of chosen methods (empty: all), with the sweeps whose methods are all among them.

    ``known`` are the records of all methods; with ``given``, rows stand in the order of ``methods``. Raises
    InputError for an order of unlisted methods.
    """
    if not methods:
        if given:
            hint = "list them: --methods tncse,simcse"
            raise InputError("no methods are given", where="--order given", hint=hint)
        return campaign
    records = campaign.records
    if given:
        records = tuple(sorted(records, key=lambda record: methods.index(record.method)))
    sweeps = []
    for sweep in campaign.sweeps:
        if all(method in methods for *_, method in sweep.points):
            sweeps.append(sweep)
    by_id = by_method(known)
    places = {(record.method, record.profile, record.suite) for runs in by_id.values() for record in runs}
    total = len(by_id)
    return replace(
        campaign,
        records=records,
        sweeps=tuple(sweeps),
        given=tuple(methods) * given,
        named=tuple(methods),
        known=total * (total > len(methods)),
        known_by=Counter((profile, suite) for _, profile, suite in places),
    )


def name_methods(campaign: Campaign, source: str | None, known: Sequence[RunRecord]) -> Campaign:
    """Return a campaign whose methods have names: those of a file, otherwise as papers print them.

    ``source`` is PUBLISHED, or a file of lines ``method = "name"`` of methods in ``known``; by default ids
    stay. Raises InputError for an unreadable file, an unknown method, or two methods of one name.
    """
    if source is None:
        return campaign
    given = {} if source == PUBLISHED else _read_names(Path(source), campaign.records, known)
    named = _published_rows(campaign.records)
    names = {**named.names, **{row: name for row, name in given.items() if row in named.names}}
    for name, methods in group_by(names, names.__getitem__).items():
        if len(methods) > 1:
            what, hint = f"{' and '.join(methods)} would both be called '{name}'", "name each in a file"
            raise InputError(what, where="--names", hint=hint)
    used = {name for row, name in names.items() if row not in given}
    footnotes = {name: note for name, note in named.footnotes.items() if name in used}
    return replace(campaign, names=names, footnotes=footnotes)


def name_rows_in_full(campaign: Campaign) -> Campaign:
    """Return a campaign for data: names that were chosen, with the options that tables have in footnotes."""
    names = dict(campaign.names)
    for row, runs in by_method(campaign.records).items():
        if names.get(row) in campaign.footnotes:
            names[row] = paper_name(runs)
    return replace(campaign, names=names, footnotes={})


def use_published_names(campaign: Campaign) -> Campaign:
    """Return a campaign with published names, unless it has names; options that rows share are footnotes."""
    if campaign.names:
        return campaign
    named = _published_rows(campaign.records)
    return replace(campaign, names=named.names, footnotes=named.footnotes)


def use_short_ids(campaign: Campaign) -> Campaign:
    """Return a campaign with ids as short as they can be, unless it has names.

    A command takes such an id for the row, see :func:`bench.comparison.row_lookup.find_row`.
    """
    if campaign.names:
        return campaign
    rows = {}
    for row, runs in by_method(campaign.records).items():
        options = _split_options(runs[0])
        if is_imported(runs[0]):
            rows[row] = _imported_parts(runs[0])
            continue
        rows[row] = RowParts(runs[0].name, row if options is None else runs[0].name, options or ())
    named = _mark_imported(name_rows(rows, "{}[{}]", ","), campaign.records)
    return replace(campaign, names=named.names, footnotes=named.footnotes)


def _published_rows(records: Collection[RunRecord]) -> RowNames:
    parts = {row: _row_parts(runs) for row, runs in by_method(records).items()}
    return _mark_imported(name_rows(parts), records)


def _mark_imported(named: RowNames, records: Collection[RunRecord]) -> RowNames:
    """Return names in which imported rows are marked, if others stand beside them."""
    imported = {record.method for record in records if is_imported(record)}
    if imported >= set(named.names):
        return named
    names = {}
    for row, name in named.names.items():
        names[row] = f"{name}{MARK}" if row in imported else name
    return replace(named, names=names)


def _backbone_name(name: str) -> str:
    key = name.replace("-", "_")
    printed = printed_name(key)
    return name if printed == key else printed


def paper_name(runs: Sequence[RunRecord]) -> str:
    """Return the papers' name of a method with all its options, by default its id; an alias stays."""
    parts = _row_parts(runs)
    return parts.whole or ", ".join((parts.head, *parts.options))


def _row_parts(runs: Sequence[RunRecord]) -> RowParts:
    """Return the parts of a row's published name; the id where its runs would have several."""
    parts = set(map(_record_parts, runs))
    return parts.pop() if len(parts) == 1 else RowParts(runs[0].name, runs[0].method, (), runs[0].method)


def _split_options(record: RunRecord) -> tuple[str, ...] | None:
    """Return the options in a row's id, None for an id that doesn't begin with the method's name."""
    options = record.method.removeprefix(record.name)
    if not record.method.startswith(record.name) or options[:1] not in ("", "["):
        return None
    return tuple(split_outside_brackets(options[1:-1], inside=True)) if options else ()


def _record_parts(record: RunRecord) -> RowParts:
    if is_imported(record):
        return _imported_parts(record)
    head, options = record.name, _split_options(record)
    if checkpoint := released_checkpoint(record):
        name = f"{printed_name(checkpoint.method)} ({_backbone_name(checkpoint.backbone)}, released)"
        return RowParts(head, name, (), name)
    if options is None:
        return RowParts(head, record.method, (), record.method)
    backbone = _backbone_name(paper_backbone(record))
    pooling = str(record.options.get("pooling", "cls"))
    if head == "untrained" and options in ((), (f"pooling={pooling}",)) and pooling in _POOLINGS:
        name = f"{backbone} ({_POOLINGS[pooling]})"
        return RowParts(head, name, options, name)
    printed = ((name, printed_name(name)) for name in (head, *published_names(record)))
    name = next((print_name for name, print_name in printed if print_name != name), head)
    name = {"untrained": backbone, "whitening": f"{backbone}-whitening"}.get(head, name)
    return RowParts(head, name, options)


def _imported_parts(record: RunRecord) -> RowParts:
    """Return the name of an imported row, without the organisation; where rows share it, ids stay."""
    model = _MODEL.fullmatch(record.method)
    return RowParts(record.name, model[1] if model else record.method)


def _read_names(path: Path, records: Sequence[RunRecord], known: Sequence[RunRecord]) -> Mapping[str, str]:
    """Read the names of rows: of the report's ``records``, and of others, which may be left out of it."""
    where, rows = f"--names {path}", list(by_method(records))
    try:
        names = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        expected = f"a file, or '{PUBLISHED}'"
        raise InputError(f"can't be read: {error.strerror}", where=where, expected=expected) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"invalid TOML: {error}", where=where, expected='"METHOD" = "name" lines') from error
    found: dict[str, str] = {}
    for method, name in names.items():
        pool = records if search_rows(method, rows, records) else known
        row = find_row(method, list(by_method(pool)), pool, where=where)
        if row in found:
            raise InputError(f"'{row}' is named twice", where=where)
        if not isinstance(name, str) or not name.strip() or len(name) > _MOST:
            expected = f"a text of at most {_MOST} characters"
            raise InputError(f"no name for '{method}'", where=where, expected=expected)
        found[row] = " ".join(name.split())
    return found
