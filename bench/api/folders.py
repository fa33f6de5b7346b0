"""Encoders of folders that ``bench export`` wrote."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from bench.errors import InputError

if TYPE_CHECKING:
    from bench.eval.public_encoder import LoadedEncoder

_DEVICES = ("cpu", "cuda", "mps")


def load(folder: str | PathLike[str], device: str = "cpu") -> LoadedEncoder:
    """Load the encoder of a folder that ``bench export`` wrote; mteb accepts it as a model.

    Args:
        folder: An exported folder.
        device: "cpu", "cuda" or "mps".

    Raises:
        InputError: another or damaged folder, or an unavailable device.

    >>> import bench
    >>> try:
    ...     bench.load("nowhere")
    ... except bench.InputError as error:
    ...     print("nowhere" in str(error))
    True
    """
    from bench.api.command_options import check_path
    from bench.eval.public_encoder import LoadedEncoder
    from bench.nn.device import check_available
    from bench.nn.encoder_folder import load_encoder
    from bench.nn.model_metadata import read_model_card
    from bench.records.record import safe_name

    if device not in _DEVICES:
        raise InputError(f"device={device!r}", where="bench.load", expected=f"one of {', '.join(_DEVICES)}")
    check_available(device, where=f"device {device}")
    path = check_path(folder, "folder", "bench.load")
    encoder = load_encoder(path, device=device)
    return LoadedEncoder(encoder, f"bench/{safe_name(path.resolve().name)}", read_model_card(path))
