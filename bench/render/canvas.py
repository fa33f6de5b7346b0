"""matplotlib with its own settings, whatever folder the command runs in."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def plain_canvas() -> Iterator[None]:
    """Draw with matplotlib's defaults: the same records give the same bytes, and no text is computed.

    matplotlib reads a ``matplotlibrc`` of the current folder, which may be a results folder that came with
    somebody's records. Its settings could start LaTeX on a method's name; none of them hold here.

    Raises:
        InputError: such a file keeps matplotlib from being imported.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it would quote that file
    try:
        import matplotlib
    except Exception as error:
        raise InputError(
            f"matplotlib can't be imported: {type(error).__name__}: {error}",
            hint="if there is a file matplotlibrc in this folder, run the command in another",
        ) from error
    matplotlib.use("agg")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "bench"  # ids in the file, random otherwise
        matplotlib.rcParams["text.parse_math"] = False  # a method's name may hold a dollar
        yield


def save_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Draw, then write the file: matplotlib's own writers fail in their own ways where a disk is full.

    Args:
        figure: The figure.
        path: The file; its folder is made.
        options: Of ``Figure.savefig``.

    Raises:
        OSError: the file can't be written.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, **options)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(drawn.getvalue())
