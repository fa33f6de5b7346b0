"""Notes on imported rows of mteb: how they were chosen, and where they are odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bench.imports.mteb_choice import JOINED, NEWEST, MtebChoice, WantedTask
from bench.imports.mteb_files import EXTERNAL
from bench.imports.mteb_result_file import describe_names
from bench.imports.mteb_revisions import ModelRow, RowChoice


def describe_rows(
    rows: Mapping[str, ModelRow],
    left_out: Mapping[str, str],
    choices: Sequence[RowChoice],
    choice: MtebChoice,
    wanted: Sequence[WantedTask],
) -> list[str]:
    """Return notes for the terminal.

    Args:
        rows: The kept ones, by id.
        left_out: Reasons of the others.
        choices: How the row of each model was chosen.
        choice: What was asked for.
        wanted: The tasks.
    """
    return [
        f"rows with all {len(wanted)} tasks: {len(rows)}; left out: {len(left_out)}",
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


def _describe_main_scores(rows: Mapping[str, ModelRow], wanted: Sequence[WantedTask]) -> Iterator[str]:
    """Yield each task of which files have a main score that isn't the task's metric of today."""
    for each in wanted:
        files = [row.files[each.task.id] for row in rows.values()]
        odd = [file for file in files if file.other_main]
        if odd:
            count, first = f"{len(odd)} of {len(rows)} rows", f"{odd[0].path}: {odd[0].other_main}"
            yield f"{each.task.id}: the main score isn't {each.main} in {count} ({first})"


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
        yield f"{len(equal) - 5} more groups of rows have equal scores"


def _describe_equal_names(rows: Mapping[str, ModelRow]) -> Iterator[str]:
    groups: dict[str, set[str]] = {}
    for row in rows.values():
        groups.setdefault(row.model.lower(), set()).add(row.model)
    for names in groups.values():
        if len(names) > 1:
            yield f"models differ only in case: {describe_names(sorted(names))}"
