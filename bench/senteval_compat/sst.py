"""SentEval's two sentiment tasks with splits."""

from __future__ import annotations

from pathlib import Path

from bench.errors import InputError
from bench.eval.transfer_items import SEED
from bench.senteval_compat.classification import ClassificationEval

_KINDS = {2: ("SST2", "SST/binary"), 5: ("SST5", "SST/fine")}


class SSTEval(ClassificationEval):
    """SST, with 2 or 5 classes in ``SST/binary`` or ``SST/fine``; raises InputError for another number."""

    def __init__(self, task_path: str | Path, nclasses: int = 2, seed: int = SEED) -> None:
        if nclasses not in _KINDS:
            raise InputError(f"nclasses {nclasses}", where="SSTEval", expected="2 or 5")
        self.name, self.folder = _KINDS[nclasses]
        super().__init__(task_path, seed)
