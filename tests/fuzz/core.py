"""The oracle of damaged input: an answer or one clear error, never a traceback or a wrong number."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from bench.cli.main import main
from bench.errors import BenchError

T = TypeVar("T")
ANSWER, REFUSED = "answer", "refused"
CODES = {0, 1, 2, 3, 130}
_SEEDS = st.integers(0, 2**64 - 1)
STEPS = st.sampled_from((0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4)).flatmap(
    lambda count: st.lists(_SEEDS, min_size=count, max_size=count)
)
"""Seeds of a case's damages."""


class RuleError(AssertionError):
    """A traceback, an unclear error, a wrong number."""


class Dice(Random):
    """Draws from a generator of its own."""

    def chance(self, p: float) -> bool:
        return self.random() < p


class Surface(Protocol):
    """One kind of input; it is made once, in a folder of its own, and runs many cases there."""

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        """Run one case, with one damage a step; returns ANSWER or REFUSED, raises RuleError.

        ``dice`` chooses what is tried, the same whatever the steps; ``log`` gets lines that describe it.
        """
        ...


def check_surface(surface: Surface, cases: int, start: int) -> None:
    """Run cases of a surface; hypothesis shrinks a failure to the fewest steps.

    FUZZ_CASES and FUZZ_SEED in the environment ask for more cases, and for others.
    """
    outcomes: Counter[str] = Counter()
    cases, start = int(os.environ.get("FUZZ_CASES", cases)), int(os.environ.get("FUZZ_SEED", start))

    @seed(start)
    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(_SEEDS, STEPS)
    def run(case: int, steps: list[int]) -> None:
        log: list[str] = []
        try:
            outcomes[surface.run(Dice(case), list(map(Dice, steps)), log)] += 1
        finally:
            note("\n    ".join(log))

    run()
    assert len(outcomes) > 1, "all cases had one outcome"


@dataclass(frozen=True)
class Outcome:
    """Outcome of a command line."""

    code: int
    out: str
    err: str

    @property
    def kind(self) -> str:
        return ANSWER if self.code in (0, 1) and "error: " not in self.err else REFUSED


def bench(*arguments: str, may_warn: bool = False) -> Outcome:
    """Run the command line in this process, with its own handling of errors, and check the rules."""
    code, out, err, warned = _bench(arguments)
    if "internal error" in err:
        err += _bench(("--debug", *arguments))[2]
    _check(arguments, code, out, err)
    if warned and not may_warn:
        raise RuleError(f"{arguments}: warns {warned}")
    return Outcome(code, out, err)


def _bench(arguments: Sequence[str]) -> tuple[int, str, str, list[str]]:
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2)]
    code = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            try:
                main(list(arguments))
            except SystemExit as stopped:
                code = stopped.code if isinstance(stopped.code, int) else 0 if stopped.code is None else -1
            except Exception:
                traceback.print_exc(file=sys.stderr, limit=-8)
    texts = []
    for stream in streams:
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        texts.append(stream.buffer.getvalue().decode("utf-8", "surrogateescape"))
    serious = [w for w in caught if not issubclass(w.category, (DeprecationWarning, ResourceWarning))]
    return code, texts[0], texts[1], [f"{w.category.__name__}: {w.message}" for w in serious]


def _check(arguments: Sequence[str], code: int, out: str, err: str) -> None:
    lines = err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    for wrong, what in (
        (code not in CODES, f"exit code {code}"),
        ("Traceback (most recent call last)" in out + err or "internal error" in err, f"exit code {code}"),
        (len(errors) > 1 or (errors and lines[-1] != errors[0]), "not one error, the last line"),
        (code in (2, 3) and not errors and "Usage:" not in err, f"exit code {code} without a reason"),
        (code == 0 and errors, "an error with exit code 0"),
        (not err.replace("\n", "").isprintable(), f"a character on stderr that can't be printed: {err!a}"),
    ):
        if wrong:
            raise RuleError(f"{arguments}: {what}\n{err}")


def refused(read: Callable[[], T], names: Path | str = "", *, good: bool = False) -> T | BenchError:
    """Return the value that ``read`` returns, or its error, which is one line and names the file.

    Raises RuleError for another error, or for any error of good input.
    """
    try:
        return read()
    except BenchError as error:
        text = str(error)
        if good:
            raise RuleError(f"good input refused: {text}") from error
        if not text or "\n" in text or Path(names).name not in text:
            raise RuleError(f"an unclear error: {text!a}") from error
        return error
