"""Training in bfloat16 and TF32: towers, master weights, every objective, records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel

from bench.baselines.simcse import SimCSEObjective
from bench.errors import InputError
from bench.nn.backbone import load_backbone
from bench.training.batch_encoding import pooled_states
from bench.training.loop import TrainResult, TrainSettings, train
from bench.training.mixed_precision import LOWERED as LOW
from bench.training.mixed_precision import (
    MasterWeights,
    autocast_towers,
    to_float32,
    train_at_precision,
    use_full_float32,
)
from bench.training.momentum import MomentumCopy
from bench.training.two_phase_step import compile_steps
from tests.support.cli import Cli, records
from tests.support.rank_work import Gradients, Stop
from tests.support.ranks import CASES, arguments
from tests.training.conftest import check_one_difference, rerun_all

LEAST = {"bf16": 0.7, "bf16-weights": 0.6}
"""Cosine between a step's gradient and float32's; with bfloat16 weights sums over layers are rounded too."""
Step = tuple[Tensor, dict[str, Tensor]]


def first_step(found: list[Step], objective: Any, encoder: Any, rows: Any, settings: Any, **_: Any) -> None:
    objective.train()
    with MasterWeights(encoder).lowered():
        loss = objective([rows[index] for index in range(settings.batch_size)])
        loss.backward()
    found.append((loss, {n: p.grad for n, p in objective.named_parameters() if p.grad is not None}))
    raise Stop


@pytest.mark.long
@pytest.mark.parametrize("lower", LEAST)
@pytest.mark.parametrize("name", CASES)
def test_every_objective_is_near(
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
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.device = torch.device("cpu")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        states = self.linear(torch.stack([input_ids, attention_mask], -1).float())
        return SimpleNamespace(last_hidden_state=states)


def test_what_is_lowered_is_widened_again() -> None:
    model, rows, ones = Model(), [[3, 5], [7]], torch.ones(1, 2)
    plain = pooled_states(model, rows, 0)
    with train_at_precision("bf16"):
        rounded = pooled_states(model, rows, 0)
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
    rerun_all(cli, tmp_path / "results" / "low", tiny_bert, corpus)


def tower() -> Any:
    """A transformer in small: layers and a pooler, all weights 1."""
    made = nn.ModuleDict({"layers": nn.Linear(2, 2), "pooler": nn.ModuleDict({"dense": nn.Linear(2, 2)})})
    for parameter in made.parameters():
        nn.init.ones_(parameter)
    return made


def test_small_steps_add_up_that_bfloat16_would_lose() -> None:
    small, weights = 1e-3, []  # less than half of what bfloat16 can add to 1
    for made, precision in ((tower(), LOW), (tower().bfloat16(), "fp32")):
        with train_at_precision(precision):
            masters = MasterWeights(made)
        for _ in range(20):
            with masters.lowered():
                made["layers"](torch.ones(1, 2, dtype=made["layers"].weight.dtype)).sum().backward()
            with torch.no_grad():
                for parameter in made["layers"].parameters():
                    parameter -= small * parameter.grad
                    parameter.grad = None
        weights.append(made["layers"].weight)
    assert torch.allclose(weights[0], torch.full((2, 2), 1 - 20 * small))
    assert torch.equal(weights[1], torch.ones(2, 2).bfloat16())


def test_types_in_a_step_and_outside_of_it() -> None:
    made = tower()
    with train_at_precision(LOW):
        masters = MasterWeights(made)
    weight, pooled = made["layers"].weight, made["pooler"]["dense"].weight
    full = weight.detach().clone().add_(1e-4)
    weight.data.copy_(full)
    storage = weight.data_ptr()
    with masters.lowered():
        assert (weight.dtype, pooled.dtype) == (torch.bfloat16, torch.float32)
        assert torch.equal(weight, full.bfloat16())
        torch.autograd.backward(weight.sum() * 3)
        assert weight.grad is not None
        assert weight.grad.dtype == torch.bfloat16
    assert (weight.dtype, weight.grad.dtype) == (torch.float32, torch.float32)
    assert torch.equal(weight, full)
    assert torch.equal(weight.grad, torch.full((2, 2), 3.0))
    assert weight.data_ptr() == storage
    assert made["layers"].bias.grad is None


@pytest.mark.parametrize("precision", ["fp32", "bf16", "tf32", LOW])
def test_other_precisions_and_failed_steps_leave_float32(precision: str) -> None:
    made = tower()
    with train_at_precision(precision):
        masters = MasterWeights(made)

    def fail() -> None:
        with masters.lowered():
            lowered = {parameter.dtype for parameter in made["layers"].parameters()}
            assert lowered == {torch.bfloat16 if precision == LOW else torch.float32}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert {parameter.dtype for parameter in made.parameters()} == {torch.float32}


def test_a_momentum_copy_follows_the_masters() -> None:
    made = tower()
    slow = MomentumCopy(made, 0.0)
    with torch.no_grad():
        made["layers"].weight += 1e-4
    with train_at_precision(LOW):
        masters = MasterWeights(made)
    with masters.lowered():
        slow.update(made)
    copied: Any = slow.model
    assert torch.equal(copied["layers"].weight, made["layers"].weight)
    assert not torch.equal(copied["layers"].weight, torch.ones(2, 2))


@pytest.fixture
def trained(tiny_bert: Path) -> Iterator[Any]:
    def run(precision: str) -> tuple[TrainResult, list[dict[str, Tensor]]]:
        torch.manual_seed(3)
        model, _ = load_backbone(tiny_bert)
        objective, towers = SimCSEObjective(model, 0, 0.05), nn.ModuleList([model])
        seen: list[dict[str, Tensor]] = []

        def dev_score() -> float:
            seen.append({name: value.clone() for name, value in towers.state_dict().items()})
            return float(len(seen))

        rows: Any = [[2, 5 + n, 6 + n, 3 + n % 7] for n in range(12)]
        settings = TrainSettings(1e-4, 6, 6, 3)
        with train_at_precision(precision):
            return train(objective, towers, rows, settings, seed=1, corpus="c", dev_score=dev_score), seen

    with torch.random.fork_rng():
        yield run


def test_dev_evaluations_and_checkpoints_have_the_masters(trained: Any) -> None:
    (full, _), (result, seen) = trained("fp32"), trained(LOW)
    assert full.losses != result.losses == pytest.approx(full.losses, rel=0.05, abs=0.05)
    assert len(seen) == 2
    for kept in (result.best, result.last):
        assert all(torch.equal(value, kept[name]) for name, value in seen[-1].items())
    floats = [value for value in result.last.values() if value.is_floating_point()]
    assert {value.dtype for value in floats} == {torch.float32}
    assert not any(torch.equal(value, value.bfloat16().float()) for value in floats if value.dim() == 2)


class Casts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what changes a tensor's type, one by one: copies, and those of a list in one call."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.single, self.lists = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default:
            self.single += found.dtype != args[0].dtype != torch.int64
        self.lists += func is torch.ops.aten._foreach_copy_.default
        return found


def casts_of_a_step(precision: str, dropout: float) -> tuple[int, int]:
    """A SimCSE step of a BERT of BERT-base's depth, both views in one chunk; dropout is attention's."""
    sizes = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 12, "num_attention_heads": 2}
    config = BertConfig(**sizes, intermediate_size=48, attention_probs_dropout_prob=dropout)
    objective = SimCSEObjective(BertModel(config), 0, 0.05).train()
    with train_at_precision(precision), compile_steps("inductor"), Casts() as casts:
        masters = MasterWeights(nn.ModuleList([objective.encoder]))
        prepared = objective.prepare([[2, 5, 6, 3], [2, 7, 8, 9, 3]])
        with masters.lowered():
            torch.autograd.backward(objective.compute(prepared))
    return casts.single, casts.lists


def test_casts_of_a_step() -> None:
    """As docs/scale.md says them; with dropout a CPU's attention isn't fused, and casts by itself."""
    fused, plain = ({name: casts_of_a_step(name, p) for name in ("fp32", "bf16", LOW)} for p in (0.0, 0.1))
    assert fused == {"fp32": (0, 0), "bf16": (408, 0), LOW: (2, 2)}
    assert plain == {"fp32": (0, 0), "bf16": (516, 0), LOW: (110, 2)}


def test_a_tower_that_would_call_its_pooler_is_refused() -> None:
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    towers = nn.ModuleList([MPNetModel(MPNetConfig(**sizes, intermediate_size=16))])
    assert MasterWeights(towers) is not None
    with train_at_precision(LOW), pytest.raises(InputError, match="MPNetModel"):
        MasterWeights(towers)


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_train_the_masters(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    base = (*arguments(tiny_bert, corpus), "--train-precision", LOW)
    assert cli(*base)[0] == 0
    code, _, err = cli(*base, "--ranks", "2", "--campaign", "two")
    assert code == 0, err
    (one,), (two,) = (list(records(tmp_path, name).values()) for name in ("local", "two"))
    assert one.training["precision"] == two.training["precision"] == LOW
    losses = [record.training["stages"]["simcse"]["last_loss"] for record in (one, two)]
    assert losses[1] == pytest.approx(losses[0], abs=0.05)
