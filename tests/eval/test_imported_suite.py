"""Records of results made elsewhere: scored again from themselves, drawn, compared, and found when forged."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from bench.comparison.item_bootstrap import CampaignRun, RefusedError, RunDraws, draw_items
from bench.data.data_source import DataSource
from bench.encoder import FloatArray
from bench.errors import BenchError, InputError
from bench.eval.imported_suite import ImportedSuite, ImportedTask, read_imported_task, score_items
from bench.eval.measure import MeasureContext
from bench.eval.recomputation import PUBLISHED, recompute_scores
from bench.eval.rescoring import load_record_tasks, load_sound_predictions, rescore_record
from bench.eval.suite_measures import measure_of
from bench.imports.item_table import read_item_table
from bench.imports.published import PublishedResults
from bench.imports.score_table import read_score_table
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.verify.record_checks import VerifySettings, verify_records
from tests.support.cli import Cli
from tests.support.forge import forge

ITEMS = 40
SPREAD = {"org/near": 0.2, "org/far": 0.8}
DRAWS = 100
Change = Callable[[dict[str, FloatArray]], object]


def write_items(folder: Path, metric: str, *, groups: bool = False) -> Path:
    """Write predictions of two methods with two seeds on two tasks; accuracy is of three classes."""
    rng = np.random.default_rng(7)
    lines = ["method,seed,task,item,gold,prediction" + ",group" * groups]
    gold = {(task, item): float(rng.random()) for task in "TU" for item in range(ITEMS)}
    for method, spread in SPREAD.items():
        for seed in (1, 2):
            for (task, item), value in gold.items():
                predicted = value + spread * rng.normal()
                pair = (f"{value:.4f}", f"{predicted:.6f}")
                if metric == "accuracy":
                    pair = (f"c{int(3 * value)}", f"c{int(3 * np.clip(predicted, 0, 0.99))}")
                end = f",{item // 2}" if groups else ""
                lines.append(f"{method},{seed},{task},{item},{pair[0]},{pair[1]}{end}")
    file = folder / "made.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def write_records(folder: Path, results: PublishedResults) -> ResultStore:
    store = ResultStore(folder / "results", "local")
    store.prepare()
    for run in results.runs:
        record = RunRecord(
            "imported",
            run.method,
            f"imported:{run.method}",
            1,
            {},
            None,
            run.seed,
            results.suite,
            dict(run.tasks),
            "",
            "ok",
            run.scores,
            notes=run.notes,
            provenance={"imported": dict(results.source)},
        )
        store.write(record.place, record, run.predictions)
    return store


def import_items(folder: Path, metric: str = "spearman", *, groups: bool = False) -> ResultStore:
    file = write_items(folder, metric, groups=groups)
    return write_records(folder, read_item_table(file, metric=metric))


def import_scores(folder: Path) -> ResultStore:
    file = folder / "paper.csv"
    file.write_text("method,STS12,STS13\norg/near,71.3,80.1\norg/far,61.3,70.1\n")
    return write_records(folder, read_score_table(file, scale="points"))


def find(store: ResultStore, method: str = "org/near", seed: int | None = 1) -> RunRecord:
    (record,) = [r for r in store.records() if (r.method, r.seed) == (method, seed)]
    return record


def change_predictions(
    store: ResultStore, record: RunRecord, change: Change, scores: Any = None
) -> RunRecord:
    """Write a record with other predictions and a sound seal, its scores as they were or as given."""
    predictions = {task: values.copy() for task, values in store.predictions(record).items()}
    change(predictions)
    return store.write(record.place, replace(record, scores=scores or record.scores), predictions)


def compute_score(metric: str, predicted: FloatArray, gold: FloatArray) -> float:
    """Compute a score without bench."""
    if metric == "accuracy":
        return float(np.mean(predicted == gold))
    if metric == "spearman":
        return float(spearmanr(predicted, gold)[0])
    return float(pearsonr(predicted, gold)[0])


def draw(store: ResultStore) -> list[RunDraws]:
    runs = [CampaignRun(store, record) for record in store.records()]
    return list(draw_items(runs, None, draws=DRAWS))


@pytest.fixture(autouse=True)
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No evaluation data: an imported record is complete in itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCH_DATA", raising=False)


@pytest.mark.parametrize("metric", ["spearman", "pearson", "accuracy"])
@pytest.mark.parametrize("groups", [False, True])
def test_a_record_is_scored_from_itself(tmp_path: Path, metric: str, groups: bool) -> None:
    store = import_items(tmp_path, metric, groups=groups)
    records = store.records()
    assert len(records) == 4
    for record in records:
        tasks = load_record_tasks(record, None)
        assert list(tasks) == ["T", "U"]
        check = rescore_record(record, tasks, store.predictions(record))
        assert (check.wrong, check.checked, check.unchecked, check.beside) == ((), 3, (), ())
    outcomes = recompute_scores(store, records, None)
    assert [(o.error, o.reason) for o in outcomes.values()] == [(None, "")] * 4


def test_a_data_folder_changes_nothing(tmp_path: Path) -> None:
    store = import_items(tmp_path)
    (tmp_path / "data").mkdir()
    for data in (tmp_path / "data", tmp_path / "none"):
        assert [o.reason for o in recompute_scores(store, store.records(), data).values()] == [""] * 4


@pytest.mark.parametrize("metric", ["spearman", "pearson", "accuracy"])
@pytest.mark.parametrize("place", [0, ITEMS])
def test_a_changed_prediction_or_gold_is_found(tmp_path: Path, metric: str, place: int) -> None:
    store = import_items(tmp_path, metric)
    record = find(store)

    def change(predictions: dict[str, FloatArray]) -> None:
        predictions["T"][place] = 2.0 if predictions["T"][place] != 2.0 else 1.0

    change_predictions(store, record, change)
    outcome = recompute_scores(store, store.records(), None)[record.place]
    assert outcome.error is not None
    assert ("gold" in outcome.error.what) is (place == ITEMS)
    with pytest.raises(RefusedError):
        draw(store)
    verified, sound = verify_records(store.root, VerifySettings())
    assert {(finding.check, finding.where) for finding in verified.findings} == {
        ("score", str(store.path(record.place).relative_to(store.root)))
    }
    assert len(sound) == 3


def test_a_gold_that_gives_the_score_is_found(tmp_path: Path) -> None:
    store = import_items(tmp_path)
    record = find(store)
    scores = tuple(replace(score, value=1.0) for score in record.scores)

    def copy_gold(predictions: dict[str, FloatArray]) -> None:
        for values in predictions.values():
            values[ITEMS:] = values[:ITEMS]

    change_predictions(store, record, copy_gold, scores)
    assert "gold" in str(recompute_scores(store, store.records(), None)[record.place].error)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.pop("U"),
        lambda p: p.update(V=p["T"]),
        lambda p: p.update(T=p["T"][:-1]),
        lambda p: p.update(T=p["T"][:0]),
        lambda p: p.update(T=np.concatenate([p["T"], p["T"]])),
        lambda p: p.update(T=np.concatenate([np.ones(ITEMS, np.float32), p["T"][ITEMS:]])),
    ],
)
def test_damaged_arrays_are_found(tmp_path: Path, change: Change) -> None:
    store = import_items(tmp_path)
    record = change_predictions(store, find(store), change)
    assert recompute_scores(store, [record], None)[record.place].error is not None


@pytest.mark.parametrize(
    "facts",
    [
        {"metric": "accuracy"},
        {"metric": "f1"},
        {"metric": 3},
        {"items": 39},
        {"items_sha256": "0" * 64},
        {"items_sha256": None},
        {"groups": "0 1"},
        {"groups": " ".join("0" * ITEMS)},
        {"classes": ["a"]},
        {"classes": [[1]]},
        {"first_id": 7},
        {"item_ids": "a\nb"},
        {"item_ids": "\n".join("a" * ITEMS)},
        {"sha256": "0" * 64},
    ],
)
def test_changed_facts_of_a_task_are_found(tmp_path: Path, facts: dict[str, Any]) -> None:
    store = import_items(tmp_path)
    record = find(store)
    forge(store.path(record.place), lambda data: data["tasks"]["T"].update(facts))
    again = find(store)
    assert recompute_scores(store, [again], None)[again.place].error is not None
    assert verify_records(store.root, VerifySettings())[0].findings


def test_a_record_of_items_needs_its_predictions(tmp_path: Path) -> None:
    store = import_items(tmp_path)
    record = find(store)
    store.write(record.place, replace(record, predictions=None), None)
    verified, _ = verify_records(store.root, VerifySettings())
    assert [finding.check for finding in verified.findings] == ["predictions"]


def test_scores_without_predictions_are_kept_unchecked(tmp_path: Path) -> None:
    store = import_scores(tmp_path)
    records = store.records()
    outcomes = recompute_scores(store, records, None)
    assert [(o.error, o.reason) for o in outcomes.values()] == [(None, PUBLISHED)] * 2
    verified, sound = verify_records(store.root, VerifySettings())
    assert (verified.findings, len(sound), verified.scores) == ([], 2, 0)
    assert set(verified.unscored.values()) == {PUBLISHED}
    check = rescore_record(records[0], load_record_tasks(records[0], None), {})
    assert (check.wrong, check.checked, len(check.unchecked)) == ((), 0, 3)
    for use in (lambda: draw(store), lambda: load_sound_predictions(store, records[0], None)):
        with pytest.raises(BenchError, match="predictions"):
            use()


def test_predictions_next_to_published_scores_are_found(tmp_path: Path) -> None:
    store = import_scores(tmp_path)
    record = find(store, seed=None)
    made_up = {task: np.ones(8, np.float32) for task in record.tasks}
    store.write(record.place, record, made_up)
    again = find(store, seed=None)
    assert recompute_scores(store, [again], None)[again.place].error is not None


def test_a_changed_average_of_published_scores_is_found(tmp_path: Path) -> None:
    store = import_scores(tmp_path)

    def change(data: dict[str, Any]) -> None:
        data["scores"][-1]["value"] += 0.01

    forge(store.path(find(store, seed=None).place), change)
    assert [f.check for f in verify_records(store.root, VerifySettings())[0].findings] == ["average"]


@pytest.mark.parametrize("metric", ["spearman", "pearson", "accuracy"])
def test_items_are_drawn_one_by_one(tmp_path: Path, metric: str) -> None:
    store = import_items(tmp_path, metric)
    drawn = draw(store)
    assert [one.values.shape for one in drawn] == [(DRAWS, 2)] * 4
    summary = drawn[0].summary
    assert (summary.clusters, summary.items, summary.shared, summary.known) == (
        2 * ITEMS,
        2 * ITEMS,
        False,
        False,
    )
    for record, one in zip(store.records(), drawn, strict=True):
        scores = np.array([record.score(task) for task in "TU"])
        assert (np.abs(one.values.mean(0) - scores) < 0.1).all()
        assert (one.values.std(0) > 0.01).all()


def test_items_of_a_group_are_drawn_together(tmp_path: Path) -> None:
    drawn = draw(import_items(tmp_path, groups=True))
    summary = drawn[0].summary
    assert (summary.clusters, summary.items, summary.known) == (ITEMS // 2, 2 * ITEMS, True)
    assert [linked.tasks for linked in summary.linked] == [("T", "U")]  # both tasks have groups 0 to 19


def test_groups_make_intervals_wider(tmp_path: Path) -> None:
    """Twice the same items are half the information, which groups tell and single items don't."""
    rng = np.random.default_rng(3)
    values = [(value, value + rng.normal()) for value in rng.random(60)]
    spread = {}
    for name in ("", ",group"):
        lines = [f"method,task,item,gold,prediction{name}"]
        for item in range(120):
            gold, predicted = values[item // 2]
            lines.append(f"A,T,{item},{gold},{predicted}" + (f",{item // 2}" if name else ""))
        folder = tmp_path / (name or "plain").strip(",")
        folder.mkdir()
        file = folder / "twice.csv"
        file.write_text("\n".join(lines))
        store = write_records(folder, read_item_table(file, metric="spearman"))
        spread[name] = float(draw(store)[0].values.std())
    assert spread[",group"] / spread[""] == pytest.approx(2**0.5, rel=0.25)


@pytest.mark.parametrize("metric", ["spearman", "pearson", "accuracy"])
@pytest.mark.parametrize("groups", [False, True])
def test_statistics_of_one_draw_are_the_scores_of_its_items(
    tmp_path: Path, metric: str, groups: bool
) -> None:
    store = import_items(tmp_path, metric, groups=groups)
    record = find(store)
    task = load_record_tasks(record, None)["T"]
    rows = np.stack([store.predictions(r)["T"] for r in store.records()])
    (statistic,) = measure_of(record.suite).item_statistics(task, rows, record)
    counts = np.random.default_rng(1).multinomial(ITEMS, np.full(ITEMS, 1 / ITEMS), size=3)
    scores = statistic(counts)
    for number, count in enumerate(counts):
        for column, row in enumerate(rows):
            predicted, gold = np.repeat(row[:ITEMS], count), np.repeat(row[ITEMS:], count)
            expected = compute_score(metric, predicted, gold)
            assert scores[number, column] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("metric", "groups", "names"),
    [
        ("spearman", False, {"williams", "steiger"}),
        ("pearson", False, {"williams", "steiger"}),
        ("spearman", True, {"clustered"}),
        ("pearson", True, set()),
        ("accuracy", False, {"mcnemar"}),
        ("accuracy", True, {"mcnemar"}),
    ],
)
def test_two_checkpoints_are_tested_on_their_items(
    tmp_path: Path, metric: str, groups: bool, names: set[str]
) -> None:
    store = import_items(tmp_path, metric, groups=groups)
    near, far = find(store), find(store, "org/far")
    one, other = (store.predictions(record)["T"] for record in (near, far))
    measure, task = measure_of(near.suite), load_record_tasks(near, None)["T"]
    values = tuple(record.score("T") or 0.0 for record in (near, far))
    clusters = np.arange(ITEMS) // 2 if groups else None
    tests = measure.pair_tests(task, one, other, (values[0], values[1]), clusters)
    assert set(tests) == names
    assert all(test is not None and test.n == ITEMS and 0 <= test.p < 0.2 for test in tests.values())
    assert measure.pair_tests(None, one, other, (0.5, 0.4), clusters) == {}
    same = measure.pair_tests(task, one, one, (values[0], values[0]), None)
    assert all(test is None or test.p == 1 for test in same.values())


def test_gold_of_another_run_is_refused(tmp_path: Path) -> None:
    store = import_items(tmp_path)
    record = find(store)
    task = load_record_tasks(record, None)["T"]
    row = store.predictions(record)["T"]
    other = row.copy()
    other[ITEMS] += 1
    with pytest.raises(BenchError, match="gold"):
        measure_of(record.suite).item_statistics(task, np.stack([row, other]), record)


@pytest.mark.parametrize(("metric", "gold"), [("spearman", "\n"), ("accuracy", "c")])
def test_changed_items_are_named_by_id(tmp_path: Path, metric: str, gold: str) -> None:
    store = import_items(tmp_path, metric)
    near, far = find(store), find(store, "org/far")
    one, other = (store.predictions(record)["T"] for record in (near, far))
    task = load_record_tasks(near, None)["T"]
    changes = measure_of(near.suite).find_changes(task, one, other, near, 3)
    assert len(changes) == 3
    for change in changes:
        assert change.texts == (f"item {change.number - 1}",)  # its ids begin with 0
        assert gold in change.gold
        assert change.one != change.other


def test_ids_that_are_no_numbers_are_kept(tmp_path: Path, cli: Cli) -> None:
    """They are named item by item, leave in an export, and are no part of the identity."""
    rows = write_items(tmp_path, "spearman").read_text().splitlines()
    file = tmp_path / "named.csv"
    lines = [rows[0]]
    for row in rows[1:]:
        method, seed, name, item, rest = row.split(",", 4)
        lines.append(f"{method},{seed},{name},part \x1b {item},{rest}")
    file.write_text("\n".join(lines))
    store = write_records(tmp_path, read_item_table(file, metric="spearman"))
    near, far = find(store), find(store, "org/far")
    task = read_imported_task("T", near.tasks["T"])
    one, other = (store.predictions(record)["T"] for record in (near, far))
    changes = measure_of(near.suite).find_changes(task, one, other, near, 3)
    ids = sorted(f"part \\x1b {number}" for number in range(ITEMS))
    assert [change.texts for change in changes] == [(f"item {ids[change.number - 1]}",) for change in changes]
    assert replace(task, item_ids="").identify(one[ITEMS:]) == task.sha256
    assert cli("export", "--layout", "items", "--out", "out.csv")[0] == 0
    again = read_item_table(tmp_path / "out.csv")
    assert [run.tasks for run in again.runs] == [record.tasks for record in store.records()]


def test_a_predicted_word_that_is_no_gold(tmp_path: Path, cli: Cli) -> None:
    """Numbers of such words go on after those of the gold, and are no class of the gold's."""
    lines = ["method,task,item,gold,prediction"]
    answers = {"one": ("2", "none", "none"), "two": ("2", "1", "never")}
    for method, labels in answers.items():
        for item, (gold, label) in enumerate(zip("212", labels, strict=True)):
            lines.append(f"{method},T,{item},{gold},{label}")
    file = tmp_path / "words.csv"
    file.write_text("\n".join(lines))
    store = write_records(tmp_path, read_item_table(file, metric="accuracy"))
    one, two = (find(store, method, None) for method in answers)
    arrays = [store.predictions(record)["T"] for record in (one, two)]
    task = load_record_tasks(one, None)["T"]
    (change,) = measure_of(one.suite).find_changes(task, arrays[0], arrays[1], one, 9)
    assert (change.one, change.other, change.gold, change.number) == ("another answer", "1", "1", 2)
    assert cli("export", "--layout", "items", "--out", "out.csv")[0] == 0
    again = read_item_table(tmp_path / "out.csv").runs
    assert [run.scores[0].value for run in again] == pytest.approx([1 / 3, 2 / 3])
    assert [run.tasks for run in again] == [one.tasks, two.tasks]


def test_the_suite_is_not_run(tmp_path: Path, cli: Cli) -> None:
    suite = measure_of("imported:x")
    assert isinstance(suite, ImportedSuite)
    with pytest.raises(InputError) as refused:
        suite.load(DataSource())
    assert "bench import" in str(refused.value.hint)
    with pytest.raises(BenchError):
        suite.measure(None, [], MeasureContext("exact", "", "", tmp_path))  # type: ignore[arg-type]
    code, _, err = cli("run", "--methods", "untrained", "--suite", "imported:x", "--profile", "mini")
    assert (code, err.count("\n")) == (2, 1)
    assert "imported:x" in err


@pytest.mark.parametrize("metric", ["", "f1"])
def test_no_other_metric_is_computed(metric: str) -> None:
    values = np.arange(5, dtype=np.float32)
    with pytest.raises(ValueError, match="metric"):
        score_items(metric, values, values)
    assert ImportedTask("T", "", metric).items == 0


def test_verify_finds_nothing_wrong(tmp_path: Path) -> None:
    import_items(tmp_path, groups=True)
    store = import_scores(tmp_path)
    verified, sound = verify_records(store.root, VerifySettings())
    assert (verified.findings, len(sound)) == ([], 6)
    assert (verified.scores, len(verified.recomputed)) == (12, 4)


def test_compare_and_report(tmp_path: Path, cli: Cli) -> None:
    import_items(tmp_path, "accuracy")
    import_scores(tmp_path)
    code, out, err = cli(
        "compare", "org/near", "org/far", "--suite", "imported:made", "--format", "json", "--draws", "200"
    )
    assert (code, err) == (0, "")
    (answer,) = json.loads(out)
    assert set(answer["means"]) == {"T", "U", "avg"}
    assert "both" in {finding["speaks_for"] for finding in answer["findings"]}
    code, out, err = cli("report", "--format", "csv")
    assert (code, err) == (0, "")
    averages = {}
    for row in csv.DictReader(io.StringIO(out)):
        if row["task"] == "avg":
            averages[row["method"], row["seed"], row["suite"]] = float(row["value"])
    assert averages["org/near", "", "imported:paper"] == pytest.approx(0.757)
    assert len(averages) == 6
    code, out, err = cli("compare", "org/near", "org/far", "--suite", "imported:paper", "--show-items")
    assert code != 0
    assert "only scores were published" in err
