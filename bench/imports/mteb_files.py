"""Files of a folder of mteb's results, which anybody may have written: found and read with limits."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from bench.errors import InputError, printable, unknown_name

MODEL_META = "model_meta"
_EXPECTED = "a folder with results/ORG__MODEL/REVISION/TASK.json"
EXTERNAL = "external"
"""The revision of scores that mteb took from a model card."""
MOST_BYTES = 64 << 20  # the largest files, of tasks with thousands of language pairs, have 20 MB
_LOOKED_AT = 3  # files of other names in a folder, to tell whether it has mteb's results
_RESULT_FACTS = {"task_name", "mteb_dataset_name", "mteb_version", "dataset_revision"}
_NEAR = 0.8  # of two equal words it is 1
_EXPERIMENTS = "experiments"  # runs with other settings than the model's own


@dataclass(frozen=True)
class RevisionFolder:
    """Results of one revision of a model.

    Args:
        files: By the file's name without its suffix: results of the wanted tasks, and the model's facts. A
            task has two where the folder has local results and a clone of the public ones.
        others: The other files, by their name without its suffix.
    """

    model: str
    revision: str
    files: dict[str, list[Path]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)


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
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), expected=_EXPECTED)
    tree = ResultTree(folder, ())
    candidates = [folder / "results", folder / "remote" / "results"]
    tree.roots = tuple(root for root in candidates if root.is_dir() and is_inside(root, tree)) or (folder,)
    if not any(_list_folders(root, tree) for root in tree.roots):
        raise no_results(folder)
    return tree


def no_results(folder: Path) -> InputError:
    """Build the error for a folder without a result of mteb's form."""
    return InputError("no results of mteb", where=str(folder), expected=_EXPECTED)


def list_models(tree: ResultTree) -> dict[str, list[str]]:
    """Return the folders of each model, by the folders' shared name, sorted."""
    found: dict[str, list[str]] = {}
    for root in tree.roots:
        for name, path in _list_folders(root, tree).items():
            found.setdefault(name, []).append(path)
    return dict(sorted(found.items()))


def select_models(known: Collection[str], names: Collection[str]) -> list[str]:
    """Return the folders of models written ``ORG/NAME``, ``ORG__NAME`` or ``NAME``, of all if none is named.

    Raises:
        InputError: For an unknown name, and for a ``NAME`` of several models.
    """
    if not names:
        return list(known)
    return list(dict.fromkeys(_find_model(name, known) for name in names))


def _find_model(name: str, known: Collection[str]) -> str:
    folder = name.replace("/", "__").replace(" ", "_")
    if folder in known:
        return folder
    by_name: dict[str, list[str]] = {}
    for other in known:
        by_name.setdefault(_strip_owner(other), []).append(other)
    own = by_name.get(folder.lower(), [])
    if len(own) == 1:
        return own[0]
    if own:
        what, expected = f"{len(own)} models are called '{name}'", f"one of {_list_models(own)}"
        raise InputError(what, where="--models", expected=expected)
    near = get_close_matches(_strip_owner(folder), by_name, 1, _NEAR)
    if not near:
        models = [_write_model(other) for other in known]
        raise unknown_name("model", name, models, where="--models")
    what = f"unknown model '{name}' (did you mean {_list_models(by_name[near[0]])}?)"
    raise InputError(what, where="--models", expected=f"one of {len(known)} names")


def _strip_owner(folder: str) -> str:
    """Return the model's own name, in lower case."""
    owner, separator, name = folder.partition("__")
    return (name if separator else owner).lower()


def _write_model(folder: str) -> str:
    return printable(folder.replace("__", "/", 1))


def _list_models(folders: Collection[str]) -> str:
    return " or ".join(f"'{_write_model(folder)}'" for folder in sorted(folders))


def list_revisions(
    tree: ResultTree, model: str, folders: Collection[str], names: Collection[str]
) -> list[RevisionFolder]:
    """Return a model's revisions, sorted, with the files of the named tasks.

    Folders without a file of mteb's form are no revisions, such as those of bench's own records.
    """
    found: dict[str, RevisionFolder] = {}
    wanted, lowered = {*names, MODEL_META}, {name.lower() for name in names}
    for folder in folders:
        for revision, path in sorted(_list_folders(folder, tree).items()):
            name = EXTERNAL if revision.casefold() == EXTERNAL else revision
            row = found.setdefault(name, RevisionFolder(model, name))
            _add_files(tree, row, path, wanted, lowered)
    revisions = [found[name] for name in sorted(found) if _has_results(tree, found[name])]
    if not revisions:
        for folder in folders:
            tree.add_remark("folders without results of mteb that aren't read", folder)
    return revisions


def _has_results(tree: ResultTree, row: RevisionFolder) -> bool:
    """Check for a file of the wanted names, or one of another name with a result's facts."""
    if row.files:
        return True
    for path in islice(row.others.values(), _LOOKED_AT):
        try:
            if not (os.path.isfile(path) and is_inside(path, tree)):
                continue
            data, _ = read_json_file(Path(path))
        except (OSError, ValueError):
            continue
        if isinstance(data, dict) and _RESULT_FACTS & data.keys():
            return True
    return False


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
            row.others.setdefault(name, entry.path)
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
        return json.loads(data, object_pairs_hook=_reject_repeated_names), hashlib.sha256(data).hexdigest()
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    except ValueError as error:  # of JSON, of UTF-8, of a number with thousands of digits
        raise ValueError(f"it isn't valid JSON ({error})") from error


def _reject_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    block = dict(pairs)
    if len(block) < len(pairs):
        raise ValueError("a name is given twice in one block")
    return block


def _list_folders(folder: str | Path, tree: ResultTree) -> dict[str, str]:
    """Return the folders in a folder by name, without hidden ones."""
    shown = (entry for entry in _scan(folder, tree) if not entry.name.startswith("."))
    return {entry.name: entry.path for entry in shown if _is_readable(entry, tree, os.DirEntry.is_dir)}


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
