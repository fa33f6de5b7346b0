"""SentEval's retrieval of captions, whose data can't be read safely."""

from __future__ import annotations

from pathlib import Path

from bench.errors import InputError
from bench.eval.transfer_items import SEED


class ImageCaptionRetrievalEval:
    """COCO's captions and images; always refused.

    Args:
        task_path: The folder ``COCO``.
        seed: Of the fit.

    Raises:
        InputError: always.
    """

    def __init__(self, task_path: str | Path = "", seed: int = SEED) -> None:
        raise InputError(
            "task 'ImageCaptionRetrieval' is not offered: its vectors of images are pickles, which could run "
            "code and are not unpickled",
            expected="another task",
        )
