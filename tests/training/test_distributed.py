"""Several processes that train one encoder: the arithmetic, the gradients of one process, the command."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from bench import __main__ as command
from bench.errors import BenchError, CellFailedError, InputError
from bench.training import distributed, process_group
from bench.training.process_group import check_devices, run_processes
from bench.training.randomness import own_random_state
from tests.support.cli import Cli, records
from tests.support.messages import missing_facts, numbers_in
from tests.support.rank_work import Gradients, Together, encode_shares
from tests.support.ranks import CASES, arguments
from tests.training.conftest import check_equal, check_one_difference

DTYPE = torch.float64


@pytest.fixture(autouse=True)
def no_ranks() -> Iterator[None]:
    yield
    distributed._ranks.clear()


class Others:
    """In the place of the processes' talk: what each of them encodes is known before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shares: list[Tensor] = []
        self.gradients: list[Tensor] = []
        monkeypatch.setattr(torch.distributed, "all_gather", self.all_gather)
        monkeypatch.setattr(torch.distributed, "all_reduce", self.all_reduce)

    def all_gather(self, parts: list[Tensor], own: Tensor) -> None:
        (ranks,) = distributed._ranks
        self.shares[ranks.rank : ranks.rank + 1] = [own.detach().clone()]
        for part, share in zip(parts, self.shares, strict=False):
            part.copy_(share)

    def all_reduce(self, flat: Tensor) -> None:
        flat.copy_(torch.stack(self.gradients).sum(0))


def rows(*lengths: int) -> list[list[int]]:
    return [[i] * length for i, length in enumerate(lengths)]


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("lengths", [(4, 1, 3, 2, 9), (1, 1, 1, 1, 1, 1), (2,), (5, 1)])
def test_shares_are_the_batch(size: int, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    batch, others = rows(*lengths), Others(monkeypatch)
    table = torch.randn(len(batch), 3, dtype=DTYPE, generator=torch.Generator().manual_seed(1))
    weight = nn.Parameter(torch.eye(3, dtype=DTYPE) + 0.1)
    head = nn.Parameter(torch.full((3,), 0.7, dtype=DTYPE))
    encoded: list[int] = []

    def encode(own: Any) -> Tensor:
        encoded.append(len(own))
        return torch.stack([len(row) * table[row[0]] for row in own]) @ weight

    def loss(vectors: Tensor) -> Tensor:  # every row meets every row, and both parameters come again after
        return ((vectors @ vectors.T).exp().log1p() @ (vectors @ (weight @ head))).sum() + head.square().sum()

    def gradient() -> Tensor:
        weight.grad = head.grad = None
        torch.autograd.backward(loss(encode_shares(batch, encode)))
        assert weight.grad is not None
        assert head.grad is not None
        return torch.cat([weight.grad.flatten(), head.grad])

    expected = gradient()
    assert encoded == [len(batch)]
    for _ in range(2):  # in the first round the shares become known
        others.gradients = []
        for rank in range(size):
            distributed._ranks[:] = [
                distributed.Ranks(rank, size, "cpu", distributed.get_random_states("cpu"))
            ]
            with torch.no_grad():
                found = encode_shares(batch, encode)
            others.gradients.append(gradient())
    assert torch.equal(found, torch.stack([len(row) * table[row[0]] for row in batch]) @ weight.detach())
    assert set(encoded[1:]) == {-(-len(batch) // size)}  # shares are of one size
    distributed.average_gradients([weight, head])
    assert weight.grad is not None
    assert head.grad is not None
    torch.testing.assert_close(torch.cat([weight.grad.flatten(), head.grad]), expected, rtol=1e-12, atol=0)


def test_the_dropout_of_a_share_has_a_stream_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Others(monkeypatch)
    drawn: list[float] = []

    def encode(own: Any) -> Tensor:
        vectors = torch.rand(len(own), 1)
        drawn.append(float(vectors[0]))
        return vectors

    for seed in (1, 2):
        with own_random_state(seed, "dropout/joint"):
            common = float(torch.rand(()))
        for rank in (0, 1):
            distributed._ranks[:] = [distributed.Ranks(rank, 2, "cpu")]
            distributed.seed_draws(seed, "dropout/joint")
            with own_random_state(seed, "dropout/joint"):
                for _ in range(2):
                    encode_shares(rows(1, 1), encode)
                assert float(torch.rand(())) == common
        drawn.append(common)
    assert len(set(drawn)) == len(drawn) == 10


def test_alone_nothing_changes() -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), 3.0)
    distributed.average_gradients([parameter])
    assert parameter.grad.tolist() == [3.0, 3.0]
    distributed.seed_draws(1, "dropout")
    assert distributed.broadcast_from_first(lambda: 0.25) == 0.25
    assert distributed.sum_over_processes(2.0) == 2.0
    shares = encode_shares(rows(3, 1), lambda own: torch.tensor([[float(len(row))] for row in own]))
    assert shares.tolist() == [[3], [1]]


def test_fewer_devices_than_processes_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    check_devices(8, "cpu")
    check_devices(1, "cuda")
    with pytest.raises(InputError) as caught:
        check_devices(4, "cuda")
    assert (caught.value.where, caught.value.expected) == ("--ranks 4", "at most 1")
    assert numbers_in(caught.value.what) == [4, 1]


def test_torchruns_first_leads(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "0"}
    with monkeypatch.context() as context:
        for name, value in (*given.items(), ("RANK", "3"), ("BENCH_RANKS", "1")):
            context.setenv(name, value)
        with pytest.raises(SystemExit) as left:
            command._start_torchrun_leader()
        assert left.value.code == 0
        context.setenv("RANK", "0")
        context.setenv("LOCAL_WORLD_SIZE", "2")
        with pytest.raises(SystemExit) as refused:
            command._start_torchrun_leader()
        assert refused.value.code == 2
        assert not missing_facts(capsys.readouterr().err, "4 processes", "several machines")
        context.setenv("LOCAL_WORLD_SIZE", "4")
        command._start_torchrun_leader()
        assert os.environ["BENCH_RANKS"] == "4"
        assert not {*given, "RANK"} & os.environ.keys()
        command._start_torchrun_leader()


@pytest.mark.long
def test_two_processes_are_one(
    objectives: Gradients, found_alone: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []
    with pytest.raises(BenchError, match="no luck; try again") as failed:
        run_processes(Together(objectives, tmp_path / "found"), 2, device="cpu", progress=seen.append)
    assert not missing_facts(failed.value.__notes__[0], "in process 1 of 2", 'raise BenchError("no luck"')
    known, found = pickle.loads((tmp_path / "found").read_bytes())  # noqa: S301 - theirs
    assert known.pop("draw") is not None
    numbers = {"threads": torch.get_num_threads(), "lengths": [1.0, 3.0, 2.0], "total": 1.5}
    assert known == {"first": True, "size": 2, "scratch": True, **numbers}
    assert seen == [3]
    assert capfd.readouterr().out.count("\n") == 1
    assert found.keys() == CASES.keys()
    check_equal(found, found_alone)


@pytest.mark.parametrize(
    ("code", "kind", "said"), [(130, KeyboardInterrupt, None), (-9, CellFailedError, "process 1 of the 2")]
)
def test_a_silent_end_is_an_interrupt_or_kill(code: int, kind: type[BaseException], said: str | None) -> None:
    (ours, theirs), (others, _open) = Pipe(), Pipe()
    theirs.close()
    ended = SimpleNamespace(join=lambda _timeout: None, exitcode=code)
    with pytest.raises(kind, match=said):
        process_group._collect_results({others: cast(Any, None), ours: cast(Any, ended)}, None)


@pytest.mark.long
@pytest.mark.slow
def test_the_command_trains_on_two_processes(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    base = arguments(tiny_bert, corpus)
    assert cli(*base)[0] == 0
    code, out, err = cli(*base, "--ranks", "2", "--campaign", "two")
    assert code == 0, err
    assert sum(line.lstrip().startswith("simcse[") for line in out.splitlines()) == 1
    (one,), (two,) = (list(records(tmp_path, name).values()) for name in ("local", "two"))
    check_one_difference(one, two, "ranks then 1, now 2")
    before, after = (record.training["stages"]["simcse"] for record in (one, two))
    for name in ("steps", "sentences_seen", "selected_step"):
        assert after[name] == before[name]
    assert (after["steps"], after["sentences_seen"]) == (4, 20)
    assert after["last_loss"] == pytest.approx(before["last_loss"], rel=1e-4)
    assert [s.value for s in two.scores] == pytest.approx([s.value for s in one.scores], abs=1e-3)
    code, _, err = cli(*base, "--ranks", "2", "--dry-run")
    assert (code, "ranks then 1, now 2" in err) == (1, True)


def test_a_record_says_in_which_process_the_training_failed(
    cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = BenchError("the loss is nan at step 2", hint="try a smaller learning rate")
    error.add_note("in process 1 of 2:\nTraceback (most recent call last):")

    def diverged(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(process_group, "run_processes", diverged)
    code, _, err = cli(*arguments(tiny_bert, corpus), "--ranks", "2")
    assert (code, f"FAILED, {error}" in err) == (1, True), err
    (failed,) = records(tmp_path).values()
    assert "in process 1 of 2:" in (failed.traceback or ())


@pytest.mark.parametrize("option", [("--ranks", "4"), ("--train-precision", "bf16")])
def test_a_method_without_training_is_the_same_cell(cli: Cli, option: tuple[str, str]) -> None:
    run = ("run", "--methods", "noise,word_overlap", "--seeds", "1-2", "--suite", "toy")
    assert cli(*run)[0] == 0
    code, out, _ = cli(*run, *option, "--dry-run")
    assert (code, "0 of 3 cells to run" in out) == (0, True)
