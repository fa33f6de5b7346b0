"""Sentences, corpora and stages of tiny trainings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.data.toy import toy_task
from tests.support.cli import records

SENTENCES = [
    "The doctor is reading a book.",
    "a",
    "Two children are singing a song on the hill.",
    "the farmer",
]


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


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    sentences = sorted({sentence for pair in toy_task().all_pairs() for sentence in pair})
    path.write_text("\n".join(sentences[:60]) + "\n")
    return path


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
