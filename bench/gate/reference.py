"""The gate's reference: read it from a folder or a git revision, repeat its specification, replace it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from statistics import fmean

from bench.comparison.selection import match_method_id
from bench.config.method_ids import split_outside_brackets
from bench.config.spec import MethodRequest, Plugin, RunSpec
from bench.data.tar import iter_members
from bench.errors import CellFailedError, DataError, InputError, printable, unknown_name
from bench.execution.repetition import build_rerun_spec
from bench.gate.drops import name_run, sort_records_by_seed
from bench.gate.reference_encoders import CAMPAIGN, find_encoder_folder, has_encoder
from bench.gate.verdict import AVERAGE, BROKEN, CellVerdict, Key, cell_name
from bench.plan.plan import Plan, make_plan
from bench.records.environment import run_git
from bench.records.filesystem import write_atomically
from bench.records.fingerprint import JUDGED, KEYED, find_fact_differences
from bench.records.integrity import find_record_copies
from bench.records.record import EXTERNAL, RunRecord
from bench.records.store import ResultStore
from bench.version import __version__

DEFAULT = "results/reference"
CHANGES = "CHANGES.md"
_REPEATED = tuple(fact for fact in KEYED if fact not in JUDGED)
_HEAD = "# Changes of this reference\n\nEach by `bench check --update --why`.\n"
MAX_REFERENCE = 10**9
"""Bytes of a reference that comes from a git revision."""
_MADE_BY = "bench run --campaign reference --methods NAME,... --seeds 1-3 makes one"


def open_reference(text: str, scratch: Path, *, new: bool = False) -> ResultStore:
    """Return the reference's store: a campaign folder, or a copy of one as a git revision has it.

    Args:
        text: Folder, or ``REV`` or ``REV:FOLDER`` (below the repository's root; default results/reference).
        scratch: Where the copy goes. The work tree isn't touched.
        new: The folder is going to be made where there is none.

    Raises:
        InputError: neither a folder nor a revision, or no such folder in it.
        DataError: the revision's folder holds a link or a name that leads out of it.
    """
    folder = Path(text)
    if folder.is_dir() or new:
        resolved = folder.resolve()
        return ResultStore(resolved.parent, resolved.name)
    archive = scratch / "reference.tar"
    _archive_revision(text, archive)
    extract_reference(archive, scratch / "reference")
    return ResultStore(scratch, "reference")


def _archive_revision(text: str, target: Path) -> None:
    """Write the tar file of a revision's folder."""
    revision, _, path = text.partition(":")
    commit = run_git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise InputError(
            f"'{text}' is neither a campaign folder nor a git revision",
            where="--reference",
            expected="a folder such as results/reference, or REV[:FOLDER]",
            hint=f"{_MADE_BY}; a revision that isn't here yet: git fetch",
        )
    path = path.strip("/") or DEFAULT
    tree = run_git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}:{path}")
    if tree is None or run_git("cat-file", "-t", tree) != "tree":
        raise InputError(f"revision {revision} has no folder '{path}'", where="--reference", hint=_MADE_BY)
    root = run_git("rev-parse", "--show-toplevel") or run_git("rev-parse", "--git-dir") or "."
    if run_git("-C", root, "archive", "--format=tar", f"--output={target}", tree) is None:
        raise InputError(f"git can't archive '{text}'", where="--reference")


def extract_reference(archive: Path, folder: Path) -> None:
    """Copy a tar file's regular files into a folder, and nothing else.

    Raises:
        DataError: a link, a device, or a name that leads out of the folder.
    """
    folder.mkdir()
    for member in iter_members(archive, MAX_REFERENCE):
        if not member.is_safe:
            raise DataError(
                f"'{member.name}' is not a plain file below its folder",
                where="--reference",
                expected="records and predictions as bench run writes them",
            )
        if member.is_folder:
            continue
        target = folder.joinpath(*PurePosixPath(member.name).parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as stream:
            stream.writelines(member.chunks())


def load_gate_records(
    store: ResultStore,
    methods: str | None = None,
    seeds: Sequence[int] | None = None,
    *,
    may_lack: bool = False,
) -> list[RunRecord]:
    """Return a campaign's records; one whose predictions aren't its own is returned as failed.

    Args:
        store: The campaign.
        methods: Only these, comma-separated ids as in the report.
        seeds: Only these; deterministic methods stay.
        may_lack: Seeds that are not there are left to the verdict.

    Raises:
        InputError: no such campaign, or a method or seeds that it hasn't.
        DataError: a damaged record.
    """
    records = store.records()
    if methods is not None:
        known = {record.method for record in records}
        wanted = [match_method_id(each, known, records) for each in split_outside_brackets(methods)]
        for name in wanted:
            if name not in known:
                raise unknown_name("method", name, known, where=f"--methods, campaign {store.campaign}")
        records = [record for record in records if record.method in wanted]
    if seeds is not None:
        kept = [record for record in records if record.seed is None or record.seed in seeds]
        if not may_lack:
            _check_seeds(store, records, kept, seeds)
        records = kept
    if not records:
        raise InputError(
            "no record is left to compare", where=f"campaign {store.campaign}", hint="bench run makes records"
        )
    return [
        record
        if store.is_whole(record.place, record)
        else replace(record, status="failed", scores=(), reason="its predictions are missing or not its own")
        for record in records
    ]


def _check_seeds(
    store: ResultStore, records: Sequence[RunRecord], kept: Sequence[RunRecord], seeds: Sequence[int]
) -> None:
    """Raise InputError for a seed that no record has, and for a cell of which no seed is left."""
    known = sorted({record.seed for record in records if record.seed is not None})
    absent = ", ".join(str(seed) for seed in seeds if seed not in known)
    left = {_cell_key(record) for record in kept}
    lost = ", ".join(dict.fromkeys(cell_name(_cell_key(r)) for r in records if _cell_key(r) not in left))
    if known and (absent or lost):
        raise InputError(
            f"no record has seed {absent}" if absent else f"{lost} has none of these seeds",
            where=f"--seeds, campaign {store.campaign}",
            expected=f"of {', '.join(map(str, known))}",
        )


def load_new_records(store: ResultStore) -> list[RunRecord]:
    """Return the records that the gate itself has made; seeds that are copies of others are failed ones.

    Raises:
        DataError: a damaged record.
    """
    records, damaged = store.scan(with_copies=True)
    for error in damaged.values():
        raise error
    same = {
        second.place: f"{name_run(first)} and this {why}"
        for first, second, why in find_record_copies(records)
    }
    return [
        replace(record, status="failed", scores=(), reason=same[record.place])
        if record.place in same
        else record
        for record in records
    ]


def check_reference_records(records: Sequence[RunRecord], campaign: str) -> None:
    """Raise DataError if a record of the reference failed."""
    for record in records:
        if record.status != "ok":
            run = "" if record.seed is None else f" seed {record.seed}"
            raise DataError(
                f"{record.method}{run} on {record.suite} is not a result: {record.reason}",
                where=f"reference {campaign}",
                hint="run it again; a reference holds finished records only",
            )


def select_repeatable_records(
    store: ResultStore, records: Sequence[RunRecord]
) -> tuple[list[RunRecord], list[str]]:
    """Return the records whose cells can be repeated from what they say, and why others can't, a line each.

    Raises:
        InputError: none can.
    """
    found, others = [], dict[str, str]()
    for record in records:
        external = record.name in EXTERNAL and not has_encoder(store, record)
        if external or "@" in record.profile:
            others[record.method] = (
                f"{record.method} was left out: it was made with a model that its profile doesn't name; "
                "bench check --encoder PATH --name NAME compares an encoder"
            )
        else:
            found.append(record)
    if not found:
        raise InputError(
            "every record was made with a model that its profile doesn't name",
            where="bench check",
            hint="bench check --encoder PATH --name NAME compares an encoder, --results DIR records",
        )
    return found, list(others.values())


def plan_reference(
    store: ResultStore,
    records: Sequence[RunRecord],
    data: Path | None,
    results: Path,
    workers: int,
    plugins: tuple[Plugin, ...] = (),
) -> list[Plan]:
    """Plan the cells that a reference's records came from, under a folder of results.

    A record under its method's registered name asks for what its profile gives now, so that a changed profile
    is noticed; any other has its own options. A model that no profile names is the one that the reference
    keeps next to the record.

    Raises:
        InputError: data that aren't there.
    """
    cells: dict[Key, list[RunRecord]] = {}
    for record in records:
        cells.setdefault(_cell_key(record), []).append(record)
    methods: dict[RunSpec, list[MethodRequest]] = {}
    for found in cells.values():
        spec = _cell_spec(store, found, data, results)
        alone = replace(spec, methods=(), workers=workers, campaign=CAMPAIGN, plugins=plugins)
        methods.setdefault(alone, []).extend(spec.methods)
    return [make_plan(replace(spec, methods=tuple(wanted))) for spec, wanted in methods.items()]


def _cell_spec(store: ResultStore, records: Sequence[RunRecord], data: Path | None, results: Path) -> RunSpec:
    record = records[0]
    folder = find_encoder_folder(store, record.place) if record.name in EXTERNAL else None
    spec = build_rerun_spec(record, data, None if folder is None else str(folder), None, (), results)
    (request,) = spec.methods
    if record.method == record.name:
        spec, request = replace(spec, overrides=()), replace(request, options=())
    else:
        request = replace(request, alias=record.method)
    seeds = sorted(record.seed for record in records if record.seed is not None)
    return replace(spec, methods=(request,), seeds=tuple(seeds) or spec.seeds)


def find_specification_changes(
    planned: Sequence[Plan], records: Sequence[RunRecord]
) -> dict[Key, tuple[str, ...]]:
    """Return what of each cell's specification is no longer the reference's, in words."""
    by_place = {record.place: record for record in records}
    found: dict[Key, tuple[str, ...]] = {}
    for plan in planned:
        for job in plan.jobs:
            record = by_place.get(job.place)
            key = (job.cell.profile, job.cell.method, job.suite)
            if record is None:
                found[key] = ("the reference's records carry other seeds than this method takes now",)
            elif differences := find_fact_differences(record, job.record, _REPEATED):
                found[key] = tuple(map(str, differences))
    return found


def update_reference(
    reference: ResultStore,
    source: ResultStore,
    new: Sequence[RunRecord],
    cells: Sequence[CellVerdict],
) -> list[str]:
    """Put new records in the place of a reference's, cell by cell, each record atomically.

    Args:
        reference: The reference's campaign.
        source: The campaign of the new records.
        new: The new records.
        cells: The verdicts on the cells to replace.

    Returns:
        What changed, for :func:`note`, a line a cell.

    Raises:
        CellFailedError: a cell failed or has no record; nothing is replaced.
        InputError: a cell would lose seeds and get no others; nothing is replaced.
        DataError: predictions that are missing; nothing is replaced.
    """
    if broken := [cell for cell in cells if cell.status in BROKEN]:
        names = ", ".join(cell.key[1] for cell in broken)
        raise CellFailedError(f"the reference stays as it was: {names} failed or is missing")
    keys = {cell.key for cell in cells}
    records = [record for record in new if _cell_key(record) in keys]
    whole = [(record, source.predictions(record)) for record in records]
    there = reference.records() if reference.root.is_dir() else []
    old = [record for record in there if _cell_key(record) in keys]
    changes = [_describe_change(cell, old, records) for cell in cells]
    reference.prepare()
    for record, predictions in whole:
        with reference.claim(record.place, wait=True):
            reference.write(record.place, record, predictions)
    kept = {record.place for record in records}
    for record in old:
        if record.place not in kept:
            path = reference.path(record.place)
            path.unlink()
            path.with_suffix(".npz").unlink(missing_ok=True)
    return changes


def _cell_key(record: RunRecord) -> Key:
    return record.profile, record.method, record.suite


def append_change_note(reference: ResultStore, why: str, changes: Sequence[str]) -> None:
    """Add a paragraph to a reference's ``CHANGES.md``: the date, by what, why, and what changed."""
    file = reference.root / CHANGES
    before = file.read_text("utf-8") if file.is_file() else _HEAD
    commit = run_git("rev-parse", "--short=12", "HEAD")
    by = f"bench {__version__}" + (f", commit {commit}" if commit else "")
    lines = [f"\n## {datetime.now(UTC):%Y-%m-%d}, {by}\n", f"{_escape_line(why)}\n"]
    lines += [f"- {_escape_line(change)}" for change in changes]
    write_atomically(file, (before + "\n".join(lines) + "\n").encode("utf-8"))


def _describe_change(cell: CellVerdict, old: Sequence[RunRecord], new: Sequence[RunRecord]) -> str:
    """Return what changes of a cell, scores over all seeds of a side; raises InputError if it loses some."""
    name = cell_name(cell.key)
    was, now = ([record for record in side if _cell_key(record) == cell.key] for side in (old, new))
    if not was:
        return f"{name}: new"
    seeds = [{record.seed for record in side} for side in (was, now)]
    lost = ", ".join(str(record.seed) for record in sort_records_by_seed(was) if record.seed not in seeds[1])
    if seeds[1] < seeds[0]:
        raise InputError(
            f"{name} would lose seeds {lost} of the reference: the new records lack them",
            where="--update",
            expected="all seeds of a cell, which are replaced together",
            hint="run them too",
        )
    scores = " to ".join(_format_average(side) for side in (was, now))
    line = f"{name}: {scores}, {cell.status}"
    if cell.average is None and cell.reasons:
        line += f" ({'; '.join(cell.reasons)})"
    return line + (f"; seeds {lost} gave way to others" if lost else "")


def _format_average(records: Sequence[RunRecord]) -> str:
    scores = [record.score(AVERAGE) for record in records]
    found = [score for score in scores if score is not None]
    return f"{100 * fmean(found):.2f}" if found else "no score"


def _escape_line(text: str) -> str:
    """What markdown shows as the text, in a line: nothing in it can add a heading or an entry."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", printable(" ".join(text.split())))
