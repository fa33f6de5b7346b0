"""Sentences, corpora and stages of tiny trainings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.data.toy_suite import make_toy_task
from bench.encoder import Encoder, PairScorer
from bench.eval.sts import dev_spearman
from bench.method_card import BuildContext, OptionValue
from bench.plan.plan import Plan, make_plan
from bench.registry import discover
from bench.stages import StageContext, StageSpec, TrainedMethod
from tests.support.cli import records

SHORT: dict[str, OptionValue] = {"steps": 4, "eval_every": 2, "batch_size": 24, "max_length": 20, "lr": 1e-3}

SENTENCES = [
    "The doctor is reading a book.",
    "a",
    "Two children are singing a song on the hill.",
    "the farmer",
]

PLUGIN = """
from bench.baselines.word_overlap import WordOverlap
from bench.registry import add_method
from dataclasses import replace


@add_method
class Mine(WordOverlap):
    card = replace(WordOverlap.card, name="mine")
"""


def by_loops(anchors: Tensor, positives: Tensor, tau: float) -> float:
    """The formula as it is printed."""
    total = 0.0
    for i in range(len(anchors)):
        row = [
            float(anchors[i] @ positives[j] / (anchors[i].norm() * positives[j].norm())) / tau
            for j in range(len(positives))
        ]
        total -= row[i] - math.log(sum(math.exp(value) for value in row))
    return total / len(anchors)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@cache
def toy_sentences() -> tuple[str, ...]:
    return tuple(sorted({sentence for pair in make_toy_task().all_pairs() for sentence in pair})[:60])


def toy_score(encoder: Encoder, select: str = "cosine") -> float:
    return dev_spearman(encoder, make_toy_task(), select)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(toy_sentences()) + "\n")
    return path


def options_of(name: str, **changes: OptionValue) -> dict[str, OptionValue]:
    """Every option of a card with its default."""
    card = discover().get(name).card
    return {option.name: option.default for option in card.options} | changes


def stages_of(name: str, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
    method = discover().get(name)
    assert isinstance(method, TrainedMethod)
    return method.stages(options)


def stage_context(stage: StageSpec, model: Path, out: Path, **changes: Any) -> StageContext:
    """All that a stage gets, in seed 1: the toy suite is training text and dev set."""
    values = {
        "config": dict(stage.config),
        "seed": 1,
        "role": stage.role,
        "model": model,
        "device": "cpu",
        "sentences": toy_sentences(),
        "corpus": "c",
        "dev_score": toy_score,
        "inputs": {},
        "out": out,
    }
    return StageContext(**{**values, **changes})


@dataclass(frozen=True)
class Trained:
    """What a method's first stage left."""

    name: str
    role: str
    options: dict[str, OptionValue]
    facts: dict[str, Any]
    folder: Path

    @property
    def losses(self) -> list[float]:
        found: list[float] = json.loads((self.folder / "losses.json").read_text())
        return found

    def encoder(self, **changes: OptionValue) -> Encoder | PairScorer:
        """Build the method on the stage's folder; ``changes`` are options that training doesn't read."""
        context = BuildContext(self.options | changes, 1, None, "cpu", {self.role: self.folder})
        return discover().get(self.name).build(context)

    def score(self, **changes: OptionValue) -> float:
        """Spearman of the built encoder on the toy suite."""
        encoder = self.encoder(**changes)
        assert isinstance(encoder, Encoder)
        return toy_score(encoder)

    def kept(self) -> dict[str, Tensor]:
        """Weights of the selected checkpoint."""
        from safetensors.torch import load_file

        return load_file(self.folder / "selected" / "model.safetensors")


def train_alone(
    name: str, backbone: Path, out: Path, given: Mapping[str, Any] | None = None, /, **changes: OptionValue
) -> Trained:
    """Run a method's first stage, without plan, cache or record."""
    options = options_of(name, **(SHORT | changes))
    stage = stages_of(name, options)[0]
    folder = out / f"{name}-{len(list(out.glob(name + '-*')))}"
    folder.mkdir()
    facts = stage.train(stage_context(stage, backbone, folder, **(given or {})))
    return Trained(name, stage.role, options, facts, folder)


def plan_on_toy(methods: str, folder: Path, **changes: Any) -> Plan:
    """The plan of methods on the toy suite, in seed 1 and profile mini."""
    spec = RunSpec(parse_methods(methods), (1,), "mini", suites=("toy",), results=folder / "results")
    return make_plan(replace(spec, **changes))


def arguments(tiny_bert: Path, corpus: Path, *extra: str) -> tuple[str, ...]:
    return (
        "run", "--methods", "simcse", "--seeds", "1-2", "--suite", "toy", "--backbone", str(tiny_bert),
        "--corpus", str(corpus), "--dev", "toy", "--set", "simcse.steps=5", "--set", "simcse.eval_every=2",
        "--set", "simcse.batch_size=8", "--set", "simcse.lr=1e-3", *extra,
    )  # fmt: skip


def the_record(tmp_path: Path, seed: int, campaign: str = "local") -> Any:
    return next(r for r in records(tmp_path, campaign).values() if r.seed == seed)


def stage_folders(tmp_path: Path) -> dict[str, int]:
    return {
        path.name: (path / "MANIFEST.json").stat().st_mtime_ns
        for path in (tmp_path / "results" / ".stages").iterdir()
        if path.is_dir()
    }
