"""Number types: those of a folder's weights, read without loading them, and what is computed with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bench.errors import InputError
from bench.nn.folder_facts import tensor_header

_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_SCALE = re.compile(r"(^|\.)((weight|input)_scale(_inv)?|scales|qweight|qzeros|SCB|absmax|quant_state.*)$")
"""Names that quantisers give to what their integers are multiplied with."""
_INDEX = re.compile(r"(_ids|mask|masked_bias|attn\.bias|attention\.bias|mapping|buckets?)$")
"""Names of tables of whole numbers that are no weights."""
_POINTER = b"version https://git-lfs"


def stored_dtypes(*folders: Path) -> tuple[str, ...]:
    """Return the floating types of the weights in safetensors files of folders, the most used first.

    Empty where there are none: a pickle isn't opened for it.
    """
    found: dict[str, int] = {}
    for file in (file for folder in folders for file in sorted(folder.glob("*.safetensors"))):
        for tensor in (tensor_header(file) or {}).values():
            name = tensor.get("dtype") if isinstance(tensor, dict) else None
            if name in _NAMES:
                found[_NAMES[name]] = found.get(_NAMES[name], 0) + 1
    return tuple(sorted(found, key=lambda name: -found[name]))


def check_types(folder: Path) -> None:
    """Refuse weights that stand for other numbers than they hold: quantised ones, whose scales are apart.

    Raises:
        InputError: a tensor of 8 bits or fewer that isn't a flag, or one of scales.
    """
    for file in opened(folder):
        with file.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise InputError(
                    "this is a pointer of git-lfs, not the weights",
                    where=f"{folder.name}/{file.name}",
                    hint="fetch them with: git lfs pull",
                )
        for name, kind, dimensions in _tensors(file):
            flag = dimensions < 2 and not name.endswith(("weight", "bias"))
            if _SCALE.search(name) or not (kind in _NAMES or flag or _INDEX.search(name)):
                raise InputError(
                    f"{name} is quantised or the scale of what is ({kind})",
                    where=f"{folder.name}/{file.name}",
                    expected="weights of float64, float32, float16 or bfloat16",
                    hint="save the model with its weights made floating-point again",
                )


def opened(folder: Path) -> list[Path]:
    """Return the files of weights that loading a folder opens, of several forms the first."""
    for pattern, index in (
        ("model.safetensors", "model.safetensors.index.json"),
        ("pytorch_model.bin", "pytorch_model.bin.index.json"),
    ):
        if (folder / pattern).is_file():
            return [folder / pattern]
        if (folder / index).is_file():
            break
    return sorted((*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")))


def _tensors(file: Path) -> Iterator[tuple[str, str, int]]:
    """Name, type and number of dimensions of a file's tensors; none of what can't be read."""
    if file.suffix == ".safetensors":
        for name, tensor in (tensor_header(file) or {}).items():
            if isinstance(tensor, dict):
                yield name, str(tensor.get("dtype")), len(tensor.get("shape", ()))
        return
    import torch

    try:
        found = torch.load(file, map_location="meta", weights_only=True, mmap=True)
    except Exception:  # many kinds: whoever loads it says what is wrong
        return
    names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    for name, tensor in found.items() if isinstance(found, dict) else ():
        if isinstance(tensor, torch.Tensor):
            yield str(name), names.get(tensor.dtype, str(tensor.dtype)), tensor.dim()


def dtype_facts(*folders: Path | None) -> dict[str, str | int]:
    """Return what a record says of the types of an encoder loaded as float32; None: from no folder."""
    names = stored_dtypes(*(folder for folder in folders if folder))
    return {"dtype": "float32", **({"folder_dtype": "+".join(names)} if names else {})}
