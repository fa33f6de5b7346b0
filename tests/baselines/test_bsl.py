"""BSL: its loss, predictor and target, steps against a transcription, and training."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.data.tasks import PairSubset, PairTask
from bench.errors import InputError
from bench.eval.sts import dev_spearman
from bench.losses.decorrelation import byol_loss
from bench.method_card import OptionValue
from bench.nn.backbone import tokenize_rows
from bench.stages import planned_steps
from bench.training.byol import build_predictor
from bench.training.loop import TrainSettings, learning_rate, order_batches
from bench.training.loop import train as train_loop
from bench.training.randomness import own_random_state
from bench.training.two_phase_step import Objective
from tests.support.encoders import FunctionEncoder
from tests.support.momentum import slow_mean
from tests.support.steps import descend, follow, objective_of, same_step
from tests.support.training import SENTENCES, options_of, plan_on_toy, random, stages_of, train_alone

OTHERS = ["A book is read by the doctor.", "two", "On the hill a song is sung.", "a farmer"]


def test_loss_by_hand_and_limits() -> None:
    q = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    y = torch.tensor([[3.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    assert float(byol_loss(q, y)) == pytest.approx((0 + 2 - math.sqrt(2)) / 2)
    a, b = random(6, 5), random(6, 5, seed=1)
    slow = sum(2 - 2 * float(x @ z / (x.norm() * z.norm())) for x, z in zip(a, b, strict=True)) / 6
    assert float(byol_loss(a, b)) == pytest.approx(slow)
    assert float(byol_loss(a, 7 * a)) == pytest.approx(0, abs=1e-12)
    assert float(byol_loss(a, -a)) == pytest.approx(4)
    assert float(byol_loss(0 * a, b)) == 2


@pytest.mark.parametrize("blocks", [1, 3])
def test_predictor_is_the_formula(blocks: int) -> None:
    with own_random_state(1, "head"):
        head = build_predictor(3, blocks).double().train()
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    x = random(5, 3)
    slow, weights = x, [parameter.detach() for parameter in head.parameters()]
    assert [w.shape[0] for w in weights[:8]] == [30, 30, 30, 30, 30, 30, 3, 3]
    for start in range(0, len(weights), 8):
        w1, b1, scale, shift, w2, b2, w3, b3 = weights[start : start + 8]
        hidden = slow @ w1.T + b1
        spread = ((hidden - hidden.mean(0)) ** 2).mean(0)
        hidden = (hidden - hidden.mean(0)) / (spread + 1e-5).sqrt() * scale + shift
        slow = (hidden.clamp(min=0) @ w2.T + b2).clamp(min=0) @ w3.T + b3
    torch.testing.assert_close(head(x), slow)
    assert len(weights) == 8 * blocks


def step_of(folder: Path, others: Sequence[str] = (), **changes: OptionValue) -> tuple[Any, list[Any], Any]:
    """One block."""
    small: dict[str, OptionValue] = {"blocks": 1, "decay": 0.9}
    return objective_of("bsl", folder, SENTENCES, {"partners": others}, **(small | changes))


@pytest.mark.parametrize("others", [OTHERS, ()])
def test_steps_equal_a_transcription(tiny_bert: Path, others: Sequence[str]) -> None:
    """Three steps: losses, gradients, and the target, which moves with the weights after a step."""
    made, rows, tokenizer = step_of(tiny_bert, others)
    model = made.encoder
    slow_target = copy.deepcopy(model)
    other_rows = tokenize_rows(tokenizer, others or SENTENCES, 64)
    for chosen in ([0, 1, 2, 3], [2, 0], [3, 1]):
        loss = made([rows[i] for i in chosen])
        for mine, theirs in zip(made.target.model.parameters(), slow_target.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs.detach(), rtol=1e-12, atol=1e-12)
        first, second = [rows[i][1] for i in chosen], [other_rows[i] for i in chosen]
        q1, q2 = (made.head(slow_mean(model, view)) for view in (first, second))
        with torch.no_grad():
            t1, t2 = (slow_mean(slow_target, view) for view in (first, second))
        cosines = torch.cosine_similarity(q1, t2) + torch.cosine_similarity(q2, t1)
        got = same_step(made, loss, (4 - 2 * cosines).mean())
        assert 0 <= float(loss.detach()) <= 8
        descend(made, got)
        follow(slow_target, model)  # after the optimiser's step
    assert not any(p.requires_grad for p in made.target.model.parameters())


def test_swapped_views_give_the_same_loss_without_dropout(tiny_bert: Path) -> None:
    swap = objective_of("bsl", tiny_bert, OTHERS, {"partners": SENTENCES}, blocks=1)
    steps = step_of(tiny_bert, OTHERS), swap, step_of(tiny_bert)
    one, other, same = (float(made(batch).detach()) for made, batch, _ in steps)
    assert one == pytest.approx(other, rel=1e-12)
    assert one != pytest.approx(same)


def test_the_target_keeps_its_dropout_and_is_no_part_of_the_module(tiny_bert: Path) -> None:
    made, batch, _ = step_of(tiny_bert, dropout=0.5, decay=1.0)
    names = {name.split(".")[0] for name, _ in made.named_parameters()}
    assert names == {"encoder", "head"}
    made.eval()
    made.train()
    assert made.target.model.training
    rows = [row for _, row in batch]
    one, two = made.vectors(made.target.model, made.tokens(rows, rows))
    assert not torch.allclose(one, two)
    before = copy.deepcopy(made.target.model.state_dict())
    with torch.no_grad():
        for parameter in made.encoder.parameters():
            parameter.add_(1)
    made(batch)
    made(batch)
    assert all(torch.equal(before[name], value) for name, value in made.target.model.state_dict().items())


@pytest.mark.parametrize(
    ("warmup", "schedule", "rates"),
    [
        (0.2, "linear", [0, 0.4, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        (0.5, "constant", [0, 0.4, 0.8, 0.8]),
        (1.0, "linear", [0, 0.2, 0.4, 0.6]),
    ],
)
def test_the_rate_rises_from_0_and_then_falls(warmup: float, schedule: str, rates: list[float]) -> None:
    steps = len(rates)
    settings = TrainSettings(0.8, 2, steps, eval_every=5, warmup=warmup, schedule=schedule)
    assert [learning_rate(settings, step) for step in range(1, steps + 1)] == pytest.approx(rates)
    odd = TrainSettings(lr=1.0, batch_size=2, steps=15, eval_every=5, warmup=0.1)  # 1.5 steps: 2
    assert [learning_rate(odd, step) for step in (1, 2, 3)] == pytest.approx([0, 0.5, 1.0])


def test_a_short_last_batch_is_left_out() -> None:
    found = list(itertools.islice(order_batches(7, 3, 1, "c", drop_last=True), 6))
    assert [len(batch) for batch in found] == [3] * 6
    kept = list(itertools.islice(order_batches(7, 3, 1, "c"), 9))
    assert [kept[i] for i in (0, 1, 3, 4, 6, 7)] == found  # the order is the same
    whole = list(itertools.islice(order_batches(6, 3, 1, "c", drop_last=True), 4))
    assert whole == list(itertools.islice(order_batches(6, 3, 1, "c"), 4))


def test_planned_steps_of_both_kinds() -> None:
    config: dict[str, OptionValue] = {"steps": 0, "epochs": 2, "batch_size": 3}
    assert [planned_steps(config, n) for n in (2, 6, 7)] == [2, 4, 6]
    assert [planned_steps(config | {"drop_last": True}, n) for n in (2, 6, 7)] == [0, 4, 4]
    assert planned_steps(config | {"drop_last": True, "steps": 5}, 7) == 5


class Sum(Objective):
    """The sum of (w x - y)^2 over a batch's numbers x, small enough for eps to matter."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64))

    def prepare(self, batch: Sequence[int]) -> Tensor:
        return torch.tensor(batch, dtype=torch.float64)

    def compute(self, prepared: Tensor) -> Tensor:
        target = torch.tensor([1.0, -1.0, 1.5], dtype=torch.float64)
        return ((self.w[:, None] * prepared - target[:, None]) ** 2).sum() / 1e4


def transcribed_adamw(batch: list[int], steps: int, lr: float, eps: float) -> Tensor:
    """AdamW of transformers 3 and 4: eps joins the root of the second moment as it is."""
    made = Sum()
    w = made.w.detach().clone()
    first, second = torch.zeros_like(w), torch.zeros_like(w)
    for step in range(1, steps + 1):
        with torch.no_grad():
            made.w.copy_(w)
        (gradient,) = torch.autograd.grad(made(batch), made.w)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        size = lr * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        w = w - size * first / (second.sqrt() + eps)
    return w


@pytest.mark.parametrize("eps", [1e-6, 1e-3])
def test_steps_are_those_of_transformers_adamw(eps: float) -> None:
    rows, weights = [1, 2, 3], []
    for adam_eps in (eps, None):
        made = Sum()
        settings = TrainSettings(0.1, 3, 5, 9, clip=0.0, schedule="constant", adam_eps=adam_eps)
        train_loop(made, made.module, rows, settings, seed=1, corpus="c", dev_score=lambda: 0.0)
        weights.append(made.w.detach())
    torch.testing.assert_close(weights[0], transcribed_adamw(rows, 5, 0.1, eps), rtol=1e-12, atol=0)
    assert float((weights[1] - weights[0]).abs().max()) > 100 * eps


@pytest.mark.parametrize(("select", "step", "score"), [("cosine", 2, 0.9), ("best_of_four", 4, 1.0)])
def test_the_best_of_four_chooses_another_checkpoint(
    tmp_path: Path, tiny_bert: Path, select: str, step: int, score: float
) -> None:
    """The first evaluation has the better cosines, the second perfect dot products."""
    first, second = (tuple(f"{side}{number}" for number in range(5)) for side in "ab")
    task = PairTask("T", (PairSubset("all", first, second, (1.0, 2.0, 3.0, 4.0, 5.0)),))
    evaluations = iter(
        [((0.1, 0.2, 0.3, 0.5, 0.4), (1.0,) * 5), ((0.5, 0.4, 0.3, 0.2, 0.1), (0.1, 1, 2, 5, 20))]
    )

    def dev_score(_: Any, *chosen: str) -> float:
        vectors = {}
        for number, (cosine, norm) in enumerate(zip(*next(evaluations), strict=True)):
            vectors[f"a{number}"] = [norm, 0.0]
            vectors[f"b{number}"] = [cosine, math.sqrt(1 - cosine**2)]
        return dev_spearman(
            FunctionEncoder(lambda texts: [vectors[text] for text in texts], 2), task, *chosen
        )

    facts = train_alone("bsl", tiny_bert, tmp_path, {"dev_score": dev_score}, blocks=1, select=select).facts
    assert (facts["selected_step"], facts["selected_dev"]) == (step, pytest.approx(score))


def test_its_text_is_paired_unless_it_asks_for_dropout_alone(tmp_path: Path) -> None:
    texts = {rtt: stages_of("bsl", options_of("bsl", rtt=rtt))[0].text for rtt in ("copies", "none")}
    assert texts == {"copies": "train:a", "none": "train"}
    own = tmp_path / "own.txt"
    own.write_text("a man\n")
    with pytest.raises(InputError, match="--copy a=FILE"):
        plan_on_toy("bsl", tmp_path, corpus=own, dev="toy")
