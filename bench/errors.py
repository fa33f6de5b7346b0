"""Errors for users: what is wrong, where, what is accepted, what to do."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable
from functools import partial


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does (exit code 143)."""

    exit_code = 143


class BenchError(Exception):
    """Base of all expected errors; the command line prints it as one line.

    Args:
        what: What is wrong, with the value.
        where: File (and line), option or cell.
        expected: Accepted values.
        hint: What to do.
    """

    exit_code = 1

    def __init__(
        self, what: str, *, where: str | None = None, expected: str | None = None, hint: str | None = None
    ) -> None:
        self.what, self.where, self.expected, self.hint = what, where, expected, hint
        super().__init__(what, where, expected, hint)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep keyword arguments when pickled by a worker process."""
        return partial(type(self), where=self.where, expected=self.expected, hint=self.hint), (self.what,)

    def __str__(self) -> str:
        """Return all parts on one line, escaped for the terminal: a part may quote an untrusted file."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.expected:
            text += f"; expected {self.expected}"
        if self.hint:
            text += f"; {self.hint}"
        return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return a text with every unprintable character as its escape."""
    if text.isprintable():
        return text
    escapes = {ord(char): char.encode("unicode_escape").decode() for char in text if not char.isprintable()}
    return text.translate(escapes)


class InputError(BenchError):
    """Bad input: command line, profile, file or folder (exit code 2)."""

    exit_code = 2


class DataError(InputError):
    """Evaluation data that is missing, damaged or not the expected version (exit code 2)."""


class NewerRecordError(DataError):
    """A record of a newer schema, which must not be replaced (exit code 2)."""


class UnsealedRecordError(DataError):
    """A record of an older schema or without a seal, which must not be replaced (exit code 2)."""


class UnreadableRecordError(DataError):
    """A record, or its predictions, that the system can't read, which must not be replaced."""


class MisplacedRecordError(DataError):
    """A valid record in the place of another, which must not be replaced (exit code 2)."""


class NotComparableError(BenchError):
    """Records that must not be compared (exit code 3)."""

    exit_code = 3


class CellFailedError(BenchError):
    """At least one cell of a run failed (exit code 1)."""


class StorageError(BenchError):
    """A disk that can't be written, which ends the run (exit code 1)."""


def storage_reason(error: BaseException) -> str | None:
    """Return the system's message of an error for a full or read-only disk, otherwise None.

    Errors of libraries only quote that message.
    """
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        words = os.strerror(number)
        if getattr(error, "errno", None) == number or words in str(error):
            return words
    return None


_SAME = {"mean": "avg", "average": "avg", "first_last_avg": "avg_first_last", "first-last": "avg_first_last"}


def suggest_name(name: str, candidates: Iterable[str]) -> str | None:
    """Return "did you mean 'x'?" for the closest candidate, ignoring case, or None if none is close."""
    lowered = {candidate.lower(): candidate for candidate in reversed(list(candidates))}
    sought = _SAME.get(name.lower(), name.lower())
    close = difflib.get_close_matches(sought, list(lowered), n=1, cutoff=0.5)
    return f"did you mean '{lowered[close[0]]}'?" if close else None


_MOST_LISTED = 40  # names that are listed beside a guess


def unknown_name(kind: str, name: str, candidates: Iterable[str], *, where: str | None = None) -> InputError:
    """Build the error for an unknown name, see :func:`not_one_of`; of many names only the guess is named."""
    names = sorted(candidates)
    what, near = f"unknown {kind} '{name}'", suggest_name(name, names)
    if near and len(names) > _MOST_LISTED:
        return InputError(f"{what} ({near})", where=where, expected=f"one of {len(names)} names")
    return not_one_of(what, name, names, where=where)


def not_one_of(what: str, name: str, candidates: Iterable[str], *, where: str | None = None) -> InputError:
    """Build the error for a name that isn't a candidate, with the closest one and all candidates.

    >>> print(not_one_of("no colour 'gren'", "gren", ["red", "green"], where="--colour"))
    --colour: no colour 'gren' (did you mean 'green'?); expected one of red, green
    """
    names = list(candidates)
    if near := suggest_name(name, names):
        what = f"{what} ({near})"
    return InputError(what, where=where, expected=f"one of {', '.join(names)}" if names else None)
