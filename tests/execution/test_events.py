"""Events of running cells and their readers: display, watch and logs; the end by SIGTERM."""

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

from bench.cli import terminal
from bench.cli.terminal import format_progress, open_display
from bench.execution import events, runner
from bench.execution.cell_run import run_cell
from bench.execution.liveness import read_first_and_last
from bench.execution.monitor import Eta, RunMonitor, find_run_folders
from bench.execution.tracker_logs import open_logs
from bench.stages import RESUMED
from tests.support.cli import Cli, records, refusal
from tests.support.executors import Clock
from tests.support.messages import missing_facts

ABOUT = {"method": "simcse", "seed": 1, "suites": ["toy"]}
RUN = ("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy")
STAGES = {"k1": ("sub", 10), "k2": ("joint", 20)}
BESIDES = {"load": 1, "evaluate toy": 1}
WORK = {**BESIDES, "train sub": 10, "train joint": 20}


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "results" / "local"
    (root / ".locks").mkdir(parents=True)
    return root


@pytest.fixture
def folder(root: Path) -> Iterator[Path]:
    work = {name: 3 * n for name, n in WORK.items()}
    with events.open_run_folder(root, {"simcse": 3}, {"simcse": work}) as made:
        assert made is not None
        yield made


@pytest.fixture
def run(folder: Path) -> RunMonitor:
    return RunMonitor(folder)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def cell_lines(folder: Path) -> list[dict[str, Any]]:
    (path,) = (path for path in folder.glob("*.jsonl") if path.stem != "run")
    return lines(path)


def begin_cell(
    folder: Path, name: str, clock: Clock, stages: dict[str, tuple[str, int]] = STAGES, **about: Any
) -> events.CellEvents:
    """A cell that trains: stages "sub" of 10 steps, then "joint" of 20."""
    facts = {**ABOUT, "work": events.count_cell_work(stages, BESIDES), **about}
    file = events.open_cell_file(folder, Path(name), facts)
    return events.CellEvents(file, stages, BESIDES, clock=clock)


def train_steps(cell: events.CellEvents, clock: Clock, steps: int = 5) -> None:
    """Two seconds a step of 64 sentences, and a dev evaluation after the last."""
    cell.report({"doing": events.TRAINS, "key": "k1"})
    for step in range(1, steps + 1):
        clock.now += 2
        cell.report({"step": step, "steps": 10, "loss": 1 / step, "rate": 1e-5})
        if step == steps:
            cell.report({"step": steps, "loss": 1 / steps, "gradient_norm": 3.0, "dev": 0.5})
        cell.sentences(64)


def train_stage(
    cell: events.CellEvents, clock: Clock, key: str, seconds: float, dev: float = 0.0
) -> Iterator[float]:
    """A whole stage step by step, every fifth with a dev evaluation; yields the time of each."""
    steps = STAGES[key][1]
    cell.report({"doing": events.TRAINS, "key": key})
    for step in range(1, steps + 1):
        clock.now += seconds
        cell.report({"step": step, "steps": steps, "loss": 1.0})
        yield clock.now
        if step % 5 == 0:
            clock.now += dev
            cell.report({"step": step, "dev": 0.5})
            yield clock.now


def run_whole(cell: events.CellEvents, clock: Clock, stages: Any = ("k1", "k2")) -> Iterator[float]:
    """A cell from its start to its end: 4 s to load, 20 steps that cost twice as much, 50 s to evaluate."""
    cell.report({"doing": events.LOADS})
    yield clock.now
    clock.now += 4
    for key in stages:
        yield from train_stage(cell, clock, key, {"k1": 2, "k2": 4}[key], dev=5)
    cell.report({"doing": events.EVALUATES, "suite": "toy"})
    for _ in range(5):
        yield clock.now
        clock.now += 10
        cell.sentences(64)
    cell.end("ran", {"toy": 0.5})


def look(run: RunMonitor) -> Eta:
    run.look(0)
    return run.estimate_eta()


def test_a_line_a_second_holds_the_whole_state(folder: Path, clock: Clock) -> None:
    cell = begin_cell(folder, "a", clock)
    cell.report({"doing": events.TRAINS, "key": "k1"})
    for step in range(1, 101):
        clock.now += 0.1
        cell.report({"step": step, "steps": 100, "loss": float("nan"), "rate": 1.0})
        cell.sentences(8)
    first, begin, *steps = cell_lines(folder)
    assert first.items() >= ABOUT.items()
    assert (begin["doing"], begin["stage"], begin["later"]["train joint"]) == ("train", "sub", 20)
    assert 8 <= len(steps) <= 12
    assert steps[-1]["loss"] is None  # JSON has no other
    assert steps[-1]["speed"] == pytest.approx(80, rel=0.02)
    assert steps[-1]["step_seconds"] == pytest.approx(0.1)
    cell.report({"dev": 0.5, "step": 100, "gradient_norm": 2.0})  # at once
    last = cell_lines(folder)[-1]
    assert (last["dev"], last["dev_step"], last["stage"], last["steps"]) == (0.5, 100, "sub", 100)
    cell.report({"doing": events.EVALUATES, "suite": "toy"})
    assert not {"dev", "step", "loss", "stage"} & cell_lines(folder)[-1].keys()


def test_time_left_is_a_lower_bound_until_known(folder: Path, run: RunMonitor, clock: Clock) -> None:
    seen = list[tuple[int, float, Eta]]()
    for seed in range(3):
        cell = begin_cell(folder, str(seed), clock, seed=seed)
        seen += [(seed, now, look(run)) for now in run_whole(cell, clock)]
    assert (look(run), run.summary()) == (Eta(), "3 of 3 cells done (100%), 0 s left")
    for seed, now, left in seen:
        truth = clock.now - now
        assert left.seconds <= 1.1 * truth, (seed, now, left)
        assert left.whole == (seed > 0)  # by then one cell has shown all its work
        assert not left.whole or left.seconds >= 0.9 * truth, (seed, now, left)


def test_failed_cells_are_left_out_of_paces(root: Path, clock: Clock) -> None:
    work = {"simcse": {name: 10 * n for name, n in BESIDES.items()}}
    with events.open_run_folder(root, {"simcse": 10}, work) as made:
        assert made is not None
        for seed, (seconds, state) in enumerate([(3, "failed"), (3, "failed"), (600, "ran")]):
            cell = begin_cell(made, str(seed), clock, {}, seed=seed)
            cell.report({"doing": events.LOADS})
            cell.report({"doing": events.EVALUATES, "suite": "toy"})
            clock.now += seconds
            cell.end(state, {})
        run = RunMonitor(made)
        look(run)
        assert run.summary() == "3 of 10 cells done (30%), 2 failed, 70 min left"


def test_cells_whose_stages_are_done_are_another_kind(folder: Path, run: RunMonitor, clock: Clock) -> None:
    list(run_whole(begin_cell(folder, "a", clock), clock))
    first = clock.now - 100
    assert look(run) == Eta(2 * first)
    begin = clock.now
    cell = begin_cell(folder, "b", clock, {"k2": STAGES["k2"]}, seed=2)
    for now in run_whole(cell, clock, ["k2"]):
        look(run)
        if now == begin:
            assert run.cells[0].estimate_eta(run.paces) == Eta(first - 10 * 2 - 2 * 5)


def test_an_unknown_time_is_a_bound_or_a_mark(folder: Path, run: RunMonitor, clock: Clock) -> None:
    cell = begin_cell(folder, "a", clock)
    look(run)
    assert (run.summary(), run.rows()[0][-1]) == ("0 of 3 cells done (0%), ? left", "?")
    steps = train_stage(cell, clock, "k1", 2)
    next(steps), next(steps)
    look(run)  # how long a dev evaluation takes is open
    row = ("simcse", "1", "sub", "2 of 10", "1", "", "0", "more than 16 s")
    assert run.rows() == [row]
    for phase, words in ((events.EVALUATES, "evaluates toy"), (events.PROBES, "probes")):
        cell.report({"doing": phase, "suite": "toy"})
        look(run)
        assert run.lines() == [f"simcse seed 1: {words}, ? left"]
    assert str(Eta(float("nan"))) == str(Eta(1e300)) == "?"


def test_a_cell_slower_than_earlier_ones_is_unknown(folder: Path, run: RunMonitor, clock: Clock) -> None:
    list(run_whole(begin_cell(folder, "a", clock), clock))
    cell = begin_cell(folder, "b", clock, seed=2)
    cell.report({"doing": events.LOADS})
    cell.report({"doing": events.EVALUATES, "suite": "toy"})
    for seconds, left in ((20, "30 s"), (40, "?")):
        clock.now += seconds
        cell.sentences(1)
        look(run)
        assert run.rows()[0][-1] == left


def test_stages_of_another_process_are_no_work_to_come(folder: Path, clock: Clock) -> None:
    cell = begin_cell(folder, "a", clock)
    cell.report({"doing": events.WAITS, "key": "k1"})
    clock.now += 500
    list(train_stage(cell, clock, "k2", 4))
    last = cell_lines(folder)[-1]
    assert (last["took"], last["later"]) == ({}, BESIDES)
    other = begin_cell(folder, "b", clock, seed=2)  # all its stages are there
    other.report({"doing": events.EVALUATES, "suite": "toy"})
    files = map(lines, folder.glob("*.jsonl"))
    (last,) = (file[-1] for file in files if file[0].get("seed") == 2)
    assert last["later"] == {"load": 1}


def test_a_resumed_training_has_the_pace_of_its_own_steps(folder: Path, clock: Clock) -> None:
    cell = begin_cell(folder, "a", clock)
    cell.report({"doing": events.TRAINS, "key": "k1"})
    cell.sentences(600)  # of the steps before a kill, all at once
    cell.report({"step": 6, "steps": 10, RESUMED: 6})
    for step in range(7, 11):
        clock.now += 10
        cell.sentences(100)
        cell.report({"step": step, "loss": 1.0})
    last = cell_lines(folder)[-1]
    assert (last["step_seconds"], last["speed"]) == (10, 10)
    cell.report({"doing": events.EVALUATES, "suite": "toy"})
    took = cell_lines(folder)[-1]["took"]
    assert took[events.work_name(events.TRAINS, "sub")] == [4, 40]


def test_time_left_goes_down_between_two_lines(folder: Path, run: RunMonitor, clock: Clock) -> None:
    train_steps(begin_cell(folder, "a", clock), clock)
    now = cell_lines(folder)[-1]["time"]
    for later, left in ((0, 10), (4, 6), (-3600, 10)):  # the last is another machine's clock
        run.look(now + later)
        assert run.cells[0].estimate_eta(run.paces) == Eta(left, whole=False)
    run.look(now + 200)
    assert run.rows()[0][-1] == "no news for 3 min, ?"


def test_a_cell_without_an_end_was_stopped_and_the_next_run_clears_it_away(root: Path, clock: Clock) -> None:
    with events.open_run_folder(root, {"simcse": 1}) as alive:
        assert alive is not None
        cell = begin_cell(alive, "a", clock)
        cell.report({"doing": events.TRAINS, "key": "k1"})
        left = root / ".running" / "left"
        left.mkdir()
        (left / "run.jsonl").write_text('{"cells":{"simcse":1}}\n')
        (left.parent / "half").mkdir()  # killed when its folder was made
        (left / "a.jsonl").write_text(f'{json.dumps(ABOUT)}\n{{"doing":"train","stage":"sub"}}\n')
        runs = {path.name: RunMonitor(path) for path in find_run_folders(root.parent)}
        for run in runs.values():
            run.look()
        dead, living = runs["left"], runs[alive.name]
        assert (dead.state, living.state) == ("gone", "alive")
        assert not missing_facts(dead.summary(), "0 of 1", "stopped")
        assert [run.rows()[0][2:4] for run in (dead, living)] == [("stopped: sub", ""), ("sub", "0 of 10")]
        events.clear_dead_runs(root)
        assert [path.name for path in left.parent.iterdir()] == [alive.name]
    assert not (root / ".running").exists()


def test_clearing_follows_no_link(tmp_path: Path, root: Path) -> None:
    precious = tmp_path / "home" / "x"
    precious.mkdir(parents=True)
    (precious / "run.jsonl").write_text("{}\n")
    (root / ".running").symlink_to(tmp_path / "home")
    events.clear_dead_runs(root)
    (root / ".running").unlink()
    (root / ".running").mkdir()
    (root / ".running" / "x").symlink_to(precious)
    events.clear_dead_runs(root)
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
    ends = read_first_and_last(path)
    assert (ends and ends[1]) == last


def test_a_pipe_and_hostile_values_hold_nobody_up(folder: Path, run: RunMonitor) -> None:
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "link.jsonl").symlink_to("/dev/zero")
    bad = {"method": "\x1b[31m" + "m" * 10_000, "seed": 1e300, "suites": 7, "time": "now"}
    news = {"doing": "train", "stage": [1], "step": 10**400, "steps": True, "loss": "x", "seconds": -1e308}
    work = {"later": {"load": 1e308}, "took": {"load": [1e-300, -1e308], "probe": 7, "x": [{}, []]}}
    texts = json.dumps(news), json.dumps({"doing": "load", **work}), '{"doing":["train"]}', '{"doing":{}}'
    for number, text in enumerate(texts):
        (folder / f"{number}.jsonl").write_text(f"{json.dumps(bad)}\n{text}\n")
    run.look()
    for line in [*run.lines(), run.summary()]:
        assert line.isprintable()
        assert len(line) < 200
    assert len(run.rows()) == 4


def test_plain_lines_and_a_terminal(folder: Path, run: RunMonitor, clock: Clock, capsys: Any) -> None:
    train_steps(begin_cell(folder, "a", clock), clock)
    run.look()
    with open_display(Console(stderr=True), clock) as show:
        for _ in range(65):
            clock.now += 1
            show({"": run})
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 2 * 2)
    assert "5 of 10" in printed.err
    out = io.StringIO()
    with open_display(Console(file=out, force_terminal=True, width=80)) as show:
        show({"local: ": run})
        written = out.getvalue()
    assert not missing_facts(written, "simcse", "sub", "5 of 10", "0.2", "50", "32", " s", "local: 0 of 3")
    assert format_progress("text", 0, None, 40) == "text: 0, 0 a second, 40 s gone"


def test_a_run_shows_its_running_cells(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watched(task: Any, **options: Any) -> Any:
        outcomes = run_cell(task, **options)
        files = [lines(path) for path in sorted(task.running.glob("*.jsonl"))]
        seen.append((files, cli("watch", "--once")[1]))
        return outcomes

    monkeypatch.setattr(runner, "run_cell", watched)
    monkeypatch.setattr(terminal, "LOOK_EVERY", 0.01)
    assert cli(*RUN)[0] == 0
    (first, out), (second, _) = seen
    assert (len(first), len(second)) == (2, 3)
    (cell,) = (file for file in first if "method" in file[0])
    assert (cell[0]["method"], cell[0]["suites"]) == ("noise", ["toy"])
    assert [line["doing"] for line in cell[1:]] == ["wait", "load", "evaluate", "end"]
    assert (cell[-1]["state"], list(cell[-1]["scores"])) == ("ran", ["toy"])
    assert out.startswith("local: 1 of 2 cells done (50%), ")
    assert out.endswith(" s left\n")
    assert "more than" not in out  # the plan names the work as the cells do
    assert not (tmp_path / "results" / "local" / ".running").exists()
    for options in ((), ("--campaign", "local"), ("--once",)):
        code, out, _ = cli("watch", *options)
        assert (code, out.startswith("nothing runs below results")) == (0, True)
    code, out, _ = cli("watch", "--results", "no")
    assert (code, missing_facts(out, "nothing runs", "no such folder")) == (0, [])


def test_a_stage_keeps_its_dev_evaluations(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    options = "steps=4,eval_every=2,batch_size=8,max_length=16"
    where = ("--suite", "toy", "--dev", "toy", "--backbone", str(tiny_bert), "--corpus", str(corpus))
    code, _, err = cli("run", "--methods", f"unsee_barlow[{options}]", "--seeds", "1", *where)
    assert code == 0, err
    (record,) = records(tmp_path).values()
    (facts,) = record.training["stages"].values()
    (path,) = (tmp_path / "results" / ".stages").glob("*/events.jsonl")
    losses = json.loads((path.parent / "losses.json").read_text())
    news = lines(path)
    assert [[event["step"], event["dev"]] for event in news] == facts["dev_curve"]
    assert [[event["step"], *event["collapse"]] for event in news] == facts["collapse_curve"]
    assert [event["loss"] for event in news] == [losses[1], losses[3]]
    assert all(event["gradient_norm"] > 0 for event in news)


def test_unwritable_events_stop_no_run(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results" / "local").mkdir(parents=True)
    (tmp_path / "results" / "local" / ".running").write_text("a file is in the way")
    assert cli(*RUN)[0] == 0

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    (tmp_path / "results" / "local" / ".running").unlink()
    monkeypatch.setattr(os, "write", full)
    assert cli(*RUN, "--force")[0] == 0


@pytest.fixture
def write_log(folder: Path, tmp_path: Path, clock: Clock) -> Any:
    """Lets a cell train, looks, lets it end, looks again; returns the lines that were told."""

    def write(name: str) -> list[str]:
        told = list[str]()
        with open_logs([name], tmp_path / "results", "local", told.append) as (look_at,):
            cell = begin_cell(folder, "a", clock)
            train_steps(cell, clock, steps=3)
            look_at(folder)
            look_at(folder)
            cell.end("ran", {"toy": 0.25})
            look_at(folder)
            curveless = begin_cell(folder, "b", clock, method="untrained")
            curveless.report({"doing": events.EVALUATES})
            look_at(folder)
        return told

    return write


def test_tensorboard_gets_the_curves_of_each_stage(write_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def open_writer(folder: str, purge_step: int) -> SimpleNamespace:
        name = Path(folder).name
        given.append(("open", "/".join(Path(folder).parts[-4:])))
        writer = SimpleNamespace(flush=int, close=lambda: given.append(("close", name)))
        writer.add_scalar = lambda *scalar, walltime=None: given.append((name, *scalar))
        return writer

    library: Any = SimpleNamespace(SummaryWriter=open_writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", library)
    assert write_log("tensorboard") == []
    assert given[0] == ("open", "local/simcse/seed-1/sub")
    steps = [entry for entry in given if entry[0] == "sub"]
    assert [entry[2:] for entry in steps if entry[1] == "loss"] == [(1.0, 1), (0.5, 2), (1 / 3, 3)]
    dev = [entry[1:] for entry in steps if entry[1] in ("dev", "gradient_norm")]
    assert dev == [("dev", 0.5, 3), ("gradient_norm", 3.0, 3)]
    *_, opened, average, first, last = given
    assert (opened, average) == (
        ("open", ".tensorboard/local/simcse/seed-1"), ("seed-1", "average/toy", 0.25, 0)
    )  # fmt: skip
    assert (first, last) == (("close", "sub"), ("close", "seed-1"))


def test_wandb_gets_a_run_a_cell_and_asks_no_network(write_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    run = SimpleNamespace(define_metric=lambda name, step_metric: given.append((name, step_metric)))
    run.log, run.finish = given.append, lambda: given.append("finished")
    run.summary = SimpleNamespace(update=given.append)

    def init(**settings: Any) -> SimpleNamespace:
        given.append(settings)
        return run

    library: Any = SimpleNamespace(init=init, Settings=dict)
    monkeypatch.setitem(sys.modules, "wandb", library)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert write_log("wandb") == []
    opened, metric, first, *_ = given
    assert (opened["name"], opened["group"], opened["mode"]) == ("simcse seed 1", "local", "offline")
    assert (metric, first["sub/step"], first["sub/loss"]) == (("sub/*", "sub/step"), 1, 1.0)
    assert [entry["sub/dev"] for entry in given if isinstance(entry, dict) and "sub/dev" in entry] == [0.5]
    assert given[-2:] == [{"average/toy": 0.25}, "finished"]


def test_a_log_that_fails_is_told_of_once(write_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    (line,) = write_log("wandb")
    assert not missing_facts(line, "--log wandb", "run continues", "AttributeError")


@pytest.mark.parametrize("name", ["wandb", "tensorboard"])
def test_a_missing_library(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    error = refusal(cli, *RUN, "--log", name)
    assert not missing_facts(error, f"--log {name}: {name}", f"pip install 'cse-bench[{name}]'")
    assert not (tmp_path / "results").exists()


def test_sigterm_ends_as_ctrl_c_does(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def ended(*_: Any, **__: Any) -> Iterator[None]:
        signal.raise_signal(signal.SIGTERM)
        yield

    monkeypatch.setattr(terminal, "watch_run", ended)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # an earlier test may have left a library's
    code, out, err = cli(*RUN)
    after = signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
    assert (code, out, err.count("interrupted"), len(err.splitlines())) == (143, "", 1, 2)
    assert after == signal.SIG_DFL


def test_counts_are_printed_without_a_terminal(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PLAIN_EVERY", 0.01)
    with terminal.progress_bar("text", 100) as advance:
        advance(25)
        end, printed = time.monotonic() + 5, ""
        while not printed and time.monotonic() < end:
            printed = capsys.readouterr().err
    assert printed.startswith("text: 25 of 100, ")
    assert "gone" in printed
