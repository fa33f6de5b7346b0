"""CLS energy weight: the share of [CLS] in a context tensor (JTCSE, eq. 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.nn.observer import LayerView, ObservedTower, Observer
from bench.probes.interface import TOWERS, Probe, ProbeColumn, ProbeInputs
from bench.probes.layer_means import LayerMeans, mean_profile

if TYPE_CHECKING:
    from torch import Tensor

CONVENTION = (
    "||CT[0]||_2 / ||CT[1:]||_F of each context tensor (T x H, heads side by side, before the output's dense "
    "layer), special tokens in, padding out; mean over sentences, then layers, then towers"
)


def cls_energy(context: Tensor, mask: Tensor) -> Tensor:
    """||CT[0]||_2 / ||CT[1:]||_F of each sentence (JTCSE, eq. 6): (B,), infinite if only [CLS] isn't 0.

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
