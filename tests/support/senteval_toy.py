"""Made-up data of every task in SentEval's layout, and a batcher for it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import senteval_compat as senteval
from bench.encoder import FloatArray
from tests.support.transfer_data import sentence, write_similarity, write_transfer

FULL = {"nhid": 0, "optim": "adam", "batch_size": 64, "tenacity": 5, "epoch_size": 4}


class Hashed:
    """An encoder and a batcher with the same vectors."""

    dim = 6
    facts: dict[str, str | int] = {}  # noqa: RUF012

    def encode(self, sentences: Any, *_: object) -> FloatArray:
        rows = [list(hashlib.sha256(text.encode()).digest()[: self.dim]) for text in sentences]
        return (np.array(rows) / 100 - 1).astype(np.float32)

    def __call__(self, params: Any, batch: list[list[str]]) -> FloatArray:
        assert all(isinstance(word, str) for words in batch for word in words)
        return self.encode([" ".join(words) for words in batch])


@pytest.fixture(scope="session")
def task_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("senteval")
    write_similarity(root / "downstream")
    write_transfer(root / "downstream")
    rng = np.random.default_rng(1)
    rows = [
        f"{part}\t{label}\t{sentence(rng, i)}"
        for part in ("tr", "va", "te")
        for i in range(6)
        for label in "ab"
    ]
    (root / "probing").mkdir()
    (root / "probing" / "past_present.txt").write_text("\n".join(rows))
    return root


def engine(folder: Path, **params: Any) -> Any:
    given = {"task_path": str(folder), "usepytorch": True, "kfold": 3, "classifier": FULL, **params}
    return senteval.engine.SE(given, Hashed(), lambda params, samples: None)
