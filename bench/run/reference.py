"""The gate's reference: read it from a folder or a git revision, repeat its specification, replace it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from bench.data.tar import members
from bench.errors import CellFailedError, DataError, InputError, unknown
from bench.gate.verdict import BROKEN, CellVerdict, Key
from bench.plan.plan import Plan, make_plan
from bench.records.facts import differing
from bench.records.provenance import git
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.request.parse import split_outside_brackets
from bench.request.spec import MethodRequest, RunSpec
from bench.run.rerun import spec_of

DEFAULT = "results/reference"
CAMPAIGN = "check"
MAX_REFERENCE = 10**9
"""Bytes of a reference that comes from a git revision."""
_MADE_BY = "bench run --campaign reference --methods NAME,... --seeds 1-3 makes one"


def open_reference(text: str, scratch: Path) -> ResultStore:
    """Return the reference's store: a campaign folder, or a copy of one as a git revision has it.

    Args:
        text: Folder, or ``REV`` or ``REV:FOLDER`` (below the repository's root; default results/reference).
        scratch: Where the copy goes. The work tree isn't touched.

    Raises:
        InputError: neither a folder nor a revision, or no such folder in it.
        DataError: the revision's folder holds a link or a name that leads out of it.
    """
    folder = Path(text)
    if folder.is_dir():
        resolved = folder.resolve()
        return ResultStore(resolved.parent, resolved.name)
    archive = scratch / "reference.tar"
    _archive(text, archive)
    extract(archive, scratch / "reference")
    return ResultStore(scratch, "reference")


def _archive(text: str, target: Path) -> None:
    """Write the tar file of a revision's folder."""
    revision, _, path = text.partition(":")
    commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise InputError(
            f"'{text}' is neither a campaign folder nor a git revision",
            where="--reference",
            expected="a folder such as results/reference, or REV[:FOLDER]",
            hint=f"{_MADE_BY}; a revision that isn't here yet: git fetch",
        )
    path = path.strip("/") or DEFAULT
    tree = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}:{path}")
    if tree is None or git("cat-file", "-t", tree) != "tree":
        raise InputError(f"revision {revision} has no folder '{path}'", where="--reference", hint=_MADE_BY)
    root = git("rev-parse", "--show-toplevel") or git("rev-parse", "--git-dir") or "."
    if git("-C", root, "archive", "--format=tar", f"--output={target}", tree) is None:
        raise InputError(f"git can't archive '{text}'", where="--reference")


def extract(archive: Path, folder: Path) -> None:
    """Copy a tar file's regular files into a folder, and nothing else.

    Raises:
        DataError: a link, a device, or a name that leads out of the folder.
    """
    folder.mkdir()
    for member in members(archive, MAX_REFERENCE):
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


def load(
    store: ResultStore, methods: str | None = None, seeds: Sequence[int] | None = None
) -> list[RunRecord]:
    """Return a campaign's records; one whose predictions aren't its own is returned as failed.

    Args:
        store: The campaign.
        methods: Only these, comma-separated ids as in the report.
        seeds: Only these; deterministic methods stay.

    Raises:
        InputError: no such campaign, or a method or seeds that it hasn't.
        DataError: a damaged record.
    """
    records = store.records()
    if methods is not None:
        wanted = split_outside_brackets(methods)
        known = {record.method for record in records}
        for name in wanted:
            if name not in known:
                raise unknown("method", name, known, where=f"--methods, campaign {store.campaign}")
        records = [record for record in records if record.method in wanted]
    if seeds is not None:
        records = [record for record in records if record.seed is None or record.seed in seeds]
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


def check_whole(records: Sequence[RunRecord], campaign: str) -> None:
    """Raise DataError if a record of the reference failed."""
    for record in records:
        if record.status != "ok":
            run = "" if record.seed is None else f" seed {record.seed}"
            raise DataError(
                f"{record.method}{run} on {record.suite} is not a result: {record.reason}",
                where=f"reference {campaign}",
                hint="run it again; a reference holds finished records only",
            )


def plans(records: Sequence[RunRecord], data: Path | None, results: Path, workers: int) -> list[Plan]:
    """Plan the cells that a reference's records came from, under a folder of results.

    A record under its method's registered name asks for what its profile gives now, so that a changed profile
    is noticed; any other has its own options.

    Raises:
        InputError: a model that no profile names, or data that aren't there.
    """
    cells: dict[Key, list[RunRecord]] = {}
    for record in records:
        cells.setdefault((record.profile, record.method, record.suite), []).append(record)
    methods: dict[RunSpec, list[MethodRequest]] = {}
    for found in cells.values():
        spec = _cell_spec(found, data, results)
        alone = replace(spec, methods=(), workers=workers, campaign=CAMPAIGN)
        methods.setdefault(alone, []).extend(spec.methods)
    return [make_plan(replace(spec, methods=tuple(wanted))) for spec, wanted in methods.items()]


def _cell_spec(records: Sequence[RunRecord], data: Path | None, results: Path) -> RunSpec:
    record = records[0]
    if record.name in ("hf", "st", "vectors") or "@" in record.profile:
        raise InputError(
            f"{record.method} was made with a model that its profile doesn't name",
            where="bench check",
            hint="run its cells with bench run, then bench check --results DIR --campaign NAME",
        )
    spec = spec_of(record, data, None, None, (), results)
    (request,) = spec.methods
    if record.method == record.name:
        spec, request = replace(spec, overrides=()), replace(request, options=())
    else:
        request = replace(request, alias=record.method)
    seeds = sorted(record.seed for record in records if record.seed is not None)
    return replace(spec, methods=(request,), seeds=tuple(seeds) or spec.seeds)


def changed(planned: Sequence[Plan], records: Sequence[RunRecord]) -> dict[Key, tuple[str, ...]]:
    """Return what of each cell's specification is no longer the reference's, in words."""
    by_place = {record.place: record for record in records}
    found: dict[Key, tuple[str, ...]] = {}
    for plan in planned:
        for job in plan.jobs:
            record = by_place.get(job.place)
            key = (job.cell.profile, job.cell.method, job.suite)
            if record is None:
                found[key] = ("the reference's records carry other seeds than this method takes now",)
            elif differences := differing(record, job.record):
                found[key] = tuple(map(str, differences))
    return found


def update(
    reference: ResultStore, source: ResultStore, new: Sequence[RunRecord], cells: Sequence[CellVerdict]
) -> None:
    """Put new records in the place of a reference's, cell by cell, each record atomically.

    Args:
        reference: The reference's campaign.
        source: The campaign of the new records.
        new: The new records.
        cells: The verdicts on the cells to replace.

    Raises:
        CellFailedError: a cell failed or has no record; nothing is replaced.
        DataError: predictions that are missing; nothing is replaced.
    """
    if broken := [cell for cell in cells if cell.status in BROKEN]:
        names = ", ".join(cell.key[1] for cell in broken)
        raise CellFailedError(f"the reference stays as it was: {names} failed or is missing")
    keys = {cell.key for cell in cells}
    records = [record for record in new if (record.profile, record.method, record.suite) in keys]
    whole = [(record, source.predictions(record)) for record in records]
    reference.prepare()
    for record, predictions in whole:
        with reference.claim(record.place, wait=True):
            reference.write(record.place, record, predictions)
    kept = {record.place for record in records}
    for record in reference.records():
        if (record.profile, record.method, record.suite) in keys and record.place not in kept:
            path = reference.path(record.place)
            path.unlink()
            path.with_suffix(".npz").unlink(missing_ok=True)
