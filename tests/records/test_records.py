"""Records: their shapes, their stages, their averages, what the committed ones show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import schema
from bench.errors import DataError
from bench.records import record as stored
from bench.records.integrity import find_record_faults, seal_record
from bench.records.record import RunRecord, Score, parse_record, record_to_json
from bench.records.store import ResultStore
from bench.reports.tables.sweep_tables import stage_curves
from bench.schema import Block, ListOf, MapOf, Maybe, is_boolean, is_count, is_text
from tests.conftest import Bench
from tests.support.campaigns import make_record
from tests.support.cli import Cli, records
from tests.support.docs_commands import ROOT
from tests.support.messages import missing_facts


def record(**keys: str) -> RunRecord:
    """A record with stages of these roles and keys, a curve of its own each; members' have "__" for "/"."""
    of: dict[str, Any] = {}
    made = make_record("m", 1, {"STSB": 0.7})
    (stage,) = made.training["stages"].values()
    for place, (name, key) in enumerate(keys.items()):
        values = {"key": key * 64, "sentences_seen": 100, "dev_curve": [[10, place / 10]]}
        of[name.replace("__", "/")] = {**stage, **values}
    timing = {**made.timing, "training_cpu_seconds": dict.fromkeys(of, 2.5)}
    made = replace(made, training={**made.training, "stages": of}, timing=timing)
    return parse_record(record_to_json(made), "x")


@pytest.mark.parametrize(
    ("keys", "last"),
    [
        ({"simcse": "a"}, ["simcse"]),
        ({"sub1": "a", "sub2": "b", "joint": "c"}, ["joint"]),
        ({"rankcse": "c", "teacher1__simcse": "a", "teacher2__simcse": "b"}, ["rankcse"]),
        ({"distill": "d", "teacher__joint": "c", "teacher__sub1": "a", "teacher__sub2": "b"}, ["distill"]),
        ({"sub1": "a", "sub2": "b"}, ["sub1", "sub2"]),  # an ensemble, which both end
        ({"a__joint": "c", "b__simcse": "d"}, []),  # a union trains nothing itself
    ],
)
def test_the_stages_that_end_a_training(keys: dict[str, str], last: list[str]) -> None:
    made = record(**keys)
    assert list(stored.last_stages(made)) == last
    roles = [name.replace("__", "/") for name in keys]
    assert stage_curves([made], "dev_curve") == [[[10, roles.index(role) / 10]] for role in last]


def test_a_committed_twin_shows_its_joint_stage() -> None:
    twins = [r for r in ResultStore(ROOT / "results", "mini").records() if r.method == "tncse"]
    assert len(twins) == 5
    for twin in twins:
        assert stage_curves([twin], "dev_curve") == [twin.training["stages"]["joint"]["dev_curve"]]


def test_a_stage_that_members_share_counts_once() -> None:
    made = record(a__joint="c", a__sub1="s", a__sub2="t", b__joint="d", b__sub1="s", b__sub2="t")
    assert list(stored.distinct_stages(made)) == ["a/joint", "a/sub1", "a/sub2", "b/joint"]
    assert (stored.count_training_sentences(made), stored.sum_training_seconds(made)) == (400, 10.0)
    assert stored.count_training_sentences(record(sub1="a", sub2="b")) == 200


RECORD = RunRecord("mini", "noise", "noise", 1, {}, None, 1, "toy", {}, "", "ok")
EMPTY = (Score("TOY", "x", "spearman", 0.9, 0), Score("TOY", "wmean", "spearman", 0.9, 180))


def of_tasks(*scores: Score, **facts: int) -> RunRecord:
    tasks = {"TOY": {"sha256": "0", "reference": True, **facts}}
    return seal_record(replace(RECORD, tasks=tasks, scores=scores))


@pytest.mark.parametrize("facts", [{"items": 0}, {}])
def test_parts_without_items_are_a_fault_of_their_average(facts: dict[str, int]) -> None:
    record = of_tasks(Score("TOY", "all", "spearman", 0.9, 0), *EMPTY, **facts)
    assert parse_record(record_to_json(record), "x") == record  # mteb may not tell how many items there are
    (fault,) = find_record_faults(record)
    assert fault.check == "average"
    assert not missing_facts(fault.what, "TOY wmean spearman", "0.9", "no items")


@pytest.mark.parametrize("facts", [{"pairs": 2}, {"items": 2}])
@pytest.mark.parametrize("empty", [EMPTY[0], Score("avg", "all", "spearman", 0.9, 0)])
def test_a_score_of_no_items_is_none(facts: dict[str, int], empty: Score) -> None:
    record = of_tasks(Score("TOY", "all", "spearman", 0.9, 2), empty, **facts)
    with pytest.raises(DataError, match=f"{empty.task} {empty.subset} spearman is of no items"):
        parse_record(record_to_json(record), "x")


def test_an_average_of_no_tasks_is_none_either() -> None:
    record = of_tasks(*(Score(task, "all", "spearman", 0.9, 0) for task in ("TOY", "avg")), items=0)
    with pytest.raises(DataError, match="avg all spearman is of no items"):
        parse_record(record_to_json(record), "x")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("verify",), 1),
        (("report",), 1),
        (("compare", "noise", "word_overlap"), 2),
        (("stats",), 2),
        (("bundle", "local", "--out", "b.zip"), 1),
        (("site", "--out", "site"), 1),
        (("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy"), 0),  # once more, and named
    ],
)
def test_commands_name_such_a_record(cli: Cli, tmp_path: Path, command: tuple[str, ...], code: int) -> None:
    run = ("run", "--methods", "noise,word_overlap", "--seeds", "1-2", "--suite", "toy")
    assert cli(*run)[0] == 0
    path = tmp_path / "results/local/mini/noise/seed-1/toy.json"
    record = records(tmp_path)["mini/noise/seed-1/toy.json"]
    path.write_text(record_to_json(seal_record(replace(record, scores=(*record.scores, *EMPTY)))))
    found, out, err = cli(*command)
    assert found == code, err
    fact = "in doubt: campaign local" if command[0] == "site" else "TOY x spearman is of no items"
    assert fact in out + err


BLOCK = Block({"a": is_count}, {"b": ListOf(MapOf(is_text), least=1), "c": Maybe(is_boolean)}, closed=True)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": 1}, None),
        ({"a": 1, "b": [{}, {"x": "y"}], "c": None}, None),
        ({"a": -1}, "a"),
        ({"a": True}, "a"),
        ({"b": [{}]}, "a"),
        ({"a": 1, "z": 2}, "z"),
        ({"a": 1, "b": []}, "b"),
        ({"a": 1, "b": [{}, {"x": 3}]}, "b[1].x"),
        ({"a": 1, "b": [{}, []]}, "b[1]"),
        ({"a": 1, "c": 0}, "c"),
        ([1], "."),
    ],
)
def test_a_fault_is_named_by_its_place(value: Any, place: str | None) -> None:
    assert schema.find_fault(value, BLOCK) == place


@pytest.mark.parametrize("shape", [BLOCK, ListOf(is_text), MapOf(is_text), Maybe(is_boolean), is_boolean])
def test_a_value_that_is_wrong_itself_is_a_dot(shape: schema.Shape) -> None:
    assert schema.find_fault(3, shape) == "."


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, 0.5, "ü", None, True, {"b": []}]}, None),
        ({"a": [1, {"b": float("inf")}]}, "a[1].b"),
        ({"a": [1, {"b": 2**63}]}, "a[1].b"),
        ({"a": ["\ud800"]}, "a[0]"),
        ({"a": {"\ud800": 1}}, "a"),
        ({"\ud800": 1}, "."),
    ],
)
def test_what_cannot_be_written_again_is_named(value: Any, place: str | None) -> None:
    assert schema.find_unwritable(value) == place


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_what_lies_too_deep_is_named(wrap: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(schema.DEEPEST):
        value = wrap(value)
    assert schema.find_unwritable(value) is None
    assert schema.find_unwritable(value, schema.DEEPEST - 1) is not None
    place = schema.find_unwritable(wrap(value))
    assert place is not None
    assert place in (".".join(["a"] * schema.DEEPEST), "[0]" * schema.DEEPEST)


MARGIN = 0.05


def read(folder: Path) -> list[RunRecord]:
    records = [parse_record(path.read_text(), path.name) for path in sorted(folder.rglob("mini.json"))]
    return [record for record in records if record.method == "simcse" or record.seed is None]


def worst_margin(records: Sequence[RunRecord]) -> float:
    scores = {(record.name, record.method, record.seed): record.score("MINI") for record in records}
    trained = [value for (name, _, _), value in scores.items() if name == "simcse" and value is not None]
    floors = [value for (name, _, _), value in scores.items() if name != "simcse" and value is not None]
    assert len(floors) == 3  # word_overlap, untrained cls and avg
    return min(trained) - max(floors)


def test_committed_records() -> None:
    records = read(ROOT / "results" / "mini")
    assert sorted(record.seed for record in records if record.seed is not None) == [1, 2, 3]
    assert {record.world["seed"] for record in records if record.world} == {1}
    assert all(record.world and any("no benchmark" in note for note in record.notes) for record in records)
    steps = {r.training["stages"]["simcse"]["steps"] for r in records if r.name == "simcse"}
    assert steps == {150}
    assert worst_margin(records) >= MARGIN


@pytest.mark.long  # bench check trains the same simcse wherever these tests run
def test_a_new_run_of_the_default_profile(bench: Bench, tmp_path: Path) -> None:
    methods = "word_overlap,untrained,untrained:avg,simcse"
    done = bench("run", "--methods", methods, "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Synthetic data: not a benchmark") == 1
    assert worst_margin(read(tmp_path / "results" / "local")) >= MARGIN
