"""Hostile model folders for the security tests: what would leave a file behind if anything in them ran."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.support.folders import sentence_transformers_folder

MARKER = "hostile-was-here"
EVIL = f"from pathlib import Path\nPath(__file__).with_name({MARKER!r}).touch()\nclass X: pass\nM = C = X\n"
PICKLE = (
    "can't be loaded: its .bin file holds pickled objects, which could run code; expected "
    "model.safetensors, or a .bin file of only tensors; ask its author for "
    "safetensors"
)
Edit = Callable[[Path], object]


class Hostile:
    """Leaves a file next to the folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.marker = folder.parent / MARKER

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.marker,))


def as_zip(folder: Path, name: str = "pytorch_model.bin") -> None:
    torch.save({"a": Hostile(folder)}, folder / name)


def as_legacy(folder: Path, name: str = "pytorch_model.bin") -> None:
    torch.save({"a": Hostile(folder)}, folder / name, _use_new_zipfile_serialization=False)


def as_pickle(folder: Path, name: str = "pytorch_model.bin") -> None:
    (folder / name).write_bytes(pickle.dumps({"a": Hostile(folder)}))


def put(folder: Path, name: str, **values: object) -> None:
    """Change entries of a settings file."""
    file = folder / name
    old = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(old | values))


def settings(name: str, **values: object) -> Edit:
    return lambda folder: put(folder, name, **values)


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content, the locks left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def model(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that any loader takes, with a module of code that lies on the path too: none of it may run."""
    folder = sentence_transformers_folder(tiny_bert, tmp_path / "m", mean=True)
    for place in (folder, tmp_path):
        (place / "evil.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield folder
    assert not list(tmp_path.rglob(MARKER))
