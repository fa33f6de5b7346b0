"""SentEval's ways to choose a regularisation and test with it, by its own fitting or scikit-learn's.

Features are rows in SentEval's order, classes are numbers from 0, accuracies percentages of two decimals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from bench.errors import BenchError, InputError
from bench.eval.transfer_items import SEED, stratified_folds
from bench.senteval_compat.tools.classifier import MLP

Array = NDArray[Any]
Pair = tuple[Array, Array]

_DEFAULT_KFOLD = 5
_ASIDE = 0.05  # of the rows of a last fit, to stop by
_REGS = tuple(10.0**power for power in range(-5, -1))
_STRENGTHS = tuple(2.0**power for power in range(-2, 4))  # scikit-learn's C, the inverse of a regularisation
_STRENGTHS_OF_FOLDS = tuple(2.0**power for power in range(-1, 6))
_FREE, _FREE_STRENGTH = 1e-9, 1e9
_CONFIG = ("nclasses", "seed", "usepytorch", "classifier")


def _read_rows(x: Any, y: Any, where: str) -> Pair:
    """Return features and classes as arrays; raises BenchError for other shapes."""
    features, classes = np.asarray(x), np.asarray(y)
    if features.ndim != 2 or features.shape[:1] != classes.shape:
        what = f"features of the shape {features.shape} and classes of the shape {classes.shape}"
        raise BenchError(what, where=where, expected="(n, dim) and (n,)")
    return features, classes


def _read_splits(splits: Mapping[str, tuple[Any, Any]], where: str) -> list[Pair]:
    """Return features and classes of each split; raises InputError for a missing one."""
    for name, pair in splits.items():
        for side, given in zip("Xy", pair, strict=True):
            if given is None:
                expected = f"X and y of {', '.join(splits)}"
                raise InputError(f"no '{side}'", where=f"{where}, {name}", expected=expected)
    return [_read_rows(*pair, f"{where}, {name}") for name, pair in splits.items()]


class _Chooser:
    """The common part of the three classifiers."""

    def __init__(self, dim: int, config: Mapping[str, Any]) -> None:
        if missing := [name for name in _CONFIG if name not in config]:
            what = f"config has no '{missing[0]}'"
            raise InputError(what, where=type(self).__name__, expected=", ".join(_CONFIG))
        self.featdim, self.nclasses, self.seed = dim, int(config["nclasses"]), int(config["seed"])
        self.usepytorch, self.classifier_config = bool(config["usepytorch"]), dict(config["classifier"])
        self.cudaEfficient = bool(config.get("cudaEfficient"))
        self.noreg = bool(config.get("noreg"))
        self.k = int(config.get("kfold") or _DEFAULT_KFOLD)

    def regs(self, strengths: tuple[float, ...]) -> tuple[float, ...]:
        return _REGS if self.usepytorch else strengths

    def fit(self, reg: float, rows: Pair, validation: Pair | None = None) -> Any:
        """Fit on (features, classes); without validation rows a part of these is set aside."""
        if not self.usepytorch:
            return LogisticRegression(C=reg, random_state=self.seed).fit(*rows)
        model = MLP(
            self.classifier_config, self.featdim, self.nclasses, l2reg=reg, seed=self.seed,
            cudaEfficient=self.cudaEfficient,
        )  # fmt: skip
        model.fit(*rows, validation_data=validation, validation_split=None if validation else _ASIDE)
        return model

    def choose(self, rows: Pair, strengths: tuple[float, ...], seed: int) -> tuple[float, float]:
        """Return the best regularisation over folds of rows, the first at ties, and its accuracy."""
        x, y = rows
        folds = stratified_folds(np.arange(len(y)), y, self.k, seed)
        regs = self.regs(strengths)
        accuracies = []
        for reg in regs:
            scores = []
            for train, held in folds:
                validation = x[held], y[held]
                scores.append(self.fit(reg, (x[train], y[train]), validation).score(*validation))
            accuracies.append(_as_percent(np.mean(scores)))
        return regs[int(np.argmax(accuracies))], max(accuracies)


class InnerKFoldClassifier(_Chooser):
    """Folds within folds, for (n, dim) features and (n,) classes in one split.

    The config has "nclasses", "seed", "usepytorch", "classifier" and "kfold" (5).
    """

    def __init__(self, X: Array, y: Array, config: Mapping[str, Any]) -> None:  # noqa: N803
        self.X, self.y = _read_rows(X, y, "InnerKFoldClassifier")
        super().__init__(self.X.shape[1], config)
        self.devresults: list[float] = []
        self.testresults: list[float] = []

    def run(self) -> tuple[float, float]:
        """Return the accuracy in validation and in test, each the mean over the outer folds."""
        for train, held in stratified_folds(np.arange(len(self.y)), self.y, self.k, SEED):
            rows = self.X[train], self.y[train]
            reg, accuracy = self.choose(rows, _STRENGTHS, SEED)
            self.devresults.append(accuracy)
            self.testresults.append(_as_percent(self.fit(reg, rows).score(self.X[held], self.y[held])))
        return round(float(np.mean(self.devresults)), 2), round(float(np.mean(self.testresults)), 2)


class KFoldClassifier(_Chooser):
    """Folds of a training split, and a test split, both {"X": (n, dim), "y": (n,)}.

    The config has "nclasses", "seed", "usepytorch", "classifier" and "kfold" (5).
    """

    def __init__(
        self, train: Mapping[str, Array], test: Mapping[str, Array], config: Mapping[str, Any]
    ) -> None:
        splits = {"train": (train.get("X"), train.get("y")), "test": (test.get("X"), test.get("y"))}
        self.train, self.test = ({"X": x, "y": y} for x, y in _read_splits(splits, "KFoldClassifier"))
        super().__init__(self.train["X"].shape[1], config)

    def run(self) -> tuple[float, float, Array]:
        """Return the accuracy in validation and on the test split, and the predicted classes of it."""
        rows = self.train["X"], self.train["y"]
        reg, accuracy = self.choose(rows, _STRENGTHS_OF_FOLDS, self.seed)
        model = self.fit(reg, rows)
        tested = _as_percent(model.score(self.test["X"], self.test["y"]))
        return accuracy, tested, cast("Array", model.predict(self.test["X"]))


class SplitClassifier(_Chooser):
    """A training, a validation and a test split of (n, dim) features and (n,) classes by name.

    The config has "nclasses", "seed", "usepytorch", "classifier"; "noreg" for almost no regularisation;
    "cudaEfficient" without effect.
    """

    def __init__(
        self, X: Mapping[str, Array], y: Mapping[str, Array], config: Mapping[str, Any]  # noqa: N803
    ) -> None:  # fmt: skip
        splits = {name: (X.get(name), y.get(name)) for name in ("train", "valid", "test")}
        pairs = dict(zip(splits, _read_splits(splits, "SplitClassifier"), strict=True))
        self.X = {name: features for name, (features, _) in pairs.items()}
        self.y = {name: classes for name, (_, classes) in pairs.items()}
        super().__init__(self.X["train"].shape[1], config)
        self.config = config

    def run(self) -> tuple[float, float]:
        """Return the accuracy on the validation and on the test split."""
        regs = self.regs(_STRENGTHS)
        if self.noreg:
            regs = (_FREE,) if self.usepytorch else (_FREE_STRENGTH,)
        rows, validation = ((self.X[part], self.y[part]) for part in ("train", "valid"))
        models = [self.fit(reg, rows, validation) for reg in regs]
        accuracies = [_as_percent(model.score(*validation)) for model in models]
        best = int(np.argmax(accuracies))
        return accuracies[best], _as_percent(models[best].score(self.X["test"], self.y["test"]))


def _as_percent(accuracy: Any) -> float:
    return round(100 * float(accuracy), 2)
