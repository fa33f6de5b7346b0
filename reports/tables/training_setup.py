"""What a leaderboard says of unequal terms: setting, text, options of members, backbone, processor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.comparison.selection import group_by
from bench.data.mteb_names import FILES
from bench.records.environment import read_cpu
from bench.records.fingerprint import drop_latest_defaults
from bench.records.record import RunRecord, find_dev_tasks
from bench.reports.records import LAST_NOTE, by_method, table_facts

_MOST_NAMES, _MOST_AMOUNTS = 3, 4


def budget_notes(records: Sequence[RunRecord], shown: Callable[[str], str] = str) -> tuple[str, ...]:
    """Return a line with the sentences that methods' longest training stages read, if they are unequal.

    The longest stage, since stages that methods share, and those of a teacher, stand in the record of each.
    Amounts that differ by less than a step are equal: a last batch is full.

    Args:
        records: Of one profile and suite.
        shown: What a method is called.
    """
    found = []
    for method, group in by_method(records).items():
        stages = [stage for record in group for stage in record.training.get("stages", {}).values()]
        read = [
            (stage["sentences_seen"], stage.get("steps")) for stage in stages if "sentences_seen" in stage
        ]
        if read:
            most, steps = max(read, key=lambda one: one[0])
            found.append((most, most / (steps or most or 1), method))
    found.sort(key=lambda one: (-one[0], one[2]))
    groups: list[list[tuple[int, float, str]]] = []
    for one in found:
        if groups and groups[-1][0][0] - one[0] < max(groups[-1][0][1], one[1]):
            groups[-1].append(one)
        else:
            groups.append([one])
    if len(groups) < 2:
        return ()
    said = [
        f"{group[0][0]:,} ({_abbreviate_list([shown(method) for *_, method in group])})" for group in groups
    ]
    kept = said if len(said) <= _MOST_AMOUNTS else [*said[: _MOST_AMOUNTS - 1], f"... {said[-1]}"]
    return (f"Unequal budgets, in sentences that a method's longest training stage read: {', '.join(kept)}.",)


def text_notes(records: Sequence[RunRecord], shown: Callable[[str], str] = str) -> tuple[str, ...]:
    """Return a line with the texts that stages read instead of their run's training text, if any did.

    Labelled pairs are left out: the rows that learned from them say so themselves.

    Args:
        records: Of one profile and suite.
        shown: What a method is called.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for method, group in by_method(records).items():
        stages = [stage for record in group for stage in record.training.get("stages", {}).values()]
        texts = {stage["text"]["name"] for stage in stages if "pairs" not in stage.get("text", {"pairs": 0})}
        if texts:
            groups.setdefault(tuple(sorted(texts)), []).append(shown(method))
    said = [
        f"{_abbreviate_list(texts)} ({_abbreviate_list(methods)})"
        for texts, methods in sorted(groups.items())
    ]
    return (f"Other training text than the run's: {', '.join(said)}.",) if said else ()


def setting_notes(records: Sequence[RunRecord], shown: Callable[[str], str] = str) -> tuple[str, ...]:
    """Return a line for each fact of the setting that isn't the same to all rows, such as the training text.

    Args:
        records: Of one profile and suite.
        shown: What a method is called.
    """
    found = []
    for name, values in table_facts(records):
        groups = group_by(values, lambda value: value[1])
        said = []
        for group in groups.values():
            methods = list(dict.fromkeys(shown(record.method) for record, *_ in group))
            said.append(f"{group[0][2]} ({_abbreviate_list(methods)})")
        if len(said) > 1:
            found.append(f"Rows differ in more than their methods, in {name}: {', '.join(said)}.")
    return tuple(found)


def member_notes(records: Sequence[RunRecord], shown: Callable[[str], str] = str) -> tuple[str, ...]:
    """Return a line with the methods that rows build on with other options than these have as rows, if any.

    Such as a union whose partner got a better rate after it had run.

    Args:
        records: Of one profile and suite.
        shown: What a method is called.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        rows.setdefault(record.name, []).append(drop_latest_defaults(record.options))
    found: dict[str, None] = {}
    for record in records:
        for name, options in _member_options(record.training):
            same_name = rows.get(name, [])
            if same_name and options not in same_name:
                nearest = min(same_name, key=lambda row: len(_differing_options(options, row)))
                unlike = ", ".join(
                    f"{option}={options.get(option)}" for option in _differing_options(options, nearest)
                )
                found[f"{shown(record.method)} ({name} with {unlike})"] = None
    said = _abbreviate_list(list(found))
    return (f"Built on another form of a method than its row here: {said}.",) if found else ()


def _member_options(training: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and options of the methods that one builds on, and of those below them."""
    for member in training.get("members", {}).values():
        yield member["method"], drop_latest_defaults(member["options"])
        yield from _member_options(member)


def _differing_options(options: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """Names of the options that differ."""
    return sorted(name for name in {*options, *others} if options.get(name) != others.get(name))


def weight_notes(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line with the bytes that runs started from, if those of one recipe's backbone are unequal.

    Args:
        records: Of one profile and suite.
    """
    made = [record for record in records if "recipe" in (record.backbone or {})]
    groups = group_by(made, lambda record: (record.backbone or {})["sha256"][:12])
    what = "The backbone was made on several kinds of processor, which give it other last bits"
    return _kinds_note(what, groups)


def processor_notes(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line with the processors that trained, if they were several: their CPU seconds are unlike.

    Args:
        records: Of one profile and suite.
    """
    trained = [record for record in records if record.timing.get("training_cpu_seconds")]
    what = "CPU seconds are of several kinds of processor, and compare within one alone"
    return _kinds_note(what, group_by(trained, lambda record: str(read_cpu(record))))


def selection_notes(records: Sequence[RunRecord], shown: Callable[[str], str] = str) -> tuple[str, ...]:
    """Return a line with the methods whose checkpoints were chosen on what is evaluated, if any were.

    Args:
        records: Of one profile and suite.
        shown: What a method is called.
    """
    chosen = [record for record in records if LAST_NOTE not in record.notes]
    found = {method: [*map(find_dev_tasks, group)] for method, group in by_method(chosen).items()}
    tasks = sorted({task for runs in found.values() for run in runs for task in run})
    methods = [shown(method) for method, runs in found.items() if any(runs)]
    what = "Checkpoints were chosen on what is evaluated here, which flatters them"
    return (f"{what}: {', '.join(tasks)} ({_abbreviate_list(methods)}).",) if tasks else ()


def dev_notes(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line with the custom dev sets that checkpoints were chosen on, if any were.

    Args:
        records: Of one profile and suite.
    """
    sets = [record.training.get("dev", {}) for record in records if record.training.get("stages")]
    own = [dev for dev in sets if dev.get("task", "").startswith(FILES)]
    named = dict.fromkeys(f"{dev['task']} (sha256 {dev['sha256'][:12]})" for dev in own)
    return (f"Checkpoints were chosen on a custom dev set: {', '.join(named)}.",) if named else ()


def _kinds_note(what: str, groups: Mapping[str, Sequence[RunRecord]]) -> tuple[str, ...]:
    if len(groups) < 2:
        return ()
    said = [f"{name} ({len(runs)} runs of {len(by_method(runs))} methods)" for name, runs in groups.items()]
    return (f"{what}: {', '.join(said)}.",)


def _abbreviate_list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
