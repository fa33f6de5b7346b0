"""What a benchmark says in one line, for the table: what was measured, against what, and the goal."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

YEARS = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}
PAIRS = {**YEARS, "STSB": 1379, "SICKR": 4927}
"""Sizes of the tasks of sts7."""
T = TypeVar("T")


@dataclass(frozen=True)
class Claim:
    """A row of the table.

    Args:
        name: The script, and its case where it has several.
        what: What was measured, and behind a colon what it is compared with.
        ours: Our figure.
        peer: The figure it is compared with, None for none.
        unit: Of both.
        ratio: How many times better ours is, or where a cost is bounded how many times as much it is.
        goal: Such as ">= 3.3" or "<= 180 s", "" for none.
        met: Whether it is.
    """

    name: str
    what: str
    ours: float
    peer: float | None
    unit: str
    ratio: float | None
    goal: str
    met: bool | None


def faster(
    name: str, what: str, *, ours: float, peer: float, unit: str = "CPU s", goal: float | None = None
) -> Claim:
    """Something that takes the peer several times as long; ``goal`` is the smallest ratio."""
    ratio = peer / ours
    said, met = (f">= {goal:g}", ratio >= goal) if goal is not None else ("", None)
    return Claim(name, what, ours, peer, unit, ratio, said, met)


def bounded(
    name: str, what: str, *, ours: float, peer: float, unit: str = "CPU s", goal: float | None = None
) -> Claim:
    """A cost as a multiple of another; ``goal`` is the largest one."""
    ratio = ours / peer
    said, met = (f"<= {goal:g}", ratio <= goal) if goal is not None else ("", None)
    return Claim(name, what, ours, peer, unit, ratio, said, met)


def within(name: str, what: str, *, ours: float, unit: str, goal: float) -> Claim:
    """A figure without a peer, below a limit."""
    return Claim(name, what, ours, None, unit, None, f"<= {goal:g} {unit}", ours <= goal)


def timed(function: Callable[[], T]) -> tuple[T, float, float]:
    """Call a function; its result, and the wall and CPU seconds it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def run_timed(command: list[str], stdout: Any) -> tuple[float, float]:
    """Run a command; its wall seconds, and the CPU seconds of all its processes."""
    before = os.times()
    _, wall, _ = timed(lambda: subprocess.run(command, check=True, stdout=stdout))  # noqa: S603
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="print the line for the table too; a missed goal is no error then"
    )


def show(wanted: bool, *claims: Claim) -> None:
    """Print claims, a JSON line each, if that is wanted."""
    for claim in claims if wanted else ():
        print(json.dumps(asdict(claim)), flush=True)


def parse(line: str) -> Claim | None:
    """A claim, None for a line that is none."""
    try:
        found = json.loads(line)
        return Claim(**found)
    except (ValueError, TypeError):
        return None
