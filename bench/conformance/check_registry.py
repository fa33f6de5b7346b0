"""The checks that every method has to pass: what is promised, and what to do where it is not kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.conformance.subject import Subject

CheckFunction = Callable[[Subject], str | None]
"""From the method under test to what was seen instead, None where the promise is kept."""


@dataclass(frozen=True)
class Check:
    """One promise that a method keeps.

    Args:
        name: For tables and reports.
        promise: What is expected.
        look: Looks.
        advice: What to do where it is not kept.
        of: The methods that it says something of: "all", those that "train", those that are "seeded", those
            with "vectors".
    """

    name: str
    promise: str
    look: CheckFunction
    advice: str
    of: str


CHECKS: list[Check] = []
"""All checks, in the order in which they run."""


def register_check(name: str, of: str = "all") -> Callable[[CheckFunction], CheckFunction]:
    """Add a function to the checks. Its docstring has two paragraphs: the promise, and the advice."""

    def add(look: CheckFunction) -> CheckFunction:
        promise, advice = (" ".join(part.split()).rstrip(".") for part in str(look.__doc__).split("\n\n"))
        CHECKS.append(Check(name, promise[0].lower() + promise[1:], look, advice[0].lower() + advice[1:], of))
        return look

    return add
