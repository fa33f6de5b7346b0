"""SentEval's transfer tasks: logistic regression on frozen embeddings, under its protocol.

Folds, their order and the choice of the regularisation are SentEval's to the letter: samples sorted by length
and label before they are folded (seed 1111), the grid value with the best validation accuracy rounded to two
decimals of a percentage, the smallest at ties. Scores are kept unrounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data.tasks import LabelledSplit, LabelledTask
from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.eval.embed import Embeddings
from bench.eval.logistic import LogisticSolver
from bench.eval.sgd import Classifier, fit_sgd

REGS = (1e-5, 1e-4, 1e-3, 1e-2)
SEED = 1111
SOLVERS = ("exact", "sgd")

Rows = NDArray[np.intp]
Labels = NDArray[np.intp]


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
    kfold: int = 10
    seed: int = SEED
    classifier: Classifier = field(default_factory=Classifier)


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
    """

    def __init__(
        self, features: NDArray[np.floating], labels: Labels, classes: int, protocol: Protocol
    ) -> None:
        self.features, self.labels, self.classes, self.protocol = features, labels, classes, protocol
        self.fits = 0
        self.gradient: float | None = None
        self._exact = LogisticSolver(features, labels, classes) if protocol.solver == "exact" else None

    def weights(self, folds: Sequence[Fold]) -> list[NDArray[np.float64]]:
        """Return (regs, classes, dim + 1) for each fold; the exact solver fits all folds together."""
        self.fits += sum(len(fold.regs) for fold in folds)
        if self._exact is None:
            data, settings = (self.features, self.labels, self.classes), self.protocol.classifier
            seed = self.protocol.seed
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


def nested(fitter: Fitter) -> tuple[list[float], list[float], list[float], Labels]:
    """Nested cross-validation over all rows (MR, CR, SUBJ, MPQA).

    Returns:
        For each outer fold the validation accuracy, the test accuracy and the regularisation; and the
        predicted class of every row.
    """
    everything = np.arange(len(fitter.labels))
    outer = folds_of(everything, fitter.labels, fitter.protocol.kfold, SEED)
    inner = [
        Fold(train, validation)
        for rest, _ in outer
        for train, validation in folds_of(rest, fitter.labels, fitter.protocol.kfold, SEED)
    ]
    found = _validated(fitter, inner)[1].reshape(len(outer), -1, len(REGS)).mean(1)
    chosen = [_choice(accuracies) for accuracies in found]
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


def on_test(fitter: Fitter, rows: Mapping[str, Rows]) -> tuple[list[float], list[float], list[float], Labels]:
    """Choose on the dev split (SST), else on folds of the training split (TREC, MRPC); see :func:`nested`.

    The fit that is chosen on a dev split is the one that is tested, else one on the whole training split is.
    """
    train, test = rows["train"], rows["test"]
    if "dev" in rows:
        folds = [Fold(train, rows["dev"])]
    else:
        split = folds_of(train, fitter.labels, fitter.protocol.kfold, fitter.protocol.seed)
        folds = [Fold(*fold) for fold in split]
    fits, accuracies = _validated(fitter, folds)
    found = accuracies.mean(0)
    chosen = _choice(found)
    weights = fits[0][chosen] if "dev" in rows else fitter.weights([Fold(train, None, (REGS[chosen],))])[0][0]
    predictions = fitter.predict(weights, test)
    right = float((predictions == fitter.labels[test]).mean())
    return [float(found[chosen])], [right], [REGS[chosen]], predictions


def folds_of(rows: Rows, labels: Labels, k: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Stratified folds of rows, those of scikit-learn's StratifiedKFold with shuffling.

    Rows in the order of their classes are dealt out to the folds in turn; that says how many of a class each
    fold has. Which ones is shuffled class by class, the classes in the order of their first rows.

    Args:
        rows: The rows.
        labels: Class of every row of the features.
        k: Number of folds.
        seed: Seed.

    Returns:
        (training rows, held-out rows) of each fold.

    Raises:
        BenchError: a class with fewer than k rows.

    >>> labels = np.array([0, 0, 1, 1])
    >>> [held_out.tolist() for _, held_out in folds_of(np.arange(4), labels, 2, seed=1111)]
    [[1, 2], [0, 3]]
    """
    _, firsts, inverse, counts = np.unique(
        labels[rows], return_index=True, return_inverse=True, return_counts=True
    )
    if counts.min() < k:
        raise BenchError(f"a class has {counts.min()} item(s)", expected=f"at least {k}, one for each fold")
    known = np.argsort(np.argsort(firsts))[inverse]
    dealt = np.sort(known)
    order = np.random.RandomState(seed)  # scikit-learn's stream
    fold = np.empty(len(rows), dtype=np.intp)
    for one in range(len(firsts)):
        of_class = np.repeat(np.arange(k), [int((dealt[i::k] == one).sum()) for i in range(k)])
        order.shuffle(of_class)
        fold[known == one] = of_class
    return [(rows[fold != i], rows[fold == i]) for i in range(k)]


def run_task(task: LabelledTask, vectors: Embeddings, protocol: Protocol) -> TransferResult:
    """Evaluate one task on the vectors of its sentences.

    Pairs have the features |u - v| and u * v.

    Raises:
        BenchError: vectors that can't be classified, or a solver that doesn't converge; names the task.
    """
    try:
        return _run_task(task, vectors, protocol)
    except BenchError as error:
        raise BenchError(error.what, where=task.id, expected=error.expected, hint=error.hint) from error


@dataclass(frozen=True)
class Laid:
    """A task's items as they are fitted: splits one after the other, each in SentEval's order.

    Args:
        classes: Names of the classes.
        splits: The splits; all items in one, if the task is folded.
        orders: Of each split, the task's rows in SentEval's order.
        labels: Class of every item.
        rows: Rows of each split, by its name.
    """

    classes: tuple[str, ...]
    splits: tuple[LabelledSplit, ...]
    orders: tuple[Rows, ...]
    labels: Labels
    rows: dict[str, Rows]

    @property
    def folded(self) -> bool:
        """True if the items are tested in folds, not in a split of their own."""
        return "test" not in self.rows

    @property
    def tested(self) -> tuple[Rows, Rows]:
        """Rows of the items that are tested, and the task's order of them."""
        names = list(self.rows)
        position = 0 if self.folded else names.index("test")
        return self.rows[names[position]], self.orders[position]


def laid(task: LabelledTask) -> Laid:
    """Lay out a task's items."""
    classes = tuple(sorted({label for split in task.splits for label in split.labels}))
    known = {label: number for number, label in enumerate(classes)}
    folded = not {"train", "test"} <= task.counts.keys()
    splits = (_joined(task.splits),) if folded else task.splits
    orders = tuple(_by_length(split, known) for split in splits)
    labels = [np.array([known[x] for x in s.labels])[order] for s, order in zip(splits, orders, strict=True)]
    ends = np.cumsum([len(order) for order in orders])
    rows = np.split(np.arange(ends[-1]), ends[:-1])
    names = (split.name for split in splits)
    return Laid(classes, splits, orders, np.concatenate(labels), dict(zip(names, rows, strict=True)))


def accuracy_of(
    task: LabelledTask, predictions: NDArray[np.floating], kfold: int = 10
) -> tuple[float, float]:
    """Score predicted classes: accuracy, the mean over folds where the task is folded; and F1 of class 1.

    Args:
        task: The task.
        predictions: (items,) number of the predicted class of every tested item, in the task's order.
        kfold: Outer folds of a task without a test split.

    Raises:
        BenchError: a wrong number of predictions.
    """
    items = laid(task)
    rows, order = items.tested
    if len(predictions) != len(rows):
        raise BenchError(f"{len(predictions)} predictions for {len(rows)} items", where=task.id)
    right = predictions[order] == items.labels[rows]
    parts = [right]
    if items.folded:
        parts = [right[held_out] for _, held_out in folds_of(rows, items.labels, kfold, SEED)]
    return float(np.mean([part.mean() for part in parts])), f1_score(predictions[order], items.labels[rows])


def f1_score(predictions: NDArray[Any], gold: NDArray[Any]) -> float:
    """F1 of class 1; 0 without a true positive."""
    right = int(((predictions == 1) & (gold == 1)).sum())
    return 2 * right / max(1, int((predictions == 1).sum() + (gold == 1).sum()))


def _run_task(task: LabelledTask, vectors: Embeddings, protocol: Protocol) -> TransferResult:
    items = laid(task)
    ordered = zip(items.splits, items.orders, strict=True)
    features = np.concatenate([_features(split, vectors)[order] for split, order in ordered])
    labels, rows = items.labels, items.rows
    fitter = Fitter(features, labels, len(items.classes), protocol)
    dev, test, regs, predictions = nested(fitter) if items.folded else on_test(fitter, rows)
    n_dev = len(labels) if items.folded else len(rows.get("dev", rows["train"]))
    tested, order = items.tested
    return TransferResult(
        tuple(dev), tuple(test), tuple(regs), _undone(predictions, order), _undone(labels[tested], order),
        n_dev, fitter.fits, fitter.gradient, items.classes,
    )  # fmt: skip


def _validated(
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


def _choice(accuracies: NDArray[np.float64]) -> int:
    return int(np.argmax(np.round(100 * accuracies, 2)))


def _joined(splits: Sequence[LabelledSplit]) -> LabelledSplit:
    first = tuple(sentence for split in splits for sentence in split.first)
    return LabelledSplit("all", first, (), tuple(label for split in splits for label in split.labels))


def _by_length(split: LabelledSplit, known: dict[str, int]) -> Rows:
    """SentEval's order: by words of the sentence(s), then by class."""
    sides = (split.first, split.second) if split.second else (split.first,)
    keys = [[len(sentence.split()) for sentence in side] for side in sides]
    keys.append([known[label] for label in split.labels])
    return np.lexsort(keys[::-1])


def _features(split: LabelledSplit, vectors: Embeddings) -> FloatArray:
    first = vectors.vectors[[vectors.rows[sentence] for sentence in split.first]]
    if not split.second:
        return first
    second = vectors.vectors[[vectors.rows[sentence] for sentence in split.second]]
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def _undone(values: Labels, order: Rows) -> Labels:
    """Put values of sorted items back into the task's order."""
    found = np.empty_like(values)
    found[order] = values
    return found
