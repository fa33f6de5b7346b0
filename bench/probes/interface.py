"""The interface of a probe, and its inputs."""

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
        heading: Its heading.
        path: Place of the number in the probe's facts: keys of dicts and positions in lists.
        form: Format, such as ".3f".
        scale: Factor of the number.
        timing: True for a number of :attr:`Probe.clock`, False for a fact.
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
        sentence: Sentence of the attention maps; None for no maps.
    """

    strict: bool = False
    groups: str = "width"
    per_head: bool = False
    sentence: str | None = None


@dataclass(frozen=True)
class ProbeInputs:
    """Inputs of the probes from one pass of an encoder over the sentences.

    Args:
        data: The sentences.
        options: How to measure.
        missing: The reason why this encoder lacks one of the needs.
        similarities: Computes one similarity a pair, (pairs,), in the order of the gold scores.
        encoder: The encoder; None for a scorer of pairs.
        embeddings: Vectors of the distinct sentences.
        parts: The same of each part of a sum of encoders; empty for another encoder.
        towers: The encoder's transformers.
        observers: The observers of the pass, see :attr:`Probe.observer`.
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
        """Return the observer of a class after the pass."""
        return next(observer for observer in self.observers if isinstance(observer, kind))


@dataclass(frozen=True)
class Probe:
    """A probe: its name, its needs, its measurement and its place in tables.

    Its module imports torch and scipy inside functions only, since lists and reports read probes too.

    Args:
        name: Its name, that of its file.
        summary: Its measurement in one line.
        needs: "similarities": all encoders have them; "vectors": all but scorers of pairs; "towers": encoders
            with a transformer; "trace": those whose transformer can be watched.
        measure: Inputs -> facts of a record; raises BenchError if there is no answer.
        table: Title of its table.
        columns: Its columns there.
        drawn: Names of facts for figures, which records leave out.
        observer: Makes the observer of the towers during the pass, for a probe that needs a "trace".
        clock: Inputs -> measurements of time, for the timing block of a record.
        packages: Modules of this probe only, each with pip's name. Without them the other probes still work.
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
