"""Tasks whose vectors are classified: transfer tasks, SICK's entailment labels, probing tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.data import senteval
from bench.data.tasks import LabelledTask
from bench.errors import BenchError
from bench.eval.embeddings import Embeddings
from bench.eval.transfer import TransferResult, run_transfer_task, sentence_features
from bench.eval.transfer_items import SEED, build_layout, f1_score
from bench.eval.transfer_suite import labelled_sentences
from bench.senteval_compat.fitting_settings import read_fitting
from bench.senteval_compat.task_base import Batcher, Evaluation, read_parameter
from bench.senteval_compat.tools import validation


class ClassificationEval(Evaluation):
    """A task of labelled sentences or pairs."""

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        super().__init__(task_path, seed)
        self.task = self.read()
        self.samples = list(labelled_sentences(self.task))

    def read(self) -> LabelledTask:
        """Read the data."""
        return cast("LabelledTask", senteval.SOURCES[self.name].read(self.root()))

    def run(self, params: dict[str, Any], batcher: Batcher) -> dict[str, Any]:
        """Return "devacc" and "acc" in percent as SentEval rounds them, "ndev", "ntest", and "f1" of MRPC."""
        if "dev" not in self.task.counts:  # folds choose the regularisation
            read_parameter(params, "kfold", 2, self.name)
        fitting = read_fitting(params, self.seed)
        fitting.print_notice()
        vectors = self.vectors(params, batcher)
        if fitting.protocol is not None:
            return format_transfer_result(self.name, run_transfer_task(self.task, vectors, fitting.protocol))
        try:
            return self._run_procedure(vectors, self.config(fitting.config))
        except BenchError as error:
            raise BenchError(error.what, where=self.name, expected=error.expected, hint=error.hint) from error

    def config(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return settings of SentEval's own procedure."""
        return config

    def _run_procedure(self, vectors: Embeddings, config: dict[str, Any]) -> dict[str, Any]:
        items = build_layout(self.task)
        config = {**config, "nclasses": len(items.classes), "seed": self.seed}
        x: dict[str, validation.Array] = {}
        y: dict[str, validation.Array] = {}
        for (part, rows), split, order in zip(items.rows.items(), items.splits, items.orders, strict=True):
            x[part] = sentence_features(vectors, split.first, split.second)[order]
            y[part] = items.labels[rows]
        if items.folded:
            dev, test = validation.InnerKFoldClassifier(x["all"], y["all"], config).run()
            return _result_dict(dev, test, len(items.labels), len(items.labels))
        n_test = len(y["test"])
        if "dev" in x:
            x["valid"], y["valid"] = x["dev"], y["dev"]  # SentEval's name
            dev, test = validation.SplitClassifier(x, y, config).run()
            return _result_dict(dev, test, len(y["dev"]), n_test)
        train, tested = (dict[str, validation.Array](X=x[part], y=y[part]) for part in ("train", "test"))
        dev, test, predicted = validation.KFoldClassifier(train, tested, config).run()
        result = _result_dict(dev, test, len(y["train"]), n_test)
        if self.name == "MRPC":
            result["f1"] = round(100 * f1_score(np.ravel(predicted), y["test"]), 2)
        return result


def format_transfer_result(name: str, result: TransferResult) -> dict[str, Any]:
    """Return a result in percent: each fold rounded to two decimals, then their mean, as SentEval does.

    >>> gold = np.zeros(4, dtype=np.int64)
    >>> result = TransferResult((0.81234, 0.8), (0.75, 0.76), (1, 1), gold, gold, 4, 2, None, ("a", "b"))
    >>> format_transfer_result("CR", result)
    {'devacc': 80.62, 'acc': 75.5, 'ndev': 4, 'ntest': 4}
    """
    dev, test = _mean_percent(result.dev), _mean_percent(result.test)
    percent = _result_dict(dev, test, result.n_dev, len(result.gold))
    return {**percent, "f1": round(100 * result.f1, 2)} if name == "MRPC" else percent


def _result_dict(dev: float, test: float, n_dev: int, n_test: int) -> dict[str, Any]:
    return {"devacc": dev, "acc": test, "ndev": n_dev, "ntest": n_test}


def _mean_percent(accuracies: tuple[float, ...]) -> float:
    return float(round(np.mean([round(100 * accuracy, 2) for accuracy in accuracies]), 2))
