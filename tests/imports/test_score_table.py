"""Tables of scores: what is read, what is refused with its line, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.data.imported_names import is_imported_suite
from bench.errors import InputError
from bench.imports.published import PublishedResults
from bench.imports.score_table import read_score_table

LONG = "method,seed,task,score\n"
PAPER = "method,STS12,STS13,Avg.\nBERT,21.54,32.11,26.83\nSimCSE,68.40,82.41,75.41\n"


def read(folder: Path, text: str | bytes, name: str = "table.csv", **options: str) -> PublishedResults:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_score_table(file, **options)


def refuse(folder: Path, text: str | bytes, name: str = "table.csv", **options: str) -> InputError:
    with pytest.raises(InputError) as refused:
        read(folder, text, name, **options)
    assert "\n" not in str(refused.value)
    return refused.value


def values(results: PublishedResults) -> dict[tuple[str, int | None], dict[str, float]]:
    return {(run.method, run.seed): {s.task: s.value for s in run.scores} for run in results.runs}


def test_a_row_a_score(tmp_path: Path) -> None:
    text = f"{LONG}A,1,T,0.5\nA,1,U,0.75\nA,2.0,T,0.25\nA,2.0,U,-0.25\nB,,T,0\nB,,U,1\n"
    results = read(tmp_path, text, metric="spearman")
    assert values(results) == {
        ("A", 1): {"T": 0.5, "U": 0.75, "avg": 0.625},
        ("A", 2): {"T": 0.25, "U": -0.25, "avg": 0.0},
        ("B", None): {"T": 0.0, "U": 1.0, "avg": 0.5},
    }
    assert (results.suite, results.notes, results.left_out) == ("imported:table", (), {})
    assert is_imported_suite(results.suite)
    first = results.runs[0]
    assert {score.metric for score in first.scores} == {"spearman"}
    assert [score.n for score in first.scores] == [0, 0, 2]
    assert first.predictions is None
    assert list(first.tasks) == ["T", "U"]
    assert all(facts["reference"] is False for facts in first.tasks.values())
    assert (results.source["kind"], results.source["label"]) == ("csv", "table.csv")


def test_identities_follow_suite_task_and_metric(tmp_path: Path) -> None:
    text = f"{LONG}A,1,T,0.5\nA,1,U,0.5\n"
    hashes = []
    for name, suite, metric in (
        ("a.csv", "s", ""),
        ("b.csv", "s", ""),
        ("a.csv", "r", ""),
        ("a.csv", "s", "m"),
    ):
        tasks = read(tmp_path, text, name, suite=suite, metric=metric).runs[0].tasks
        hashes.append([tasks[task]["sha256"] for task in ("T", "U")])
    assert hashes[0] == hashes[1]
    distinct = {sha256 for pair in hashes for sha256 in pair}
    assert len(distinct) == 6


def test_the_source_is_the_file_to_the_byte(tmp_path: Path) -> None:
    first = read(tmp_path, f"{LONG}A,1,T,0.5\n").source["sha256"]
    assert read(tmp_path, f"{LONG}A,1,T,0.5\n").source["sha256"] == first
    assert read(tmp_path, f"{LONG}A,1,T,0.50\n").source["sha256"] != first


def test_a_paper_table_in_points(tmp_path: Path) -> None:
    results = read(tmp_path, PAPER, scale="points", suite="simcse")
    assert results.suite == "imported:simcse"
    assert values(results)["BERT", None] == pytest.approx({"STS12": 0.2154, "STS13": 0.3211, "avg": 0.26825})
    assert [run.notes for run in results.runs] == [(), ()]
    assert list(results.runs[0].tasks) == ["STS12", "STS13"]


@pytest.mark.parametrize(
    ("printed", "noted"), [("75.41", 0), ("75.4", 0), ("75.42", 1), ("80", 1), ("75", 0)]
)
def test_a_printed_average_is_checked_within_its_rounding(tmp_path: Path, printed: str, noted: int) -> None:
    results = read(tmp_path, PAPER.replace("75.41", printed), scale="points")
    run = results.runs[1]
    assert len(run.notes) == len(results.notes) == noted
    assert run.scores[-1].value == pytest.approx(0.75405)
    assert all(printed in note and "75.405" in note for note in run.notes)


@pytest.mark.parametrize(
    "name",
    [
        *("avg", "AVG", "Average", "mean", "Avg.", "Average score", "Avg. (7)", "mean score", "avg_score"),
        *("Mean (Task)", "Macro-average", "Overall Avg.", "average over tasks", "Avg. [7 tasks]", "avg7"),
    ],
)
def test_a_row_for_the_average_is_no_task(tmp_path: Path, name: str) -> None:
    (run,) = read(tmp_path, f"{LONG}A,1,T,0.5\nA,1,U,0.7\nA,1,{name},0.9\n").runs
    assert list(run.tasks) == ["T", "U"]
    assert run.scores[-1].value == pytest.approx(0.6)
    assert len(run.notes) == 1


@pytest.mark.parametrize("name", ["meanings", "AVGO", "average_precision", "mean reversal", "(7)", "STS.avg"])
def test_other_names_are_tasks(tmp_path: Path, name: str) -> None:
    (run,) = read(tmp_path, f"{LONG}A,1,T,0.5\nA,1,{name},0.9\n").runs
    assert list(run.tasks) == ["T", name]


def test_two_columns_of_averages(tmp_path: Path) -> None:
    error = refuse(tmp_path, "method,T,Mean (Task),Mean (Type)\nA,0.5,0.5,0.6\n")
    assert (str(error.where).endswith(":1"), "Mean (Type)" in str(error.hint)) == (True, True)


@pytest.mark.parametrize(("cells", "scale"), [("0.5,110", ""), ("50,110", "points"), ("0.5,110", "unit")])
def test_a_column_beyond_the_scale_may_be_no_task(tmp_path: Path, cells: str, scale: str) -> None:
    error = refuse(tmp_path, f"method,T,params\nA,{cells}\n", scale=scale)
    assert str(error.where).endswith(":2")
    assert [fact for fact in ("110", "'params'") if fact not in str(error)] == []
    long = refuse(tmp_path, f"method,task,score\nA,T,{cells[:-4]}\nA,params,110\n", scale=scale)
    assert "the column" not in str(long)


@pytest.mark.parametrize(
    "text",
    [
        "method;seed;task;score\nA;1;T;0.5\n",
        "method\tseed\ttask\tscore\nA\t1\tT\t0.5\n",
        "\ufeffMethod, Seed ,Task,SCORE\r\nA, 1, T ,0.5\r\n",
        '"method","seed","task","score"\n"A","1","T","0.5"\n',
        "method,seed,task,score\nA,1,T,0.5\n\n\n",
        "task,score,seed,method\nT,5e-1,1,A\n",
        "method,seed,T\nA,1,0.5\n",
        "method,seed,task,score,metric\nA,1,T,0.5,score\n",
    ],
)
def test_forms_of_one_table(tmp_path: Path, text: str) -> None:
    for name in ("table.csv", "table.tsv", "table.txt", "table"):
        if name == "table.tsv" and "\t" not in text and '"' in text:
            continue
        assert values(read(tmp_path, text, name)) == {("A", 1): {"T": 0.5, "avg": 0.5}}


@pytest.mark.parametrize(
    "text",
    [
        '{"method": "A", "seed": 1, "task": "T", "score": 0.5}\n{"method": "B", "task": "T", "score": 1}\n',
        '{"method": "A", "seed": 1, "T": 0.5}\n{"method": "B", "seed": null, "T": 1}\n',
    ],
)
def test_json_lines(tmp_path: Path, text: str) -> None:
    found = values(read(tmp_path, text, "table.jsonl"))
    assert found == {("A", 1): {"T": 0.5, "avg": 0.5}, ("B", None): {"T": 1.0, "avg": 1.0}}


def test_a_separator_and_columns_without_a_meaning_are_noted(tmp_path: Path) -> None:
    results = read(tmp_path, "method;task;score;date\nA;T;0.5;today\n")
    assert len(results.notes) == 2
    assert "';'" in results.notes[0]
    assert "date" in results.notes[1]


@pytest.mark.parametrize(
    ("rows", "scale", "line", "facts"),
    [
        (("71.3", "70"), "", 2, ("71.3", "--scale points")),
        (("0.71", "71.3"), "", 3, ("71.3", "0.71 in line 2", "--scale points")),
        (("0.71", "71.3"), "unit", 3, ("71.3", "-1 to 1")),
        (("-1.2", "0.5"), "", 2, ("-1.2", "-1 to 1")),
        (("1.0000001", "1"), "", 2, ("1.0000001",)),
        (("71.3", "100.1"), "points", 3, ("100.1", "-100 to 100")),
    ],
)
def test_no_unit_is_guessed(
    tmp_path: Path, rows: tuple[str, str], scale: str, line: int, facts: tuple[str, ...]
) -> None:
    error = refuse(tmp_path, f"{LONG}A,1,T,{rows[0]}\nA,2,T,{rows[1]}\n", scale=scale)
    assert str(error.where).endswith(f"table.csv:{line}")
    assert [fact for fact in facts if fact not in str(error)] == []


def test_points_near_zero_are_noted(tmp_path: Path) -> None:
    results = read(tmp_path, f"{LONG}A,1,T,0.71\nA,2,T,71.3\nA,3,T,0\n", scale="points")
    assert [run.scores[0].value for run in results.runs] == [0.71 / 100, 71.3 / 100, 0]
    assert len(results.notes) == 1
    assert "1 of 3" in results.notes[0]
    assert "line 2" in results.notes[0]


def test_points_need_a_score_beyond_1(tmp_path: Path) -> None:
    error = refuse(tmp_path, f"{LONG}A,1,T,0.71\nA,2,T,-0.8\n", scale="points")
    assert str(error.where).endswith(":3")
    assert [fact for fact in ("-0.8", "beyond 1", "leave --scale points out") if fact not in str(error)] == []


def test_another_scale_is_named(tmp_path: Path) -> None:
    assert "points, unit" in str(refuse(tmp_path, PAPER, scale="percent"))


@pytest.mark.parametrize(
    "score", ["nan", "inf", "-inf", "", "x", "0,71", "71%", "0.5\u00b10.1", "1_0", "1e99"]
)
@pytest.mark.parametrize("scale", ["", "points"])
def test_a_score_is_a_finite_number(tmp_path: Path, score: str, scale: str) -> None:
    error = refuse(tmp_path, f'{LONG}A,1,T,0.5\nB,1,T,"{score}"\n', scale=scale)
    assert str(error.where).endswith("table.csv:3")
    assert "number" in str(error.expected)
    if score == "0,71":
        assert "0.71" in str(error.hint)


@pytest.mark.parametrize("score", [True, [0.5], {"a": 1}, "NaN"])
def test_a_json_score_is_a_number(tmp_path: Path, score: object) -> None:
    written = score if score == "NaN" else str(score).lower().replace("'", '"')
    error = refuse(tmp_path, f'{{"method": "A", "task": "T", "score": {written}}}\n', "t.jsonl")
    assert str(error.where).endswith("t.jsonl:1")


@pytest.mark.parametrize(("second", "same"), [("0.5", True), ("0.50", True), ("0.6", False)])
def test_a_score_given_twice(tmp_path: Path, second: str, same: bool) -> None:
    error = refuse(tmp_path, f"{LONG}A,1,T,0.5\nA,2,T,0.5\nA,1,T,{second}\n")
    assert str(error.where).endswith(":4")
    assert "line 2" in error.what
    assert ("same" in error.what) is same


def test_a_second_row_of_a_wide_table(tmp_path: Path) -> None:
    error = refuse(tmp_path, "method,T\nA,0.5\nB,0.5\nA,0.5\n")
    assert str(error.where).endswith(":4")
    assert len(read(tmp_path, "method,seed,T\nA,1,0.5\nA,2,0.5\n").runs) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [("SimCSE", "simcse"), ("Sim CSE", "SimCSE"), ("a-b", "a_b"), ("A 1", "A1"), ("org/A", "org/a")],
)
@pytest.mark.parametrize("column", ["method", "task"])
def test_two_spellings_of_a_name(tmp_path: Path, first: str, second: str, column: str) -> None:
    rows = [f"{name},T,0.5" if column == "method" else f"A,{name},0.5" for name in (first, second)]
    error = refuse(tmp_path, "method,task,score\n" + "\n".join(rows))
    assert str(error.where).endswith(":3")
    assert first in error.what
    assert "line 2" in error.what


def test_digits_apart_are_two_names(tmp_path: Path) -> None:
    results = read(tmp_path, "method,task,score\nlr-1-10,T,0.5\nlr-11-0,T,0.6\n")
    assert len(results.runs) == 2


@pytest.mark.parametrize("name", ["A\x07", "A\u200b", "Sim\u0421SE", "", "a" * 200, "\uff21"])
@pytest.mark.parametrize("column", ["method", "task"])
def test_a_name_is_what_it_looks_like(tmp_path: Path, name: str, column: str) -> None:
    row = f"{name},T,0.5" if column == "method" else f"A,{name},0.5"
    error = refuse(tmp_path, f"method,task,score\n{row}\n")
    assert str(error.where).endswith(":2")
    assert str(error).isprintable()


@pytest.mark.parametrize("seed", ["-1", "1.5", "one", "1e3", "9" * 30])
def test_a_seed_is_a_whole_number(tmp_path: Path, seed: str) -> None:
    assert f"'{seed}'" in refuse(tmp_path, f"{LONG}A,{seed},T,0.5\n").what


def test_a_method_with_seeds_and_without(tmp_path: Path) -> None:
    error = refuse(tmp_path, f"{LONG}A,1,T,0.5\nA,2,T,0.5\nA,,T,0.5\n")
    assert "A seed 1" in error.what
    assert "line 4" in error.what


@pytest.mark.parametrize(
    ("header", "facts"),
    [
        ("model,seed,task,score", ("'model' to method",)),
        ("method,dataset,score", ("'dataset' to task",)),
        ("method,task,value", ("'value' to score",)),
        ("method,task,scores", ("'scores' to score",)),
        ("method,seeds,task,score", ("seeds", "seed")),
        ("method,task", ("score",)),
        ("A,B,C,D", ("method",)),
    ],
)
def test_another_header(tmp_path: Path, header: str, facts: tuple[str, ...]) -> None:
    row = ",".join("1" for _ in header.split(","))
    error = refuse(tmp_path, f"{header}\n{row}\n")
    assert str(error.where).endswith("table.csv:1")
    assert [fact for fact in facts if fact not in str(error)] == []


def test_a_wide_column_that_is_no_task(tmp_path: Path) -> None:
    error = refuse(tmp_path, "method,State,T\nA,finished,0.5\n")
    assert "State" in str(error.hint)


@pytest.mark.parametrize(
    "text", ["", "\n", LONG, "method\nA\n", "method,seed\nA,1\n", f"{LONG}A,1,avg,0.5\n"]
)
def test_a_table_without_scores(tmp_path: Path, text: str) -> None:
    assert "table.csv" in str(refuse(tmp_path, text).where)


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ((LONG + "\u00e9,1,T,0.5\n").encode("latin-1"), ("table.csv:2", "iconv")),
        ((LONG + "A,1,T,0.5\n").encode("utf-16"), ("UTF-16",)),
        (b"PK\x03\x04abc", ("zip archive",)),
        (b"method,task,score\rA,T,0.5\r", ("carriage return",)),
        (b"method,task,score\nA,T,0,5\n", ("table.csv:2", "4 columns", "0.71")),
        (b'method,task,score\nA,"T,0.5\n', ("table.csv:2",)),
        (b"method,task,score\nA,T,0.5\nmethod,task,score\n", ("table.csv:3",)),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, facts: tuple[str, ...]) -> None:
    error = refuse(tmp_path, content)
    assert [fact for fact in facts if fact not in str(error)] == []


def test_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv", tmp_path / ("x" * 300), Path("a\0b")):
        with pytest.raises(InputError):
            read_score_table(path)


@pytest.mark.parametrize("cell", ["", "-", "--", "\u2013", "n/a", "N/A"])
def test_a_run_that_lacks_a_task_is_left_out(tmp_path: Path, cell: str) -> None:
    results = read(tmp_path, f"method,T,U\nA,0.5,0.6\nB,0.7,{cell}\nC,0.1,0.2\n")
    assert list(values(results)) == [("A", None), ("C", None)]
    assert list(results.left_out) == ["B"]
    assert "U" in results.left_out["B"]
    assert results.table_notes == ("1 of 3 runs lacks tasks.",)
    assert read(tmp_path, "method,T,U\nA,0.5,0.6\n").table_notes == ()


def test_seeds_are_left_out_one_by_one(tmp_path: Path) -> None:
    results = read(tmp_path, f"{LONG}A,1,T,0.5\nA,1,U,0.5\nA,2,T,0.5\n")
    assert list(values(results)) == [("A", 1)]
    assert list(results.left_out) == ["A seed 2"]


def test_a_rare_task_leaves_no_most_runs_out(tmp_path: Path) -> None:
    error = refuse(tmp_path, "method,T,Rare\nA,0.5,0.6\nB,0.7,\nC,0.1,\n")
    assert "2 of 3" in error.what
    assert "Rare" in str(error.hint)


@pytest.mark.parametrize("suite", ["a,b", "a\x07", "Sim\u0421SE", " ", "a" * 101])
def test_a_name_that_no_suite_can_have(tmp_path: Path, suite: str) -> None:
    assert refuse(tmp_path, PAPER, scale="points", suite=suite).where == "--suite"


def test_a_file_whose_name_no_suite_can_have(tmp_path: Path) -> None:
    assert "--suite NAME" in str(refuse(tmp_path, PAPER, "a,b.csv", scale="points"))
    assert read(tmp_path, PAPER, "a,b.csv", scale="points", suite="imported:x").suite == "imported:x"


def test_one_metric(tmp_path: Path) -> None:
    text = "method,task,score,metric\nA,T,0.5,acc\nB,T,0.5,acc\n"
    assert read(tmp_path, text).runs[0].scores[0].metric == "acc"
    assert str(refuse(tmp_path, text, metric="f1").where).endswith(":2")
    assert str(refuse(tmp_path, text.replace("B,T,0.5,acc", "B,T,0.5,f1")).where).endswith(":3")
    for metric in ("x_last", "a\x07"):  # a record's average of METRIC_last would be another checkpoint's
        assert refuse(tmp_path, f"{LONG}A,1,T,0.5\n", metric=metric).where == "--metric"


def test_an_exponent_beyond_all_numbers(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("method,A,B,avg\nm,0.5,0.5,0e9999\n")
    (run,) = read_score_table(file).runs
    assert run.scores[-1].value == 0.5


def test_a_column_without_any_score_is_named(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("method,A,B,C\nm,0.5,0.6,-\nk,0.4,0.3,\n")
    results = read_score_table(file)
    assert list(results.runs[0].tasks) == ["A", "B"]
    assert "columns without any score: C" in results.notes
