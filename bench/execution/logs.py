"""The curves of training for TensorBoard and wandb, written from the events of the run's cells."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench.errors import InputError, printable
from bench.eval.collapse import Collapse
from bench.execution.events import ENDED, RUN, SUFFIX, TRAINS
from bench.execution.monitor import EventTail, finite_number
from bench.records.record import safe_name

_LIBRARIES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}
_OF_STEPS, _OF_DEV = ("loss", "rate", "speed"), ("dev", "gradient_norm")
_COLLAPSE = Collapse._fields
Values = Mapping[str, float]


class CurveLog(Protocol):
    """Where one cell's curves go."""

    def step(self, stage: str, step: int, values: Values, time: float) -> None:
        """Take the values of a step of a stage; time in seconds since the epoch."""
        ...

    def end(self, scores: Values) -> None:
        """Take the average of each suite, and close; of a cell that was stopped there is none."""
        ...


Open = Callable[[Mapping[str, Any]], CurveLog]
"""From the first line of a cell's events, with its campaign, to what takes its curves."""


def check_log_libraries(names: Sequence[str]) -> None:
    """Raise InputError where a library that is asked for can't be imported."""
    for name in names:
        try:
            importlib.import_module(_LIBRARIES[name])
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == name
            raise InputError(
                f"{name} is not installed" if missing else f"{name} can't be imported: {error}",
                where=f"--log {name}",
                hint=f"pip install 'cse-bench[{name}]'",
            ) from error


class TensorBoard:
    """One cell's curves as TensorBoard reads them, a run a stage.

    Args:
        folder: Of the cell.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._writers = folder, dict[str, Any]()

    def step(self, stage: str, step: int, values: Values, time: float) -> None:
        """See :class:`Log`."""
        writer = self._writer(safe_name(stage), step)
        for name, value in values.items():
            writer.add_scalar(name, value, step, walltime=time)
        writer.flush()

    def end(self, scores: Values) -> None:
        """See :class:`Log`."""
        for suite, score in scores.items():
            self._writer("", 0).add_scalar(f"average/{suite}", score, 0)
        for writer in self._writers.values():
            writer.close()

    def _writer(self, stage: str, step: int) -> Any:
        if stage not in self._writers:
            make = importlib.import_module(_LIBRARIES["tensorboard"]).SummaryWriter
            self._writers[stage] = make(str(self._folder / stage), purge_step=step)  # of a stopped training
        return self._writers[stage]


class Wandb:
    """One cell as a run of wandb, offline unless WANDB_MODE says otherwise.

    Args:
        about: The first line of its events, with its campaign.
        folder: Where it keeps its files.
    """

    def __init__(self, about: Mapping[str, Any], folder: Path) -> None:
        wandb = importlib.import_module("wandb")
        folder.mkdir(parents=True, exist_ok=True)
        method, seed = str(about.get("method")), about.get("seed")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "bench"),
            name=method if seed is None else f"{method} seed {seed}",
            group=str(about["campaign"]),
            job_type=method,
            config={"method": method, "seed": seed, "campaign": about["campaign"]},
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._stages: set[str] = set()

    def step(self, stage: str, step: int, values: Values, time: float) -> None:
        """See :class:`Log`."""
        if stage not in self._stages:
            self._stages.add(stage)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        self._run.log({f"{stage}/step": step, **{f"{stage}/{name}": each for name, each in values.items()}})

    def end(self, scores: Values) -> None:
        """See :class:`Log`."""
        self._run.summary.update({f"average/{suite}": score for suite, score in scores.items()})
        self._run.finish()


class LogWriter:
    """Brings the events of a run's cells to a log.

    Args:
        open_log: Opens the log of a cell.
        campaign: The run's campaign.
    """

    def __init__(self, open_log: Open, campaign: str) -> None:
        self._open, self._campaign = open_log, campaign
        self._cells: dict[str, _CellLog] = {}

    def look(self, folder: Path) -> None:
        """Take in what is new in the run's folder."""
        for path in sorted(folder.glob(f"[!.]*{SUFFIX}")):
            if path.stem != RUN:
                if path.name not in self._cells:
                    self._cells[path.name] = _CellLog(EventTail(path), self._open, self._campaign)
                self._cells[path.name].look()

    def close(self) -> None:
        """Close what is open, of cells that were stopped."""
        for cell in self._cells.values():
            cell.end({})


class _CellLog:
    """A cell's events, on their way to its log, which is opened for its first training step."""

    def __init__(self, tail: EventTail, open_log: Open, campaign: str) -> None:
        self._tail, self._open, self._campaign = tail, open_log, campaign
        self._about: Mapping[str, Any] | None = None
        self._log: CurveLog | None = None
        self._last = {"step": ("", 0.0), "dev_step": ("", 0.0)}
        self._over = False

    def look(self) -> None:
        for line in () if self._over else self._tail.lines():
            if self._about is None:
                self._about = {**line, "campaign": self._campaign}
            elif line.get("doing") == TRAINS:
                self._log_step(line)
            elif line.get("doing") == ENDED:
                scores = line.get("scores")
                self.end(scores if isinstance(scores, dict) else {})

    def end(self, scores: Values) -> None:
        if not self._over:
            self._over = True
            if self._log is not None:
                self._log.end(scores)

    def _log_step(self, line: Mapping[str, Any]) -> None:
        stage, step = str(line.get("stage")), finite_number(line.get("step"))
        if step is None:
            return
        found = {name: line.get(name) for name in _OF_STEPS} if self._is_new("step", stage, step) else {}
        if line.get("dev_step") == step and self._is_new("dev_step", stage, step):
            found |= {name: line.get(name) for name in _OF_DEV}
            found |= zip(_COLLAPSE, line.get("collapse") or (), strict=False)
        values = {name: value for name, each in found.items() if (value := finite_number(each)) is not None}
        if values:
            self._log = self._log or self._open(self._about or {})
            self._log.step(stage, int(step), values, finite_number(line.get("time")) or 0.0)

    def _is_new(self, kind: str, stage: str, step: float) -> bool:
        last, self._last[kind] = self._last[kind], (stage, step)
        return last != (stage, step)


@contextmanager
def open_logs(
    names: Sequence[str], results: Path, campaign: str, tell: Callable[[str], None]
) -> Iterator[list[Callable[[Path], None]]]:
    """Yield what brings a run's events to logs: called with the run's folder again and again.

    A log that fails is told of once and then left: no run fails for it.

    Args:
        names: "tensorboard" (below ``results/.tensorboard``), "wandb" (``results/.wandb``).
        results: The results folder.
        campaign: The run's campaign.
        tell: Gets a line.
    """
    below = {name: results / f".{name}" / campaign for name in names}
    kinds: dict[str, Open] = {
        "tensorboard": lambda about: TensorBoard(below["tensorboard"] / _cell_folder(about)),
        "wandb": lambda about: Wandb(about, below["wandb"]),
    }
    writers = {name: LogWriter(kinds[name], campaign) for name in dict.fromkeys(names)}
    failed: set[str] = set()

    def guarded(name: str, call: Callable[..., None], *arguments: Any) -> None:
        if name not in failed:
            try:
                call(*arguments)
            except Exception as error:
                failed.add(name)
                reason = printable(" ".join(f"{type(error).__name__}: {error}".split()))
                tell(f"--log {name} ended, the run goes on: {reason}")

    def looking(name: str) -> Callable[[Path], None]:
        return lambda folder: guarded(name, writers[name].look, folder)

    try:
        yield [looking(name) for name in writers]
    finally:
        for name, writer in writers.items():
            guarded(name, writer.close)


def _cell_folder(about: Mapping[str, Any]) -> Path:
    seed = about.get("seed")
    return Path(safe_name(str(about.get("method"))), "no-seed" if seed is None else f"seed-{seed}")
