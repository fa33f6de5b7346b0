"""SentEval's probing tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.data import probing
from bench.data.tasks import LabelledTask
from bench.eval.transfer_items import SEED
from bench.senteval_compat.classification import ClassificationEval


class PROBINGEval(ClassificationEval):
    """A probing task.

    Args:
        task: Its name.
        task_path: The ``probing`` folder.
        seed: Of the fits.
    """

    def __init__(self, task: str, task_path: str | Path, seed: int = SEED) -> None:
        self.name = task
        super().__init__(task_path, seed)

    def read(self) -> LabelledTask:
        """Read the data."""
        return probing.read(self.name, self.path)

    def config(self, config: dict[str, Any]) -> dict[str, Any]:
        """Settings for SentEval's own procedure: a thousand words are told apart without a hidden layer."""
        nhid = 0 if self.name == "WordContent" else config["classifier"].get("nhid", 0)
        return {**config, "classifier": {**config["classifier"], "nhid": nhid}}
