"""A method under test: planned as by ``bench run``, trained with the smallest budget, built when asked."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import rich.style  # noqa: F401 - draws from random when it is first imported, which is not a method's doing
from numpy.typing import NDArray

from bench.card import Method, MethodCard, Option
from bench.data.training import TrainingData
from bench.encoder import Encoder, FloatArray, PairScorer
from bench.errors import InputError
from bench.plan.cell import Cell
from bench.plan.plan import Plan, make_plan
from bench.registry import METHODS, discover
from bench.request.parse import parse_methods
from bench.request.spec import MethodRequest, Override, RunSpec
from bench.run.builder import Builder
from bench.run.stage_cache import StageCache

SEEDS = (1, 2)
BUDGET = {"steps": 2, "epochs": 1, "batch_size": 8, "eval_every": 2}
"""What whole-number options of these names are set to, a stage's too, or to their minimum where that is more.

Not one step: with a warm-up the first has rate 0.
"""
_SENTENCES, _DEV_PAIRS = 64, 24
_ANCHOR = "A man is playing a guitar."


class Subject:
    """One method, as named in ``--methods``, in profile mini.

    Args:
        text: The method.
        folder: For its training stages and records. Methods that share a folder share stages.

    Raises:
        InputError: no such method or option, or one that needs a model or other methods after a colon.
    """

    def __init__(self, text: str, folder: Path) -> None:
        known = text in discover().names()  # a name that nobody can ask for is found by a check
        requests = (MethodRequest(text, text),) if known else parse_methods(text)
        if len(requests) != 1:
            raise InputError(f"'{text}' names {len(requests)} methods", expected="one method")
        (self.request,) = requests
        self.text, self.folder = text, folder
        self.method: Method = discover().get(self.request.name)
        if self.card.takes_methods and self.request.argument is None:
            raise InputError(
                f"'{self.card.name}' needs what it is made of", expected=f"{self.card.name}:METHODS"
            )
        self.touched: dict[tuple[int, str], tuple[str, ...]] = {}
        self._built: dict[tuple[int, str], Encoder | PairScorer | Exception] = {}

    @property
    def card(self) -> MethodCard:
        """The method's card."""
        return self.method.card

    def plan(self, copy: str = "a") -> Plan:
        """Plan its cells on suite toy, with its own and its members' options at the smallest budget."""
        spec = RunSpec((self.request,), SEEDS, "mini", ("toy",), results=self.folder / copy)
        cell = make_plan(spec).jobs[0].cell
        names = sorted({self.card.name, *cell.member_names})
        options = [(name, option) for name in names for option in METHODS.get(name).card.options]
        return make_plan(replace(spec, overrides=tuple(_overrides(options))))

    @cached_property
    def planned(self) -> Plan:
        """The plan that its encoders come from."""
        return self.plan()

    def cell(self, seed: int) -> Cell:
        """The cell of a seed, or the only one of a method without seeds."""
        cells = {job.cell.seed: job.cell for job in self.planned.jobs}
        return cells.get(seed) or cells[None]

    @property
    def seeded(self) -> bool:
        """True if a seed enters."""
        return self.cell(SEEDS[0]).seed is not None

    def build(self, seed: int, copy: str = "a") -> Encoder | PairScorer:
        """Return an encoder; it is trained and built once for each seed and copy.

        Other copies share nothing with the first and start from other states of the global random generators.
        """
        key = (seed, copy)
        if key not in self._built:
            try:
                self._built[key] = self._build(seed, copy)
            except Exception as error:  # any error of the plug-in's is a finding
                self._built[key] = error
        found = self._built[key]
        if isinstance(found, Exception):
            raise found
        return found

    def builder(self, seed: int, copy: str = "a") -> Builder:
        """What builds a seed's encoders from a short text."""
        return Builder(self.cell(seed), "cpu", short_texts(self.planned.training), self.cache(copy))

    def cache(self, copy: str = "a") -> StageCache:
        """The finished stages of a copy."""
        return StageCache(self.folder / copy / ".stages")

    def _build(self, seed: int, copy: str) -> Encoder | PairScorer:
        if self.cell(seed).model is not None:
            import torch  # noqa: F401 - its generator is watched
        with kept_random_state():
            if copy != "a":
                stir_random_state()
            before = random_state()
            encoder = self.builder(seed, copy).encoder()
            self.touched[seed, copy] = changed(before, random_state())
        return encoder

    def encode(
        self, sentences: Sequence[str], seed: int, batch_tokens: int | None = None, *, copy: str = "a"
    ) -> FloatArray:
        """What the encoder of a seed and copy gives for a list of sentences, see :meth:`outputs`."""
        return self.outputs(self.build(seed, copy), list(sentences), batch_tokens)

    def outputs(
        self, encoder: Encoder | PairScorer, sentences: Sequence[str], batch_tokens: int | None = None
    ) -> FloatArray:
        """Vectors of sentences, or the scores of their pairs with a fixed one."""
        if isinstance(encoder, Encoder):
            return encoder.encode(sentences, batch_tokens, None)
        return encoder.score_pairs(sentences, [_ANCHOR] * len(sentences))


def short_texts(training: TrainingData | None) -> TrainingData | None:
    """The first lines of every training text, the first pairs of the dev set."""
    if training is None:
        return None
    texts = {
        name: replace(text, sentences=text.sentences[:_SENTENCES]) for name, text in training.texts.items()
    }
    subsets = tuple(
        replace(part, **{side: getattr(part, side)[:_DEV_PAIRS] for side in ("first", "second", "gold")})
        for part in training.dev.subsets
    )
    return replace(training, texts=texts, dev=replace(training.dev, subsets=subsets))


def _overrides(options: Sequence[tuple[str, Option]]) -> Iterator[Override]:
    for method, option in options:
        stage, _, name = option.name.rpartition(".")
        if name in BUDGET and type(option.default) is int:
            value = str(max(BUDGET[name], int(option.minimum or 0)))
            yield Override(f"{method}.{option.name}={value}", method, stage or None, name, value)


def random_state() -> dict[str, Any]:
    """States of the global random generators: random's, numpy's, and torch's where it is loaded."""
    states: dict[str, Any] = {"random": random.getstate(), "numpy.random": np.random.get_state()}  # noqa: NPY002
    if torch := sys.modules.get("torch"):
        states["torch"] = torch.random.get_rng_state()
    return states


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the generators whose state is another one."""
    return tuple(name for name in before if not _equal(before[name], after[name]))


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(_equal, first, second))
    return bool(np.array_equal(first, second))


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Put the global random generators back after a block."""
    states = random_state()
    try:
        yield
    finally:
        random.setstate(states["random"])
        np.random.set_state(states["numpy.random"])  # noqa: NPY002
        if "torch" in states:
            sys.modules["torch"].random.set_rng_state(states["torch"])


def stir_random_state() -> None:
    """Give every global generator a state that no method would: one that notices is found."""
    random.seed(20_251_101)
    np.random.seed(20_251_101)  # noqa: NPY002
    if torch := sys.modules.get("torch"):
        torch.manual_seed(20_251_101)


def as_array(output: object) -> NDArray[np.float64]:
    """A copy of any output as float64, for comparisons that are not about its type."""
    return np.array(output, dtype=np.float64)


def largest_difference(first: object, second: object) -> float:
    """Largest difference as a share of the largest value; NaN equals NaN; inf for outputs of other shapes."""
    a, b = as_array(first), as_array(second)
    if a.shape != b.shape:
        return float("inf")
    if not a.size:
        return 0.0
    with np.errstate(invalid="ignore"):  # inf - inf, which is equal
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    scale = max(float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0)), 1e-8)
    worst = float(np.max(difference)) / scale
    return worst if worst == worst else float("inf")
