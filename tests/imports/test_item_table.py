"""Tables of items: scores from predictions, and rows that contradict each other."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from bench.errors import InputError
from bench.eval.imported_suite import read_imported_task
from bench.imports import item_table
from bench.imports.item_table import read_item_table
from bench.imports.published import PublishedResults, PublishedRun

HEADER = "method,seed,task,item,gold,prediction"
CLASSES = "method,task,item,gold,prediction\n"
ITEMS = 12
WORDS = f"{CLASSES}A,T,1,yes,yes\nA,T,2,no,yes\nB,T,1,yes,no\nB,T,2,no,no\n"


def make_rows(methods: str = "AB", seeds: tuple[int, ...] = (1, 2), tasks: str = "TU") -> list[str]:
    rng = np.random.default_rng(1)
    gold = {(task, item): round(float(rng.random()), 3) for task in tasks for item in range(ITEMS)}
    rows = []
    for method, seed, task, item in product(methods, seeds, tasks, range(ITEMS)):
        predicted = gold[task, item] + rng.normal() / 3
        rows.append(f"{method},{seed},{task},{item},{gold[task, item]},{predicted:.6f}")
    return rows


def read(folder: Path, text: str, name: str = "items.csv", **options: str) -> PublishedResults:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_item_table(file, **options)


def read_rows(folder: Path, rows: list[str], **options: str) -> PublishedResults:
    return read(folder, "\n".join([HEADER, *rows]) + "\n", **options)


def refuse(folder: Path, text: str, **options: str) -> InputError:
    with pytest.raises(InputError) as refused:
        read(folder, text, **options)
    assert "\n" not in str(refused.value)
    return refused.value


def array(run: PublishedRun, task: str) -> tuple[list[float], list[float]]:
    assert run.predictions is not None
    values = run.predictions[task]
    assert values.dtype == np.float32
    return values[: len(values) // 2].tolist(), values[len(values) // 2 :].tolist()


@pytest.mark.parametrize(("metric", "reference"), [("spearman", spearmanr), ("pearson", pearsonr)])
def test_correlations_are_those_of_scipy(tmp_path: Path, metric: str, reference: object) -> None:
    results = read_rows(tmp_path, make_rows(), metric=metric)
    assert [(run.method, run.seed) for run in results.runs] == [("A", 1), ("A", 2), ("B", 1), ("B", 2)]
    for run in results.runs:
        of_task = {score.task: score for score in run.scores}
        for task in "TU":
            expected = reference(*array(run, task))[0]  # type: ignore[operator]
            assert of_task[task].value == pytest.approx(expected, abs=1e-12)
            assert (of_task[task].n, of_task[task].metric) == (ITEMS, metric)
        assert of_task["avg"].value == pytest.approx((of_task["T"].value + of_task["U"].value) / 2, abs=1e-15)
        assert of_task["avg"].n == 2
    assert (results.suite, results.source["kind"], results.notes) == ("imported:items", "items", ())


def test_words_are_classes(tmp_path: Path) -> None:
    results = read(tmp_path, WORDS + "C,T,1,yes,perhaps\nC,T,2,no,Yes\n")
    assert [run.scores[0].value for run in results.runs] == [0.5, 0.5, 0]
    assert {score.metric for run in results.runs for score in run.scores} == {"accuracy"}
    assert array(results.runs[0], "T") == ([1, 1], [1, 0])
    assert array(results.runs[2], "T") == ([3, 2], [1, 0])
    assert results.runs[0].tasks["T"]["classes"] == ["no", "yes"]
    assert len(results.notes) == 2
    assert all(f"'{label}'" in results.notes[1] for label in ("Yes", "perhaps"))


def test_answers_that_are_right_or_wrong(tmp_path: Path) -> None:
    results = read(tmp_path, f"{CLASSES}A,T,1,right,right\nA,T,2,right,wrong\nA,T,3,right,wrong\n")
    assert results.runs[0].scores[0].value == pytest.approx(1 / 3)
    assert len(results.notes) == 1


def test_classes_that_are_numbers(tmp_path: Path) -> None:
    text = f"{CLASSES}A,T,1,1,1.0\nA,T,2,0,1\nA,T,3,2,2\nA,T,4,2,none\n"
    (run,) = read(tmp_path, text, metric="accuracy").runs
    assert run.scores[0].value == 0.5


def test_numbers_need_a_metric(tmp_path: Path) -> None:
    error = refuse(tmp_path, "\n".join([HEADER, *make_rows()]))
    assert [name for name in ("spearman", "pearson", "accuracy") if name not in str(error.hint)] == []
    assert refuse(tmp_path, WORDS, metric="f1").where == "--metric"


@pytest.mark.parametrize(("metric", "line"), [("", 3), ("spearman", 3), ("pearson", 3)])
def test_a_word_among_numbers(tmp_path: Path, metric: str, line: int) -> None:
    text = f"{CLASSES}A,T,1,1,1\nA,T,2,nan,0\nA,T,3,2,0\nA,T,4,3,0\n"
    assert str(refuse(tmp_path, text, metric=metric).where).endswith(f":{line}")


@pytest.mark.parametrize("prediction", ["nan", "inf", "x", "", "0,5", "1e39"])
def test_a_prediction_is_a_number(tmp_path: Path, prediction: str) -> None:
    rows = make_rows()
    rows[3] = rows[3].rpartition(",")[0] + f',"{prediction}"'
    assert str(refuse(tmp_path, "\n".join([HEADER, *rows]), metric="spearman").where).endswith(":5")


def test_the_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    rows = make_rows()
    first = read_rows(tmp_path, rows, metric="spearman").runs
    shuffled = [rows[place] for place in np.random.default_rng(2).permutation(len(rows))]
    second = {(run.method, run.seed): run for run in read_rows(tmp_path, shuffled, metric="spearman").runs}
    for run in first:
        other = second[run.method, run.seed]
        assert other.tasks == run.tasks
        assert array(other, "T") == array(run, "T")


def test_methods_of_two_files_are_comparable(tmp_path: Path) -> None:
    together = read(tmp_path, WORDS).runs
    apart = [
        *read(tmp_path, CLASSES + "".join(f"{row}\n" for row in WORDS.split("\n")[1:3]), "a.csv").runs,
        *read(tmp_path, CLASSES + "".join(f"{row}\n" for row in WORDS.split("\n")[3:5]), "b.csv").runs,
    ]
    assert [run.tasks for run in apart] == [run.tasks for run in together]


@pytest.mark.parametrize(
    ("old", "new"),
    [("T,2,no", "T,2,maybe"), ("T,2,", "T,3,"), ("T,", "V,")],
)
def test_other_items_are_another_task(tmp_path: Path, old: str, new: str) -> None:
    first = read(tmp_path, WORDS).runs[0]
    (second, _) = read(tmp_path, WORDS.replace(old, new)).runs
    hashes = {facts["sha256"] for run in (first, second) for facts in run.tasks.values()}
    assert len(hashes) == 2


def test_another_metric_is_another_task(tmp_path: Path) -> None:
    hashes = set()
    for metric in ("spearman", "pearson", "accuracy"):
        hashes.add(read_rows(tmp_path, make_rows(), metric=metric).runs[0].tasks["T"]["sha256"])
    assert len(hashes) == 3


def test_facts_describe_the_task(tmp_path: Path) -> None:
    run = read_rows(tmp_path, make_rows(), metric="spearman").runs[0]
    facts = run.tasks["T"]
    task = read_imported_task("T", facts)
    assert (task.items, task.metric, task.first_id, task.groups) == (ITEMS, "spearman", 0, "")
    assert task.identify(np.array(array(run, "T")[1], dtype=np.float32)) == facts["sha256"]
    assert task.to_facts() == facts
    assert facts["reference"] is False


@pytest.mark.parametrize(
    ("rows", "line", "facts"),
    [
        (["A,1,T,0,0.1,0.2"], 2, ("gold",)),
        (["A,1,T,0,,0.2"], 98, ("no gold",)),
        (["A,3,T,0,{gold},"], 98, ("no prediction",)),
        (["A,3,T,,{gold},1"], 98, ("no item",)),
        (["A,1,T,0,{gold},7"], 98, ("another prediction in line 2",)),
        (["a,1,T,0,{gold},7"], 98, ("'A' in line 2",)),
        (["A,1,t,0,{gold},7"], 98, ("'T' in line 2",)),
        (["A,1,avg,0,{gold},7"], 98, ("'avg'",)),
        (["A,1,x.npy,0,{gold},7"], 98, ("x.npy",)),
    ],
)
def test_rows_that_contradict_each_other(
    tmp_path: Path, rows: list[str], line: int, facts: tuple[str, ...]
) -> None:
    first = make_rows()
    gold = first[0].split(",")[4]
    text = "\n".join([HEADER, *first, *(row.format(gold=gold) for row in rows)])
    error = refuse(tmp_path, text, metric="spearman")
    assert f":{line}" in str(error.where) or f"line {line}" in error.what
    assert [fact for fact in facts if fact not in str(error)] == []


def test_gold_may_be_written_in_two_ways(tmp_path: Path) -> None:
    rows = make_rows()
    rows[-1] = rows[-1].replace(",0.", ",.", 1)
    assert len(read_rows(tmp_path, rows, metric="spearman").runs) == 4


def test_every_run_needs_the_same_items(tmp_path: Path) -> None:
    rows = make_rows()
    lost = rows.pop(-1)
    error = refuse(tmp_path, "\n".join([HEADER, *rows]), metric="spearman")
    assert lost.startswith("B,2,U,11,")
    assert [fact for fact in ("B seed 2", "'11'", " U ") if fact not in error.what] == []
    more = refuse(tmp_path, "\n".join([HEADER, *rows, "A,1,T,99,0.5,0.5"]), metric="spearman")
    assert "'99'" in more.what
    assert "line 97" in more.what


def test_a_run_that_lacks_a_task_is_left_out(tmp_path: Path) -> None:
    rows = [row for row in make_rows() if not row.startswith("B,2,U,")]
    results = read_rows(tmp_path, rows, metric="spearman")
    assert len(results.runs) == 3
    assert list(results.left_out) == ["B seed 2"]


def test_a_run_without_a_score_is_left_out(tmp_path: Path) -> None:
    rows = []
    for row in make_rows():
        rows.append(row.rpartition(",")[0] + ",0.5" if row.startswith("B,2,U,") else row)
    results = read_rows(tmp_path, rows, metric="spearman")
    assert list(results.left_out) == ["B seed 2"]
    assert "equal" in results.left_out["B seed 2"]
    assert results.table_notes == ("1 of 4 runs has no score.",)


def test_too_few_items_and_equal_gold(tmp_path: Path) -> None:
    few = "".join(f"A,T,{item},{item},{item}\n" for item in range(3))
    assert "3 items" in refuse(tmp_path, CLASSES + few, metric="spearman").what
    equal = "".join(f"A,T,{item},1,{item}\n" for item in range(9))
    assert "equal" in refuse(tmp_path, CLASSES + equal, metric="pearson").what


def test_groups_of_items(tmp_path: Path) -> None:
    header = CLASSES.replace("\n", ",group\n")
    rows = ["A,T,1,yes,yes,b", "A,T,2,no,yes,a", "A,T,3,no,no,b"]
    facts = read(tmp_path, header + "\n".join(rows)).runs[0].tasks["T"]
    assert facts["groups"] == "1 0 1"
    plain = read(tmp_path, CLASSES + "\n".join(row.rpartition(",")[0] for row in rows)).runs[0].tasks["T"]
    assert "groups" not in plain
    assert plain["sha256"] != facts["sha256"]
    assert "no group" in refuse(tmp_path, header + "\n".join([*rows, "A,T,4,no,no,"])).what
    assert "group" in refuse(tmp_path, header + "\n".join([*rows, "B,T,1,yes,no,a"])).what


@pytest.mark.parametrize(
    ("ids", "order", "first_id"),
    [
        (("10", "9", "11"), ["9", "10", "11"], 9),
        (("3", "1", "30"), ["1", "3", "30"], None),
        (("b", "a", "c"), ["a", "b", "c"], None),
        (("9" * 5000, "1", "2"), ["1", "2", "9" * 5000], None),
        (("\u00b2", "1", "2"), ["1", "2", "\u00b2"], None),
    ],
)
def test_items_in_the_order_of_their_ids(
    tmp_path: Path, ids: tuple[str, ...], order: list[str], first_id: int | None
) -> None:
    rows = [f"A,T,{item},class{order.index(item)},class0" for item in ids]
    (run,) = read(tmp_path, CLASSES + "\n".join(rows)).runs
    assert array(run, "T") == ([0, 0, 0], [0, 1, 2])
    assert run.tasks["T"].get("first_id") == first_id


@pytest.mark.parametrize(
    ("ids", "stored", "note"),
    [
        (("b 1", "a"), "a\nb 1", ""),
        (("1", "2"), None, ""),
        (("b" * 99, "a"), None, "T: its ids are longer than 100 characters"),
        (("b" * 98, "a"), f"a\n{'b' * 98}", ""),
        (('"b\nc"', "a"), None, "T: its ids have line breaks"),
    ],
)
def test_records_store_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: tuple[str, ...], stored: str | None, note: str
) -> None:
    monkeypatch.setattr(item_table, "_MOST_ID_CHARACTERS", 100)
    results = read(tmp_path, CLASSES + "\n".join(f"A,T,{item},yes,yes" for item in ids))
    assert results.runs[0].tasks["T"].get("item_ids") == stored
    assert [text for text in results.notes if "ids" in text] == [text for text in results.notes[1:] if note]
    assert note in "".join(results.notes)


def test_many_classes_have_no_names(tmp_path: Path) -> None:
    rows = [f"A,T,{item},class{item},class1" for item in range(21)]
    assert "classes" not in read(tmp_path, CLASSES + "\n".join(rows)).runs[0].tasks["T"]


@pytest.mark.parametrize(
    ("header", "fact"),
    [
        ("model,task,item,gold,prediction", "'model' to method"),
        ("method,task,doc_id,gold,prediction", "'doc_id' to item"),
        ("method,task,item,target,prediction", "'target' to gold"),
        ("method,task,item,gold,pred", "'pred' to prediction"),
        ("method,task,item,gold,prediction,groups", "group"),
    ],
)
def test_another_header(tmp_path: Path, header: str, fact: str) -> None:
    error = refuse(tmp_path, header + "\n" + ",".join("1" for _ in header.split(",")))
    assert fact in str(error)


def test_json_lines(tmp_path: Path) -> None:
    lines = []
    for item, (gold, predicted) in enumerate([(1, 0.5), (2, 0.7), (3, 0.6), (4, 0.9)]):
        lines.append(
            f'{{"method": "A", "task": "T", "item": {item}, "gold": {gold}, "prediction": {predicted}}}'
        )
    (run,) = read(tmp_path, "\n".join(lines), "items.jsonl", metric="spearman").runs
    assert run.scores[0].value == pytest.approx(0.8)


def test_long_whole_numbers_are_classes_of_their_own(tmp_path: Path) -> None:
    first = 9007199254740992  # 2^53, from which float64 merges neighbours
    lines = ["method,task,item,gold,prediction"]
    lines += [f"a,T,{item},{first + item % 4},{first + item % 4 + item % 2}" for item in range(20)]
    lines += [f"b,T,{item},{first + item % 4},{first + item % 4}.0" for item in range(20)]
    file = tmp_path / "t.csv"
    file.write_text("\n".join(lines) + "\n")
    scores = {run.method: run.scores[0].value for run in read_item_table(file, metric="accuracy").runs}
    assert scores == {"a": 0.5, "b": 1.0}
