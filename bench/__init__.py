"""bench: benchmarking and leaderboards for unsupervised sentence encoders (distribution ``cse-bench``)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bench.version import __version__

if TYPE_CHECKING:
    from os import PathLike

    from bench.eval.public_encoder import LoadedEncoder

__all__ = ["__version__", "load"]

if not os.path.isdir(os.path.join(__path__[0], "methods")):
    # In a checkout baselines/, methods/ and reports/ lie next to bench/
    __path__.append(os.path.dirname(os.path.abspath(__path__[0])))


def load(folder: str | PathLike[str], device: str = "cpu") -> LoadedEncoder:
    """Load the encoder of a folder that ``bench export`` wrote; mteb accepts it as a model.

    Args:
        folder: An exported folder.
        device: "cpu", "cuda" or "mps".

    Raises:
        InputError: another or damaged folder, or an unavailable device.
    """
    from pathlib import Path

    from bench.eval.public_encoder import LoadedEncoder
    from bench.nn.device import check_available
    from bench.nn.encoder_folder import load_encoder
    from bench.nn.model_metadata import read_model_card
    from bench.records.record import safe_name

    check_available(device, where=f"device {device}")
    path = Path(folder)
    encoder = load_encoder(path, device=device)
    return LoadedEncoder(encoder, f"bench/{safe_name(path.resolve().name)}", read_model_card(path))
