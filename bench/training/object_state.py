"""The changing state of an objective, found among its attributes.

An objective is a plain object: modules, queues, momentum copies, teachers, counters and generators are its
attributes, or attributes of these. All are found by walking through them. Encoders, tokenizers, texts and
configurations are inputs, which training leaves as they are.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from bench.encoder import Encoder
from bench.errors import BenchError
from bench.nn.backbone import TokenRows
from bench.nn.lora import has_lora, is_adapter_weight
from bench.stages import StageContext
from bench.training.state_file import SCALARS, is_data, is_plain, read_bytes

Put = Callable[[Any], object]
"""Replaces a value where it was found."""
_INPUTS = (
    *(type, ModuleType, BuiltinFunctionType, Path, bytes, complex, range, slice, Enum, re.Pattern),
    *(torch.dtype, torch.device, torch.Size, torch.layout, np.dtype),
    *(PreTrainedTokenizerBase, PreTrainedConfig, GenerationConfig, StageContext, TokenRows),
)
"""Types of constants and inputs."""
_GENERATORS = torch.Generator | np.random.Generator | random.Random
_TABLES = frozenset(vars(nn.Module())) - {"training"}
"""Attributes that every module has: tables of its parts and hooks."""


class UnknownStateError(BenchError):
    """An object whose state can't be read from its attributes."""


@dataclass
class _Leaf:
    value: Any
    owner: str
    name: str
    put: Put | None  # None where it can't be replaced


class _Walk:
    """All values below an object: ``leaves`` by place, and the type of every object on the way."""

    def __init__(self, root: object) -> None:
        self.leaves: dict[str, _Leaf] = {}
        self.kinds: dict[str, str] = {}
        self.objects: dict[str, Any] = {}
        self._seen: dict[int, object] = {}
        self._visit(root, "", "", None)

    def _visit(self, value: Any, owner: str, name: str, put: Put | None) -> None:
        place = f"{owner}/{name}" if name else owner
        if type(value) in SCALARS:
            self.leaves[place] = _Leaf(value, owner, name, put)
            return
        if isinstance(value, _INPUTS) or (isinstance(value, Encoder) and not isinstance(value, nn.Module)):
            self.kinds[place] = _describe_kind(value)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor) and value.grad_fn is not None:
            raise UnknownStateError("a tensor with a gradient's graph", where=place)
        if isinstance(value, _GENERATORS) or is_data(value):
            self.leaves[place] = _Leaf(value, owner, name, put)
            return
        self.kinds[place], self.objects[place] = _describe_kind(value), value
        for entry_name, entry, put_entry in _list_entries(value, place):
            self._visit(entry, place, entry_name, put_entry)


def _describe_kind(value: Any) -> str:
    """Return a name that tells a function, class or constant from another one."""
    if isinstance(value, FunctionType | MethodType | BuiltinFunctionType | type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, torch.dtype | torch.device | torch.Size | Enum | complex | bytes | range | slice):
        return repr(value)
    return type(value).__qualname__


Entries = Iterator[tuple[str, Any, Put | None]]
"""Name, value and replacement of everything that an object holds."""


def _list_entries(value: Any, place: str) -> Entries:
    """Yield the entries of an object; raises UnknownStateError where they can't be known."""
    if isinstance(value, nn.Module):
        yield from _list_module(value)
    elif isinstance(value, Mapping):
        if not is_plain(list(value)):
            raise UnknownStateError("a dictionary with objects as keys", where=place)
        yield from _list_items(value)
    elif isinstance(value, list | deque):
        for number, entry in enumerate(value):
            yield str(number), entry, partial(value.__setitem__, number)
    elif isinstance(value, tuple | partial | MethodType):
        yield from ((name, entry, None) for name, entry in _list_fixed(value))
    elif isinstance(value, FunctionType):
        yield from _list_closure(value)
    elif hasattr(value, "__dict__") and not hasattr(value, "__next__"):
        yield from _list_items(vars(value))
    else:
        raise UnknownStateError(f"a {type(value).__module__}.{type(value).__qualname__}", where=place)


def _list_fixed(value: Any) -> list[tuple[str, Any]]:
    """Return the entries of an object that can't be given others."""
    if isinstance(value, tuple):
        return [(str(number), entry) for number, entry in enumerate(value)]
    if isinstance(value, partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    return [("self", value.__self__)]


def _list_module(module: nn.Module) -> Entries:
    for group in (module._parameters, module._buffers, module._modules):
        yield from _list_items(group)
    own = {name: entry for name, entry in vars(module).items() if name not in _TABLES}
    yield from _list_items(own, vars(module))
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    for number, hook in enumerate(hooks):  # their keys count all hooks of a process
        yield f"hook {number}", hook, None


def _list_closure(function: FunctionType) -> Entries:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # of a variable that isn't set yet
            yield name, cell.cell_contents, partial(setattr, cell, "cell_contents")


def _list_items(entries: Mapping[Any, Any], owner: Mapping[Any, Any] | None = None) -> Entries:
    target = entries if owner is None else owner
    for number, (key, entry) in enumerate([*entries.items()]):
        put = partial(target.__setitem__, key) if isinstance(target, MutableMapping) else None
        yield key if isinstance(key, str) else f"{number}.", entry, put  # a key may be an id


def _read_generator(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return dict(value.bit_generator.state)
    return value.getstate()


def _set_generator(value: Any, state: Any) -> None:
    if isinstance(value, torch.Generator):
        value.set_state(state)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    else:
        value.setstate(state)


class ObjectState:
    """The state of an object: what :meth:`collect` returns, :meth:`restore` gives to an equal new object.

    Made before the training starts. A plain value that is as at the start is left out. State elsewhere than
    in attributes, as an iterator's, is unknown: :meth:`collect` raises UnknownStateError.
    """

    def __init__(self, root: object) -> None:
        self._root = root
        self._error: UnknownStateError | None = None
        try:
            walk = _Walk(root)
        except UnknownStateError as error:
            self._error = error
            return
        self._kinds, self._places = walk.kinds, frozenset(walk.leaves)
        plain = {place: leaf.value for place, leaf in walk.leaves.items() if is_plain(leaf.value)}
        self._first = {place: _copy_plain(value) for place, value in plain.items()}

    def digest(self) -> str:
        """Return a checksum of tensors, generators and numbers, which tells one training from another."""
        total = 0
        if self._error is not None:
            return ""
        for place, leaf in sorted(_Walk(self._root).leaves.items()):
            value = _read_generator(leaf.value) if isinstance(leaf.value, _GENERATORS) else leaf.value
            if isinstance(value, Tensor):
                data = read_bytes(value.detach().cpu().contiguous())
                total = zlib.crc32(data, zlib.crc32(f"{place} {value.dtype}".encode(), total))
            elif type(value) in SCALARS:
                total = zlib.crc32(f"{place} {value!r}".encode(), total)
        kinds = json.dumps(self._kinds, sort_keys=True)
        return f"{zlib.crc32(kinds.encode()):08x}{total:08x}"

    def collect(self) -> Any:
        """Return the present state as data; raises UnknownStateError where it can't be restored."""
        if self._error is not None:
            raise self._error
        walk = _Walk(self._root)
        changed = sorted(walk.kinds.items() ^ self._kinds.items())
        if changed:
            raise UnknownStateError(f"{changed[0][1]}, made or dropped in training", where=changed[0][0])
        if dropped := sorted(self._places - walk.leaves.keys()):
            raise UnknownStateError("a value that was dropped in training", where=dropped[0])
        entries = []
        frozen = _list_frozen_weights(walk.objects.values())
        for place, leaf in walk.leaves.items():
            value = leaf.value
            if id(value) in frozen:
                continue
            if isinstance(value, _GENERATORS):
                value = _read_generator(value)
            elif place in self._first and is_plain(value) and _is_same(value, self._first[place]):
                continue
            elif place not in self._places and not hasattr(walk.objects[leaf.owner], "__dict__"):
                raise UnknownStateError("a new entry of a container of objects", where=place)
            elif leaf.put is None and type(value) in SCALARS:
                raise UnknownStateError("a changed value that can't be replaced", where=place)
            entries.append([leaf.owner, leaf.name, value])
        return entries

    def restore(self, entries: Any) -> None:
        """Give a collected state to the object, whose own is that of the start."""
        walk, same = _Walk(self._root), dict[int, Tensor]()
        alone = [entry for entry in entries if isinstance(entry[2], Tensor)]
        others = [entry for entry in entries if not isinstance(entry[2], Tensor)]
        for owner, name, data in (*alone, *others):  # lists of tensors may hold those of other places
            leaf = walk.leaves.get(f"{owner}/{name}" if name else owner)
            if leaf is None:  # an attribute that training set first
                vars(walk.objects[owner])[name] = data
            elif isinstance(leaf.value, _GENERATORS):
                _set_generator(leaf.value, data)
            else:
                fitted = _fit(leaf.value, data, same)
                if fitted is leaf.value:
                    continue
                if leaf.put is None:
                    raise UnknownStateError("a value that can't be replaced", where=f"{owner}/{name}")
                leaf.put(fitted)


def _list_frozen_weights(objects: Iterable[Any]) -> set[int]:
    """Return the ids of the frozen weights under LoRA adapters, which a training starts from again."""
    models = [value for value in objects if isinstance(value, PreTrainedModel) and has_lora(value)]
    named = (entry for model in models for entry in model.named_parameters())
    return {id(value) for name, value in named if not (value.requires_grad or is_adapter_weight(name))}


def _copy_plain(value: Any) -> Any:
    """Return a copy of plain data, which may change in place."""
    if isinstance(value, list | dict | set | deque):
        return value.copy()
    return value


def _is_same(value: Any, first: Any) -> bool:
    return type(value) is type(first) and bool(value == first)


def _fit(value: Any, data: Any, same: dict[int, Tensor]) -> Any:
    """Return ``value`` with new content where it can hold ``data``, otherwise ``data``.

    ``same`` are restored tensors by the id of their data, so that one in two places stays one.
    """
    if isinstance(data, Tensor):
        return same.setdefault(id(data), _fit_tensor(value, data))
    if isinstance(data, dict):
        olds = value if isinstance(value, dict) else {}
        content: Any = {key: _fit(olds.get(key), new, same) for key, new in data.items()}
    elif isinstance(data, list | tuple | deque):
        olds_by_place = [*value] if isinstance(value, list | tuple) else []
        olds_by_place += [None] * len(data)
        content = [_fit(old, new, same) for old, new in zip(olds_by_place, data, strict=False)]
    else:
        content = data
    return _fill_container(value, content, data)


@torch.no_grad()
def _fit_tensor(value: Any, data: Tensor) -> Tensor:
    """Return the tensor itself with new content, where shape, type and device are the same."""
    if not isinstance(value, Tensor) or (value.shape, value.dtype) != (data.shape, data.dtype):
        return data
    if value.device.type != data.device.type:
        return data
    if not torch.equal(value, data):
        value.copy_(data)
    return value


def _fill_container(value: Any, content: Any, data: Any) -> Any:
    """Return the container with new content, or a new one of the data's kind."""
    kind = type(data)
    if kind is tuple:
        unchanged = isinstance(value, tuple) and len(value) == len(content)
        unchanged = unchanged and all(old is new for old, new in zip(value, content, strict=True))
        return value if unchanged else tuple(content)
    if type(value) is not kind or kind not in (list, dict, set, deque):
        return deque(content, data.maxlen) if kind is deque else content
    value.clear()
    if kind in (dict, set):
        value.update(content)
    else:
        value.extend(content)
    return value
