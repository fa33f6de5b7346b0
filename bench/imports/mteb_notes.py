"""Notes on imported rows of mteb: how they were chosen, and where they are odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.imports.mteb_choice import JOINED, NEWEST, MtebChoice, WantedTask
from bench.imports.mteb_data_revisions import count_data_revisions
from bench.imports.mteb_files import EXTERNAL
from bench.imports.mteb_result_file import ResultFile, count_things, describe_names
from bench.imports.mteb_revisions import ModelRow, RowChoice


@dataclass
class Reading:
    """What a folder has, before rows are compared by their data.

    Args:
        rows: The complete ones, by id.
        left_out: Reasons of the others.
        choices: How the row of each model was chosen.
        models: Names of all models that were read.
    """

    rows: dict[str, ModelRow] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    choices: list[RowChoice] = field(default_factory=list)
    models: set[str] = field(default_factory=set)


def describe_rows(
    rows: Mapping[str, ModelRow], reading: Reading, choice: MtebChoice, wanted: Sequence[WantedTask]
) -> list[str]:
    """Return notes for the terminal.

    Args:
        rows: The kept ones, by id.
        reading: What there is.
        choice: What was asked for.
        wanted: The tasks.
    """
    choices = reading.choices
    return [
        f"rows with all {len(wanted)} tasks: {len(reading.rows)}; "
        f"left out for missing tasks: {len(reading.left_out)}",
        *_describe_revisions(rows, choices, choice),
        *_describe_cards(rows, choices),
        *_describe_main_scores(rows, wanted),
        *_describe_equal_rows(rows),
        *_describe_equal_names(rows),
        *_describe_successors(choices),
    ]


def _describe_revisions(
    rows: Mapping[str, ModelRow], choices: Sequence[RowChoice], choice: MtebChoice
) -> Iterator[str]:
    several = sum(chosen.several for chosen in choices)
    if choice.revisions == NEWEST and several:
        yield (
            f"models with several complete revisions: {several}; the newest is used, "
            "by the files' dates, otherwise by mteb's version"
        )
    undecided = [chosen.rows[0].model for chosen in choices if chosen.undecided]
    if undecided:
        names = describe_names(undecided)
        yield f"models whose newest revision is unknown: {len(undecided)} ({names}); the last by name is used"
    joined = sum(bool(row.origins) for row in rows.values())
    if choice.revisions == JOINED:
        yield f"rows over several revisions of the model, as on mteb's leaderboard: {joined}"


def _describe_successors(choices: Sequence[RowChoice]) -> Iterator[str]:
    """Yield tasks that models lack while they have the same task's other version."""
    counts = Counter(pair for chosen in choices for pair in chosen.versions)
    for (lacking, other), number in sorted(counts.items()):
        yield f"models that lack {lacking} and have {other}, another task: {number}"


def _describe_cards(rows: Mapping[str, ModelRow], choices: Sequence[RowChoice]) -> Iterator[str]:
    cards = sum(row.is_external for row in rows.values())
    if cards:
        yield f"rows with scores of model cards, which mteb didn't measure (@{EXTERNAL}): {cards}"
    filled = sum(chosen.card_fills for chosen in choices)
    if filled:
        what = "models of which a model card has the missing tasks, as on mteb's leaderboard"
        yield f"{what}: {filled} (--external --revisions joined)"


def _find_other_main_scores(
    rows: Mapping[str, ModelRow], wanted: Sequence[WantedTask]
) -> Iterator[tuple[WantedTask, list[ResultFile]]]:
    """Yield each task with the files whose main score isn't the task's metric of today."""
    for each in wanted:
        files = [row.files[each.task.id] for row in rows.values()]
        if odd := [file for file in files if file.other_main]:
            yield each, odd


def _list_metrics(files: Sequence[ResultFile]) -> str:
    """Return the metrics of the files' main scores, the most common first."""
    return " or ".join(name for name, _ in Counter(file.other_main for file in files).most_common(2))


def _describe_main_scores(rows: Mapping[str, ModelRow], wanted: Sequence[WantedTask]) -> Iterator[str]:
    for each, odd in _find_other_main_scores(rows, wanted):
        count = f"{len(odd)} of {len(rows)} rows"
        what = f"the main score is {_list_metrics(odd)}, not {each.main}"
        yield f"{each.task.id}: {what}, in {count} ({odd[0].path})"


def describe_in_tables(
    rows: Mapping[str, ModelRow], reading: Reading, choice: MtebChoice, wanted: Sequence[WantedTask]
) -> tuple[str, ...]:
    """Return at most four sentences for every table with these rows."""
    notes = [*_describe_models(rows, reading, "named models" if choice.models else "models of the source")]
    mixed = count_data_revisions(rows, wanted)
    if mixed:
        tasks = f"{len(mixed)} of {len(wanted)} tasks"
        notes.append(f"Rows stand on several data revisions in {tasks} ({describe_names(list(mixed))}).")
    other = list(_find_other_main_scores(rows, wanted))
    if other:
        some = "all rows" if all(len(odd) == len(rows) for _, odd in other) else "some rows"
        names = describe_names([f"{each.task.id}: {_list_metrics(odd)}" for each, odd in other])
        tasks = count_things(len(other), "task")
        notes.append(f"The main score of {some} is another metric than today's in {tasks} ({names}).")
    joined = sum(bool(row.origins) for row in rows.values())
    if joined:
        verb = "joins" if joined == 1 else "join"
        notes.append(f"{count_things(joined, 'row')} {verb} scores over revisions of the model.")
    return tuple(notes)


def _describe_models(rows: Mapping[str, ModelRow], reading: Reading, noun: str) -> Iterator[str]:
    """Yield how many models are rows, and why the others aren't."""
    kept = {row.model for row in rows.values()}
    complete = {row.model for row in reading.rows.values()}
    reasons = []
    if lacking := len(reading.models - complete):
        reasons.append(f"{lacking} {'lacks' if lacking == 1 else 'lack'} tasks")
    if differing := len(complete - kept):
        verb = "stands" if differing == 1 else "stand"
        reasons.append(f"{differing} {verb} on other data revisions")
    if reasons:
        yield f"{len(kept)} of {len(reading.models)} {noun}: {', '.join(reasons)}."


def _describe_equal_rows(rows: Mapping[str, ModelRow]) -> Iterator[str]:
    """Yield rows with the same digits in every task, which are kept."""
    groups: dict[tuple[float, ...], list[str]] = {}
    for name, row in rows.items():
        values = [
            value
            for task in sorted(row.files)
            for entry in row.files[task].entries
            for value in entry.scores.values()
        ]
        groups.setdefault(tuple(values), []).append(name)
    equal = [names for names in groups.values() if len(names) > 1]
    for names in equal[:5]:
        yield f"{len(names)} rows have equal scores: {describe_names(names, 4)}"
    if len(equal) > 5:
        verb = "has" if len(equal) == 6 else "have"
        yield f"{count_things(len(equal) - 5, 'more group')} of rows {verb} equal scores"


def _describe_equal_names(rows: Mapping[str, ModelRow]) -> Iterator[str]:
    groups: dict[str, set[str]] = {}
    for row in rows.values():
        groups.setdefault(row.model.lower(), set()).add(row.model)
    for names in groups.values():
        if len(names) > 1:
            yield f"models differ only in case: {describe_names(sorted(names))}"
