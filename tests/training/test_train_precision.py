"""Training in bfloat16: the transformers alone, every objective, what records say of it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bench.training.batch_encoding import cls_states
from bench.training.mixed_precision import (
    MasterWeights,
    autocast_towers,
    to_float32,
    train_at_precision,
    use_full_float32,
)
from tests.support.cli import Cli, records
from tests.support.messages import missing_facts
from tests.support.rank_work import Gradients, Stop
from tests.support.ranks import CASES, arguments
from tests.training.conftest import check_one_difference

LEAST = {"bf16": 0.7, "bf16-weights": 0.6}
"""Cosine between a step's gradient and float32's; with bfloat16 weights sums over layers are rounded too."""
Step = tuple[Tensor, dict[str, Tensor]]


def first_step(found: list[Step], objective: Any, encoder: Any, rows: Any, settings: Any, **_: Any) -> None:
    """In the place of :func:`bench.training.loop.train`."""
    objective.train()
    with MasterWeights(encoder).lowered():
        loss = objective([rows[index] for index in range(settings.batch_size)])
        loss.backward()
    found.append((loss, {n: p.grad for n, p in objective.named_parameters() if p.grad is not None}))
    raise Stop


@pytest.mark.long
@pytest.mark.parametrize("lower", LEAST)
@pytest.mark.parametrize("name", CASES)
def test_every_objective_is_near_its_float32_one(
    name: str, lower: str, tiny_bert: Path, tiny_mlm: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_bert, tmp_path / "sub" / "selected")
    found: list[Step] = []
    for precision in ("fp32", lower):
        work = Gradients(CASES, tiny_bert, tiny_mlm, tmp_path / "sub")
        with train_at_precision(precision):
            work.of(*CASES[name], tmp_path / precision, partial(first_step, found))
    (full, gradients), (low, rounded) = found
    assert low.dtype == full.dtype != torch.bfloat16
    assert {gradient.dtype for gradient in rounded.values()} == {torch.float32}
    # bfloat16 has 8 bits, and a random BERT's vectors differ little from each other
    losses = [float(loss.detach()) for loss in (full, low)]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.1, abs=0.1)
    assert rounded.keys() == gradients.keys()
    one, two = (torch.cat([g[n].flatten() for n in gradients]) for g in (gradients, rounded))
    assert float(torch.cosine_similarity(one, two, dim=0)) > LEAST[lower]


class Model(nn.Module):
    """A transformer that is one product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.device = torch.device("cpu")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        states = self.linear(torch.stack([input_ids, attention_mask], -1).float())
        return type("Output", (), {"last_hidden_state": states})


def test_what_is_lowered_is_widened_again() -> None:
    model, rows, ones = Model(), [[3, 5], [7]], torch.ones(1, 2)
    plain = cls_states(model, rows, 0)
    with train_at_precision("bf16"):
        rounded = cls_states(model, rows, 0)
        with autocast_towers("cpu"):
            assert model.linear(ones).dtype == torch.bfloat16
        assert model.linear(ones).dtype == torch.float32
    assert plain.dtype == rounded.dtype == torch.float32
    assert torch.equal(rounded, rounded.bfloat16().float())
    torch.testing.assert_close(rounded, plain, rtol=0.02, atol=0.02)
    assert not torch.equal(rounded, plain)
    with autocast_towers("cpu"):
        assert model.linear(ones).dtype == torch.float32
    assert to_float32(ones.double()).dtype == torch.float64


def test_tf32_ends_with_the_training() -> None:
    precision = torch.get_float32_matmul_precision
    before, seen = precision(), []

    def fail() -> None:
        with train_at_precision("tf32"):
            seen.append(precision())
            with use_full_float32():  # a dev evaluation
                seen.append(precision())
            seen.append(precision())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == ["high", "highest", "high"]
    assert precision() == before != "high"


@pytest.mark.slow
def test_the_command_trains_in_bfloat16(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    base = arguments(tiny_bert, corpus)
    assert cli(*base)[0] == 0
    low = (*base, "--train-precision", "bf16")
    code, _, err = cli(*low, "--campaign", "low")
    assert code == 0, err
    (full,), (made,) = (list(records(tmp_path, name).values()) for name in ("local", "low"))
    check_one_difference(full, made, "training precision then fp32, now bf16")
    losses = [record.training["stages"]["simcse"]["last_loss"] for record in (full, made)]
    assert losses[1] == pytest.approx(losses[0], abs=0.05)
    assert losses[0] != losses[1]
    values = [[score.value for score in record.scores] for record in (full, made)]
    np.testing.assert_allclose(values[1], values[0], atol=0.05)
    code, _, err = cli(*low, "--dry-run")
    assert (code, "then fp32, now bf16" in err) == (1, True)
    (path,) = (tmp_path / "results" / "low").glob("*/*/*/*.json")
    code, out, err = cli("rerun", str(path), "--model", str(tiny_bert), "--corpus", str(corpus))
    assert code == 0, out + err


@pytest.mark.parametrize(
    ("command", "precision", "accepted"), [("run", "tf32", "fp32 or bf16"), ("gradient", "bf16", "fp32")]
)
def test_where_a_precision_has_no_place(
    command: str, precision: str, accepted: str, cli: Cli, tiny_bert: Path, corpus: Path
) -> None:
    where = ("--suite", "toy", "--dev", "toy", "--backbone", str(tiny_bert), "--corpus", str(corpus))
    what = ("gradient", "simcse", "--out", "g") if command == "gradient" else ("run", "--methods", "simcse")
    code, _, err = cli(*what, *where, "--set", "simcse.batch_size=8", "--train-precision", precision)
    assert code == 2
    assert not missing_facts(err, f"--train-precision {precision}", accepted)


def test_a_method_without_training_is_the_same_cell(cli: Cli, tmp_path: Path) -> None:
    run = ("run", "--methods", "noise,word_overlap", "--seeds", "1", "--suite", "toy")
    assert cli(*run)[0] == 0
    code, out, _ = cli(*run, "--train-precision", "bf16", "--dry-run")
    assert (code, "0 of 2 cells to run" in out) == (0, True)
