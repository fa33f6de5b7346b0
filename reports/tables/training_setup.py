"""Notes of a leaderboard on unequal terms: setting, text, options of members, backbone, processor.

Each function takes the records of one profile and suite, and most the printed names of methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.comparison.selection import group_by
from bench.data.mteb_names import FILES
from bench.records.environment import read_cpu
from bench.records.fingerprint import drop_latest_defaults
from bench.records.record import RunRecord, find_dev_tasks
from bench.render.row_names import join_names
from bench.reports.record_groups import LAST_NOTE, by_method, table_facts

FULL = "fp32"
_MOST_NAMES, _MOST_AMOUNTS = 3, 4
Shown = Callable[[str], str]


def budget_notes(records: Sequence[RunRecord], shown: Shown = str) -> tuple[str, ...]:
    """Return a line with the sentences of methods' longest training stages, if they are unequal.

    Methods share stages, and a teacher's stages are in its students' records, so only the longest counts.
    Amounts that differ by less than a step are equal, as last batches are full.
    """
    amounts = []
    for method, runs in by_method(records).items():
        read = [stage for stage in _stages(runs) if "sentences_seen" in stage]
        if read:
            longest = max(read, key=lambda stage: stage["sentences_seen"])
            most = longest["sentences_seen"]
            amounts.append((most, most / (longest.get("steps") or most or 1), method))
    groups: list[list[tuple[int, float, str]]] = []
    for amount in sorted(amounts, key=lambda amount: (-amount[0], amount[2])):
        if groups and groups[-1][0][0] - amount[0] < max(groups[-1][0][1], amount[1]):
            groups[-1].append(amount)
        else:
            groups.append([amount])
    if len(groups) < 2:
        return ()
    texts = []
    for group in groups:
        *_, methods = zip(*group, strict=True)
        texts.append(f"{group[0][0]:,} ({_abbreviate_list(list(map(shown, methods)))})")
    if len(texts) > _MOST_AMOUNTS:
        texts = [*texts[: _MOST_AMOUNTS - 1], f"... {texts[-1]}"]
    return _listed_note("Unequal budgets, in sentences that a method's longest training stage read", texts)


def _stages(records: Sequence[RunRecord]) -> list[Mapping[str, Any]]:
    return [stage for record in records for stage in record.training.get("stages", {}).values()]


def precision_notes(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line on an evaluation below fp32, with its effect on a task where the records have it."""
    names = {str(record.evaluation.get("precision", FULL)) for record in records} - {FULL}
    if not names:
        return ()
    blocks = [record.provenance.get("evaluation_precision") or {} for record in records]
    effects = [abs(task["difference"]) for block in blocks for task in block.get("tasks", {}).values()]
    effect = f"; fp32 scores of a task differ by at most {100 * max(effects):.2f}" if effects else ""
    return (f"Evaluated in {' and '.join(sorted(names))}{effect}.",)


def text_notes(records: Sequence[RunRecord], shown: Shown = str) -> tuple[str, ...]:
    """Return a line with stages' texts other than their run's; labelled pairs have their own notes."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for method, runs in by_method(records).items():
        texts = (stage.get("text", {"pairs": 0}) for stage in _stages(runs))
        if names := {text["name"] for text in texts if "pairs" not in text}:
            groups.setdefault(tuple(sorted(names)), []).append(shown(method))
    lines = [f"{_abbreviate_list(names)} ({_abbreviate_list(groups[names])})" for names in sorted(groups)]
    return _listed_note("Other training text than the run's", lines)


def setting_notes(records: Sequence[RunRecord], shown: Shown = str) -> tuple[str, ...]:
    """Return a line for each fact of the setting that differs between rows, such as the training text."""
    notes = []
    for name, entries in table_facts(records):
        texts: dict[str, str] = {}
        methods: dict[str, dict[str, None]] = {}
        for record, value, text in entries:
            texts.setdefault(value, text)
            methods.setdefault(value, {})[shown(record.method)] = None
        if len(texts) > 1:
            values = (f"{texts[value]} ({_abbreviate_list(list(methods[value]))})" for value in texts)
            notes.append(f"Rows differ in more than their methods, in {name}: {', '.join(values)}.")
    return tuple(notes)


def code_notes(records: Sequence[RunRecord], shown: Shown = str) -> tuple[str, ...]:
    """Return a line with the rows of each plug-in's method whose code differs from row to row."""
    codes: dict[str, dict[str, dict[str, None]]] = {}
    for record in records:
        facts = record.provenance.get("plugins", {}).get(record.name, {})
        if code := facts.get("code") or facts.get("sha256") or facts.get("session"):
            codes.setdefault(record.name, {}).setdefault(str(code), {})[shown(record.method)] = None
    notes: list[str] = []
    for name, rows in codes.items():
        if len(rows) > 1:
            parts = (f"{_abbreviate_list(list(names))}: {code[:8]}" for code, names in rows.items())
            notes.append(f"Different code of method {name}: {'; '.join(parts)}.")
    return tuple(notes)


def member_notes(records: Sequence[RunRecord], shown: Shown = str) -> tuple[str, ...]:
    """Return a line with the members of rows whose options differ from the same method's row.

    Such as a union whose partner got a better rate after it had run.
    """
    options_of: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        options_of.setdefault(record.name, []).append(drop_latest_defaults(record.options))
    texts: dict[str, None] = {}
    for record in records:
        for name, options in _member_options(record.training):
            rows = options_of.get(name, [])
            if rows and options not in rows:
                unlike = min((_differing_options(options, row) for row in rows), key=len)
                values = ", ".join(f"{option}={options.get(option)}" for option in unlike)
                texts[f"{shown(record.method)} ({name} with {values})"] = None
    members = _abbreviate_list(list(texts))
    return _listed_note("Built on another form of a method than its row here", [members] * bool(texts))


def _member_options(training: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and options of a method's members, and of theirs."""
    for member in training.get("members", {}).values():
        yield member["method"], drop_latest_defaults(member["options"])
        yield from _member_options(member)


def _differing_options(options: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*options, *others} if options.get(name) != others.get(name))


def weight_notes(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line with the bytes that runs started from, if those of one recipe's backbone differ."""
    made = [record for record in records if "recipe" in (record.backbone or {})]
    groups = group_by(made, lambda record: (record.backbone or {})["sha256"][:12])
    note = "The backbone was made on several kinds of processor, which give it other last bits"
    return _kinds_note(note, groups)


def processor_notes(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line with the processors that trained, if CPU seconds are of several."""
    trained = [record for record in records if record.timing.get("training_cpu_seconds")]
    groups = group_by(trained, lambda record: str(read_cpu(record)))
    return _kinds_note("CPU seconds are of several kinds of processor, and compare within one alone", groups)


def selection_notes(records: Sequence[RunRecord], shown: Shown = str) -> tuple[str, ...]:
    """Return a line with the methods whose checkpoints were chosen on evaluated data."""
    tasks: set[str] = set()
    methods: dict[str, None] = {}
    for record in records:
        if LAST_NOTE not in record.notes and (dev_tasks := list(find_dev_tasks(record))):
            tasks.update(dev_tasks)
            methods[shown(record.method)] = None
    note = "Checkpoints were chosen on what is evaluated here, which flatters them"
    texts = [f"{', '.join(sorted(tasks))} ({_abbreviate_list(list(methods))})"]
    return _listed_note(note, texts * bool(tasks))


def dev_notes(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line with the custom dev sets of trained records."""
    sets = [record.training.get("dev", {}) for record in records if record.training.get("stages")]
    custom = [dev for dev in sets if dev.get("task", "").startswith(FILES)]
    names = dict.fromkeys(f"{dev['task']} (sha256 {dev['sha256'][:12]})" for dev in custom)
    return _listed_note("Checkpoints were chosen on a custom dev set", names)


def _kinds_note(note: str, groups: Mapping[str, Sequence[RunRecord]]) -> tuple[str, ...]:
    kinds = [f"{name} ({len(runs)} runs of {len(by_method(runs))} methods)" for name, runs in groups.items()]
    return _listed_note(note, kinds * (len(kinds) > 1))


def _listed_note(note: str, texts: Iterable[str]) -> tuple[str, ...]:
    """The note with its list; empty for an empty list."""
    listed = ", ".join(texts)
    return (f"{note}: {listed}.",) * bool(listed)


def _abbreviate_list(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return join_names(names[:_MOST_NAMES]) + rest
