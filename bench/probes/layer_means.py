"""Means over sentences by layer, batch by batch, and over towers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import BenchError

if TYPE_CHECKING:
    from torch import Tensor


class LayerMeans:
    """Means, summed in float64, of a quantity that each sentence has at each layer."""

    def __init__(self) -> None:
        self._sums: list[Tensor] = []
        self._counts: list[int] = []

    def add(self, layer: int, values: Tensor) -> None:
        """Add the values of a batch, (B, ...), at a layer; layers come in order."""
        import torch

        from bench.nn.device import float64_device

        total = values.to(float64_device(values.device)).sum(0, dtype=torch.float64)
        if layer == len(self._sums):
            self._sums.append(total)
            self._counts.append(len(values))
        else:
            self._sums[layer] += total
            self._counts[layer] += len(values)

    def result(self, what: str) -> NDArray[np.float64]:
        """Return the means of a quantity, (layers, ...); raises BenchError without finite ones."""
        if not self._sums:
            raise BenchError(f"no layer was seen, so there is no {what}")
        import torch

        sums = torch.stack(self._sums).cpu().numpy()
        counts = np.array(self._counts).reshape(-1, *[1] * (sums.ndim - 1))
        means: NDArray[np.float64] = sums / counts
        if not np.isfinite(means).all():
            raise BenchError(f"the {what} of a layer is not finite")
        return means


def mean_profile(towers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Average the towers' "value", and their "layers" if all have equally many.

    >>> mean_profile([{"value": 1.0, "layers": [1.0, 1.0]}, {"value": 3.0, "layers": [2.0, 4.0]}])
    {'value': 2.0, 'layers': [1.5, 2.5]}
    """
    mean: dict[str, Any] = {"value": float(np.mean([tower["value"] for tower in towers]))}
    layers = [tower["layers"] for tower in towers]
    if len(set(map(len, layers))) == 1:
        mean["layers"] = np.mean(layers, axis=0).tolist()
    return mean
