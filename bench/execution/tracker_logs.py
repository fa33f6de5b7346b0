"""Training curves for TensorBoard and wandb, written from the events of the run's cells."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import InputError, printable
from bench.eval.embedding_collapse import Collapse
from bench.execution.events import ENDED, RUN, SUFFIX, TRAINS
from bench.execution.monitor import EventTail, finite_number
from bench.records.record import safe_name

_LIBRARIES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}
_OF_STEPS, _OF_DEV = ("loss", "rate", "speed"), ("dev", "gradient_norm")
Values = Mapping[str, float]


def check_log_libraries(names: Sequence[str]) -> None:
    """Raise InputError where the import of a requested library fails."""
    for name in names:
        try:
            importlib.import_module(_LIBRARIES[name])
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == name
            what = f"{name} is not installed" if missing else f"{name} can't be imported: {error}"
            raise InputError(what, where=f"--log {name}", hint=f"pip install 'cse-bench[{name}]'") from error


class _TensorBoard:
    """One cell's curves for TensorBoard, one run per stage; ``time`` in seconds since the epoch."""

    def __init__(self, results: Path, about: Mapping[str, Any]) -> None:
        method, seed = safe_name(str(about.get("method"))), about.get("seed")
        folder = results / ".tensorboard" / str(about["campaign"]) / method
        self._folder = folder / ("no-seed" if seed is None else f"seed-{seed}")
        self._writers: dict[str, Any] = {}

    def step(self, stage: str, step: int, values: Values, time: float) -> None:
        writer = self._writer(safe_name(stage), step)
        for name, value in values.items():
            writer.add_scalar(name, value, step, walltime=time)
        writer.flush()

    def end(self, scores: Values) -> None:
        for suite, score in scores.items():
            self._writer("", 0).add_scalar(f"average/{suite}", score, 0)
        for writer in self._writers.values():
            writer.close()

    def _writer(self, stage: str, step: int) -> Any:
        if stage not in self._writers:
            make = importlib.import_module(_LIBRARIES["tensorboard"]).SummaryWriter
            self._writers[stage] = make(str(self._folder / stage), purge_step=step)  # of a stopped training
        return self._writers[stage]


class _Wandb:
    """One cell as a run of wandb, offline unless WANDB_MODE is set."""

    def __init__(self, results: Path, about: Mapping[str, Any]) -> None:
        wandb = importlib.import_module("wandb")
        method, seed, campaign = str(about.get("method")), about.get("seed"), str(about["campaign"])
        folder = results / ".wandb" / campaign
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "bench"),
            name=method if seed is None else f"{method} seed {seed}",
            group=campaign,
            job_type=method,
            config={"method": method, "seed": seed, "campaign": campaign},
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._stages: set[str] = set()

    def step(self, stage: str, step: int, values: Values, time: float) -> None:
        if stage not in self._stages:
            self._stages.add(stage)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        self._run.log({f"{stage}/step": step, **{f"{stage}/{name}": v for name, v in values.items()}})

    def end(self, scores: Values) -> None:
        self._run.summary.update({f"average/{suite}": score for suite, score in scores.items()})
        self._run.finish()


CurveLog = _TensorBoard | _Wandb
OpenLog = Callable[[Path, Mapping[str, Any]], CurveLog]
_KINDS: dict[str, OpenLog] = {"tensorboard": _TensorBoard, "wandb": _Wandb}


class _LogWriter:
    """Passes the events of a run's cells to one kind of log until an error, which leaves the run alone."""

    def __init__(self, name: str, results: Path, campaign: str, tell: Callable[[str], None]) -> None:
        self._name, self._campaign, self._tell = name, campaign, tell
        self._open = partial(_KINDS[name], results)
        self._cells: dict[str, _CellLog] = {}
        self._failed = False

    def look(self, folder: Path) -> None:
        """Log what is new in the run's folder."""
        self._guard(self._log_news, folder)

    def close(self) -> None:
        """Close the logs of stopped cells."""
        for cell in self._cells.values():
            self._guard(cell.end, {})

    def _log_news(self, folder: Path) -> None:
        for path in sorted(folder.glob(f"[!.]*{SUFFIX}")):
            if path.stem != RUN:
                if path.name not in self._cells:
                    self._cells[path.name] = _CellLog(EventTail(path), self._open, self._campaign)
                self._cells[path.name].look()

    def _guard(self, call: Callable[..., None], *arguments: Any) -> None:
        if self._failed:
            return
        try:
            call(*arguments)
        except Exception as error:
            self._failed = True
            reason = printable(" ".join(f"{type(error).__name__}: {error}".split()))
            self._tell(f"--log {self._name} ended, the run continues: {reason}")


class _CellLog:
    """A cell's events on their way to its log; its first training step opens that with the first line."""

    def __init__(self, tail: EventTail, open_log: partial[CurveLog], campaign: str) -> None:
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
        if not self._over and self._log is not None:
            self._log.end(scores)
        self._over = True

    def _log_step(self, line: Mapping[str, Any]) -> None:
        stage, step = str(line.get("stage")), finite_number(line.get("step"))
        if step is None:
            return
        news: dict[str, Any] = {}
        if self._is_new("step", stage, step):
            news |= {name: line.get(name) for name in _OF_STEPS}
        if line.get("dev_step") == step and self._is_new("dev_step", stage, step):
            news |= {name: line.get(name) for name in _OF_DEV}
            news |= zip(Collapse._fields, line.get("collapse") or (), strict=False)
        values = {name: n for name, value in news.items() if (n := finite_number(value)) is not None}
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
    """Yield functions that log a run's news: call them with the run's folder again and again."""
    writers = [_LogWriter(name, results, campaign, tell) for name in dict.fromkeys(names)]
    try:
        yield [writer.look for writer in writers]
    finally:
        for writer in writers:
            writer.close()
