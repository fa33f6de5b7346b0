"""What a probe is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.encoder import Encoder, FloatArray
    from bench.eval.embeddings import Embeddings
    from bench.nn.observer import ObservedTower, Observer
    from bench.probes.probe_data import ProbeData

T = TypeVar("T", bound="Observer")
VECTORS, TOWERS = "Vectors", "Attention and cost"
"""Titles of the two tables of probes."""
Need = Literal["similarities", "vectors", "towers", "trace"]


@dataclass(frozen=True)
class ProbeColumn:
    """A column of a table of probes.

    Args:
        heading: What is printed above it.
        path: Where the probe's facts have the number: keys of dicts and positions in lists.
        form: How it is printed, a format such as ".3f".
        scale: What it is multiplied by first.
        timing: It is one of the numbers taken by the clock (:attr:`Probe.clock`), not one of the facts.
    """

    heading: str
    path: tuple[str | int, ...] = ("value",)
    form: str = ".3f"
    scale: float = 1.0
    timing: bool = False


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
class ProbeInputs:
    """What one pass of an encoder over the sentences gives to the probes.

    Args:
        data: The sentences.
        options: How to measure.
        missing: Why this encoder lacks one of the things that a probe may need.
        similarities: Computes one similarity a pair, (pairs,), in the order of the gold scores.
        encoder: The encoder; None for a scorer of pairs.
        embeddings: Vectors of the distinct sentences.
        parts: The same of each part of a sum of encoders; empty for another encoder.
        towers: The encoder's transformers.
        observers: Those that watched the pass, see :attr:`Probe.observer`.
    """

    data: ProbeData
    options: ProbeOptions
    missing: dict[Need, str]
    similarities: Callable[[], NDArray[Any]]
    encoder: Encoder | None
    embeddings: Embeddings
    parts: Sequence[Embeddings] = ()
    towers: Sequence[ObservedTower] = ()
    observers: Sequence[Observer] = ()

    @property
    def vectors(self) -> FloatArray:
        """Vectors of the distinct sentences, float32 (n, dim)."""
        return self.embeddings.vectors

    def observed(self, kind: type[T]) -> T:
        """Return the observer of a class; it watched the pass."""
        return next(one for one in self.observers if isinstance(one, kind))


@dataclass(frozen=True)
class Probe:
    """A probe: what it is called, what it needs, how it is measured, and how tables show it.

    Its module imports torch and scipy inside functions alone, since lists and reports read probes too.

    Args:
        name: Its name, that of its file.
        summary: What it measures, in one line.
        needs: What the encoder must have. "similarities": all have them; "vectors": all but scorers of pairs;
            "towers": encoders with a transformer; "trace": those whose transformer can be watched.
        measure: Inputs -> facts, as a record holds them; raises BenchError where there is no answer.
        table: Title of the table that shows it.
        columns: Its columns there.
        drawn: Names of facts that are only drawn: they stay out of records.
        observer: Makes what watches the towers during the pass, for a probe that needs a "trace".
        clock: Inputs -> what it measures by the clock, for the timing block of a record.
        packages: Modules that it alone imports, each with what pip calls it: without them there is no such
            probe, and all others.
    """

    name: str
    summary: str
    needs: Need
    measure: Callable[[ProbeInputs], dict[str, Any]]
    table: str
    columns: tuple[ProbeColumn, ...]
    drawn: tuple[str, ...] = ()
    observer: Callable[[Sequence[ObservedTower]], Observer] | None = None
    clock: Callable[[ProbeInputs], dict[str, Any]] | None = None
    packages: tuple[tuple[str, str], ...] = ()
