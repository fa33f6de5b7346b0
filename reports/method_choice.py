"""Choose, order and name the methods of a report."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.comparison.row_lookup import find_row
from bench.comparison.selection import group_by
from bench.config.method_ids import split_outside_brackets
from bench.errors import InputError, not_one_of
from bench.records.record import RunRecord
from bench.render.method_names import printed_name
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method
from bench.reports.tables.published_figures import paper_backbone, published_names, released_checkpoint

PUBLISHED = "published"
"""Value of ``--names`` for the papers' names."""
_MOST = 200  # characters of a name
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


def name_methods(campaign: Campaign, source: str | None, known: Iterable[str]) -> Campaign:
    """Return a campaign whose methods have names: those of a file, otherwise as papers print them.

    ``source`` is PUBLISHED, or a file of lines ``method = "name"`` of ``known`` methods; by default ids stay.
    Raises InputError for an unreadable file, an unknown method, or two methods of one name.
    """
    if source is None:
        return campaign
    given = {} if source == PUBLISHED else _read_names(Path(source), sorted(set(known)))
    names = {m: given.get(m) or paper_name(runs) for m, runs in by_method(campaign.records).items()}
    for name, methods in group_by(names, names.__getitem__).items():
        if len(methods) > 1:
            what, hint = f"{' and '.join(methods)} would both be called '{name}'", "name each in a file"
            raise InputError(what, where="--names", hint=hint)
    return replace(campaign, names=names)


def use_published_names(campaign: Campaign) -> Campaign:
    """Return a campaign with published names on a page, unless it has names; equal names keep their ids."""
    if campaign.names:
        return campaign
    names = {method: paper_name(runs) for method, runs in by_method(campaign.records).items()}
    shared = {name for name, methods in group_by(names, names.__getitem__).items() if len(methods) > 1}
    distinct = {m: m if name in shared else name for m, name in names.items()}
    return replace(campaign, names=distinct)


def _backbone_name(name: str) -> str:
    key = name.replace("-", "_")
    printed = printed_name(key)
    return name if printed == key else printed


def paper_name(runs: Sequence[RunRecord]) -> str:
    """Return the papers' name of a method with its options, by default its id; an alias stays."""
    names = set(map(_printed_row_name, runs))
    return names.pop() if len(names) == 1 else runs[0].method


def _printed_row_name(record: RunRecord) -> str:
    if checkpoint := released_checkpoint(record):
        return f"{printed_name(checkpoint.method)} ({_backbone_name(checkpoint.backbone)}, released)"
    head, options = record.name, record.method.removeprefix(record.name)
    if not record.method.startswith(head) or options[:1] not in ("", "["):
        return record.method
    backbone = _backbone_name(paper_backbone(record))
    pooling = str(record.options.get("pooling", "cls"))
    if head == "untrained" and options in ("", f"[pooling={pooling}]") and pooling in _POOLINGS:
        return f"{backbone} ({_POOLINGS[pooling]})"
    printed = ((name, printed_name(name)) for name in (head, *published_names(record)))
    name = next((print_name for name, print_name in printed if print_name != name), head)
    name = {"untrained": backbone, "whitening": f"{backbone}-whitening"}.get(head, name)
    return f"{name} {options}".rstrip()


def _read_names(path: Path, known: Sequence[str]) -> Mapping[str, str]:
    where = f"--names {path}"
    try:
        names = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        expected = f"a file, or '{PUBLISHED}'"
        raise InputError(f"can't be read: {error.strerror}", where=where, expected=expected) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"invalid TOML: {error}", where=where, expected='"METHOD" = "name" lines') from error
    for method, name in names.items():
        if method not in known:
            raise not_one_of(f"no record of '{method}'", method, known, where=where)
        if not isinstance(name, str) or not name.strip() or len(name) > _MOST:
            expected = f"a text of at most {_MOST} characters"
            raise InputError(f"no name for '{method}'", where=where, expected=expected)
    return {method: " ".join(name.split()) for method, name in names.items()}
