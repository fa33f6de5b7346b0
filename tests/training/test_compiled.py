"""Compiled steps: one graph for each objective, equal to the plain one; shapes, fallbacks, the command."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, BertForMaskedLM, BertModel

from bench.errors import BenchError
from bench.nn.tokens import BUCKET
from bench.registry import discover
from bench.stages import TrainedMethod
from bench.training import two_phase_step as compiled
from bench.training.batch_encoding import token_batch
from bench.training.two_phase_step import CompiledHalf, Objective, compile_device_half, compile_steps
from tests.support.cli import Cli, records
from tests.support.messages import missing_facts
from tests.support.rank_work import Gradients, Stop, in_float64
from tests.support.ranks import CASES, arguments
from tests.support.twins import tower
from tests.training.conftest import check_one_difference, rerun_all

SEVERAL_LAYERS = ("infocse", "jtcse")
"""Methods that need more than one layer."""
Step = tuple[float, dict[str, Tensor], bool]


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No graph of another test, and no line that was said there."""
    monkeypatch.setattr(compiled, "_told", set())
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def shallow(tiny_bert: Path, tiny_mlm: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The tiny models with one layer: a graph is traced layer by layer, all alike."""
    folder = tmp_path_factory.mktemp("shallow")
    made: list[Path] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for source, kind in ((tiny_bert, BertModel), (tiny_mlm, BertForMaskedLM)):
            made.append(Path(shutil.copytree(source, folder / source.name)))
            kind(AutoConfig.from_pretrained(source, num_hidden_layers=1)).save_pretrained(made[-1])
    return made[0], made[1]


def trained() -> list[str]:
    """Every registered method with a stage that none of CASES has; students share theirs."""
    registry, kinds = discover(), dict[str, str]()
    for name in [*CASES, *registry.names()]:
        method = registry.get(CASES[name][0] if name in CASES else name)
        if isinstance(method, TrainedMethod) and not method.card.takes_methods and name != "released":
            stages = method.stages({option.name: option.default for option in method.card.options})
            if stages:
                kinds.setdefault(stages[-1].kind, name)
    return [name for name in kinds.values() if name not in CASES]


def case_of(name: str) -> tuple[str, Any, str]:
    if name in CASES:
        return CASES[name]
    method: Any = discover().get(name)
    rtt = {"rtt": "none"} if any(option.name == "rtt" for option in method.card.options) else {}
    options = {option.name: option.default for option in method.card.options} | rtt
    return name, rtt, method.stages(options)[-1].role


def first_step(
    found: list[Step], way: str, objective: Any, encoder: Any, rows: Any, settings: Any, **_: Any
) -> None:
    assert isinstance(objective, Objective), "its step is not in two halves"
    objective.double().train()
    with compile_steps("inductor"):
        prepared = objective.prepare([rows[index] for index in range(settings.batch_size)])
    half = CompiledHalf(objective.compute, way or "eager")
    loss = half(prepared) if way else objective.compute(prepared)
    torch.autograd.backward(loss)
    named = objective.named_parameters()
    found.append((float(loss.detach()), {n: p.grad for n, p in named if p.grad is not None}, half.whole))
    raise Stop


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["simcse", *(pytest.param(n, marks=pytest.mark.long) for n in [*CASES, *trained()] if n != "simcse")],
)
def test_the_second_half_is_one_graph_of_the_same_value(
    name: str, tiny_bert: Path, tiny_mlm: Path, shallow: tuple[Path, Path], tmp_path: Path
) -> None:
    models = (tiny_bert, tiny_mlm) if name in SEVERAL_LAYERS else shallow
    shutil.copytree(models[0], tmp_path / "sub" / "selected")
    found: list[Step] = []
    with in_float64():
        for way in ("", "eager"):
            work = Gradients({}, *models, tmp_path / "sub")
            work.of(*case_of(name), tmp_path / f"out-{way}", partial(first_step, found, way))
    (loss, gradients, _), (again, same, whole) = found
    assert whole
    assert again == pytest.approx(loss, rel=1e-9, abs=1e-12)
    assert same.keys() == gradients.keys()
    for each, gradient in gradients.items():
        torch.testing.assert_close(same[each], gradient, rtol=1e-6, atol=1e-9, msg=each)


def test_a_compiled_step_gets_one_chunk_of_few_shapes() -> None:
    rows, model = [[1, 2], [3] * 11, [4] * 9], tower(("bert", "sdpa"), 0)
    plain = token_batch(rows, 0, model)
    with compile_steps("inductor"):
        batch, short = token_batch(rows, 0, model), token_batch([[5] * BUCKET], 0, model)
        cut = token_batch(rows, 0, model, budget=12)
    assert plain.known is not None
    assert plain.chunks[0].ids.shape == (3, 11)
    (chunk,) = batch.chunks
    assert (chunk.ids.shape, batch.known, batch.place.tolist()) == ((3, 2 * BUCKET), None, [0, 1, 2])
    assert chunk.attention is not None
    assert torch.equal(chunk.attention[:, 0, 0].long(), chunk.mask)
    assert chunk.mask.sum(1).tolist() == [2, 11, 9]
    assert short.chunks[0].attention is not None  # nothing is padded: the same graph
    assert len(cut.chunks) > 1  # who asks for chunks gets them


def test_a_half_without_a_graph_is_compiled_in_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def with_a_branch_of_the_data(values: Tensor) -> Tensor:
        return values.sum() * 2 if values.sum() > 0 else values.sum()

    values = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    with compile_steps("inductor"):
        for _ in range(2):
            torch.compiler.reset()
            half = CompiledHalf(with_a_branch_of_the_data, "eager")
            assert [float(half(values).detach()) for _ in range(2)] == [4.0, 4.0]
            assert not half.whole
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not missing_facts(said, "--compile inductor", "in parts")


def test_a_plain_module_is_not_compiled_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def whole_step(rows: list[list[int]]) -> Tensor:
        return torch.tensor(float(len(rows)))

    assert compile_device_half(whole_step, plain=True) is whole_step
    with compile_steps("inductor"):
        assert compile_device_half(whole_step, plain=True) is whole_step
        assert isinstance(compile_device_half(whole_step), CompiledHalf)
    assert compile_device_half(whole_step) is whole_step
    assert not missing_facts(capsys.readouterr().err, "--compile inductor", "not compiled")


def test_a_backend_that_fails_is_one_error() -> None:
    def fails(graph: Any, inputs: Any) -> Callable[..., Any]:
        raise RuntimeError("no compiler here\nand more")

    half = CompiledHalf(lambda values: values * 2, "eager")
    half._run = torch.compile(half._compute, backend=fails)
    with pytest.raises(BenchError, match=r"can't be compiled: .*no compiler here.*; .*g\+\+"):
        half(torch.ones(2))
    half = CompiledHalf(lambda values: values @ torch.ones(3, 3), "eager")
    with pytest.raises(Exception, match=r"size|shape"):  # an error of the step itself
        half(torch.ones(2, 2))


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        (("--compile", "graphs"), ("--compile graphs", "CPU", "inductor or none")),
        (("--compile", "inductor", "--ranks", "2"), ("--compile inductor", "2 processes", "--ranks 1")),
        (("gradient", "simcse", "--out", "g", "--compile", "inductor"), ("--compile none",)),
        (("gradient", "simcse", "--out", "g", "--ranks", "2"), ("--ranks 1",)),
        (("gradient", "simcse", "--out", "g", "--train-precision", "bf16"), ("precision bf16", "fp32")),
        (("--train-precision", "tf32"), ("--train-precision tf32", "fp32 or bf16")),
    ],
)
def test_where_an_option_of_training_has_no_place(
    more: tuple[str, ...], facts: tuple[str, ...], cli: Cli, tiny_bert: Path, corpus: Path
) -> None:
    run = arguments(tiny_bert, corpus)
    given = (*more, *run[5:]) if more[0] == "gradient" else (*run, *more)
    code, _, err = cli(*given)
    assert code == 2
    assert not missing_facts(err, *facts)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_command_trains_compiled_steps(
    cli: Cli, tmp_path: Path, shallow: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "kernels"))
    make, plainly = CompiledHalf.__init__, CompiledHalf.__call__
    calls: list[bool] = []

    def counted(half: CompiledHalf, prepared: Any) -> Tensor:
        calls.append(half.whole)
        return plainly(half, prepared)

    monkeypatch.setattr(CompiledHalf, "__init__", lambda half, compute, _: make(half, compute, backend))
    monkeypatch.setattr(CompiledHalf, "__call__", counted)
    base = arguments(shallow[0], corpus)
    assert cli(*base)[0] == 0
    assert calls == []
    code, _, err = cli(*base, "--compile", "inductor", "--campaign", "made")
    assert code == 0, err
    assert calls == [True] * 4
    (plain,), (made,) = (list(records(tmp_path, name).values()) for name in ("local", "made"))
    assert "compiled" not in plain.training
    check_one_difference(plain, made, "compilation then none, now inductor")
    one, other = (record.training["stages"]["simcse"] for record in (plain, made))
    assert one["key"] != other["key"]
    assert other["last_loss"] == pytest.approx(one["last_loss"], abs=1e-5)
    values = [[score.value for score in record.scores] for record in (plain, made)]
    np.testing.assert_allclose(values[1], values[0], atol=0.01)
    rerun_all(cli, tmp_path / "results" / "made", shallow[0], corpus)
