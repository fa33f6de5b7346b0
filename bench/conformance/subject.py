"""A method under test: planned as by ``bench run``, with the smallest budget."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rich.style  # noqa: F401 - draws from random when it is first imported, which is not a method's doing
from numpy.typing import NDArray

from bench.config.method_ids import parse_method
from bench.config.run_spec import MethodRequest, Override, RunSpec
from bench.conformance.random_decoder import make_decoder
from bench.data.training_data import TrainingData
from bench.encoder import Encoder, FloatArray, PairScorer
from bench.errors import InputError
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.stage_cache import StageCache
from bench.method_card import Method, MethodCard, Option
from bench.plan.cell import Cell
from bench.plan.plan import Plan, make_plan
from bench.registry import METHODS, discover

if TYPE_CHECKING:
    from bench.conformance.training_trial import TrialBuilder

SEEDS = (1, 2)
BUDGET = {"steps": 2, "epochs": 1, "batch_size": 8, "eval_every": 2}
"""Values of options of these names, if their minimum allows. A warm-up's first step has rate 0."""
STEPS = 24
"""Steps of the trial training: three times over its text."""
_SENTENCES, _DEV_PAIRS = 64, 8
_ANCHOR = "A man is playing a guitar."


class Subject:
    """One method, as named in ``--methods``, in profile mini; raises InputError for an unknown one."""

    def __init__(self, text: str, folder: Path) -> None:
        known = text in discover().names()  # a check finds names that --methods can't express
        self.request = MethodRequest(text, text) if known else parse_method(text, "")
        self.text, self.folder = text, folder
        self.method: Method = discover().get(self.request.name)
        given = self.request.argument is not None or self.card.short_option in dict(self.request.options)
        if not given and self.card.takes_methods and not self.card.stands_alone:
            what = f"'{self.card.name}' needs what it is made of"
            raise InputError(what, expected=f"{self.card.name}:METHODS")
        self.touched: tuple[str, ...] = ()
        """Global random generators whose state the first build changes."""
        self._built: dict[tuple[int, str], Encoder | PairScorer] = {}

    @property
    def card(self) -> MethodCard:
        """Return the method's card."""
        return self.method.card

    def plan(self, copy: str = "a", steps: int = BUDGET["steps"]) -> Plan:
        """Plan its cells on suite toy: its own stages take ``steps``, its members' the smallest budget."""
        spec = RunSpec((self.request,), SEEDS, "mini", ("toy",), results=self.folder / copy)
        if self.card.needs_decoder and self.card.needs_backbone:
            spec = replace(spec, backbone=str(make_decoder(self.folder / "decoder")))
        cell = make_plan(spec).jobs[0].cell
        names = sorted({self.card.name, *cell.member_names})
        options = [(name, option) for name in names for option in METHODS.get(name).card.options]
        own = BUDGET | {"steps": steps, "eval_every": steps}
        overrides = [*_budget_overrides(options, {self.card.name: own})]
        return make_plan(replace(spec, overrides=tuple(overrides)))

    @cached_property
    def planned(self) -> Plan:
        """Return the plan of its encoders."""
        return self.plan()

    @cached_property
    def trial(self) -> TrialBuilder:
        """Return the builder of the trial training: of its own stages, watched, with more steps."""
        from bench.conformance.training_trial import TrialBuilder

        cell = self.plan(steps=STEPS).jobs[0].cell
        cache = StageCache(Path(tempfile.mkdtemp(prefix="trial-", dir=self.folder)) / ".stages")
        return TrialBuilder(cell, truncate_texts(self.planned.training), cache, self.cache())

    def cell(self, seed: int = SEEDS[0]) -> Cell:
        """Return the cell of a seed, or the only one of a deterministic method."""
        cells = {job.cell.seed: job.cell for job in self.planned.jobs}
        return cells.get(seed) or cells[None]

    @property
    def seeded(self) -> bool:
        """Return whether the method has seeds."""
        return self.cell().seed is not None

    def build(self, seed: int = SEEDS[0], copy: str = "a") -> Encoder | PairScorer:
        """Return an encoder, built once for each seed and copy.

        Other copies have their own stages and start from other global random states.
        """
        if (seed, copy) not in self._built:
            cell = self.cell(seed)
            if cell.model is not None:
                import torch  # noqa: F401 - its generator is watched
            with preserve_random_states():
                if copy != "a":
                    reseed_generators()
                before = read_random_states()
                training = truncate_texts(self.planned.training)
                built = EncoderBuilder(cell, "cpu", training, self.cache(copy)).encoder()
                if not self._built:
                    self.touched = compare_random_states(before, read_random_states())
            self._built[seed, copy] = built
        return self._built[seed, copy]

    def cache(self, copy: str = "a") -> StageCache:
        """Return the finished stages of a copy."""
        return StageCache(self.folder / copy / ".stages")

    def output(
        self, sentences: Sequence[str], tokens: int | None = None, *, seed: int = SEEDS[0], copy: str = "a"
    ) -> FloatArray:
        """Return the vectors of sentences, or their pair scores with a fixed sentence."""
        encoder = self.build(seed, copy)
        if isinstance(encoder, Encoder):
            return encoder.encode(sentences, tokens, None)
        return encoder.score_pairs(sentences, [_ANCHOR] * len(sentences))

    def encode(self, sentences: Sequence[str], *given: int, **which: Any) -> NDArray[np.float64]:
        """Return the output for a list of the sentences as a new float64 array."""
        return np.array(self.output(list(sentences), *given, **which), dtype=np.float64)


def truncate_texts(training: TrainingData | None) -> TrainingData | None:
    """Return the first lines of every training text and the first pairs of the dev set."""
    if training is None:
        return None

    def truncate(value: Any, fields: tuple[str, ...], length: int) -> Any:
        return replace(value, **{name: getattr(value, name)[:length] for name in fields})

    columns, sides = ("sentences", "partners", "negatives"), ("first", "second", "gold")
    texts = {name: truncate(text, columns, _SENTENCES) for name, text in training.texts.items()}
    subsets = tuple(truncate(part, sides, _DEV_PAIRS) for part in training.dev.subsets)
    return replace(training, texts=texts, dev=replace(training.dev, subsets=subsets))


def _budget_overrides(
    options: Sequence[tuple[str, Option]], budgets: Mapping[str, Mapping[str, int]]
) -> Iterator[Override]:
    for method, option in options:
        budget = budgets.get(method, BUDGET)
        stage, _, name = option.name.rpartition(".")
        if name in budget and type(option.default) is int:
            value = str(max(budget[name], int(option.minimum or 0)))
            text = f"{method}.{option.name}={value}"
            yield Override(text, method, stage or None, name, value, forced=True)


def _list_generators() -> list[tuple[str, Any, Any, Any]]:
    """Return name, getter, setter and seeding of each global random generator; torch's if it is loaded."""
    generators: list[tuple[str, Any, Any, Any]] = [
        ("random", random.getstate, random.setstate, random.seed),
        ("numpy.random", np.random.get_state, np.random.set_state, np.random.seed),
    ]
    if torch := sys.modules.get("torch"):
        generators.append(("torch", torch.get_rng_state, torch.set_rng_state, torch.manual_seed))
    return generators


def read_random_states() -> dict[str, Any]:
    """Return the states of the global random generators."""
    return {name: get() for name, get, _, _ in _list_generators()}


def compare_random_states(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the generators whose state changed."""
    return tuple(name for name in before if not _states_equal(before[name], after[name]))


def _states_equal(first: Any, second: Any) -> bool:
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(_states_equal, first, second))
    return bool(np.array_equal(first, second))


@contextmanager
def preserve_random_states() -> Iterator[None]:
    """Restore the global random generators after a block."""
    states = read_random_states()
    try:
        yield
    finally:
        for name, _, put, _ in _list_generators():
            if name in states:
                put(states[name])


def reseed_generators() -> None:
    """Give every global generator a fixed unusual state."""
    for *_, seed in _list_generators():
        seed(20_251_101)
