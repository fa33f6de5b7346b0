"""The list of conformance checks: promises of a method, and advice where they are broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.conformance.subject import Subject


class NoCaseError(Exception):
    """A check finds out that it is about other methods; its text says why."""


CheckFunction = Callable[[Subject], str | None]
"""Describe a broken promise, or return None; raises NoCaseError where the method makes no such promise."""


@dataclass(frozen=True)
class Check:
    """A promise and its check, of "all" methods or those that "train", are "seeded" or have "vectors"."""

    name: str
    promise: str
    look: CheckFunction
    advice: str
    of: str


CHECKS: list[Check] = []
"""All checks, in the order in which they run."""


def register_check(name: str, of: str = "all") -> Callable[[CheckFunction], CheckFunction]:
    """Add a function to the checks; its docstring is "PROMISE. Advice: ADVICE."."""

    def add(look: CheckFunction) -> CheckFunction:
        promise, _, advice = " ".join(str(look.__doc__).split()).partition(". Advice: ")
        CHECKS.append(Check(name, promise[0].lower() + promise[1:], look, advice.rstrip("."), of))
        return look

    return add
