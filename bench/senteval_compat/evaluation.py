"""What SentEval's classes of tasks have in common: a folder, a preparation, a run with a batcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import DataError, InputError
from bench.eval.embeddings import Embeddings, distinct_sentences
from bench.eval.transfer_items import SEED
from bench.senteval_compat.batcher_rows import read_batch
from bench.senteval_compat.utils import dotdict

Batcher = Callable[..., Any]
Prepare = Callable[..., Any]

_DEFAULTS = (("usepytorch", True), ("batch_size", 128), ("nhid", 0), ("kfold", 5))


class Evaluation:
    """One task.

    Args:
        task_path: The task's own folder, such as ``downstream/SICK``.
        seed: Of folds and fits.

    Raises:
        DataError: missing or damaged data.
    """

    name = ""
    folder = ""
    """The task's own folder below ``downstream``."""

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        self.path, self.seed = Path(task_path), seed
        self.samples: list[str] = []

    def root(self) -> Path:
        """Return the ``downstream`` folder; raises DataError where the task's own has another name."""
        parts = PurePath(self.folder).parts
        if self.path.absolute().parts[-len(parts) :] != parts:
            raise DataError("not this task's folder", where=str(self.path), expected=f".../{self.folder}")
        return self.path.absolute().parents[len(parts) - 1]

    def do_prepare(self, params: dict[str, Any], prepare: Prepare) -> Any:
        """Hand all sentences, as lists of words, to the script's ``prepare``.

        Args:
            params: The parameters.
            prepare: (params, sentences).
        """
        return prepare(params, [sentence.split() for sentence in self.samples])

    def run(self, params: dict[str, Any], batcher: Batcher) -> dict[str, Any]:
        """Return the task's dictionary.

        Args:
            params: The parameters, as :class:`~bench.senteval_compat.engine.SE` takes them.
            batcher: (params, sentences as lists of words) -> (sentences, dim).

        Raises:
            BenchError: the batcher's vectors can't be used.
        """
        raise NotImplementedError

    def vectors(self, params: dict[str, Any], batcher: Batcher) -> Embeddings:
        """The batcher's vectors of the distinct sentences, float32 as SentEval's classifier takes them.

        Every batch is copied before the next call: a batcher may reuse one buffer.

        Args:
            params: The parameters.
            batcher: The batcher.

        Raises:
            BenchError: the batcher returned something that is no finite matrix of a row a sentence.
            InputError: ``batch_size`` isn't a whole number of at least 1.
        """
        size = read_parameter(params, "batch_size", 1, self.name)
        texts = sorted(distinct_sentences(self.samples), key=lambda sentence: len(sentence.split()))
        parts: list[NDArray[np.float32]] = []
        for begin in range(0, len(texts), size):
            batch = [sentence.split() for sentence in texts[begin : begin + size]]
            returned = batcher(params, [list(words) for words in batch])
            parts.append(read_batch(returned, batch, self.name, parts[0].shape[1] if parts else None))
        vectors = np.concatenate(parts)
        return Embeddings({text: row for row, text in enumerate(texts)}, vectors)


def fill_defaults(params: dict[str, Any]) -> dotdict:
    """Return the parameters with SentEval's defaults for those that are missing or None.

    >>> fill_defaults({"kfold": 10}).kfold, fill_defaults({}).batch_size
    (10, 128)
    """
    found = dotdict(params)
    for name, value in _DEFAULTS:
        if found.get(name) is None:
            found[name] = value
    return found


def read_parameter(params: dict[str, Any], name: str, least: int, where: str = "params") -> int:
    """Return a whole number of the parameters, or SentEval's default; errors as :func:`read_whole`.

    >>> read_parameter({"kfold": 10}, "kfold", 2)
    10
    """
    value = fill_defaults(params)[name]
    return read_whole_number(value, f"params['{name}']", least, where)


def read_whole_number(value: Any, name: str, least: int, where: str) -> int:
    """Return a whole number; raises InputError for any other value, or one below ``least``."""
    try:
        number = int(value)
        if number != float(value) or number < least:
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{name} is {value!r}", where=where, expected=f"a whole number of at least {least}"
        ) from error
    return number


def sentence_vectors(embedded: Embeddings, sentences: Iterable[str]) -> NDArray[np.float32]:
    """Vectors of sentences, in their order."""
    return embedded.vectors[[embedded.rows[sentence] for sentence in sentences]]


def senteval_features(
    embedded: Embeddings, first: Sequence[str], second: Sequence[str]
) -> NDArray[np.float32]:
    """SentEval's features: a sentence's vector; of a pair |u - v| and u * v."""
    u = sentence_vectors(embedded, first)
    if not second:
        return u
    v = sentence_vectors(embedded, second)
    return np.concatenate([np.abs(u - v), u * v], axis=1)
