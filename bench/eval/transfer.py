"""SentEval's transfer tasks: logistic regression on frozen embeddings, under its protocol.

Folds, their order and the choice of the regularisation are SentEval's to the letter: samples sorted by length
and label before they are folded (seed 1111), the grid value with the best validation accuracy rounded to two
decimals of a percentage, the smallest at ties. Scores are kept unrounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from bench.data.tasks import LabelledSplit, LabelledTask
from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.eval.embeddings import Embeddings
from bench.eval.logistic import LogisticSolver
from bench.eval.sgd import ClassifierSettings, fit_sgd
from bench.eval.transfer_items import (
    KFOLD,
    SEED,
    Labels,
    Rows,
    build_layout,
    f1_score,
    restore_order,
    stratified_folds,
)
from bench.nn.device import float64_device
from bench.nn.tokens import send_tensor

REGS = (1e-5, 1e-4, 1e-3, 1e-2)
SOLVERS = ("exact", "sgd")


@dataclass(frozen=True)
class Protocol:
    """How tasks are fitted.

    Args:
        solver: "exact" (the optimum, gradient at most 1e-6) or "sgd" (SentEval's Adam with early stopping).
        kfold: Folds of a cross-validation.
        seed: Seed of the folds over a training split and of sgd.
        classifier: Settings of sgd.
    """

    solver: str = "exact"
    kfold: int = KFOLD
    seed: int = SEED
    classifier: ClassifierSettings = field(default_factory=ClassifierSettings)


@dataclass(frozen=True)
class Fold:
    """Rows to learn from, rows to validate on (None where nothing is chosen), and regularisations to fit."""

    train: Rows
    validation: Rows | None
    regs: tuple[float, ...] = REGS


@dataclass(frozen=True)
class TransferResult:
    """What one task gave; accuracies in 0 to 1.

    Args:
        dev: Validation accuracy of the chosen regularisation, one for each outer fold.
        test: Accuracy on each outer fold, or on the test split.
        regs: The chosen regularisations.
        predictions: Predicted class of every test item, in the task's order.
        gold: Its class.
        n_dev: Items behind ``dev``.
        fits: Number of fits.
        gradient: Largest gradient norm of a fit, None where the solver doesn't promise one.
        classes: Names of the classes.
    """

    dev: tuple[float, ...]
    test: tuple[float, ...]
    regs: tuple[float, ...]
    predictions: Labels
    gold: Labels
    n_dev: int
    fits: int
    gradient: float | None
    classes: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """Mean over the outer folds, unrounded."""
        return float(np.mean(self.test))

    @property
    def f1(self) -> float:
        """F1 of class 1 on the test items; 0 without a true positive."""
        return f1_score(self.predictions, self.gold)


class Fitter:
    """Fits on one feature matrix, and counts them.

    Args:
        features: (n, dim).
        labels: (n,), 0 to classes - 1.
        classes: Number of classes.
        protocol: The solver and its settings.
        device: Where to fit, "cpu" or "cuda", which gets the features once; with "mps" the CPU fits.
    """

    def __init__(
        self,
        features: NDArray[np.floating],
        labels: Labels,
        classes: int,
        protocol: Protocol,
        device: str = "cpu",
    ) -> None:
        self.features, self.labels, self.classes, self.protocol = features, labels, classes, protocol
        self.fits = 0
        self.gradient: float | None = None
        self._exact = self._sent = None
        if protocol.solver == "exact":
            self._exact = LogisticSolver(features, labels, classes, device)
        elif (where := float64_device(device)) != "cpu":
            self._sent = send_tensor(torch.from_numpy(np.asarray(features, dtype=np.float32)), where)

    def weights(self, folds: Sequence[Fold]) -> list[NDArray[np.float64]]:
        """Return (regs, classes, dim + 1) for each fold; the exact solver fits all folds together."""
        self.fits += sum(len(fold.regs) for fold in folds)
        if self._exact is None:
            settings, seed = self.protocol.classifier, self.protocol.seed
            features = self.features if self._sent is None else self._sent
            data = features, self.labels, self.classes
            return [
                fit_sgd(*data, fold.train, fold.validation, fold.regs, settings=settings, seed=seed)
                for fold in folds
            ]
        flat = [(fold.train, reg) for fold in folds for reg in fold.regs]
        solution = self._exact.fit([rows for rows, _ in flat], [reg for _, reg in flat])
        self.gradient = max(self.gradient or 0.0, float(solution.gradients.max()))
        return np.split(solution.weights, np.cumsum([len(fold.regs) for fold in folds])[:-1])

    def predict(self, weights: NDArray[np.float64], rows: Rows) -> Labels:
        """Predicted class of rows, (..., rows) for weights (..., classes, dim + 1)."""
        logits = weights[..., :-1] @ self.features[rows].T + weights[..., -1:]
        found: Labels = logits.argmax(-2)
        return found

    def accuracies(self, weights: NDArray[np.float64], rows: Rows) -> NDArray[np.float64]:
        """Accuracy of each of (regs, classes, dim + 1) on rows."""
        found: NDArray[np.float64] = (self.predict(weights, rows) == self.labels[rows]).mean(-1)
        return found


def cross_validate(fitter: Fitter) -> tuple[list[float], list[float], list[float], Labels]:
    """Nested cross-validation over all rows (MR, CR, SUBJ, MPQA).

    Returns:
        For each outer fold the validation accuracy, the test accuracy and the regularisation; and the
        predicted class of every row.
    """
    everything = np.arange(len(fitter.labels))
    outer = stratified_folds(everything, fitter.labels, fitter.protocol.kfold, SEED)
    inner = [
        Fold(train, validation)
        for rest, _ in outer
        for train, validation in stratified_folds(rest, fitter.labels, fitter.protocol.kfold, SEED)
    ]
    found = _validate_folds(fitter, inner)[1].reshape(len(outer), -1, len(REGS)).mean(1)
    chosen = [_choose_reg(accuracies) for accuracies in found]
    refits = fitter.weights(
        [Fold(rest, None, (REGS[i],)) for (rest, _), i in zip(outer, chosen, strict=True)]
    )
    predictions = np.empty_like(fitter.labels)
    test = []
    for (_, held_out), (weights,) in zip(outer, refits, strict=True):
        predictions[held_out] = fitter.predict(weights, held_out)
        test.append(float((predictions[held_out] == fitter.labels[held_out]).mean()))
    dev = [float(accuracies[i]) for accuracies, i in zip(found, chosen, strict=True)]
    return dev, test, [REGS[i] for i in chosen], predictions


def select_and_test(
    fitter: Fitter, rows: Mapping[str, Rows]
) -> tuple[list[float], list[float], list[float], Labels]:
    """Choose on the dev split (SST), else on folds of the training split (TREC, MRPC); see :func:`nested`.

    The fit that is chosen on a dev split is the one that is tested, else one on the whole training split is.
    """
    train, test = rows["train"], rows["test"]
    if "dev" in rows:
        folds = [Fold(train, rows["dev"])]
    else:
        split = stratified_folds(train, fitter.labels, fitter.protocol.kfold, fitter.protocol.seed)
        folds = [Fold(*fold) for fold in split]
    fits, accuracies = _validate_folds(fitter, folds)
    found = accuracies.mean(0)
    chosen = _choose_reg(found)
    weights = fits[0][chosen] if "dev" in rows else fitter.weights([Fold(train, None, (REGS[chosen],))])[0][0]
    predictions = fitter.predict(weights, test)
    right = float((predictions == fitter.labels[test]).mean())
    return [float(found[chosen])], [right], [REGS[chosen]], predictions


def run_transfer_task(
    task: LabelledTask, vectors: Embeddings, protocol: Protocol, device: str = "cpu"
) -> TransferResult:
    """Evaluate one task on the vectors of its sentences.

    Pairs have the features |u - v| and u * v.

    Args:
        task: The task.
        vectors: Of its sentences.
        protocol: How it is fitted.
        device: Where the encoder is, "cpu", "cuda" or "mps"; see :class:`Fitter`.

    Raises:
        BenchError: vectors that can't be classified, or a solver that doesn't converge; names the task.
    """
    try:
        return _run_on_features(task, vectors, protocol, device)
    except BenchError as error:
        raise BenchError(error.what, where=task.id, expected=error.expected, hint=error.hint) from error


def _run_on_features(
    task: LabelledTask, vectors: Embeddings, protocol: Protocol, device: str
) -> TransferResult:
    items = build_layout(task)
    ordered = zip(items.splits, items.orders, strict=True)
    features = np.concatenate([_split_features(split, vectors)[order] for split, order in ordered])
    labels, rows = items.labels, items.rows
    fitter = Fitter(features, labels, len(items.classes), protocol, device)
    dev, test, regs, predictions = cross_validate(fitter) if items.folded else select_and_test(fitter, rows)
    n_dev = len(labels) if items.folded else len(rows.get("dev", rows["train"]))
    tested, order = items.tested
    return TransferResult(
        tuple(dev), tuple(test), tuple(regs), restore_order(predictions, order), restore_order(labels[tested], order),
        n_dev, fitter.fits, fitter.gradient, items.classes,
    )  # fmt: skip


def _validate_folds(
    fitter: Fitter, folds: Sequence[Fold]
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Weights of each fold, and their validation accuracy, (folds, regs)."""
    fits = fitter.weights(folds)
    found = [
        fitter.accuracies(weights, fold.validation)
        for weights, fold in zip(fits, folds, strict=True)
        if fold.validation is not None
    ]
    return fits, np.stack(found)


def _choose_reg(accuracies: NDArray[np.float64]) -> int:
    return int(np.argmax(np.round(100 * accuracies, 2)))


def _split_features(split: LabelledSplit, vectors: Embeddings) -> FloatArray:
    first = vectors.vectors[[vectors.rows[sentence] for sentence in split.first]]
    if not split.second:
        return first
    second = vectors.vectors[[vectors.rows[sentence] for sentence in split.second]]
    return np.concatenate([np.abs(first - second), first * second], axis=1)
