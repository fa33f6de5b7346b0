"""Suites that mteb measures: papers' lists, its own benchmarks, ``mteb:TASK,...``, ``local:FILE``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from bench.data.mini.mini_suites import MTEB_SUITES
from bench.errors import InputError

TASKS = "mteb:"
FILES = "local:"
CONTRAST_TEXT = "contrast:"
"""Before a user's text of sentences, from which the suite ``contrast`` makes its items."""
STSB_MULTI = "stsb-multi"
"""The suite of local tasks that comes with the program; its files are ``stsb_multi`` in the data folder."""
_ENTRY = re.compile(r"(?P<name>[^\[\]@,]*[^\[\]@,\s])(?:\[(?P<subsets>[^\[\]]+)\])?(?:@(?P<split>[\w.-]+))?")
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])(?![^(]*\))")


@dataclass(frozen=True)
class MtebName:
    """A task of mteb, or a part of one.

    Args:
        id: What tables call it: the printed name of a paper, else how it was asked for.
        name: mteb's name.
        subsets: Of mteb's subsets (language pairs); empty for all.
        split: Evaluated split, "" for all that mteb evaluates.
    """

    id: str
    name: str
    subsets: tuple[str, ...] = ()
    split: str = ""


@dataclass(frozen=True)
class MtebTaskList:
    """A list of tasks.

    Args:
        tasks: In the tables' order.
        score: mteb's name of the score that is reported, "" for each task's main score.
        summary: One line.
        note: What every record and table of it must say, or "".
    """

    tasks: tuple[MtebName, ...]
    score: str = ""
    summary: str = ""
    note: str = ""


@cache
def load_mteb_lists() -> dict[str, MtebTaskList]:
    """The papers' suites and mteb's own, as committed in ``mteb_suites.toml``."""
    text = resources.files(__package__).joinpath("mteb_suites.toml").read_text(encoding="utf-8")
    found = {}
    for name, entry in tomllib.loads(text).items():
        paper = entry["summary"].partition(",")[0]
        version = f"mteb {entry['mteb']}" if "mteb" in entry else "a version of mteb that it doesn't state"
        made = f"{paper}'s figures were made with {version}, these with the version in the record."
        notes = (None if entry.get("benchmark") else made, entry.get("note"))
        found[name] = MtebTaskList(
            tuple(parse_task(task, printed) for printed, task in entry["tasks"].items()),
            entry.get("score", ""),
            entry["summary"],
            " ".join(filter(None, notes)),
        )
    return found


def is_mteb(suite: str) -> bool:
    """True if mteb measures a suite, so that it has no pairs for anything else."""
    return suite.startswith(TASKS) or has_own_tasks(suite) or suite in load_mteb_lists()


def has_own_tasks(suite: str) -> bool:
    """True if mteb measures a suite's tasks without having them itself: local files', the mini world's."""
    return suite.startswith(FILES) or suite == STSB_MULTI or suite in MTEB_SUITES


def parse_task(text: str, printed: str | None = None) -> MtebName:
    """Parse ``NAME``, ``NAME[SUBSET+SUBSET]`` or ``NAME[SUBSET]@SPLIT``.

    Raises:
        InputError: another form.
    """
    match = _ENTRY.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"'{text}' is not a task",
            where="--suite mteb:",
            expected="NAME, NAME[SUBSET+SUBSET] or NAME@SPLIT",
        )
    subsets = tuple(part.strip() for part in (match["subsets"] or "").split("+") if part.strip())
    return MtebName(printed or text.strip(), match["name"], subsets, match["split"] or "")


def parse_suite(suite: str) -> MtebTaskList:
    """Return a paper's suite, or that of ``mteb:TASK,...``.

    Raises:
        InputError: a text that does not name a task, or a task named twice.
    """
    if suite in load_mteb_lists():
        return load_mteb_lists()[suite]
    tasks = tuple(parse_task(text) for text in _OUTSIDE_BRACKETS.split(suite.removeprefix(TASKS)))
    for number, task in enumerate(tasks):
        if task.id in {other.id for other in tasks[:number]}:
            raise InputError(f"'{task.id}' is named twice", where=f"--suite {suite}")
    return MtebTaskList(tasks)


def split_suites(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Split ``--suite`` at its commas; those after ``mteb:`` go on with its tasks up to the next suite.

    There a name of both a task and a suite, such as STS17, is the task's.

    Args:
        text: The option's value.
        known: Names of the registered suites.
    """
    both = {
        name for name, suite in load_mteb_lists().items() if {task.name for task in suite.tasks} == {name}
    }
    suites: list[str] = []
    for part in (part.strip() for part in _OUTSIDE_BRACKETS.split(text)):
        starts = part in known or part.startswith((TASKS, FILES, CONTRAST_TEXT))
        if suites and suites[-1].startswith(TASKS) and (not starts or part in both):
            suites[-1] += f",{part}"
        else:
            suites.append(part)
    return tuple(suites)


def suite_label(suite: str) -> str:
    """Name of a suite in records: no folder of a ``local:`` or ``contrast:`` file."""
    for kind in (FILES, CONTRAST_TEXT):
        if suite.startswith(kind):
            return f"{kind}{Path(suite.removeprefix(kind)).stem}"
    return suite
