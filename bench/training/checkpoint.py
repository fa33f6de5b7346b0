"""Checkpoints of a training in progress: the same command goes on where it was killed.

One file holds all that the next step depends on: weights, optimiser, generators, the objective's own state,
and the history with the best weights so far. The order of batches follows from the number of steps. The file
is replaced atomically every :data:`EVERY` seconds, and at SIGTERM and Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch

from bench.errors import BenchError, DataError
from bench.records.filesystem import remove_with_leftovers
from bench.training.distributed import broadcast_from_first, is_first_process, is_group, sum_over_processes
from bench.training.object_state import ObjectState, UnknownStateError
from bench.training.state_file import pack_state, read_state, write_state

EVERY = 300.0
"""Seconds between checkpoints; a training that takes less makes none."""
_PATIENCE = 3.0  # seconds in which a second Ctrl-C is ignored, as on the command line
_ASKED_EVERY = 16  # steps after which processes that train together agree on a checkpoint
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Part(Protocol):
    """A part of a training's state."""

    def collect(self) -> Any:
        """Return its state as data (see :func:`bench.training.state_file.is_data`)."""
        ...

    def restore(self, data: Any) -> None:
        """Go on from a collected state."""
        ...


class OptimizerState:
    """An optimiser's moments and counts; its rates are set at every step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def collect(self) -> Any:
        """Return the state of every parameter by its number."""
        return self._optimizer.state_dict()["state"]

    def restore(self, data: Any) -> None:
        """Replace the state."""
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": data, "param_groups": groups})


def print_line(line: str) -> None:
    """Print a line on stderr."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Checkpoint:
    """The checkpoint of one training; without a path nothing is kept.

    Args:
        path: Its file.
        identity: Everything that determines the training's bytes, as JSON values; a checkpoint of another
            identity is not used.
        device: Device of the training.
        say: Called with each line for the user.
    """

    def __init__(
        self,
        path: Path | None,
        identity: Mapping[str, Any] | None = None,
        device: torch.device | str = "cpu",
        say: Callable[[str], None] = print_line,
    ) -> None:
        self.path, self._identity, self._device = path, dict(identity or {}), device
        self._say: Callable[[str], None] = say if is_first_process() else lambda line: None
        self._begin, self._cpu = time.monotonic(), time.process_time()
        self._earlier, self._earlier_cpu = 0.0, 0.0  # seconds of the processes before this one
        self.parts: dict[str, Part] = {}
        """What it keeps, by name."""
        self._kept_at, self._step, self._kept = self._begin, 0, 0
        self._asked: tuple[int, float] | None = None  # signal, and its time
        self._before: dict[int, Any] = {}  # handlers that were there
        self._handler = self._handle_signal
        self.due = False
        """This step ends with a checkpoint; the next one isn't prepared before."""

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the training, those of killed processes up to their checkpoint included."""
        return self._earlier + time.monotonic() - self._begin

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds likewise."""
        return self._earlier_cpu + time.process_time() - self._cpu

    def resume(self, objective: object, settings: Any, **facts: Any) -> int:
        """Restore all parts and the objective from this training's file; return its finished steps, or 0.

        Called before the first step. Settings are a dataclass; the facts are further parts of the identity,
        or functions that compute one. Processes that train together all call it.
        """
        if self.path is None:
            return 0
        state_of_objective = ObjectState(objective)
        self.parts["objective"] = state_of_objective
        computed = {name: fact() if callable(fact) else fact for name, fact in facts.items()}
        settings = {**asdict(settings), **computed}
        kernels = torch.backends.cpu.get_cpu_capability()
        self._identity |= {"settings": settings, "kernels": kernels, "start": state_of_objective.digest()}
        state = self._read() if is_first_process() else None
        if not broadcast_from_first(lambda: float(state is not None)):
            return 0
        if state is None:
            state = read_state(self.path, self._device)
        try:
            for name, part in self.parts.items():
                part.restore(state["parts"][name])
        except Exception as error:  # its checksum is right, so it is of another program
            what = f"the checkpoint can't be restored: {type(error).__name__}: {error}"
            raise BenchError(what, where=str(self.path), hint="remove this file to start again") from error
        self._earlier = state["seconds"]
        if is_first_process():
            self._earlier_cpu = state["cpu_seconds"]
        self._step = self._kept = state["step"]
        self._say(f"resumed after step {self._step:,}, from the checkpoint {self.path.name}")
        return self._step

    def _read(self) -> Any:
        """Return the file's state; None, with a line that says why, for another or a damaged one."""
        path = self.path
        if path is None:
            return None
        try:
            state = read_state(path, self._device)
            found, own = state["identity"], self._identity
            names = [name for name in found.keys() | own.keys() if found.get(name) != own.get(name)]
            reason = f"it belongs to another training ({', '.join(sorted(names))})" if names else ""
            if not names and not self._is_possible(state):
                reason = "it is no checkpoint of this training"
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (DataError, KeyError, AttributeError, TypeError) as error:
            reason = error.what if isinstance(error, DataError) else "it is no checkpoint"
        if not reason:
            return state
        self._say(f"the checkpoint {path.name} is not used: {reason}; training starts from its first step")
        return None

    def _is_possible(self, state: Mapping[str, Any]) -> bool:
        """Return whether a state has a step of this training, times, and all parts."""
        step, most = state.get("step"), self._identity["settings"].get("steps")
        counted = type(step) is int and step > 0 and (most is None or step <= most)
        times = (state.get("seconds"), state.get("cpu_seconds"))
        timed = all(isinstance(time, float | int) and time >= 0 for time in times)
        return counted and timed and state.get("parts", {}).keys() == self.parts.keys()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C wait for a checkpoint within the block; a failed training's is removed."""
        own = self.path is not None and not is_group()
        if own and threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if handler not in (signal.SIG_IGN, None):
                    self._before[number] = handler
                    signal.signal(number, self._handler)
        try:
            yield
            if self._asked is not None:
                self._save()
        except BenchError:  # the same steps would fail again
            if is_first_process():
                self.remove()
            raise
        finally:
            self._pass_signal_on()

    def begin_step(self, step: int) -> None:
        """Decide whether a step ends with a checkpoint; before the step after it is prepared."""
        self._step = step - 1
        if self.path is None:
            self.due = self._asked is not None
        elif not is_group():
            self.due = self._asked is not None or self._is_late()
        elif step % _ASKED_EVERY == 0:
            self.due = bool(broadcast_from_first(lambda: float(self._is_late())))

    def end_step(self, step: int) -> None:
        """Write the checkpoint if it is due, then let a waiting signal do what it does."""
        self._step = step
        if not self.due:
            return
        self.due = False
        self._save()
        if self._asked is not None:
            self._pass_signal_on()

    def _is_late(self) -> bool:
        return time.monotonic() - self._kept_at >= EVERY

    def _save(self) -> None:
        """Write the state after the present step; a disk without room costs the checkpoint only."""
        path = self.path
        if path is None:
            return
        self._kept_at = time.monotonic()
        cpu_seconds = sum_over_processes(self.cpu_seconds)
        try:
            parts = {name: part.collect() for name, part in self.parts.items()}
            facts = {"step": self._step, "seconds": self.seconds, "cpu_seconds": cpu_seconds}
            state = {"identity": self._identity, **facts, "parts": parts}
            data, tensors = pack_state(state if is_first_process() else None)
        except (UnknownStateError, TypeError) as error:
            self.path = None
            self._say(f"no checkpoints of this training: its state can't be kept ({error})")
            return
        if not is_first_process():
            return
        size = len(data) + sum(tensor.nbytes for tensor in tensors.values())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if (free := shutil.disk_usage(path.parent).free) < size:
                self._say(f"no checkpoint: it has {size / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free")
                return
            write_state(path, data, tensors)
        except OSError as error:
            self._say(f"no checkpoint: {path} can't be written: {error.strerror or error}")
            return
        self._kept = self._step

    def remove(self) -> None:
        """Remove the file, and what killed processes left of it."""
        if self.path is not None:
            remove_with_leftovers(self.path)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        """Wait for the step's end where a checkpoint is worth it; a second Ctrl-C later ends at once."""
        now = time.monotonic()
        worth = self.path is not None and (self._kept > 0 or self.seconds >= EVERY)
        if self._asked is None and worth:
            self._asked = number, now
            os.write(2, b"\nending after a step, with a checkpoint\n")
        elif self._asked is None:
            self._asked = number, now
            self._pass_signal_on()
        elif number == signal.SIGINT and now - self._asked[1] > _PATIENCE:
            self._pass_signal_on()

    def _pass_signal_on(self) -> None:
        """Let the handlers that were there take the signal; they may return."""
        asked, self._asked = self._asked, None
        self._restore_handlers()
        if asked is not None:
            signal.raise_signal(asked[0])

    def _restore_handlers(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) is self._handler:
                signal.signal(number, handler)
        self._before = {}
