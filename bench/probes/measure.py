"""All probes of an encoder from one traced pass over the sentences of a suite."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import BenchError, InputError
from bench.eval.embed import Embeddings, embed
from bench.nn.sum_encoder import SumEncoder
from bench.nn.trace import Observer, Tower, UntraceableError, towers, traced
from bench.probes.attention_sink import AttentionMass, attention_maps
from bench.probes.cls_energy import ClsEnergy
from bench.probes.cost import cost, speed
from bench.probes.data import VERSION, ProbeData
from bench.probes.density import density
from bench.probes.geometry import GOLD, alignment, positive_pairs, uniformity
from bench.probes.isotropy import isotropy
from bench.probes.modulus import Modulus

CURVES = {"density": ("curves",), "isotropy": ("spectrum",), "attention_sink": ("maps",)}
"""What of a probe is for drawing: it stays out of records."""
_UNIT = "vectors of length 1; lower is better"
T = TypeVar("T")


@dataclass(frozen=True)
class ProbeOptions:
    """How to measure.

    Args:
        strict: Alignment over pairs of a gold score above 4, not at least 4.
        groups: Gold groups of the density, see :func:`bench.probes.density.gold_groups`.
        per_head: Attention mass by head too.
        sentence: Sentence whose attention maps are wanted; None for none.
    """

    strict: bool = False
    groups: str = "width"
    per_head: bool = False
    sentence: str | None = None


@dataclass(frozen=True)
class Measurement:
    """What the probes found.

    Args:
        probes: By probe, and "version" and "data"; a probe that this encoder can't have is {"missing": why}.
        timing: Seconds that it took, and what ``cost`` measured by the clock.
    """

    probes: dict[str, Any]
    timing: dict[str, Any] = field(default_factory=dict)


def measure(
    encoder: Encoder | PairScorer,
    data: ProbeData,
    names: Sequence[str],
    options: ProbeOptions | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Measure the named probes of an encoder.

    Args:
        encoder: The encoder; of a scorer of pairs the density alone can be had.
        data: The sentences.
        names: Of :data:`bench.probes.PROBES`.
        options: How.
        progress: Called with finished sentences.

    Raises:
        BenchError: embeddings that aren't finite.
    """
    blas = importlib.import_module("threadpoolctl")
    with blas.threadpool_limits(torch.get_num_threads(), user_api="blas"):  # numpy takes all cores otherwise
        return _measure(encoder, data, names, options or ProbeOptions(), progress)


def _measure(
    encoder: Encoder | PairScorer,
    data: ProbeData,
    names: Sequence[str],
    options: ProbeOptions,
    progress: Progress | None,
) -> Measurement:
    wall, cpu = time.perf_counter(), time.process_time()
    probes: dict[str, Any] = {"version": VERSION, "data": data.facts}
    timing: dict[str, Any] = {}
    if isinstance(encoder, PairScorer):
        found = {"density": lambda: _density(encoder.score_pairs(*data.sides), data, options)}
        why = "it compares two sentences directly: it has no vectors"
    else:
        found = _Pass(encoder, data, names, options, progress).probes()
        why = ""
        if "cost" in names:
            timing |= speed(encoder, _sample(data.sentences))
    for name in names:
        probes[name] = _attempt(found[name]) if name in found else {"missing": why}
    timing["wall_seconds"] = round(time.perf_counter() - wall, 3)
    timing["cpu_seconds"] = round(time.process_time() - cpu, 3)
    return Measurement(probes, timing)


def without_curves(probes: dict[str, Any]) -> dict[str, Any]:
    """Return the probes as a record holds them: without what is only drawn."""
    return {
        name: {key: part for key, part in block.items() if key not in CURVES.get(name, ())}
        if isinstance(block, dict)
        else block
        for name, block in probes.items()
    }


class _Pass:
    """One pass over the sentences, and what each probe makes of it.

    Args:
        encoder: The encoder.
        data: The sentences.
        names: The probes that are wanted.
        options: How.
        progress: Called with finished sentences.
    """

    def __init__(
        self,
        encoder: Encoder,
        data: ProbeData,
        names: Sequence[str],
        options: ProbeOptions,
        progress: Progress | None,
    ) -> None:
        self.encoder, self.data, self.options = encoder, data, options
        self.towers = towers(encoder)
        self.untraceable = "" if self.towers else "it has no transformer"
        self.observers: dict[str, Observer] = {}
        self._kept = [_Kept(part) for part in encoder.parts] if isinstance(encoder, SumEncoder) else []
        self._whole = SumEncoder(self._kept, encoder.weights) if isinstance(encoder, SumEncoder) else encoder
        wanted = [name for name in names if name in _OBSERVERS and self.towers]
        self.embeddings = self._embed(data.sentences, wanted, progress)
        self.parts = [Embeddings(self.embeddings.rows, part.vectors) for part in self._kept]

    def _embed(self, sentences: Sequence[str], wanted: list[str], progress: Progress | None) -> Embeddings:
        """Encode once, watched; once more and unwatched where that turns out to be impossible."""
        try:
            self.observers = {name: _OBSERVERS[name](self.towers) for name in wanted}
            with traced(self.towers if wanted else (), list(self.observers.values())) as rows:
                embeddings = embed(self._whole, sentences, progress=progress)
            if any(not count or count % len(sentences) for count in rows):
                raise UntraceableError(f"its transformers saw {rows} of {len(sentences)} sentences")
            return embeddings
        except UntraceableError as error:
            self.untraceable, self.observers = str(error), {}
            return embed(self._whole, sentences, progress=progress)

    def probes(self) -> dict[str, Callable[[], dict[str, Any]]]:
        """What computes each probe."""
        return {
            "alignment": self._alignment,
            "uniformity": self._uniformity,
            "cls_energy": self._cls_energy,
            "attention_sink": self._attention_sink,
            "density": lambda: _density(self.embeddings.cosine(*self.data.sides), self.data, self.options),
            "modulus": lambda: self._observer("modulus", Modulus).result(),
            "isotropy": lambda: isotropy(self.embeddings.vectors),
            "cost": self._cost,
        }

    def _alignment(self) -> dict[str, Any]:
        strict = self.options.strict
        first, second = positive_pairs(self.data.tasks, strict=strict)

        def of(found: Embeddings) -> float:
            rows = [[found.rows[sentence] for sentence in side] for side in (first, second)]
            return alignment(found.vectors[rows[0]], found.vectors[rows[1]])

        gold = f"{'above' if strict else 'at least'} {GOLD:g}"
        convention = (
            f"mean squared distance (alpha 2) of the {len(first):,} pairs of gold score {gold}, {_UNIT}"
        )
        return {
            "value": of(self.embeddings),
            "towers": [of(part) for part in self.parts],
            "pairs": len(first),
            "gold": gold,
            "convention": convention,
        }

    def _uniformity(self) -> dict[str, Any]:
        n = len(self.embeddings.vectors)
        pairs = n * (n - 1) // 2
        return {
            "value": uniformity(self.embeddings.vectors),
            "towers": [uniformity(part.vectors) for part in self.parts],
            "pairs": pairs,
            "convention": f"log mean exp(-2 d^2) (t 2), {pairs:,} pairs of {n:,} distinct sentences, {_UNIT}",
        }

    def _cls_energy(self) -> dict[str, Any]:
        pooling = "+".join(dict.fromkeys(tower.pooling for tower in self.towers))
        return {**self._observer("cls_energy", ClsEnergy).result(), "pooling": pooling}

    def _attention_sink(self) -> dict[str, Any]:
        observer = self._observer("attention_sink", AttentionMass)
        found = observer.result(per_head=self.options.per_head)
        if self.options.sentence is not None:
            found["maps"] = attention_maps(self.encoder, self.options.sentence)
        return found

    def _cost(self) -> dict[str, Any]:
        if not self.towers:
            raise UntraceableError(self.untraceable)
        return cost(self.towers)

    def _observer(self, name: str, kind: type[T]) -> T:
        """Return what watched the pass.

        Raises:
            UntraceableError: the pass could not be watched.
        """
        observer = self.observers.get(name)
        if not isinstance(observer, kind):
            raise UntraceableError(self.untraceable)
        return observer


class _Kept:
    """An encoder that keeps its latest vectors: a part of a sum."""

    def __init__(self, encoder: Encoder) -> None:
        self.dim, self.facts, self._encoder = encoder.dim, encoder.facts, encoder
        self.vectors: FloatArray

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        self.vectors = self._encoder.encode(sentences, batch_tokens, progress)
        return self.vectors


_OBSERVERS: dict[str, Callable[[Sequence[Tower]], Observer]] = {
    "cls_energy": lambda watched: ClsEnergy(len(watched)),
    "attention_sink": AttentionMass,
    "modulus": lambda watched: Modulus(len(watched)),
}


def _attempt(probe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a probe finds, or why it can't; bad input stays an error."""
    try:
        return probe()
    except InputError:
        raise
    except BenchError as error:
        return {"missing": str(error)}


def _density(similarities: NDArray[np.floating], data: ProbeData, options: ProbeOptions) -> dict[str, Any]:
    return density(similarities.astype(np.float64), np.asarray(data.gold, dtype=np.float64), options.groups)


def _sample(sentences: Sequence[str]) -> Sequence[str]:
    """Every k-th sentence: a tenth of them, but 32 at least and 512 at most."""
    wanted = min(max(len(sentences) // 10, 32), 512)
    return sentences[:: max(1, len(sentences) // wanted)][:wanted]
