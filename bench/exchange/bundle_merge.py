"""Merge a bundle into a results folder: check all of it, then add it; its code stays untouched."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout

from bench.config import sweep_manifest as manifest
from bench.data.mteb_names import is_mteb
from bench.errors import DataError, InputError, NotComparableError, StorageError
from bench.eval.rescoring import load_record_tasks
from bench.exchange import campaign_bundle as contents
from bench.plan.plan_sealing import check_equal_plans
from bench.records.filesystem import check_new_campaign, check_new_name, safe_name, write_atomically
from bench.records.integrity import find_record_clashes, seal_record
from bench.records.record import RunRecord, record_to_json
from bench.records.sealed_plan import FILE as PLAN_FILE
from bench.records.sealed_plan import SealedPlan, load_plan, plan_to_json
from bench.records.store import ResultStore
from bench.reports.campaign import make_campaign
from bench.verify import archive
from bench.verify import record_checks as verification
from bench.verify.findings import Verification
from bench.verify.repeatability import RECOMPUTED, describe_shortfall
from bench.verify.rerun_sample import repeat_bundle_cells
from bench.verify.sentence_checks import check_sentences

STAGING = ".merge"  # folder below the results where bundles are verified; the next merge clears it


@dataclass(frozen=True)
class MergeSettings:
    """How a bundle is merged."""

    campaign: str | None = None  # None for the bundle's
    data: Path | None = None  # default BENCH_DATA, then ./data
    rerun: int = 0  # cells to repeat, chosen at random
    choose: int | None = None  # seed of that choice; None for another one each time
    level: str = RECOMPUTED  # what every record has to be
    run_plugins: tuple[str, ...] = ()  # plug-in files of the bundle whose code may run for that
    say: Callable[[str], None] = lambda _: None  # gets lines about the repetitions
    progress: Callable[[int], None] = lambda _: None  # called with verified records


@dataclass
class MergeResult:
    """Outcome of a merge; nothing is added after any finding of the verification, or a shortfall."""

    campaign: str
    verified: Verification
    added: list[str] = field(default_factory=list)  # records by their paths in the campaign
    present: int = 0  # records that were there already, equal except the timing block
    notes: list[str] = field(default_factory=list)
    by: str = ""  # the sender, by its own word
    shortfall: str = ""  # what the required level or the repetitions lack
    hint: str = ""  # its remedy


def merge_bundle(file: Path, into: Path, settings: MergeSettings) -> MergeResult:
    """Verify a bundle, or a folder of your own records, and add its records and sweeps to a campaign.

    Each record is added as a whole; a stopped merge resumes. Lost predictions of the campaign are restored.
    Raises InputError, DataError, NotComparableError for other content under the same name, StorageError.
    """
    _check_results_folder(into)
    own = file.is_dir()
    bundle, failed = contents.read_campaign_folder(file) if own else (archive.read_bundle(file), [])
    store = ResultStore(into, settings.campaign or bundle.campaign)
    check_new_campaign(into, store.campaign)
    sources = bundle.below(archive.PLUGINS)
    _check_run_plugins(settings, sources)
    with _staging_folder(into) as folder:
        copy = ResultStore(folder, bundle.campaign)
        contents.write_results(bundle.files, copy.root)
        how = verification.VerifySettings(data=settings.data, plugins=sources, progress=settings.progress)
        merged = MergeResult(store.campaign, Verification(), by=bundle.by)
        if failed:
            merged.notes.append(f"{len(failed)} failed cells are left out: {', '.join(failed)}")
        if not bundle.files:
            return merged
        verified, sound = verification.verify_records(copy.root, how)
        merged.verified = verified
        if verified.findings:
            return merged
        records, grids = copy.records(), manifest.load_manifests(copy.root)
        if not own:
            _check_bundle(bundle, copy, store, records, str(file))
        _check_scores(records, settings.data)
        if _lacks_level(merged, sound, settings, RECOMPUTED if settings.rerun else settings.level):
            return merged
        check_sentences({**bundle.files, "--by": bundle.by.encode()}, records, settings.data, str(file))
        merged.notes += _profile_notes(bundle)
        plan = load_plan(copy.root)
        _choose_plan(store, plan)  # raises for another one
        _select_new(store, records, grids)
        if settings.rerun and not _repeat_cells(merged, sound, sources, settings):
            return merged
        if _lacks_level(merged, sound, settings, settings.level):  # what was just repeated is repeatable
            return merged
        new, new_grids = _select_new(store, records, grids)  # again, after hours of training perhaps
        _add_plan(store, plan)
        merged.added += _add_records(store, new, bundle)
        for grid in new_grids:
            manifest.save_manifest(grid, store.root)
        merged.present = len(records) - len(new)
        merged.notes += _restore_predictions(store, records, bundle)
        return merged


def _lacks_level(
    merged: MergeResult, sound: Sequence[tuple[str, RunRecord]], settings: MergeSettings, level: str
) -> bool:
    """Note a shortfall of the level that all records must have, and return whether there is one."""
    merged.shortfall = describe_shortfall(level, merged.verified, sound)
    if merged.shortfall and level != RECOMPUTED:
        merged.hint = "--require recomputed adds them all the same"
    return bool(merged.shortfall)


def _check_results_folder(into: Path) -> None:
    if any(path.parent.name.startswith(("seed-", "no-seed")) for path in into.glob("*/*/*/*.json")):
        expected = "the results folder above it"
        raise InputError(f"{into} is a campaign's folder", where="--into", expected=expected)


def _repeat_cells(
    merged: MergeResult,
    sound: Sequence[tuple[str, RunRecord]],
    sources: Mapping[str, bytes],
    settings: MergeSettings,
) -> bool:
    """Repeat some cells; False if a finding or a cell that isn't repeatable here stops the merge."""
    chosen, verified = {name: sources[name] for name in settings.run_plugins}, merged.verified
    repeat_bundle_cells(verified, sound, chosen, settings.rerun, settings.data, settings.say, settings.choose)
    if verified.open_cells:
        merged.shortfall = f"{len(verified.repeated)} of {verified.drawn} cells could be repeated here"
        merged.hint = "merge where they are repeatable, or without --rerun"
    return verified.exit_code == 0


def _check_bundle(
    bundle: archive.Bundle, copy: ResultStore, store: ResultStore, records: Sequence[RunRecord], where: str
) -> None:
    """Check somebody's bundle: its contents, and that every file system can hold its new rows."""
    contents.check_contents(bundle, copy, records, where)
    rows = dict.fromkeys((safe_name(r.profile), safe_name(r.method)) for r in records)
    for profile, method in rows:
        hint = "the contributor gives it another name and bundles again"
        check_new_name(store.root, profile, where="the bundle", hint=hint, others=[p for p, _ in rows])
        others = [name for place, name in rows if place == profile]
        check_new_name(store.root / profile, method, where=f"the bundle, {profile}", hint=hint, others=others)


def _check_scores(records: Sequence[RunRecord], data: Path | None) -> None:
    """Check that the data to recompute scores is there, except mteb's; raises InputError."""
    for record in records:
        if not is_mteb(record.suite):
            load_record_tasks(record, data)


@contextmanager
def _staging_folder(into: Path) -> Iterator[Path]:
    """Yield an empty hidden folder; then delete it, and folders of ``into`` that were made and stay empty."""
    made = [path for path in (into, *into.parents) if not path.exists()]
    folder = into / STAGING
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.is_symlink():
            raise InputError("this is a link", where=str(folder), hint="delete it")
        lock = FileLock(folder / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise InputError("another merge is at work in this folder", where=str(into)) from error
        try:
            work = folder / "work"
            shutil.rmtree(work, ignore_errors=True)  # from a killed merge
            work.mkdir()
            yield work
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
    finally:
        for path in made:
            with suppress(OSError):  # records were added
                path.rmdir()


def _check_run_plugins(settings: MergeSettings, sources: Mapping[str, bytes]) -> None:
    where = "--run-plugin"
    if settings.run_plugins and not settings.rerun:
        raise InputError("it is for repeating cells", where=where, expected="--rerun N as well")
    for name in settings.run_plugins:
        if name not in sources:
            expected = f"one of {', '.join(sorted(sources))}" if sources else "a bundle that has some"
            raise InputError(f"the bundle has no plug-in '{name}'", where=where, expected=expected)


def _profile_notes(bundle: archive.Bundle) -> Iterator[str]:
    for file, content in bundle.below(archive.PROFILES).items():
        name = file.removesuffix(".toml")
        try:
            if contents.read_profile_text(name) != content:
                yield f"profile {name} of the bundle is not that of this bench: its records say the options"
        except InputError:
            yield f"profile {name} of the bundle is unknown here"


def _select_new(
    store: ResultStore, records: Sequence[RunRecord], grids: Sequence[manifest.Manifest]
) -> tuple[list[RunRecord], list[manifest.Manifest]]:
    """Return the records and grids to add, grids with the suites and seeds of both; raises for a clash."""
    present = store.records() if store.root.is_dir() else []
    by_path = {store.path(record.place): record for record in present}
    conflicts, new = [], []
    for record in records:
        path = store.path(record.place)
        if path not in by_path:
            new.append(record)
        elif not _is_same_record(by_path[path], record):
            conflicts.append(path.relative_to(store.root).as_posix())
    present_grids = {(grid.profile, grid.sweep): grid for grid in manifest.load_manifests(store.root)}
    new_grids = []
    for grid in grids:
        earlier = present_grids.get((grid.profile, grid.sweep))
        if earlier and earlier.points != grid.points:
            conflicts.append(f"{manifest.FOLDER}/{grid.profile}-{grid.sweep}.json")
        whole = manifest.merge_manifests(earlier, grid) if earlier else grid
        if whole != earlier:
            new_grids.append(whole)
    if conflicts:
        what = f"there already with other content: {', '.join(conflicts)}; nothing was added"
        hint = "--campaign NAME adds the bundle under a name of its own"
        raise NotComparableError(what, where=str(store.root), hint=hint)
    for clash in find_record_clashes([*present, *new]):
        original = store.path(clash.first.place).relative_to(store.root).as_posix()
        what = f"this and {original} {clash.what}; nothing was added"
        raise DataError(what, where=str(store.path(clash.second.place)))
    make_campaign(store, [*present, *new])  # raises where they can't share a table
    return new, new_grids


def _choose_plan(store: ResultStore, plan: SealedPlan | None) -> SealedPlan | None:
    """Return the plan to write into the campaign, if any: the bundle's, or the earlier of two equal ones.

    Raises NotComparableError for a campaign with another plan, or with records made without one.
    """
    if plan is None:
        return None
    path = store.root / PLAN_FILE
    present = load_plan(store.root) if store.root.is_dir() else None
    if present is not None:
        check_equal_plans(present, plan, path)
        return plan if plan.sealed < present.sealed else None
    if store.root.is_dir() and store.records():
        what = "its records were made without the plan of the bundle; nothing was added"
        hint = "--campaign NAME adds the bundle under a name of its own"
        raise NotComparableError(what, where=str(store.root), hint=hint)
    return plan


def _add_plan(store: ResultStore, plan: SealedPlan | None) -> None:
    """Write a bundle's plan, before its records, which name it."""
    chosen = _choose_plan(store, plan)
    if chosen is None:
        return
    path = store.root / PLAN_FILE
    try:
        store.prepare()
        write_atomically(path, plan_to_json(chosen).encode("utf-8"))
    except OSError as error:
        raise StorageError(f"the plan can't be written: {error.strerror}", where=str(path)) from error


def _is_same_record(one: RunRecord, other: RunRecord) -> bool:
    return record_to_json(seal_record(one), timing=False) == record_to_json(seal_record(other), timing=False)


def _add_records(store: ResultStore, records: Sequence[RunRecord], bundle: archive.Bundle) -> list[str]:
    """Write records that name their bundle, each with its predictions first; return their paths."""
    origin = {"bundle": bundle.sha256, "campaign": bundle.campaign}
    origin |= {"by": bundle.by} if bundle.by else {}
    whole = [seal_record(replace(record, timing={**record.timing, "merged": origin})) for record in records]
    texts = [record_to_json(record) for record in whole]  # all before the first is written
    for record, text in zip(records, texts, strict=True):
        path = store.path(record.place)
        with _hold_cell(store, record):
            if path.exists():
                raise NotComparableError("another process wrote it meanwhile", where=str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            if record.predictions is not None:
                _write_predictions(store, record, bundle)
            write_atomically(path, text.encode("utf-8"))
    return [store.path(record.place).relative_to(store.root).as_posix() for record in records]


def _restore_predictions(
    store: ResultStore, records: Sequence[RunRecord], bundle: archive.Bundle
) -> Iterator[str]:
    """Write the predictions that the campaign's equal records lost, and yield a note that names them."""
    lost = [r for r in records if r.predictions is not None and not store.is_whole(r.place, r)]
    names = []
    for record in lost:
        with _hold_cell(store, record):
            current = store.read(record.place)
            if current is None or not _is_same_record(current, record):
                where = str(store.path(record.place))
                raise NotComparableError("another process wrote it meanwhile", where=where)
            names.append(_write_predictions(store, record, bundle))
    if lost:
        what = f"{len(lost)} records there had lost their predictions, which were added again"
        yield f"{what}: {', '.join(names)}"


def _write_predictions(store: ResultStore, record: RunRecord, bundle: archive.Bundle) -> str:
    path = store.path(record.place).with_suffix(".npz")
    name = path.relative_to(store.root).as_posix()
    write_atomically(path, bundle.files[f"{archive.RECORDS}{name}"])
    return name


@contextmanager
def _hold_cell(store: ResultStore, record: RunRecord) -> Iterator[None]:
    """Hold the lock of a record's cell; raises StorageError for a failed write."""
    try:
        store.prepare()
        with store.claim(record.place, wait=True):
            yield
    except OSError as error:
        what, where = f"the record can't be written: {error.strerror}", str(store.path(record.place))
        hint = "added records are kept: fix this and run the same command again"
        raise StorageError(what, where=where, hint=hint) from error
