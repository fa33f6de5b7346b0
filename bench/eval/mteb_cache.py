"""Refuse data sets of mteb that are missing from the local cache, before anything is fetched or imported."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.data.mteb_names import MtebName, parse_suite
from bench.errors import InputError
from bench.eval.mteb_tasks import MtebTask, build_mteb_task

_MOST = 5  # data sets that the refusal names
_TASK = re.compile(  # a task's name, its data set and what follows up to the next task
    r'\bname\s*=\s*"(?P<name>[^"]+)"(?:(?!TaskMetadata\().)*?'
    r'\bdataset\s*=\s*\{\s*"path":\s*"(?P<path>[^"]+)"(?P<rest>(?:(?!TaskMetadata\().)*)',
    re.DOTALL,
)
_MODALITIES = re.compile(r'\bmodalities"?\s*[=:]\s*(\[[^]]*\])')


def is_offline() -> bool:
    """True if the hub's libraries must stay offline."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def check_declared_data(suite: str) -> None:
    """Raise the error of :func:`check_cached_data` before the seconds that importing mteb takes."""
    if is_offline() and (paths := declared_data_sets(parse_suite(suite).tasks)):
        _require_cached(suite, paths)


def check_cached_data(suite: str, tasks: Sequence[MtebTask]) -> None:
    """Raise InputError offline if the local cache lacks data sets of a suite."""
    if is_offline():
        built = [build_mteb_task(task) for task in tasks if task.local is None]
        _require_cached(suite, (path for task in built for path in _dataset_paths(task)))


def declared_data_sets(tasks: Sequence[MtebName]) -> list[str] | None:
    """Return the hub's name of each task's data set from mteb's sources; null if only mteb itself has them.

    The sources lack aggregated tasks, computed data sets, and unnamed subsets and splits.
    """
    wanted = {task.name: task for task in tasks}
    paths: dict[str, set[str]] = {name: set() for name in wanted}
    mteb = importlib.util.find_spec("mteb")
    for package in (mteb.submodule_search_locations or ()) if mteb else ():
        for file in Path(package, "tasks").rglob("*.py"):
            source = file.read_text(encoding="utf-8")
            if not any(f'"{name}"' in source for name in wanted):
                continue
            for match in _TASK.finditer(source):
                task = wanted.get(match["name"])
                modalities = _MODALITIES.findall(match["rest"]) or _MODALITIES.findall(source)
                if task is None or not set(modalities) <= {'["text"]'}:
                    continue
                parts = (*task.subsets, task.split)
                if all(f'"{part}"' in source for part in parts if part):
                    paths[task.name].add(match["path"])
    if any(len(declared) != 1 for declared in paths.values()):
        return None
    return [path for task in tasks for path in paths[task.name]]


def _require_cached(suite: str, paths: Iterable[str]) -> None:
    names = [path for path in dict.fromkeys(paths) if not _is_cached(path)]
    if names:
        shown = ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
        noun = "data set of mteb is" if len(names) == 1 else "data sets of mteb are"
        raise InputError(
            f"{len(names)} {noun} not in the local cache: {shown}",
            where=f"--suite {suite}",
            hint="with HF_HUB_OFFLINE=0 before the command mteb fetches them",
        )


def _dataset_paths(task: Any) -> Iterator[str]:
    """Yield the hub's names of a task's data sets, for an aggregated task those of its parts."""
    if task.is_aggregate:
        for part in task.metadata.tasks:
            yield from _dataset_paths(part)
    else:
        yield str(task.metadata.dataset["path"])


def _is_cached(path: str) -> bool:
    """True if the caches have any part of a data set; an incomplete one fails when it is loaded."""
    if Path(path).exists():
        return True
    from huggingface_hub.constants import HF_HOME, HF_HUB_CACHE

    # importing datasets takes a second, so this repeats its constant and its rule for names (snake case)
    prepared = Path(os.environ.get("HF_DATASETS_CACHE", Path(HF_HOME) / "datasets"))
    name = path.replace("/", "___").replace("_", "").lower()
    folders = [Path(HF_HUB_CACHE) / f"datasets--{path.replace('/', '--')}"]
    if prepared.is_dir():
        folders += [folder for folder in prepared.iterdir() if folder.name.replace("_", "").lower() == name]
    return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)
