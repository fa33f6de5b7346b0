"""Results of many models in mteb's files: complete, on the same data, as rows for records.

``mteb.ResultCache`` writes such a folder, and the public repository embeddings-benchmark/results is one.
Scores are taken as they stand: nobody here computed them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.eval.mteb_scores import suite_scores
from bench.eval.mteb_setup import import_mteb
from bench.imports.mteb_choice import ANY, EVERY, JOINED, NEWEST, MtebChoice, WantedTask, load_wanted_tasks
from bench.imports.mteb_data_revisions import describe_data_revisions, identify_task, keep_common_data
from bench.imports.mteb_files import (
    EXTERNAL,
    MODEL_META,
    ResultTree,
    RevisionFolder,
    list_models,
    list_revisions,
    no_results,
    open_tree,
    read_json_file,
    select_models,
)
from bench.imports.mteb_model_facts import describe_source, read_model_facts, read_model_name
from bench.imports.mteb_notes import Reading, describe_in_tables, describe_rows
from bench.imports.mteb_result_file import ResultFile, describe_names, parse_result_file
from bench.imports.mteb_revisions import (
    ModelRow,
    RowChoice,
    choose_rows,
    find_gaps,
    shorten_revision,
)
from bench.imports.published import PublishedResults, PublishedRun
from bench.records.look_alikes import find_look_alike


def read_mteb_folder(
    folder: Path, choice: MtebChoice, progress: Callable[[int], None] = lambda _: None
) -> PublishedResults:
    """Read the results of mteb in a folder.

    Args:
        folder: A clone of the public repository, a cache of ``mteb.ResultCache``, or a folder of models.
        choice: Tasks, models and revisions.
        progress: Called after each model with the number of files that were read so far.

    Returns:
        A run for each complete row. The others are left out, each with its reason.

    Raises:
        InputError: For an unknown name, a folder without results, and where no row remains.
    """
    wanted = load_wanted_tasks(choice)
    tree = open_tree(folder)
    reading = _read_rows(tree, choice, wanted, progress)
    rows, left_out = reading.rows, dict(reading.left_out)
    if not rows:
        raise _nothing_left(folder, left_out)
    if choice.data_revisions == ANY:
        data_notes = describe_data_revisions(rows, wanted)
    else:
        rows, of_other_data, data_notes = keep_common_data(rows, wanted)
        left_out |= of_other_data
        if not rows:
            raise _nothing_left(folder, left_out)
    runs = tuple(_make_run(name, row, choice, wanted) for name, row in rows.items())
    used = [pair for row in rows.values() for pair in _list_used(row)]
    newest = max(row.date for row in rows.values())
    notes = describe_rows(rows, reading, choice, wanted)
    remarks = [
        f"{what}: {len(paths)} ({describe_names(list(paths), 2)})" for what, paths in tree.remarks.items()
    ]
    return PublishedResults(
        choice.benchmark,
        runs,
        describe_source(tree, used, newest),
        (*notes, *data_notes, *remarks),
        dict(sorted(left_out.items())),
        describe_in_tables(rows, reading, choice, wanted),
    )


def _read_rows(
    tree: ResultTree, choice: MtebChoice, wanted: Sequence[WantedTask], progress: Callable[[int], None]
) -> Reading:
    known = list_models(tree)
    names = {each.task.asked.name for each in wanted}
    main_revisions = _load_main_revisions()
    reading, number = Reading(), 0
    for model in select_models(known, choice.models):
        folders = list_revisions(tree, model, known[model], names)
        if not folders:
            continue
        cards = [folder for folder in folders if folder.revision == EXTERNAL and not choice.external]
        found = [_read_revision(tree, folder, wanted) for folder in folders if folder not in cards]
        number += sum(len(folder.files) for folder in folders if folder not in cards)
        progress(number)
        name = found[0].model if found else read_model_name(None, model)
        if look_alike := find_look_alike(name):
            reading.left_out[name] = look_alike
            continue
        reading.models.add(name)
        for chosen in _choose_rows(found, choice, wanted, main_revisions.get(name, "")):
            reading.choices.append(replace(chosen, card_fills=_fills_gaps(cards, found, chosen, wanted)))
            for row in chosen.rows:
                _add_row(tree, reading.rows, _row_id(name, row, chosen, choice), row)
            if chosen.reason:
                reading.left_out[f"{name}@{EXTERNAL}" if chosen.of_card else name] = chosen.reason
    return reading


def _add_row(tree: ResultTree, rows: dict[str, ModelRow], name: str, row: ModelRow) -> None:
    """Add a row; another of its id, which only an odd file name gives, isn't read."""
    if name in rows:
        first = next(iter(row.files.values()))
        tree.add_remark(f"models that are called {name} too and aren't read", tree.folder / first.path)
    rows.setdefault(name, row)


def _fills_gaps(
    cards: Sequence[RevisionFolder],
    found: Sequence[ModelRow],
    chosen: RowChoice,
    wanted: Sequence[WantedTask],
) -> bool:
    """Check whether a model card has files of all tasks that no revision of the model has."""
    if not chosen.reason or not cards:
        return False
    stated = {name for card in cards for name in card.files}
    names = {each.task.id: each.task.asked.name for each in wanted}
    unusable = set(names).intersection(*(find_gaps(row, wanted) for row in found))
    has_file = {name for row in found for name in row.files}
    return all(names[task] in stated and task not in has_file for task in unusable)


def _choose_rows(
    found: Sequence[ModelRow], choice: MtebChoice, wanted: Sequence[WantedTask], main_revision: str
) -> list[RowChoice]:
    """Choose a model's rows; joined rows take a card's score where nothing was measured, as mteb's do."""
    if choice.revisions == JOINED:
        return [choose_rows(found, JOINED, wanted, main_revision)]
    measured = [row for row in found if not row.is_external]
    cards = [row for row in found if row.is_external]
    choices = []
    if measured or not cards:
        choices.append(choose_rows(measured, choice.revisions, wanted, main_revision))
    if cards:
        choices.append(replace(choose_rows(cards, NEWEST, wanted, ""), of_card=True))
    return choices


def _row_id(name: str, row: ModelRow, chosen: RowChoice, choice: MtebChoice) -> str:
    """Return ``ORG/NAME``, with "all" also the revision: its first characters where they are enough."""
    if row.is_external:
        return f"{name}@{EXTERNAL}"
    if choice.revisions != EVERY:
        return name
    short = [shorten_revision(other.revision) for other in chosen.rows]
    unique = short.count(shorten_revision(row.revision)) == 1
    return f"{name}@{shorten_revision(row.revision) if unique else row.revision}"


def _read_revision(tree: ResultTree, folder: RevisionFolder, wanted: Sequence[WantedTask]) -> ModelRow:
    meta, used = _read_meta(tree, folder.files.get(MODEL_META, []))
    files = {}
    for each in wanted:
        paths = folder.files.get(each.task.asked.name, [])
        if paths:
            files[each.task.id] = _read_result(tree, paths, each)
    name, facts = read_model_name(meta, folder.model), read_model_facts(meta)
    return ModelRow(name, folder.revision, files, facts, used, others=frozenset(folder.others))


def _read_meta(tree: ResultTree, paths: Sequence[Path]) -> tuple[Any, tuple[tuple[str, str], ...]]:
    for path in paths[:1]:
        try:
            meta, sha256 = read_json_file(path)
        except ValueError:
            tree.add_remark("files with a model's facts that can't be read", path)
            continue
        return meta, ((tree.relative(path), sha256),)
    return None, ()


def _read_result(tree: ResultTree, paths: Sequence[Path], wanted: WantedTask) -> ResultFile:
    """Read a task's file; of a local and a public one both, which must agree."""
    read = []
    for path in paths:
        name = tree.relative(path)
        try:
            data, sha256 = read_json_file(path)
        except ValueError as error:
            read.append(ResultFile(name, "", problem=str(error)))
            continue
        read.append(parse_result_file(name, sha256, data, wanted))
    first = read[0]
    for other in read[1:]:
        if (other.entries, other.data_revision) != (first.entries, first.data_revision):
            return ResultFile(first.path, first.sha256, problem=f"{other.path} has other scores")
    return first


def _make_run(name: str, row: ModelRow, choice: MtebChoice, wanted: Sequence[WantedTask]) -> PublishedRun:
    tasks = [identify_task(each, row, choice.data_revisions) for each in wanted]
    entries = {task.id: row.files[task.id].entries for task in tasks}
    facts: dict[str, Any] = {
        "revision": row.revision or JOINED,
        **row.facts,
        "mteb_versions": row.versions,
        "is_external": row.is_external,
    }
    if row.date:
        facts["date"] = row.date
    if row.origins:
        facts["revisions"] = dict(row.origins)
    if choice.data_revisions == ANY:
        facts["data_revisions"] = {task.id: row.files[task.id].data_revision for task in tasks}
    if row.is_external:
        of_cards = list(row.origins.values()).count(EXTERNAL) if row.origins else len(tasks)
        facts["external_tasks"] = of_cards
    blocks = {task.id: {"sha256": task.sha256, "reference": False, **task.facts} for task in tasks}
    return PublishedRun(name, None, suite_scores(tasks, entries), blocks, facts)


def _list_used(row: ModelRow) -> Iterator[tuple[str, str]]:
    yield from row.used
    yield from ((file.path, file.sha256) for file in row.files.values())


def _load_main_revisions() -> dict[str, str]:
    """Return the revision of each model in mteb's registry."""
    metas = import_mteb().get_model_metas()
    return {meta.name: str(meta.revision) for meta in metas if meta.name is not None}


def _nothing_left(folder: Path, left_out: Mapping[str, str]) -> InputError:
    if not left_out:
        return no_results(folder)
    # the reason that names a file says most, that of a model without any result least
    names = sorted(left_out, key=lambda n: (".json" not in left_out[n], "model card" in left_out[n], n))
    first = f" ({names[0]}: {left_out[names[0]]})"
    what = f"none of {len(names)} models has all scores{first}"
    return InputError(what, where=str(folder), expected="at least one complete model")
