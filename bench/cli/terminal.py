"""The terminal: tables that fit it, and the progress of cells."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.messages import is_quiet
from bench.errors import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from bench.execution.monitor import RunMonitor
    from bench.render.formats import Screen
    from bench.render.grid import Grid


def get_screen(width: int | None = None) -> Screen:
    """Return the size of stdout and whether it is a terminal; for a file COLUMNS is ignored."""
    from bench.render.formats import Screen

    if sys.stdout is None or not sys.stdout.isatty():
        return Screen(width)
    size = shutil.get_terminal_size()
    return Screen(width or size.columns, True, size.lines)


def format_grids(grids: Sequence[Grid]) -> str:
    """Return tables for stdout."""
    from bench.render.formats import render_text

    return render_text(grids, get_screen())


PLAIN_EVERY = 30.0  # seconds between plain lines
LOOK_EVERY = 1.0  # seconds between updates of the display
_MOST, _BAR = 100, 20  # lines of cells at a time, characters of the bar


@contextmanager
def repeat_call(seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Call a function every so many seconds while the block runs, in a thread."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            call()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield what advances a progress bar on stderr, or a line every half minute outside a terminal."""
    if is_quiet():
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if console.is_terminal or console.is_jupyter:
        with Progress(console=console, transient=True) as bar:
            counter = bar.add_task(what, total=total)
            yield lambda n: bar.advance(counter, n)
        return
    done, begin = 0, time.monotonic()

    def advance(n: int) -> None:
        nonlocal done
        done += n

    def line() -> None:
        click.echo(format_progress(what, done, total, time.monotonic() - begin), err=True)

    with repeat_call(PLAIN_EVERY, line):
        yield advance


def format_progress(what: str, done: int, total: int | None, seconds: float) -> str:
    """Format progress as one line.

    >>> format_progress("pretrain", 300, 1200, 60)
    'pretrain: 300 of 1,200, 5 a second, 60 s gone, 3 min left'
    """
    from bench.execution.monitor import format_duration

    speed = done / seconds if seconds else 0.0
    of = f" of {total:,}" if total else ""
    left = f", {format_duration(max(0, total - done) / speed)} left" if total and speed else ""
    return f"{printable(what)}: {done:,}{of}, {speed:.3g} a second, {format_duration(seconds)} gone{left}"


ShowRuns = Callable[[Mapping[str, "RunMonitor"]], None]
"""Called with runs by their title, at every update."""


@contextmanager
def open_display(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[ShowRuns]:
    """Yield what shows runs: live in a terminal, otherwise in plain lines every half minute."""
    if console.is_terminal or console.is_jupyter:
        from rich.live import Live

        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda runs: live.update(_build_run_table(runs, console.width), refresh=True)
        return
    last = clock()

    def show(runs: Mapping[str, RunMonitor]) -> None:
        nonlocal last
        if clock() - last >= PLAIN_EVERY:
            last = clock()
            for line in format_runs(runs):
                click.echo(line, err=console.stderr)

    yield show


def format_runs(runs: Mapping[str, RunMonitor]) -> Iterator[str]:
    """Yield plain lines: one a running cell, then one of the run."""
    for title, run in runs.items():
        yield from run.lines()[:_MOST]
        yield title + run.summary()


def _build_run_table(runs: Mapping[str, RunMonitor], width: int) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from bench.execution.monitor import HEAD

    parts: list[RenderableType] = []
    for title, run in runs.items():
        rows = run.rows()[:_MOST]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
        room = width - sum(widths[1:]) - 2 * len(HEAD)  # the method's name gives way
        for name, wide in zip(HEAD, widths, strict=True) if rows else ():
            fixed = wide if name != "cell" else max(8, min(wide, room))
            table.add_column(name, no_wrap=True, overflow="ellipsis", width=fixed)
        for row in rows:
            table.add_row(*map(Text, row))
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(ProgressBar(1.0, run.measure_progress(), width=_BAR), Text(title + run.summary()))
        parts += [table, line]
    return Group(*parts)


@contextmanager
def watch_run(
    folder: Path, *, console: Console | None, logs: Sequence[Callable[[Path], None]] = ()
) -> Iterator[None]:
    """Show a run's events while the block runs, None: nowhere; ``logs`` get every update, also the last."""
    from bench.execution.monitor import RunMonitor

    run = RunMonitor(folder)

    def look() -> None:
        run.look()
        show({"": run})
        for log in logs:
            log(folder)

    display: AbstractContextManager[ShowRuns] = nullcontext(lambda runs: None)
    if console is not None:
        display = open_display(console)
    with display as show:
        try:
            with repeat_call(LOOK_EVERY, look):
                yield
        finally:
            for log in logs:
                log(folder)
