"""bench: benchmarking and leaderboards for unsupervised sentence encoders (distribution ``cse-bench``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.version import __version__

if TYPE_CHECKING:
    from os import PathLike

    from bench.encoder import Encoder

__all__ = ["__version__", "load"]


def load(folder: str | PathLike[str], device: str = "cpu") -> Encoder:
    """Return the encoder of a folder that ``bench export`` wrote.

    Args:
        folder: The folder.
        device: "cpu" or "cuda".

    Raises:
        InputError: not such a folder, or a damaged one.
    """
    from pathlib import Path

    from bench.nn.export import load_encoder

    return load_encoder(Path(folder), device=device)
