"""Checks of arguments that all statistics share, and their random generators."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
MIN_PAIRS = 4


def make_generator(seed: int, stream: str) -> np.random.Generator:
    """Return the generator of a named stream of a seed; streams are independent of each other.

    >>> bool(make_generator(1, "items").random() == make_generator(1, "items").random())
    True
    """
    digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest))


def check_scores(values: ArrayLike, name: str, least: int) -> FloatArray:
    """Return (runs,) finite scores, one per seed."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; expected (runs,), one score per seed")
    if len(array) < least:
        raise ValueError(f"{name} has {len(array)} seed(s); expected at least {least}")
    return _check_finite(array, name)


def check_sides(
    a: ArrayLike, b: ArrayLike, least: int = 1, *, paired: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Return the (runs,) scores of two sides; pairs need equal numbers."""
    x, y = check_scores(a, "a", least), check_scores(b, "b", least)
    if paired and len(x) != len(y):
        raise ValueError(f"{len(x)} against {len(y)} seeds; expected pairs")
    return x, y


def check_table(values: ArrayLike, name: str) -> FloatArray:
    """Return a (runs, tasks) table of finite scores."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name} has shape {array.shape}; expected (runs, tasks)")
    return _check_finite(array, name)


def check_items(predictions: ArrayLike, gold: ArrayLike, where: str = "") -> tuple[FloatArray, FloatArray]:
    """Return predictions as (runs, pairs), a single run as one row, and gold scores as (pairs,)."""
    rows = np.atleast_2d(np.asarray(predictions, dtype=np.float64))
    scores = np.asarray(gold, dtype=np.float64)
    prefix = f"{where}: " if where else ""
    if scores.ndim != 1 or rows.ndim != 2 or not len(rows) or rows.shape[1] != len(scores):
        raise ValueError(
            f"{prefix}predictions {np.shape(predictions)} with gold {scores.shape}; "
            "expected (runs, pairs) or (pairs,) with (pairs,)"
        )
    if len(scores) < MIN_PAIRS:
        raise ValueError(f"{prefix}{len(scores)} pairs; expected at least {MIN_PAIRS}")
    return _check_finite(rows, f"{prefix}predictions"), _check_finite(scores, f"{prefix}gold")


def check_level(level: float) -> None:
    """Raise ValueError unless a confidence level or error rate is in (0, 1)."""
    if not 0 < level < 1:
        raise ValueError(f"level={level}; expected a number in (0, 1)")


def check_draws(draws: int) -> None:
    """Raise ValueError unless there are enough draws for the ends of an interval."""
    if draws < 100:
        raise ValueError(f"{draws} draws; expected at least 100")


def _check_finite(array: FloatArray, name: str) -> FloatArray:
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: a value is not finite")
    return array
