"""Objectives: a step in two halves, the host's and the device's; the second can be compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, ClassVar, Self

from bench import nn
from bench.errors import BenchError
from bench.lazy import load_lazy_modules, torch

SHAPES = 64
"""Most graphs of a half: padded lengths, times a whole and a short batch, times a coin's sides."""
_asked: list[str] = []  # innermost last; the thread that prepares steps reads it too
_told: set[str] = set()


@contextmanager
def compile_steps(way: str) -> Iterator[None]:
    """Compile the second half of objectives within the block: "none", "inductor" or "graphs".

    "inductor" is torch.compile's own backend, one graph for all shapes; "graphs" a CUDA graph for each shape.
    """
    _asked.append(way)
    try:
        yield
    finally:
        _asked.pop()


def get_compile_mode() -> str:
    """Return the present way of compiling steps: "none", "inductor" or "graphs"."""
    return _asked[-1] if _asked else "none"


def compile_device_half(
    compute: Callable[[Any], torch.Tensor], *, plain: bool = False
) -> Callable[[Any], torch.Tensor]:
    """Compile a step's second half on request; ``plain`` marks a module's whole step, which stays."""
    if get_compile_mode() == "none":
        return compute
    if plain:
        _warn_once("this method's step has one half: it is not compiled")
        return compute
    load_lazy_modules()
    torch.compiler.reset()  # graphs of an earlier training hold its weights
    return CompiledHalf(compute, get_compile_mode())


class CompiledHalf:
    """A function of tensors as one graph, by a backend of torch.compile; failing that, compiled in parts."""

    def __init__(self, compute: Callable[[Any], torch.Tensor], way: str) -> None:
        self._compute, self._way = compute, way
        self._run = self._compile(whole=True)
        self.whole = True
        """One graph."""

    def __call__(self, prepared: Any) -> torch.Tensor:
        """Return the function's value; BenchError where the backend fails, as for want of a C++ compiler."""
        from torch._dynamo import exc
        from torch._inductor.exc import InductorError

        if self._way == "graphs":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        try:
            with torch._dynamo.config.patch(recompile_limit=SHAPES):
                return self._run(prepared)
        except (exc.Unsupported, exc.UserError) as error:  # while it was traced, before anything was computed
            if not self.whole:
                raise
            reason = _summarize_error(error)
            _warn_once(f"the step has no single graph, so it is compiled in parts ({reason})")
        except (exc.BackendCompilerFailed, InductorError) as error:
            hint = "it needs a C++ compiler such as g++; after a run that was killed, empty inductor's cache"
            raise BenchError(f"the step can't be compiled: {_summarize_error(error)}", hint=hint) from error
        self.whole, self._run = False, self._compile(whole=False)
        return self(prepared)

    def _compile(self, *, whole: bool) -> Callable[[Any], torch.Tensor]:
        how: dict[str, Any] = {"dynamic": True, "backend": self._way}
        if self._way == "graphs":
            how = {"dynamic": False, "mode": "reduce-overhead"}
        compiled: Callable[[Any], torch.Tensor] = torch.compile(self._compute, fullgraph=whole, **how)
        return compiled


def _summarize_error(error: Exception) -> str:
    """Return the first two lines of an error: torch names the stage, then the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__


def _warn_once(line: str) -> None:
    """Print a line on stderr, once a process."""
    if line not in _told:
        _told.add(line)
        print(f"--compile {get_compile_mode()}: {line}", file=sys.stderr)


class Objective:
    """Turns a batch of token rows into a loss, in two halves.

    A plain object. The torch modules and parameters among its attributes are trained, and those of the
    objectives among these, under the attributes' names; :attr:`module` has them all. They are set when the
    object is made.

    :meth:`prepare` is the host's half: everything that is Python, or random from the run's own generators.
    It never reads a parameter, and may run one step ahead. :meth:`compute` is the device's half, a function
    of tensors and of the modules' state: it reads no value back, so the host can queue the next step.
    """

    least: ClassVar[int] = 1
    """Sentences that a batch has to have."""

    def prepare(self, batch: Sequence[Any]) -> Any:
        """Return a step's tensors on the CPU, in nested tuples, lists and dictionaries.

        Args:
            batch: Token rows, or (sentence number, token row) pairs.
        """
        raise NotImplementedError

    def compute(self, prepared: Any) -> torch.Tensor:
        """Return the loss of :meth:`prepare`'s result on :attr:`device`; a scalar."""
        raise NotImplementedError

    def __call__(self, batch: Sequence[Any]) -> torch.Tensor:
        """Run both halves."""
        return self.compute(nn.move_to_device(self.prepare(batch), self.device))

    @cached_property
    def module(self) -> torch.nn.Module:
        """All modules of this object as one: for the optimiser, devices, modes and copies of the weights."""
        whole = torch.nn.Module()
        for name, value in vars(self).items():
            part = value.module if isinstance(value, Objective) else value
            if isinstance(part, torch.nn.Parameter):
                whole.register_parameter(name, part)
            elif isinstance(part, torch.nn.Module):
                whole.add_module(name, part)
        return whole

    def to(self, device: str | torch.device) -> Self:
        """Send the modules to a device."""
        self.module.to(device)
        return self

    def double(self) -> Self:
        """Compute in float64, as tests do."""
        self.module.double()
        return self

    def train(self) -> Self:
        """Set the modules to training."""
        self.module.train()
        return self

    def eval(self) -> Self:
        """Set the modules to evaluation."""
        self.module.eval()
        return self

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Yield the trained parameters."""
        return self.module.parameters()

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield them with their names."""
        return self.module.named_parameters()

    def why_not_finite(self) -> str | None:
        """Return the cause of an infinite or NaN loss, if known."""
        return None

    @property
    def device(self) -> torch.device:
        """Device of its parameters."""
        return next(self.module.parameters()).device


class WholeStep(Objective):
    """A torch module that maps token rows to a loss, as an objective: all of its step is the second half."""

    def __init__(self, step: torch.nn.Module) -> None:
        self.step = step

    def prepare(self, batch: Sequence[Any]) -> list[Any]:
        """Return the rows."""
        return list(batch)

    def compute(self, prepared: list[Any]) -> torch.Tensor:
        """Return the module's loss."""
        loss: torch.Tensor = self.step(prepared)
        return loss


def as_objective(objective: Objective | torch.nn.Module) -> Objective:
    """Return the objective, or a module as :class:`WholeStep`."""
    return objective if isinstance(objective, Objective) else WholeStep(objective)


def prepare_steps(
    objective: Objective,
    batches: Callable[[], Sequence[Any]],
    steps: int,
    *,
    ahead: bool,
    hold: Callable[[], bool] = lambda: False,
) -> Generator[tuple[int, Any], None, None]:
    """Yield each step's number of sentences and prepared batch, on the objective's device.

    ``ahead`` prepares a step in a thread while the one before is computed, with the same order of draws.
    Where ``hold`` returns True, the next step is prepared only when it is asked for.
    """
    device = objective.device

    def make() -> tuple[int, Any]:
        batch = batches()
        return len(batch), nn.move_to_device(objective.prepare(batch), device)

    if not ahead:
        yield from (make() for _ in range(steps))
        return
    start = None
    if device.type == "cuda":
        start = partial(torch.cuda.set_device, torch.cuda.current_device())
    with ThreadPoolExecutor(1, "bench-prepare", initializer=start) as thread:
        coming: Future[tuple[int, Any]] | None = None
        for step in range(1, steps + 1):
            prepared = (coming or thread.submit(make)).result()
            coming = None if step == steps or hold() else thread.submit(make)
            yield prepared
