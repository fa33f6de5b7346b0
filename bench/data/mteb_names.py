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
"""Prefix of a user's text from which the suite ``contrast`` makes its items."""
STSB_MULTI = "stsb-multi"
"""The suite of local tasks that comes with the program; its files are ``stsb_multi`` in the data folder."""
_ENTRY = re.compile(r"(?P<name>[^\[\]@,]*[^\[\]@,\s])(?:\[(?P<subsets>[^\[\]]+)\])?(?:@(?P<split>[\w.-]+))?")
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])(?![^(]*\))")


@dataclass(frozen=True)
class MtebName:
    """A task of mteb, or a part of one."""

    id: str  # name in tables: a paper's, otherwise as requested
    name: str  # mteb's name
    subsets: tuple[str, ...] = ()  # mteb's subsets (language pairs); empty for all
    split: str = ""  # "" for all that mteb evaluates


@dataclass(frozen=True)
class MtebTaskList:
    """A list of tasks, in the tables' order."""

    tasks: tuple[MtebName, ...]
    score: str = ""  # mteb's name of the reported score, "" for each task's main score
    summary: str = ""
    note: str = ""  # stands in every record and table of it


@cache
def load_mteb_lists() -> dict[str, MtebTaskList]:
    """Return the papers' suites and mteb's own, as committed in ``mteb_suites.toml``."""
    text = resources.files(__package__).joinpath("mteb_suites.toml").read_text(encoding="utf-8")
    suites = {}
    for name, entry in tomllib.loads(text).items():
        paper = entry["summary"].partition(",")[0]
        version = f"mteb {entry['mteb']}" if "mteb" in entry else "a version of mteb that it doesn't state"
        made = f"{paper}'s figures were made with {version}, these with the version in the record."
        note = " ".join(filter(None, (None if entry.get("benchmark") else made, entry.get("note"))))
        tasks = tuple(parse_task(task, printed) for printed, task in entry["tasks"].items())
        suites[name] = MtebTaskList(tasks, entry.get("score", ""), entry["summary"], note)
    return suites


def is_mteb(suite: str) -> bool:
    """Check whether mteb measures a suite."""
    return suite.startswith(TASKS) or has_own_tasks(suite) or suite in load_mteb_lists()


def has_own_tasks(suite: str) -> bool:
    """Check whether mteb measures tasks that it lacks itself: local files', the mini world's."""
    return suite.startswith(FILES) or suite == STSB_MULTI or suite in MTEB_SUITES


def parse_task(text: str, printed: str | None = None) -> MtebName:
    """Parse ``NAME``, ``NAME[SUBSET+SUBSET]`` or ``NAME[SUBSET]@SPLIT``; raises InputError."""
    match = _ENTRY.fullmatch(text.strip())
    if match is None:
        expected = "NAME, NAME[SUBSET+SUBSET] or NAME@SPLIT"
        raise InputError(f"'{text}' is not a task", where="--suite mteb:", expected=expected)
    subsets = tuple(part.strip() for part in (match["subsets"] or "").split("+") if part.strip())
    return MtebName(printed or text.strip(), match["name"], subsets, match["split"] or "")


def parse_suite(suite: str) -> MtebTaskList:
    """Return a paper's suite, or that of ``mteb:TASK,...``; raises InputError also for a repeated task."""
    if suite in load_mteb_lists():
        return load_mteb_lists()[suite]
    tasks = tuple(parse_task(text) for text in _OUTSIDE_BRACKETS.split(suite.removeprefix(TASKS)))
    for number, task in enumerate(tasks):
        if task.id in {other.id for other in tasks[:number]}:
            raise InputError(f"'{task.id}' is named twice", where=f"--suite {suite}")
    return MtebTaskList(tasks)


def split_suites(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Split ``--suite`` at its commas; ``mteb:`` takes all up to the next name of a suite that is no task."""
    suites: list[str] = []
    for part in (part.strip() for part in _OUTSIDE_BRACKETS.split(text)):
        starts = part in known or part.startswith((TASKS, FILES, CONTRAST_TEXT))
        same = load_mteb_lists().get(part)  # perhaps a suite of the task of its name
        is_task = same is not None and {task.name for task in same.tasks} == {part}
        if suites and suites[-1].startswith(TASKS) and (is_task or not starts):
            suites[-1] += f",{part}"
        else:
            suites.append(part)
    return tuple(suites)


def suite_label(suite: str) -> str:
    """Return the name of a suite in records, stripped of the folder of a ``local:`` or ``contrast:`` file."""
    for kind in (FILES, CONTRAST_TEXT):
        if suite.startswith(kind):
            return f"{kind}{Path(suite.removeprefix(kind)).stem}"
    return suite
