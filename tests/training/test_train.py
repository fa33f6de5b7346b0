"""Random streams, batches, chunks, objectives, the training loop and the stage cache."""

from __future__ import annotations

import itertools
import json
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel

from bench.data.corpus import read_corpus
from bench.errors import BenchError, DataError
from bench.execution.stage_cache import StageCache
from bench.plan.job import assign_stage_keys
from bench.stages import Stage, StageSpec
from bench.training.batch_encoding import pooled_states
from bench.training.loop import FIRST_STEPS, TrainSettings, learning_rate, order_batches, train
from bench.training.randomness import generator, own_random_state, stream_seed, use_deterministic_kernels
from bench.training.two_phase_step import Objective, WholeStep, as_objective, prepare_steps
from tests.support.stages import ensure
from tests.support.train import spec

SETTINGS = TrainSettings(lr=0.1, batch_size=2, steps=6, eval_every=2)
ROWS = [[2, 5, 3], [2, 6, 7, 3], [2, 8, 3], [2, 9, 5, 6, 3], [2, 3]]


def test_streams_are_apart_and_repeat() -> None:
    assert stream_seed(1, "order") == stream_seed(1, "order")
    assert len({stream_seed(seed, name) for seed in range(50) for name in ("order", "head/sub1", "a")}) == 150
    assert 0 <= stream_seed(1, "x") < 2**63
    assert not torch.equal(*(torch.rand(3, generator=generator(1, name)) for name in ("a", "b")))


def test_own_random_state_is_put_back() -> None:
    before = torch.get_rng_state()
    with own_random_state(1, "dropout"):
        one = torch.rand(3)
    torch.rand(1)
    with own_random_state(1, "dropout"):
        assert torch.equal(one, torch.rand(3))
    torch.set_rng_state(before)
    with own_random_state(2, "dropout"):
        torch.rand(5)
    assert torch.equal(before, torch.get_rng_state())


def test_batches_cover_each_epoch_once_with_its_short_last() -> None:
    def take(number: int, count: int, size: int, seed: int, corpus: str = "c") -> list[list[int]]:
        return list(itertools.islice(order_batches(count, size, seed, corpus), number))

    first = take(6, 5, 2, 1)
    assert [len(batch) for batch in first] == [2, 2, 1, 2, 2, 1]
    for epoch in (first[:3], first[3:]):
        assert sorted(itertools.chain(*epoch)) == [0, 1, 2, 3, 4]
    assert first[:3] != first[3:]
    assert first == take(6, 5, 2, 1)
    assert take(3, 500, 64, 1) != take(3, 500, 64, 2)
    assert take(3, 500, 64, 1) != take(3, 500, 64, 1, "d")


def test_learning_rates() -> None:
    rates = [learning_rate(SETTINGS, step) for step in range(1, 7)]
    assert rates == pytest.approx([0.1 * left / 6 for left in (6, 5, 4, 3, 2, 1)])
    constant = replace(SETTINGS, schedule="constant")
    assert [learning_rate(constant, step) for step in (1, 6)] == [0.1, 0.1]


@pytest.mark.parametrize("budget", [None, 1, 6, 9])
def test_chunks_give_the_same_states_and_gradient(tiny_bert: Path, budget: int | None) -> None:
    def run(budget: int | None) -> tuple[Tensor, dict[str, Tensor]]:
        model = AutoModel.from_pretrained(tiny_bert, dtype=torch.float64).eval()
        states = pooled_states(model, ROWS, 0, budget=budget)
        torch.autograd.backward((states * torch.arange(1.0, 6.0, dtype=torch.float64)[:, None]).pow(2).sum())
        return states.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}

    whole, whole_gradient = run(0)
    states, gradient = run(budget)
    torch.testing.assert_close(states, whole, rtol=1e-9, atol=1e-9)
    assert gradient.keys() == whole_gradient.keys()
    assert len(gradient) > 40
    for name in gradient:
        torch.testing.assert_close(gradient[name], whole_gradient[name], rtol=1e-7, atol=1e-7)


class Toy(nn.Module):
    """One weight; the loss pulls it to 3."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(start))

    def forward(self, rows: list[list[int]]) -> Tensor:
        assert self.training
        return (self.weight - 3) ** 2


def run_toy(scores: list[float], settings: TrainSettings = SETTINGS, start: float = 0.0, **more: Any) -> Any:
    toy, remaining = Toy(start), iter(scores)

    def dev_score() -> float:
        assert not toy.training
        return next(remaining)

    return train(toy, toy, ROWS, settings, seed=1, corpus="c", dev_score=dev_score, **more)


def test_who_watches_hears_of_every_step_and_of_every_evaluation_the_norm_before_clipping() -> None:
    heard: list[Any] = []
    watched = run_toy([0.5, 0.7, 0.7], report=heard.append)
    plain = run_toy([0.5, 0.7, 0.7])
    assert (watched.losses, watched.curve, watched.last) == (plain.losses, plain.curve, plain.last)
    steps, found = ([news for news in heard if ("dev" in news) == asked] for asked in (False, True))
    assert [news["step"] for news in steps] == [1, 2, 3, 4, 5, 6]
    assert {news["steps"] for news in steps} == {6}
    assert tuple(news["loss"] for news in steps) == plain.losses
    assert [news["rate"] for news in steps] == [learning_rate(SETTINGS, step) for step in range(1, 7)]
    assert tuple(found) == watched.evaluations == plain.evaluations
    for news, (step, score) in zip(found, plain.curve, strict=True):
        assert (news["step"], news["dev"], news["loss"]) == (step, score, plain.losses[step - 1])
        # the loss is (w - 3)^2, its gradient 2 (w - 3)
        assert news["gradient_norm"] == pytest.approx(2 * news["loss"] ** 0.5)
    assert watched.norms == pytest.approx([2 * loss**0.5 for loss in plain.losses])
    unclipped = run_toy([0.5] * 3, replace(SETTINGS, clip=0.0))
    assert (unclipped.evaluations[0]["gradient_norm"], unclipped.norms) == (None, ())
    long = run_toy([0.5] * 10, replace(SETTINGS, steps=20))
    assert len(long.norms) == FIRST_STEPS


def test_the_strictly_best_checkpoint_is_kept() -> None:
    result = run_toy([0.5, 0.7, 0.7])
    assert result.curve == ((2, 0.5), (4, 0.7), (6, 0.7))
    assert result.best_step == 4  # equal is not better
    assert result.best["weight"] != result.last["weight"]
    assert result.sentences == 2 + 2 + 1 + 2 + 2 + 1
    assert len(result.losses) == 6
    assert result.losses[0] == 9
    assert run_toy([0.1, 0.2, 0.3]).best_step == 6
    assert run_toy([0.3, 0.2, 0.1]).best_step == 2


def test_runs_shorter_than_the_interval_and_one_step_by_hand() -> None:
    result = run_toy([], replace(SETTINGS, steps=1))
    clipped = -6 / (6 + 1e-6)  # the gradient -6 clipped to norm 1
    step = 0.1 * clipped / (abs(clipped) + 1e-8)
    assert float(result.last["weight"]) == pytest.approx(-step, rel=1e-6)
    result = run_toy([], replace(SETTINGS, steps=3, eval_every=4))
    assert (result.curve, result.best_step) == ((), 3)
    assert torch.equal(result.best["weight"], result.last["weight"])


def test_training_stops_at_a_loss_that_is_not_finite() -> None:
    with pytest.raises(BenchError, match="nan at step 1; try a smaller learning rate"):
        run_toy([], start=math.nan)
    with pytest.raises(BenchError, match="no sentence"):
        train(Toy(), Toy(), [], SETTINGS, seed=1, corpus="c", dev_score=lambda: 0.0)


def test_corpus(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"one  two\n\nthree\r\nfour\nfive")
    corpus, cut = read_corpus(path), read_corpus(path, (3, 4))
    assert (len(corpus.sentences), corpus.sentences[:2]) == (4, ("one two", "three"))
    assert cut.sentences == ("one two", "five")
    assert len({corpus.sha256, cut.sha256}) == 2
    for content, message in ((b"one\n\xff\n", r"text.txt:2: .*utf-8"), (b"\n \n", "is empty")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_corpus(path)


def key(*specs: StageSpec, seed: int = 1, **fingerprints: str) -> str:
    texts = {"train": str(fingerprints.pop("corpus", "text")), "a": "copy"}
    return assign_stage_keys(specs or (spec(),), seed, {"model": "m", **fingerprints}, texts)[-1].key


def test_everything_that_matters_changes_the_key() -> None:
    base, rate = key(), (("lr", 0.2),)
    assert base == key()
    specs = (spec(version=2), spec(kind="l"), spec(role="b"), spec(config=rate), spec(text="a"))
    others = [*map(key, specs), key(seed=2), key(model="n"), key(corpus="c")]
    assert len({base, *others}) == 9
    joint = spec("joint", inputs=("a",))
    assert key(spec(), joint) != key(spec(config=rate), joint)


def test_stages_are_trained_once_and_checked_before_use(tmp_path: Path) -> None:
    cache, stage = StageCache(tmp_path), Stage(spec(), 1, "f" * 64)
    runs: list[Path] = []

    def work(out: Path) -> dict[str, Any]:
        runs.append(out)
        (out / "model").mkdir()
        (out / "model" / "weights").write_bytes(b"abc")
        return {"steps": 3}

    assert cache.find(stage) is None
    folder = ensure(cache, stage, work)
    assert folder is not None
    assert ensure(cache, stage, work) == folder == cache.find(stage)
    assert cache.facts(stage) == {"steps": 3}
    assert len(runs) == 1
    (folder / "model" / "weights").write_bytes(b"abd")
    assert cache.find(stage) is None
    ensure(cache, stage, work)
    assert (folder / "model" / "weights").read_bytes() == b"abc"
    (folder / "MANIFEST.json").write_text(json.dumps({}))
    ensure(cache, stage, work)
    assert len(runs) == 3


def test_a_failed_or_killed_stage_leaves_nothing_to_be_taken_for_finished(tmp_path: Path) -> None:
    cache, stage = StageCache(tmp_path), Stage(spec(), 1, "f" * 64)
    (tmp_path / f".{stage.key}.killed.tmp").mkdir(parents=True)

    def fail(out: Path) -> dict[str, Any]:
        (out / "half").write_bytes(b"x")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        ensure(cache, stage, fail)
    assert cache.find(stage) is None
    assert {path.name for path in tmp_path.iterdir()} == {f".{stage.key}.lock", ".probe.lock"}


def test_cuda_trains_with_deterministic_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def settings() -> tuple[bool, bool, bool]:
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            getattr(torch.utils.deterministic, "fill_uninitialized_memory"),  # noqa: B009
        )

    before = settings()
    for given, device, expected in (
        (None, "cuda:1", (":4096:8", (True, True, False))),
        (":16:8", "cuda", (":16:8", (True, True, False))),
        (None, "cpu", (None, before)),
    ):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", given or "")
        if given is None:
            monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
        with pytest.raises(ZeroDivisionError), use_deterministic_kernels(device):  # noqa: PT012
            assert (os.environ.get("CUBLAS_WORKSPACE_CONFIG"), settings()) == expected
            raise ZeroDivisionError
        assert settings() == before


class Noisy(Objective):
    """One weight against numbers and noise of its own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.draws = torch.Generator().manual_seed(1)
        self.threads: set[str] = set()
        self.reason: str | None = None

    def prepare(self, batch: Sequence[float]) -> dict[str, Tensor]:
        self.threads.add(threading.current_thread().name)
        return {"x": torch.tensor(batch) + torch.rand((), generator=self.draws)}

    def compute(self, prepared: dict[str, Tensor]) -> Tensor:
        return ((self.weight - prepared["x"]) ** 2).mean()

    def why_not_finite(self) -> str | None:
        return self.reason


def run(objective: Any, *numbers: float) -> tuple[float, ...]:
    encoder, settings = as_objective(objective).module, replace(SETTINGS, steps=4, eval_every=9)
    rows: Any = numbers
    return train(objective, encoder, rows, settings, seed=1, corpus="x", dev_score=lambda: 0.0).losses


def steps(objective: Objective, *, ahead: bool) -> list[tuple[int, float]]:
    batches = iter([[1.0, 2.0], [3.0], [4.0, 5.0]])
    found = prepare_steps(objective, lambda: next(batches), 3, ahead=ahead)
    return [(count, float(objective.compute(prepared).detach())) for count, prepared in found]


def test_a_step_ahead_prepares_the_same() -> None:
    here, ahead = Noisy(), Noisy()
    assert steps(here, ahead=False) == steps(ahead, ahead=True)
    assert here.threads == {threading.current_thread().name}
    assert ahead.threads != here.threads
    one, two = Noisy(), Noisy()
    whole = float(one([1.0, 2.0]).detach())
    assert whole == float(two.compute(two.prepare([1.0, 2.0])).detach()) > 0


@pytest.mark.parametrize("ahead", [False, True])
def test_an_error_of_the_hosts_half_ends_the_training(ahead: bool) -> None:
    class Broken(Noisy):
        def prepare(self, batch: Sequence[float]) -> dict[str, Tensor]:
            if batch == [3.0]:
                raise BenchError("no second batch")
            return super().prepare(batch)

    with pytest.raises(BenchError, match="no second batch"):
        steps(Broken(), ahead=ahead)


def test_a_plain_module_trains_as_one_half() -> None:
    whole = Noisy()
    plain = nn.ModuleDict({"trained": whole.module})
    plain.forward = whole.__call__
    assert isinstance(as_objective(plain), WholeStep)
    losses = run(plain, 1.0, 2.0, 3.0)
    assert losses == run(Noisy(), 1.0, 2.0, 3.0)
    assert len(losses) == 4


def test_an_objective_says_what_its_loss_is_not_a_number_from() -> None:
    objective = Noisy()
    for message in ("the loss is nan at step 1", r"^the teacher is broken$"):
        with pytest.raises(BenchError, match=message):
            run(objective, float("nan"), float("nan"))
        objective.reason = "the teacher is broken"
