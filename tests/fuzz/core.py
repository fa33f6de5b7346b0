"""A case and its oracle: an answer or one clear error, and every case again from (seed, surface, number)."""

from __future__ import annotations

import io
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from bench.cli.main import main
from bench.errors import BenchError

T = TypeVar("T")
ANSWER, REFUSED = "answer", "refused"
CODES = {0, 1, 2, 3, 130}
_STEPS = (0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4)


class RuleError(AssertionError):
    """What may not happen: a traceback, an unclear error, a wrong number."""


class Dice:
    """Draws from a generator of its own."""

    def __init__(self, *key: int | str) -> None:
        words = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in key]
        self._rng = np.random.default_rng(words)

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._rng.integers(n))

    def chance(self, p: float) -> bool:
        return bool(self._rng.random() < p)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def number(self) -> float:
        """A number in [0, 1)."""
        return float(self._rng.random())


class Surface(Protocol):
    """One kind of input. It is made once, in a folder of its own, and runs many cases there."""

    name: str

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        """Run one case.

        Args:
            dice: Chooses what is tried, the same whatever the steps.
            steps: One for every damage that is done to the good input.
            log: Gets lines that say what the case is.

        Returns:
            ANSWER or REFUSED.

        Raises:
            RuleError: see there. Any other exception that leaves is one too.
        """
        ...


@dataclass(frozen=True)
class Failure:
    """A case that broke a rule, with the fewest of its steps that still do."""

    surface: str
    seed: int
    number: int
    steps: tuple[int, ...]
    log: tuple[str, ...]
    what: str

    def __str__(self) -> str:
        again = f"python -m tests.fuzz --seed {self.seed} --surface {self.surface} --case {self.number}"
        lines = [f"{self.surface} case {self.number}, steps {list(self.steps)} ({again})", *self.log]
        return "\n    ".join(lines) + f"\n    -> {self.what}"


def run_case(surface: Surface, seed: int, number: int) -> str | Failure:
    """Run one case; one that fails is tried again with fewer steps."""
    count = Dice(seed, surface.name, number).pick(_STEPS)

    def attempt(steps: Sequence[int]) -> tuple[str | None, tuple[str, ...], str]:
        log: list[str] = []
        made = [Dice(seed, surface.name, number, "step", step) for step in steps]
        try:
            return surface.run(Dice(seed, surface.name, number, "case"), made, log), tuple(log), ""
        except RuleError as error:
            return None, tuple(log), str(error)
        except Exception:
            return None, tuple(log), traceback.format_exc(limit=-6)

    steps = list(range(count))
    outcome, log, what = attempt(steps)
    if outcome is not None:
        return outcome
    for step in range(count):
        fewer = [one for one in steps if one != step]
        found, shorter, said = attempt(fewer)
        if found is None:
            steps, log, what = fewer, shorter, said
    return Failure(surface.name, seed, number, tuple(steps), log, what)


@dataclass(frozen=True)
class Outcome:
    """What a command line gave."""

    code: int
    out: str
    err: str

    @property
    def kind(self) -> str:
        return ANSWER if self.code in (0, 1) and "error: " not in self.err else REFUSED


def bench(*arguments: str, may_warn: bool = False) -> Outcome:
    """Run the command line in this process, with its own handling of errors, and hold it to the rules."""
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
    ignored = (DeprecationWarning, ResourceWarning)
    warned = [
        f"{one.category.__name__}: {one.message}" for one in caught if not issubclass(one.category, ignored)
    ]
    return code, texts[0], texts[1], warned


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
    """Return what ``read`` gives, or its error, which is one line and names the file.

    Args:
        read: What may refuse its input.
        names: The file.
        good: True for input that nothing was done to.

    Raises:
        RuleError: the error has several lines or none, or doesn't say where; or the input is good.
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
