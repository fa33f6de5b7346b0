"""Which data sets of mteb are in the local cache, told from its folders: nothing is fetched or asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.data.mteb_names import parse_suite
from bench.errors import InputError
from bench.eval.mteb_sources import declared_data_sets
from bench.eval.mteb_tasks import MtebTask, build_mteb_task

_MOST = 5  # data sets that the refusal names


def is_offline() -> bool:
    """True if the hub's libraries may not ask the network, which they may only where the user says so."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def check_declared_data(suite: str) -> None:
    """Raise the error of :func:`check_at_hand` without importing mteb, where that can be.

    Args:
        suite: A paper's suite or ``mteb:TASK,...``.
    """
    if is_offline() and (paths := declared_data_sets(parse_suite(suite).tasks)):
        _require_cached(suite, paths)


def check_cached_data(suite: str, tasks: Sequence[MtebTask]) -> None:
    """Raise InputError if data sets of a suite are neither in the local cache nor may be fetched."""
    if is_offline():
        _require_cached(
            suite,
            (path for task in tasks if task.local is None for path in _dataset_paths(build_mteb_task(task))),
        )


def _require_cached(suite: str, paths: Iterable[str]) -> None:
    if names := [path for path in dict.fromkeys(paths) if not _is_cached(path)]:
        shown = ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
        raise InputError(
            f"{len(names)} data set{'s' * (len(names) != 1)} of mteb "
            f"{'are' if len(names) != 1 else 'is'} not in the local cache: {shown}",
            where=f"--suite {suite}",
            hint="with HF_HUB_OFFLINE=0 before the command mteb fetches them",
        )


def _dataset_paths(task: Any) -> Iterator[str]:
    """The hub's names of a task's data sets; one that is made of others has theirs."""
    if task.is_aggregate:
        for part in task.metadata.tasks:
            yield from _dataset_paths(part)
    else:
        yield str(task.metadata.dataset["path"])


def _is_cached(path: str) -> bool:
    """True if there is anything of a data set in the caches; whether all of it is there, loading it tells."""
    if Path(path).exists():
        return True
    from huggingface_hub.constants import HF_HOME, HF_HUB_CACHE

    # datasets' own constant and rule for names (a folder is in snake case) take a second to import
    prepared = Path(os.environ.get("HF_DATASETS_CACHE", Path(HF_HOME) / "datasets"))
    found = [
        folder
        for folder in _list_folder(prepared)
        if _normalise_name(folder.name) == _normalise_name(path.replace("/", "___"))
    ]
    return any(
        [*_list_folder(folder)]
        for folder in (*found, Path(HF_HUB_CACHE) / f"datasets--{path.replace('/', '--')}")
    )


def _list_folder(folder: Path) -> list[Path]:
    return [*folder.iterdir()] if folder.is_dir() else []


def _normalise_name(name: str) -> str:
    return name.replace("_", "").lower()
