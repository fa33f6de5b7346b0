"""Rows of a batcher: any matrix of numbers, copied, since a batcher may reuse its buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.encoder import FloatArray
from bench.errors import BenchError

_NUMBERS = "fiub"  # numpy's kinds of floats, integers and truth values
_HINT = "return a numpy array, a torch tensor or a list of rows"


def read_batch(returned: Any, sentences: list[list[str]], task: str, width: int | None = None) -> FloatArray:
    """Return a copy of a batcher's rows, float32 (sentences, dim).

    Tensors of any float type, on any device, with or without gradients, and lists of rows are converted.

    Args:
        returned: The batcher's return value.
        sentences: The batch, as lists of words.
        task: Name of the task, for messages.
        width: Columns of the batches before; None for the first.

    Raises:
        BenchError: no matrix of numbers, another number of rows or columns, or a value that isn't finite.

    >>> read_batch([[1, 2], [3, 4]], [["a"], ["b"]], "STS12").tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    expected = f"({len(sentences)}, {'dim' if width is None else width})"
    try:
        with np.errstate(over="ignore"):  # it becomes an infinity, which is refused below
            values = _as_array(returned)
            rows = np.array(values, dtype=np.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"the batcher returned {_describe_value(returned)}"
        raise BenchError(what, where=task, expected=f"numbers of the shape {expected}", hint=_HINT) from error
    if rows.ndim != 2 or len(rows) != len(sentences) or not rows.shape[1]:
        raise BenchError(f"the batcher returned the shape {rows.shape}", where=task, expected=expected)
    if width not in (None, rows.shape[1]):
        what = f"the batcher returned {rows.shape[1]} columns, after {width} in the batches before"
        raise BenchError(what, where=task, expected=expected)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        place = int(np.argmin(finite))
        first = " ".join(sentences[place])
        overflows = np.isfinite(np.asarray(values[place], dtype=np.float64)).all()
        raise BenchError(
            f"the batcher's vectors {'overflow in float32' if overflows else 'are not finite'} "
            f"({int((~finite).sum())} of the {len(rows)} of a batch, the first of '{first[:60]}')",
            where=task,
        )
    return rows


def _as_array(returned: Any) -> NDArray[Any]:
    """Return an array of numbers, perhaps the caller's own; raises TypeError or ValueError."""
    if isinstance(returned, torch.Tensor):
        if returned.is_meta:
            raise TypeError("a meta tensor")
        if returned.is_complex():
            raise TypeError("complex numbers")
        dense = returned.detach().cpu()
        dense = dense.to_dense() if dense.layout != torch.strided else dense
        dense = dense if dense.dtype == torch.float64 else dense.to(torch.float32)
        tensor: NDArray[Any] = dense.numpy()
        return tensor
    if isinstance(returned, list | tuple) and any(isinstance(row, torch.Tensor) for row in returned):
        return np.stack([_as_array(row) for row in returned])
    array = np.asarray(returned)
    if array.dtype.kind == "O" and array.ndim and not isinstance(returned, list | tuple):
        return _as_array(array.tolist())  # rows that are objects, such as an array of tensors
    if array.dtype.kind not in _NUMBERS and array.dtype.name != "bfloat16":
        raise TypeError(f"values of the type {array.dtype}")
    return array


def _describe_value(returned: Any) -> str:
    """A value in the words of a message: its type, and the keys of a dictionary."""
    if returned is None:
        return "None"
    if isinstance(returned, dict):
        keys = ", ".join(map(repr, list(returned)[:5]))
        return f"a {type(returned).__name__} with the keys {keys or '(none)'}"
    rows = returned if isinstance(returned, list | tuple) else [returned]
    if any(isinstance(row, torch.Tensor) and row.is_meta for row in rows):
        return "tensors on the device meta, which have no values"
    if isinstance(returned, np.ndarray | torch.Tensor):
        return f"values of the type {returned.dtype}"
    if isinstance(returned, list | tuple):
        kinds = ", ".join(sorted({type(row).__name__ for row in returned})[:3])
        return f"a {type(returned).__name__} of {len(returned)} ({kinds or 'empty'}) that is no matrix"
    return f"a {type(returned).__name__}"
