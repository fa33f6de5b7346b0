"""Kept predictions of mteb: scored again, drawn and shown, without mteb."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import f1_score  # type: ignore[import-untyped]

from bench.encoder import FloatArray
from bench.errors import BenchError, InputError
from bench.eval import rescoring
from bench.eval.mteb_items import local_items
from bench.eval.mteb_kinds import kind_of
from bench.eval.mteb_predictions import (
    find_item_changes,
    keep_predictions,
    part_statistics,
    prediction_parts,
    rescore_tasks,
)
from bench.eval.mteb_scores import MtebEntry, entry_as_json, entry_from_json, suite_scores
from bench.eval.mteb_tasks import MtebTask, load_mteb_suite
from bench.eval.rescoring import rescore_record
from bench.records.record import RunRecord, Score
from bench.records.store import ResultStore
from bench.stats.argument_checks import make_generator
from tests.support.cli import Cli
from tests.support.item_draws import draw_parts
from tests.support.messages import missing_facts

Tasks = dict[str, MtebTask]
SIZES = {"pairs": 24, "texts": 8, "classes": 8, "order": 3, "search": 8}
ALL = ("test", "default")
NOTHING = dict.fromkeys(SIZES, np.empty(0, dtype=np.float32))


@pytest.fixture
def tasks(suite: Path) -> Tasks:
    return {task.id: task for task in load_mteb_suite(f"local:{suite}")}


def predictions_of(seed: int) -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    found = {
        "pairs": rng.normal(size=24).round(1),  # with ties
        "texts": np.where(rng.random(8) < 0.6, np.arange(8), rng.integers(0, 8, 8)),
        "classes": rng.integers(0, 2, 80),
        "order": rng.random(3),
        "search": rng.random(8),
    }
    return {name: values.astype(np.float32) for name, values in found.items()}


def statistic(name: str, tasks: Tasks, values: FloatArray, items: Any) -> float:
    """mteb's score of some items."""
    if name == "pairs":
        gold = [float(row[2]) for row in tasks["pairs"].local.table("file")]  # type: ignore[union-attr]
        return float(spearmanr(values[items], np.array(gold)[items]).statistic)
    if name == "texts":
        labels = {"average": "weighted", "labels": np.unique(items), "zero_division": 0}
        return float(f1_score(np.arange(8)[items], values[items], **labels))
    if name == "classes":
        return float((values.reshape(10, 8) == [0] * 4 + [1] * 4)[:, items].mean())
    return float(values[items].mean(dtype=np.float64))


def score_by_hand(name: str, tasks: Tasks, values: FloatArray) -> float:
    score = statistic(name, tasks, values, np.arange(SIZES[name]))
    return round(score, 5) if name in ("order", "search") else score


def record_of(tasks: Tasks, predictions: dict[str, FloatArray], seed: int = 1) -> RunRecord:
    entries = {}
    for name, task in tasks.items():
        score = score_by_hand(name, tasks, predictions[name])
        entries[name] = [MtebEntry("test", "default", {task.score: score}, SIZES[name])]
    kept = {n: {**t.facts, "kept": [["test", "default", SIZES[n]]]} for n, t in tasks.items()}
    facts = {n: {"items": t.items, "sha256": t.sha256, "reference": True} for n, t in tasks.items()}
    return RunRecord(
        "mini", "noise", "noise", 1, {}, None, seed, "local:mine", facts, "", "ok",
        scores=suite_scores(list(tasks.values()), entries), provenance={"mteb": {"tasks": kept}},
    )  # fmt: skip


def test_all_scores_are_those_by_hand_and_mteb_is_not_needed(tasks: Tasks) -> None:
    assert {name: task.items for name, task in tasks.items()} == SIZES
    predictions = predictions_of(1)
    record = record_of(tasks, predictions)
    found = rescore_record(record, tasks, predictions)
    assert (found.wrong, found.unchecked) == ((), ())
    assert found.checked == len(record.scores) == 16


@pytest.mark.parametrize("name", SIZES)
def test_an_edited_score_and_edited_predictions_are_found(tasks: Tasks, name: str) -> None:
    predictions = predictions_of(2)
    record = record_of(tasks, predictions)
    scores = tuple(replace(s, value=s.value + 0.01 * (s.task == name)) for s in record.scores)
    found = rescore_record(replace(record, scores=scores), tasks, predictions)
    assert {line.split(" is ")[0].split()[0] for line in found.wrong} == {name}
    values = predictions[name]
    predictions[name] = values[::-1].copy() if name == "pairs" else np.where(values == values[0], 0.5, values)
    wrong = rescore_record(record, tasks, predictions).wrong
    assert {line.split()[0] for line in wrong} >= {name, "avg"}


def forget(tasks: Tasks, record: RunRecord, *names: str) -> tuple[Tasks, RunRecord]:
    """Make tasks some of mteb's own, of which the record keeps no predictions."""
    blocks = {**record.provenance["mteb"]["tasks"], **{name: {} for name in names}}
    mtebs = {name: replace(task, local=None) if name in names else task for name, task in tasks.items()}
    return mtebs, replace(record, provenance={"mteb": {"tasks": blocks}})


def test_predictions_that_are_kept_cannot_be_gone(tasks: Tasks) -> None:
    record = record_of(tasks, predictions_of(3))
    nothing = {**predictions_of(3), "pairs": NOTHING["pairs"]}
    for forgotten, fact in (((), "those of 24 items are kept"), (("pairs",), "always kept")):
        _, told = forget(tasks, record, *forgotten)
        (wrong,) = rescore_record(told, tasks, nothing).wrong
        assert not missing_facts(wrong, "pairs has no predictions", fact)


def test_averages_count_what_cannot_be_scored_again(tasks: Tasks) -> None:
    predictions = predictions_of(3)
    known, record = tasks, record_of(tasks, predictions)
    tasks, record = forget(known, record, "search")
    nothing = {**predictions, "search": NOTHING["search"]}
    found = rescore_record(record, tasks, nothing)
    assert (found.wrong, found.unchecked) == ((), ("all main_score", "all ndcg@10"))
    scores = tuple(replace(s, value=s.value + 0.1 * (s.task == "avg")) for s in record.scores)
    (wrong,) = rescore_record(replace(record, scores=scores), tasks, nothing).wrong
    assert wrong.split()[:3] == ["avg", "all", "main_score"]
    tasks, record = forget(known, record, *known)
    assert rescore_tasks(list(tasks.values()), NOTHING, record) == ()


@pytest.mark.parametrize(
    "name",
    [
        ("avg", "all", "MAIN"),
        ("avg", "all", "ndcg@10"),  # not all tasks are of retrieval
        ("pairs", "all", "accuracy"),
        ("pairs", "en", "spearman"),  # the task is computed again, and has no such part
        ("search", "all", "ndcg@7"),
        ("classes", "all", "ndcg@5"),
        ("Nonesuch", "mean", "main_score"),
    ],
)
def test_a_score_that_no_suite_has(tasks: Tasks, name: tuple[str, str, str]) -> None:
    predictions = predictions_of(5)
    record = record_of(tasks, predictions)
    odd = replace(record, scores=(Score(*name, 0.99, 9), *record.scores))
    assert f"suite local:mine has no score {' '.join(name)}" in rescore_record(odd, tasks, predictions).wrong


def test_scores_of_which_nothing_is_kept_are_known_by_their_names(tasks: Tasks) -> None:
    tasks, record = forget(tasks, record_of(tasks, predictions_of(6)), *tasks)
    part, rank = Score("pairs", "en", "spearman", 0.5, 9), Score("search", "all", "map@5", 0.5, 8)
    odd = Score("avg", "all", "MAIN", 0.99, 5)
    found = rescore_record(replace(record, scores=(*record.scores, part, rank)), tasks, NOTHING)
    assert (found.wrong, found.checked, found.beside) == ((), 0, ("all map@5",))
    assert len(found.unchecked) == len(record.scores) + 1
    average, unknown = rescore_record(replace(record, scores=(odd, *record.scores)), tasks, NOTHING).wrong
    assert not missing_facts(average, "MAIN", "local:mine", "main_score")
    assert not missing_facts(unknown, "local:mine", "avg all MAIN")


def test_averages_of_retrieval_in_another_order(tasks: Tasks) -> None:
    """The first average is the one that tables show."""
    tasks, kept = forget(tasks, record_of(tasks, predictions_of(7)), "search")
    search = {"search": tasks["search"]}
    entry = MtebEntry("test", "default", {"ndcg_at_10": 0.5, "recall_at_10": 0.9}, 8)
    scores = suite_scores([*search.values()], {"search": [entry]})
    facts = {"search": {"items": 8, "sha256": "", "reference": True}}
    record = replace(kept, tasks=facts, scores=scores)
    found = rescore_record(record, search, NOTHING)
    assert (found.wrong, found.unchecked) == ((), ("all ndcg@10", "all ndcg@10"))
    assert found.beside == ("all recall@10", "all recall@10")
    (wrong,) = rescore_record(replace(record, scores=scores[::-1]), search, NOTHING).wrong
    assert not missing_facts(wrong, "recall@10", "local:mine", "ndcg@10")


@pytest.mark.parametrize(
    ("kept", "facts"),
    [
        *((kept, ("lacks the parts", "pairs")) for kept in (None, [], [[*ALL, 0]], [[*ALL, "24"]], "test")),
        ([[*ALL, 7]], ("pairs: 24 predictions", "7 items")),
        ([[*ALL, 12]], ("pairs: predictions of 12", "24 of default")),
        ([["test", "other", 24]], ("pairs: predictions of 24", "0 of other")),
        ([[*ALL, 10**15]], ("pairs: 24 predictions", "1000000000000000 items")),
    ],
)
def test_impossible_parts_of_predictions(tasks: Tasks, kept: Any, facts: tuple[str, ...]) -> None:
    predictions = predictions_of(4)
    record = record_of(tasks, predictions)
    blocks = {**record.provenance["mteb"]["tasks"], "pairs": {"kept": kept}}
    record = replace(record, provenance={"mteb": {"tasks": blocks}})
    (wrong,) = rescore_record(record, tasks, predictions).wrong
    assert not missing_facts(wrong, *facts)


@pytest.mark.parametrize("mteb_facts", [None, [], {"tasks": "x"}, {"tasks": {"pairs": 1}}])
def test_a_record_without_parts_of_predictions(tasks: Tasks, mteb_facts: Any) -> None:
    record = replace(record_of(tasks, predictions_of(4)), provenance={"mteb": mteb_facts})
    with pytest.raises(BenchError, match="record lacks the parts"):
        prediction_parts(tasks["pairs"], record)


@pytest.mark.parametrize("name", SIZES)
def test_items_are_drawn_as_by_hand(tasks: Tasks, name: str) -> None:
    both = [predictions_of(5), predictions_of(6)]
    record = record_of(tasks, both[0])
    rows = np.stack([predictions[name] for predictions in both])
    found = draw_parts(part_statistics(tasks[name], rows, record), [SIZES[name]], make_generator(1, "x"), 120)
    chosen = make_generator(1, "x").integers(0, SIZES[name], (120, SIZES[name]))
    expected = [[statistic(name, tasks, row, items) for row in rows] for items in chosen]
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_subsets_are_drawn_each_for_itself(tasks: Tasks) -> None:
    record, values = record_of(tasks, predictions_of(7)), predictions_of(7)["search"]
    record.provenance["mteb"]["tasks"]["search"]["kept"] = [["test", "a", 5], ["test", "b", 3]]
    statistics = part_statistics(tasks["search"], values[None], record)
    found = draw_parts(statistics, [5, 3], make_generator(1, "x"), 100)
    rng = make_generator(1, "x")
    parts = values[:5], values[5:]
    one, two = (p[rng.integers(0, len(p), (100, len(p)))].mean(1, dtype=np.float64) for p in parts)
    np.testing.assert_allclose(found[:, 0], (one + two) / 2, atol=1e-7)


def test_what_two_runs_treat_differently(tasks: Tasks) -> None:
    one, other = predictions_of(8), predictions_of(9)
    record = record_of(tasks, one)
    for name, task in tasks.items():
        assert len(find_item_changes(task, one[name], other[name], record, 2)) == 2
        with pytest.raises(BenchError, match=f"no predictions of {name} are kept"):
            find_item_changes(task, one[name], other[name][:0], record, 2)
    one["classes"], other["classes"] = np.zeros(80, np.float32), np.zeros(80, np.float32)
    other["classes"].reshape(10, 8)[:6, [1, 6]] = 1  # six of ten experiments
    other["classes"].reshape(10, 8)[:4, 2] = 1
    found = find_item_changes(tasks["classes"], one["classes"], other["classes"], record, 9)
    changes = [(item.number, item.change, item.one, item.other, item.gold) for item in found]
    assert changes == [(2, "right in A", "x", "y", "x"), (7, "right in B", "x", "y", "y")]


def test_only_what_gives_the_score_is_kept(tasks: Tasks) -> None:
    task = tasks["pairs"]
    kind, local = kind_of(task), task.local
    assert kind is not None
    assert local is not None
    items, values = local_items(local), predictions_of(1)["pairs"]
    cosines, score = values.tolist(), score_by_hand("pairs", tasks, values)
    kept = keep_predictions(kind, {"cosine_scores": cosines}, items, score)
    assert kept is not None
    assert kept.tolist() == [cosines]
    assert keep_predictions(kind, {"cosine_scores": cosines}, items, score + 1e-6) is None
    for said in ({}, None, {"cosine_scores": cosines[1:]}, {"cosine_scores": ["x"] * 24}):
        assert keep_predictions(kind, said, items, score) is None
    assert kind_of(replace(task, score="euclidean_spearman")) is None
    assert kind_of(replace(task, kind="Clustering", score="v_measure")) is None


def test_finished_tasks_are_kept_with_their_predictions() -> None:
    values = np.array([[1, 2, 3], [0.1, -0.1, 0]], dtype=np.float32)
    entry = MtebEntry("test", "de", {"accuracy": 0.5}, 3, values)
    packed = entry_as_json(entry)
    again = entry_from_json(packed)
    np.testing.assert_array_equal(again.kept, entry.kept)
    assert replace(again, kept=None) == replace(entry, kept=None)
    assert entry_from_json(entry_as_json(replace(entry, kept=None))).kept is None
    nan = "AADAfwAAwH8AAAAAAAAAAAAAAAAAAAAA"
    for damage in ([2, "x"], [2, "AAAA"], [7, packed["kept"][1]], [1, ""], "x", 5, [2, nan]):
        with pytest.raises((ValueError, TypeError, KeyError)):
            entry_from_json({**packed, "kept": damage})


def test_a_records_suite_is_looked_for_in_the_data_folder_alone(
    suite: Path, tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of(tasks, predictions_of(1))
    assert rescoring.load_record_tasks(record, tmp_path).keys() == tasks.keys()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCH_DATA", raising=False)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "mine.toml").symlink_to(suite)
    for name, folder in (
        ("local:mine", None),  # not the current folder
        ("local:other", tmp_path),
        ("local:../mine", tmp_path / "inner"),
        (f"local:{tmp_path / 'mine'}", tmp_path),
        ("local:mine", tmp_path / "inner"),  # a link out of it
    ):
        with pytest.raises(InputError, match="isn't in the data folder"):
            rescoring.load_record_tasks(replace(record, suite=name), folder)


def test_a_name_that_predictions_cannot_have(suite: Path) -> None:
    suite.write_text(suite.read_text().replace('name = "pairs"', 'name = "file"'))
    with pytest.raises(InputError, match="a task can't be called 'file'"):
        load_mteb_suite(f"local:{suite}")


def test_commands_over_items(cli: Cli, tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mteb", None)  # importing it fails
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    store = ResultStore(tmp_path / "results", "local")
    for seed in (1, 2):
        made = record_of(tasks, predictions_of(seed), seed)
        store.write(made.place, made, predictions_of(seed))
    code, out, err = cli("verify")
    assert (code, missing_facts(out, "32 scores", "nothing wrong")) == (0, []), out + err
    for command, *facts in (
        (("compare", "noise#1", "noise#2", "--draws", "200"), "noise#1", "noise#2"),
        (("stats", "--draws", "200", "--format", "json"), "intervals"),
        (
            ("compare", "--show-items", "noise#1", "noise#2", "--task", "search"),
            "search (8 items)",
            "A = noise#1, seed 1",
        ),
    ):
        code, out, err = cli(*command)
        assert (code, err, missing_facts(out, *facts)) == (0, "", [])
    (tmp_path / "pairs.tsv").write_text((tmp_path / "pairs.tsv").read_text() + "x\ty\t3\n")
    rescoring._load_suite.cache_clear()  # as in another process
    code, _, err = cli("compare", "--show-items", "noise#1", "noise#2")
    assert (code, "pairs differs" in err) == (3, True)
