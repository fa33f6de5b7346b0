"""SentEval's regression of relatedness: soft labels over 1 to 5, mean squared error, Adam."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import pearsonr
from torch import Tensor, nn

from bench.errors import BenchError

Array = NDArray[Any]
Correlation = Callable[..., Any]
Scores = Sequence[float] | Array

GRADES = 5
_BATCH, _PASSES, _MOST_PASSES, _TENACITY = 64, 50, 1000, 3


def encode_labels(labels: Scores, nclass: int = GRADES) -> NDArray[np.float32]:
    """Spread each score over the two grades around it, so that the grades' mean is the score.

    A score of 0 has no weight, since grade 1 is the lowest (Tai, Socher and Manning 2015). A score outside 0
    to ``nclass`` raises BenchError.

    >>> encode_labels([3.25, 5.0, 0.5]).tolist()[0]
    [0.0, 0.0, 0.75, 0.25, 0.0]
    """
    scores = np.asarray(labels, dtype=np.float64)
    outside = scores[~((scores >= 0) & (scores <= nclass))]  # NaN included
    if len(outside):
        raise BenchError(f"score {outside[0]:g}", where="encode_labels", expected=f"0 to {nclass}")
    spread: NDArray[np.float32] = np.zeros((len(scores), nclass), dtype=np.float32)
    for row, score in zip(spread, scores, strict=True):
        below = int(np.floor(score))
        if 1 <= below <= nclass:
            row[below - 1] = below - score + 1
        if below < nclass:
            row[below] = score - below
    return spread


class RelatednessPytorch:
    """The regression on {"X": features, "y": soft labels}.

    The scores of ``valid`` are ``devscores``, the config has "nclasses" and "seed". The correlation, scipy's
    pearsonr or as in SimCSE's fork spearmanr, selects the model on ``valid``.
    """

    def __init__(
        self,
        train: Mapping[str, Array],
        valid: Mapping[str, Array],
        test: Mapping[str, Array],
        devscores: Scores,
        config: Mapping[str, Any],
        correlation: Correlation = pearsonr,
    ) -> None:
        self.devscores, self.correlation = devscores, correlation
        arrays = train["X"], valid["X"], test["X"], train["y"]
        self.trainX, self.devX, self.testX, self.trainy = (torch.as_tensor(x).float() for x in arrays)
        self.grades = np.arange(1, int(config["nclasses"]) + 1)
        self._order = np.random.RandomState(config["seed"])  # SentEval's stream of permutations
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config["seed"])
            layer = nn.Linear(self.trainX.shape[1], len(self.grades))
        self.model: nn.Module = nn.Sequential(layer, nn.Softmax(dim=-1))

    def run(self) -> tuple[float, NDArray[np.float64]]:
        """Return the best correlation on ``valid``, computed every 50 passes, and the scores of ``test``."""
        optimizer = torch.optim.Adam(self.model.parameters())
        best, best_correlation, patience = copy.deepcopy(self.model), -1.0, 0
        for _ in range(0, _MOST_PASSES + 1, _PASSES):
            for _ in range(_PASSES):
                self._train_pass(optimizer)
            value = defined_correlation(self.correlation, self._predict_scores(self.devX), self.devscores)
            if value > best_correlation:
                best, best_correlation = copy.deepcopy(self.model), value
            elif patience >= _TENACITY:
                break
            else:
                patience += 1
        self.model = best
        return best_correlation, self._predict_scores(self.testX)

    def _train_pass(self, optimizer: torch.optim.Optimizer) -> None:
        for batch in torch.split(torch.from_numpy(self._order.permutation(len(self.trainX))), _BATCH):
            loss = nn.functional.mse_loss(self.model(self.trainX[batch]), self.trainy[batch])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()

    def _predict_scores(self, features: Tensor) -> NDArray[np.float64]:
        with torch.no_grad():
            scores: NDArray[np.float64] = self.model(features).double().numpy() @ self.grades
        return scores


def defined_correlation(correlation: Correlation, scores: Array, gold: Scores) -> float:
    """Return scipy's pearsonr or spearmanr, 0 if it is undefined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy's of constant input
        value = float(correlation(scores, gold)[0])
    return 0.0 if np.isnan(value) else value
