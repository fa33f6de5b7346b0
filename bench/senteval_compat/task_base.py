"""The common part of SentEval's classes of tasks: a folder, a preparation, a run with a batcher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.encoder import FloatArray
from bench.errors import BenchError, DataError, InputError
from bench.eval.embeddings import Embeddings, distinct_sentences
from bench.eval.transfer_items import SEED
from bench.senteval_compat.utils import dotdict

Batcher = Callable[..., Any]
Prepare = Callable[..., Any]

_DEFAULTS = (("usepytorch", True), ("batch_size", 128), ("nhid", 0), ("kfold", 5))
_NUMBERS = "fiub"  # numpy's kinds of floats, integers and truth values


class Evaluation:
    """One task in its own folder, such as ``downstream/SICK``; the seed is of folds and fits.

    Missing or damaged data raise DataError.
    """

    name = ""
    folder = ""  # the task's own folder below ``downstream``

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        self.path, self.seed = Path(task_path), seed
        self.samples: list[str] = []

    @classmethod
    def make_class(cls, name: str, folder: str = "", **members: Any) -> Any:
        """Return the subclass of a task, called as SentEval calls it."""
        members |= {"name": name, "folder": folder or name, "__doc__": f"{name}."}
        return type(f"{name}Eval", (cls,), members)

    def root(self) -> Path:
        """Return the ``downstream`` folder; raises DataError if the task's own has another name."""
        parts = PurePath(self.folder).parts
        if self.path.absolute().parts[-len(parts) :] != parts:
            raise DataError("not this task's folder", where=str(self.path), expected=f".../{self.folder}")
        return self.path.absolute().parents[len(parts) - 1]

    def do_prepare(self, params: dict[str, Any], prepare: Prepare) -> Any:
        """Call the script's ``prepare`` with the parameters and all sentences, as lists of words."""
        return prepare(params, [sentence.split() for sentence in self.samples])

    def run(self, params: dict[str, Any], batcher: Batcher) -> dict[str, Any]:
        """Return the task's dictionary; unusable vectors raise BenchError.

        Parameters and batcher are those of :class:`~bench.senteval_compat.engine.SE`.
        """
        raise NotImplementedError

    def vectors(self, params: dict[str, Any], batcher: Batcher) -> Embeddings:
        """Return the batcher's vectors of the distinct sentences, float32 as for SentEval's classifier.

        Every batch is copied before the next call, since a batcher may reuse one buffer.
        """
        size = read_parameter(params, "batch_size", 1, self.name)
        texts = sorted(distinct_sentences(self.samples), key=lambda sentence: len(sentence.split()))
        parts: list[NDArray[np.float32]] = []
        for begin in range(0, len(texts), size):
            batch = [sentence.split() for sentence in texts[begin : begin + size]]
            returned = batcher(params, [list(words) for words in batch])
            parts.append(read_batch(returned, batch, self.name, parts[0].shape[1] if parts else None))
        return Embeddings({text: row for row, text in enumerate(texts)}, np.concatenate(parts))


def fill_defaults(params: dict[str, Any]) -> dotdict:
    """Return the parameters with SentEval's defaults for missing ones.

    >>> fill_defaults({"kfold": 10}).kfold, fill_defaults({}).batch_size
    (10, 128)
    """
    filled = dotdict(params)
    for name, value in _DEFAULTS:
        if filled.get(name) is None:
            filled[name] = value
    return filled


def read_parameter(params: dict[str, Any], name: str, least: int, where: str = "params") -> int:
    """Return a whole number of the parameters, or SentEval's default; see :func:`read_whole_number`."""
    return read_whole_number(fill_defaults(params)[name], f"params['{name}']", least, where)


def read_whole_number(value: Any, name: str, least: int, where: str) -> int:
    """Return a whole number; raises InputError for any other value, or one below ``least``."""
    try:
        number = int(value)
        if number != float(value) or number < least:
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        what = f"{name} is {value!r}"
        raise InputError(what, where=where, expected=f"a whole number of at least {least}") from error
    return number


def read_batch(returned: Any, sentences: list[list[str]], task: str, width: int | None = None) -> FloatArray:
    """Return a copy of a batcher's rows, float32 (sentences, dim), with the ``width`` of earlier batches.

    Tensors of any float type, on any device, with or without gradients, and lists of rows are converted. Any
    other value, number of rows or columns, and a NaN or infinite value, raise BenchError.

    >>> read_batch([[1, 2], [3, 4]], [["a"], ["b"]], "STS12").tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    expected = f"({len(sentences)}, {'dim' if width is None else width})"
    try:
        with np.errstate(over="ignore"):  # an overflow is refused below
            values = _as_array(returned)
            rows = np.array(values, dtype=np.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"the batcher returned {_describe_value(returned)}"
        hint = "return a numpy array, a torch tensor or a list of rows"
        raise BenchError(what, where=task, expected=f"numbers of the shape {expected}", hint=hint) from error
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
        if returned.is_meta or returned.is_complex():
            raise TypeError("a meta tensor, or complex numbers")
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
    """Describe a value by its type, and by the keys of a dictionary."""
    kind = f"a {type(returned).__name__}"
    if returned is None:
        return "None"
    if isinstance(returned, dict):
        keys = ", ".join(map(repr, list(returned)[:5]))
        return f"{kind} with the keys {keys or '(none)'}"
    rows = returned if isinstance(returned, list | tuple) else [returned]
    if any(isinstance(row, torch.Tensor) and row.is_meta for row in rows):
        return "tensors on the device meta, which have no values"
    if isinstance(returned, np.ndarray | torch.Tensor):
        return f"values of the type {returned.dtype}"
    if isinstance(returned, list | tuple):
        kinds = ", ".join(sorted({type(row).__name__ for row in returned})[:3])
        return f"{kind} of {len(returned)} ({kinds or 'empty'}) that is no matrix"
    return kind
