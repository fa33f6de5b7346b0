"""bench: benchmarking and leaderboards for unsupervised sentence encoders (distribution ``cse-bench``).

>>> import bench
>>> sorted(name for name in dir(bench) if name in bench.__all__)[:4]
['BenchError', 'InputError', '__version__', 'check_method']
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError, InputError
from bench.version import __version__

if TYPE_CHECKING:
    from bench.api.folders import load as load
    from bench.api.results import results as results
    from bench.api.runs import check_method as check_method
    from bench.api.runs import dry_run as dry_run
    from bench.api.runs import run as run
    from bench.api.runs import train as train
    from bench.api.runs import tune as tune

if not os.path.isdir(os.path.join(__path__[0], "methods")):
    # In a checkout baselines/, methods/ and reports/ lie next to bench/
    __path__.append(os.path.dirname(os.path.abspath(__path__[0])))

_FUNCTIONS = {
    "check_method": "bench.api.runs.check_method",
    "dry_run": "bench.api.runs.dry_run",
    "load": "bench.api.folders.load",
    "results": "bench.api.results.results",
    "run": "bench.api.runs.run",
    "train": "bench.api.runs.train",
    "tune": "bench.api.runs.tune",
}
"""The place of each function, imported at its first use."""
__all__ = [
    "BenchError",
    "InputError",
    "__version__",
    "check_method",
    "dry_run",
    "load",
    "results",
    "run",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import a function at its first use."""
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'bench' has no attribute '{name}'")
    module, _, function = _FUNCTIONS[name].rpartition(".")
    value = globals()[name] = getattr(import_module(module), function)
    return value


def __dir__() -> list[str]:
    """Return the names, with the functions that aren't imported yet."""
    return sorted({*globals(), *_FUNCTIONS})
