"""Files of a folder of mteb's results, which anybody may have written: found and read with limits."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import InputError, printable, unknown_name

MODEL_META = "model_meta"
EXTERNAL = "external"
"""The revision of scores that mteb took from a model card."""
MOST_BYTES = 64 << 20  # the largest files, of tasks with thousands of language pairs, have 20 MB
_EXPERIMENTS = "experiments"  # runs with other settings than the model's own


@dataclass(frozen=True)
class RevisionFolder:
    """Results of one revision of a model.

    Args:
        files: By the file's name without its suffix: results of the wanted tasks, and the model's facts. A
            task has two where the folder has local results and a clone of the public ones.
        others: Names of the other result files.
    """

    model: str
    revision: str
    files: dict[str, list[Path]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


@dataclass
class ResultTree:
    """A folder of results.

    Args:
        folder: As given; what is read lies in it.
        roots: Folders with a folder for each model.
        remarks: Paths that aren't read, by the reason.
    """

    folder: Path
    roots: tuple[Path, ...]
    remarks: dict[str, dict[str, None]] = field(default_factory=dict)

    def add_remark(self, what: str, path: str | Path) -> None:
        """Add a path that isn't read."""
        self.remarks.setdefault(what, {})[printable(self.relative(path))] = None

    def relative(self, path: str | Path) -> str:
        """Return a path in the folder, with slashes."""
        return Path(os.path.relpath(path, self.folder)).as_posix()


def open_tree(folder: Path) -> ResultTree:
    """Find the results in a clone, a cache of ``mteb.ResultCache`` or a folder of models.

    Raises:
        InputError: If there are none.
    """
    expected = "a folder with results/ORG__MODEL/REVISION/TASK.json"
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), expected=expected)
    tree = ResultTree(folder, ())
    candidates = [folder / "results", folder / "remote" / "results"]
    tree.roots = tuple(root for root in candidates if root.is_dir() and is_inside(root, tree)) or (folder,)
    if not any(_list_folders(root, tree) for root in tree.roots):
        raise InputError("no results of mteb", where=str(folder), expected=expected)
    return tree


def list_models(tree: ResultTree) -> dict[str, list[str]]:
    """Return the folders of each model, by the folders' shared name, sorted."""
    found: dict[str, list[str]] = {}
    for root in tree.roots:
        for name, path in _list_folders(root, tree).items():
            if not name.startswith("."):
                found.setdefault(name, []).append(path)
    return dict(sorted(found.items()))


def select_models(known: Collection[str], names: Collection[str]) -> list[str]:
    """Return the folders of models written ``ORG/NAME`` or ``ORG__NAME``, of all if none is named.

    Raises:
        InputError: For an unknown name.
    """
    if not names:
        return list(known)
    selected: dict[str, None] = {}
    for name in names:
        folder = name.replace("/", "__").replace(" ", "_")
        if folder not in known:
            models = [printable(other.replace("__", "/", 1)) for other in known]
            raise unknown_name("model", name, models, where="--models")
        selected[folder] = None
    return list(selected)


def list_revisions(
    tree: ResultTree, model: str, folders: Collection[str], names: Collection[str]
) -> list[RevisionFolder]:
    """Return a model's revisions, sorted, with the files of the named tasks."""
    found: dict[str, RevisionFolder] = {}
    wanted, lowered = {*names, MODEL_META}, {name.lower() for name in names}
    for folder in folders:
        for revision, path in sorted(_list_folders(folder, tree).items()):
            row = found.setdefault(revision, RevisionFolder(model, revision))
            _add_files(tree, row, path, wanted, lowered)
    return [found[revision] for revision in sorted(found)]


def _add_files(
    tree: ResultTree, row: RevisionFolder, folder: str, wanted: Collection[str], lowered: Collection[str]
) -> None:
    for entry in _scan(folder, tree):
        name, suffix = os.path.splitext(entry.name)
        if suffix != ".json":
            if entry.name == _EXPERIMENTS:
                tree.add_remark("folders of experiments, with other settings, that aren't read", entry.path)
            continue
        if name not in wanted:
            row.others.append(name)
            if name.lower() in lowered:
                tree.add_remark("files with a task's name in another case that aren't read", entry.path)
            continue
        if _is_readable(entry, tree, os.DirEntry.is_file):
            row.files.setdefault(name, []).append(Path(entry.path))


def read_json_file(path: Path) -> tuple[Any, str]:
    """Return the content of a JSON file and its sha256; raises ValueError with the reason in one line."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"it can't be read ({error.strerror})") from error
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
    try:
        return json.loads(data), hashlib.sha256(data).hexdigest()
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    except ValueError as error:  # of JSON, of UTF-8, of a number with thousands of digits
        raise ValueError(f"it isn't valid JSON ({error})") from error


def _list_folders(folder: str | Path, tree: ResultTree) -> dict[str, str]:
    entries = _scan(folder, tree)
    return {entry.name: entry.path for entry in entries if _is_readable(entry, tree, os.DirEntry.is_dir)}


def _scan(folder: str | Path, tree: ResultTree) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        tree.add_remark("folders that can't be read", folder)


def _is_readable(
    entry: os.DirEntry[str], tree: ResultTree, is_kind: Callable[[os.DirEntry[str]], bool]
) -> bool:
    try:
        if not is_kind(entry):
            return False
        if entry.is_symlink() and not is_inside(entry.path, tree):
            tree.add_remark("links out of the folder that aren't followed", entry.path)
            return False
    except OSError:
        return False
    return True


def is_inside(path: str | Path, tree: ResultTree) -> bool:
    """Check that a path lies in the folder after following every link."""
    root = os.path.realpath(tree.folder)
    return os.path.commonpath([root, os.path.realpath(path)]) == root
