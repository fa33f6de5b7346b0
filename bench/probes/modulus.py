"""Norms of [CLS] and of the pooler's output, the modulus behind LayerNorm (JTCSE, section VI-A)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.nn.observer import ObservedTower, Observer
from bench.probes.interface import VECTORS, Probe, ProbeColumn

if TYPE_CHECKING:
    from torch import Tensor

PARTS = ("cls", "pooler")
_TOGETHER = 32  # batches whose figures are read from a device together
CONVENTION = (
    "Euclidean norms over sentences of the last layer's first token and of the pooler's output, before any "
    "normalisation; sd with n - 1; pooler null where it has no trained weights"
)


class Norms:
    """Count, mean, standard deviation, least and largest of norms, batch by batch.

    >>> import torch
    >>> norms = Norms()
    >>> norms.add(torch.tensor([[3.0, 4.0]]))
    >>> norms.add(torch.tensor([[0.0, 7.0]]))
    >>> {name: round(value, 4) for name, value in norms.result().items()}
    {'mean': 6.0, 'sd': 1.4142, 'min': 5.0, 'max': 7.0}
    """

    def __init__(self) -> None:
        self.n, self._mean, self._squares = 0, 0.0, 0.0
        self._least, self._largest = float("inf"), 0.0
        self._unread: list[tuple[int, Tensor]] = []

    def add(self, vectors: Tensor) -> None:
        """Add (B, H) vectors (Chan, Golub and LeVeque 1979: no difference of large sums)."""
        import torch

        from bench.nn.device import to_float64

        norms = to_float64(torch.linalg.vector_norm(vectors, dim=1))
        mean = norms.mean()
        figures = torch.stack([mean, (norms - mean).square().sum(), norms.min(), norms.max()])
        self._unread.append((len(norms), figures))
        self.n += len(norms)
        if len(self._unread) == _TOGETHER:
            self._merge_batches()

    def _merge_batches(self) -> None:
        import torch

        if not self._unread:
            return
        counts, figures = zip(*self._unread, strict=True)
        self._unread = []
        before = self.n - sum(counts)
        for n, (mean, squares, least, largest) in zip(counts, torch.stack(figures).tolist(), strict=True):
            apart = mean - self._mean
            self._squares += squares + apart**2 * before * n / (before + n)
            self._mean += apart * n / (before + n)
            before += n
            self._least, self._largest = min(self._least, least), max(self._largest, largest)

    def result(self) -> dict[str, float]:
        """Return {"mean", "sd", "min", "max"}; raises BenchError for under two vectors, or infinite norms."""
        if self.n < 2:
            raise BenchError(f"norms of {self.n} vector(s) have no spread")
        self._merge_batches()
        if not self._mean < float("inf"):
            raise BenchError("a norm is not finite")
        sd = float((self._squares / (self.n - 1)) ** 0.5)
        return {"mean": self._mean, "sd": sd, "min": self._least, "max": self._largest}


class Modulus(Observer):
    """Norms of [CLS] and of the pooler's output by tower."""

    def __init__(self, watched: Sequence[ObservedTower]) -> None:
        self._norms = [{part: Norms() for part in PARTS} for _ in watched]

    def on_output(self, tower: int, states: Tensor, pooled: Tensor | None) -> None:
        """Add a batch: last hidden states (B, T, H), and the pooler's output (B, H) if there is one."""
        self._norms[tower]["cls"].add(states[:, 0])
        if pooled is not None:
            self._norms[tower]["pooler"].add(pooled)

    def result(self) -> dict[str, Any]:
        """Return the towers' mean norms by part, and each tower's statistics; errors as in Norms."""
        towers: list[dict[str, Any]] = [{} for _ in self._norms]
        means: dict[str, float | None] = {}
        for part in PARTS:
            values = []
            for tower, norms in zip(towers, self._norms, strict=True):
                tower[part] = norms[part].result() if norms[part].n else None
                if tower[part]:
                    values.append(tower[part]["mean"])
            means[part] = sum(values) / len(values) if len(values) == len(towers) else None
        return {**means, "towers": towers, "convention": CONVENTION}


PROBE = Probe(
    "modulus",
    "norms of [CLS] and of the pooler's output",
    needs="trace",
    measure=lambda inputs: inputs.observed(Modulus).result(),
    table=VECTORS,
    columns=(ProbeColumn("|CLS|", ("cls",), ".2f"), ProbeColumn("|pooler|", ("pooler",), ".2f")),
    observer=Modulus,
)
