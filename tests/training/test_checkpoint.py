"""Checkpoints of trainings in progress: what they keep, when, and that nothing differs after a kill."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from torch import nn

from bench.config import profiles
from bench.data.corpus import Corpus
from bench.errors import BenchError, DataError, TerminatedError
from bench.execution import encoder_builder
from bench.execution.stage_cache import StageCache
from bench.nn.model_folder import hash_model
from bench.records.filesystem import hold_output, pretraining_lock
from bench.stages import Stage
from bench.training import checkpoint as checkpoints
from bench.training import masked_lm_training, pretraining
from bench.training.checkpoint import Checkpoint
from bench.training.mixed_precision import train_at_precision
from bench.training.momentum import MomentumCopy, VectorQueue
from bench.training.object_state import ObjectState, UnknownStateError
from bench.training.pretraining import checkpoint_path, pretrain
from bench.training.process_group import run_processes
from bench.training.state_file import pack_state, read_state, write_state
from bench.training.two_phase_step import WholeStep, prepare_steps
from tests.support.cli import Cli, refusal
from tests.support.killed import always as always
from tests.support.killed import contents, kill_at
from tests.support.rank_work import Resumed, Stop
from tests.support.stages import ensure
from tests.support.train import spec
from tests.support.training import train_alone
from tests.training.conftest import SETTINGS

METHODS = ["esimcse", "unsee_corinfomax", "pcl"]
OTHERS = ["simcse", "iscse", "crop", "m_barlow", "unsee_byol", "arccse", "whitenedcse", "vascl", "mixcse"]


@pytest.mark.parametrize("name", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_a_killed_training_goes_on_to_the_same_bytes(
    name: str, tiny_bert: Path, tmp_path: Path, always: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Queues, momentum copies, batch and covariance statistics, generators, peers."""
    length = {"steps": 7, "eval_every": 2, "batch_size": 16}
    length |= {"groups": 4} if name == "whitenedcse" else {}
    whole = contents(train_alone(name, tiny_bert, tmp_path, **length))
    path = tmp_path / "state.safetensors"
    for calls in (3, 4):
        with pytest.raises(KeyboardInterrupt):
            train_alone(name, tiny_bert, tmp_path, {"checkpoint": path, "progress": kill_at(calls)}, **length)
        torch.rand(calls)  # the next process's own random state
    given = {"checkpoint": path}
    resumed = train_alone(name, tiny_bert, tmp_path, given, **length)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["resumed after step 2", "resumed after step 4"]
    assert contents(resumed) == whole
    assert path.exists()  # the stage removes it once it is stored


def test_bfloat16_weights_keep_their_float32(tiny_bert: Path, tmp_path: Path, always: None) -> None:
    path = tmp_path / "state.safetensors"
    with train_at_precision("bf16-weights"):
        whole = contents(train_alone("simcse", tiny_bert, tmp_path))
        with pytest.raises(KeyboardInterrupt):
            train_alone("simcse", tiny_bert, tmp_path, {"checkpoint": path, "progress": kill_at(3)})
        assert contents(train_alone("simcse", tiny_bert, tmp_path, {"checkpoint": path})) == whole


class FakeProcess:
    """A running pretraining that a signal to its parent interrupts."""

    done: ClassVar[list[str]] = []

    def __init__(self, command: list[str], **_: Any) -> None:
        assert "pretrain" in command

    def __enter__(self) -> FakeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.done.append("waited for")

    def wait(self) -> int:
        raise KeyboardInterrupt

    def terminate(self) -> None:
        self.done.append("terminated")


def test_an_interrupted_run_lets_its_backbone_keep_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the pretraining was killed after a quarter of a second."""
    monkeypatch.setattr(subprocess, "Popen", FakeProcess)
    model = SimpleNamespace(command=("pretrain", "--profile", "mini"), path=Path("made"), name="mini-bert")
    with pytest.raises(KeyboardInterrupt):
        encoder_builder._run_pretraining(cast(Any, model))
    assert FakeProcess.done == ["terminated", "waited for"]


@pytest.mark.long
def test_processes_that_train_together_go_on(
    tiny_bert: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each has draws of its own, and the first one's file has those of all."""
    whole = run_processes(Resumed(tiny_bert, None), 2, device="cpu")
    path = tmp_path / "state.safetensors"
    with pytest.raises(Stop):
        run_processes(Resumed(tiny_bert, path, 4), 2, device="cpu")
    assert run_processes(Resumed(tiny_bert, path), 2, device="cpu") == whole
    assert capfd.readouterr().err.count("resumed after step 3") == 1


def test_short_trainings_keep_nothing(tiny_bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "states" / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_alone("simcse", tiny_bert, tmp_path, {"checkpoint": path, "progress": kill_at(3)})
    assert not path.parent.exists()


def test_another_or_damaged_checkpoint_is_not_used(
    tiny_bert: Path, tmp_path: Path, always: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.safetensors"

    def train(**changes: Any) -> dict[str, Any]:
        return contents(train_alone("simcse", tiny_bert, tmp_path, {"checkpoint": path}, **changes))

    def kill() -> None:
        path.unlink(missing_ok=True)
        with pytest.raises(KeyboardInterrupt):
            train_alone("simcse", tiny_bert, tmp_path, {"checkpoint": path, "progress": kill_at(3)})

    whole = contents(train_alone("simcse", tiny_bert, tmp_path))
    kill()
    hot = train(tau=0.5)  # its settings are the same, its objective is not
    assert "another training (start); training starts from its first step" in capsys.readouterr().err
    assert hot == contents(train_alone("simcse", tiny_bert, tmp_path, tau=0.5))
    kill()
    train(lr=1e-4)
    assert "another training (settings)" in capsys.readouterr().err
    kill()
    for damage in (path.read_bytes()[:-40] + b"x" * 40, path.read_bytes()[:1000], b"", b"no tensors"):
        path.write_bytes(damage)
        assert train() == whole
        assert "is not used: it" in capsys.readouterr().err
    path.unlink()
    os.mkfifo(path)
    assert train() == whole
    assert "is not used: it is no regular file" in capsys.readouterr().err


FORGED: list[tuple[str, Any]] = [
    *(("step", value) for value in (None, "3", -3, 0, 10**6)),
    *(("seconds", "3"), ("cpu_seconds", None), ("parts", {})),
]


@pytest.mark.parametrize(("name", "value"), FORGED)
def test_a_forged_checkpoint_is_not_used(
    name: str, value: Any, tiny_bert: Path, tmp_path: Path, always: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.safetensors"
    given = {"checkpoint": path}
    with pytest.raises(KeyboardInterrupt):
        train_alone("simcse", tiny_bert, tmp_path, given | {"progress": kill_at(3)})
    state = read_state(path, "cpu")
    write_state(path, *pack_state(state | {name: value}))
    assert contents(train_alone("simcse", tiny_bert, tmp_path, given)) == contents(
        train_alone("simcse", tiny_bert, tmp_path)
    )
    assert "is not used: it is no checkpoint of this training" in capsys.readouterr().err


def test_other_kernels_of_a_processor_start_again(
    tiny_bert: Path, tmp_path: Path, always: None, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    given = {"checkpoint": tmp_path / "state.safetensors"}
    with pytest.raises(KeyboardInterrupt):
        train_alone("simcse", tiny_bert, tmp_path, given | {"progress": kill_at(3)})
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    train_alone("simcse", tiny_bert, tmp_path, given)
    assert "another training (kernels)" in capsys.readouterr().err


def test_a_full_disk_costs_the_checkpoint_only(
    tiny_bert: Path, tmp_path: Path, always: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    given = {"checkpoint": tmp_path / "file" / "state.safetensors"}
    facts = train_alone("simcse", tiny_bert, tmp_path, given).facts
    assert facts["steps"] == 4
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("no checkpoint: ") and "can't be written" in line for line in lines)


def test_a_failing_training_leaves_none(
    tiny_bert: Path, tmp_path: Path, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.safetensors"
    with pytest.raises(BenchError, match="the loss is"):
        train_alone("simcse", tiny_bert, tmp_path, {"checkpoint": path}, lr=1e30)
    assert not path.exists()


def test_a_finished_stage_has_no_checkpoint(tmp_path: Path) -> None:
    cache, stage = StageCache(tmp_path), Stage(spec(), 1, "f" * 64)
    path = cache.checkpoint(stage)
    path.parent.mkdir()

    def fail(out: Path) -> dict[str, Any]:
        path.write_bytes(b"x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure(cache, stage, fail)
    assert path.exists()
    ensure(cache, stage, lambda out: {})
    assert not path.exists()
    path.write_bytes(b"killed before it was removed")
    other = cache.root / path.parent / f"{'e' * 64}.safetensors"
    other.write_bytes(b"of an unfinished stage")
    cache.clear_leftovers()
    assert [*path.parent.iterdir()] == [other]
    path.write_bytes(b"of a damaged stage that is made again")
    (cache.root / stage.key / "facts.json").write_text('{"edited": 1}')
    cache.clear_leftovers()
    assert path.exists()


@pytest.fixture
def handlers() -> Iterator[None]:
    """Let signals raise as on the command line."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TerminatedError if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_signal_waits_for_a_checkpoint(
    number: int, step: int, tiny_bert: Path, tmp_path: Path, handlers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checkpoint, "_is_late", lambda self: False)
    path, seen, usual = tmp_path / "state.safetensors", list[int](), signal.getsignal(number)

    def progress(sentences: int) -> None:
        seen.append(sentences)
        if len(seen) == step:
            signal.raise_signal(number)
            signal.raise_signal(number)  # from a terminal and a parent: one end

    whole = contents(train_alone("simcse", tiny_bert, tmp_path))
    kind = TerminatedError if number == signal.SIGTERM else KeyboardInterrupt
    with pytest.raises(kind):
        train_alone("simcse", tiny_bert, tmp_path, {"checkpoint": path, "progress": progress})
    assert (not path.exists(), len(seen)) == (True, step)  # before five minutes: at once
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    seen.clear()
    with pytest.raises(kind):
        train_alone("simcse", tiny_bert, tmp_path, {"checkpoint": path, "progress": progress})
    assert read_state(path, "cpu")["step"] == len(seen) == min(step + 1, 4)
    assert signal.getsignal(number) is usual
    assert contents(train_alone("simcse", tiny_bert, tmp_path, {"checkpoint": path})) == whole


def test_an_ignored_ctrl_c_stays_ignored(tiny_bert: Path, tmp_path: Path, always: None) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        given = {"checkpoint": tmp_path / "s", "progress": lambda _: signal.raise_signal(signal.SIGINT)}
        assert train_alone("simcse", tiny_bert, tmp_path, given).facts["steps"] == 4
    finally:
        signal.signal(signal.SIGINT, before)


def test_cpu_seconds_add_up(tmp_path: Path, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(100.0, 10.0)
    monkeypatch.setattr(time, "process_time", lambda: next(clock))

    def make() -> Checkpoint:
        made = Checkpoint(tmp_path / "s", {"of": "this"})
        assert made.resume(nn.Linear(2, 2), SETTINGS) in (0, 3)
        return made

    torch.manual_seed(1)
    first = make()
    first.begin_step(3)
    first.end_step(3)  # 10 seconds after it was made
    torch.manual_seed(1)
    second = make()
    assert second.cpu_seconds == 20.0


def test_data_survive_a_file(tmp_path: Path) -> None:
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T
    data: dict[Any, Any] = {
        "numbers": [1, -0.0, 1e-310, float("inf"), True, None, "é"],
        "tensors": (tensor, tensor[:0], torch.tensor(3)),
        ("a", 1): deque([1, 2], 4),
        2: {3, 4},
        "arrays": [np.arange(3, dtype=np.int16), np.float64(0.1)],
    }
    write_state(tmp_path / "s", *pack_state(data))
    back = read_state(tmp_path / "s", "cpu")
    assert torch.equal(back["tensors"][0], tensor)
    assert [x.shape for x in back["tensors"]] == [x.shape for x in data["tensors"]]
    np.testing.assert_array_equal(back["arrays"][0], data["arrays"][0])
    for name in ("numbers", ("a", 1), 2):
        assert back[name] == data[name]
    assert (back["a", 1].maxlen, str(back["numbers"][1])) == (4, "-0.0")
    content = (tmp_path / "s").read_bytes()
    for place in range(0, len(content), max(1, len(content) // 40)):
        (tmp_path / "s").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError):
            read_state(tmp_path / "s", "cpu")
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "none", "cpu")
    with pytest.raises(TypeError):
        pack_state([object()])


class Learner:
    """State in every place that an objective may have one."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.slow = MomentumCopy(self.net, 0.9)
        self.queue = VectorQueue(5)
        self.draws, self.dice = torch.Generator().manual_seed(1), np.random.default_rng(1)
        self.coins, self.seen, self.past = random.Random(1), 0, list[float]()  # noqa: S311
        self.places: dict[int, int] = {}
        self.recent = deque([torch.zeros(3)], 2)
        self.parts = (VectorQueue(2), [self.net])
        count = 0

        def loss(x: torch.Tensor) -> torch.Tensor:
            nonlocal count
            count += 1
            return x.square().mean() * count

        self.loss = loss
        self.net.register_forward_hook(self.note)

    def note(self, *_: Any) -> None:
        self.seen += 1

    def step(self) -> float:
        x = torch.randn(4, 3, generator=self.draws) * self.dice.random() + self.coins.random()
        out = self.net(x)
        loss = self.loss(out) + self.seen + len(self.places) + sum(map(float, map(torch.sum, self.recent)))
        torch.autograd.backward(loss)
        with torch.no_grad():
            for parameter in self.net.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None
        self.slow.update(self.net)
        self.queue.push(out.detach())
        self.parts[0].push(self.slow.model(x))
        self.recent.append(out.detach().mean(0))
        self.past.append(loss.item())
        self.places[self.seen] = len(self.past)
        self.late = out.detach().sum()  # first set in training
        return loss.item() + float(self.late) + float(self.parts[0].vectors.sum())  # type: ignore[union-attr]


def test_all_state_of_an_objective_is_found(tmp_path: Path) -> None:
    torch.manual_seed(1)
    one = Learner()
    state = ObjectState(one)
    for _ in range(3):
        one.step()
    write_state(tmp_path / "s", *pack_state(state.collect()))
    torch.manual_seed(1)
    other = Learner()
    again = ObjectState(other)
    assert again.digest() != ObjectState(one).digest()
    again.restore(read_state(tmp_path / "s", "cpu"))
    assert [other.step() for _ in range(4)] == [one.step() for _ in range(4)]
    assert other.parts[1][0] is other.net
    assert other.past == one.past


def switched(learner: Any) -> None:
    learner.loss = torch.sum


def grown(learner: Any) -> None:
    learner.parts[1].append(nn.Linear(1, 1))


def dropped(learner: Any) -> None:
    del learner.seen


@pytest.mark.parametrize("change", [switched, grown, dropped])
def test_changes_that_a_new_process_lacks_are_refused(change: Callable[[Any], None]) -> None:
    learner = Learner()
    state = ObjectState(learner)
    change(learner)
    with pytest.raises(UnknownStateError):
        state.collect()


def test_a_training_whose_state_is_unknown_goes_on_without(
    tmp_path: Path, always: None, capsys: pytest.CaptureFixture[str]
) -> None:
    net = nn.Linear(2, 2)
    net.numbers = itertools.count()  # type: ignore[assignment]
    checkpoint = Checkpoint(tmp_path / "s")
    assert checkpoint.resume(WholeStep(net), SETTINGS) == 0
    with checkpoint.running():
        for step in (1, 2):
            checkpoint.begin_step(step)
            checkpoint.end_step(step)
    (line,) = capsys.readouterr().err.splitlines()
    assert "no checkpoints of this training" in line
    assert "itertools.count" in line
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_held_step_is_prepared_only_when_it_is_asked_for(ahead: bool) -> None:
    made = list[int]()

    class Counting(WholeStep):
        def prepare(self, batch: Any) -> list[Any]:
            made.append(len(made) + 1)
            return list(batch)

    held = [False]
    steps = prepare_steps(Counting(nn.Linear(1, 1)), lambda: [0], 4, ahead=ahead, hold=lambda: held[0])
    next(steps)
    held[0] = True
    next(steps)
    assert made == [1, 2]
    held[0] = False
    assert len([*steps]) == 2
    assert made == [1, 2, 3, 4]


def test_a_killed_pretraining_goes_on_to_the_same_bytes(
    text: Corpus, tmp_path: Path, always: None, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {"seed": 1, "command": "c"}
    whole = pretrain(text, SETTINGS, out=tmp_path / "whole", **given)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
    for calls in (4, 5):
        with pytest.raises(KeyboardInterrupt):
            pretrain(text, SETTINGS, out=tmp_path / "m", progress=kill_at(calls), **given)
    assert checkpoint_path(tmp_path / "m").exists()
    facts = pretrain(text, SETTINGS, out=tmp_path / "m", **given)
    assert "resumed after step 6" in capsys.readouterr().err
    assert hash_model(tmp_path / "m") == hash_model(tmp_path / "whole")
    del facts["cpu_seconds"], whole["cpu_seconds"]
    assert facts == whole
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "m"}


def test_a_pretraining_by_time_has_the_rest_of_it(text: Corpus, tmp_path: Path, always: None) -> None:
    given: dict[str, Any] = {"seed": 1, "command": "c", "out": tmp_path / "m", "minutes": 0.05}
    with pytest.raises(KeyboardInterrupt):
        pretrain(text, SETTINGS, progress=kill_at(4), **given)
    facts = pretrain(text, SETTINGS, **given)
    assert facts["loss_curve"][-1][0] > 4
    assert json.loads((tmp_path / "m" / "pretraining.json").read_text())["minutes"] == 0.05


def test_other_settings_of_a_pretraining_start_again(
    text: Corpus, tmp_path: Path, always: None, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {"seed": 1, "command": "c"}
    other = replace(SETTINGS, lr=SETTINGS.lr / 2)
    with pytest.raises(KeyboardInterrupt):
        pretrain(text, other, out=tmp_path / "m", progress=kill_at(4), **given)
    pretrain(text, SETTINGS, out=tmp_path / "m", **given)
    assert "is not used: it belongs to another training (settings)" in capsys.readouterr().err
    pretrain(text, SETTINGS, out=tmp_path / "n", **given)
    assert hash_model(tmp_path / "m") == hash_model(tmp_path / "n")


@pytest.mark.parametrize(
    ("every", "said"),
    [
        (
            300.0,
            "interrupted; a training's first five minutes have no checkpoint: the command starts again",
        ),
        (0.0, "interrupted; repeat the command to resume from made-checkpoint.safetensors"),
    ],
)
def test_an_interrupted_pretraining_says_what_it_kept(
    every: float, said: str, text: Corpus, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it said that finished cells are kept and that the same command resumes."""
    mini, train = (
        replace(profiles.load_profile("mini"), pretrain=asdict(SETTINGS)),
        masked_lm_training.train_mlm,
    )
    monkeypatch.setattr(profiles, "load_profile", lambda name: mini)
    monkeypatch.setattr(checkpoints, "EVERY", every)

    def train_until_interrupted(*given: Any, **named: Any) -> Any:
        return train(*given, **named | {"progress": kill_at(3)})

    monkeypatch.setattr(pretraining, "train_mlm", train_until_interrupted)
    (tmp_path / "own.txt").write_text("\n".join(text.sentences))
    code, _, err = cli("pretrain", "--corpus", "own.txt", "--out", "made")
    assert (code, err.splitlines()[-1]) == (130, said)
    assert (tmp_path / "made-checkpoint.safetensors").exists() is (not every)


def test_a_full_disk_costs_a_pretraining_its_copy_only(
    text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pretraining, "_SECONDS", 0.0)
    monkeypatch.setattr(pretraining, "replace_folder", full)
    pretrain(text, SETTINGS, out=tmp_path / "m", seed=1, command="c", say=said.append)
    assert [line for line in said if "m-unfinished can't be written: No space left" in line]
    assert (tmp_path / "m" / "model.safetensors").exists()


def test_one_pretraining_writes_a_folder(text: Corpus, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("\n".join(text.sentences))
    with hold_output(tmp_path / "made", pretraining_lock(tmp_path / "made")):
        err = refusal(cli, "pretrain", "--corpus", "own.txt", "--out", "made")
        assert "another process is making this" in err
    assert not [*tmp_path.glob(".made*")]
