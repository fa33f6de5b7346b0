"""Which files below a path are records, what lies beside them, and where nobody sees what there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.errors import InputError
from bench.records.filesystem import FolderContents, walk_folder
from bench.reports.campaign import ALONG, GRADIENT, OVERLAP, PROBES
from bench.verify.findings import MAKE_READABLE, Problem

_NOT_RECORDS = ("stats", "mteb")
"""Folders of a campaign that hold what can be made again from its records, or is another program's."""


def record_files(target: Path) -> dict[Path, list[Path]]:
    """Return the files of records at or below a path, by the campaign's folder.

    Raises:
        InputError: there are none.
    """
    return find_record_files(target)[0]


def find_record_files(target: Path) -> tuple[dict[Path, list[Path]], FolderContents]:
    """Return the same, and all that is below the path; raises InputError too."""
    there = FolderContents([target]) if target.is_file() else walk_folder(target)
    found: dict[Path, list[Path]] = {}
    for path in there.files:
        file = path.absolute()
        if file.suffix == ".json" and len(file.parents) > 4 and _is_run_folder(file.parent.name):
            found.setdefault(file.parents[3], []).append(file)
    if not found:
        unseen = [f"a folder that can't be read: {path.name}: {why}" for path, why in there.closed.items()]
        unseen += [f"a link to a folder: {path.name}" for path in there.linked]
        raise InputError(
            "no records here" + (f", but {unseen[0]}" if unseen else ""),
            where=str(target),
            expected="results, a campaign's folder, a folder below it, or a record's .json",
        )
    return found, there


def describe_non_file(path: Path) -> str | None:
    """Say what stands in a file's place and isn't one, None for a file or nothing.

    A link leads elsewhere, to what isn't there for others or changes unseen; a pipe or device may never end.
    """
    if path.is_symlink():
        return "a link, not a file"
    return "no file" if path.exists() and not path.is_file() else None


def _is_run_folder(folder: str) -> bool:
    return folder == "no-seed" or folder.startswith("seed-")


def unchecked_folders(there: FolderContents) -> Iterator[tuple[Path, Problem]]:
    """Yield folders of which nobody sees what is in them, or whose records others read and this doesn't."""
    for path, why in there.closed.items():
        yield path, ("shape", f"this folder can't be read: {why}", MAKE_READABLE)
    for path in there.linked:
        what = "a link to a folder, whose records are not checked"
        yield path, ("shape", what, "put the folder itself there, or verify that")


def side_files(root: Path) -> list[str]:
    """Return what reports read of a campaign's folder and no record names: overlap, probes, gradients."""
    files = sorted(path.name for kind in (OVERLAP, PROBES, ALONG) for path in root.glob(kind))
    return [*files, *([f"{GRADIENT}/"] if (root / GRADIENT).is_dir() else [])]


def find_stray_files(root: Path, files: Sequence[Path], kept: set[Path]) -> Iterator[Path]:
    """Yield files in a campaign's cells that no record names, but for the encoders that are kept there."""
    named = kept | {name for file in files for name in (file, file.with_suffix(".npz"))}
    linked = set(walk_folder(root).linked)
    for path in sorted(root.glob("*/*/*/*")):
        top = path.relative_to(root).parts[0]
        hidden = top.startswith(".") or path.name.startswith(".")  # locks, and what a killed process left
        inside = linked & set(path.parents)  # of a link, which is a finding itself
        if top not in _NOT_RECORDS and not hidden and not inside and path not in named:
            yield path
