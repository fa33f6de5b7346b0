"""``bench rerun``: repeat a record from what it says of itself, and compare every digit and word."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bench.config import profiles
from bench.config.method_ids import parse_methods, parse_override
from bench.config.spec import MethodRequest, Override, RunSpec
from bench.data.mteb_names import CONTRAST_TEXT, FILES
from bench.data.pins import NLI, WIKI1M, unpinned_note
from bench.data.suites import SUITES
from bench.data.training_data import TrainingData, uses_world
from bench.errors import CellFailedError, DataError, InputError, NotComparableError
from bench.execution.runner import run_plan
from bench.plan.job import Job, make_job
from bench.plan.plan import Plan, make_plan
from bench.records.fingerprint import explain_differences, hash_canonical_json, specification_fields
from bench.records.machines import machine_warnings
from bench.records.record import EXTERNAL, RunRecord, comparable_measurements, is_supervised
from bench.registry import discover


def find_repeating_job(plan: Plan, record: RunRecord) -> Job:
    """Return the job of a plan that repeats a record, the first where none has its seed."""
    return next((job for job in plan.jobs if job.cell.seed == record.seed), plan.jobs[0])


def compare_notes(record: RunRecord, plan: Plan, job: Job) -> Iterator[str]:
    """Yield what a record says of labels and in its notes, and its run would say otherwise.

    The names of the row, the model and the texts are the record's own: all else of these is in its key.

    Args:
        record: A record.
        plan: Of the run that repeats it.
        job: Its job there, of the same key.
    """
    cell, said = job.cell, record.backbone or {}
    model = replace(cell.model, name=said.get("name", cell.model.name)) if cell.model else None
    renamed = replace(cell, method=record.method, model=model)
    training = plan.training and _rename_texts(plan.training, record)
    source, tasks = job.source or job.suite, plan.suites[job.suite]
    own = make_job(renamed, source, tasks, plan.spec, training).record
    if is_supervised(record) != is_supervised(own):
        verb = ("says", "doesn't") if is_supervised(record) else ("doesn't say", "did")
        yield f"it {verb[0]} that it learned from labels, and it {verb[1]}"
    for text in own.notes:
        if text not in (*record.notes, *(training.notes(cell.texts) if training else ())):
            yield f"it lacks the note '{text}'"
    names = {text.name for text in training.texts.values()} if training else set()
    elsewhere = {
        unpinned_note(name) for name in names & {WIKI1M, NLI}
    }  # the copy at hand may be the pinned one
    for text in record.notes:
        if text not in own.notes and text not in elsewhere:
            yield f"its run has no note '{text}'"


def compare_unkeyed_facts(record: RunRecord, job: Job) -> Iterator[str]:
    """Yield what no key has of the model, the texts and the dev set, and a record says otherwise.

    Args:
        record: A record.
        job: That of the run that repeats it, of the same key.
    """
    said, own = record.training, job.record.training
    stages, ours = said.get("stages", {}), own.get("stages", {})
    blocks = [
        ("model", ("name", "recipe"), record.backbone, job.record.backbone),
        ("training text", ("sentences", "pairs"), said.get("corpus"), own.get("corpus")),
        ("dev set", ("task",), said.get("dev"), own.get("dev")),
    ]
    blocks += [
        (f"text of stage {role}", ("pairs", "paired"), stages.get(role, {}).get("text"), stage.get("text"))
        for role, stage in ours.items()
    ]
    for what, facts, its, here in blocks:
        for fact in facts:
            stated, found = (its or {}).get(fact), (here or {}).get(fact)
            if stated != found:
                yield f"it says {fact} {stated} of its {what}, and that is {found}"


def compare_text_names(record: RunRecord, job: Job) -> Iterator[str]:
    """Yield texts that a record calls otherwise: a copy of another name is the same text."""
    said, own = record.training, job.record.training
    texts = [(said.get("corpus"), own.get("corpus"))]
    texts += [
        (said.get("stages", {}).get(role, {}).get("text"), stage.get("text"))
        for role, stage in own.get("stages", {}).items()
    ]
    for its, here in texts:
        if its and here and its["name"] != here["name"]:
            yield f"{its['name']} is called {here['name']} here"


def _rename_texts(training: TrainingData, record: RunRecord) -> TrainingData:
    """The texts with the names that a record gives them."""
    stages = record.training.get("stages", {}).values()
    blocks = (record.training.get("corpus"), *(stage.get("text") for stage in stages))
    names = {block["sha256"]: block["name"] for block in blocks if block and "name" in block}
    texts = {
        key: replace(text, name=names.get(text.sha256, text.name)) for key, text in training.texts.items()
    }
    return replace(training, texts=texts)


@dataclass(frozen=True)
class RerunDifference:
    """One thing that isn't the same again.

    Args:
        of: What it is of.
        name: What it is called: of a score task, subset and metric.
        then: What it was, None where it wasn't there; of a list its hash.
        now: What it is.
    """

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
    copies: tuple[tuple[str, Path], ...] = (),
    pairs: Path | None = None,
    text_column: str | None = None,
) -> tuple[list[RerunDifference], RunRecord]:
    """Repeat a record's cell in a temporary folder, its training stages included.

    Args:
        record: A finished record.
        data: Data folder.
        model: Folder or file of the model where the profile doesn't name it (another backbone, hf:, st:,
            vectors:).
        corpus: Training text where it isn't the profile's.
        copies: Translated copies of it by name, where the record was trained on some that its profile lacks.
        pairs: Labelled pairs where they aren't the profile's.
        text_column: Column of the training text, where that is a table.

    Returns:
        What differs, see :func:`differences`; and the repetition's record.

    Raises:
        InputError: a failed record, a plug-in that isn't there, or a model or translated copies that have to
            be named.
        NotComparableError: data, weights, options or code version aren't the record's, or it says otherwise
            whether it learned from labels and what tables must say of it; says which.
        DataError: the record says what no bench run takes.
        CellFailedError: the repetition failed.
    """
    if record.status != "ok":
        raise InputError(f"the record failed ({record.reason}), so there is nothing to compare")
    with tempfile.TemporaryDirectory() as folder:
        spec = build_rerun_spec(record, data, model, corpus, copies, Path(folder))
        plan = make_plan(replace(spec, pairs=pairs, text_column=text_column))
        job = find_repeating_job(plan, record)
        if why := explain_differences(record, job.record) or "; ".join(compare_notes(record, plan, job)):
            raise NotComparableError(
                f"this is not the record's specification any more ({why})",
                where=record.method,
            )
        (outcome,) = run_plan(replace(plan, jobs=(job,)), on_outcome=lambda _: None)
        if outcome.record is None or outcome.record.status != "ok":
            reason = outcome.record.reason if outcome.record else "no record"
            raise CellFailedError(f"the repetition failed: {reason}", where=record.method)
        return compare_repetition(record, outcome.record), outcome.record


def compare_repetition(then: RunRecord, now: RunRecord) -> list[RerunDifference]:
    """Compare two records to the last bit: scores; on equal versions and CPU predictions and training too.

    What one of them is too old to keep is left out.
    """
    scores = ({f"{s.task} {s.subset} {s.metric}": s.value for s in each.scores} for each in (then, now))
    found = list(_compare_values("scores", *scores))
    if machine_warnings([then], [now]):
        return found
    if then.predictions and now.predictions:
        kept = ({"predictions": str(each["sha256"])} for each in (then.predictions, now.predictions))
        found += _compare_values("predictions", *kept)
    trained = (
        {f"{role} {name}": value for role, stage in each.items() for name, value in stage.items()}
        for each in comparable_measurements(then, now)
    )
    return [*found, *_compare_values("training", *trained)]


def _compare_values(
    of: Literal["scores", "predictions", "training"], then: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[RerunDifference]:
    for name in dict.fromkeys([*then, *now]):
        was, is_now = then.get(name), now.get(name)
        if was != is_now:
            yield RerunDifference(of, name, _shorten_value(was), _shorten_value(is_now))


def _shorten_value(value: Any) -> Any:
    return hash_canonical_json(value)[:12] if isinstance(value, list | dict) else value


def build_rerun_spec(
    record: RunRecord,
    data: Path | None,
    model: str | None,
    corpus: Path | None,
    copies: tuple[tuple[str, Path], ...],
    results: Path,
) -> RunSpec:
    """Return the specification that repeats a record's cell; see :func:`rerun` for arguments and errors."""
    profile, _, other_backbone = record.profile.partition("@")
    external = record.name in EXTERNAL
    _check_plugins(record)
    _check_files(record, profile, corpus, copies)
    if (external or other_backbone) and model is None:
        name = (record.backbone or {}).get("name")
        raise InputError(
            f"the record was made with the model '{name}', which its profile doesn't name",
            where=record.method,
            expected="--model FOLDER",
        )
    options = tuple((name, str(value)) for name, value in record.options.items())
    request = MethodRequest(record.method, record.name, model if external else None, options)
    dev = record.training.get("dev", {}).get("task")
    dev_suite = next((name for name, suite in SUITES if suite.tasks == (dev,)), None)
    return RunSpec(
        methods=(request,),
        seeds=(record.seed or 0,),
        profile=profile,
        suites=(record.suite,),
        backbone=None if external else model,
        overrides=_member_overrides(record),
        corpus=corpus,
        copies=copies,
        dev=dev_suite,
        world_seed=record.world["seed"] if record.world else None,
        data=data,
        accept_data=not all(facts["reference"] for facts in record.tasks.values()),
        results=results,
        **specification_fields(record),
    )


def _check_files(
    record: RunRecord, profile: str, corpus: Path | None, copies: tuple[tuple[str, Path], ...]
) -> None:
    """Raise InputError where a record needs a file or model of which it doesn't say where it is."""
    if record.suite.startswith((FILES, CONTRAST_TEXT)):
        raise InputError(
            f"the record's suite '{record.suite}' came from a file that only its bench run named",
            where=record.method,
            hint="repeat that bench run, with --suite local:FILE.toml or contrast:FILE.txt",
        )
    for part, _ in parse_record_members(record):
        if part.name not in discover().names():
            raise InputError(
                f"the record builds on the model '{part.name}', which no profile names",
                where=record.method,
                hint="repeat the bench run that made it",
            )
    stages = record.training.get("stages", {})
    texts = {role: facts["text"] for role, facts in stages.items() if "text" in facts}
    with_sick = f"{record.training.get('corpus', {}).get('name')} + "  # the text itself and SICK's sentences
    given = {
        role: text["name"]
        for role, text in texts.items()
        if "pairs" not in text and not str(text["name"]).startswith(with_sick)
    }
    own = profiles.load_shipped_profile(profile)
    brought = corpus is None and (uses_world(own) or "copies" in own.corpus)
    if given and not copies and not brought:
        raise InputError(
            f"the record's stages learned from copies of the training text "
            f"({', '.join(f'{role}: {name}' for role, name in given.items())})",
            where=record.method,
            expected="--copy NAME=FILE, as given to its bench run",
        )


def _check_plugins(record: RunRecord) -> None:
    """Raise InputError where a method came from a plug-in that isn't loaded; a record never loads one."""
    plugins = record.provenance.get("plugins")
    for name, facts in plugins.items() if isinstance(plugins, dict) else ():
        if name in discover().names() or not isinstance(facts, dict):
            continue
        if "file" in facts:
            sha256 = str(facts.get("sha256"))[:12]
            raise InputError(
                f"method {name!r} came from the file {facts['file']!r}, sha256 {sha256!r}",
                where=record.method,
                expected="--plugin FILE, with that file",
            )
        raise InputError(
            f"method {name!r} came from the package {facts.get('package', facts.get('module'))!r}, version "
            f"{facts.get('version')!r}, which isn't installed",
            where=record.method,
            expected="that package, or --plugin FILE|PACKAGE",
        )


def parse_record_members(record: RunRecord) -> list[tuple[MethodRequest, dict[str, Any]]]:
    """Return the methods that a record's builds on, at any depth, each with what the record says of it.

    Raises:
        DataError: a name of several methods.
        InputError: a name that is none.
    """
    found = []
    for member in _walk_member_blocks(record.training.get("members", {})):
        text = member["method"]
        requests = parse_methods(text, recorded=True)
        if len(requests) > 1:
            raise DataError(f"it builds on '{text}', which is not one method", where=record.method)
        found.append((requests[0], member))
    return found


def _member_overrides(record: RunRecord) -> tuple[Override, ...]:
    """Give members the options that they had; where two of one name differ, the record's method says how."""
    had: dict[tuple[str, str], set[object]] = {}
    for request, member in parse_record_members(record):
        for option, value in member["options"].items():
            had.setdefault((request.name, option), set()).add(value)
    texts = (f"{name}.{option}={values.pop()}" for (name, option), values in had.items() if len(values) == 1)
    return tuple(map(parse_override, texts))


def _walk_member_blocks(members: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for member in members.values():
        yield member
        yield from _walk_member_blocks(member.get("members", {}))
