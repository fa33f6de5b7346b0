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

from bench.cli import progress
from bench.cli.progress import counted, shown
from bench.run import runner
from bench.run.cell import run_cell
from bench.run.events import EVALUATES, TRAINS, CellEvents, cell_file, clear_leftovers, run_folder
from bench.run.logs import opened_logs
from bench.run.running import Run, ends_of, runs_below
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


def begun(folder: Path, name: str, clock: Clock, **about: Any) -> CellEvents:
    """A cell that trains: stages "sub" of 10 steps, then "joint" of 20."""
    stages = {"k1": ("sub", 10), "k2": ("joint", 20)}
    file = cell_file(folder, Path(name), {**ABOUT, **about})
    return CellEvents(file, stages, clock=clock)


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
    with run_folder(root, {"simcse": 3}) as found:
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
    assert (begin["stage"], begin["later"]) == ("sub", 20)
    assert 8 <= len(steps) <= 12
    assert steps[-1]["loss"] is None  # JSON has no other
    assert steps[-1]["speed"] == pytest.approx(80, rel=0.02)
    assert steps[-1]["step_seconds"] == pytest.approx(0.1)
    cell.report({"dev": 0.5, "step": 100, "gradient_norm": 2.0})  # at once
    last = lines(only(folder))[-1]
    assert (last["dev"], last["dev_step"], last["stage"], last["steps"]) == (0.5, 100, "sub", 100)
    cell.report({"doing": EVALUATES, "suite": "toy"})
    assert not {"dev", "step", "loss", "stage"} & lines(only(folder))[-1].keys()


def test_time_left_of_cell_and_run(folder: Path) -> None:
    clock, run = Clock(), Run(folder)
    cell = begun(folder, "a", clock)
    trained(cell, clock)
    now = lines(only(folder))[-1]["time"]
    run.look(now)
    (stand,) = run.cells
    assert stand.left(None) == pytest.approx((5 + 20) * 2)  # steps of this stage and of the next
    assert run.lines() == [
        "simcse seed 1: stage sub, step 5 of 10, loss 0.2, dev 50, 32 sentences/s, 50 s left"
    ]
    assert run.summary() == "0 of 3 cells done, 3 min left"  # 50 s, and two of 60 s
    run.look(now + 30)
    assert run.cells[0].left(None) == pytest.approx(20)
    run.look(now - 3600)  # another machine's clock
    assert run.cells[0].left(None) == pytest.approx(50)
    run.look(now + 200)
    assert run.lines()[0].endswith("no news for 3 min, ? left")
    clock.now += 10
    cell.end("failed", {})
    assert run.folder == folder
    run.look(now)
    assert not run.cells
    assert run.took("simcse") == pytest.approx(20)
    assert run.summary() == "1 of 3 cells done, 1 failed, 40 s left"
    other = begun(folder, "b", clock, seed=2)
    other.report({"doing": EVALUATES, "suite": "toy"})
    run.look(now)
    assert run.lines() == ["simcse seed 2: evaluates toy, 20 s left"]
    strange = begun(folder, "c", clock, method="other")
    strange.report({"doing": EVALUATES, "suite": "toy"})
    run.look(now)
    assert run.summary() == "1 of 3 cells done, 1 failed, ? left"


def test_who_lets_go_without_an_end_was_stopped_and_the_next_run_clears_it_away(tmp_path: Path) -> None:
    root = tmp_path / "results" / "local"
    (root / ".locks").mkdir(parents=True)
    with run_folder(root, {"simcse": 1}) as alive:
        assert alive is not None
        cell = begun(alive, "a", Clock())
        cell.report({"doing": TRAINS, "key": "k1"})
        left = root / ".running" / "left"
        left.mkdir()
        (left / "run.jsonl").write_text('{"cells":{"simcse":1}}\n')
        (left.parent / "half").mkdir()  # killed when its folder was made
        (left / "a.jsonl").write_text(f'{json.dumps(ABOUT)}\n{{"doing":"train","stage":"sub"}}\n')
        found = {path.name: Run(path) for path in runs_below(tmp_path / "results")}
        for run in found.values():
            run.look()
        assert (found["left"].alive, found[alive.name].alive) == (False, True)
        assert found["left"].lines() == ["simcse seed 1: stopped: sub"]
        assert found["left"].summary() == "0 of 1 cells done; stopped: its process is gone"
        assert found[alive.name].lines() == ["simcse seed 1: stage sub, step 0 of 10, ? left"]
        clear_leftovers(root)
        assert [path.name for path in left.parent.iterdir()] == [alive.name]
    assert not (root / ".running").exists()


def test_clearing_follows_no_link(tmp_path: Path) -> None:
    precious = tmp_path / "home" / "x"
    precious.mkdir(parents=True)
    (precious / "run.jsonl").write_text("{}\n")
    root = tmp_path / "results" / "local"
    (root / ".locks").mkdir(parents=True)
    (root / ".running").symlink_to(tmp_path / "home")
    clear_leftovers(root)
    (root / ".running").unlink()
    (root / ".running").mkdir()
    (root / ".running" / "x").symlink_to(precious)
    clear_leftovers(root)
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
    found = ends_of(path)
    assert (found and found[1]) == last


def test_a_pipe_and_hostile_values_hold_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "link.jsonl").symlink_to("/dev/zero")
    bad = {"method": "\x1b[31m" + "m" * 10_000, "seed": 1e300, "suites": 7, "time": "now"}
    news = {"doing": "train", "stage": [1], "step": 10**400, "steps": True, "loss": "x", "seconds": -1e308}
    for number, text in enumerate((json.dumps(news), '{"doing":["train"]}', '{"doing":{}}')):
        (folder / f"{number}.jsonl").write_text(f"{json.dumps(bad)}\n{text}\n")
    run = Run(folder)
    run.look()
    for line in [*run.lines(), run.summary()]:
        assert line.isprintable()
        assert len(line) < 200
    assert len(run.rows()) == 3


def test_plain_lines_come_every_half_minute_and_a_terminal_shows_a_table(folder: Path, capsys: Any) -> None:
    clock, run = Clock(), Run(folder)
    trained(begun(folder, "a", clock), clock)
    run.look()
    with shown(Console(stderr=True), clock) as show:
        for _ in range(65):
            clock.now += 1
            show({"": run})
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 2 * 2)
    assert "step 5 of 10" in printed.err
    out = io.StringIO()
    with shown(Console(file=out, force_terminal=True, width=80)) as show:
        show({"local: ": run})
        written = out.getvalue()
    for part in ("simcse", "sub", "5 of 10", "0.2", "50", "32", " s", "local: 0 of 3 cells done"):
        assert part in written
    assert counted("text", 0, None, 40) == "text: 0, 0 a second, 40 s gone"


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
    with opened_logs([name], results, "local", told.append) as (look,):
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
    assert line.startswith("--log wandb ended, the run goes on: AttributeError: ")


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

    monkeypatch.setattr(progress, "watched", ended)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # an earlier test may have left a library's
    code, out, err = cli(*RUN)
    after = signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
    hint = "interrupted; finished cells are kept, the same command goes on from them"
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
