"""``bench verify RECORD.json --rerun``: repeat a record from its facts, and compare every digit and word."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bench.config import profiles
from bench.config.method_ids import parse_methods, parse_override
from bench.config.run_spec import MethodRequest, Override, RunSpec
from bench.data.lock_files import NLI, WIKI1M, unpinned_note
from bench.data.mteb_names import CONTRAST_TEXT, FILES
from bench.data.suites import SUITES
from bench.data.training_data import uses_world
from bench.errors import CellFailedError, DataError, InputError, NotComparableError
from bench.execution.runner import run_plan
from bench.plan.job import Job, make_job
from bench.plan.plan import Plan, make_plan
from bench.records import fingerprint
from bench.records.environment import whole_file_methods
from bench.records.imported import is_imported
from bench.records.record import EXTERNAL, RunRecord, comparable_measurements, is_supervised
from bench.registry import discover

Copies = tuple[tuple[str, Path], ...]  # translated copies of the training text by name
Block = Mapping[str, Any] | None


def find_repeating_job(plan: Plan, record: RunRecord) -> Job:
    """Return the job of a plan with a record's seed, otherwise the first."""
    return next((job for job in plan.jobs if job.cell.seed == record.seed), plan.jobs[0])


def compare_notes(record: RunRecord, plan: Plan, job: Job) -> Iterator[str]:
    """Yield differences in notes and in the use of labels between a record and a job of the same key."""
    # The names of the row, the model and the texts are taken from the record: the key covers everything else.
    cell, training = job.cell, plan.training
    model = cell.model and replace(cell.model, name=(record.backbone or {}).get("name", cell.model.name))
    renamed = replace(cell, method=record.method, model=model)
    if training:
        blocks = (record.training.get("corpus"), *_stage_texts(record).values())
        names = {block["sha256"]: block["name"] for block in blocks if block and "name" in block}
        texts = dict(training.texts)
        for key, text in texts.items():
            texts[key] = replace(text, name=names.get(text.sha256, text.name))
        training = replace(training, texts=texts)
    source, tasks = job.source or job.suite, plan.suites[job.suite]
    repeated = make_job(renamed, source, tasks, plan.spec, training).record
    if is_supervised(record) != is_supervised(repeated):
        verbs = ("says", "doesn't") if is_supervised(record) else ("doesn't say", "did")
        yield f"it {verbs[0]} that it learned from labels, and it {verbs[1]}"
    accepted, present = set(repeated.notes), set(record.notes)
    if training:
        present.update(training.notes(cell.texts))
        # the repetition's copy of these texts may be the pinned one
        known = {text.name for text in training.texts.values()}
        accepted.update(map(unpinned_note, {WIKI1M, NLI} & known))
    for note in repeated.notes:
        if note not in present:
            yield f"it lacks the note '{note}'"
    for note in record.notes:
        if note not in accepted:
            yield f"its run has no note '{note}'"


def _stage_texts(record: RunRecord) -> dict[str, Any]:
    """Return the block of each stage's own text, if any, by role."""
    return {role: stage.get("text") for role, stage in record.training.get("stages", {}).items()}


def compare_unkeyed_facts(record: RunRecord, job: Job) -> Iterator[str]:
    """Yield differing facts of model, texts and dev set that are outside the equal keys."""
    recorded, repeated = record.training, job.record.training
    labelled = ("pairs", "label_model")
    blocks: list[tuple[str, tuple[str, ...], Block, Block]] = [
        ("model", ("name", "recipe"), record.backbone, job.record.backbone),
        ("training text", ("sentences", *labelled), recorded.get("corpus"), repeated.get("corpus")),
        ("dev set", ("task",), recorded.get("dev"), repeated.get("dev")),
    ]
    texts = _stage_texts(record)
    for role, text in _stage_texts(job.record).items():
        blocks.append((f"text of stage {role}", ("paired", *labelled), texts.get(role), text))
    for what, facts, then, now in blocks:
        for fact in facts:
            old, new = (then or {}).get(fact), (now or {}).get(fact)
            if old != new:
                yield f"it says {fact} {old} of its {what}, and that is {new}"


def compare_text_names(record: RunRecord, job: Job) -> Iterator[str]:
    """Yield texts that a record gives another name: a copy of another name is the same text."""
    then = {"": record.training.get("corpus"), **_stage_texts(record)}
    now = {"": job.record.training.get("corpus"), **_stage_texts(job.record)}
    for role, text in now.items():
        recorded = then.get(role)
        if recorded and text and recorded["name"] != text["name"]:
            yield f"{recorded['name']} is called {text['name']} here"


@dataclass(frozen=True)
class RerunDifference:
    """One difference of a repetition; of lists the hashes."""

    of: Literal["scores", "predictions", "training"]
    name: str
    then: Any
    now: Any


def rerun_record(
    record: RunRecord,
    *,
    data: Path | None,
    model: str | None = None,
    corpus: Path | None = None,
    copies: Copies = (),
    pairs: Path | None = None,
    text_column: str | None = None,
) -> tuple[list[RerunDifference], RunRecord]:
    """Repeat a record's cell and training in a temporary folder; return differences and the new record."""
    # Arguments name what the profile lacks. Raises NotComparableError where data, weights, options, code,
    # notes or labels differ; InputError; DataError for a refused value; CellFailedError if it fails.
    if record.status != "ok":
        raise InputError(f"the record failed ({record.reason}), so there is nothing to compare")
    with tempfile.TemporaryDirectory() as folder:
        spec = build_rerun_spec(record, data, model, corpus, copies, Path(folder))
        plan = make_plan(replace(spec, pairs=pairs, text_column=text_column))
        job = find_repeating_job(plan, record)
        why = fingerprint.explain_differences(record, job.record)
        why = why or "; ".join(compare_notes(record, plan, job))
        if why:
            what = f"this is not the record's specification any more ({why})"
            raise NotComparableError(what, where=record.method)
        (outcome,) = run_plan(replace(plan, jobs=(job,)), on_outcome=lambda _: None)
        if outcome.record is None or outcome.record.status != "ok":
            reason = outcome.record.reason if outcome.record else "no record"
            raise CellFailedError(f"the repetition failed: {reason}", where=record.method)
        return compare_repetition(record, outcome.record), outcome.record


def compare_repetition(then: RunRecord, now: RunRecord) -> list[RerunDifference]:
    """Compare two records to the last bit: scores; on equal versions and CPU predictions and training too."""
    values: dict[Literal["scores", "predictions", "training"], list[dict[str, Any]]] = {"scores": []}
    for record in (then, now):
        scores = {f"{s.task} {s.subset} {s.metric}": s.value for s in record.scores}
        values["scores"].append(scores)
    if not fingerprint.machine_warnings([then], [now]):
        if then.predictions and now.predictions:
            hashes = then.predictions["sha256"], now.predictions["sha256"]
            values["predictions"] = [{"predictions": str(sha256)} for sha256 in hashes]
        values["training"] = []
        for stages in comparable_measurements(then, now):
            facts: dict[str, Any] = {}
            for role, stage in stages.items():
                facts |= {f"{role} {name}": value for name, value in stage.items()}
            values["training"].append(facts)
    differences = []
    for of, (old, new) in values.items():
        for name in dict.fromkeys([*old, *new]):
            was, is_now = old.get(name), new.get(name)
            if was != is_now:
                differences.append(RerunDifference(of, name, _shorten_value(was), _shorten_value(is_now)))
    return differences


def _shorten_value(value: Any) -> Any:
    return fingerprint.hash_canonical_json(value)[:12] if isinstance(value, list | dict) else value


def build_rerun_spec(
    record: RunRecord,
    data: Path | None,
    model: str | None,
    corpus: Path | None,
    copies: Copies,
    results: Path,
) -> RunSpec:
    """Return the specification that repeats a record's cell; see :func:`rerun_record`."""
    if is_imported(record):
        what = "the record is of results that were made elsewhere"
        raise InputError(what, where=record.method, expected="a record of bench run")
    profile, _, other_backbone = record.profile.partition("@")
    external = record.name in EXTERNAL
    _check_plugins(record)
    _check_files(record, profile, corpus, copies)
    if (external or other_backbone) and model is None:
        name = (record.backbone or {}).get("name")
        what = f"the record was made with the model '{name}', which its profile doesn't name"
        raise InputError(what, where=record.method, expected="--model FOLDER")
    options = tuple((name, str(value)) for name, value in record.options.items())
    path, backbone = (model, None) if external else (None, model)
    request = MethodRequest(record.method, record.name, path, options)
    dev = record.training.get("dev", {}).get("task")
    dev_suite = next((name for name, suite in SUITES if suite.tasks == (dev,)), None)
    reference = all(facts["reference"] for facts in record.tasks.values())
    return RunSpec(
        methods=(request,),
        seeds=(record.seed or 0,),
        profile=profile,
        suites=(record.suite,),
        backbone=backbone,
        overrides=_member_overrides(record),
        corpus=corpus,
        copies=copies,
        dev=dev_suite,
        world_seed=(record.world or {}).get("seed"),
        data=data,
        accept_data=not reference,
        results=results,
        whole_files=tuple(sorted(whole_file_methods(record.provenance))),
        **fingerprint.specification_fields(record),
    )


def _check_files(record: RunRecord, profile: str, corpus: Path | None, copies: Copies) -> None:
    """Raise InputError where a record needs a file or model that the user has to locate."""
    if record.suite.startswith((FILES, CONTRAST_TEXT)):
        what = f"the record's suite '{record.suite}' came from a file that only its bench run named"
        hint = "repeat that bench run, with --suite local:FILE.toml or contrast:FILE.txt"
        raise InputError(what, where=record.method, hint=hint)
    for part, _ in parse_record_members(record):
        if part.name not in discover().names():
            what = f"the record builds on the model '{part.name}', which no profile names"
            raise InputError(what, where=record.method, hint="repeat the bench run that made it")
    with_sick = f"{record.training.get('corpus', {}).get('name')} + "  # the text itself and SICK's sentences
    given = {}
    for role, text in _stage_texts(record).items():
        if text and "pairs" not in text and not str(text["name"]).startswith(with_sick):
            given[role] = text["name"]
    shipped = profiles.load_shipped_profile(profile)
    brought = corpus is None and (uses_world(shipped) or "copies" in shipped.corpus)
    if given and not copies and not brought:
        names = ", ".join(f"{role}: {name}" for role, name in given.items())
        what = f"the record's stages learned from copies of the training text ({names})"
        expected = "--copy NAME=FILE, as given to its bench run"
        raise InputError(what, where=record.method, expected=expected)


def _check_plugins(record: RunRecord) -> None:
    """Raise InputError for a method of a plug-in that the user has to load."""
    plugins = record.provenance.get("plugins")
    for name, facts in plugins.items() if isinstance(plugins, dict) else ():
        if name in discover().names() or not isinstance(facts, dict):
            continue
        if "session" in facts:
            what = f"method {name!r} was a class without source, which only its own session had"
            raise InputError(what, where=record.method, hint="define it in a notebook's cell or in a file")
        if "file" in facts:
            origin = f"the file {facts['file']!r}, sha256 {str(facts.get('sha256'))[:12]!r}"
            expected = "--plugin FILE, with that file"
        else:
            package = facts.get("package", facts.get("module"))
            origin = f"the package {package!r}, version {facts.get('version')!r}, which isn't installed"
            expected = "that package, or --plugin FILE|PACKAGE"
        raise InputError(f"method {name!r} came from {origin}", where=record.method, expected=expected)


def parse_record_members(record: RunRecord) -> list[tuple[MethodRequest, dict[str, Any]]]:
    """Return the methods that a record's method builds on, at any depth, each with its block."""
    members = []
    waiting = list(record.training.get("members", {}).values())
    while waiting:
        block = waiting.pop(0)
        waiting[:0] = block.get("members", {}).values()
        requests = parse_methods(block["method"], recorded=True)
        if len(requests) > 1:
            what = f"it builds on '{block['method']}', which is not one method"
            raise DataError(what, where=record.method)
        members.append((requests[0], block))
    return members


def _member_overrides(record: RunRecord) -> tuple[Override, ...]:
    """Return the members' options; where two members of one name differ, the record's method holds them."""
    values: dict[tuple[str, str], set[object]] = {}
    for request, member in parse_record_members(record):
        for option, value in member["options"].items():
            values.setdefault((request.name, option), set()).add(value)
    unique = {name: options.pop() for name, options in values.items() if len(options) == 1}
    return tuple(parse_override(f"{name}.{option}={value}") for (name, option), value in unique.items())
