"""Importing mteb only where it is needed, with the random state preserved."""

from __future__ import annotations

import importlib
import logging
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.errors import InputError

if TYPE_CHECKING:
    from types import ModuleType


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the global generators of ``random``, numpy and torch (of every initialised GPU too).

    Importing mteb, making a task of it and evaluating each seed all of them with 42.
    """
    python, array = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")
    cpu = torch.get_rng_state() if torch else None
    cuda = torch.cuda.get_rng_state_all() if torch and torch.cuda.is_initialized() else None
    mps = torch.mps.get_rng_state() if torch and torch.backends.mps.is_available() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(array)  # noqa: NPY002
        if torch:
            torch.set_rng_state(cpu)
        if torch and cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if torch and mps is not None:
            torch.mps.set_rng_state(mps)


def import_mteb() -> ModuleType:
    """Return mteb with the random state unchanged; raises InputError if mteb or a dependency is missing."""
    try:
        with preserve_random_state():
            import mteb
    except ImportError as error:
        what, hint = f"mteb can't be imported: {error}", "pip install 'cse-bench[mteb]'"
        raise InputError(what, expected="the extra mteb", hint=hint) from error
    return mteb


@contextmanager
def silence_mteb() -> Iterator[None]:
    """Keep mteb's warnings and the progress bars of datasets off stderr."""
    datasets: Any = importlib.import_module("datasets")
    loggers = [logging.getLogger(name) for name in ("mteb", "datasets", "sentence_transformers")]
    levels = [logger.level for logger in loggers]
    bars = not datasets.utils.are_progress_bars_disabled()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            datasets.enable_progress_bars()
