"""The gate's reference: reading it from a folder or a git revision, repeating and replacing it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from statistics import fmean

from bench.comparison.row_lookup import find_row
from bench.comparison.selection import group_by
from bench.config.method_ids import split_outside_brackets
from bench.config.run_spec import MethodRequest, Plugin, RunSpec
from bench.data.tar import iter_members
from bench.errors import CellFailedError, DataError, InputError, printable
from bench.execution.repetition import build_rerun_spec
from bench.gate.drops import cell_key, list_record_seeds, name_run
from bench.gate.kept_encoders import CAMPAIGN, find_encoder_folder, has_encoder
from bench.gate.verdict import AVERAGE, BROKEN, CellVerdict, Key, cell_name
from bench.plan.plan import Plan, make_plan
from bench.records.environment import run_git
from bench.records.filesystem import write_atomically
from bench.records.fingerprint import JUDGED, KEYED, find_fact_differences
from bench.records.imported import is_imported
from bench.records.integrity import find_record_clashes
from bench.records.record import EXTERNAL, RunRecord
from bench.records.store import ResultStore
from bench.version import __version__

DEFAULT = "results/reference"
CHANGES = "CHANGES.md"
_REPEATED = tuple(fact for fact in KEYED if fact not in JUDGED)
_HEAD = "# Changes of this reference\n\nEach by `bench check --update --why`.\n"
MAX_REFERENCE = 10**9
"""Most bytes of a reference from a git revision."""
_WRONG = "its predictions are missing or not its own"
_MADE_BY = "bench run --campaign reference --methods NAME,... --seeds 1-3 makes one"


def open_reference(text: str, scratch: Path, *, new: bool = False) -> ResultStore:
    """Return the reference's store: a campaign folder, or a copy in ``scratch`` of one in a git revision.

    The text is a folder, ``REV`` or ``REV:FOLDER`` (below the repository's root; default results/reference).
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
    revision, _, path = text.partition(":")
    commit = run_git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise InputError(
            f"'{text}' is neither a campaign folder nor a git revision",
            where="--reference",
            expected="a folder such as results/reference, or REV[:FOLDER]",
            hint=f"{_MADE_BY}; git fetch gets a revision",
        )
    path = path.strip("/") or DEFAULT
    tree = run_git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}:{path}")
    if tree is None or run_git("cat-file", "-t", tree) != "tree":
        raise InputError(f"revision {revision} has no folder '{path}'", where="--reference", hint=_MADE_BY)
    root = run_git("rev-parse", "--show-toplevel") or run_git("rev-parse", "--git-dir") or "."
    if run_git("-C", root, "archive", "--format=tar", f"--output={target}", tree) is None:
        raise InputError(f"git can't archive '{text}'", where="--reference")


def extract_reference(archive: Path, folder: Path) -> None:
    """Copy a tar file's regular files into a folder; raise DataError for others and for names out of it."""
    folder.mkdir()
    for member in iter_members(archive, MAX_REFERENCE):
        if not member.is_safe:
            what = f"'{member.name}' is not a plain file below its folder"
            raise DataError(what, where="--reference", expected="records and predictions of bench run")
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
    """Return a campaign's records of methods (comma-separated ids) and seeds; default all.

    Deterministic methods stay for any seeds. A record with wrong predictions is returned as failed.
    """
    records = store.records()
    if methods is not None:
        known = {record.method for record in records}
        where = f"--methods, campaign {store.campaign}"
        wanted = [find_row(name, known, records, where=where) for name in split_outside_brackets(methods)]
        records = [record for record in records if record.method in wanted]
    if seeds is not None:
        selected = [record for record in records if record.seed is None or record.seed in seeds]
        if not may_lack:
            _check_seeds(store, records, selected, seeds)
        records = selected
    if not records:
        where = f"campaign {store.campaign}"
        raise InputError("no record is left to compare", where=where, hint="bench run makes records")
    for i, record in enumerate(records):
        if not store.is_whole(record.place, record):
            records[i] = _fail(record, _WRONG)
    return records


def _fail(record: RunRecord, reason: str) -> RunRecord:
    return replace(record, status="failed", scores=(), reason=reason)


def _check_seeds(
    store: ResultStore, records: Sequence[RunRecord], selected: Sequence[RunRecord], seeds: Sequence[int]
) -> None:
    """Raise InputError for an unknown seed, or a cell that loses all seeds."""
    known = sorted({record.seed for record in records if record.seed is not None})
    absent = ", ".join(str(seed) for seed in seeds if seed not in known)
    remaining = set(map(cell_key, selected))
    lost = ", ".join(cell_name(key) for key in group_by(records, cell_key) if key not in remaining)
    if known and (absent or lost):
        what = f"no record has seed {absent}" if absent else f"{lost} has none of these seeds"
        where, expected = f"--seeds, campaign {store.campaign}", f"of {', '.join(map(str, known))}"
        raise InputError(what, where=where, expected=expected)


def load_new_records(store: ResultStore) -> list[RunRecord]:
    """Return the gate's own records; raise DataError for damaged ones.

    Copies of other seeds, and contradictory results of one key, count as failed.
    """
    records, damaged = store.scan(with_copies=True)
    for error in damaged.values():
        raise error
    by_place = {record.place: record for record in records}
    for clash in find_record_clashes(records):
        first, second = clash.first, clash.second
        by_place[second.place] = _fail(second, f"{name_run(first)} and this {clash.what}")
        if clash.check == "result":
            by_place[first.place] = _fail(first, f"{name_run(second)} and this {clash.what}")
    return list(by_place.values())


def check_reference_records(records: Sequence[RunRecord], campaign: str) -> None:
    """Raise DataError if a record of the reference failed, or is of results made elsewhere."""
    for record in records:
        if is_imported(record):
            what = f"{record.method} on {record.suite} was made elsewhere: no run here repeats it"
            hint = "bench report and bench compare read such records; a reference needs those of bench run"
            raise DataError(what, where=f"reference {campaign}", hint=hint)
        if record.status != "ok":
            run = "" if record.seed is None else f" seed {record.seed}"
            what = f"{record.method}{run} on {record.suite} is not a result: {record.reason}"
            hint = "run it again; a reference has only finished records"
            raise DataError(what, where=f"reference {campaign}", hint=hint)


def select_repeatable_records(
    store: ResultStore, records: Sequence[RunRecord]
) -> tuple[list[RunRecord], list[str]]:
    """Return the records whose cells their profiles repeat, and a line for each other method."""
    repeatable, others = [], dict[str, str]()
    for record in records:
        external = record.name in EXTERNAL and not has_encoder(store, record)
        if external or "@" in record.profile:
            others[record.method] = (
                f"{record.method} was left out: it was made with a model that its profile doesn't name; "
                "bench check --encoder PATH --name NAME compares an encoder"
            )
        else:
            repeatable.append(record)
    if not repeatable:
        raise InputError(
            "every record was made with a model that its profile doesn't name",
            where="bench check",
            hint="bench check --encoder PATH --name NAME compares an encoder, --results DIR records",
        )
    return repeatable, list(others.values())


def plan_reference(
    store: ResultStore,
    records: Sequence[RunRecord],
    data: Path | None,
    results: Path,
    workers: int,
    plugins: tuple[Plugin, ...] = (),
) -> list[Plan]:
    """Plan the cells of a reference's records again, in a folder of results.

    A record under its method's registered name has its profile's options of today; any other has its own.
    """
    methods: dict[RunSpec, list[MethodRequest]] = {}
    for of_cell in group_by(records, cell_key).values():
        spec = _cell_spec(store, of_cell, data, results)
        common = replace(spec, methods=(), workers=workers, campaign=CAMPAIGN, plugins=plugins)
        methods.setdefault(common, []).extend(spec.methods)
    return [make_plan(replace(spec, methods=tuple(requests))) for spec, requests in methods.items()]


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
    """Return the changes of each cell's specification, in words."""
    by_place = {record.place: record for record in records}
    changes: dict[Key, tuple[str, ...]] = {}
    for plan in planned:
        for job in plan.jobs:
            record = by_place.get(job.place)
            key = (job.cell.profile, job.cell.method, job.suite)
            if record is None:
                changes[key] = ("the reference's records carry other seeds than this method takes now",)
            elif differences := find_fact_differences(record, job.record, _REPEATED):
                changes[key] = tuple(map(str, differences))
    return changes


def update_reference(
    reference: ResultStore,
    source: ResultStore,
    new: Sequence[RunRecord],
    cells: Sequence[CellVerdict],
) -> list[str]:
    """Replace a reference's cells by a source's new records, each atomically; return a line a cell."""
    if broken := [cell for cell in cells if cell.status in BROKEN]:
        names = ", ".join(cell.key[1] for cell in broken)
        raise CellFailedError(f"the reference stays as it was: {names} failed or is missing")
    keys = {cell.key for cell in cells}
    records = [record for record in new if cell_key(record) in keys]
    whole = [(record, source.predictions(record)) for record in records]
    present = reference.records() if reference.root.is_dir() else []
    old = [record for record in present if cell_key(record) in keys]
    changes = [_describe_change(cell, old, records) for cell in cells]
    reference.prepare()
    for record, predictions in whole:
        with reference.claim(record.place, wait=True):
            reference.write(record.place, record, predictions)
    places = {record.place for record in records}
    for record in old:
        if record.place not in places:
            path = reference.path(record.place)
            path.unlink()
            path.with_suffix(".npz").unlink(missing_ok=True)
    return changes


def append_change_note(reference: ResultStore, why: str, changes: Sequence[str]) -> None:
    """Add a paragraph to a reference's ``CHANGES.md``: date, version, reason and changes."""
    file = reference.root / CHANGES
    before = file.read_text("utf-8") if file.is_file() else _HEAD
    commit = run_git("rev-parse", "--short=12", "HEAD")
    by = f"bench {__version__}" + (f", commit {commit}" if commit else "")
    lines = [f"\n## {datetime.now(UTC):%Y-%m-%d}, {by}\n", f"{_escape_line(why)}\n"]
    lines += [f"- {_escape_line(change)}" for change in changes]
    write_atomically(file, (before + "\n".join(lines) + "\n").encode("utf-8"))


def _describe_change(cell: CellVerdict, old: Sequence[RunRecord], new: Sequence[RunRecord]) -> str:
    """Describe a cell's change, with scores over all seeds of a side; raise InputError for lost seeds."""
    name = cell_name(cell.key)
    was = [record for record in old if cell_key(record) == cell.key]
    now = [record for record in new if cell_key(record) == cell.key]
    if not was:
        return f"{name}: new"
    seeds = [list_record_seeds(side) for side in (was, now)]
    lost = ", ".join(str(seed) for seed in seeds[0] if seed not in seeds[1])
    if set(seeds[1]) < set(seeds[0]):
        what = f"{name} would lose seeds {lost} of the reference"
        raise InputError(what, where="--update", expected="all seeds of a cell", hint="run them too")
    line = f"{name}: {_format_average(was)} to {_format_average(now)}, {cell.status}"
    if cell.average is None and cell.reasons:
        line += f" ({'; '.join(cell.reasons)})"
    return line + (f"; seeds {lost} gave way to others" if lost else "")


def _format_average(records: Sequence[RunRecord]) -> str:
    scores = [score for record in records if (score := record.score(AVERAGE)) is not None]
    return f"{100 * fmean(scores):.2f}" if scores else "no score"


def _escape_line(text: str) -> str:
    """Escape a text for a line of markdown, so that it cannot add a heading or an entry."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", printable(" ".join(text.split())))
