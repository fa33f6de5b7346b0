"""SCD: a step by hand, its two dropout rates, also where chunks are encoded again, and what it refuses."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.baselines.scd import build_projector
from bench.errors import InputError
from bench.method_card import OptionValue
from bench.training import batch_encoding
from bench.training.gradient_caching import cache_gradients
from bench.training.randomness import own_random_state
from tests.support.steps import cls_of, count_losses, gradients_of, objective_of, same_step
from tests.support.training import SENTENCES, options_of, stages_of

TEXT = [*SENTENCES, "the doctor is on the hill", "children are singing"]
BASE: dict[str, OptionValue] = {"width": 7, "dropout2": 0.0, "beta": 0.5}


def projected(head: Any, states: Tensor) -> Tensor:
    """The projector and the last batch norm in one view, written out: cl_init of scd/models.py, fb1438a."""
    linears = [part for part in head if isinstance(part, nn.Linear)]
    norms = [part for part in head if isinstance(part, nn.BatchNorm1d)]
    assert len(linears) == len(norms) + 1
    for number, linear in enumerate(linears):
        states = states @ linear.weight.T + (0 if linear.bias is None else linear.bias)
        states = (states - states.mean(0)) / (states.var(0, unbiased=False) + 1e-5).sqrt()
        if number < len(norms):
            states = (states * norms[number].weight + norms[number].bias).clamp(min=0)
        else:  # the last batch norm has no weights
            break
    return states


def slow_loss(made: Any, first: Tensor, second: Tensor, config: dict[str, OptionValue]) -> Tensor:
    """cl_forward of scd/models.py: the mean cosine over tau is minimised, and so is the decorrelation."""
    tau, alpha, beta, weight = (float(config[n]) for n in ("tau", "alpha", "beta", "off_diagonal"))
    pairs = zip(first, second, strict=True)
    contrast = torch.stack([a @ b / (a.norm() * b.norm()) for a, b in pairs]).mean() / tau
    z, y = projected(made.projector, first), projected(made.projector, second)
    loss = torch.zeros((), dtype=first.dtype)
    for k in range(z.shape[1]):
        for m in range(z.shape[1]):
            correlation = sum((z[i, k] * y[i, m] for i in range(len(z))), torch.tensor(0.0)) / len(z)
            loss = loss + ((correlation - 1) ** 2 if k == m else weight * correlation**2)
    return alpha * contrast + beta * loss


CHANGES: list[dict[str, OptionValue]] = [
    {},
    {"tau": 0.3},
    {"alpha": 0.1},
    {"beta": 0.005},
    {"off_diagonal": 0.5},
    {"width": 4},
    {"layers": 1},
    {"layers": 2},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_a_step_by_hand(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    made, rows, _ = objective_of("scd", tiny_bert, TEXT, **(BASE | changes))
    states = torch.stack([cls_of(made.encoder, row) for row in rows])
    config = options_of("scd", **(BASE | changes))
    found = same_step(made, made(rows), slow_loss(made, states, states, config), rel=1e-8, atol=1e-8)
    assert not any(name.startswith("norm.") for name in found)  # without weights


def test_every_option_changes_the_loss(tiny_bert: Path) -> None:
    step = partial(objective_of, "scd", tiny_bert, TEXT)
    assert count_losses(step, [BASE | change for change in CHANGES]) == len(CHANGES)


def test_the_projector_is_the_released_one() -> None:
    parts = build_projector(16, 4096, 3)
    kinds = [type(part).__name__ for part in parts]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert [part.bias is not None for part in parts if isinstance(part, nn.Linear)] == [True, False, False]
    assert [part.weight.shape for part in parts if isinstance(part, nn.Linear)] == [
        (4096, 16), (4096, 4096), (4096, 4096),
    ]  # fmt: skip
    assert float(parts[3].weight.detach().std()) == pytest.approx(0.02, rel=1e-2)
    assert not bool(parts[0].bias.any())


@pytest.mark.parametrize("rows_at_a_time", [0, 3])
def test_each_view_has_its_dropout(
    tiny_bert: Path, rows_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and gradients of two passes whose modules have the rates, from the same draws."""
    monkeypatch.setattr(batch_encoding, "default_batch_tokens", lambda _: 40)
    changes = BASE | {"dropout": 0.1, "dropout2": 0.4}
    made, rows, _ = objective_of("scd", tiny_bert, TEXT, **changes)
    twin, _, _ = objective_of("scd", tiny_bert, TEXT, **changes)
    with own_random_state(1, "dropout"), cache_gradients(rows_at_a_time):
        prepared = made.prepare(rows)
        assert len(prepared.chunks) > 1
        loss = made.compute(prepared)
        loss.backward()
    views = []
    with own_random_state(1, "dropout"):
        for rate in (0.1, 0.4):
            for module in twin.encoder.modules():
                if isinstance(module, nn.Dropout):
                    module.p = rate
                elif hasattr(module, "dropout_prob"):
                    module.dropout_prob = rate
            encode = partial(batch_encoding._compute_vectors, twin.encoder, pooling="cls")
            views.append(torch.cat([*map(encode, prepared.chunks)])[prepared.place])
    expected = slow_loss(twin, views[0], views[1], options_of("scd", **changes))
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    for name, gradient in gradients_of(twin, expected).items():
        torch.testing.assert_close(made.module.get_parameter(name).grad, gradient, rtol=1e-6, atol=1e-8)


def test_losses_of_equal_views_and_odd_batches(tiny_bert: Path) -> None:
    """Cosines are 1 and repelled, correlations with itself 1 up to the batch norm's eps."""
    step = partial(objective_of, "scd", tiny_bert, width=7, dropout2=0.0)
    made, rows, _ = step(TEXT, alpha=0.5, beta=0.0)
    assert float(made(rows).detach()) == pytest.approx(0.5 / 0.05, rel=1e-9)
    made, rows, _ = step(TEXT, alpha=0.0, off_diagonal=0.0, beta=1.0)
    assert 0 < float(made(rows).detach()) < 0.1
    for texts in (["", "the farmer"], ["a", "a"]):
        made, rows, _ = step(texts, dropout=0.3)
        loss = made(rows)
        assert all(bool(gradient.isfinite().all()) for gradient in gradients_of(made, loss).values())


def test_layers_computed_again_are_refused() -> None:
    assert stages_of("scd", options_of("scd", chunk=4))
    with pytest.raises(InputError, match="checkpoint_layers=true"):
        stages_of("scd", options_of("scd", checkpoint_layers=True))
