"""SentEval's transfer tasks: logistic regression on frozen embeddings, under its protocol.

Folds, their order and the choice of the regularisation are exactly SentEval's: samples sorted by length and
label before they are folded (seed 1111), the grid value with the best validation accuracy rounded to two
decimals of a percentage, the smallest at ties. Scores are kept unrounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from bench.data.tasks import LabelledTask
from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.eval.embeddings import Embeddings
from bench.eval.logistic_regression import LogisticSolver
from bench.eval.sgd_classifier import ClassifierSettings, fit_sgd
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
Fits = tuple[list[float], list[float], list[float], Labels]
"""Validation accuracies, test accuracies and chosen regularisations by outer fold; predicted classes."""


@dataclass(frozen=True)
class Protocol:
    """How tasks are fitted."""

    solver: str = "exact"  # the optimum (gradient at most 1e-6), or "sgd", SentEval's early-stopped Adam
    kfold: int = KFOLD  # folds of a cross-validation
    seed: int = SEED  # seed of the folds over a training split and of sgd
    classifier: ClassifierSettings = field(default_factory=ClassifierSettings)  # settings of sgd


@dataclass(frozen=True)
class Fold:
    """Training rows, validation rows (missing for a final fit), and regularisations to fit."""

    train: Rows
    validation: Rows | None
    regs: tuple[float, ...] = REGS


@dataclass(frozen=True)
class TransferResult:
    """The result of one task; accuracies in 0 to 1."""

    dev: tuple[float, ...]  # validation accuracy of the chosen regularisation, one for each outer fold
    test: tuple[float, ...]  # Accuracy on each outer fold, or on the test split
    regs: tuple[float, ...]  # the chosen regularisations
    predictions: Labels  # predicted class of every test item, in the task's order
    gold: Labels  # its class
    n_dev: int  # items behind ``dev``
    fits: int
    gradient: float | None  # largest gradient norm of the exact solver's fits, None of sgd
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
    """Fits on one (n, dim) feature matrix with labels 0 to classes - 1, and counts them.

    The device "cuda" gets the features once; with "mps" the CPU fits.
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
        self._exact = self._tensor = None
        if protocol.solver == "exact":
            self._exact = LogisticSolver(features, labels, classes, device)
        elif (device64 := float64_device(device)) != "cpu":
            self._tensor = send_tensor(torch.from_numpy(np.asarray(features, dtype=np.float32)), device64)

    def weights(self, folds: Sequence[Fold]) -> list[NDArray[np.float64]]:
        """Return (regs, classes, dim + 1) for each fold; the exact solver fits all folds together."""
        self.fits += sum(len(fold.regs) for fold in folds)
        if self._exact is None:
            settings, seed = self.protocol.classifier, self.protocol.seed
            data = self.features if self._tensor is None else self._tensor, self.labels, self.classes
            return [
                fit_sgd(*data, fold.train, fold.validation, fold.regs, settings=settings, seed=seed)
                for fold in folds
            ]
        rows: list[Rows] = []
        for fold in folds:
            rows += [fold.train] * len(fold.regs)
        solution = self._exact.fit(rows, [reg for fold in folds for reg in fold.regs])
        self.gradient = max(self.gradient or 0.0, float(solution.gradients.max()))
        return np.split(solution.weights, np.cumsum([len(fold.regs) for fold in folds])[:-1])

    def predict(self, weights: NDArray[np.float64], rows: Rows) -> Labels:
        """Predict the class of rows, (..., rows) for weights (..., classes, dim + 1)."""
        logits = weights[..., :-1] @ self.features[rows].T + weights[..., -1:]
        classes: Labels = logits.argmax(-2)
        return classes

    def accuracies(self, weights: NDArray[np.float64], rows: Rows) -> NDArray[np.float64]:
        """Accuracy of each of (regs, classes, dim + 1) on rows."""
        accuracies: NDArray[np.float64] = (self.predict(weights, rows) == self.labels[rows]).mean(-1)
        return accuracies


def cross_validate(fitter: Fitter) -> Fits:
    """Nested cross-validation over all rows (MR, CR, SUBJ, MPQA), which predicts the class of every row."""
    kfold, labels = fitter.protocol.kfold, fitter.labels
    outer = stratified_folds(np.arange(len(labels)), labels, kfold, SEED)
    inner = [Fold(*fold) for rest, _ in outer for fold in stratified_folds(rest, labels, kfold, SEED)]
    accuracies = _validate_folds(fitter, inner)[1].reshape(len(outer), -1, len(REGS)).mean(1)
    chosen = [_choose_reg(row) for row in accuracies]
    regs = [REGS[i] for i in chosen]
    folds = [Fold(rest, None, (reg,)) for (rest, _), reg in zip(outer, regs, strict=True)]
    predictions = np.empty_like(labels)
    test = []
    for (_, held_out), (weights,) in zip(outer, fitter.weights(folds), strict=True):
        predictions[held_out] = fitter.predict(weights, held_out)
        test.append(float((predictions[held_out] == labels[held_out]).mean()))
    dev = [float(row[i]) for row, i in zip(accuracies, chosen, strict=True)]
    return dev, test, regs, predictions


def select_and_test(fitter: Fitter, rows: Mapping[str, Rows]) -> Fits:
    """Choose on the dev split (SST) or on folds of the training split (TREC, MRPC), and test.

    On a dev split the chosen fit is tested, and after folds a fit on the whole training split.
    """
    train, test = rows["train"], rows["test"]
    folds = [Fold(train, rows.get("dev"))]
    if "dev" not in rows:
        split = stratified_folds(train, fitter.labels, fitter.protocol.kfold, fitter.protocol.seed)
        folds = [Fold(*fold) for fold in split]
    fits, accuracies = _validate_folds(fitter, folds)
    means = accuracies.mean(0)
    chosen = _choose_reg(means)
    weights = fits[0][chosen] if "dev" in rows else fitter.weights([Fold(train, None, (REGS[chosen],))])[0][0]
    predictions = fitter.predict(weights, test)
    right = float((predictions == fitter.labels[test]).mean())
    return [float(means[chosen])], [right], [REGS[chosen]], predictions


def run_transfer_task(
    task: LabelledTask, vectors: Embeddings, protocol: Protocol, device: str = "cpu"
) -> TransferResult:
    """Evaluate one task on the vectors of its sentences; pairs have the features |u - v| and u * v.

    ``device`` is the encoder's. Unusable vectors, and a solver that diverges, raise BenchError.
    """
    items = build_layout(task)
    labels, rows = items.labels, items.rows
    ordered = zip(items.splits, items.orders, strict=True)
    parts = [sentence_features(vectors, split.first, split.second)[order] for split, order in ordered]
    features = np.concatenate(parts)
    try:
        fitter = Fitter(features, labels, len(items.classes), protocol, device)
        dev, test, regs, predictions = (
            cross_validate(fitter) if items.folded else select_and_test(fitter, rows)
        )
    except BenchError as error:
        raise BenchError(error.what, where=task.id, expected=error.expected, hint=error.hint) from error
    n_dev = len(labels) if items.folded else len(rows.get("dev", rows["train"]))
    tested, order = items.tested
    return TransferResult(
        tuple(dev),
        tuple(test),
        tuple(regs),
        restore_order(predictions, order),
        restore_order(labels[tested], order),
        n_dev,
        fitter.fits,
        fitter.gradient,
        items.classes,
    )


def _validate_folds(
    fitter: Fitter, folds: Sequence[Fold]
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Return the weights of each fold, and their validation accuracy, (folds, regs)."""
    fits = fitter.weights(folds)
    accuracies = []
    for weights, fold in zip(fits, folds, strict=True):
        if fold.validation is not None:
            accuracies.append(fitter.accuracies(weights, fold.validation))
    return fits, np.stack(accuracies)


def _choose_reg(accuracies: NDArray[np.float64]) -> int:
    return int(np.argmax(np.round(100 * accuracies, 2)))


def sentence_features(vectors: Embeddings, first: Sequence[str], second: Sequence[str]) -> FloatArray:
    """Return SentEval's features: a sentence's vector; of a pair |u - v| and u * v."""
    u = vectors.select(first)
    if not second:
        return u
    v = vectors.select(second)
    return np.concatenate([np.abs(u - v), u * v], axis=1)
