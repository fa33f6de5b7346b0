"""SentEval's classifier of vectors: a linear layer or one hidden layer, any optimiser, early stopping."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.errors import BenchError, InputError
from bench.eval.transfer_items import SEED
from bench.senteval_compat.utils import get_optimizer

Array = NDArray[Any]

SETTINGS: dict[str, Any] = {"nhid": 0, "optim": "adam", "tenacity": 5, "epoch_size": 4, "max_epoch": 200}
SETTINGS |= {"dropout": 0.0, "batch_size": 64}
"""Settings of a classifier with their defaults; tenacity counts allowed evaluations without a better
accuracy, epoch_size the passes between evaluations, max_epoch those after which the last round begins."""


class PyTorchClassifier:
    """The fitting of a model on (n, inputdim) features, base of :class:`MLP`.

    ``seed`` is of the initial weights, the order of rows and dropout; cudaEfficient is without effect.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    tenacity: int
    epoch_size: int
    max_epoch: int

    def __init__(
        self,
        inputdim: int,
        nclasses: int,
        l2reg: float = 0.0,
        batch_size: int = 64,
        seed: int = SEED,
        cudaEfficient: bool = False,  # noqa: N803 - SentEval's name
    ) -> None:
        self.inputdim, self.nclasses, self.l2reg = inputdim, nclasses, l2reg
        self.batch_size, self.seed = batch_size, seed
        self.loss_fn = nn.CrossEntropyLoss()
        self._order = np.random.RandomState(seed)  # SentEval's stream of permutations
        self._chance = torch.Generator().manual_seed(seed).get_state()  # torch's stream: weights, dropout

    def fit(
        self,
        X: Array,  # noqa: N803
        y: Array,
        validation_data: tuple[Array, Array] | None = None,
        validation_split: float | None = None,
        early_stop: bool = True,
    ) -> float:
        """Fit, keep the model with the best validation accuracy, and return that accuracy.

        Args:
            X: (n, inputdim).
            y: (n,), 0 to nclasses - 1.
            validation_data: Features and classes to stop by.
            validation_split: Without these the share of the rows that is set aside at random.
            early_stop: Stop after ``tenacity`` evaluations without a better accuracy, and one more.

        Raises:
            BenchError: no rows to validate on, or features and classes of different lengths.
        """
        x, labels = self._read_features(X), torch.from_numpy(np.asarray(y, dtype=np.int64))
        if len(labels) != len(x) or (len(labels) and not 0 <= labels.min() <= labels.max() < self.nclasses):
            raise BenchError(
                f"{len(x)} rows and {len(labels)} classes",
                where="classifier",
                expected=f"a class of 0 to {self.nclasses - 1} for each row",
            )
        if validation_data is None:
            shuffled, cut = self._order.permutation(len(x)), int((validation_split or 0.0) * len(x))
            aside, rest = shuffled[:cut], shuffled[cut:]
            validation_data = (np.asarray(X)[aside], np.asarray(y)[aside])
            x, labels = x[rest], labels[rest]
        if not len(validation_data[0]):
            raise BenchError(f"no row of {len(x)} is left to validate a classifier on", expected="more rows")
        best, best_accuracy, patience = copy.deepcopy(self.model), -1.0, 0
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._chance)
            for _ in range(0, self.max_epoch + 1, self.epoch_size):
                self.model.train()
                for _ in range(self.epoch_size):
                    self._train_pass(x, labels)
                accuracy = self.score(*validation_data)
                if accuracy > best_accuracy:
                    best, best_accuracy = copy.deepcopy(self.model), accuracy
                elif early_stop:
                    if patience >= self.tenacity:
                        break
                    patience += 1
            self._chance = torch.get_rng_state()
        self.model = best
        return best_accuracy

    def _train_pass(self, x: Tensor, labels: Tensor) -> None:
        for batch in torch.split(torch.from_numpy(self._order.permutation(len(x))), self.batch_size):
            loss = self.loss_fn(self.model(x[batch]), labels[batch])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def score(self, devX: Array, devy: Array) -> float:  # noqa: N803
        """Accuracy in 0 to 1 on (n, inputdim) features and (n,) classes."""
        return float((self._compute_logits(devX).argmax(1).numpy() == np.asarray(devy)).mean())

    def predict(self, devX: Array) -> NDArray[np.float64]:  # noqa: N803
        """Predict the classes of (n, inputdim) features, (n, 1) as in SentEval."""
        return self._compute_logits(devX).argmax(1, keepdim=True).double().numpy()

    def predict_proba(self, devX: Array) -> NDArray[np.float32]:  # noqa: N803
        """Return probabilities of the classes, (n, nclasses), of (n, inputdim) features."""
        return self._compute_logits(devX).softmax(1).numpy()

    def _compute_logits(self, rows: Array) -> Tensor:
        self.model.eval()
        with torch.no_grad():
            logits: Tensor = self.model(self._read_features(rows))
        return logits

    def _read_features(self, rows: Array) -> Tensor:
        x = np.asarray(rows, dtype=np.float32)
        if x.ndim != 2 or x.shape[1] != self.inputdim:
            what = f"features of the shape {x.shape}"
            raise BenchError(what, where="classifier", expected=f"(n, {self.inputdim})")
        return torch.from_numpy(x)


class MLP(PyTorchClassifier):
    """Logistic regression, or one hidden layer of sigmoids.

    ``params`` are any of :data:`SETTINGS`, with an optimiser of :func:`get_optimizer`. ``batch_size`` is
    without effect, as in SentEval, which takes that of ``params`` or 64.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        inputdim: int,
        nclasses: int,
        l2reg: float = 0.0,
        batch_size: int = 64,
        seed: int = SEED,
        cudaEfficient: bool = False,  # noqa: N803 - SentEval's name
    ) -> None:
        given = SETTINGS | dict(params)
        super().__init__(inputdim, nclasses, l2reg, int(given["batch_size"]), seed, cudaEfficient)
        self.nhid, self.optim, self.dropout = int(given["nhid"]), str(given["optim"]), float(given["dropout"])
        self.tenacity, self.epoch_size = int(given["tenacity"]), int(given["epoch_size"])
        self.max_epoch = int(given["max_epoch"])
        if self.epoch_size < 1 or self.batch_size < 1:
            expected = "epoch_size, batch_size > 0"
            raise InputError("a round without a step", where="classifier", expected=expected)
        optimiser, settings = get_optimizer(self.optim)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._chance)
            layers: list[nn.Module] = []
            if self.nhid:
                layers = [nn.Linear(inputdim, self.nhid), nn.Dropout(self.dropout), nn.Sigmoid()]
            self.model = nn.Sequential(*layers, nn.Linear(self.nhid or inputdim, nclasses))
            self._chance = torch.get_rng_state()
        self.optimizer = optimiser(self.model.parameters(), **settings)
        self.optimizer.param_groups[0]["weight_decay"] = l2reg
