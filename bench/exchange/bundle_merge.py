"""Take a bundle over into a results folder: check all of it, then add it; runs no code that came in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from bench.config import sweep_manifest as manifest
from bench.data.mteb_names import is_mteb
from bench.errors import DataError, InputError, NotComparableError, StorageError
from bench.eval.rescoring import load_record_tasks
from bench.exchange.bundle_contents import (
    check_contents,
    read_campaign_folder,
    read_profile_text,
    write_results,
)
from bench.records.filesystem import check_new_campaign, check_new_name, safe_name, write_atomically
from bench.records.integrity import find_record_copies, seal_record
from bench.records.record import RunRecord, record_to_json
from bench.records.store import ResultStore
from bench.reports.campaign import make_campaign
from bench.verify import archive
from bench.verify import record_checks as verification
from bench.verify.bundle_reruns import repeat_bundle_cells
from bench.verify.findings import Verification
from bench.verify.sentence_checks import check_sentences

STAGING = ".merge"
"""Folder below the results where bundles are verified; what a killed merge leaves, the next deletes."""


@dataclass(frozen=True)
class MergeSettings:
    """How a bundle is merged.

    Args:
        campaign: Name of the campaign that gets it; None for the bundle's.
        data: Evaluation data; default BENCH_DATA, then ./data.
        rerun: Number of cells to repeat, chosen at random.
        choose: Seed of that choice; None for another one each time.
        run_plugins: Plug-in files of the bundle whose code may run for that.
        say: Gets lines about the repetitions.
        progress: Called with verified records.
    """

    campaign: str | None = None
    data: Path | None = None
    rerun: int = 0
    choose: int | None = None
    run_plugins: tuple[str, ...] = ()
    say: Callable[[str], None] = lambda _: None
    progress: Callable[[int], None] = lambda _: None


@dataclass
class MergeResult:
    """What became of a bundle.

    Args:
        campaign: The campaign that it was for.
        verified: What verification found; nothing was added if it found anything.
        added: Records that were added, by their paths in the campaign.
        present: Number of records that were there already, equal but for the timing block.
        notes: What else to know, a line each.
        by: Who sent it, by the sender's own word; empty where it doesn't say.
    """

    campaign: str
    verified: Verification
    added: list[str] = field(default_factory=list)
    present: int = 0
    notes: list[str] = field(default_factory=list)
    by: str = ""


def merge_bundle(file: Path, into: Path, settings: MergeSettings) -> MergeResult:
    """Verify a bundle and add its records and grids of sweeps to a campaign.

    Each record is added whole or not at all, and a merge that was stopped goes on when it is repeated. Until
    everything was checked, nothing is written but below a hidden folder. Of what is there already, records
    that lost their predictions get them back.

    Args:
        file: The bundle, from anybody; or a folder of one's own records, without its failed cells.
        into: A results folder.
        settings: How.

    Raises:
        InputError: not a bundle, or one that holds what its records don't call for; scores that can't be
            computed again; an option that is wrong; a new campaign with a name that isn't portable.
        DataError: a file that quotes a test sentence; a damaged record in the campaign; a copy of one.
        NotComparableError: a record or grid with other content is there already, or one that can't share a
            table with what is there.
        StorageError: the records can't be written.
    """
    if any(path.parent.name.startswith(("seed-", "no-seed")) for path in into.glob("*/*/*/*.json")):
        expected = "the results folder above it"
        raise InputError(f"{into} is a campaign's folder", where="--into", expected=expected)
    bundle, failed = read_campaign_folder(file) if file.is_dir() else (archive.read_bundle(file), [])
    store = _target_store(into, settings.campaign or bundle.campaign)
    sources = bundle.below(archive.PLUGINS)
    _check_run_plugins(settings, sources)
    with _staging_folder(into) as folder:
        copy = ResultStore(folder, bundle.campaign)
        write_results(bundle.files, copy.root)
        hashes = {name: sha256(source).hexdigest() for name, source in sources.items()}
        how = verification.VerifySettings(data=settings.data, plugins=hashes, progress=settings.progress)
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
        if not file.is_dir():
            _check_bundle(bundle, copy, store, records, str(file))
        _check_scores(records, settings.data)
        check_sentences({**bundle.files, "--by": bundle.by.encode()}, records, settings.data, str(file))
        merged.notes += _profile_notes(bundle)
        _select_new(store, records, grids)
        if settings.rerun:
            chosen = {name: sources[name] for name in settings.run_plugins}
            repeat_bundle_cells(
                verified, sound, chosen, settings.rerun, settings.data, settings.say, settings.choose
            )
            if verified.findings:
                return merged
        new, new_grids = _select_new(store, records, grids)  # again, as training may have taken hours
        merged.added += _add_records(store, new, bundle)
        for grid in new_grids:
            manifest.save_manifest(grid, store.root)
        merged.present = len(records) - len(new)
        merged.notes += _restore_predictions(store, records, bundle)
        return merged


def _target_store(into: Path, campaign: str) -> ResultStore:
    """The campaign that gets the records; raises InputError for a new one whose name isn't portable."""
    store = ResultStore(into, campaign)
    check_new_campaign(into, campaign)
    return store


def _check_bundle(
    bundle: archive.Bundle, copy: ResultStore, store: ResultStore, records: Sequence[RunRecord], where: str
) -> None:
    """Check somebody's bundle: its contents, and that every file system can hold its new rows.

    Raises:
        InputError: see :func:`merge`.
    """
    check_contents(bundle, copy, records, where)
    rows = dict.fromkeys((safe_name(r.profile), safe_name(r.method)) for r in records)
    for profile, method in rows:
        hint = "the contributor gives it another name and bundles again"
        check_new_name(store.root, profile, where="the bundle", hint=hint, others=[p for p, _ in rows])
        others = [name for place, name in rows if place == profile]
        check_new_name(store.root / profile, method, where=f"the bundle, {profile}", hint=hint, others=others)


@contextmanager
def _staging_folder(into: Path) -> Iterator[Path]:
    """Give an empty hidden folder of this merge alone; then delete it, and a new ``into`` that is empty."""
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
            shutil.rmtree(work, ignore_errors=True)  # of a merge that was killed
            work.mkdir()
            yield work
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
    finally:
        for path in made:
            with suppress(OSError):  # it isn't empty: something was added
                path.rmdir()


def _check_run_plugins(settings: MergeSettings, sources: Mapping[str, bytes]) -> None:
    if settings.run_plugins and not settings.rerun:
        raise InputError("it is for repeating cells", where="--run-plugin", expected="--rerun N as well")
    for name in settings.run_plugins:
        if name not in sources:
            raise InputError(
                f"the bundle has no plug-in '{name}'",
                where="--run-plugin",
                expected=f"one of {', '.join(sorted(sources))}" if sources else "a bundle that has some",
            )


def _check_scores(records: Sequence[RunRecord], data: Path | None) -> None:
    """Check that verification could compute the scores again; what mteb measures it may not.

    Raises:
        InputError: no data.
    """
    for record in records:
        if not is_mteb(record.suite):
            load_record_tasks(record, data)


def _profile_notes(bundle: archive.Bundle) -> Iterator[str]:
    """Say which profiles of a bundle are not those of this bench."""
    for file, content in bundle.below(archive.PROFILES).items():
        name = file.removesuffix(".toml")
        try:
            same = read_profile_text(name) == content
        except InputError:
            yield f"profile {name} of the bundle is unknown here"
        else:
            if not same:
                yield f"profile {name} of the bundle is not that of this bench: its records say the options"


def _select_new(
    store: ResultStore, records: Sequence[RunRecord], grids: Sequence[manifest.Manifest]
) -> tuple[list[RunRecord], list[manifest.Manifest]]:
    """Return what isn't there yet; raises where something else is, or where the two don't go together.

    A sweep's grid that is there for other suites or seeds is new with those of both.
    """
    there = store.records() if store.root.is_dir() else []
    there_grids = {(g.profile, g.sweep): g for g in manifest.load_manifests(store.root)}
    by_path = {store.path(record.place): record for record in there}
    new = [record for record in records if store.path(record.place) not in by_path]
    kept_grids = [(there_grids.get((grid.profile, grid.sweep)), grid) for grid in grids]
    new_grids = [grid for kept, grid in kept_grids if kept is None]
    new_grids += [
        whole for kept, grid in kept_grids if kept and (whole := manifest.merge_manifests(kept, grid)) != kept
    ]
    other = [
        path.relative_to(store.root).as_posix()
        for record in records
        if (path := store.path(record.place)) in by_path and not _is_same_record(by_path[path], record)
    ]
    other += [
        f"{manifest.FOLDER}/{grid.profile}-{grid.sweep}.json"
        for kept, grid in kept_grids
        if kept and kept.points != grid.points
    ]
    if other:
        raise NotComparableError(
            f"there already with other content: {', '.join(other)}; nothing was added",
            where=str(store.root),
            hint="--campaign NAME adds the bundle under a name of its own",
        )
    for first, second, why in find_record_copies([*there, *new]):
        raise DataError(
            f"this and {store.path(first.place).relative_to(store.root).as_posix()} {why}; nothing was added",
            where=str(store.path(second.place)),
        )
    make_campaign(store, [*there, *new])  # raises where they can't share a table
    return new, new_grids


def _is_same_record(one: RunRecord, other: RunRecord) -> bool:
    return record_to_json(seal_record(one), timing=False) == record_to_json(seal_record(other), timing=False)


def _add_records(store: ResultStore, records: Sequence[RunRecord], bundle: archive.Bundle) -> list[str]:
    """Write records that say where they came from, whose texts are all made before; return their paths."""
    origin = {"bundle": bundle.sha256, "campaign": bundle.campaign}
    origin |= {"by": bundle.by} if bundle.by else {}
    whole = [seal_record(replace(record, timing={**record.timing, "merged": origin})) for record in records]
    texts = list(map(record_to_json, whole))
    return [_add_record(store, record, text, bundle) for record, text in zip(records, texts, strict=True)]


def _add_record(store: ResultStore, record: RunRecord, text: str, bundle: archive.Bundle) -> str:
    """Write a record with its predictions, each atomically, the record last; return its path."""
    path = store.path(record.place)
    with _hold_cell(store, record):
        if path.exists():
            raise NotComparableError("another process wrote it meanwhile", where=str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        if record.predictions is not None:
            _write_predictions(store, record, bundle)
        write_atomically(path, text.encode("utf-8"))
    return path.relative_to(store.root).as_posix()


def _restore_predictions(
    store: ResultStore, records: Sequence[RunRecord], bundle: archive.Bundle
) -> Iterator[str]:
    """Write what records there lack of their own predictions, and say of which."""
    lost = [r for r in records if r.predictions is not None and not store.is_whole(r.place, r)]
    if lost:
        names = ", ".join([_restore_record(store, record, bundle) for record in lost])
        yield f"{len(lost)} records there had lost their predictions, which were added again: {names}"


def _restore_record(store: ResultStore, record: RunRecord, bundle: archive.Bundle) -> str:
    """Write the predictions that a record there has lost; return their path."""
    with _hold_cell(store, record):
        there = store.read(record.place)
        if there is None or not _is_same_record(there, record):
            raise NotComparableError(
                "another process wrote it meanwhile", where=str(store.path(record.place))
            )
        return _write_predictions(store, record, bundle)


def _write_predictions(store: ResultStore, record: RunRecord, bundle: archive.Bundle) -> str:
    path = store.path(record.place).with_suffix(".npz")
    name = path.relative_to(store.root).as_posix()
    write_atomically(path, bundle.files[f"{archive.RECORDS}{name}"])
    return name


@contextmanager
def _hold_cell(store: ResultStore, record: RunRecord) -> Iterator[None]:
    """Hold the lock of a record's cell; raises StorageError where it can't be written."""
    try:
        store.prepare()
        with store.claim(record.place, wait=True):
            yield
    except OSError as error:
        raise StorageError(
            f"the record can't be written: {error.strerror}",
            where=str(store.path(record.place)),
            hint="what was added is kept: fix this and run the same command again",
        ) from error
