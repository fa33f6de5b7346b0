"""``bench rerun``: repeat a record from what it says of itself, and compare every digit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.data.mteb_names import CONTRAST_TEXT, FILES
from bench.data.suites import SUITES
from bench.data.training import uses_world
from bench.errors import CellFailedError, InputError, NotComparableError
from bench.plan.plan import make_plan
from bench.records.facts import explain, specified
from bench.records.record import EXTERNAL, RunRecord
from bench.registry import discover
from bench.request import profiles
from bench.request.parse import parse_methods, parse_override
from bench.request.spec import MethodRequest, Override, RunSpec
from bench.run.runner import run_plan


@dataclass(frozen=True)
class Difference:
    """One score that isn't the same again (None: it isn't there)."""

    task: str
    subset: str
    metric: str
    then: float | None
    now: float | None


def rerun(
    record: RunRecord,
    *,
    data: Path | None,
    model: str | None = None,
    corpus: Path | None = None,
    copies: tuple[tuple[str, Path], ...] = (),
    pairs: Path | None = None,
) -> tuple[list[Difference], RunRecord]:
    """Repeat a record's cell in a temporary folder, its training stages included.

    Args:
        record: A finished record.
        data: Data folder.
        model: Folder or file of the model where the profile doesn't name it (another backbone, hf:, st:,
            vectors:).
        corpus: Training text where it isn't the profile's.
        copies: Translated copies of it by name, where the record was trained on some that its profile lacks.
        pairs: Labelled pairs where they aren't the profile's.

    Returns:
        The scores that differ, none if every digit is the same; and the repetition's record.

    Raises:
        InputError: a failed record, a plug-in that isn't there, or a model or translated copies that have to
            be named.
        NotComparableError: data, weights, options or code version aren't the record's; says which.
        CellFailedError: the repetition failed.
    """
    if record.status != "ok":
        raise InputError(f"the record failed ({record.reason}), so there is nothing to compare")
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(replace(spec_of(record, data, model, corpus, copies, Path(folder)), pairs=pairs))
        (job,) = (job for job in plan.jobs if job.cell.seed == record.seed)
        if why := explain(record, job.record):
            raise NotComparableError(
                f"this is not the record's specification any more ({why})",
                where=record.method,
            )
        (outcome,) = run_plan(plan, on_outcome=lambda _: None)
        if outcome.record is None or outcome.record.status != "ok":
            reason = outcome.record.reason if outcome.record else "no record"
            raise CellFailedError(f"the repetition failed: {reason}", where=record.method)
        return differences(record, outcome.record), outcome.record


def differences(then: RunRecord, now: RunRecord) -> list[Difference]:
    """Compare two records' scores at full precision."""
    before = {(s.task, s.subset, s.metric): s.value for s in then.scores}
    after = {(s.task, s.subset, s.metric): s.value for s in now.scores}
    return [
        Difference(*name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def spec_of(
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
        overrides=_member_overrides(record.training.get("members", {})),
        corpus=corpus,
        copies=copies,
        dev=dev_suite,
        world_seed=record.world["seed"] if record.world else None,
        data=data,
        accept_data=not all(facts["reference"] for facts in record.tasks.values()),
        results=results,
        **specified(record),
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
    for member in _flat(record.training.get("members", {})):
        (part,) = parse_methods(member["method"])
        if part.name not in discover().names():
            raise InputError(
                f"the record builds on the model '{part.name}', which no profile names",
                where=record.method,
                hint="repeat the bench run that made it",
            )
    stages = record.training.get("stages", {})
    texts = {role: facts["text"] for role, facts in stages.items() if "text" in facts}
    given = {role: text["name"] for role, text in texts.items() if "pairs" not in text}
    own = profiles.load(profile)
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


def _member_overrides(members: dict[str, Any]) -> tuple[Override, ...]:
    """Give members the options that they had; where two of one name differ, the record's method says how."""
    had: dict[tuple[str, str], set[object]] = {}
    for member in _flat(members):
        (request,) = parse_methods(member["method"])
        for option, value in member["options"].items():
            had.setdefault((request.name, option), set()).add(value)
    texts = (f"{name}.{option}={values.pop()}" for (name, option), values in had.items() if len(values) == 1)
    return tuple(map(parse_override, texts))


def _flat(members: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for member in members.values():
        yield member
        yield from _flat(member.get("members", {}))
