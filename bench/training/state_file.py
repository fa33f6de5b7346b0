"""A training's state in one file: plain data and tensors as safetensors, with a checksum."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bench.errors import DataError
from bench.records.filesystem import temporary_path

SCALARS = (type(None), bool, int, float, str)
"""Types that JSON keeps as they are."""
_CONTAINERS = (list, tuple, set, frozenset, deque)  # a subclass of a tuple has names of its own
_DATA, _DIGEST = "state", "sha256"
_KINDS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_KINDS |= {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8"}
_KINDS |= {torch.uint8: "U8", torch.bool: "BOOL"}
"""Names of types in a file of safetensors."""


def is_plain(value: Any) -> bool:
    """Return whether a value is a scalar, or a container of nothing but scalars."""
    if isinstance(value, dict):
        return is_plain(list(value)) and is_plain(list(value.values()))
    if type(value) in _CONTAINERS:
        kinds = set(map(type, value))
        return kinds <= set(SCALARS) or all(map(is_plain, value))
    return type(value) in SCALARS


def is_data(value: Any) -> bool:
    """Return whether :func:`write_state` keeps a value: scalars and tensors, in containers of any depth."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biuf"
    if isinstance(value, Tensor) or is_plain(value):
        return True
    if isinstance(value, dict):
        return is_plain(list(value)) and all(map(is_data, value.values()))
    return type(value) in _CONTAINERS and all(map(is_data, value))


class _Packer:
    """Turns data into JSON values that name their tensors; a tensor in two places has one name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[int, str] = {}
        self._held: list[Tensor] = []

    def pack(self, value: Any) -> Any:
        if type(value) in SCALARS:
            return value
        if isinstance(value, Tensor):
            return {"tensor": self._name(value), "on": value.device.type}
        if isinstance(value, np.ndarray | np.generic):
            tensor = torch.from_numpy(np.array(value))
            return {"array": self._name(tensor), "scalar": isinstance(value, np.generic)}
        if isinstance(value, dict):
            return {"dict": [[self.pack(key), self.pack(entry)] for key, entry in value.items()]}
        if isinstance(value, deque):
            return {"deque": [*map(self.pack, value)], "longest": value.maxlen}
        if isinstance(value, set | frozenset):
            return {type(value).__name__: [*map(self.pack, value)]}
        if isinstance(value, tuple):
            return {"tuple": [*map(self.pack, value)]}
        if isinstance(value, list):
            return [*map(self.pack, value)]
        raise TypeError(f"a {type(value).__name__} is no plain data")

    def _name(self, tensor: Tensor) -> str:
        if tensor.dtype not in _KINDS:
            raise TypeError(f"a tensor of {tensor.dtype} is no plain data")
        if id(tensor) not in self._names:
            name = self._names[id(tensor)] = str(len(self.tensors))
            self._held.append(tensor)  # an id is a tensor's own only while it lives
            self.tensors[name] = tensor.detach().to("cpu", copy=True).contiguous()
        return self._names[id(tensor)]


_DAMAGE = (
    *(SafetensorError, OSError, ValueError, KeyError, TypeError),
    *(AttributeError, OverflowError, RecursionError),
)
"""What reading a damaged or forged file raises."""


class _Unpacker:
    """The reverse of :class:`_Packer`; tensors of other devices than the CPU go to ``device``."""

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device | str) -> None:
        self._tensors, self._device = tensors, device
        self._made: dict[tuple[str, str], Any] = {}

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            return [*map(self.unpack, value)]
        if not isinstance(value, dict):
            return value
        if "tensor" in value:
            return self._tensor(value["tensor"], value["on"])
        if "array" in value:
            array = self._tensors[value["array"]].numpy()
            return array[()] if value["scalar"] else array
        if "dict" in value:
            return {self.unpack(key): self.unpack(entry) for key, entry in value["dict"]}
        if "deque" in value:
            return deque(map(self.unpack, value["deque"]), value["longest"])
        ((kind, entries),) = value.items()
        return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](map(self.unpack, entries))

    def _tensor(self, name: str, kind: str) -> Tensor:
        if (name, kind) not in self._made:
            tensor = self._tensors[name]
            self._made[name, kind] = tensor if kind == "cpu" else tensor.to(self._device)
        made: Tensor = self._made[name, kind]
        return made


def pack_state(state: Any) -> tuple[str, dict[str, Tensor]]:
    """Return data as JSON and its tensors by name, copied to the CPU; TypeError for anything else."""
    packer = _Packer()
    return json.dumps(packer.pack(state)), packer.tensors


def write_state(path: Path, data: str, tensors: Mapping[str, Tensor]) -> None:
    """Write :func:`pack_state`'s result atomically; raises OSError."""
    header: dict[str, Any] = {"__metadata__": {_DATA: data, _DIGEST: _digest(data, tensors)}}
    start = 0
    for name, tensor in tensors.items():
        place = [start, start + tensor.nbytes]
        header[name] = {"dtype": _KINDS[tensor.dtype], "shape": [*tensor.shape], "data_offsets": place}
        start += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    scratch = temporary_path(path)
    try:
        # safetensors' own function leaves a file of its own where it is killed
        with scratch.open("xb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for tensor in tensors.values():
                stream.write(read_bytes(tensor))
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    if os.name != "nt":  # which opens no folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_state(path: Path, device: torch.device | str) -> Any:
    """Read what :func:`write_state` wrote; DataError for a damaged file, FileNotFoundError for none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for ever
            raise DataError("it is no regular file", where=path.name)
        with safe_open(path, framework="pt") as opened:
            facts = opened.metadata() or {}
            # copied: a mapped file gives tensors at odd addresses, where kernels may round differently
            tensors = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
        data = facts[_DATA]
        if facts[_DIGEST] != _digest(data, tensors):
            raise DataError("its content differs from its checksum", where=path.name)
        return _Unpacker(tensors, device).unpack(json.loads(data))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except _DAMAGE as error:
        raise DataError(f"it can't be read: {type(error).__name__}", where=path.name) from error


def read_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _digest(data: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the checksum of all content."""
    digest = hashlib.sha256(data.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(read_bytes(tensor))
    return digest.hexdigest()
