"""What is trained: a step in two halves, the host's and the device's, the second compiled if asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar, Self

from bench import nn
from bench.errors import BenchError
from bench.lazy import load_lazy_modules, torch

SHAPES = 64
"""Graphs of one half at most: padded lengths, times a whole and a short batch, times a coin's sides."""
_asked: list[str] = []  # innermost last; the thread that prepares steps reads it too
_told: set[str] = set()


@contextmanager
def compile_steps(way: str) -> Iterator[None]:
    """Compile the second half of what is trained within the block.

    Args:
        way: "none"; "inductor", torch.compile's own backend, one graph for all shapes; "graphs", a CUDA
            graph for each shape.
    """
    _asked.append(way)
    try:
        yield
    finally:
        _asked.pop()


def get_compile_mode() -> str:
    """How steps are compiled here: "none", "inductor" or "graphs"."""
    return _asked[-1] if _asked else "none"


def compile_device_half(
    compute: Callable[[Any], torch.Tensor], *, plain: bool = False
) -> Callable[[Any], torch.Tensor]:
    """A step's second half, compiled where that is asked for.

    Args:
        compute: The half.
        plain: It is a module's whole step, with its Python: it stays as it is, and a line on stderr says so.
    """
    if get_compile_mode() == "none":
        return compute
    if plain:
        _warn_once("this method's step isn't in two halves: it is not compiled")
        return compute
    load_lazy_modules()
    torch.compiler.reset()  # the graphs of an earlier training of the same kind hold its weights
    return CompiledHalf(compute, get_compile_mode())


class CompiledHalf:
    """A function of tensors as one graph; one that has no single graph in parts, of which a line tells.

    Args:
        compute: The function.
        way: "inductor", "graphs", or for tests another backend of torch.compile.
    """

    def __init__(self, compute: Callable[[Any], torch.Tensor], way: str) -> None:
        self._compute, self._way = compute, way
        self._run = self._compile(whole=True)
        self.whole = True
        """One graph."""

    def __call__(self, prepared: Any) -> torch.Tensor:
        """The function's value.

        Raises:
            BenchError: the backend can't compile it, as where inductor finds no C++ compiler.
        """
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
            _warn_once(
                f"the step has no single graph, so it is compiled in parts ({_summarize_error(error)})"
            )
        except (exc.BackendCompilerFailed, InductorError) as error:
            hint = "it needs a C++ compiler such as g++; after a run that was killed, empty inductor's cache"
            raise BenchError(f"the step can't be compiled: {_summarize_error(error)}", hint=hint) from error
        self.whole, self._run = False, self._compile(whole=False)
        return self(prepared)

    def _compile(self, *, whole: bool) -> Callable[[Any], torch.Tensor]:
        graphs = self._way == "graphs"
        how: dict[str, Any] = {"dynamic": not graphs}
        how |= {"mode": "reduce-overhead"} if graphs else {"backend": self._way}
        made: Callable[[Any], torch.Tensor] = torch.compile(self._compute, fullgraph=whole, **how)
        return made


def _summarize_error(error: Exception) -> str:
    """The first two lines of what an error says: torch names the stage, then what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__


def _warn_once(line: str) -> None:
    """Say a line on stderr, once a process."""
    if line not in _told:
        _told.add(line)
        print(f"--compile {get_compile_mode()}: {line}", file=sys.stderr)


class Objective:
    """What turns a batch of token rows into a loss, in two halves.

    A plain object. What is trained are the torch modules and parameters among its attributes, and those of
    the objectives among these, under the attributes' names; :attr:`module` has them all. They are set when
    the object is made.

    :meth:`prepare` is the host's half: everything that is Python, or random from the run's own generators.
    It never reads a parameter, and may run one step ahead. :meth:`compute` is the device's half, a function
    of tensors and of the modules' state: it reads no value back, so the host can queue the next step.
    """

    least: ClassVar[int] = 1
    """Sentences that a batch has to have."""

    def prepare(self, batch: Sequence[Any]) -> Any:
        """Tensors of a step on the CPU, in nested tuples, lists and dictionaries, beside Python values.

        Args:
            batch: Token rows, or (sentence number, token row) pairs.
        """
        raise NotImplementedError

    def compute(self, prepared: Any) -> torch.Tensor:
        """The loss of what :meth:`prepare` made, with its tensors on :attr:`device`; a scalar."""
        raise NotImplementedError

    def __call__(self, batch: Sequence[Any]) -> torch.Tensor:
        """Both halves, one after the other."""
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
        """Yield what is trained."""
        return self.module.parameters()

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield it with its names."""
        return self.module.named_parameters()

    def why_not_finite(self) -> str | None:
        """What made a loss infinite or not a number, where the objective knows it."""
        return None

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next(self.module.parameters()).device


class WholeStep(Objective):
    """A torch module that maps token rows to a loss, as an objective: all of its step is the second half.

    Args:
        step: The module.
    """

    def __init__(self, step: torch.nn.Module) -> None:
        self.step = step

    def prepare(self, batch: Sequence[Any]) -> list[Any]:
        """The rows themselves."""
        return list(batch)

    def compute(self, prepared: list[Any]) -> torch.Tensor:
        """The module's loss."""
        loss: torch.Tensor = self.step(prepared)
        return loss


def as_objective(objective: Objective | torch.nn.Module) -> Objective:
    """The objective, or a module as :class:`WholeStep`."""
    return objective if isinstance(objective, Objective) else WholeStep(objective)


def prepare_steps(
    objective: Objective, batches: Callable[[], Sequence[Any]], steps: int, *, ahead: bool
) -> Generator[tuple[int, Any], None, None]:
    """Yield each step's sentences, counted, and what the objective prepared, on its device.

    Args:
        objective: The objective.
        batches: Makes the next batch.
        steps: How many.
        ahead: Prepare a step in a thread while the one before it is computed. What is prepared is the same:
            the order of the draws doesn't change.
    """
    device = objective.device

    def make() -> tuple[int, Any]:
        batch = batches()
        return len(batch), nn.move_to_device(objective.prepare(batch), device)

    if not ahead:
        yield from (make() for _ in range(steps))
        return
    here = torch.cuda.current_device() if device.type == "cuda" else None
    start = None if here is None else lambda: torch.cuda.set_device(here)
    with ThreadPoolExecutor(1, "bench-prepare", initializer=start) as thread:
        coming = thread.submit(make)
        for step in range(1, steps + 1):
            ready = coming.result()
            if step < steps:
                coming = thread.submit(make)
            yield ready
