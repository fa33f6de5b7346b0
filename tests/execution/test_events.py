"""What running cells say of themselves, and who reads it: display, watch and logs; the end by SIGTERM."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from bench.cli import terminal as progress
from bench.cli.terminal import format_progress, open_display
from bench.execution import runner
from bench.execution.cell_run import run_cell
from bench.execution.events import (
    EVALUATES,
    LOADS,
    PROBES,
    TRAINS,
    WAITS,
    CellEvents,
    clear_dead_runs,
    count_cell_work,
    open_cell_file,
    open_run_folder,
)
from bench.execution.logs import open_logs
from bench.execution.monitor import Eta, RunMonitor, find_run_folders, read_first_and_last
from tests.support.cli import Cli, records, refusal

ABOUT = {"method": "simcse", "seed": 1, "suites": ["toy"]}
RUN = ("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(path: Path) -> list[dict[str, Any]]:
    """All lines of a file of events."""
    return [json.loads(line) for line in path.read_text().splitlines()]


STAGES = {"k1": ("sub", 10), "k2": ("joint", 20)}
BESIDES = {"load": 1, "evaluate toy": 1}
WORK = {**BESIDES, "train sub": 10, "train joint": 20}


def begun(
    folder: Path, name: str, clock: Clock, stages: dict[str, tuple[str, int]] = STAGES, **about: Any
) -> CellEvents:
    """A cell that trains: stages "sub" of 10 steps, then "joint" of 20."""
    file = open_cell_file(folder, Path(name), {**ABOUT, "work": count_cell_work(stages, BESIDES), **about})
    return CellEvents(file, stages, BESIDES, clock=clock)


def trained(cell: CellEvents, clock: Clock, steps: int = 5) -> None:
    """Two seconds a step of 64 sentences, and a dev evaluation after the last."""
    cell.report({"doing": TRAINS, "key": "k1"})
    for step in range(1, steps + 1):
        clock.now += 2
        cell.report({"step": step, "steps": 10, "loss": 1 / step, "rate": 1e-5})
        if step == steps:
            cell.report({"step": steps, "loss": 1 / steps, "gradient_norm": 3.0, "dev": 0.5})
        cell.sentences(64)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run of three cells of simcse."""
    root = tmp_path / "results" / "local"
    (root / ".locks").mkdir(parents=True)
    with open_run_folder(root, {"simcse": 3}, {"simcse": {name: 3 * n for name, n in WORK.items()}}) as found:
        assert found is not None
        yield found


def only(folder: Path) -> Path:
    """The one cell's file."""
    (path,) = (path for path in folder.glob("*.jsonl") if path.stem != "run")
    return path


def test_a_line_a_second_says_all_that_is_known(folder: Path) -> None:
    clock = Clock()
    cell = begun(folder, "a", clock)
    cell.report({"doing": TRAINS, "key": "k1"})
    for step in range(1, 101):
        clock.now += 0.1
        cell.report({"step": step, "steps": 100, "loss": float("nan"), "rate": 1.0})
        cell.sentences(8)
    first, begin, *steps = lines(only(folder))
    assert first.items() >= ABOUT.items()
    assert begin["doing"] == "train"
    assert (begin["stage"], begin["later"]["train joint"]) == ("sub", 20)
    assert 8 <= len(steps) <= 12
    assert steps[-1]["loss"] is None  # JSON has no other
    assert steps[-1]["speed"] == pytest.approx(80, rel=0.02)
    assert steps[-1]["step_seconds"] == pytest.approx(0.1)
    cell.report({"dev": 0.5, "step": 100, "gradient_norm": 2.0})  # at once
    last = lines(only(folder))[-1]
    assert (last["dev"], last["dev_step"], last["stage"], last["steps"]) == (0.5, 100, "sub", 100)
    cell.report({"doing": EVALUATES, "suite": "toy"})
    assert not {"dev", "step", "loss", "stage"} & lines(only(folder))[-1].keys()


def train(cell: CellEvents, clock: Clock, key: str, seconds: float, dev: float = 0.0) -> Iterator[float]:
    """A whole stage step by step, every fifth with a dev evaluation; yields the time of each."""
    steps = STAGES[key][1]
    cell.report({"doing": TRAINS, "key": key})
    for step in range(1, steps + 1):
        clock.now += seconds
        cell.report({"step": step, "steps": steps, "loss": 1.0})
        yield clock.now
        if step % 5 == 0:
            clock.now += dev
            cell.report({"step": step, "dev": 0.5})
            yield clock.now


def whole(cell: CellEvents, clock: Clock, stages: Any = ("k1", "k2")) -> Iterator[float]:
    """A cell from its start to its end: 4 s to load, 20 steps that cost twice as much, 50 s to evaluate."""
    cell.report({"doing": LOADS})
    yield clock.now
    clock.now += 4
    for key in stages:
        yield from train(cell, clock, key, {"k1": 2, "k2": 4}[key], dev=5)
    cell.report({"doing": EVALUATES, "suite": "toy"})
    for _ in range(5):
        yield clock.now
        clock.now += 10
        cell.sentences(64)
    cell.end("ran", {"toy": 0.5})


def looked(run: RunMonitor) -> Eta:
    """What is left of a run now, its files as fresh as can be."""
    run.look(0)
    return run.estimate_eta()


def test_what_is_left_never_exceeds_the_truth_and_is_the_truth_once_all_is_known(folder: Path) -> None:
    clock, run, seen = Clock(), RunMonitor(folder), list[tuple[int, float, Eta]]()
    for seed in range(3):
        cell = begun(folder, str(seed), clock, seed=seed)
        for now in whole(cell, clock):
            seen.append((seed, now, looked(run)))
    assert (looked(run), run.summary()) == (Eta(), "3 of 3 cells done, 0 s left")
    for seed, now, left in seen:
        truth = clock.now - now
        assert left.seconds <= 1.1 * truth, (seed, now, left)
        assert left.whole == (seed > 0)  # by then one cell has shown all its work
        assert not left.whole or left.seconds >= 0.9 * truth, (seed, now, left)


def test_failed_cells_tell_nothing_of_how_long_a_cell_takes(tmp_path: Path) -> None:
    root, clock = tmp_path / "results" / "local", Clock()
    (root / ".locks").mkdir(parents=True)
    with open_run_folder(
        root, {"simcse": 10}, {"simcse": {name: 10 * n for name, n in BESIDES.items()}}
    ) as made:
        assert made is not None
        for seed, (seconds, state) in enumerate([(3, "failed"), (3, "failed"), (600, "ran")]):
            cell = begun(made, str(seed), clock, {}, seed=seed)
            cell.report({"doing": LOADS})
            cell.report({"doing": EVALUATES, "suite": "toy"})
            clock.now += seconds
            cell.end(state, {})
        run = RunMonitor(made)
        looked(run)
        assert run.summary() == "3 of 10 cells done, 2 failed, 70 min left"


def test_cells_whose_stages_are_done_are_another_kind(folder: Path) -> None:
    clock, run = Clock(), RunMonitor(folder)
    for _ in whole(begun(folder, "a", clock), clock):
        pass
    first = clock.now - 100
    assert looked(run) == Eta(2 * first)
    begin = clock.now
    cell = begun(folder, "b", clock, {"k2": STAGES["k2"]}, seed=2)  # of which one is there already
    for now in whole(cell, clock, ["k2"]):
        looked(run)
        if now == begin:
            assert run.cells[0].estimate_eta(run.paces) == Eta(first - 10 * 2 - 2 * 5)


def test_without_knowledge_it_is_more_than_what_is_known_or_a_question_mark(folder: Path) -> None:
    clock, run = Clock(), RunMonitor(folder)
    cell = begun(folder, "a", clock)
    looked(run)
    assert (run.summary(), run.rows()[0][-1]) == ("0 of 3 cells done, ? left", "?")
    steps = train(cell, clock, "k1", 2)
    next(steps), next(steps)
    looked(run)  # how long a dev evaluation takes is open
    assert run.lines() == [
        "simcse seed 1: stage sub, step 2 of 10, loss 1, 0 sentences/s, more than 16 s left"
    ]
    cell.report({"doing": EVALUATES, "suite": "toy"})
    looked(run)
    assert run.lines() == ["simcse seed 1: evaluates toy, ? left"]
    cell.report({"doing": PROBES})
    looked(run)
    assert run.lines() == ["simcse seed 1: probes, ? left"]
    assert str(Eta(float("nan"))) == str(Eta(1e300)) == "?"


def test_who_takes_longer_than_those_before_it_is_not_said_to_end_now(folder: Path) -> None:
    clock, run = Clock(), RunMonitor(folder)
    for _ in whole(begun(folder, "a", clock), clock):
        pass
    cell = begun(folder, "b", clock, seed=2)
    cell.report({"doing": LOADS})
    cell.report({"doing": EVALUATES, "suite": "toy"})
    clock.now += 20
    cell.sentences(1)
    looked(run)
    assert run.rows()[0][-1] == "30 s"
    clock.now += 40
    cell.sentences(1)
    looked(run)
    assert run.rows()[0][-1] == "?"


def test_stages_of_another_process_are_no_work_to_come(folder: Path) -> None:
    clock = Clock()
    cell = begun(folder, "a", clock)
    cell.report({"doing": WAITS, "key": "k1"})
    clock.now += 500
    list(train(cell, clock, "k2", 4))
    last = lines(only(folder))[-1]
    assert (last["took"], last["later"]) == ({}, BESIDES)
    other = begun(folder, "b", clock, seed=2)  # all its stages were there, without a word of them
    other.report({"doing": EVALUATES, "suite": "toy"})
    (last,) = (found[-1] for path in folder.glob("*.jsonl") if (found := lines(path))[0].get("seed") == 2)
    assert last["later"] == {"load": 1}


def test_time_left_goes_down_between_two_lines(folder: Path) -> None:
    clock, run = Clock(), RunMonitor(folder)
    trained(begun(folder, "a", clock), clock)
    now = lines(only(folder))[-1]["time"]
    for later, left in ((0, 10), (4, 6), (-3600, 10)):  # the last is another machine's clock
        run.look(now + later)
        assert run.cells[0].estimate_eta(run.paces) == Eta(left, whole=False)
    run.look(now + 200)
    assert run.lines()[0].endswith("no news for 3 min, ? left")


def test_who_lets_go_without_an_end_was_stopped_and_the_next_run_clears_it_away(tmp_path: Path) -> None:
    root = tmp_path / "results" / "local"
    (root / ".locks").mkdir(parents=True)
    with open_run_folder(root, {"simcse": 1}) as alive:
        assert alive is not None
        cell = begun(alive, "a", Clock())
        cell.report({"doing": TRAINS, "key": "k1"})
        left = root / ".running" / "left"
        left.mkdir()
        (left / "run.jsonl").write_text('{"cells":{"simcse":1}}\n')
        (left.parent / "half").mkdir()  # killed when its folder was made
        (left / "a.jsonl").write_text(f'{json.dumps(ABOUT)}\n{{"doing":"train","stage":"sub"}}\n')
        found = {path.name: RunMonitor(path) for path in find_run_folders(tmp_path / "results")}
        for run in found.values():
            run.look()
        assert (found["left"].alive, found[alive.name].alive) == (False, True)
        assert found["left"].lines() == ["simcse seed 1: stopped: sub"]
        assert found["left"].summary() == "0 of 1 cells done; stopped: its process is gone"
        assert found[alive.name].lines() == ["simcse seed 1: stage sub, step 0 of 10, ? left"]
        clear_dead_runs(root)
        assert [path.name for path in left.parent.iterdir()] == [alive.name]
    assert not (root / ".running").exists()


def test_clearing_follows_no_link(tmp_path: Path) -> None:
    precious = tmp_path / "home" / "x"
    precious.mkdir(parents=True)
    (precious / "run.jsonl").write_text("{}\n")
    root = tmp_path / "results" / "local"
    (root / ".locks").mkdir(parents=True)
    (root / ".running").symlink_to(tmp_path / "home")
    clear_dead_runs(root)
    (root / ".running").unlink()
    (root / ".running").mkdir()
    (root / ".running" / "x").symlink_to(precious)
    clear_dead_runs(root)
    assert (precious / "run.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "last"),
    [
        (b'{"a":1}\n{"doing":"train"}\n{"doing":"eva', {"doing": "train"}),
        (b'{"a":1}\n' + b'{"doing":"load"}\n' * 50_000, {"doing": "load"}),
        (b'{"a":1}\n{"doing":"load"}\n\xff\xfe\n', {"doing": "load"}),
        (b'{"a":1}\n' + b"[" * 60_000 + b"\n", {"a": 1}),
        (b"x" * 200_000 + b"\n{}\n", None),
        (b'{"a":1}', None),
        (b"[1]\n[2]\n", None),
        (b"", None),
    ],
)
def test_a_file_may_be_anybodys(tmp_path: Path, content: bytes, last: Any) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    found = read_first_and_last(path)
    assert (found and found[1]) == last


def test_a_pipe_and_hostile_values_hold_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "link.jsonl").symlink_to("/dev/zero")
    bad = {"method": "\x1b[31m" + "m" * 10_000, "seed": 1e300, "suites": 7, "time": "now"}
    news = {"doing": "train", "stage": [1], "step": 10**400, "steps": True, "loss": "x", "seconds": -1e308}
    work = {"later": {"load": 1e308}, "took": {"load": [1e-300, -1e308], "probe": 7, "x": [{}, []]}}
    texts = json.dumps(news), json.dumps({"doing": "load", **work}), '{"doing":["train"]}', '{"doing":{}}'
    for number, text in enumerate(texts):
        (folder / f"{number}.jsonl").write_text(f"{json.dumps(bad)}\n{text}\n")
    run = RunMonitor(folder)
    run.look()
    for line in [*run.lines(), run.summary()]:
        assert line.isprintable()
        assert len(line) < 200
    assert len(run.rows()) == 4


def test_plain_lines_come_every_half_minute_and_a_terminal_shows_a_table(folder: Path, capsys: Any) -> None:
    clock, run = Clock(), RunMonitor(folder)
    trained(begun(folder, "a", clock), clock)
    run.look()
    with open_display(Console(stderr=True), clock) as show:
        for _ in range(65):
            clock.now += 1
            show({"": run})
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 2 * 2)
    assert "step 5 of 10" in printed.err
    out = io.StringIO()
    with open_display(Console(file=out, force_terminal=True, width=80)) as show:
        show({"local: ": run})
        written = out.getvalue()
    for part in ("simcse", "sub", "5 of 10", "0.2", "50", "32", " s", "local: 0 of 3 cells done"):
        assert part in written
    assert format_progress("text", 0, None, 40) == "text: 0, 0 a second, 40 s gone"


def test_a_run_shows_its_cells_while_they_run_and_leaves_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watched(task: Any, **more: Any) -> Any:
        outcomes = run_cell(task, **more)
        code, out, _ = cli("watch", "--once")
        seen.append((code, [*map(lines, sorted(task.running.glob("*.jsonl")))], out))
        return outcomes

    monkeypatch.setattr(runner, "run_cell", watched)
    monkeypatch.setattr(progress, "LOOK_EVERY", 0.01)
    assert cli(*RUN)[0] == 0
    (_, first, out), (_, second, _) = seen
    assert (len(first), len(second)) == (2, 3)
    (cell,) = (each for each in first if "method" in each[0])
    assert (cell[0]["method"], cell[0]["suites"]) == ("noise", ["toy"])
    assert [line["doing"] for line in cell[1:]] == ["wait", "load", "evaluate", "end"]
    assert (cell[-1]["state"], list(cell[-1]["scores"])) == ("ran", ["toy"])
    assert out.startswith("local: 1 of 2 cells done, ")
    assert out.endswith(" s left\n")
    assert "more than" not in out  # the plan calls the work as the cells do
    assert not (tmp_path / "results" / "local" / ".running").exists()
    for more in ((), ("--campaign", "local"), ("--once",)):
        code, out, _ = cli("watch", *more)
        assert (code, out.startswith("nothing runs below results")) == (0, True)
    assert cli("watch", "--results", "no")[:2] == (0, "nothing runs below no (there is no such folder)\n")


def test_a_finished_stage_keeps_its_dev_evaluations(
    cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path
) -> None:
    options = "steps=4,eval_every=2,batch_size=8,max_length=16"
    where = ("--suite", "toy", "--dev", "toy", "--backbone", str(tiny_bert), "--corpus", str(corpus))
    code, _, err = cli("run", "--methods", f"unsee_barlow[{options}]", "--seeds", "1", *where)
    assert code == 0, err
    (record,) = records(tmp_path).values()
    (facts,) = record.training["stages"].values()
    (path,) = (tmp_path / "results" / ".stages").glob("*/events.jsonl")
    losses = json.loads((path.parent / "losses.json").read_text())
    found = lines(path)
    assert [[each["step"], each["dev"]] for each in found] == facts["dev_curve"]
    assert [[each["step"], *each["collapse"]] for each in found] == facts["collapse_curve"]
    assert [each["loss"] for each in found] == [losses[1], losses[3]]
    assert all(each["gradient_norm"] > 0 for each in found)


def test_where_nothing_can_be_written_the_run_goes_on(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results" / "local").mkdir(parents=True)
    (tmp_path / "results" / "local" / ".running").write_text("a file is in the way")
    assert cli(*RUN)[0] == 0

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    (tmp_path / "results" / "local" / ".running").unlink()
    monkeypatch.setattr(os, "write", full)
    assert cli(*RUN, "--force")[0] == 0


class Curves:
    """What a fake library was given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def tensorboard(self) -> ModuleType:
        """A stand-in for torch.utils.tensorboard."""
        module, given = ModuleType("torch.utils.tensorboard"), self.given

        class SummaryWriter:
            def __init__(self, folder: str, purge_step: int) -> None:
                self.name = Path(folder).name
                given.append(("open", "/".join(Path(folder).parts[-4:])))

            def add_scalar(self, name: str, value: float, step: int, walltime: float | None = None) -> None:
                given.append((self.name, name, value, step))

            def flush(self) -> None: ...

            def close(self) -> None:
                given.append(("close", self.name))

        module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
        return module

    def wandb(self) -> ModuleType:
        """A stand-in for wandb."""
        module, given = ModuleType("wandb"), self.given

        def init(**settings: Any) -> Any:
            names = ("name", "group", "mode", "dir", "project", "reinit")
            given.append({name: settings[name] for name in names})
            return SimpleNamespace(
                define_metric=lambda name, step_metric: given.append((name, step_metric)),
                log=given.append,
                summary=SimpleNamespace(update=given.append),
                finish=lambda: given.append("finished"),
            )

        module.init = init  # type: ignore[attr-defined]
        module.Settings = lambda **settings: settings  # type: ignore[attr-defined]
        return module


def write_log(name: str, folder: Path, results: Path) -> list[str]:
    """Let a cell train, look, let it end, look again; what was told."""
    clock, told = Clock(), list[str]()
    with open_logs([name], results, "local", told.append) as (look,):
        cell = begun(folder, "a", clock)
        trained(cell, clock, steps=3)
        look(folder)
        look(folder)
        cell.end("ran", {"toy": 0.25})
        look(folder)
        begun(folder, "b", clock, method="untrained").report({"doing": EVALUATES})  # has no curve
        look(folder)
    return told


def test_tensorboard_gets_the_curves_of_each_stage(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Curves()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake.tensorboard())
    assert write_log("tensorboard", folder, tmp_path / "results") == []
    assert fake.given[0] == ("open", "local/simcse/seed-1/sub")
    steps = [each for each in fake.given if each[0] == "sub"]
    assert [each[2:] for each in steps if each[1] == "loss"] == [(1.0, 1), (0.5, 2), (1 / 3, 3)]
    assert [each[1:] for each in steps if each[1] in ("dev", "gradient_norm")] == [
        ("dev", 0.5, 3),
        ("gradient_norm", 3.0, 3),
    ]
    assert [*fake.given[-4:]] == [
        ("open", ".tensorboard/local/simcse/seed-1"),
        ("seed-1", "average/toy", 0.25, 0),
        ("close", "sub"),
        ("close", "seed-1"),
    ]


def test_wandb_gets_a_run_a_cell_and_asks_no_network(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Curves()
    monkeypatch.setitem(sys.modules, "wandb", fake.wandb())
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert write_log("wandb", folder, tmp_path / "results") == []
    opened, metric, first, *_ = fake.given
    assert (opened["name"], opened["group"], opened["mode"]) == ("simcse seed 1", "local", "offline")
    assert (metric, first["sub/step"], first["sub/loss"]) == (("sub/*", "sub/step"), 1, 1.0)
    assert [each["sub/dev"] for each in fake.given if isinstance(each, dict) and "sub/dev" in each] == [0.5]
    assert fake.given[-2:] == [{"average/toy": 0.25}, "finished"]


def test_a_log_that_fails_is_told_of_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("wandb")
    monkeypatch.setitem(sys.modules, "wandb", module)
    (line,) = write_log("wandb", folder, tmp_path / "results")
    assert line.startswith("--log wandb ended, the run continues: AttributeError: ")


@pytest.mark.parametrize(("name", "module"), [("wandb", "wandb"), ("tensorboard", "tensorboard")])
def test_a_missing_library_is_one_line_before_anything_runs(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    said = refusal(cli, *RUN, "--log", name)
    assert said == f"error: --log {name}: {name} is not installed; pip install 'cse-bench[{name}]'\n"
    assert not (tmp_path / "results").exists()


def test_sigterm_ends_as_ctrl_c_does(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def ended(*_: Any, **__: Any) -> Iterator[None]:
        signal.raise_signal(signal.SIGTERM)
        yield

    monkeypatch.setattr(progress, "watch_run", ended)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # an earlier test may have left a library's
    code, out, err = cli(*RUN)
    after = signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
    hint = "interrupted; finished cells are kept, repeat the command to resume"
    assert (code, out, err.split()) == (143, "", hint.split())
    assert after == signal.SIG_DFL


def test_what_is_counted_says_so_where_no_terminal_is(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_EVERY", 0.01)
    with progress.progress_bar("text", 100) as advance:
        advance(25)
        end = time.monotonic() + 5
        printed = ""
        while not printed and time.monotonic() < end:
            printed = capsys.readouterr().err
    assert printed.startswith("text: 25 of 100, ")
    assert "gone" in printed
