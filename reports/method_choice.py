"""Which methods a report shows, in which order, and what it calls them."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.comparison.selection import group_by, match_method_id
from bench.config.method_ids import split_outside_brackets
from bench.errors import InputError, not_one_of
from bench.records.record import RunRecord
from bench.render.names import printed_name
from bench.reports.campaign import Campaign
from bench.reports.tables.published_figures import paper_backbone, published_names, released_checkpoint

PUBLISHED = "published"
"""What ``--names`` takes in the place of a file."""
_MOST = 200  # characters of a name
_POOLINGS = {"avg": "avg.", "avg_first_last": "first-last avg.", "cls": "[CLS]"}


def parse_method_list(text: str | None, records: Collection[RunRecord]) -> tuple[str, ...]:
    """Return the methods that ``--methods`` lists, in its order; none without the option.

    Raises:
        InputError: one that is not known, or one that is listed twice.
    """
    texts, where = split_outside_brackets(text) if text is not None else (), "--methods"
    known = {record.method for record in records}
    methods = tuple(match_method_id(each, known, records) for each in texts)
    for method in methods:
        if method not in known:
            raise not_one_of(f"no record of '{method}'", method, sorted(known), where=where)
        if methods.count(method) > 1:
            raise InputError(f"'{method}' is listed twice", where=where)
    return methods


def restrict_campaign(
    campaign: Campaign, methods: Sequence[str], known: Iterable[RunRecord], *, given: bool = False
) -> Campaign:
    """Return a campaign of these methods as such; its sweeps are those of which all methods are there.

    Args:
        campaign: With the records of these methods alone.
        methods: The methods; empty if all were chosen.
        known: Records of all methods from which they were chosen.
        given: True if rows stand in the order of ``methods``, not the best first.

    Raises:
        InputError: an order without methods.
    """
    if not methods:
        if given:
            raise InputError(
                "no methods are given", where="--order given", hint="list them: --methods tncse,simcse"
            )
        return campaign
    records = campaign.records
    if given:
        records = tuple(sorted(records, key=lambda record: methods.index(record.method)))
    whole = tuple(m for m in campaign.sweeps if {method for *_, method in m.points} <= set(methods))
    places = {(record.method, record.profile, record.suite) for record in known}
    every = len({method for method, *_ in places})
    return replace(
        campaign,
        records=records,
        sweeps=whole,
        given=tuple(methods) if given else (),
        known=every if every > len(methods) else 0,
        known_by=Counter((profile, suite) for _, profile, suite in places),
    )


def name_methods(campaign: Campaign, source: str | None, known: Iterable[str]) -> Campaign:
    """Return a campaign whose methods have names: those of a file, else as papers print them.

    Args:
        campaign: What to name.
        source: PUBLISHED, or a file of lines ``method = "name"``; None to keep the ids.
        known: Methods that the file may name.

    Raises:
        InputError: a file that can't be read, an unknown method, or two methods of one name.
    """
    if source is None:
        return campaign
    own = {} if source == PUBLISHED else _read_names(Path(source), sorted(set(known)))
    names = {method: own.get(method) or paper_name(runs) for method, runs in _runs(campaign).items()}
    for name, methods in group_by(names, names.__getitem__).items():
        if len(methods) > 1:
            raise InputError(
                f"{' and '.join(methods)} would both be called '{name}'",
                where="--names",
                hint="give each a name of its own in a file",
            )
    return replace(campaign, names=names)


def _runs(campaign: Campaign) -> dict[str, list[RunRecord]]:
    return group_by(campaign.records, lambda record: record.method)


def _backbone_name(name: str) -> str:
    key = name.replace("-", "_")
    found = printed_name(key)
    return name if found == key else found


def paper_name(runs: Sequence[RunRecord]) -> str:
    """Return what papers call a method, with its options; its id where its runs disagree or it has none.

    An alias stays as it is: it is the user's own name.
    """
    found = {_record_name(run) for run in runs}
    return found.pop() if len(found) == 1 else runs[0].method


def _record_name(record: RunRecord) -> str:
    if checkpoint := released_checkpoint(record):
        name = printed_name(checkpoint.method)
        return f"{name} ({_backbone_name(checkpoint.backbone)}, released)"
    head, options = record.name, record.method.removeprefix(record.name)
    if not record.method.startswith(head) or not (options == "" or options.startswith("[")):
        return record.method
    backbone = paper_backbone(record)
    backbone = _backbone_name(backbone)
    if head == "untrained":
        pooling = str(record.options.get("pooling", "cls"))
        if options in ("", f"[pooling={pooling}]") and pooling in _POOLINGS:
            return f"{backbone} ({_POOLINGS[pooling]})"
        name = backbone
    elif head == "whitening":
        name = f"{backbone}-whitening"
    else:
        name = next(
            (n for name in (head, *published_names(record)) if (n := printed_name(name)) != name), head
        )
    return f"{name} {options}".rstrip()


def _read_names(path: Path, known: Sequence[str]) -> Mapping[str, str]:
    where = f"--names {path}"
    form = '"METHOD" = "name" lines'
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(
            f"can't be read: {error.strerror}", where=where, expected=f"a file, or '{PUBLISHED}'"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is not TOML: {error}", where=where, expected=form) from error
    for method, name in found.items():
        if method not in known:
            raise not_one_of(f"no record of '{method}'", method, known, where=where)
        if not isinstance(name, str) or not name.strip() or len(name) > _MOST:
            raise InputError(
                f"no name for '{method}'", where=where, expected=f"a text of at most {_MOST} characters"
            )
    return {method: " ".join(name.split()) for method, name in found.items()}
