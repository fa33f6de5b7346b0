"""Start the processes that train one encoder together; a failure ends them all."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch

from bench.config.plugins import load_plugins
from bench.config.run_spec import Plugin
from bench.errors import BenchError, CellFailedError, InputError
from bench.training.child_processes import (
    INTERRUPTED,
    FreshContext,
    exit_on_interrupt,
    hold_interrupts,
    wait_for_sigterm,
)
from bench.training.distributed import join_process_group

Say = Callable[[Any], None]
"""Reports the first process's progress to the caller."""
Work = Callable[[Path, Say | None], Any]
"""A process's work: it gets a scratch folder, and a function for its progress."""
_LAST_WORDS = 10.0  # seconds for a terminated process to end


def check_devices(size: int, device: str) -> None:
    """Raise InputError for fewer CUDA devices than processes."""
    if device.startswith("cuda") and (count := torch.cuda.device_count()) < size:
        what = f"{size} processes train a cell together, one a CUDA device, and torch sees {count}"
        expected = f"at most {count}" if count else "a machine with CUDA devices, or --device cpu"
        raise InputError(what, where=f"--ranks {size}", expected=expected)


def run_processes(
    work: Work, size: int, *, device: str, plugins: Sequence[Plugin] = (), progress: Say | None = None
) -> Any:
    """Run ``work`` in fresh (spawned) processes that form one group.

    ``work`` pickles; every process runs it after loading the plug-ins. On "cuda" each gets its own device.
    ``progress`` is called with the first process's messages: sentences, or the facts of a training.

    Returns:
        The first process's return value of ``work``: plain values.

    Raises:
        InputError: fewer CUDA devices than processes.
        CellFailedError: a process was killed.
        Exception: the error of the first process to fail, its traceback as a note; the others are ended.
    """
    check_devices(size, device)
    with tempfile.TemporaryDirectory() as folder:
        context, running = FreshContext(), dict[Connection, BaseProcess]()
        try:
            for rank in range(size):
                ours, theirs = context.Pipe()
                given = (theirs, rank, size, Path(folder), device, torch.get_num_threads(), tuple(plugins))
                started = context.Process(target=_run_process, args=given)
                with hold_interrupts():
                    started.start()
                theirs.close()
                running[ours] = started
            parcel = ForkingPickler.dumps(work)
            with suppress(BrokenPipeError):  # it has ended already: its message is read below
                for ours in running:
                    ours.send_bytes(parcel)
            return _collect_results(running, progress)
        except BaseException:
            for process in running.values():
                process.terminate()
            raise
        finally:
            _end_processes(running)


def _collect_results(running: dict[Connection, BaseProcess], progress: Say | None) -> Any:
    """Wait until all have finished; raise the error of the first one to fail."""
    ranks = {pipe: rank for rank, pipe in enumerate(running)}
    results: dict[int, Any] = {}
    while len(results) < len(ranks):
        failed: list[tuple[float, BaseException]] = []
        for pipe in wait([pipe for pipe, rank in ranks.items() if rank not in results]):
            assert isinstance(pipe, Connection)  # noqa: S101 - an argument of wait()
            try:
                kind, content = pipe.recv()
            except (EOFError, OSError):
                kind, content = "failed", (0.0, _exit_error(running[pipe], ranks[pipe], len(ranks)), "")
            if kind == "failed":
                at, error, trace = content
                if trace:
                    error.add_note(f"in process {ranks[pipe]} of {len(ranks)}:\n{trace}")
                failed.append((at, error))
            elif kind == "done":
                results[ranks[pipe]] = content
            elif progress:
                progress(content)
        if failed:  # the others fail later, in consequence
            raise min(failed, key=lambda failure: failure[0])[1]
    return results[0]


def _exit_error(process: BaseProcess, rank: int, size: int) -> BaseException:
    """Return the error for a process that ended silently."""
    process.join(_LAST_WORDS)
    if process.exitcode == INTERRUPTED:
        return KeyboardInterrupt()
    if process.exitcode == -signal.SIGTERM:
        wait_for_sigterm()
    what = f"process {rank} of the {size} that train together died (killed, or out of memory?)"
    return CellFailedError(what, hint="run the same command again, with fewer or more --ranks")


def _end_processes(running: dict[Connection, BaseProcess]) -> None:
    """Wait for finished and terminated processes; kill the others."""
    for pipe, process in running.items():
        pipe.close()
        process.join(_LAST_WORDS)
        if process.is_alive():
            process.kill()
            process.join()


def _run_process(
    pipe: Connection, rank: int, size: int, folder: Path, device: str, threads: int, plugins: Sequence[Plugin]
) -> None:
    """Run the work in a process; the arguments are needed before the work can be read."""
    exit_on_interrupt()
    if rank:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    try:
        torch.set_num_threads(threads)
        load_plugins(plugins)
        work: Work = pipe.recv()
        scratch = folder / f"rank-{rank}"
        scratch.mkdir()
        report = (lambda n: pipe.send(("progress", n))) if rank == 0 else None
        with join_process_group(rank, size, folder / "meeting", device):
            result = work(scratch, report)
        pipe.send(("done", result if rank == 0 else None))
    except (Exception, SystemExit) as error:
        _send_failure(pipe, error)
        os._exit(1)  # leaving in order would wait for the others


def _send_failure(pipe: Connection, error: BaseException) -> None:
    trace = "".join(traceback.format_exception(error)).rstrip()
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # of any library
        error = BenchError(f"{type(error).__name__}: {error}")
    with suppress(OSError):
        pipe.send(("failed", (time.monotonic(), error, trace)))
