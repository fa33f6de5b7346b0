"""Tensors that say cuda:0 or mps:0, and the rules of a device for every operation on them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor

from tests.support.standin import mps
from tests.support.standin.tally import PAGEABLE, READ, Tally
from tests.support.standin.target import played

DEVICE = torch.device(played(), 0)
MPS = played() == "mps"
TALLY = Tally()
_HOST = torch.device("cpu")
_READS = {
    "_local_scalar_dense", "equal", "nonzero", "masked_select", "bincount", "_unique2", "unique_dim",
    "unique_consecutive", "_linalg_eigh", "linalg_eig", "_linalg_svd", "linalg_lstsq",
    "_linalg_check_errors", "_assert_async", "cholesky_inverse",
}  # fmt: skip
"""Operations whose kernels on CUDA end with a value that the host waits for."""
_COPIES = {"copy_", "_to_copy"}
_TAKE_HOST_INDICES = {"index", "index_put", "index_put_", "_index_put_impl_"}
_PINNED = "_standin_pinned"
_DATA: Any = torch._C.TensorBase.data


class MixedDevicesError(RuntimeError):
    """What torch raises where tensors or generators of two devices meet."""


class OnDevice(Tensor):
    """A tensor on the device; ``held`` holds its numbers."""

    held: Tensor
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, real: Tensor) -> OnDevice:
        if MPS:
            mps.check_float64(real)
        made = Tensor._make_wrapper_subclass(
            cls,
            real.size(),
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            layout=real.layout,
            device=DEVICE,
        )
        assert isinstance(made, OnDevice)
        made.held = real
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return dispatched(func, tuple(args), dict(kwargs or {}))

    def numpy(self, **_: Any) -> NoReturn:
        raise TypeError(f"can't convert a {DEVICE} tensor to numpy: use Tensor.cpu() first")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self.numpy()

    @property
    def data(self) -> Tensor:
        found: Tensor = _DATA.__get__(self)
        return found

    @data.setter
    def data(self, other: Any) -> None:
        _DATA.__set__(self, other)
        self.held = other.held

    def tolist(self) -> Any:
        TALLY.note(READ, "tolist")
        return self.held.tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnDevice({self.held!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        with torch.no_grad():
            made: Tensor = OnDevice(self.held.detach().clone())
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(made, requires_grad=self.requires_grad)
        else:
            made.requires_grad_(self.requires_grad)
        made.grad = None if self.grad is None else copy.deepcopy(self.grad, memo)
        memo[id(self)] = made
        return made


def real(value: Any) -> Any:
    """The numbers behind a tensor of the device; other values as they are."""
    return value.held if isinstance(value, OnDevice) else value


def pinned(tensor: Tensor) -> bool:
    """True for what :func:`pin` gave."""
    return bool(getattr(tensor, _PINNED, False))


def pin(tensor: Tensor) -> Tensor:
    """Mark a CPU tensor as one in pinned memory."""
    setattr(tensor, _PINNED, True)
    return tensor


def dispatched(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation by the device's rules: every tensor of it, or none, is on the device."""
    name = func._schema.name.split("::")[1]
    tensors = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
    here = any(isinstance(tensor, OnDevice) for tensor in tensors)
    asked = kwargs.get("device")
    result_here = here if asked is None else torch.device(asked).type == DEVICE.type
    if name in _COPIES:
        result_here = _copy(name, args, kwargs, result_here)
    elif here:
        _check(func, name, args, tensors)
        _note_read(name, args)
    if not here and not result_here and not kwargs.get("pin_memory"):
        return func(*args, **kwargs)
    if MPS and name not in _COPIES:
        mps.check_kernel(func)
    _check_generator(func, kwargs.get("generator"), result_here)
    wants_pinned = bool(kwargs.get("pin_memory"))
    own = dict(kwargs)
    own.pop("pin_memory", None)
    if asked is not None:
        own["device"] = _HOST
    numbers = {name: mapped(real, value) for name, value in own.items()}
    draws = result_here and kwargs.get("generator") is None and _draws(func)
    with _own_draws() if draws else nullcontext():
        found = func(*mapped(real, args), **numbers)
    if wants_pinned:
        return pin(found)
    known = {id(tensor.held): tensor for tensor in tensors if isinstance(tensor, OnDevice)}
    return mapped(lambda value: _given_back(value, known, result_here), found)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors among an operation's arguments; torch's own trees cost as much as the operations."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)


def mapped(call: Callable[[Tensor], Any], value: Any) -> Any:
    """An operation's arguments or results with its tensors changed."""
    if isinstance(value, Tensor):
        return call(value)
    if isinstance(value, tuple | list):
        return type(value)([mapped(call, part) for part in value])
    return value


def _given_back(value: Tensor, known: Mapping[int, OnDevice], result_here: bool) -> Tensor:
    if id(value) in known:  # in place
        wrapper = known[id(value)]
        if wrapper.shape != value.shape:
            raise NotImplementedError("an operation that changes a tensor's shape in place")
        return wrapper
    return OnDevice(value) if result_here else value


def _copy(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result_here: bool) -> bool:
    """Note what a copy between host and device costs; return whether its result is on the device."""
    source = args[1] if name == "copy_" else args[0]
    to_device = isinstance(args[0], OnDevice) if name == "copy_" else result_here
    waits = not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2]))
    if to_device and not isinstance(source, OnDevice):
        if waits or not pinned(source):
            TALLY.note(PAGEABLE, "a blocking copy" if pinned(source) else "a copy from pageable memory")
    elif (
        not to_device
        and isinstance(source, OnDevice)
        and (waits or (name == "copy_" and not pinned(args[0])))
    ):
        TALLY.note(READ, "a copy to the host")
    return to_device


def _check(func: Any, name: str, args: Sequence[Any], tensors: Sequence[Tensor]) -> None:
    """Refuse tensors of the CPU beside the device's; numbers without a dimension pass, and indices."""
    strangers = [tensor for tensor in tensors if not isinstance(tensor, OnDevice) and tensor.dim()]
    if not strangers:
        return
    if name in _TAKE_HOST_INDICES and isinstance(args[0], OnDevice):
        indices = {id(index) for index in args[1] if isinstance(index, Tensor)}
        if all(id(tensor) in indices for tensor in strangers):
            TALLY.note(PAGEABLE, "an index from the host")
            return
    kinds = ", ".join(f"{tensor.device.type} {tuple(tensor.shape)}" for tensor in tensors)
    raise MixedDevicesError(f"Expected all tensors to be on the same device: {func} got {kinds}")


def _note_read(name: str, args: Sequence[Any]) -> None:
    if name in _READS:
        TALLY.note(READ, name.strip("_"))
    elif name == "repeat_interleave" and isinstance(args[0], OnDevice):
        TALLY.note(READ, name)
    elif name in _TAKE_HOST_INDICES:
        masks = [index for index in args[1] if isinstance(index, Tensor) and index.dtype in _BOOLEAN]
        fills = name != "index" and args[2].numel() == 1 and len(masks) == len(args[1])
        if masks and not fills:  # a mask that is filled with one value needs no list of places
            TALLY.note(READ, "a boolean index")


_BOOLEAN = (torch.bool, torch.uint8)


def _check_generator(func: Any, generator: torch.Generator | None, result_here: bool) -> None:
    if generator is None:
        return
    own, wanted = generator.device.type, DEVICE.type if result_here else "cpu"
    if own != wanted:
        raise MixedDevicesError(f"Expected a '{wanted}' device type for generator but found '{own}': {func}")


class Draws:
    """The device's own random state: what it draws leaves the host's generator alone."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)

    def seed(self, seed: int) -> None:
        """Begin anew."""
        self._generator.manual_seed(seed ^ 0x5EED)

    def state(self) -> Tensor:
        """The state."""
        return self._generator.get_state()

    def restore(self, state: Tensor) -> None:
        """Go back to a state."""
        self._generator.set_state(state)


DRAWS = Draws()


@contextmanager
def _own_draws() -> Iterator[None]:
    """Draw from the device's state."""
    host = torch.default_generator.get_state()
    torch.default_generator.set_state(DRAWS.state())
    try:
        yield
    finally:
        DRAWS.restore(torch.default_generator.get_state())
        torch.default_generator.set_state(host)


def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags
