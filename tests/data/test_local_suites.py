"""``local:`` suites: tasks of a TOML file and its data files, and their faults."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from bench.data.local_tasks import KINDS, read_local_suite
from bench.errors import DataError, InputError
from tests.support.messages import check_error, missing_facts, numbers_in

FILES = {
    "pairs.tsv": 'sentence1\tsentence2\tscore\na "b"\tc\t1.5\n\td\t0\n',
    "pairs.csv": '"a, ""b""",c,1.5\r\n"",d,0\r\n',
    "pairs.jsonl": '{"score": 1.5, "sentence1": "a", "sentence2": "c", "more": []}\n\n'
    '{"sentence1": "b", "sentence2": "d", "score": 0}\n',
    "train.tsv": "label\ttext\nx\tone\ny\ttwo\n",
    "test.tsv": "text\tlabel\nthree\ty\n",
    "candidates.tsv": "query\tdocument\trelevant\nq\tyes\t2\nq\tno\t0\n",
    "corpus.tsv": "id\ttext\n1\tone\n2\ttwo\n",
    "queries.tsv": "id\ttext\nq\tfirst\n",
    "qrels.tsv": "query\tdocument\trelevant\nq\t2\t1\n",
    "same.tsv": "sentence1\tsentence2\tlabel\na\tb\t1\na\tc\t0\n",
    "references.tsv": "text\tsummary\nlong\tshort\n",
    "summaries.tsv": "text\tsummary\tscore\nlong\tgood\t1\nlong\tbad\t0.5\n",
}
STS = 'type = "sts"\nfile = "pairs.tsv"'
BITEXT = 'type = "bitext"\nfile = "pairs.tsv"'
CLASSES = 'type = "classification"\ntrain = "train.tsv"\ntest = "test.tsv"'
RETRIEVAL = 'type = "retrieval"\ncorpus = "corpus.tsv"\nqueries = "queries.tsv"\nqrels = "qrels.tsv"'
CLUSTERING = 'type = "clustering"\nfile = "train.tsv"'
SAME = 'type = "pair-classification"\nfile = "same.tsv"'
SUMMARIES = 'type = "summarisation"\nreferences = "references.tsv"\nsummaries = "summaries.tsv"'
RERANKING = 'type = "reranking"\nfile = "candidates.tsv"'


def suite(folder: Path, *tasks: str, **files: str) -> Path:
    """Write a suite of these tasks with FILES, some of them replaced."""
    for name, text in (FILES | {name.replace("_", "."): text for name, text in files.items()}).items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    entries = (f'[[task]]\nname = "t{n}"\n{task}\n' for n, task in enumerate(tasks))
    (folder / "mine.toml").write_text("".join(entries))
    return folder / "mine.toml"


def test_an_editors_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    tasks = (STS, 'type = "sts"\nfile = "pairs.jsonl"', CLASSES)
    plain = read_local_suite(suite(tmp_path, *tasks))
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_local_suite(tmp_path / "mine.toml") == plain


def test_every_kind_and_format_is_read(tmp_path: Path) -> None:
    columns = 'columns = ["sentence1", "sentence2", "score"]'
    german = f'{STS.replace("tsv", "csv")}\n{columns}\nlanguage = "deu-Latn"\nsplit = "dev"'
    others = (CLASSES, RERANKING, RETRIEVAL, CLUSTERING, SAME, SUMMARIES)
    tasks = read_local_suite(suite(tmp_path, STS, german, STS.replace("tsv", "jsonl"), BITEXT, *others))
    assert {task.type for task in tasks} == KINDS.keys()
    tsv, quoted, lines, bitext, classes, candidates, retrieval, clusters, same, summaries = tasks
    assert tsv.table("file") == (('a "b"', "c", "1.5"), ("", "d", "0"))  # no quoting in .tsv
    assert (tsv.name, tsv.language, tsv.split) == ("t0", "eng-Latn", "test")
    assert quoted.table("file") == (('a, "b"', "c", "1.5"), ("", "d", "0"))
    assert (quoted.language, quoted.split) == ("deu-Latn", "dev")
    assert lines.table("file") == (("a", "c", "1.5"), ("b", "d", "0"))
    assert bitext.table("file") == (('a "b"', "c"), ("", "d"))
    assert classes.tables == (("train", (("one", "x"), ("two", "y"))), ("test", (("three", "y"),)))
    assert candidates.table("file") == (("q", "yes", "2"), ("q", "no", "0"))
    assert retrieval.table("qrels") == (("q", "2", "1"),)
    assert clusters.table("file") == (("one", "x"), ("two", "y"))
    assert same.table("file") == (("a", "b", "1"), ("a", "c", "0"))
    assert summaries.table("summaries") == (("long", "good", "1"), ("long", "bad", "0.5"))


def test_the_fingerprint_is_that_of_the_rows(tmp_path: Path) -> None:
    (task,) = read_local_suite(suite(tmp_path, STS))
    rows = [dict(zip(KINDS["sts"]["file"], row, strict=True)) for row in task.table("file")]
    same = "".join(json.dumps(row) + "\n" for row in rows)
    (again,) = read_local_suite(suite(tmp_path, STS.replace("tsv", "jsonl"), pairs_jsonl=same))
    assert again.sha256 == task.sha256
    (other,) = read_local_suite(suite(tmp_path, STS, pairs_tsv=FILES["pairs.tsv"].replace("1.5", "1.6")))
    (named,) = read_local_suite(suite(tmp_path, f'{STS}\nsplit = "dev"'))
    assert len({task.sha256, other.sha256, named.sha256}) == 3


@pytest.mark.parametrize(
    ("task", "facts"),
    [
        ('type = "st"', "type = 'st'|'sts'|one of sts"),
        ('type = "sts"', "file is missing|name, type, file"),
        (f"{STS}\nsplits = 'x'", "splits = 'x'|columns, file, language"),
        (f"{STS}\nlanguage = 'en'", "language = 'en'|eng-Latn"),
        (f"{STS}\nsplit = 'a/b'", "split = 'a/b'|letters, digits"),
        (f"{STS}\ncolumns = 'x'", "columns = 'x'|a list"),
        (f"{RETRIEVAL}\ncolumns = ['x']", "columns = ['x']|one file"),
        (f"{CLASSES}\nsplit = 'train'", "split = 'train'|another split"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, task: str, facts: str) -> None:
    path = suite(tmp_path, task)
    check_error(lambda: read_local_suite(path), *facts.split("|"), where=f"{path}, task 1", kind=InputError)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", "nothing|[[task]]"),
        ("[[task]]\nname = x\n", "not a TOML file|line 2"),
        ("[[tasks]]", "it has tasks|[[task]]"),
        ('[[task]]\nname="a"\n' + STS + '\n[[task]]\nname="a"\n' + STS, "two tasks|'a'"),
    ],
)
def test_a_wrong_suite_is_named(tmp_path: Path, text: str, facts: str) -> None:
    path = suite(tmp_path)
    path.write_text(text)
    check_error(lambda: read_local_suite(path), *facts.split("|"), where=path, kind=InputError)
    check_error(lambda: read_local_suite(tmp_path / "other.toml"), "local:", "other.toml: no such file")


LINES = STS.replace("tsv", "jsonl")
"""A task whose file is pairs.jsonl."""


@pytest.mark.parametrize(
    ("task", "file", "text", "place", "facts"),
    [
        (STS, "pairs.tsv", "sentence1\tsentence2\na\tb\n", ":1", "named score|header is sentence1"),
        (STS, "pairs.tsv", "sentence1\tsentence2\tscore  \na\tb\t1\n", ":1", r"'score\x20\x20'"),
        (STS.replace("tsv", "csv"), "pairs.csv", "sentence1;sentence2;score\n", ":1", "one column"),
        (STS, "pairs.tsv", "+a\tb\n", ":4", "2 columns|3 (sentence1"),
        (STS, "pairs.tsv", "+\na\tb\t1\n", ":4", "line is empty|a row of"),
        (STS, "pairs.tsv", "\n" + FILES["pairs.tsv"], ":1", "line is empty|names of"),
        (STS, "pairs.tsv", "+a\tb\tx\n", ":4", "score is 'x'|a number"),
        (STS, "pairs.tsv", "+a\tb\tnan\n", ":4", "score is 'nan'"),
        (STS, "pairs.tsv", "sentence1\tsentence2\tscore\na\tb\t1\n", "", "1 pair;|two pairs"),
        (STS, "pairs.tsv", FILES["pairs.tsv"].replace("1.5", "0.0"), "", "scores are equal"),
        (LINES, "pairs.jsonl", '{"a": 1}\n{\n', ":1", "sentence1 is missing"),
        (LINES, "pairs.jsonl", "\n{\n", ":2", "no JSON"),
        (LINES, "pairs.jsonl", "[1]\n", ":1", "no JSON object"),
        (LINES, "pairs.jsonl", '\n{"sentence1": "\\ud800"}', ":2", "UTF-8"),
        (LINES, "pairs.jsonl", '{"sentence1": true}\n', ":1", "sentence1 is true"),
        (STS.replace("tsv", "txt"), "pairs.txt", "a", "", "'.txt'|.tsv"),
        (CLASSES, "train.tsv", "text\tlabel\na\tx\nb\tx\n", "", "1 class|two or more"),
        (CLASSES, "test.tsv", "text\tlabel\na\tz\n", "", "label 'z'|(row 1)"),
        (CLASSES, "test.tsv", "text\tlabel\n", "", "no row"),
        (CLASSES, "train.tsv", "+x \tz\n", ":4", "label 'x '|from 'x'|train.tsv"),
        (CLASSES, "test.tsv", "text\tlabel\na\tY\n", ":2", "label 'Y'|'y' of train.tsv:3"),
        (CLUSTERING, "train.tsv", "+X\tz\n", ":4", "label 'X'|from 'x'"),
        (SAME, "same.tsv", "+a\td\t1 \n", ":4", "label '1 '|'1' of same.tsv:2"),
        (SAME, "same.tsv", "+a\0\td\t1\n", ":4", "sentence1|U+0000"),
        (SAME, "same.tsv", "+a\td\t1.0\n", ":4", "label '1.0'|from '1'"),
        (SAME, "same.tsv", "+a\td\t01\n", ":4", "label '01'|from '1'"),
        (CLUSTERING, "train.tsv", "text\tlabel\na\tcaf\xe9\nb\tcafe\u0301\n", ":3", r"label 'cafe\u0301"),
        (CLUSTERING, "train.tsv", "text\tlabel\na\tx y\nb\tx  y\n", ":3", r"label 'x\x20\x20y'"),
        (CLUSTERING, "train.tsv", "+ \tz\n", ":4", "label is empty"),
        (CLASSES, "train.tsv", "+NaN\tz\n", ":4", "label is 'NaN'|missing value"),
        (RETRIEVAL, "corpus.tsv", "+\tz\n", ":4", "id is empty"),
        (RETRIEVAL, "corpus.tsv", "id\ttext\na\tx\n2\ty\nA \tz\n", ":4", "id 'A '|from 'a'"),
        (STS, "pairs.tsv", "+a\rb\tc\t1\n", ":4", "carriage return"),
        (STS, "pairs.tsv", "+" + FILES["pairs.tsv"], ":4", "the names"),
        (BITEXT, "pairs.tsv", "sentence1\tsentence2\na\tb\n", "", "1 pair;|two pairs"),
        (RERANKING, "candidates.tsv", FILES["candidates.tsv"].replace("2", "0"), "", "query 1|candidates"),
        (RERANKING, "candidates.tsv", FILES["candidates.tsv"].replace("2", "-1"), ":2", "relevant is '-1'"),
        (RERANKING, "candidates.tsv", "+q\tyes\t0\n", "", "row 1|again"),
        (RETRIEVAL, "qrels.tsv", "+q\t2\t0\n", "", "row 1|again"),
        (RETRIEVAL, "corpus.tsv", "id\ttext\n1\ta\n1\tb\n", "", "id '1' twice"),
        (RETRIEVAL, "queries.tsv", "id\ttext\n", "", "no row"),
        (RETRIEVAL, "qrels.tsv", "+q\t3\t1\n", "", "'3' of row 2|corpus.tsv"),
        (RETRIEVAL, "qrels.tsv", FILES["qrels.tsv"].replace("\t1", "\t0"), "", "query 'q'|no relevant"),
        (CLUSTERING, "train.tsv", "text\tlabel\na\tx\n", "", "1 label|two or more"),
        (SAME, "same.tsv", FILES["same.tsv"].replace("\t1", "\t2"), "", "labels 0, 2|0 and 1"),
        (SAME, "same.tsv", FILES["same.tsv"].replace("\t0", "\t1"), "", "labels 1;|0 and 1"),
        (SUMMARIES, "summaries.tsv", "text\tsummary\tscore\nx\ty\t1\n", "", "nothing of|'long'"),
        (SUMMARIES, "references.tsv", "text\tsummary\nx\ty\n", "", "nothing of|'long'"),
        (SUMMARIES, "summaries.tsv", FILES["summaries.tsv"].replace("0.5", "1"), "", "scores are equal"),
        (SUMMARIES, "summaries.tsv", FILES["summaries.tsv"].replace("0.5", "x"), ":3", "score is 'x'"),
    ],
)
def test_damaged_data_are_refused(
    tmp_path: Path, task: str, file: str, text: str, place: str, facts: str
) -> None:
    """A text that begins with + is added to the file's own."""
    content = FILES[file] + text[1:] if text.startswith("+") else text
    path, where = suite(tmp_path, task, **{file: content}), f"{tmp_path / file}{place}"
    check_error(lambda: read_local_suite(path), *facts.split("|"), where=where, kind=DataError)


def test_missing_and_undecodable_files(tmp_path: Path) -> None:
    path = suite(tmp_path, STS)
    file = tmp_path / "pairs.tsv"
    file.write_bytes(b"sentence1\tsentence2\tscore\n\xff\tb\t1\n")
    check_error(lambda: read_local_suite(path), "utf-8", where=f"{file}:2", kind=DataError)
    file.unlink()
    check_error(lambda: read_local_suite(path), "No such file", where=file, kind=DataError)


def test_a_task_counts_its_rows_and_what_is_odd_about_them(tmp_path: Path) -> None:
    rows = "sentence1\tsentence2\tscore\na\t\t1\na\t\t1\n\u200b\tb\t2\n"
    sts, classes = read_local_suite(suite(tmp_path, STS, CLASSES, pairs_tsv=rows))
    assert numbers_in(sts.described()) == [3, 1, 2, 1]
    assert not missing_facts(sts.described(), "repeated rows: 1", "empty texts: 2")
    assert classes.described() == "train: 2, test: 1, classes: 2"


def test_columns_for_a_file_with_a_header_are_refused(tmp_path: Path) -> None:
    columns = 'columns = ["sentence1", "sentence2", "score"]'
    header = FILES["pairs.tsv"]
    for task, files, facts in (
        (STS, {"pairs.tsv": header.replace("score", "Score ")}, ("names of", "columns = [...]")),
        (BITEXT, {"pairs.tsv": header}, ("names of",)),
        (BITEXT.replace("tsv", "csv"), {"pairs.csv": "sep=,\na,b\nc,d\n"}, ("spreadsheet",)),
    ):
        named = columns if "pairs.tsv" in files else columns.replace(', "score"', "")
        path = suite(tmp_path, f"{task}\n{named}", **files)
        check_error(partial(read_local_suite, path), f"{next(iter(files))}:1", *facts, kind=DataError)


def test_equal_targets_and_cells_of_several_lines_are_counted(tmp_path: Path) -> None:
    (task,) = read_local_suite(suite(tmp_path, BITEXT, pairs_tsv="sentence1\tsentence2\na\tx\nb\tx\nc\ty\n"))
    assert numbers_in(task.described().replace("sentence2", "")) == [3, 2]
    text = 'sentence1,sentence2,score\n"a\nb",c,1\nd,e,2\n'
    (task,) = read_local_suite(suite(tmp_path, STS.replace("tsv", "csv"), pairs_csv=text))
    assert numbers_in(task.described()) == [2, 1, 2]
