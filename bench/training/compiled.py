"""A step's second half under torch.compile: one graph of tensors, for few shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bench.errors import BenchError
from bench.lazy import load_all

SHAPES = 64
"""Graphs of one half at most: padded lengths, times a whole and a short batch, times a coin's sides."""
_asked: list[str] = []  # innermost last; the thread that prepares steps reads it too
_told: set[str] = set()


@contextmanager
def compiling(way: str) -> Iterator[None]:
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


def asked() -> str:
    """How steps are compiled here: "none", "inductor" or "graphs"."""
    return _asked[-1] if _asked else "none"


def device_half(compute: Callable[[Any], Tensor], *, plain: bool = False) -> Callable[[Any], Tensor]:
    """A step's second half, compiled where that is asked for.

    Args:
        compute: The half.
        plain: It is a module's whole step, with its Python: it stays as it is, and a line on stderr says so.
    """
    if asked() == "none":
        return compute
    if plain:
        _tell("this method's step isn't in two halves: it is not compiled")
        return compute
    load_all()
    torch.compiler.reset()  # the graphs of an earlier training of the same kind hold its weights
    return CompiledHalf(compute, asked())


class CompiledHalf:
    """A function of tensors as one graph; one that has no single graph in parts, of which a line tells.

    Args:
        compute: The function.
        way: "inductor", "graphs", or for tests another backend of torch.compile.
    """

    def __init__(self, compute: Callable[[Any], Tensor], way: str) -> None:
        self._compute, self._way = compute, way
        self._run = self._compiled(whole=True)
        self.whole = True
        """One graph."""

    def __call__(self, prepared: Any) -> Tensor:
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
            _tell(f"the step has no single graph, so it is compiled in parts ({_line(error)})")
        except (exc.BackendCompilerFailed, InductorError) as error:
            hint = "it needs a C++ compiler such as g++; after a run that was killed, empty inductor's cache"
            raise BenchError(f"the step can't be compiled: {_line(error)}", hint=hint) from error
        self.whole, self._run = False, self._compiled(whole=False)
        return self(prepared)

    def _compiled(self, *, whole: bool) -> Callable[[Any], Tensor]:
        graphs = self._way == "graphs"
        how: dict[str, Any] = {"dynamic": not graphs}
        how |= {"mode": "reduce-overhead"} if graphs else {"backend": self._way}
        made: Callable[[Any], Tensor] = torch.compile(self._compute, fullgraph=whole, **how)
        return made


def _line(error: Exception) -> str:
    """The first two lines of what an error says: torch names the stage, then what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__


def _tell(line: str) -> None:
    """Say a line on stderr, once a process."""
    if line not in _told:
        _told.add(line)
        print(f"--compile {asked()}: {line}", file=sys.stderr)
