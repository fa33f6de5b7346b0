"""Rows of a model: which of its revisions' results are used, and what a row lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bench.errors import printable
from bench.imports.mteb_choice import EVERY, JOINED, WantedTask
from bench.imports.mteb_files import EXTERNAL
from bench.imports.mteb_result_file import ResultFile, count_things, describe_names

_NO_REVISION = ("no_revision_available", EXTERNAL)
_HEX = frozenset("0123456789abcdef")
_SHORT = 8  # characters of a revision in an id
_TASK_VERSION = re.compile(r"\.v\d+$")
_VERSION = re.compile(r"(?P<release>\d+(?:\.\d+)*)(?P<before>\.?(?:dev|a|b|rc)\d*)?(?:\.post\d+)?", re.ASCII)


@dataclass(frozen=True)
class ModelRow:
    """A model's results, of one revision or joined over several.

    Args:
        model: ``ORG/NAME``.
        revision: "" for a row over several.
        files: By task id.
        facts: From ``model_meta.json``.
        used: Other files that were read, with their sha256.
        origins: Revision of each task's file where there are several.
        others: Tasks outside the choice that have results.
    """

    model: str
    revision: str
    files: Mapping[str, ResultFile]
    facts: Mapping[str, Any] = field(default_factory=dict)
    used: tuple[tuple[str, str], ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    others: frozenset[str] = frozenset()

    @property
    def is_external(self) -> bool:
        """Check whether any score is a model card's."""
        return self.revision == EXTERNAL or EXTERNAL in self.origins.values()

    @property
    def date(self) -> str:
        """Newest date of its files, "" if none has one."""
        return max((file.date for file in self.files.values()), default="")

    @property
    def versions(self) -> list[str]:
        """Versions of mteb that its files state, oldest first."""
        texts = {file.version for file in self.files.values() if file.version}
        return sorted(texts, key=lambda text: (version_key(text), text))


@dataclass(frozen=True)
class RowChoice:
    """Rows of a model that are complete, otherwise why there is none.

    Args:
        several: The model has several complete revisions, of which one was chosen.
        undecided: Neither dates nor versions decide between them.
        of_card: The rows are a model card's.
        card_fills: The model card, which isn't read, has the tasks that the model lacks.
        versions: Tasks that the model lacks, each with its other version that the model has.
    """

    rows: tuple[ModelRow, ...] = ()
    reason: str = ""
    several: bool = False
    undecided: bool = False
    of_card: bool = False
    card_fills: bool = False
    versions: tuple[tuple[str, str], ...] = ()


def choose_rows(
    revisions: Sequence[ModelRow], rule: str, wanted: Sequence[WantedTask], main_revision: str
) -> RowChoice:
    """Choose the rows of a model by the rule for revisions."""
    if not revisions:
        return RowChoice(reason="it has only a model card's scores (--external reads them)")
    if rule == JOINED:
        row = join_revisions(revisions, wanted, main_revision)
        reason = describe_gaps(row, wanted)
        if reason:
            return RowChoice(reason=reason, versions=_find_versions(revisions, wanted))
        return RowChoice((row,))
    complete = [row for row in revisions if not find_gaps(row, wanted)]
    if not complete:
        nearest = min(revisions, key=lambda row: len(find_gaps(row, wanted)))
        reason = describe_gaps(nearest, wanted)
        if len(revisions) > 1:
            reason += f" in revision {shorten_revision(nearest.revision)}"
            if not find_gaps(join_revisions(revisions, wanted, main_revision), wanted):
                reason += "; complete over its revisions: --revisions joined"
        return RowChoice(reason=reason, versions=_find_versions(revisions, wanted))
    if rule == EVERY:
        return RowChoice(tuple(complete))
    return _choose_newest(complete, main_revision)


def _find_versions(rows: Sequence[ModelRow], wanted: Sequence[WantedTask]) -> tuple[tuple[str, str], ...]:
    """Return tasks without a file, each with the file of the same name in another version: X and X.v2."""
    others = {name for row in rows for name in row.others}
    pairs = []
    for each in wanted:
        name = each.task.asked.name
        if any(each.task.id in row.files for row in rows):
            continue
        stem = _TASK_VERSION.sub("", name)
        pairs += [(name, other) for other in sorted(others) if _TASK_VERSION.sub("", other) == stem]
    return tuple(pairs)


def _choose_newest(rows: Sequence[ModelRow], main_revision: str) -> RowChoice:
    """Choose the row with the newest date if all have one, otherwise with mteb's highest version.

    Ties go to the revision that mteb's registry names, then to the last name.
    """
    dated = all(row.date for row in rows)

    def age(row: ModelRow) -> tuple[str, tuple[int, ...]]:
        newest = max((version_key(text) for text in row.versions), default=())
        return (row.date if dated else "", newest)

    ordered = sorted(rows, key=lambda row: (age(row), row.revision == main_revision, row.revision))
    tied = len(rows) > 1 and age(ordered[-1]) == age(ordered[-2])
    undecided = tied and ordered[-1].revision != main_revision
    return RowChoice((ordered[-1],), several=len(rows) > 1, undecided=undecided)


def join_revisions(rows: Sequence[ModelRow], wanted: Sequence[WantedTask], main_revision: str) -> ModelRow:
    """Return a row with each task's file from the revision that ``BenchmarkResults.join_revisions`` takes.

    That is mteb's own revision of the model, else a file with a version of mteb and a named revision, else
    the highest version. mteb leaves a tie to the order of the files; here the first revision's name wins.
    """
    files, origins = {}, {}
    for task in (each.task for each in wanted):
        having = [row for row in rows if task.id in row.files]
        if having:
            ranked = sorted(having, key=lambda row: row.revision)
            best = max(ranked, key=lambda row: _join_priority(row, task.id, main_revision))
            files[task.id], origins[task.id] = best.files[task.id], best.revision
    sources = dict.fromkeys(origins.values())
    if len(sources) < 2:  # a row of one revision
        return next((row for row in rows if row.revision in sources), rows[0])
    main = max(sources, key=list(origins.values()).count)
    leading = next(row for row in rows if row.revision == main)
    others = frozenset().union(*(row.others for row in rows))
    used = tuple(pair for row in rows if row.revision in sources for pair in row.used)
    return ModelRow(leading.model, "", files, leading.facts, used, origins, others)


def _join_priority(row: ModelRow, task: str, main_revision: str) -> tuple[int, tuple[int, ...]]:
    text = row.files[task].version
    version = () if "-" in text else version_key(text)  # mteb reads no range of versions here
    points = 1000 * (row.revision == main_revision) + 100 * bool(version)
    return points + 10 * (row.revision not in _NO_REVISION), version


def find_gaps(row: ModelRow, wanted: Sequence[WantedTask]) -> list[str]:
    """Return the ids of the tasks without usable scores."""
    ids = [each.task.id for each in wanted]
    return [name for name in ids if name not in row.files or row.files[name].problem]


def describe_gaps(row: ModelRow, wanted: Sequence[WantedTask]) -> str:
    """Return what a row lacks, "" for a complete one."""
    gaps = find_gaps(row, wanted)
    if not gaps:
        return ""
    text = f"lacks {len(gaps)} of {len(wanted)} tasks ({describe_names(gaps)})"
    broken = [row.files[name] for name in gaps if name in row.files]
    if broken:
        text += f"; {broken[0].path}: {broken[0].problem}"
        text += f", and {count_things(len(broken) - 1, 'more file')}" if len(broken) > 1 else ""
    return text


def shorten_revision(revision: str) -> str:
    """Return the first characters of a commit, any other revision's name as it is."""
    is_commit = len(revision) > _SHORT and set(revision) <= _HEX
    return revision[:_SHORT] if is_commit else printable(revision)


@cache
def version_key(text: str) -> tuple[int, ...]:
    """Return a version of mteb for comparisons, () for none; a range counts as its end.

    >>> version_key("2.12.16") > version_key("2.9.0") > version_key("2.9.0.dev1") > version_key("")
    True
    """
    match = _VERSION.fullmatch(text.rpartition("-")[2])
    if match is None:
        return ()
    release = [int(number[:_SHORT]) for number in match["release"].split(".")]
    numbers = (*release, 0, 0, 0, 0)[:4]
    return (*numbers, 0 if match["before"] else 1)
