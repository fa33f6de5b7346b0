"""SentEval's probing tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.data import probing_files
from bench.data.tasks import LabelledTask
from bench.errors import not_one_of
from bench.eval.transfer_items import SEED
from bench.senteval_compat.classification import ClassificationEval


class PROBINGEval(ClassificationEval):
    """A probing task by its name; ``task_path`` is the ``probing`` folder, or the task's file there.

    An unknown task raises InputError.
    """

    def __init__(self, task: str, task_path: str | Path, seed: int = SEED) -> None:
        if task not in probing_files.FILES:
            raise not_one_of(f"unknown task '{task}'", task, list(probing_files.FILES), where="PROBINGEval")
        self.name, path = task, Path(task_path)
        super().__init__(path.parent if path.name == probing_files.FILES[task] else path, seed)

    def read(self) -> LabelledTask:
        """Read the data."""
        return probing_files.read_probing_task(self.name, self.path)

    def config(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return settings of SentEval's own procedure, linear for WordContent's 1,000 classes."""
        nhid = 0 if self.name == "WordContent" else config["classifier"].get("nhid", 0)
        return {**config, "classifier": {**config["classifier"], "nhid": nhid}}


class _NamedEval(PROBINGEval):
    """A probing task by the ``probing`` folder only; the subclass has its name."""

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        super().__init__(self.name, task_path, seed)


LengthEval = _NamedEval.make_class("Length")
WordContentEval = _NamedEval.make_class("WordContent")
DepthEval = _NamedEval.make_class("Depth")
TopConstituentsEval = _NamedEval.make_class("TopConstituents")
BigramShiftEval = _NamedEval.make_class("BigramShift")
TenseEval = _NamedEval.make_class("Tense")
SubjNumberEval = _NamedEval.make_class("SubjNumber")
ObjNumberEval = _NamedEval.make_class("ObjNumber")
OddManOutEval = _NamedEval.make_class("OddManOut")
CoordinationInversionEval = _NamedEval.make_class("CoordinationInversion")
