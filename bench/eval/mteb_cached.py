"""Which data sets of mteb are in the local cache, told from its folders: nothing is loaded or asked for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.eval.mteb_tasks import MtebTask, mteb_task

_MOST = 5  # data sets that the refusal names


def is_offline() -> bool:
    """True if the hub's libraries may not ask the network, which they may only where the user says so."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def check_at_hand(suite: str, tasks: Sequence[MtebTask]) -> None:
    """Raise InputError if data sets of a suite are neither in the local cache nor may be fetched."""
    if not is_offline():
        return
    missing: dict[str, None] = {}
    for task in tasks:
        if task.local is None:
            missing |= dict.fromkeys(path for path in _paths(mteb_task(task)) if not _is_cached(path))
    if missing:
        names = [*missing]
        shown = ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
        raise InputError(
            f"{len(names)} data set{'s' * (len(names) != 1)} of mteb "
            f"{'are' if len(names) != 1 else 'is'} not in the local cache: {shown}",
            where=f"--suite {suite}",
            hint="with HF_HUB_OFFLINE=0 before the command mteb fetches them",
        )


def _paths(task: Any) -> Iterator[str]:
    """The hub's names of a task's data sets; one that is made of others has theirs."""
    if task.is_aggregate:
        for part in task.metadata.tasks:
            yield from _paths(part)
    else:
        yield str(task.metadata.dataset["path"])


def _is_cached(path: str) -> bool:
    """True if there is anything of a data set in the caches; whether all of it is there, loading it tells."""
    if Path(path).exists():
        return True
    from huggingface_hub.constants import HF_HUB_CACHE

    config: Any = importlib.import_module("datasets.config")
    naming: Any = importlib.import_module("datasets.naming")
    *organisation, name = path.split("/")
    prepared = "___".join([*organisation, naming.camelcase_to_snakecase(name)])
    return any(
        folder.is_dir() and any(folder.iterdir())
        for folder in (
            Path(config.HF_DATASETS_CACHE) / prepared,
            Path(HF_HUB_CACHE) / f"datasets--{path.replace('/', '--')}",
        )
    )
