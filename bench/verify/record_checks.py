"""Verify records: each from its own file and predictions, and each campaign as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.config.plugin_code import hash_method_code
from bench.data.suites import SUITES
from bench.encoder import FloatArray
from bench.errors import (
    BenchError,
    DataError,
    InputError,
    NotComparableError,
    UnreadableRecordError,
    storage_reason,
)
from bench.eval.recomputation import NO_PREDICTIONS, PUBLISHED, describe_missing_data
from bench.eval.rescoring import ScoreCheck, check_average, load_record_tasks, rescore_record
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.gate.kept_encoders import find_encoder_folder
from bench.nn.model_folder import hash_model
from bench.plan.plan import PlanInputs
from bench.records.environment import plugin_file_hashes, sourceless_classes
from bench.records.imported import is_imported, is_published
from bench.records.integrity import (
    AGAIN,
    RecordClash,
    find_record_clashes,
    find_record_faults,
    find_result_clashes,
    find_seal_fault,
)
from bench.records.record import EXTERNAL, RunRecord, parse_record
from bench.records.store import ResultStore
from bench.records.timing import find_impossible_start
from bench.registry import METHODS
from bench.verify.card_checks import check_metadata
from bench.verify.findings import MAKE_READABLE, REPORT_BUG, Problem, RecordFinding, Verification
from bench.verify.import_checks import check_import
from bench.verify.plan_checks import verify_plan
from bench.verify.record_paths import (
    describe_non_file,
    find_record_files,
    find_stray_files,
    unchecked_folders,
)
from bench.verify.repeatability import explain_unrepeatable
from bench.verify.side_files import verify_side_files
from bench.verify.stage_checks import PlannedRerun, check_training, plan_rerun, replace_stage_keys
from bench.verify.sweep_checks import verify_grids

SIDE_SCORES = "scores beside a suite's own, of which no predictions are kept:"
NOTES = "notes of records:"
TRAININGS = "what trainings gave beside the encoder:"
PROBES = "what probes found"
COSTS = "costs of runs: seconds, cores and processor"
_EDITED = "the record was edited, or scored by another program: run the cell again"


@dataclass(frozen=True)
class VerifySettings:
    """Settings of a verification.

    Args:
        data: Evaluation data; default BENCH_DATA, then ./data.
        seal: Seal correct records that lack a seal.
        plugins: Sources of given plug-in files, by their names; none of them runs.
        inputs: Data read once for all records.
    """

    data: Path | None = None
    seal: bool = False
    plugins: Mapping[str, bytes] = field(default_factory=dict)
    progress: Callable[[int], None] = lambda _: None
    inputs: PlanInputs = field(default_factory=PlanInputs)


def verify_records(
    target: Path, settings: VerifySettings
) -> tuple[Verification, list[tuple[str, RunRecord]]]:
    """Verify every record at or below a path: a results folder, a campaign, a folder below it, or a record.

    Return the verification, and the sound finished records with their files' names; raise InputError for an
    empty folder.
    """
    verified, sound = Verification(), list[tuple[str, RunRecord]]()
    read: dict[str, RunRecord] = {}
    base = target.absolute() if target.is_dir() else target.absolute().parent
    campaigns, contents = find_record_files(target)
    for path, problem in unchecked_folders(contents):
        verified.add(path.absolute().relative_to(base).as_posix(), [problem])
    for root, files in campaigns.items():
        store = ResultStore(root.parent, root.name)
        records: dict[str, RunRecord] = {}
        for file in files:
            where = file.relative_to(base).as_posix()
            verified.records.append(where)
            record = _verify_file(store, file, where, settings, verified)
            if record is not None:
                records[where] = record
            settings.progress(1)
        _add_clashes(find_record_clashes(list(records.values())), records, verified)
        read |= records
        if base in (root, *root.parents):
            external = (record.place for record in records.values() if record.name in EXTERNAL)
            kept = {find_encoder_folder(store, place) for place in external}
            for stray in find_stray_files(root, files, kept):
                remedy = "delete it, or move it out of the results folder"
                problem = "stray", "no record names this file", remedy
                verified.add(stray.relative_to(base).as_posix(), [problem])
            verify_grids(root, base, verified)
            verify_plan(root, base, records, verified)
            verify_side_files(root, base, verified, seal=settings.seal)
        sound += [(where, record) for where, record in records.items() if record.status == "ok"]
    if len(campaigns) > 1:
        _add_clashes(find_result_clashes(read.values()), read, verified)
    failed = {finding.where for finding in verified.findings}
    return verified, [(where, record) for where, record in sound if where not in failed]


def _add_clashes(
    clashes: Iterable[RecordClash], records: Mapping[str, RunRecord], verified: Verification
) -> None:
    names = {id(record): where for where, record in records.items()}
    for clash in clashes:
        first, second = names[id(clash.first)], names[id(clash.second)]
        sides = [(second, first)]
        if clash.check == "result":  # either may be the wrong one
            sides.append((first, second))
        for where, other in sides:
            finding = RecordFinding(where, clash.check, f"this and {other} {clash.what}", clash.hint)
            if finding not in verified.findings:
                verified.findings.append(finding)


def _verify_file(
    store: ResultStore, file: Path, where: str, settings: VerifySettings, verified: Verification
) -> RunRecord | None:
    """Check one file, and return its record if it is readable."""
    try:
        return _verify_record(store, file, where, settings, verified)
    except Exception as error:  # an unforeseen one of one record hides no finding on another
        if storage_reason(error):  # sealing failed, no record's fault
            raise
        what = f"checking it failed, {type(error).__name__}: {error}"
        verified.add(where, [("shape", what, REPORT_BUG)])
        return None


def _verify_record(
    store: ResultStore, file: Path, where: str, settings: VerifySettings, verified: Verification
) -> RunRecord | None:
    parsed = _read_record(file)
    if len(parsed) == 3:
        verified.add(where, [parsed])
        return None
    text, record = parsed
    wrong = [
        *_check_place(store, file, record),
        *check_metadata(record, verified),
        *_check_plugin_files(record, settings, verified),
        *_check_encoder(find_encoder_folder(store, record.place), record),
        *check_training(record),
        *check_import(record),
    ]
    _count_recorded_facts(record, verified)
    scores = verified.scores
    if not any(check == "place" for check, *_ in wrong):  # else the predictions are another record's
        wrong += _check_scores(store, record, where, settings, verified)
    seal = find_seal_fault(record, text)
    run, unrepeatable = _plan_record_rerun(record, wrong, settings, verified)
    sound = not wrong and verified.scores > scores  # sealed only with checked scores
    if settings.seal and seal is not None and seal.check == "unsealed" and sound:
        store.seal(replace_stage_keys(record, run.keys) if run and run.keys else record)
        verified.sealed.append(where)
    elif seal is not None:
        wrong.append((seal.check, seal.what, seal.hint or AGAIN))
    elif run is not None:
        wrong += run.wrong(record)
        verified.unchecked.update(run.doubts(record, settings.inputs))
    verified.add(where, wrong)
    if not wrong:
        _count_repeatable(where, unrepeatable, verified)
    return record


def _count_recorded_facts(record: RunRecord, verified: Verification) -> None:
    """Count what only training, probing or measuring again could confirm."""
    if record.training.get("stages"):
        verified.as_recorded[f"{TRAININGS} losses, dev scores, seconds"] += 1
    if record.probes:
        verified.as_recorded[PROBES] += 1
    if record.timing and not is_imported(record):
        verified.as_recorded[COSTS] += 1


def _count_repeatable(where: str, unrepeatable: str, verified: Verification) -> None:
    """Count a record as repeatable here, or the reason why it isn't."""
    if unrepeatable:
        verified.unrepeatable[where] = unrepeatable
    else:
        verified.repeatable.append(where)


def _read_record(file: Path) -> tuple[str, RunRecord] | Problem:
    """A record with its text, or its problem."""
    try:
        if kind := describe_non_file(file):
            raise BenchError(kind)
        text = file.read_text(encoding="utf-8")
        return text, parse_record(text, str(file))
    except OSError as error:  # it may be whole
        return "shape", f"it can't be read: {error.strerror}", MAKE_READABLE
    except UnicodeDecodeError as error:
        return "shape", str(error), AGAIN
    except BenchError as error:
        return "shape", str(BenchError(error.what, expected=error.expected)), error.hint or AGAIN


def _check_place(store: ResultStore, file: Path, record: RunRecord) -> Iterator[Problem]:
    """Contradictions of a record in itself, and with its place."""
    for fault in find_record_faults(record):
        yield fault.check, fault.what, fault.hint or AGAIN
    if future := find_impossible_start(record):
        yield "timing", future, "set the clock of that machine, and run the cell again"
    if store.path(record.place) != file:
        what = f"this record of {record.method} is in another's place"
        yield "place", what, "move the copy out of the results folder"
    if record.status != "ok":
        yield "score", f"the cell failed: {record.reason}", AGAIN


def _check_plugin_files(
    record: RunRecord, settings: VerifySettings, verified: Verification
) -> Iterator[Problem]:
    """Given plug-in files with other code than the record's, or another hash where the whole file counts."""
    for method in plugin_file_hashes(record.provenance):
        file = str(record.provenance["plugins"][method]["file"])
        given = settings.plugins.get(file)
        if given is None:
            verified.unchecked[f"plug-in {file} of {method}: not at hand, name it with --plugin"] += 1
        elif why := _explain_other_file(record.provenance["plugins"][method], given):
            what = f"{file} at hand is not the file that {method} came from ({why})"
            yield "method", what, "name that file with --plugin"
        else:
            what = f"options, labels, notes and trainings of {method}: code of the plug-in {file} isn't run"
            verified.unchecked[what] += 1


def _explain_other_file(facts: Mapping[str, Any], source: bytes) -> str:
    """Return the hash that a method's file should have, or ""; files of one code may differ in comments."""
    if facts.get("code"):
        same = facts["code"] == hash_method_code(source, str(facts.get("class")))
        return "" if same else f"code of {facts.get('class')} {str(facts['code'])[:12]}"
    same = str(facts.get("sha256")) == sha256(source).hexdigest()
    return "" if same else f"sha256 {str(facts.get('sha256'))[:12]}"


def _check_encoder(folder: Path, record: RunRecord) -> Iterator[Problem]:
    """Another encoder next to a record than its own."""
    if not folder.is_dir() or record.name not in EXTERNAL:
        return
    try:
        sha256 = hash_model(folder)
    except BenchError as error:
        yield "weights", error.what, error.hint or AGAIN
        return
    if sha256 != (record.backbone or {}).get("sha256"):
        yield "weights", "the encoder next to it is not the one that it is of", AGAIN


def _check_scores(
    store: ResultStore, record: RunRecord, where: str, settings: VerifySettings, verified: Verification
) -> Iterator[Problem]:
    """Contradictions of scores with predictions and gold scores."""
    if record.status != "ok":
        return
    if is_published(record):
        verified.as_recorded[f"scores of {record.suite}, as published elsewhere"] += len(record.scores)
        verified.unscored[where] = PUBLISHED
        return
    predictions = _read_predictions(store, record)
    if isinstance(predictions, tuple):
        yield predictions
        return
    try:
        tasks = load_record_tasks(record, settings.data)
    except NotComparableError as error:
        yield "data", error.what, "name the data that it was measured on with --data"
        return
    except BenchError as error:
        verified.unchecked[f"scores of {record.suite}: {error.what}"] += len(record.scores)
        verified.unscored[where] = describe_missing_data(error)
        for wrong in check_average(record):
            yield "score", wrong, _EDITED
        return
    yield from _check_item_counts(record, tasks)
    if record.suite in SUITES.names() and list(predictions) != list(tasks):
        yield "predictions", "their tasks are in another order than the suite's", AGAIN
    rescoring = rescore_record(record, tasks, predictions)
    _count_scores(record, where, rescoring, verified)
    for wrong in rescoring.wrong:
        yield "score", wrong, _EDITED


def _count_scores(record: RunRecord, where: str, rescoring: ScoreCheck, verified: Verification) -> None:
    """Count scores computed again, those without predictions, and those beside the suite's own."""
    verified.scores += rescoring.checked
    for kind in rescoring.unchecked:
        verified.unchecked[f"scores of {record.suite} of which no predictions are kept: {kind}"] += 1
    for kind in rescoring.beside:
        verified.as_recorded[f"{SIDE_SCORES} {record.suite} {kind}"] += 1
    if not rescoring.checked:
        verified.unscored[where] = NO_PREDICTIONS
    elif not rescoring.unchecked:
        verified.recomputed.append(where)


def _check_item_counts(record: RunRecord, tasks: Mapping[str, SuiteTask]) -> Iterator[Problem]:
    """Other numbers of items than the tasks have."""
    counted = measure_of(record.suite).counted
    for name, task in tasks.items():
        facts = record.tasks[name]
        counts = {unit: facts[unit] for unit in ("pairs", "items") if unit in facts}
        if counts != {counted: task.items}:
            stated = " and ".join(f"{number} {unit}" for unit, number in counts.items()) or "nothing counted"
            yield "tasks", f"{name} is said to have {stated}, and has {task.items} {counted}", AGAIN


def _read_predictions(store: ResultStore, record: RunRecord) -> dict[str, FloatArray] | Problem:
    """A record's predictions, or their problem."""
    if record.predictions is None:
        return "predictions", "it names no predictions, so nothing shows its scores", AGAIN
    if kind := describe_non_file(store.path(record.place).with_suffix(".npz")):
        return "predictions", f"beside it is {kind}", AGAIN
    try:
        return store.predictions(record)
    except UnreadableRecordError as error:
        return "predictions", error.what, MAKE_READABLE
    except BenchError as error:
        return "predictions", error.what, error.hint or "run the cell again"


def _plan_record_rerun(
    record: RunRecord, wrong: list[Problem], settings: VerifySettings, verified: Verification
) -> tuple[PlannedRerun | None, str]:
    """The run that repeats a sound record, if any, and why it shows nothing here.

    A record that no run can have is added to ``wrong``.
    """
    if wrong:
        return None, ""
    if is_imported(record):
        return None, "imported: it was made elsewhere"
    if record.name not in METHODS.names():  # check_metadata reports it
        why = "unknown here"
        if record.name in plugin_file_hashes(record.provenance):
            why = "of a plug-in, whose code isn't run"
        elif record.name in sourceless_classes(record.provenance):
            why = "a class without source, which nothing repeats"
        return None, f"method {record.name}: {why}"
    try:
        run = plan_rerun(record, settings.data, settings.inputs)
    except DataError as error:
        wrong.append(("method", error.what, error.hint or AGAIN))
        return None, ""
    except BenchError as error:
        subject = NOTES if isinstance(error, InputError) else "specification of records:"
        if record.training.get("stages"):
            subject = "keys of training stages:"
        verified.unchecked[f"{subject} {error.what}"] += 1
        return None, error.what
    return run, explain_unrepeatable(record, run.job.record)
