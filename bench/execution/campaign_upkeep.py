"""Rename, copy and remove campaigns, and rows of them: records keep their bytes."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.comparison.row_lookup import find_row
from bench.comparison.selection import group_by
from bench.config.sweep_manifest import load_manifests
from bench.errors import BenchError, InputError, StorageError
from bench.execution.monitor import RunMonitor, find_run_folders
from bench.records.campaign_lookup import check_campaign_options, is_campaign_folder
from bench.records.filesystem import (
    check_new_campaign,
    create_folder_atomically,
    find_temporary_files,
    is_abandoned,
    is_locked,
    temporary_path,
    walk_folder,
)
from bench.records.record import RunRecord, safe_name
from bench.records.sealed_plan import load_plan
from bench.records.store import ResultStore

_OWN_LOCKS = (".probe.lock", "running.lock")  # of questions, not of cells
_LEFT_OUT = (".locks", ".running")  # of processes
_MADE_OF_RECORDS = "report*"


@dataclass(frozen=True)
class CampaignRow:
    """A row of a campaign on disk: its profile, id, folder, and the records and bytes in it."""

    profile: str
    method: str
    folder: Path
    records: int
    size: int


@dataclass(frozen=True)
class RowRemoval:
    """Rows to remove, and sentences on what else names them."""

    rows: tuple[CampaignRow, ...]
    notes: tuple[str, ...]


def open_campaign(results: Path, name: str, *, where: str) -> ResultStore:
    """Return a campaign on disk; raises InputError for a missing one, a wrong name or a link."""
    store = _name_store(results, name, where)
    if store.root.is_symlink():
        what, hint = f"'{name}' is a link to {store.root.resolve()}", "work on the folder itself"
        raise InputError(what, where=where, hint=hint)
    if not is_campaign_folder(store.root):
        check_campaign_options(results, name)
        folders = sorted(path.name for path in results.glob("*/") if is_campaign_folder(path))
        known = f"one of {', '.join(folders)}" if folders else "results of an earlier bench run"
        raise InputError(f"no campaign '{name}' in {results}", where=where, expected=known)
    return store


def _clear_leftovers(results: Path) -> None:
    """Remove what killed copies and removals left in the results folder."""
    for leftover in find_temporary_files(results):
        if leftover.is_dir() and not leftover.is_symlink() and is_abandoned(leftover):
            shutil.rmtree(leftover, ignore_errors=True)


def check_idle(store: ResultStore) -> None:
    """Raise StorageError while a run computes cells of a campaign, or may do so on another machine."""
    runs = []
    for folder in find_run_folders(store.root.parent, store.campaign):
        run = RunMonitor(folder)
        run.look()
        runs.append(run)
    locks = [lock for lock in store.root.glob(".locks/*.lock") if lock.name not in _OWN_LOCKS]
    if any(run.may_run for run in runs) or any(map(is_locked, locks)):
        what = f"a run computes cells of campaign '{store.campaign}'"
        hint = f"bench watch --campaign {store.campaign} shows it; wait, or end it"
        raise StorageError(what, where=str(store.root), hint=hint)


def rename_campaign(results: Path, old: str, new: str, *, dry_run: bool = False) -> tuple[int, list[str]]:
    """Give a campaign another name, at once; return its number of files, and those that name the old one.

    Raises:
        InputError: no such campaign, or a new name that is taken or that some file system refuses.
        StorageError: a run computes its cells, or the folder can't be renamed.
    """
    store = open_campaign(results, old, where="OLD")
    target = _check_new_name(results, new)
    check_idle(store)
    files = len(walk_folder(store.root).files)
    if not dry_run:
        _clear_leftovers(results)
        with _storage_errors(store.root):
            store.root.rename(target)
    return files, _list_stale_files(store.root if dry_run else target)


def copy_campaign(results: Path, old: str, new: str, *, dry_run: bool = False) -> tuple[int, list[str]]:
    """Copy a campaign without its locks, and return as :func:`rename_campaign`.

    The copy gets its name when it is complete. Raises as :func:`rename_campaign`, and InputError for links
    and unreadable folders in it.
    """
    store = open_campaign(results, old, where="OLD")
    target = _check_new_name(results, new)
    check_idle(store)
    contents = walk_folder(store.root)
    odd = [*contents.linked, *contents.closed, *(path for path in contents.files if not path.is_file())]
    odd += [path for path in contents.files if path.is_symlink()]
    if odd:
        what = "this is a link, or can't be read"
        raise InputError(what, where=str(odd[0]), hint="put the file or folder itself there")
    if not dry_run:
        _clear_leftovers(results)
        commit = partial(_refuse_taken, target)
        with _storage_errors(target), create_folder_atomically(target, commit) as folder:
            shutil.copytree(store.root, folder, dirs_exist_ok=True, ignore=_ignore_process_files)
    return len(contents.files), _list_stale_files(store.root)


def remove_campaign(results: Path, name: str, *, dry_run: bool = False) -> tuple[int, int]:
    """Remove a campaign, whose name is free at once; return its number of files, and their bytes.

    Raises as :func:`rename_campaign`.
    """
    store = open_campaign(results, name, where="NAME")
    check_idle(store)
    files = [path for path in store.root.rglob("*") if path.is_file() or path.is_symlink()]
    size = sum(path.lstat().st_size for path in files)
    if not dry_run:
        _remove_folders([store.root], results)
    return len(files), size


def plan_row_removal(
    results: Path, name: str, methods: Sequence[str], profile: str | None = None
) -> RowRemoval:
    """Choose the rows of a campaign to remove, in one profile or in all.

    Raises InputError for an unknown row or profile, and for all rows: that is the whole campaign.
    """
    store = open_campaign(results, name, where="NAME")
    records, damaged = store.scan(with_copies=True)
    places = {path.parents[1] for path in damaged}  # PROFILE/METHOD of records that can't be read
    rows = {(record.profile, record.method) for record in records}
    folders = {store.root / safe_name(row[0]) / safe_name(row[1]) for row in rows}
    rows |= {(place.parent.name, place.name) for place in places - folders}
    profiles = sorted({row[0] for row in rows})
    if profile is not None and profile not in profiles:
        raise InputError(
            f"no profile '{profile}'", where="--profile", expected=f"one of {', '.join(profiles)}"
        )
    known = sorted({row[1] for row in rows if profile in (None, row[0])})
    within = [record for record in records if profile in (None, record.profile)]
    asked = {find_row(method, known, within, where="--methods") for method in methods}
    chosen = sorted(row for row in rows if row[1] in asked and profile in (None, row[0]))
    if len(chosen) == len(rows):
        hint = f"bench campaign remove {name} removes it"
        raise InputError("these are all rows of the campaign", where="--methods", hint=hint)
    removed = [_measure_row(store, *row) for row in chosen]
    return RowRemoval(tuple(removed), tuple(_list_notes(store, chosen, records)))


def remove_rows(results: Path, name: str, removal: RowRemoval) -> None:
    """Remove rows of a campaign; raises StorageError while a run computes its cells."""
    store = open_campaign(results, name, where="NAME")
    check_idle(store)
    _remove_folders([row.folder for row in removal.rows], results)
    for folder in {row.folder.parent for row in removal.rows}:
        if not any(folder.iterdir()):
            folder.rmdir()


def _name_store(results: Path, name: str, where: str) -> ResultStore:
    try:
        return ResultStore(results, name)
    except InputError as error:
        if is_campaign_folder(Path(name)):
            error.hint = f"type {shlex.quote(Path(name).name)}"
            if Path(name).parent != results:
                error.hint += f" --results {shlex.quote(str(Path(name).parent))}"
        error.where = where
        raise


def _check_new_name(results: Path, new: str) -> Path:
    target = _name_store(results, new, "NEW").root
    if os.path.lexists(target):
        hint = "choose another name, or remove it first: bench campaign remove"
        raise InputError(f"'{new}' is there already", where="NEW", hint=hint)
    check_new_campaign(results, new, where="NEW")
    return target


def _refuse_taken(target: Path) -> None:
    """Raise InputError for a name that another process took meanwhile."""
    if os.path.lexists(target):
        raise InputError(f"'{target.name}' is there already", where="NEW", hint="choose another name")


def _ignore_process_files(folder: str, names: list[str]) -> set[str]:
    leftovers = {path.name for path in find_temporary_files(Path(folder))}
    return {name for name in names if name in _LEFT_OUT} | leftovers


def _list_stale_files(root: Path) -> list[str]:
    """Return the reports in a campaign's folder, which name it."""
    return sorted(path.name for path in root.glob(_MADE_OF_RECORDS) if path.is_file())


def _measure_row(store: ResultStore, profile: str, method: str) -> CampaignRow:
    folder = store.root / safe_name(profile) / safe_name(method)
    files = [path for path in folder.rglob("*") if path.is_file()]
    records = sum(path.suffix == ".json" and len(path.relative_to(folder).parts) == 2 for path in files)
    return CampaignRow(profile, method, folder, records, sum(path.stat().st_size for path in files))


def _list_notes(
    store: ResultStore, rows: Sequence[tuple[str, str]], records: Sequence[RunRecord]
) -> Iterator[str]:
    """Yield sentences on what names the removed rows: a sealed plan, grids of sweeps, reports."""
    plan = load_plan(store.root)
    if plan is not None:
        done = {record.place for record in records if (record.profile, record.method) in rows}
        planned = sum(cell.place in done for cell in plan.cells)
        if planned:
            yield (
                f"The sealed plan has {planned} of these runs: reports and bench verify list them as missing."
            )
        if plan.baseline in {method for _, method in rows}:
            yield f"{plan.baseline} is the plan's baseline."
    for sweep, grids in group_by(load_manifests(store.root), lambda grid: grid.sweep).items():
        cells = sum((grid.profile, method) in rows for grid in grids for *_, method in grid.points)
        if cells:
            yield f"Sweep {sweep} loses {cells} of its cells."
    if stale := _list_stale_files(store.root):
        yield f"Made from these records, so make them again: {', '.join(stale)}."


def _remove_folders(folders: Sequence[Path], results: Path) -> None:
    """Take folders out of sight at once, then remove their files."""
    # names in the results folder that no campaign has: a killed process leaves no half row
    _clear_leftovers(results)
    moved = []
    for folder in folders:
        with _storage_errors(folder):
            scratch = temporary_path(results / folder.name)
            folder.rename(scratch)
            moved.append(scratch)
    for scratch in moved:
        with _storage_errors(scratch):
            shutil.rmtree(scratch)


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except BenchError:
        raise
    except (OSError, shutil.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)[:200]
        raise StorageError(f"the folder can't be changed: {reason}", where=str(path)) from error
