"""The interface of a probe, its inputs and the probed sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from bench.data.suites import is_reference
from bench.data.tasks import PairTask

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.encoder import Encoder, FloatArray
    from bench.eval.embeddings import Embeddings
    from bench.nn.observer import ObservedTower, Observer

T = TypeVar("T", bound="Observer")
VECTORS, TOWERS = "Vectors", "Attention and cost"
"""Titles of the two tables of probes."""
VERSION = 1  # raised when the numbers of a probe change
Need = Literal["similarities", "vectors", "towers", "trace"]


@dataclass(frozen=True)
class ProbeColumn:
    """A column of a table of probes."""

    heading: str
    path: tuple[str | int, ...] = ("value",)  # keys and positions of the number in the facts
    form: str = ".3f"  # format, such as ".3f"
    scale: float = 1.0  # factor of the number
    timing: bool = False  # True for a number of :attr:`Probe.clock`, False for a fact


@dataclass(frozen=True)
class ProbeOptions:
    """How to measure."""

    strict: bool = False  # alignment over pairs of a gold score above 4, not at least 4
    groups: str = "width"  # gold groups of the density, see :func:`bench.probes.density.gold_groups`
    per_head: bool = False  # attention mass by head too
    sentence: str | None = None  # sentence of the attention maps; None for no maps


@dataclass(frozen=True)
class ProbeData:
    """The pairs of a suite's tasks, taken together, and their sentences."""

    suite: str
    tasks: tuple[PairTask, ...]

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The distinct sentences, in order of first appearance."""
        pairs = (pair for task in self.tasks for pair in task.all_pairs())
        return tuple(dict.fromkeys(sentence for pair in pairs for sentence in pair))

    @cached_property
    def sides(self) -> tuple[list[str], list[str]]:
        """First and second sentences of all pairs."""
        pairs = [pair for task in self.tasks for pair in task.all_pairs()]
        return [first for first, _ in pairs], [second for _, second in pairs]

    @cached_property
    def gold(self) -> list[float]:
        """Gold scores of all pairs."""
        return [score for task in self.tasks for subset in task.subsets for score in subset.gold]

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Facts of records; they leave out the sentences."""
        tasks = {
            task.id: {"pairs": task.pairs, "sha256": task.sha256, "reference": is_reference(task)}
            for task in self.tasks
        }
        return {"suite": self.suite, "tasks": tasks, "sentences": len(self.sentences)}


@dataclass(frozen=True)
class ProbeInputs:
    """Inputs of the probes from one pass of an encoder over the sentences."""

    data: ProbeData
    options: ProbeOptions  # how to measure
    missing: dict[Need, str]  # the reason why this encoder lacks one of the needs
    similarities: Callable[[], NDArray[Any]]  # (pairs,), in the order of the gold scores
    encoder: Encoder | None  # the encoder; None for a scorer of pairs
    embeddings: Embeddings  # vectors of the distinct sentences
    parts: Sequence[Embeddings] = ()  # the same of each part of a sum of encoders; empty for another encoder
    towers: Sequence[ObservedTower] = ()  # the encoder's transformers
    observers: Sequence[Observer] = ()  # the observers of the pass, see :attr:`Probe.observer`

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

    Its module imports torch and scipy inside functions only, since lists and reports read probes too. The
    needs: "similarities", all encoders have them; "vectors", all but scorers of pairs; "towers", encoders
    with a transformer; "trace", those whose transformer can be watched.
    """

    name: str  # that of its file
    summary: str  # its measurement in one line
    needs: Need
    measure: Callable[[ProbeInputs], dict[str, Any]]  # facts of a record, or BenchError
    table: str  # title of its table
    columns: tuple[ProbeColumn, ...]
    drawn: tuple[str, ...] = ()  # facts for figures, which records leave out
    # makes the observer of the towers during the pass, for a probe that needs a "trace"
    observer: Callable[[Sequence[ObservedTower]], Observer] | None = None
    clock: Callable[[ProbeInputs], dict[str, Any]] | None = None  # measurements of time, for the timing block
    # modules of this probe only, each with pip's name; without them the other probes still work
    packages: tuple[tuple[str, str], ...] = ()
