"""SentEval's small helpers."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from bench.errors import InputError, not_one_of
from bench.schema import parse_decimal

_MARKS = ("<s>", "</s>", "<p>")  # they come first in a dictionary
_OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    name.lower(): getattr(torch.optim, name)
    for name in ("Adadelta", "Adagrad", "Adam", "Adamax", "ASGD", "RMSprop", "Rprop", "SGD")
}


class dotdict(dict[str, Any]):  # noqa: N801 - SentEval's name
    """A dictionary whose values are attributes too; a missing one is None.

    >>> params = dotdict(kfold=10)
    >>> params.seed = 3
    >>> params.kfold, params["seed"], params.nhid
    (10, 3, None)
    """

    def __getattr__(self, name: str) -> Any:
        """Return a value or None."""
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a value."""
        self[name] = value

    def __delattr__(self, name: str) -> None:
        """Remove a value."""
        del self[name]


def create_dictionary(sentences: Iterable[Iterable[str]]) -> tuple[list[str], dict[str, int]]:
    """Return the words of lists of words by falling frequency behind three marks, and each word's place.

    >>> create_dictionary([["b", "a"], ["a"]])[0]
    ['<s>', '</s>', '<p>', 'a', 'b']
    """
    counts = Counter(word for sentence in sentences for word in sentence if word not in _MARKS)
    words = [*_MARKS, *(word for word, _ in counts.most_common())]
    return words, {word: place for place, word in enumerate(words)}


def cosine(u: ArrayLike, v: ArrayLike) -> float:
    """Cosine of two vectors; NaN for a zero vector.

    >>> cosine([3.0, 4.0], [4.0, 3.0])
    0.96
    """
    a, b = np.asarray(u), np.asarray(v)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def get_optimizer(s: str) -> tuple[Callable[..., torch.optim.Optimizer], dict[str, float]]:
    """Return the class and the keyword arguments of an optimiser such as "adagrad,lr=0.1,lr_decay=0.05".

    An unknown optimiser or setting, and "sgd" with a missing learning rate, raise InputError.

    >>> get_optimizer("sgd,lr=0.1")[1]
    {'lr': 0.1}
    """
    name, *settings = s.split(",")
    if name not in _OPTIMISERS:
        raise not_one_of(f"unknown optimiser '{name}'", name, list(_OPTIMISERS), where="optim")
    optimiser = _OPTIMISERS[name]
    known = list(inspect.signature(optimiser).parameters)[1:]
    arguments: dict[str, float] = {}
    for setting in settings:
        key, _, text = setting.partition("=")
        try:
            value = parse_decimal(text)
        except ValueError:
            value = math.nan
        if key not in known or math.isnan(value):
            expected = f"NAME=NUMBER of {', '.join(known)}"
            raise InputError(f"'{setting}'", where=f"optim '{s}'", expected=expected)
        arguments[key] = value
    if name == "sgd" and "lr" not in arguments:
        raise InputError("no learning rate", where=f"optim '{s}'", expected="such as 'sgd,lr=0.1'")
    return optimiser, arguments
