"""SentEval's retrieval of captions, whose data can't be read safely."""

from __future__ import annotations

from pathlib import Path

from bench.errors import InputError
from bench.eval.transfer_items import SEED


class ImageCaptionRetrievalEval:
    """COCO's captions and images; always refused with InputError."""

    def __init__(self, task_path: str | Path = "", seed: int = SEED) -> None:
        what = "task 'ImageCaptionRetrieval' is refused: its image vectors are pickles, which could run code"
        raise InputError(what, expected="another task")
