"""UNSEE: objectives and architectures against loops, collapse figures, and the way through the command."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from torch import Tensor

from bench.data.tasks import PairTask
from bench.data.toy_suite import make_toy_task
from bench.eval.embedding_collapse import collapse_figures, effective_rank
from bench.eval.sts import dev_spearman
from bench.losses.decorrelation import BarlowTwins, CorInfoMax, barlow_twins, vicreg
from bench.method_card import OptionValue
from bench.methods.unsee import ARCHITECTURES
from bench.training.loop import TrainSettings, parameter_groups
from tests.support.cli import Cli, records
from tests.support.encoders import FunctionEncoder
from tests.support.momentum import slow_mean
from tests.support.steps import descend, follow, objective_of, same_step, toy_run
from tests.support.training import random

OBJECTIVES = ("byol", "barlow", "vicreg", "corinfomax")


def slow_barlow(z: Tensor, y: Tensor) -> float:
    n, d = z.shape
    total = 0.0
    for k, m in itertools.product(range(d), repeat=2):
        c = sum(float(z[i, k] * y[i, m]) for i in range(n)) / n
        total += (c - 1) ** 2 if k == m else 0.0051 * c**2
    return total


def slow_vicreg(z: Tensor, y: Tensor) -> float:
    n, d = z.shape
    invariance = sum(float((z[i, k] - y[i, k]) ** 2) for i in range(n) for k in range(d)) / (n * d)
    spread = covariance = 0.0
    for x in (z, y):
        mean = [sum(float(x[i, k]) for i in range(n)) / n for k in range(d)]
        for k, m in itertools.product(range(d), repeat=2):
            cell = sum((float(x[i, k]) - mean[k]) * (float(x[i, m]) - mean[m]) for i in range(n)) / (n - 1)
            if k == m:
                spread += max(0.0, 1 - math.sqrt(cell + 1e-4)) / d / 2
            else:
                covariance += cell**2 / d
    return 25 * invariance + 25 * spread + covariance


class SlowCorInfoMax:
    def __init__(self, d: int) -> None:
        self.state: dict[str, tuple[Any, Any]] = {name: (np.zeros(d), np.eye(d)) for name in "zy"}

    def __call__(self, z: Tensor, y: Tensor) -> float:
        n, d = z.shape
        logdets = 0.0
        for name, x in (("z", z.detach().numpy()), ("y", y.detach().numpy())):
            mu, r = self.state[name]
            mu = 0.01 * mu + 0.99 * sum(x) / n
            scatter = sum(np.outer(row - mu, row - mu) for row in x)
            r = 0.01 * r + 0.99 * scatter / n
            self.state[name] = mu, r
            logdets += math.log(np.linalg.det(r + 1e-6 * np.eye(d)))
        difference = (z - y).detach().numpy()
        return -0.2 * logdets / d + 2000 * float((difference**2).sum()) / (n * d)


@pytest.mark.parametrize(("fast", "slow"), [(barlow_twins, slow_barlow), (vicreg, slow_vicreg)])
@pytest.mark.parametrize("n", [2, 7])
def test_objectives_are_the_formulas(
    fast: Callable[[Tensor, Tensor], Tensor], slow: Callable[[Tensor, Tensor], float], n: int
) -> None:
    z, y = random(n, 4), random(n, 4, seed=1)
    assert float(fast(z, y)) == pytest.approx(slow(z, y), rel=1e-10)
    assert torch.autograd.gradcheck(fast, (z.requires_grad_(), y.requires_grad_()))
    for one, other in ((z[:1], y), (z[0], y[0])):
        with pytest.raises(ValueError, match=r"must be \(N, d\)"):
            fast(one, other)


def test_limits() -> None:
    z = random(6, 4)
    white = torch.linalg.qr(random(6, 4))[0] * math.sqrt(6)
    assert float(barlow_twins(white, white)) == pytest.approx(0, abs=1e-20)
    assert float(barlow_twins(torch.zeros(6, 4), torch.zeros(6, 4))) == 4  # no correlation with itself: d
    constant = torch.ones(5, 3, dtype=torch.float64)
    assert float(vicreg(constant, constant)) == pytest.approx(25 * 0.99)  # all spread is missing
    with pytest.raises(ValueError, match="variance of one row"):
        vicreg(z[:1], z[:1])


def test_barlow_normalises_both_with_one_norm() -> None:
    module = BarlowTwins(3).double().train()
    with torch.no_grad():
        module.norm.weight.copy_(torch.tensor([1.0, 2.0, 0.5]))
        module.norm.bias.copy_(torch.tensor([0.0, 0.1, -0.3]))
    z, y = random(5, 3), 10 * random(5, 3, seed=1) + 4

    def standard(x: Tensor) -> Tensor:
        scaled = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
        return scaled * module.norm.weight.detach() + module.norm.bias.detach()

    loss = module(z, y)
    assert float(loss.detach()) == pytest.approx(slow_barlow(standard(z), standard(y)), rel=1e-9)
    torch.autograd.backward(loss)
    assert all(p.grad is not None and bool(p.grad.any()) for p in module.parameters())


def test_corinfomax_moves_its_matrices_and_keeps_the_old_ones_constant() -> None:
    module, slow = CorInfoMax(3), SlowCorInfoMax(3)
    for step in range(4):
        z, y = random(8, 3, seed=step) + 1, random(8, 3, seed=step + 9)
        assert float(module(z, y)) == pytest.approx(slow(z, y), rel=1e-9)
        for name in "zy":
            mu, r = slow.state[name]
            np.testing.assert_allclose(getattr(module, f"mu_{name}").numpy(), mu, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(getattr(module, f"r_{name}").numpy(), r, rtol=1e-12, atol=1e-14)
    assert not module.r_z.requires_grad
    z, y = random(8, 3).requires_grad_(), random(8, 3, seed=1).requires_grad_()
    state = copy.deepcopy(module.state_dict())

    def fresh(a: Tensor, b: Tensor) -> Tensor:
        module.load_state_dict(state)
        loss: Tensor = module(a, b)
        return loss

    assert torch.autograd.gradcheck(fresh, (z, y))
    assert module(z.float(), y.float()).dtype == torch.float64
    assert bool(module(torch.ones(4, 3), torch.ones(4, 3)).isfinite())  # no spread: eps keeps it finite


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_three_steps_equal_a_transcription(tiny_bert: Path, objective: str, architecture: str) -> None:
    changes: dict[str, OptionValue] = {"layers": 1, "decay": 0.9, "architecture": architecture}
    made, rows, _ = objective_of(f"unsee_{objective}", tiny_bert, **changes)
    model, plain = made.encoder, architecture == "projection"
    target = copy.deepcopy(model)
    # the formulas have their own tests: here the order in which CorInfoMax moves counts
    slow_loss = copy.deepcopy(made.loss) if objective == "corinfomax" else made.loss
    for chosen in ([0, 1, 2, 3], [2, 0], [3, 1]):
        batch = [rows[i] for i in chosen]
        loss, texts = made(batch), batch if plain else [row for _, row in batch]
        if not plain:
            for mine, theirs in zip(made.target.model.parameters(), target.parameters(), strict=True):
                assert not mine.requires_grad
                torch.testing.assert_close(mine, theirs.detach(), rtol=1e-12, atol=1e-12)
        z1, z2 = (made.head(slow_mean(model, texts)) for _ in range(2))
        if plain:
            expected = slow_loss(z1, z2)
        else:
            with torch.no_grad():
                t = slow_mean(target, texts)
                t = made.head(t) if architecture == "online_projection" else t
            expected = slow_loss(z1, t) + slow_loss(z2, t)
        got = same_step(made, loss, expected, rel=1e-7, rtol=1e-5, scaled=1e-7)
        descend(made, got, 1e-4)
        follow(target, model)


def test_weight_decay_spares_biases_and_layer_norms(tiny_bert: Path) -> None:
    made, _, _ = objective_of("unsee_barlow", tiny_bert, layers=1)
    everything = parameter_groups(made.module, TrainSettings(1e-4, 2, 1, 1, weight_decay=0.01))
    assert len(everything) == 1
    settings = TrainSettings(1e-4, 2, 1, 1, weight_decay=0.01, decay_all=False)
    decayed, spared = parameter_groups(made.module, settings)
    names = {id(p): name for name, p in made.named_parameters()}
    without = {names[id(p)] for p in spared["params"]}
    assert spared["weight_decay"] == 0.0
    assert without == {name for name in names.values() if name.endswith("bias") or "LayerNorm" in name}
    assert without.isdisjoint(names[id(p)] for p in decayed["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(everything[0]["params"])


def test_collapse_figures() -> None:
    x = np.random.default_rng(0).normal(size=(40, 6))
    found = collapse_figures(x)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert found.mean_cosine == pytest.approx(1 - pdist(x, "cosine").mean())
    assert found.deviation == pytest.approx(unit.std(0).mean() * math.sqrt(6))
    values = np.sqrt(np.linalg.eigvalsh(x.T @ x))
    shares = values / values.sum()
    assert found.effective_rank == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))
    assert effective_rank(np.eye(5)) == pytest.approx(5)
    assert effective_rank(np.outer(np.arange(1, 5), np.ones(3))) == pytest.approx(1)
    assert effective_rank(np.zeros((3, 2))) == 1
    one_way = collapse_figures(np.outer(np.arange(1, 5), [3.0, 4.0]).astype(np.float32))
    assert one_way == pytest.approx((1, 1, 0), abs=1e-6)


def test_the_best_of_four_similarities() -> None:
    task: PairTask = make_toy_task()
    pairs = list(task.all_pairs())
    draw = np.random.default_rng(3)
    vectors = {s: list(draw.normal(size=3)) for pair in pairs for s in pair}
    sides = [[vectors[pair[side]] for pair in pairs] for side in (0, 1)]
    a, b = (np.array(side, dtype=np.float32).astype(float) for side in sides)
    gold = [value for subset in task.subsets for value in subset.gold]
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    dots = (a * b).sum(1)
    four = [dots / norms, dots, -np.linalg.norm(a - b, axis=1), -np.abs(a - b).sum(1)]
    scores = [spearmanr(similarity, gold).statistic for similarity in four]
    assert len(set(scores)) == 4
    encoder = FunctionEncoder(lambda texts: [vectors[text] for text in texts], 3)
    assert dev_spearman(encoder, task, "best_of_four") == pytest.approx(max(scores))
    assert dev_spearman(encoder, task) == pytest.approx(scores[0])


def arguments(tiny_bert: Path, corpus: Path, methods: str, *extra: str) -> tuple[str, ...]:
    values = {"steps": 6, "eval_every": 2, "batch_size": 16, "lr": 1e-3, "max_length": 20, "layers": 1}
    names = [method for method in methods.replace("[", ",").split(",") if method.startswith("unsee")]
    sets = [f"{method}.{name}={value}" for method in names for name, value in values.items()]
    return toy_run(tiny_bert, corpus, methods, *(part for text in sets for part in ("--set", text)), *extra)


def test_dev_evaluations_note_a_collapse(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    best = "unsee_byol[select=best_of_four,pooling=cls,architecture=projection]"
    code, _, err = cli(*arguments(tiny_bert, corpus, f"unsee_corinfomax,{best}"))
    assert code == 0, err
    found = {record.name: record for record in records(tmp_path).values()}
    stages = {name: record.training["stages"][name] for name, record in found.items()}
    assert set(stages) == {"unsee_corinfomax", "unsee_byol"}
    for stage in stages.values():
        assert [step for step, *_ in stage["collapse_curve"]] == [2, 4, 6]
        for _, rank, cosine, deviation in stage["collapse_curve"]:
            assert 1 <= rank <= 16
            assert -1 <= cosine <= 1
            assert deviation >= 0
        assert stage["selected_dev"] == max(score for _, score in stage["dev_curve"])
    scores = {name: record.score("TOY") for name, record in found.items()}
    # the mean of the states, and cosine, both in training and in the task
    assert scores["unsee_corinfomax"] == pytest.approx(stages["unsee_corinfomax"]["selected_dev"], abs=1e-6)
    assert found["unsee_byol"].options["pooling"] == "cls"
    assert scores["unsee_byol"] is not None
    assert stages["unsee_byol"]["selected_dev"] >= scores["unsee_byol"] - 1e-6  # the best of four
