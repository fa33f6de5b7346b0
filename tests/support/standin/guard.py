"""Make this process one that a stand-in device can live in; torch must not be imported before."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("guard.cpp")


def compiler() -> str | None:
    """The C++ compiler, None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def begin(folder: Path, kind: str) -> None:
    """Load the guard of a kind of device, then torch; call it before anything imports the project's modules.

    Inference mode becomes no_grad: tensors with Python below them can't be made in the former.
    """
    load_guard(folder, kind)
    import torch

    torch.inference_mode = torch.no_grad  # type: ignore[assignment,misc]


def load_guard(folder: Path, kind: str) -> None:
    """Compile the guard of a device into a folder, and load it: torch looks for it once, at its import.

    A wheel of torch brings the headers; neither ninja nor setuptools is needed.
    """
    if "torch" in sys.modules:
        raise RuntimeError("torch is imported: too late for a guard")
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch, library = Path(spec.origin).parent, folder / "guard.so"
    found = compiler()
    assert found is not None
    subprocess.run(
        [
            found, "-shared", "-fPIC", "-std=c++20", "-O0", f"-I{torch / 'include'}", str(SOURCE),
            f"-DSTANDIN_{kind.upper()}", "-o", str(library), f"-L{torch / 'lib'}",
            f"-Wl,-rpath,{torch / 'lib'}", "-lc10", "-ltorch_cpu",
        ],
        check=True,
    )  # fmt: skip
    ctypes.CDLL(str(library))
