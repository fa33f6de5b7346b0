"""A long training of a language model under watch: its loss told, its weights kept, a hopeless one ended."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import BenchError
from bench.records.filesystem import temporary_path

Curve = list[list[float]]
LEARNED = 0.95
"""The share of the loss by frequencies below which a model has learned to read."""
TRIAL = 500
"""Steps after which a training that is to be given up is judged."""
_SECONDS = 60.0


class PretrainingWatch:
    """Called after each step.

    Args:
        keep: Writes the model as it is, with its loss curve.
        say: Called with a line about the loss when the model is kept.
        frequency_loss: Loss of a model that knows how frequent each token is, for a training that is to be
            given up after :data:`TRIAL` steps with hardly a smaller loss; None: it is never given up.
    """

    def __init__(
        self,
        keep: Callable[[Curve], object],
        say: Callable[[str], None] | None,
        frequency_loss: float | None = None,
    ) -> None:
        self._keep, self._say, self._frequency_loss = keep, say, frequency_loss
        self._last = time.monotonic()

    def __call__(self, step: int, curve: Callable[[], Curve]) -> None:
        """Look at the training after a step; ``curve`` gives its losses so far.

        Raises:
            BenchError: it is to be given up.
        """
        if step == TRIAL and self._frequency_loss is not None:
            check_learned(curve()[-1][1], self._frequency_loss)
        if time.monotonic() - self._last < _SECONDS:
            return
        now = curve()
        self._keep(now)
        self._last = time.monotonic()
        if self._say:
            self._say(f"loss {now[-1][1]:.3f} after {step:,} steps; the model is kept")


def check_learned(loss: float, frequency_loss: float) -> None:
    """Raise BenchError if a model's loss is hardly below that of one that knows frequencies alone."""
    if loss > LEARNED * frequency_loss:
        raise BenchError(
            f"the loss is {loss:.3f} after {TRIAL} steps, and how frequent each token is makes one of "
            f"{frequency_loss:.3f}",
            hint="try a smaller learning rate or a longer warm-up",
        )


def unfinished_folder(out: Path) -> Path:
    """Where the model of a training is kept before its folder is written."""
    return out.with_name(f"{out.name}-unfinished")


@contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder, which takes the place of the one that is there, if any, if all goes well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch, before = temporary_path(path), temporary_path(path)
    scratch.mkdir()
    try:
        yield scratch
        if path.is_dir():
            path.rename(before)
        scratch.rename(path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(before, ignore_errors=True)
