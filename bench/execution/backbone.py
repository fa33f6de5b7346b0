"""Makes a profile's backbone before its first use, by the command that the profile stands for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from bench.config import profiles
from bench.data.suites import data_folder
from bench.errors import CellFailedError, InputError
from bench.nn.folder import MadeModel, ModelFolder, content_hash
from bench.plan.cell import Cell
from bench.plan.made_backbone import check_made


def with_made(cell: Cell) -> Cell:
    """Return the cell with its backbone made, and its members'; nothing happens where all are there.

    Raises:
        CellFailedError: a backbone can't be made.
    """
    return replace(
        cell,
        model=cell.model and made(cell.model),
        auxiliaries=tuple((option, made(model)) for option, model in cell.auxiliaries),
        members=tuple((role, with_made(member)) for role, member in cell.members),
    )


def made(model: ModelFolder) -> ModelFolder:
    """Return a model with the hash of its bytes; make it first, in a process of its own, if it isn't there.

    Raises:
        CellFailedError: the command failed.
        DataError: it was made from another model or text than its recipe says.
    """
    if not isinstance(model, MadeModel) or model.sha256:
        return model
    try:
        model.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CellFailedError(
            f"the backbone can't be kept: {error.strerror}",
            where=str(model.path.parent),
            hint="name another folder with BENCH_CACHE",
        ) from error
    with FileLock(model.path.parent / f".{model.path.name}.lock"):  # others wait for the first
        if not model.path.exists():
            _make(model)
    check_made(model.path, model.recipe)
    return replace(model, sha256=content_hash(model.path))


def _make(model: MadeModel) -> None:
    command = [sys.executable, "-m", "bench", *model.command, "--out", str(model.path)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # noqa: S603
    if done.returncode:
        raise CellFailedError(
            f"the backbone can't be made: exit code {done.returncode}",
            where=model.name,
            hint=f"see what it says: bench {' '.join(model.command)} --out {model.path}",
        )


def to_make(cells: Iterable[Cell]) -> MadeModel | None:
    """Return the backbone of cells that is still to be made, None where there is none."""
    models = (model for cell in cells for model in _models(cell))
    return next((model for model in models if isinstance(model, MadeModel) and not model.sha256), None)


def check_text(cells: Iterable[Cell]) -> None:
    """Raise InputError where a backbone is to be made and the text that it learns from isn't there."""
    if (model := to_make(cells)) is None:
        return
    profile = profiles.load(model.command[2])
    data = data_folder(Path(model.command[-1]) if "--data" in model.command else None)
    file = profile.corpus["file"]
    if data is None or not (data / file).is_file():
        raise InputError(
            f"{model.name} is made from the text {file}, which isn't there",
            where=str(data) if data else "the data folder",
            expected="--data DIR or BENCH_DATA with it",
            hint="docs/data.md says what bench's own texts are, and how to take another",
        )


def _models(cell: Cell) -> Iterator[ModelFolder]:
    if cell.model:
        yield cell.model
    yield from (model for _, model in cell.auxiliaries)
    for _, member in cell.members:
        yield from _models(member)
