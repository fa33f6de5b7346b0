"""Methods that the session itself registered: their classes, and installed packages for workers."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from bench.config.plugins import loaded_files
from bench.config.run_spec import NAME, Plugin
from bench.registry import METHODS, entry_points

_WORD = re.compile(NAME)


def find_session_methods(texts: Iterable[str]) -> tuple[list[type], list[Plugin]]:
    """Return what ``@add_method`` registered of the methods that texts name.

    A class of a notebook, a script or a module beside it is given like one that the caller names: its source
    identifies it, and workers get it. A class of an installed package is its package's.
    """
    words = {word for text in texts for word in _WORD.findall(text)}
    of_entries = {entry.module.partition(".")[0] for entry in entry_points()}
    classes: list[type] = []
    packages: list[Plugin] = []
    for name, method in METHODS:
        origin = METHODS.origin(name)
        top = origin.partition(".")[0]
        if name not in words or METHODS.is_own(name) or origin in loaded_files() or top in of_entries:
            continue
        if _is_installed(origin):
            packages.append(Plugin(origin))
        else:
            classes.append(type(method))
    return classes, list(dict.fromkeys(packages))


def _is_installed(module: str) -> bool:
    """Return whether a module is in a folder of installed packages, from which workers import it."""
    file = getattr(sys.modules.get(module), "__file__", None)
    folders = [Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")]
    return file is not None and any(Path(file).is_relative_to(folder) for folder in folders)
