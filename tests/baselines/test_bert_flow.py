"""BERT-flow: the flow's map and density, its step beside the released one, both fits, planted errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.baselines import bert_flow
from bench.baselines.bert_flow import FlowEncoder, TargetFlow, draw_batches, fit_flow
from bench.encoder import Encoder, PairScorer
from bench.errors import BenchError, InputError
from bench.method_card import BuildContext, OptionValue
from bench.nn import glow
from bench.registry import discover
from bench.stages import planned_sentences, planned_steps
from bench.training.randomness import generator
from tests.support.cli import Cli, records
from tests.support.encoders import FunctionEncoder
from tests.support.training import SENTENCES, options_of, random, stage_context, stages_of

options = partial(options_of, "bert_flow")
WIDTH, LEVELS, DEPTH, HIDDEN = 8, 2, 3, 5


def build_glow(module: Any = glow) -> Any:
    return module.Glow(WIDTH, LEVELS, DEPTH, HIDDEN, generator(1, "test"))


def moved_glow(module: Any = glow) -> Any:
    """A flow after its first batch, all of whose parameters are moved."""
    flow = build_glow(module)
    flow(vectors_of(12), first=True)
    with torch.no_grad():
        for number, parameter in enumerate(flow.parameters()):
            parameter.add_(0.03 * random(*parameter.shape, seed=number))
    return flow


def vectors_of(count: int, seed: int = 3) -> Tensor:
    """Vectors of unequal scales, far from the origin."""
    return random(count, WIDTH, seed=seed) * torch.logspace(-1, 1, WIDTH) + 5


# ---- bohanli/BERT-flow 7fa8f6d, flow/glow_ops_1x1.py and flow/glow_1x1.py, on (N, 1, 1, C) tensors ----


class Released:
    """Their forward pass; ``variables`` by their names; an act norm is set while ``init`` is true."""

    def __init__(self, variables: dict[str, Tensor], init: bool = False) -> None:
        self.variables, self.init = variables, init

    def actnorm(self, name: str, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.init:
            self.variables[f"{name}/b"] = -x.mean((0, 1, 2))
        x = x + self.variables[f"{name}/b"]
        if self.init:
            variance = (x**2).mean((0, 1, 2))
            self.variables[f"{name}/logs"] = torch.log(1 / (variance.sqrt() + 1e-6)) / 3
        logs = self.variables[f"{name}/logs"] * 3
        return x * logs.exp(), logs.sum()

    def conv_stack(self, name: str, x: Tensor) -> Tensor:
        for layer in ("1_1", "1_2"):
            x = torch.einsum("nhwi,io->nhwo", x, self.variables[f"{name}/{layer}/W"])
            x = self.actnorm(f"{name}/{layer}", x)[0].clamp(min=0)
        x = torch.einsum("nhwi,io->nhwo", x, self.variables[f"{name}/zeros/W"])
        x = x + self.variables[f"{name}/zeros/b"]
        return x * (self.variables[f"{name}/zeros/logs"] * 3).exp()

    def revnet_step(self, name: str, x: Tensor) -> tuple[Tensor, Tensor]:
        x, objective = self.actnorm(f"{name}/actnorm", x)
        channels = x.shape[-1]
        w = torch.zeros(channels, channels, dtype=x.dtype)
        for i in range(channels):
            w[i][channels - 1 - i] = 1
        x = torch.einsum("nhwi,io->nhwo", x, w)
        x1, x2 = x[..., : channels // 2], x[..., channels // 2 :]
        return torch.cat([x1, x2 + self.conv_stack(f"{name}/nn", x1)], dim=3), objective

    def objective(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Bits a dimension of each vector, and z."""
        x = features[:, None, None, :]
        total, outputs = torch.zeros(len(x), dtype=x.dtype), []
        for level in range(LEVELS):
            for step in range(DEPTH):
                x, log_determinant = self.revnet_step(f"{level}/{step}", x)
                total = total + log_determinant
            if level < LEVELS - 1:
                half = x.shape[-1] // 2
                x, eps = x[..., :half], x[..., half:]
                total = total + log_normal(eps)
                outputs.append(eps)
        total = total + log_normal(x)
        return -total / (math.log(2) * WIDTH), torch.cat([*outputs, x], dim=-1)[:, 0, 0]


def log_normal(x: Tensor) -> Tensor:
    normal: Any = torch.distributions.Normal(0.0, 1.0)
    result: Tensor = normal.log_prob(x).sum((1, 2, 3))
    return result


def released_names() -> list[str]:
    """Their variables in the order of our parameters."""
    names = []
    for level in range(LEVELS):
        for step in range(DEPTH):
            top, net = f"{level}/{step}/actnorm", f"{level}/{step}/nn"
            names += [f"{top}/b", f"{top}/logs", f"{net}/zeros/W", f"{net}/zeros/b", f"{net}/zeros/logs"]
            names += [f"{net}/1_1/W", f"{net}/1_2/W"]
            names += [f"{net}/{layer}/{kind}" for layer in ("1_1", "1_2") for kind in ("b", "logs")]
    return names


def released_variables(flow: Any) -> dict[str, Tensor]:
    values = [parameter.detach().clone() for parameter in flow.parameters()]
    return dict(zip(released_names(), values, strict=True))


def released_loss(variables: dict[str, Tensor], batch: Tensor) -> Tensor:
    """``create_model``: the mean over the first sides and that over the second ones, added."""
    tower, half = Released(variables), len(batch) // 2
    return tower.objective(batch[:half])[0].mean() + tower.objective(batch[half:])[0].mean()


def released_step(
    variables: dict[str, Tensor], moments: dict[str, Any], batch: Tensor, lr: float, share: float = 1.0
) -> Tensor:
    """``optimization_bert_flow.create_optimizer``: clip_by_global_norm, then AdamWeightDecayOptimizer."""
    leaves = {name: value.clone().requires_grad_() for name, value in variables.items()}
    loss = share * released_loss(leaves, batch)
    gradients = dict(zip(leaves, torch.autograd.grad(loss, [*leaves.values()]), strict=True))
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
    for name, gradient in gradients.items():
        gradient = gradient * 1.0 / max(norm, 1.0)
        m, v = moments.get(name, (0.0, 0.0))
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        moments[name] = m, v
        update = m / (v**0.5 + 1e-6) + 0.01 * variables[name]
        variables[name] = variables[name] - lr * update
    return loss.detach()


# ---- comparisons, of our modules and of copies with an error ----


def compare_first_batch(nets: Any, _: Any) -> None:
    flow, batch = build_glow(nets), vectors_of(12)
    variables = released_variables(flow)
    _, theirs = Released(variables, init=True).objective(batch)
    ours = flow(batch, first=True)
    close(ours, theirs)
    for parameter, value in zip(flow.parameters(), variables.values(), strict=True):
        close(parameter.detach(), value)
    spread = ours.std(0, correction=0).detach()
    torch.testing.assert_close(spread, torch.ones(WIDTH).double(), rtol=0, atol=1e-4)


def compare_loss_and_gradients(nets: Any, method: Any) -> None:
    flow, batch = moved_glow(nets), vectors_of(10, seed=4)
    leaves = {name: value.requires_grad_() for name, value in released_variables(flow).items()}
    close(flow(batch).detach(), Released(leaves).objective(batch)[1].detach())
    ours, theirs = method.flow_loss(flow, batch), released_loss(leaves, batch)
    close(ours.detach(), theirs.detach())
    gradients = torch.autograd.grad(ours, [*flow.parameters()])
    for name, mine, other in zip(
        leaves, gradients, torch.autograd.grad(theirs, [*leaves.values()]), strict=True
    ):
        assert other.abs().max() > 1e-6, name
        close(mine, other)


def compare_steps(nets: Any, method: Any) -> None:
    flow, moments = moved_glow(nets), dict[str, Any]()
    variables, adam = released_variables(flow), method.UncorrectedAdam(flow.parameters(), 0.003)
    for number, share in enumerate((0.01, 1.0, 0.001)):  # joint norms on both sides of the clip
        batch = vectors_of(10, seed=5 + number)
        loss = share * method.flow_loss(flow, batch)
        adam.step(loss)
        close(loss.detach(), released_step(variables, moments, batch, 0.003, share))
    for parameter, value in zip(flow.parameters(), variables.values(), strict=True):
        close(parameter.detach(), value)


def compare_inverse(nets: Any, _: Any) -> None:
    flow, batch = moved_glow(nets), vectors_of(10, seed=6)
    with torch.no_grad():
        assert float((flow.invert(flow(batch)) - batch).abs().max()) < 1e-10


def compare_determinant(nets: Any, _: Any) -> None:
    flow, batch = moved_glow(nets), vectors_of(4, seed=7)
    densities = flow.log_likelihood(batch).detach()
    for vector, density in zip(batch, densities, strict=True):
        functional: Any = torch.autograd.functional
        jacobian = functional.jacobian(lambda v: flow(v[None])[0], vector)
        z = flow(vector[None])[0].detach()
        gaussian = -0.5 * float(z @ z) - 0.5 * WIDTH * math.log(2 * math.pi)
        close(density, torch.linalg.slogdet(jacobian).logabsdet + gaussian)


COMPARISONS = (
    compare_first_batch,
    compare_loss_and_gradients,
    compare_steps,
    compare_inverse,
    compare_determinant,
)
close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9, check_dtype=False)


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_the_flow_is_the_released_one(comparison: Any) -> None:
    comparison(glow, bert_flow)


@pytest.mark.parametrize(
    ("comparison", "module", "old", "new"),
    [
        (compare_first_batch, glow, "deviation = (x - mean)", "deviation = x"),
        (compare_first_batch, glow, "+ _TINY).log() / LOG_FACTOR", "+ _TINY).log()"),
        (compare_loss_and_gradients, glow, "self.norm(x, first).flip(1)", "self.norm(x, first)"),
        (compare_loss_and_gradients, glow, "x, half = x.chunk", "half, x = x.chunk"),
        (compare_loss_and_gradients, glow, "norm(x @ weight, first).relu()", "norm((x @ weight).relu())"),
        (compare_loss_and_gradients, bert_flow, "return -2 *", "return -1 *"),
        (compare_determinant, glow, "return LOG_FACTOR *", "return"),
        (compare_inverse, glow, "right - self.net(left)", "right + self.net(left)"),
        (compare_steps, bert_flow, "norm.clamp(min=CLIP)", "norm"),
        (compare_steps, bert_flow, "second.sqrt() + ADAM_EPS", "(second / 0.001).sqrt() + ADAM_EPS"),
        (compare_steps, bert_flow, " + WEIGHT_DECAY * parameter", ""),
    ],
)  # fmt: skip
def test_planted_errors_are_found(comparison: Any, module: ModuleType, old: str, new: str) -> None:
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert old in text
    text = text.replace("@add_method\n", "")  # the copy isn't registered
    broken = ModuleType(module.__name__)
    exec(compile(text.replace(old, new), "broken", "exec"), vars(broken))  # noqa: S102
    with pytest.raises(AssertionError):
        comparison(*(broken if part is module else part for part in (glow, bert_flow)))


def test_shapes_of_the_default_flow() -> None:
    flow: Any = glow.Glow(768, 3, 3, 32, generator(1, "test"))
    assert [step.norm.shift.numel() for step in flow.steps] == [768] * 3 + [384] * 3 + [192] * 3
    assert {parameter.dtype for parameter in flow.parameters()} == {torch.float64}
    weights = [net.hidden[0].detach() for net in (step.net for step in flow.steps)]
    assert [tuple(weight.shape) for weight in weights[::3]] == [(384, 32), (192, 32), (96, 32)]
    assert float(weights[0].std()) == pytest.approx(0.05, rel=0.02)
    assert all(not step.net.output.any() for step in flow.steps)


@pytest.mark.parametrize(("width", "levels", "facts"), [(20, 3, (20, "of 8", "levels=2")), (7, 1, (7, 2))])
def test_widths_that_levels_cannot_halve(width: int, levels: int, facts: Sequence[object]) -> None:
    with pytest.raises(InputError) as caught:
        glow.check_flow_width(width, levels)
    assert all(str(fact) in str(caught.value) for fact in facts)
    glow.check_flow_width(24, 3)


def test_batches_take_every_row_once_an_epoch() -> None:
    batches = list(draw_batches(10, 4, 7, generator(1, "x")))
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2, 4]
    epochs = [sorted(chain(*batches[start : start + 3])) for start in (0, 3)]
    assert epochs == [list(range(10))] * 2
    assert batches[0] != batches[3]


class Rows(FunctionEncoder):
    """An encoder of rows by their number, with a module whose mode is recorded."""

    def __init__(self, vectors: Any) -> None:
        super().__init__(lambda texts: vectors[[int(text) for text in texts]], vectors.shape[1])
        self.model, self.device, self.modes = torch.nn.Linear(2, 2).eval(), "cpu", list[bool]()

    def encode(self, sentences: Sequence[str], batch_tokens: Any = None, progress: Any = None) -> Any:
        self.modes.append(self.model.training)
        if progress:
            progress(len(sentences))
        return super().encode(sentences)


def test_a_fit_is_the_first_batch_and_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert_flow, "_BLOCK", 2)
    vectors = vectors_of(20).float().numpy()
    base = Rows(vectors)
    given = options(levels=LEVELS, depth=DEPTH, width=HIDDEN, batch_size=8, lr=0.02)
    flow = fit_flow(base, [str(row) for row in range(20)], given, 4, 5, "s")  # type: ignore[arg-type]
    expected = glow.Glow(WIDTH, LEVELS, DEPTH, HIDDEN, generator(5, "s/weights"))
    batches = list(draw_batches(20, 8, 4, generator(5, "s/order")))
    rows = [torch.from_numpy(vectors[batch]).double() for batch in batches]
    expected(rows[0][:4], first=True)
    variables, moments = released_variables(expected), dict[str, Any]()
    for batch in rows:
        if len(batch) % 2 == 0:
            released_step(variables, moments, batch, 0.02)
    for parameter, value in zip(flow.parameters(), variables.values(), strict=True):
        close(parameter.detach(), value)
    assert base.modes == [True, True]
    assert not base.model.training
    assert [len(asked) for asked in base.asked] == [16, 12]


def test_target_fits_to_both_sides_as_often_as_they_stand_there() -> None:
    base = Rows(vectors_of(30).float().numpy())
    base.facts = {"max_length": 64}
    first, second = ["0", "0", "3", "4"], ["1", "2", "1", "5"]
    scorer = TargetFlow(base, options(levels=2, dropout=False), 1)  # type: ignore[arg-type]
    assert isinstance(scorer, PairScorer)
    assert not isinstance(scorer, Encoder)
    assert scorer.facts == {"max_length": 64, "fit": "target"}
    got = scorer.score_pairs(first, second)
    assert sorted(base.asked[0]) == sorted(first + second)
    assert sorted(base.asked[1]) == ["0", "1", "2", "3", "4", "5"]
    assert base.modes == [False, False]
    assert (str(got.dtype), scorer.score_pairs([], []).shape) == ("float32", (0,))
    assert np.array_equal(scorer.score_pairs(first, second), got)
    assert np.array_equal(scorer.score_pairs(second[::-1], first[::-1]), got[::-1])
    other = TargetFlow(base, options(levels=2, dropout=False), 2)  # type: ignore[arg-type]
    assert np.abs(other.score_pairs(first, second) - got).max() > 1e-3
    longer = scorer.score_pairs([*first, "7"], [*second, "8"])
    assert np.abs(longer[:4] - got).max() > 1e-3  # another task is another fit
    assert scorer.score_pairs([*first, "3"], [*second, "3"])[4] == pytest.approx(1)


def test_what_a_fit_refuses() -> None:
    base = Rows(vectors_of(9).float().numpy())
    with pytest.raises(BenchError, match="at least two sentences, not 1"):
        fit_flow(base, ["1"], options(levels=2), 1, 1, "s")  # type: ignore[arg-type]
    sentences = [str(row) for row in range(9)]
    with pytest.raises(BenchError, match="no longer finite"):
        fit_flow(base, sentences, options(levels=2, lr=1e200), 3, 1, "s")  # type: ignore[arg-type]
    assert not base.model.training


def build(folder: Path, stages: dict[str, Path] | None = None, **changes: OptionValue) -> Any:
    context = BuildContext(options(**changes), 1, folder, "cpu", stages or {})
    return discover().get("bert_flow").build(context)


def test_dropout_is_on_in_the_fit_alone(tiny_bert: Path) -> None:
    sides = SENTENCES[:2] * 3, SENTENCES[2:] * 3
    scores = {on: build(tiny_bert, dropout=on).score_pairs(*sides) for on in (True, False)}
    assert np.abs(scores[True] - scores[False]).max() > 1e-3
    assert np.array_equal(build(tiny_bert).score_pairs(*sides), scores[True])  # masks are the seed's
    scorer = build(tiny_bert)
    before = scorer.base.encode(SENTENCES)
    scorer.score_pairs(*sides)
    assert np.array_equal(scorer.base.encode(SENTENCES), before)


def test_the_stage(tiny_bert: Path, tmp_path: Path) -> None:
    (stage,) = stages_of("bert_flow", options(fit="train", batch_size=16, steps=5))
    told: list[int] = []
    facts = stage.train(stage_context(stage, tiny_bert, tmp_path, progress=told.append))
    sentences = len(stage_context(stage, tiny_bert, tmp_path).sentences)
    assert facts["steps"] == facts["selected_step"] == planned_steps(dict(stage.config), sentences) == 5
    assert sum(told) == facts["sentences_seen"] == planned_sentences(dict(stage.config), sentences)
    assert facts["dev_curve"] == [[5, facts["selected_dev"]]]
    encoder = build(tiny_bert, {"bert_flow": tmp_path}, fit="train")
    assert isinstance(encoder, FlowEncoder)
    assert isinstance(encoder, Encoder)
    assert (encoder.dim, encoder.facts["fit"]) == (16, "train")
    got = encoder.encode(SENTENCES)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, rtol=1e-5)
    with torch.no_grad():
        raw = torch.from_numpy(encoder.base.encode(SENTENCES))
        np.testing.assert_allclose(encoder.flow.invert(encoder.flow(raw)), raw, atol=1e-9)
    assert encoder.encode([]).shape == (0, 16)
    assert stages_of("bert_flow", options()) == ()
    assert stages_of("bert_flow", options(fit="train", text="a"))[0].text == "a"
    with pytest.raises(BenchError, match="the stage 'bert_flow' has not run"):
        build(tiny_bert, fit="train")


def test_the_command(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    given = ("--suite", "toy", "--backbone", str(tiny_bert))
    code, _, err = cli("run", "--methods", "bert_flow[levels=5]", *given)
    assert (code, "16 dimensions" in err, "levels=4" in err) == (2, True, True)
    code, _, err = cli("run", "--methods", "ensemble:bert_flow+untrained", *given)
    assert (code, "bert_flow" in err) == (2, True)
    code, _, err = cli("run", "--methods", "bert_flow", "--seeds", "1-2", *given)
    assert code == 0, err
    found = sorted(records(tmp_path).values(), key=lambda record: str(record.seed))
    assert [(record.seed, record.status) for record in found] == [(1, "ok"), (2, "ok")]
    assert all(one.score("TOY") != other.score("TOY") for one, other in pairwise(found))
