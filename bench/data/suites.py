"""Suites by name, and loading them with their fingerprints checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from bench.data import contrast_items, rank_task
from bench.data.cased import texts as cased_texts
from bench.data.data_source import NO_FOLDER, DataSource, World
from bench.data.local_tasks import read_local_pairs
from bench.data.mini.mini_suites import (
    CONTRAST_SUITE,
    MTEB_SUITES,
    RANK_SUITE,
    TRANSFER_SUITE,
    MiniSuite,
    draw_contrast_tasks,
    draw_transfer_tasks,
)
from bench.data.mini.world_text import graded_pairs
from bench.data.mteb_names import CONTRAST_TEXT, FILES, STSB_MULTI, is_mteb, load_mteb_lists
from bench.data.sentence_clusters import cluster_items
from bench.data.tasks import LabelledTask, PairSubset, PairTask, Suite, Task
from bench.data.toy_suite import make_toy_task
from bench.errors import DataError, InputError
from bench.registry import Registry
from bench.schema import parse_decimal

SUITES: Registry[Suite] = Registry("suite")
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
"""SentEval's transfer tasks in the order of the papers' tables."""
MINI_TRANSFER = "mini-transfer"
CASED, CASED_DEV, CASED_TRANSFER = "cased", "cased-dev", "cased-transfer"
CONTRAST, MINI_CONTRAST = "contrast", "mini-contrast"
EVALRANK, MINI_EVALRANK = "evalrank", "mini-evalrank"
_STSB = ("STSB-train", "STSB-dev", "STSB")


_CASED_NOTE = "The cased suites guard the program; their figures say nothing about a method."


def _world_note(name: str) -> str:
    return f"The world of suite {name} is made up: its figures are no benchmark of the methods."


def _make_mini_suite(name: str, suite: MiniSuite, how: str = "") -> Suite:
    note = " ".join(filter(None, (_world_note(name), suite.note)))
    return Suite(name, f"{suite.summary}{how}", suite.tasks, True, note)


for _suite in (
    Suite(
        "sts7",
        "STS12-16, STS-B test, SICK-R test: the papers' seven, Spearman over all pairs of a year",
        ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR"),
    ),
    Suite(
        "transfer7",
        "MR CR SUBJ MPQA SST2 TREC MRPC: accuracy of logistic regression under SentEval's protocol",
        TRANSFER,
    ),
    Suite("transfer8", "the same and SST5", (*TRANSFER, "SST5")),
    Suite("stsb-dev", "STS-B dev, for choosing, never for reporting", ("STSB-dev",)),
    Suite("sickr-dev", "SICK-R trial", ("SICKR-dev",)),
    Suite(
        "mini",
        "test pairs of the embedded world; its figures are no benchmark",
        ("MINI",),
        True,
        _world_note("mini"),
    ),
    Suite(
        "mini-dev", "dev pairs of the embedded world, for choosing, never for reporting", ("MINI-dev",), True
    ),
    Suite(
        CONTRAST,
        "minimal pairs of STS-B's test sentences, by rule: a paraphrase against a distractor, accuracy",
        contrast_items.PHENOMENA,
        note=contrast_items.NOTE,
        reads=("STSB",),
    ),
    Suite(
        EVALRANK,
        "EvalRank: the partner of each of STS-B's best pairs among all of its sentences, MRR",
        ("EvalRank",),
        note=rank_task.NOTE,
        reads=_STSB,
    ),
    _make_mini_suite(MINI_TRANSFER, TRANSFER_SUITE),
    _make_mini_suite(MINI_CONTRAST, CONTRAST_SUITE),
    _make_mini_suite(MINI_EVALRANK, RANK_SUITE),
    *(_make_mini_suite(name, suite, " (mteb)") for name, suite in MTEB_SUITES.items()),
    Suite(
        "toy",
        "180 embedded pairs for the program's own tests",
        ("TOY",),
        True,
        "The toy suite is a smoke test; its figures say nothing about a method.",
    ),
    Suite(
        CASED,
        "81 embedded pairs in which case tells a name from a word, for the gate",
        (cased_texts.PAIR_TASK,),
        True,
        _CASED_NOTE,
    ),
    Suite(
        CASED_DEV, "12 embedded pairs of that kind, for choosing", (cased_texts.DEV_TASK,), True, _CASED_NOTE
    ),
    Suite(
        CASED_TRANSFER,
        "is a word a name? accuracy of logistic regression, for the gate",
        (cased_texts.TRANSFER_TASK,),
        True,
        _CASED_NOTE,
    ),
    *(
        Suite(name, f"{listed.summary} (mteb)", tuple(task.id for task in listed.tasks), note=listed.note)
        for name, listed in load_mteb_lists().items()
    ),
    Suite(
        STSB_MULTI,
        "STS-B test as it was and in ten translations (mteb, on local files)",
        ("de", "en", "es", "fr", "it", "ja", "nl", "pl", "pt", "ru", "zh"),
    ),
):
    SUITES.register(_suite.name, _suite, __name__)

_EMBEDDED: dict[str, Callable[[World], PairTask]] = {
    "mini": lambda world: graded_pairs(world, "test"),
    "mini-dev": lambda world: graded_pairs(world, "dev"),
    "toy": lambda world: make_toy_task(),
    CASED: lambda world: cased_texts.make_pair_task(),
    CASED_DEV: lambda world: cased_texts.make_dev_task(),
}
_EMBEDDED_TRANSFER: dict[str, Callable[[World], list[LabelledTask]]] = {
    MINI_TRANSFER: draw_transfer_tasks,
    CASED_TRANSFER: lambda world: [cased_texts.make_transfer_task()],
}

MINI_SUITES = frozenset({"mini", "mini-dev", MINI_TRANSFER, MINI_CONTRAST, MINI_EVALRANK, *MTEB_SUITES})
TRANSFER_SUITES = frozenset({"transfer7", "transfer8", *_EMBEDDED_TRANSFER})
RANK_SUITES = frozenset({EVALRANK, MINI_EVALRANK})

GROUPS: dict[str, tuple[str, ...]] = {
    "sts7": (*SUITES.get("sts7").tasks, "STSB-dev", "STSB-train", "SICKR-dev", "SICKR-train"),
    "transfer7": ("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC"),
}
"""Task groups of ``bench data fetch`` and ``verify``: every split of every task."""


@cache
def reference_fingerprints() -> dict[str, dict[str, Any]]:
    """Return {task: {"items", "sha256", "parts"}}, as committed with the program."""
    text = resources.files(__package__).joinpath("fingerprints.json").read_text(encoding="utf-8")
    fingerprints: dict[str, dict[str, Any]] = json.loads(text)
    return fingerprints


def load_suite(
    name: str, source: DataSource = NO_FOLDER, *, where: str = "--suite"
) -> tuple[Suite, list[PairTask]]:
    """Read and check the tasks of a suite, or local:FILE of scored pairs; raises InputError and DataError."""
    if name.startswith(FILES):
        local = read_local_task(Path(name.removeprefix(FILES)))
        return Suite(name, "scored pairs from a file", (local.id,)), [local]
    if is_mteb(name):
        expected = "a suite of pairs here, such as sts7, stsb-dev or mini, or local:FILE"
        raise InputError(f"suite '{name}' is measured by mteb", where=where, expected=expected)
    if name not in SUITES.names() and Path(name).is_file():
        raise InputError(f"unknown suite '{name}'", where=where, hint=f"a file of pairs is local:{name}")
    suite = SUITES.get(CONTRAST if is_contrast(name) and name not in SUITES.names() else name, where=where)
    if name in _EMBEDDED_TRANSFER or name in RANK_SUITES or is_contrast(name):
        what = f"suite '{name}' holds {suite.tasks[0]}, which is not a sentence-pair task"
        raise InputError(what, where=where)
    if suite.embedded:
        return suite, [_EMBEDDED[name](source.world)]
    root = _find_data_root(name, source.folder, "transfer7" if name == "transfer7" else "sts7")
    tasks = []
    for task_id in suite.tasks:
        task = _read_checked(root, task_id, source)
        if not isinstance(task, PairTask):
            what = f"suite '{name}' holds {task_id}, which is not a sentence-pair task"
            raise InputError(what, where="--suite")
        tasks.append(task)
    return suite, tasks


def _read_checked(root: Path, task_id: str, source: DataSource) -> Task:
    task = read_task(root, task_id)
    if not source.accept_changed:
        check_reference(task, root)
    return task


def read_local_task(path: Path) -> PairTask:
    """Read scored pairs of your own; their name, local:NAME, stays out of the fingerprint."""
    name, rows, form = read_local_pairs(path)
    return replace(make_pair_task(name, rows), form=form)


def make_pair_task(name: str, rows: Sequence[Sequence[str]]) -> PairTask:
    """Return (sentence1, sentence2, score) rows of your own as a task."""
    first, second, scores = zip(*rows, strict=True)
    return PairTask(f"{FILES}{name}", (PairSubset("dev", first, second, tuple(map(parse_decimal, scores))),))


def load_transfer(name: str, source: DataSource = NO_FOLDER) -> list[LabelledTask]:
    """Read and check all tasks of one of TRANSFER_SUITES; the DataError names every damaged task."""
    if name in _EMBEDDED_TRANSFER:
        return _EMBEDDED_TRANSFER[name](source.world)
    root = _find_data_root(name, source.folder, "transfer7")
    tasks, faults, names = list[LabelledTask](), list[str](), SUITES.get(name).tasks
    for task_id in names:
        try:
            task = _read_checked(root, task_id, source)
        except DataError as error:
            faults.append(f"{task_id}: {error}")
        else:
            tasks += [task] if isinstance(task, LabelledTask) else []
    if faults:
        raise DataError(f"suite '{name}' lacks {len(faults)} of {len(names)} tasks: {' | '.join(faults)}")
    return tasks


def is_contrast(name: str) -> bool:
    """Check for a suite of minimal pairs, also of a user's text."""
    return name in (CONTRAST, MINI_CONTRAST) or name.startswith(CONTRAST_TEXT)


def load_contrast(name: str, source: DataSource = NO_FOLDER) -> list[contrast_items.ContrastTask]:
    """Make the tasks of a suite of minimal pairs (:func:`is_contrast`); raises InputError and DataError."""
    if name == MINI_CONTRAST:
        return draw_contrast_tasks(source.world)
    if name.startswith(CONTRAST_TEXT):
        path = Path(name.removeprefix(CONTRAST_TEXT))
        return contrast_items.make_contrast_tasks(contrast_items.read_contrast_text(path), str(path))
    (task,) = _read_pair_tasks(name, source)
    pairs = list(task.all_pairs())
    sources: dict[str, int] = {}
    for pair, cluster in zip(pairs, cluster_items([pairs])[0].tolist(), strict=True):
        sources |= dict.fromkeys(pair, cluster)
    sentences, where = [sentence for pair in pairs for sentence in pair], f"suite {name}"
    reference = is_reference(task)
    return contrast_items.make_contrast_tasks(sentences, where, reference=reference, sources=sources)


def load_rank(name: str, source: DataSource = NO_FOLDER) -> list[rank_task.RankTask]:
    """Make the task of a suite of :data:`RANK_SUITES`; raises as :func:`load_contrast`."""
    (task,) = SUITES.get(name).tasks
    if name == MINI_EVALRANK:
        return [rank_task.make_rank_task(task, [graded_pairs(source.world, "test")])]
    tasks = _read_pair_tasks(name, source)
    return [rank_task.make_rank_task(task, tasks, reference=all(map(is_reference, tasks)))]


def _read_pair_tasks(name: str, source: DataSource) -> list[PairTask]:
    root = _find_data_root(name, source.folder, "sts7")
    tasks = [_read_checked(root, task_id, source) for task_id in SUITES.get(name).reads]
    return [task for task in tasks if isinstance(task, PairTask)]


def _find_data_root(suite: str, data: Path | None, group: str) -> Path:
    if data is None:
        what, hint = f"suite '{suite}' needs evaluation data", f"bench data fetch {group} --data data"
        raise InputError(what, expected="--data DIR or BENCH_DATA", hint=f"get it with: {hint}")
    from bench.data import senteval  # only real data need it

    return senteval.find_root(data)


def read_task(root: Path, task_id: str) -> Task:
    """Read one task from a ``downstream`` folder; raises DataError naming file and line."""
    from bench.data import senteval

    return senteval.SOURCES[task_id].read(root)


def is_reference(task: Task) -> bool:
    """Check whether the parsed data match the committed fingerprint."""
    known = reference_fingerprints().get(task.id)
    embedded = any(suite.embedded and task.id in suite.tasks for _, suite in SUITES)
    return embedded or (known is not None and known["sha256"] == task.sha256)


def is_accepted(task: Task) -> bool:
    """Check for data that differ from their reference version: the user has accepted them."""
    return task.id in reference_fingerprints() and not is_reference(task)


def check_reference(task: Task, root: Path) -> None:
    """Raise DataError, with the place if possible, for a task that differs from its committed fingerprint."""
    if is_reference(task):
        return
    reference = reference_fingerprints()[task.id]
    hint = "fetch it again with bench data fetch, or pass --accept-data to evaluate your own version"
    parts = task.splits if isinstance(task, LabelledTask) else task.subsets
    for part in parts:
        count, expected = task.counts[part.name], reference["parts"][part.name]
        if count != expected:
            what = f"{task.id}: {count} items and the file ends here"
            where = f"{root / part.source}:{part.last_line}"
            raise DataError(what, where=where, expected=f"{expected} items", hint=hint)
    what = f"{task.id}: the text or the scores differ from the reference version (sha256 {task.sha256[:12]})"
    sha256 = f"sha256 {reference['sha256'][:12]} over the parsed items"
    raise DataError(what, where=str(root / parts[0].source), expected=sha256, hint=hint)
