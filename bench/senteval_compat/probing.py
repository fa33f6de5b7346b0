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
    """A probing task.

    Args:
        task: Its name.
        task_path: The ``probing`` folder, or the task's file there.
        seed: Of the fits.

    Raises:
        InputError: an unknown task.
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
        """Settings for SentEval's own procedure: a thousand words are told apart without a hidden layer."""
        nhid = 0 if self.name == "WordContent" else config["classifier"].get("nhid", 0)
        return {**config, "classifier": {**config["classifier"], "nhid": nhid}}


class _NamedProbingEval(PROBINGEval):
    """A probing task of its own class.

    Args:
        task_path: The ``probing`` folder.
        seed: Of the fits.
    """

    of = ""

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        super().__init__(self.of, task_path, seed)


class LengthEval(_NamedProbingEval):
    """How many words a sentence has."""

    of = "Length"


class WordContentEval(_NamedProbingEval):
    """Which of a thousand words it has."""

    of = "WordContent"


class DepthEval(_NamedProbingEval):
    """How deep its parse tree is."""

    of = "Depth"


class TopConstituentsEval(_NamedProbingEval):
    """What its topmost constituents are."""

    of = "TopConstituents"


class BigramShiftEval(_NamedProbingEval):
    """Whether two neighbouring words changed places."""

    of = "BigramShift"


class TenseEval(_NamedProbingEval):
    """The tense of its main verb."""

    of = "Tense"


class SubjNumberEval(_NamedProbingEval):
    """The number of its subject."""

    of = "SubjNumber"


class ObjNumberEval(_NamedProbingEval):
    """The number of its object."""

    of = "ObjNumber"


class OddManOutEval(_NamedProbingEval):
    """Whether a word was replaced."""

    of = "OddManOut"


class CoordinationInversionEval(_NamedProbingEval):
    """Whether two clauses changed places."""

    of = "CoordinationInversion"
