"""The terminal that text tables fit."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.render.formats import Screen
    from bench.render.grid import Grid


def screen(width: int | None = None) -> Screen:
    """Return what stdout is: a terminal of its width, or a file; ``width`` is for both.

    A file's tables depend on nothing but the records, so COLUMNS is for terminals alone.
    """
    from bench.render.formats import Screen

    terminal = sys.stdout is not None and sys.stdout.isatty()
    return Screen(width or (shutil.get_terminal_size().columns if terminal else None), terminal)


def text(grids: Sequence[Grid]) -> str:
    """Return tables for stdout."""
    from bench.render import formats as render

    return render.text(grids, screen())
