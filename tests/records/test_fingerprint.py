"""The table of facts: each one is what keys see and commands name; later options leave keys alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.comparison.confounders import describe_confounders
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group
from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.errors import DataError, NotComparableError
from bench.eval.recomputation import Recomputation, ScoreChecker
from bench.execution import repetition
from bench.gate.judge import judge
from bench.plan.job import assign_stage_keys
from bench.plan.plan import Plan, make_plan
from bench.records import fingerprint
from bench.records.fingerprint import FACTS, KEYED, LATER, LATEST, Fact
from bench.records.record import RunRecord, Score, parse_record, record_to_json
from bench.records.store import ResultStore
from bench.registry import discover
from bench.stages import StageSpec
from tests.support.messages import missing_facts

SHA = {name: name * 64 for name in "abcdef"}
STAGE: dict[str, Any] = {"sentences_seen": 64, "steps": 2, "version": 1}
STAGE["text"] = {"name": "copy", "sha256": SHA["a"]}
BASE = RunRecord(
    profile="mini", method="noise", name="noise", version=1, seed=1, suite="toy", key="", status="ok",
    options={"scale": 1.0, "wait": 0.0},
    backbone={"name": "bert", "sha256": SHA["a"], "recipe": SHA["c"]},
    tasks={"TOY": {"pairs": 3, "sha256": SHA["a"], "reference": True}},
    scores=(Score("TOY", "all", "spearman", 0.5, 3), Score("avg", "all", "spearman", 0.5, 1)),
    world={"seed": 1, "generator": 1, "split": 1},
    evaluation={"version": 1, "precision": "fp32", "solver": "exact"},
    training={
        "arithmetic": 2, "precision": "fp32", "ranks": 1, "stages": {"joint": STAGE},
        "corpus": {"name": "wiki", "sha256": SHA["a"]},
        "dev": {"task": "STSB-dev", "sha256": SHA["a"]},
        "members": {"sub1": {"method": "simcse", "version": 1, "options": {"lr": 1e-4}}},
        "auxiliaries": {"generator": {"name": "mlm", "sha256": SHA["a"]}},
    },
    provenance={
        "bench": "0.1.0", "git": {"commit": "0123456789abcdef", "dirty": False}, "python": "3.11",
        "device": "cpu", "threads": 1, "platform": "Linux",
        "versions": {"torch": "2.13"}, "encoder": {"attention": "sdpa"},
        "plugins": {"noise": {"file": "noise.py", "sha256": SHA["a"]}},
    },
    timing={"processor": "Xeon", "training_cpu_seconds": {"joint": 1.0}},
)  # fmt: skip

BASE = replace(BASE, key=fingerprint.compute_record_key(BASE))


def put(block: str, name: str, value: Any) -> Callable[[RunRecord], RunRecord]:
    def change(record: RunRecord) -> RunRecord:
        changes: dict[str, Any] = {block: {**(getattr(record, block) or {}), name: value}}
        return replace(record, **changes)

    return change


def field(name: str, value: Any) -> Callable[[RunRecord], RunRecord]:
    return lambda record: replace(record, **{name: value})


PLUGIN = {"noise": {"file": "noise.py", "sha256": SHA["b"]}}
HASHES = ("a" * 12, "b" * 12)
MEMBER = {"method": "esimcse", "version": 1, "options": {"lr": 1e-4}}
OTHER_TEXT = {"joint": {**STAGE, "text": {"name": "copy", "sha256": SHA["b"]}}}
OTHER_SETTING = {"joint": {**STAGE, "settings": {"spacy_model": SHA["b"]}}}
CHANGES: dict[str, tuple[Callable[[RunRecord], RunRecord], str, str, str]] = {
    "method": (field("name", "other"), "method", "noise", "other"),
    "method version": (field("version", 2), "method version", "1", "2"),
    "plug-in file": (put("provenance", "plugins", PLUGIN), "plug-in file noise", *HASHES),
    "option": (put("options", "scale", 2.0), "option scale", "1.0", "2.0"),
    "weights": (put("backbone", "recipe", SHA["d"]), "weights", "bert cccccccc", "bert dddddddd"),
    "base of": (put("backbone", "bases", {"bert": SHA["b"]}), "base of bert", "not set", HASHES[1]),
    "auxiliary model": (put("training", "auxiliaries", {"generator": {"name": "mlm", "sha256": SHA["b"]}}),
        "auxiliary model generator", *HASHES),
    "member": (put("training", "members", {"sub1": MEMBER}), "member sub1", "simcse", "esimcse"),
    "training text": (put("training", "corpus", {"name": "wiki", "sha256": SHA["b"]}),
        "training text", "wiki aaaaaaaa", "wiki bbbbbbbb"),
    "training text of stage": (put("training", "stages", OTHER_TEXT),
        "training text of stage joint", *HASHES),
    "dev set": (put("training", "dev", {"task": "STSB-dev", "sha256": SHA["b"]}),
        "dev set", "STSB-dev aaaaaaaa", "STSB-dev bbbbbbbb"),
    "version of stage": (put("training", "stages", {"joint": {**STAGE, "version": 2}}),
        "version of stage joint", "1", "2"),
    "setting of stage": (put("training", "stages", OTHER_SETTING),
        "setting of stage joint spacy_model", "not set", "b" * 12),
    "arithmetic of training": (put("training", "arithmetic", 1), "arithmetic of training", "2", "1"),
    "training precision": (put("training", "precision", "bf16"), "training precision", "fp32", "bf16"),
    "compilation": (put("training", "compiled", "inductor"), "compilation", "none", "inductor"),
    "dropout set in": (put("training", "dropout", "anywhere"), "dropout set in", "modules", "anywhere"),
    "ranks": (put("training", "ranks", 2), "ranks", "1", "2"),
    "device": (put("provenance", "device", "cuda"), "device", "cpu", "cuda"),
    "threads": (put("provenance", "threads", 2), "threads", "1", "2"),
    "seeds": (field("seed", None), "seeds", "several", "none"),
    "seed": (field("seed", 2), "seed", "1", "2"),
    "suite": (field("suite", "sts7"), "suite", "toy", "sts7"),
    "data": (field("tasks", {"TOY": {"pairs": 3, "sha256": SHA["b"], "reference": True}}),
        "data TOY", *HASHES),
    "world": (put("world", "seed", 2), "world seed", "1", "2"),
    "version of the evaluation": (put("evaluation", "version", 2), "version of the evaluation", "1", "2"),
    "transfer solver": (put("evaluation", "solver", "sgd"), "transfer solver", "exact", "sgd"),
    "precision": (put("evaluation", "precision", "bf16"), "precision", "fp32", "bf16"),
    "weights as made": (put("backbone", "sha256", SHA["b"]), "weights as made", *HASHES),
    "Python": (put("provenance", "python", "3.12"), "Python", "3.11", "3.12"),
    "platform": (put("provenance", "platform", "Darwin"), "platform", "Linux", "Darwin"),
    "GPU": (put("provenance", "device", "cpu H200"), "GPU", "none", "H200"),
    "version of": (put("provenance", "versions", {"torch": "2.14"}), "version of torch", "2.13", "2.14"),
    "encoder's": (put("provenance", "encoder", {"attention": "eager"}),
        "encoder's attention", "sdpa", "eager"),
    "CPU": (put("timing", "processor", "EPYC"), "CPU", "Xeon", "EPYC"),
}  # fmt: skip
BY_NAME = {fact.name: fact for fact in FACTS}
PLACED = frozenset({"seed", "seeds", "suite"})
"""They say where a record is, so that another one is at another place."""


def each_fact(*, but: frozenset[str] = frozenset()) -> pytest.MarkDecorator:
    facts = [fact for fact in FACTS if fact.name not in but]
    return pytest.mark.parametrize("fact", facts, ids=lambda fact: fact.name)


def test_the_bytes_of_a_backbone_without_a_recipe_determine_the_result() -> None:
    one, other = (replace(BASE, backbone={"name": "bert", "sha256": SHA[name]}) for name in "ab")
    (difference,) = fingerprint.find_fact_differences(one, other)
    assert (difference.name, difference.then, difference.now) == ("weights", "bert aaaaaaaa", "bert bbbbbbbb")
    assert fingerprint.compute_record_key(one) != fingerprint.compute_record_key(other)


def test_the_bytes_of_a_made_backbone_are_reported_wherever_it_is_built_on() -> None:
    def built_on(sha256: str) -> RunRecord:
        backbone = {"name": "bert", "sha256": sha256, "recipe": SHA["c"]}
        members = {"sub1": {"method": "simcse", "version": 1, "options": {}, "backbone": backbone}}
        training = BASE.training | {"members": members, "auxiliaries": {"generator": backbone}}
        return replace(BASE, backbone=backbone, training=training)

    one, other = built_on(SHA["a"]), built_on(SHA["b"])
    assert fingerprint.compute_record_key(one) == fingerprint.compute_record_key(other)
    (difference,) = fingerprint.find_fact_differences(one, other, FACTS)
    assert (difference.name, difference.then, difference.now) == ("weights as made", "a" * 12, "b" * 12)


def changed(fact: Fact) -> tuple[RunRecord, str]:
    """The record with that fact changed alone, and how messages say it."""
    change, name, then, now = CHANGES[fact.name]
    return change(BASE), f"{name} then {then}, now {now}"


@each_fact()
def test_a_fact_alone_changes_key_and_family_as_the_table_says(fact: Fact) -> None:
    other, line = changed(fact)
    facts = [keyed for keyed in FACTS if fact.name != "seeds" or keyed.name != "seed"]
    assert [str(keyed) for keyed in fingerprint.find_fact_differences(BASE, other, facts)] == [line]
    assert (fingerprint.compute_record_key(other) != fingerprint.compute_record_key(BASE)) is fact.keyed
    assert (fingerprint.compute_family_key(other) != fingerprint.compute_family_key(BASE)) is (
        fact.keyed and fact.in_family
    )


@each_fact(but=frozenset({"seed", "suite"}))
def test_check_names_it(fact: Fact) -> None:
    other, line = changed(fact)
    gate = judge([BASE], [other])
    if fact in fingerprint.JUDGED:  # a method's own file is what the gate judges
        assert (gate.warnings, gate.cells[0].status) == ((line,), "equal")
    elif fact.breaks:
        assert (gate.cells[0].status, gate.cells[0].reasons, gate.exit_code) == ("different", (line,), 3)
    elif fact.name == "GPU":
        assert gate.warnings == ()  # one side has none
    else:
        name = line.removeprefix("version of ").removeprefix("encoder's ")
        assert gate.warnings == (name,)
        assert gate.cells[0].status == "equal" if fact.of == "machine" else "ok"


@each_fact()
def test_compare_names_it(fact: Fact, tmp_path: Path) -> None:
    other, _ = changed(fact)
    _, name, then, now = CHANGES[fact.name]
    store = ResultStore(tmp_path, "c")
    groups = [Group(label, (CampaignRun(store, record),)) for label, record in (("a", BASE), ("b", other))]
    confounders = " ".join(describe_confounders(*groups))
    assert ("one specification" in confounders) is (fact.of == "machine" or not fact.breaks)
    if fact.name in {"seed", "GPU"}:
        return
    shown = name.removeprefix("version of ").removeprefix("encoder's ") if fact.of == "machine" else name
    if fact.name == "method":
        assert not missing_facts(confounders, "methods differ", "noise and other")
    else:
        assert f"{shown} {then} against {now}" in confounders


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(ScoreChecker, "check", lambda *_: Recomputation())  # scores are made up here
    spec = RunSpec(parse_methods("noise"), (1,), "mini", suites=("toy",), results=tmp_path)
    plan = make_plan(spec)
    plan.store.prepare()
    plan.store.write(BASE.place, BASE, {"TOY": np.zeros(3, dtype=np.float32)})
    return plan


@each_fact(but=PLACED)
def test_run_names_it(fact: Fact, plan: Plan) -> None:
    other, line = changed(fact)
    (job,) = plan.jobs
    asked = replace(plan, jobs=(replace(job, record=replace(other, status="failed", scores=())),))
    if fact.keyed:
        ((_, refused),) = asked.conflicts()
        assert asked.pending() == []
        assert not missing_facts(refused, line, "--campaign", "--force")
        forced = replace(asked, spec=replace(asked.spec, force=True))
        assert [forced.status(job) for job in forced.jobs] == ["to do"]
    else:
        assert [asked.status(job) for job in asked.jobs] == ["done"]


@each_fact(but=PLACED)
def test_another_seed_of_a_method_is_refused_by_it(fact: Fact, plan: Plan) -> None:
    other, line = changed(fact)
    (job,) = plan.jobs
    cell, record = replace(job.cell, seed=2), replace(other, seed=2, status="failed", scores=())
    asked = replace(plan, jobs=(replace(job, cell=cell, record=record),))
    if fact.keyed:
        ((_, refused),) = asked.conflicts()
        assert asked.pending() == []
        assert not missing_facts(refused, line, "noise seed 1 on toy", "another specification")
    else:
        assert [asked.status(job) for job in asked.jobs] == ["to do"]


@each_fact()
def test_rerun_names_it(fact: Fact, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    other, line = changed(fact)
    (job,) = plan.jobs
    asked = replace(plan, jobs=(replace(job, record=other),))
    monkeypatch.setattr(repetition, "build_rerun_spec", lambda *_: asked.spec)
    monkeypatch.setattr(repetition, "make_plan", lambda _: asked)
    monkeypatch.setattr(repetition, "compare_notes", lambda *_: ())
    monkeypatch.setattr(repetition, "run_plan", lambda *_, **__: pytest.fail("it ran"))
    kind = NotComparableError if fact.keyed else pytest.fail.Exception
    with pytest.raises(kind, match=re.escape(line) if fact.keyed else "it ran"):
        repetition.rerun_record(BASE, data=None)


def test_an_older_arithmetic_says_which_version_adds_to_it() -> None:
    remedy = fingerprint.explain_differences(BASE, put("training", "arithmetic", 3)(BASE))
    assert not missing_facts(remedy, "arithmetic 2", "install cse-bench 0.1.0", "commit 0123456789ab")
    assert "install" not in fingerprint.explain_differences(BASE, put("training", "ranks", 3)(BASE))


def test_what_older_records_do_not_say_is_what_held_then() -> None:
    stage = {**STAGE, "numerics": 2}
    del stage["version"]
    training = {name: BASE.training[name] for name in ("corpus", "dev", "members", "auxiliaries")}
    older = replace(BASE, evaluation={}, training={**training, "stages": {"joint": stage}})
    assert fingerprint.compute_record_key(older) == fingerprint.compute_record_key(BASE)
    del stage["numerics"]
    (difference,) = fingerprint.find_fact_differences(older, BASE)
    assert (difference.name, difference.then, difference.now) == ("arithmetic of training", "1", "2")
    stage |= {"ranks": 2, "precision": "bf16"}
    provenance = {**BASE.provenance, "transfer": {"solver": "sgd"}, "evaluation_precision": {"name": "fp16"}}
    fields = fingerprint.specification_fields(replace(older, provenance=provenance))
    trained = {"train_precision": "bf16", "compiled": "none", "ranks": 2, "device": "cpu", "threads": 1}
    assert fields == trained | {"transfer_solver": "sgd", "precision": "fp16"}


def test_a_later_option_has_its_default_in_older_records_of_the_method_alone() -> None:
    mean = replace(BASE, options={"pooling": "mean"})
    older, other = replace(BASE, options={}), replace(BASE, name="other", options={})
    (difference,) = fingerprint.find_fact_differences(mean, older)
    assert (difference.name, difference.then, difference.now) == ("option pooling", "mean", "cls")
    for value, options in (("not set", {}), ("cls", {"pooling": "cls"})):
        of_method, of_option = fingerprint.find_fact_differences(mean, replace(other, options=options))
        assert (of_method.name, of_method.now) == ("method", "other")
        assert (of_option.name, of_option.now) == ("option pooling", value)


def test_the_facts_of_a_record_survive_its_file() -> None:
    again = parse_record(record_to_json(BASE), "x")
    assert fingerprint.compute_record_key(again) == fingerprint.compute_record_key(BASE)
    assert all(fact.value(again) == fact.value(BASE) for fact in FACTS)


@pytest.mark.parametrize("fact", [fact for fact in FACTS if fact.parameter], ids=lambda fact: fact.name)
def test_rerun_takes_nothing_from_a_record_that_run_would_not_take(fact: Fact) -> None:
    change, *_ = CHANGES[fact.name]
    assert fingerprint.specification_fields(change(BASE))[fact.parameter] == fact.value(change(BASE))
    wrong = {
        "train_precision": put("training", "precision", "int4"),
        "compiled": put("training", "compiled", "eager"),
        "ranks": put("training", "ranks", 0),
        "device": put("provenance", "device", "$(rm)"),
        "threads": put("provenance", "threads", True),
        "transfer_solver": put("evaluation", "solver", "x"),
        "precision": put("evaluation", "precision", "x"),
    }[fact.parameter](BASE)
    with pytest.raises(DataError, match=f"the record says {fact.name} '"):
        fingerprint.specification_fields(wrong)


def test_the_table_is_whole() -> None:
    assert set(CHANGES) == set(BY_NAME)
    assert len(BY_NAME) == len(FACTS)
    assert {fact.name for fact in KEYED if not fact.in_family} == {"seed"}
    draws = {"seed", "compilation", "ranks", "device", "threads"}
    assert {fact.name for fact in KEYED if not fact.breaks} == draws


@pytest.mark.parametrize(("name", "field"), [("compilation", "compiled"), ("dropout set in", "dropout")])
def test_a_fact_that_came_later_leaves_the_keys_of_earlier_records(name: str, field: str) -> None:
    assert [fact.name for fact in FACTS if fact.later] == ["base of", "dropout set in", "compilation"]
    earlier = [fact for fact in KEYED if not fact.later]
    assert fingerprint.compute_record_key(BASE) == fingerprint.hash_canonical_json(
        {fact.name: fact.value(BASE) for fact in earlier}
    )
    said = put("training", field, BY_NAME[name].default)(BASE)
    for digest in (fingerprint.compute_record_key, fingerprint.compute_family_key):
        assert digest(said) == digest(BASE)


SINCE = {"fresh_pooler": "one"}
"""Defaults that are no longer what held before the option came, in every method that has it."""

NAME, VALUE = next(iter(LATEST.items()))
TASKS = {"TOY": {"pairs": 3, "sha256": "a" * 64, "reference": True}}
SCORES = (Score("TOY", "all", "spearman", 0.5, 3),)
ENSEMBLE = RunRecord(
    "mini", "ensemble", "ensemble", 1, {"of": "a+b"}, None, 1, "toy", TASKS, "", "ok", SCORES
)


def with_members(**options: Any) -> RunRecord:
    inner = {"method": "a", "version": 1, "options": {"lr": 1.0, **options}}
    outer = {"method": "distill:a", "version": 1, "options": {"steps": 3}, "members": {"teacher": inner}}
    return replace(ENSEMBLE, training={"members": {"1": outer}})


def test_every_option_of_the_name_has_that_default() -> None:
    cards = [method.card for _, method in discover()]
    options = [option for card in cards for option in card.options if option.name in LATEST]
    for card in (card for card in cards if card.defaults.get("lora_rank")):  # adapters are a part of it
        for name in ("lora_rank", "lora_alpha", "lora_dropout"):
            options.remove(card.option(name, card.name))
    older = next(card for card in cards if card.name == "crop").option("train_pooling", "crop")
    options.remove(older)  # always part of the key
    assert {option.name for option in options} == LATEST.keys()
    for option in options:
        assert option.default == (LATEST | SINCE)[option.name], option.name
    assert LATEST.items() <= LATER.items()


@pytest.mark.parametrize("digest", [fingerprint.compute_record_key, fingerprint.compute_family_key])
def test_records_have_them_at_other_values_alone(digest: Any) -> None:
    plain = digest(ENSEMBLE)
    assert digest(replace(ENSEMBLE, options={**ENSEMBLE.options, **LATEST})) == plain
    assert digest(replace(ENSEMBLE, options={**ENSEMBLE.options, NAME: 9.0})) != plain
    assert digest(with_members(**LATEST)) == digest(with_members())
    assert digest(with_members(**LATEST | {NAME: 9.0})) != digest(with_members())
    assert digest(with_members(pooling="cls")) != digest(with_members())  # members always said the older ones


def test_so_do_stages() -> None:
    def key(**config: Any) -> str:
        spec = StageSpec("r", "kind", 1, tuple(sorted(config.items())), lambda _: {})
        return assign_stage_keys((spec,), 1, {}, {"train": "t"})[0].key

    assert key(lr=1.0, **LATEST) == key(lr=1.0)
    assert key(lr=1.0, **LATEST | {NAME: 9.0}) != key(lr=1.0)
    assert VALUE != 9.0
