"""Runs of ``bench`` that faults hit, forked from a process that has imported all, or as anyone starts it."""

from __future__ import annotations

import importlib
import multiprocessing
import multiprocessing.forkserver
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.faults import checks, small
from tests.faults.checks import MADE, Done, NotSurvivedError, expect
from tests.support.cli import last_of_each

ROOT = Path(__file__).parents[2]
PLUGIN = Path(__file__).parent / "plugin"
INTERRUPTED = "interrupted; finished cells are kept, repeat the command to resume"
STARTED = ".started"
_LAUNCH = f"""
import os, runpy, sys
def hook(event, arguments):
    if event == "exec" and arguments[0].co_filename.endswith("bench/__main__.py"):
        os.close(os.open({STARTED!r}, os.O_CREAT | os.O_WRONLY))
sys.addaudithook(hook)
runpy.run_module("bench", run_name="__main__", alter_sys=True)
"""
"""``python -m bench`` that leaves a file when its first line runs: what comes before is Python's own."""
_LONGEST = 300.0


@dataclass(frozen=True)
class Work:
    name: str
    arguments: tuple[str, ...]
    verb: tuple[str, ...] = ("run", "--suite", "toy")
    given: Callable[[Path], object] | None = None

    def command(self, folder: Path, *extra: str) -> list[str]:
        arguments = [*self.verb, *self.arguments, *extra]
        if self.given is not None:
            self.given(folder)
        if "--dev" in arguments:
            text, model = folder / "corpus.txt", folder / "model"
            if not text.exists():
                text.write_text("\n".join(small.toy_sentences()) + "\n")
                model.mkdir()
                (model / "config.json").write_text("{}")
                (model / "model.safetensors").write_bytes(b"no weights: fault_trained reads none")
            arguments += ["--corpus", str(text)]
            if self.verb[0] == "run" and "simcse" not in self.name:
                arguments += ["--backbone", str(model)]
        return arguments


PLAIN = Work("plain", ("--methods", "fault_plain[wait=0.02]", "--seeds", "1-6"))
SHORT = Work("short", ("--methods", "fault_plain", "--seeds", "1-2"))
DRAWN = Work("drawn", ("--methods", "fault_plain", "--seeds", "1-2"), ("run", "--suite", "mini"))
"""Of items enough that share no sentence: ``bench stats`` draws some of them."""
TRAINED = Work(
    "trained", ("--methods", "fault_trained,fault_trained[scale=2]", "--seeds", "1-2", "--dev", "toy")
)
SIMCSE = Work(
    "simcse",
    ("--methods", "simcse", "--seeds", "1-2", "--dev", "toy", "--set", "simcse.steps=2",
     "--set", "simcse.eval_every=2", "--set", "simcse.batch_size=8"),
)  # fmt: skip


@dataclass
class Run:
    process: multiprocessing.context.ForkServerProcess
    out: Path
    error: Path

    @property
    def pid(self) -> int:
        pid = self.process.pid
        assert pid is not None
        return pid

    def signal(self, number: int, *, group: bool = False) -> None:
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.pid, number)

    def wait_for(self, path: Path, lines: int = 0) -> None:
        while True:
            ended = self.process.exitcode is not None
            if path.exists() and path.read_bytes().count(b"\n") >= lines:
                return
            expect(not ended, f"it made no {path.name}: {self.error.read_text()[-500:]}")
            time.sleep(0.002)

    def wait_until_stopped(self) -> None:
        while self._state() != "T":
            expect(self.process.exitcode is None, f"it didn't stop: {self.error.read_text()[-500:]}")
            time.sleep(0.002)

    def _state(self) -> str:
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return ""

    def wait_for_end_or(self, path: Path) -> bool:
        while self.process.exitcode is None and not path.exists():
            time.sleep(0.002)
        return path.exists()

    def wait(self) -> Done:
        deadline = time.monotonic() + _LONGEST
        self.process.join(_LONGEST)
        code = self.process.exitcode
        if code is None:
            raise self._given_up("the run hangs")
        while self._group_is_there():
            if time.monotonic() > deadline:
                raise self._given_up("a worker outlived its parent")
            time.sleep(0.002)
        out = self.out.read_text(errors="replace") if self.out.is_file() else ""
        return Done(code, out, self.error.read_text(errors="replace"))

    def _given_up(self, what: str) -> NotSurvivedError:
        self.signal(signal.SIGKILL, group=True)
        return NotSurvivedError(f"{what}: {self.error.read_text(errors='replace')[-500:]}")

    def _group_is_there(self) -> bool:
        """True while a process of its group is alive; dead ones that nobody waited for don't count."""
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, group = status.read_text().rpartition(")")[2].split()[:3]
                if int(group) == self.pid and state != "Z":
                    return True
        return not Path("/proc/self/stat").exists()


def environment(folder: Path, fault: str, extra: dict[str, str]) -> dict[str, str]:
    path = [str(PLUGIN), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "GIT_DIR": os.devnull,  # a commit meanwhile would be another provenance
        "COLUMNS": "160",
        "FAULT_LOG": str(folder / "log"),
        "BENCH_FAULT": fault,
        "BENCH_FAULT_BELOW": os.pathsep.join(str(folder / each) for each in ("results", MADE)),
    } | extra


def start(
    folder: Path,
    arguments: Sequence[str],
    *,
    warm: bool = True,
    fault: str = "",
    out: Path | None = None,
    **extra: str,
) -> Run:
    number = len(list(folder.glob(".run-*.err")))
    out, error = out or folder / f".run-{number}.out", folder / f".run-{number}.err"
    for path in (out, error):
        path.touch()
    (folder / STARTED).unlink(missing_ok=True)
    surroundings = environment(folder, fault, extra)
    process = _server(surroundings).Process(
        target=_bench, args=(last_of_each(arguments), folder, surroundings, out, error, warm)
    )
    process.start()
    return Run(process, out, error)


def run(folder: Path, arguments: Sequence[str], **how: Any) -> Done:
    return start(folder, arguments, **how).wait()


def finish(folder: Path, arguments: Sequence[str], expected: dict[str, bytes]) -> Done:
    """Run a disturbed run's command again; raises NotSurvivedError unless it ends as undisturbed."""
    before = checks.finished(folder)
    done = run(folder, arguments)
    expect(done.code == 0, f"the same command can't go on: {done.error[-800:]}")
    checks.check_kept(before, checks.finished(folder))
    checks.check_whole(folder, expected)
    if checks.finished(folder):
        data = ["--data", "data"] if (folder / "data").exists() else []
        verified = run(folder, ["verify", *data])
        expect(verified.code == 0 and "nothing wrong" in verified.out, verified.out + verified.error)
    return done


def _server(surroundings: dict[str, str]) -> multiprocessing.context.ForkServerContext:
    """The process that warm runs are forked from, started once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.warm"])
    before = dict(os.environ)
    os.environ.update(surroundings | {"BENCH_FAULT": ""})
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


def _bench(
    arguments: list[str], folder: Path, surroundings: dict[str, str], out: Path, error: Path, warm: bool
) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(surroundings)
    for path, number in ((out, 1), (error, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is born deaf to it
    if not warm:
        os.execv(sys.executable, [sys.executable, "-c", _LAUNCH, *arguments])  # noqa: S606
    sys.path.insert(0, str(PLUGIN))
    sys.argv = ["bench", *arguments]
    fork = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: fork  # type: ignore[assignment]
    from bench.__main__ import start_command_line

    small.begin(folder)
    importlib.import_module("bench_faults").begin()
    os.close(os.open(STARTED, os.O_CREAT | os.O_WRONLY))
    start_command_line()


@dataclass(frozen=True)
class Change:
    process: str
    kind: str
    path: str


def undisturbed(work: Work, folder: Path, *extra: str, **how: Any) -> dict[str, bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    done = run(folder, work.command(folder, *extra), **how)
    expect(done.code == 0, f"the undisturbed run of {work.name} failed: {done.error[-500:]}")
    return checks.stable(folder)


def changes(work: Work, folder: Path, *extra: str, **how: Any) -> tuple[dict[str, bytes], list[Change]]:
    """The bytes of a run that nothing disturbs, and every change that its first process makes, in order."""
    file = folder / "changes"
    expected = undisturbed(work, folder, *extra, fault=f"list:{file}", **how)
    rows = [line.split(" ", 2) for line in file.read_text().splitlines()]
    every = [Change(process, kind, path.removeprefix(f"{folder}/")) for process, kind, path in rows]
    busiest = max({change.process for change in every}, key=[c.process for c in every].count)
    return expected, [change for change in every if change.process == busiest]


def where(made: Sequence[Change], kind: str, pattern: str) -> list[int]:
    """How many changes come before each one of a kind to a path like that."""
    return [
        number for number, change in enumerate(made) if change.kind == kind and fnmatch(change.path, pattern)
    ]


def _given_records(folder: Path) -> None:
    source = folder.parent / "records"
    if not source.exists():
        undisturbed(PLAIN, source, "--workers", "1")
    if not (folder / "results").exists():
        shutil.copytree(source / "results", folder / "results")


def _given_bundle(folder: Path) -> None:
    source = folder.parent / "bundled"
    if not source.exists():
        undisturbed(SWEEP, source)
        done = run(source, ["bundle", "local", "--out", "bundle.zip"])
        expect(done.code == 0, f"no bundle: {done.out}{done.error}")
    shutil.copy(source / "bundle.zip", folder)


SWEEP = Work(
    "sweep", ("--seeds", "1-2", "--dev", "toy", "--workers", "1"), ("sweep", "fault", "--suite", "toy")
)
PRETRAIN = Work("pretrain", ("--out", f"{MADE}/bert"), ("pretrain",))
LONG_PRETRAIN = Work(
    "long pretraining", (*PRETRAIN.arguments, "--steps", "60"), ("pretrain",), small.keep_often
)
_LENGTH = ("steps=6", "eval_every=3", "batch_size=8")
_STAGES = ("esimcse", "jtcse", "jtcse.sub1", "jtcse.sub2", "simcse", "distill")
LONG = Work(
    "long simcse and others",
    (
        *("--methods", "esimcse,jtcse,distill:simcse", "--seeds", "1", "--dev", "toy"),
        *("--set", "jtcse.rtt=none"),
        *(text for stage in _STAGES for each in _LENGTH for text in ("--set", f"{stage}.{each}")),
    ),
    given=small.keep_often,
)
FETCH = Work("fetch sts7", ("sts7", "--data", f"{MADE}/data"), ("data", "fetch"), small.use_hub)
TEXT = Work("fetch wiki1m", ("wiki1m", "--data", f"{MADE}/data"), ("data", "fetch"), small.use_hub)
REPORT = Work("report", ("--figures", f"{MADE}/figures"), ("report",), _given_records)
BUNDLE = Work("bundle", ("local", "--out", f"{MADE}/bundle.zip"), ("bundle",), _given_records)
MERGE = Work("merge", ("bundle.zip", "--into", "results"), ("merge",), _given_bundle)
