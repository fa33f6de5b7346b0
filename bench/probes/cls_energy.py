"""CLS energy weight: how much of a context tensor lies in [CLS] (JTCSE, eq. 6)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.nn.trace import LayerView, Observer
from bench.probes.by_layer import LayerMeans, mean_profile

CONVENTION = (
    "||CT[0]||_2 / ||CT[1:]||_F of each context tensor (T x H, heads side by side, before the output's dense "
    "layer), special tokens in, padding out; mean over sentences, then layers, then towers"
)


def cls_energy(context: Tensor, mask: Tensor) -> Tensor:
    """||CT[0]||_2 / ||CT[1:]||_F of each sentence (JTCSE, eq. 6).

    Args:
        context: Context tensors, (B, T, H).
        mask: True on tokens, False on padding, (B, T); every row has at least two tokens.

    Returns:
        (B,), at least 0; infinite where all but [CLS] is 0.
    """
    squares = torch.einsum("bth,bth->bt", context, context) * mask
    return (squares[:, 0] / squares[:, 1:].sum(1)).sqrt()


class ClsEnergy(Observer):
    """Means of the CLS energy weight by tower and layer.

    Args:
        towers: Number of towers.
    """

    def __init__(self, towers: int) -> None:
        self._means = [LayerMeans() for _ in range(towers)]

    def on_layer(self, view: LayerView) -> None:
        """Add a batch."""
        self._means[view.tower].add(view.layer, cls_energy(view.context, view.mask))

    def result(self) -> dict[str, Any]:
        """Return {"value", "layers", "towers"}: the mean, its profile over layers, and both of each tower.

        Raises:
            BenchError: a mean that isn't finite.
        """
        profiles = [means.result("CLS energy") for means in self._means]
        found = [{"value": float(profile.mean()), "layers": profile.tolist()} for profile in profiles]
        return {**mean_profile(found), "towers": found, "convention": CONVENTION}
