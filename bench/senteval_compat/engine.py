"""``engine.SE``: evaluates a batcher on SentEval's tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.data.senteval import STS_YEARS
from bench.errors import BenchError, InputError, not_one_of
from bench.eval.embed import Embeddings, distinct
from bench.eval.sgd import Classifier
from bench.eval.transfer import SOLVERS, Protocol
from bench.eval.transfer_items import SEED
from bench.senteval_compat import classification, similarity

Batcher = Callable[..., Any]
Prepare = Callable[..., Any]

_WITHOUT_DATA = ("SNLI", "ImageCaptionRetrieval")
_TRAINED = ("SICKRelatedness-finetune", "STSBenchmark-finetune")
_BATCH_SIZE, _KFOLD = 128, 5  # SentEval's own defaults


class Params(dict[str, Any]):
    """The parameters, also as attributes; a name that isn't there is None, as in SentEval.

    >>> params = Params(kfold=10)
    >>> params.kfold, params.nhid
    (10, None)
    """

    def __getattr__(self, name: str) -> Any:
        """Return a parameter or None."""
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a parameter."""
        self[name] = value


class SE:
    """SentEval's engine.

    Args:
        params: ``task_path`` (SentEval's ``data`` folder) and optionally ``kfold`` (5), ``batch_size`` (128),
            ``seed`` (1111), ``classifier`` ({"nhid": 0, "optim", "batch_size", "tenacity", "epoch_size",
            "max_epoch"}, used by the solver "sgd"), ``similarity`` (of two vectors, in place of the cosine),
            ``transfer_solver`` ("exact" or "sgd").
        batcher: (params, sentences as lists of words) -> (sentences, dim).
        prepare: (params, all sentences of the task), called before the batcher.

    Raises:
        InputError: parameters that this engine doesn't have (hidden layers, scikit-learn's classifier).
    """

    def __init__(self, params: dict[str, Any], batcher: Batcher, prepare: Prepare | None = None) -> None:
        self.params = Params(params)
        for name, default in (
            ("usepytorch", True), ("seed", SEED), ("batch_size", _BATCH_SIZE), ("nhid", 0), ("kfold", _KFOLD),
            ("classifier", {"nhid": 0}), ("transfer_solver", "exact"),
        ):  # fmt: skip
            if self.params.get(name) is None or self.params[name] == {}:
                self.params[name] = default
        self.protocol = _protocol(self.params)
        self.batcher = batcher
        self.prepare: Prepare = prepare if prepare is not None else lambda *_: None
        self.list_tasks = [
            *("CR", "MR", "MPQA", "SUBJ", "SST2", "SST5", "TREC", "MRPC", "SICKEntailment"),
            *("SICKRelatedness", "STSBenchmark", *STS_YEARS),
            *classification.PROBING,
        ]
        self.results: dict[str, Any] = {}

    def eval(self, name: str | Sequence[str]) -> dict[str, Any]:
        """Evaluate one task, or several into {task: its dictionary}.

        STS12 to STS16 have {subset: {"pearson", "spearman", "nsamples"}} and "all" with {"pearson",
        "spearman"} of {"all", "mean", "wmean"}; STSBenchmark and SICKRelatedness the same with the splits as
        subsets. The others have "devacc" and "acc" in percent, rounded as SentEval rounds, "ndev", "ntest",
        and MRPC "f1".

        Raises:
            InputError: an unknown task or missing data.
        """
        if not isinstance(name, str):
            self.results = {task: self.eval(task) for task in name}
            return self.results
        if name not in self.list_tasks:
            raise self._unknown(name)
        if not self.params.task_path:
            raise InputError("params has no 'task_path'", where=name, expected="SentEval's data folder")
        self.params.current_task = name
        root = Path(str(self.params.task_path))
        if name in (*STS_YEARS, "STSBenchmark", "SICKRelatedness"):
            self.results = similarity.evaluate(name, root, self._vectors, self.params.similarity)
        else:
            self.results = classification.evaluate(name, root, self._vectors, self.protocol)
        return self.results

    def _vectors(self, sentences: Iterable[str]) -> Embeddings:
        """The batcher's vectors of the distinct sentences, float32 as SentEval's classifier takes them.

        Raises:
            BenchError: the number of rows isn't the number of sentences, or values aren't finite.
        """
        everything, task = list(sentences), str(self.params.current_task)
        self.prepare(self.params, [sentence.split() for sentence in everything])
        texts = sorted(distinct(everything), key=lambda sentence: len(sentence.split()))
        parts = []
        for begin in range(0, len(texts), int(self.params.batch_size)):
            batch = [sentence.split() for sentence in texts[begin : begin + int(self.params.batch_size)]]
            part = np.asarray(self.batcher(self.params, batch), dtype=np.float32)
            if part.ndim != 2 or len(part) != len(batch):
                raise BenchError(
                    f"the batcher returned the shape {part.shape}",
                    where=task,
                    expected=f"({len(batch)}, dim)",
                )
            parts.append(part)
        vectors = np.concatenate(parts)
        if not np.isfinite(vectors).all():
            raise BenchError("the batcher's vectors are not finite", where=task)
        return Embeddings({text: row for row, text in enumerate(texts)}, vectors)

    def _unknown(self, name: str) -> InputError:
        if name in _WITHOUT_DATA:
            return InputError(
                f"task '{name}' is not offered here", expected="a task without its own download"
            )
        if name in _TRAINED:
            return InputError(
                f"task '{name}' trains a regression, which is not offered",
                expected=f"'{name.removesuffix('-finetune')}', the correlation of the cosines",
            )
        return not_one_of(f"unknown task '{name}'", name, self.list_tasks)


def _protocol(params: Params) -> Protocol:
    settings = dict(params.classifier)
    if settings.pop("nhid", 0) or params.nhid:
        raise InputError("hidden layers in a classifier", where="params", expected="nhid 0")
    if not params.usepytorch:
        raise InputError(
            "usepytorch is False", where="params", expected="True: SentEval's logistic regression"
        )
    if params.transfer_solver not in SOLVERS:
        raise InputError(
            f"transfer_solver '{params.transfer_solver}'",
            where="params",
            expected=f"one of {', '.join(SOLVERS)}",
        )
    settings.pop("dropout", None)  # of the hidden layer
    try:
        classifier = Classifier(**settings)
    except TypeError as error:
        names = ", ".join(Classifier.__dataclass_fields__)
        raise InputError(
            f"classifier settings {sorted(settings)}", where="params", expected=f"nhid, {names}"
        ) from error
    return Protocol(params.transfer_solver, int(params.kfold), int(params.seed), classifier)
