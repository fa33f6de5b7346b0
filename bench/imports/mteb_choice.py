"""Which part of mteb's results is imported: tasks with their splits and subsets, models, revisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bench.data.mteb_names import MtebName, has_own_tasks, is_mteb
from bench.errors import InputError, not_one_of, suggest_name
from bench.eval.mteb_setup import import_mteb, preserve_random_state, silence_mteb
from bench.eval.mteb_tasks import MtebTask, build_mteb_task, load_mteb_suite

NEWEST, JOINED, EVERY = "newest", "joined", "all"
REVISIONS = (NEWEST, JOINED, EVERY)
ONE, ANY = "one", "any"
DATA_REVISIONS = (ONE, ANY)


@dataclass(frozen=True)
class MtebChoice:
    """What is read from a folder of mteb's results.

    Args:
        benchmark: A suite's name, ``mteb:TASK,...`` as in ``--suite``, or a name of ``mteb.get_benchmark``.
        models: Names, ``ORG/NAME`` or ``ORG__NAME``; empty for all.
        revisions: "newest": each model's newest complete revision; "joined": scores over revisions, as on
            mteb's leaderboard; "all": a row for each complete revision.
        data_revisions: "one": only rows with the data revisions that most complete rows have; "any": all
            rows, whose tasks then are identified without the data revision.
        metric: mteb's name of a metric; empty for each task's main score.
        external: Read scores that mteb took from model cards too, as rows of their own.
    """

    benchmark: str
    models: tuple[str, ...] = ()
    revisions: str = NEWEST
    data_revisions: str = ONE
    metric: str = ""
    external: bool = False


@dataclass(frozen=True)
class WantedTask:
    """A task to import.

    Args:
        task: With the data revision of the installed mteb.
        subsets: mteb's subsets that are evaluated.
        main: mteb's name of the main score.
        is_main: The main score is imported.
    """

    task: MtebTask
    subsets: tuple[str, ...]
    main: str
    is_main: bool


def load_wanted_tasks(choice: MtebChoice) -> list[WantedTask]:
    """Return the tasks of a choice, in the benchmark's order; raises InputError."""
    for where, value, known in (
        ("--revisions", choice.revisions, REVISIONS),
        ("--data-revisions", choice.data_revisions, DATA_REVISIONS),
    ):
        if value not in known:
            raise not_one_of(f"unknown value '{value}'", value, known, where=where)
    import_mteb()
    with preserve_random_state(), silence_mteb():
        if has_own_tasks(choice.benchmark):
            what = f"mteb has no results on '{choice.benchmark}'"
            raise InputError(what, where="--benchmark", expected="a benchmark or mteb:TASK,...")
        if is_mteb(choice.benchmark):
            pairs = [(task, build_mteb_task(task)) for task in load_mteb_suite(choice.benchmark)]
        else:
            pairs = _load_benchmark(choice.benchmark)
    return [_make_wanted_task(task, built, choice.metric) for task, built in pairs]


def _make_wanted_task(task: MtebTask, built: Any, metric: str) -> WantedTask:
    subsets = ("default",) if built.is_aggregate else tuple(built.hf_subsets)
    main = str(built.metadata.main_score)
    score = metric or task.score
    return WantedTask(replace(task, score=score), subsets, main, score == main)


def _load_benchmark(name: str) -> list[tuple[MtebTask, Any]]:
    """Return the tasks of one of mteb's benchmarks, named after their subsets where two have one name."""
    import mteb

    try:
        benchmark = mteb.get_benchmark(name)
    except KeyError as error:
        hint = suggest_name(name, [str(other.name) for other in mteb.get_benchmarks()])
        what, expected = f"mteb has no benchmark '{name}'", "a benchmark or mteb:TASK,..."
        raise InputError(what, where="--benchmark", expected=expected, hint=hint) from error
    tasks = list(benchmark.tasks)
    names = [str(task.metadata.name) for task in tasks]
    pairs = []
    for task in tasks:
        about = task.metadata
        narrow = set(task.hf_subsets) != set(about.hf_subsets) and not task.is_aggregate
        subsets = tuple(task.hf_subsets) if narrow else ()
        printed = about.name
        if names.count(about.name) > 1:
            printed = f"{about.name}[{'+'.join(task.hf_subsets)}]@{'+'.join(task.eval_splits)}"
        dataset = (str(about.dataset["path"]), str(about.dataset["revision"]))
        row = MtebTask(
            MtebName(printed, about.name, subsets),
            str(about.type),
            str(about.main_score),
            dataset,
            tuple(task.eval_splits),
        )
        pairs.append((row, task))
    return pairs
