"""Find the records below a path, the files around them, and folders that are closed to verification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.errors import InputError
from bench.records.filesystem import FolderContents, walk_folder
from bench.records.sealed_plan import FILE as PLAN
from bench.verify.findings import MAKE_READABLE, Problem

_NOT_RECORDS = ("stats", "mteb")
"""Folders of a campaign with files computed from its records, or of another program."""


def find_record_files(target: Path) -> tuple[dict[Path, list[Path]], FolderContents]:
    """Return the files of records at or below a path, by campaign folder, and all contents of the path.

    Raises InputError for an empty folder.
    """
    contents = FolderContents([target]) if target.is_file() else walk_folder(target)
    campaigns: dict[Path, list[Path]] = {}
    for file in map(Path.absolute, contents.files):
        folder = file.parent.name
        run = folder == "no-seed" or folder.startswith("seed-")
        if file.suffix == ".json" and len(file.parents) > 4 and run:
            campaigns.setdefault(file.parents[3], []).append(file)
    if not campaigns:
        what = "no records here"
        if any(file.name == PLAN for file in contents.files):
            what = "no records here yet: the plan is sealed, and none of its runs is done"
        for path, why in contents.closed.items():
            what = f"no records here, but a folder that can't be read: {path.name}: {why}"
        for path in contents.linked if not contents.closed else ():
            what = f"no records here, but a link to a folder: {path.name}"
        expected = "results, a campaign's folder, a folder below it, or a record's .json"
        raise InputError(what, where=str(target), expected=expected)
    return campaigns, contents


def describe_non_file(path: Path) -> str | None:
    """Return the kind of a link, folder, pipe or device in place of a file, if any."""
    if path.is_symlink():
        return "a link, not a file"
    return "no file" if path.exists() and not path.is_file() else None


def unchecked_folders(contents: FolderContents) -> Iterator[tuple[Path, Problem]]:
    """Yield unreadable folders, and links to folders, whose records other programs read."""
    for path, why in contents.closed.items():
        yield path, ("shape", f"this folder can't be read: {why}", MAKE_READABLE)
    for path in contents.linked:
        what = "a link to a folder, whose records are not checked"
        yield path, ("shape", what, "put the folder itself there, or verify that")


def find_stray_files(root: Path, files: Sequence[Path], kept: set[Path]) -> Iterator[Path]:
    """Yield files in a campaign's cells beyond records, predictions and ``kept`` encoders."""
    named = {*kept, *files, *(file.with_suffix(".npz") for file in files)}
    linked = set(walk_folder(root).linked)
    for path in sorted(root.glob("*/*/*/*")):
        top = path.relative_to(root).parts[0]
        hidden = top.startswith(".") or path.name.startswith(".")  # locks, and files of a killed process
        inside = linked & set(path.parents)  # of a link, which is a finding itself
        if top not in _NOT_RECORDS and not hidden and not inside and path not in named:
            yield path
