"""CLS energy weight: the share of [CLS] in a context tensor (JTCSE, eq. 6); means by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import BenchError
from bench.nn.observer import LayerView, ObservedTower, Observer
from bench.probes.interface import TOWERS, Probe, ProbeColumn, ProbeInputs

if TYPE_CHECKING:
    from torch import Tensor

CONVENTION = (
    "||CT[0]||_2 / ||CT[1:]||_F of each context tensor (T x H, heads side by side, before the output's dense "
    "layer), special tokens in, padding out; mean over sentences, then layers, then towers"
)


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
        """Return the means of a quantity, (layers, ...); raises BenchError if NaN or infinite."""
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


def cls_energy(context: Tensor, mask: Tensor) -> Tensor:
    """||CT[0]||_2 / ||CT[1:]||_F of each sentence (JTCSE, eq. 6): (B,), infinite if all other tokens are 0.

    The context is (B, T, H), the mask True on at least two tokens a row. A [CLS] of norm 5, then tokens of
    norm 3 and 4:

    >>> import torch
    >>> context = torch.tensor([[[3.0, 4.0], [3.0, 0.0], [0.0, 4.0], [9.0, 9.0]]])
    >>> cls_energy(context, torch.tensor([[True, True, True, False]])).tolist()
    [1.0]
    """
    import torch

    squares = torch.einsum("bth,bth->bt", context, context) * mask
    return (squares[:, 0] / squares[:, 1:].sum(1)).sqrt()


class ClsEnergy(Observer):
    """Means of the CLS energy weight by tower and layer."""

    def __init__(self, watched: Sequence[ObservedTower]) -> None:
        self._means = [LayerMeans() for _ in watched]

    def on_layer(self, view: LayerView) -> None:
        """Add a batch."""
        self._means[view.tower].add(view.layer, cls_energy(view.context, view.mask))

    def result(self) -> dict[str, Any]:
        """Return the mean, its profile over layers, and both of each tower; raises BenchError if infinite."""
        profiles = [means.result("CLS energy") for means in self._means]
        towers = [{"value": float(profile.mean()), "layers": profile.tolist()} for profile in profiles]
        return {**mean_profile(towers), "towers": towers, "convention": CONVENTION}


def _measure_energy(inputs: ProbeInputs) -> dict[str, Any]:
    pooling = "+".join(dict.fromkeys(tower.pooling for tower in inputs.towers))
    return {**inputs.observed(ClsEnergy).result(), "pooling": pooling}


PROBE = Probe(
    "cls_energy",
    "norm of [CLS] in the context tensors against that of all other tokens, by layer",
    needs="trace",
    measure=_measure_energy,
    table=TOWERS,
    columns=(ProbeColumn("E_CLS", form=".4f"),),
    observer=ClsEnergy,
)
