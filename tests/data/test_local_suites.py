"""``local:`` suites: what a TOML file and its data files give, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.data.local_tasks import KINDS, read_local_suite
from bench.errors import DataError, InputError

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
    """Write a suite of these tasks beside the files above, some of them replaced."""
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
    tasks = read_local_suite(
        suite(
            tmp_path,
            STS,
            f'type = "sts"\nfile = "pairs.csv"\n{columns}\nlanguage = "deu-Latn"\nsplit = "dev"',
            'type = "sts"\nfile = "pairs.jsonl"',
            'type = "bitext"\nfile = "pairs.tsv"',
            CLASSES,
            RERANKING,
            RETRIEVAL,
            CLUSTERING,
            SAME,
            SUMMARIES,
        )
    )
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
    ("task", "said"),
    [
        ('type = "st"', "mine.toml, task 1: type = 'st' .did you mean 'sts'.*; expected one of sts, "),
        ('type = "sts"', "mine.toml, task 1: file is missing; expected name, type, file"),
        (
            f"{STS}\nsplits = 'x'",
            "splits = 'x'; expected texts for columns, file, language, name, split, type",
        ),
        (f"{STS}\nlanguage = 'en'", "language = 'en'; expected such as eng-Latn"),
        (f"{STS}\nsplit = 'a/b'", "split = 'a/b'; expected letters, digits"),
        (f"{STS}\ncolumns = 'x'", "columns = 'x'; expected a list"),
        (f"{RETRIEVAL}\ncolumns = ['x']", "columns = .*; expected a list, for a task of one file"),
        (f"{CLASSES}\nsplit = 'train'", "split = 'train'; expected the name of another split"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, task: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_local_suite(suite(tmp_path, task))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has nothing; expected \\[\\[task\\]\\] alone"),
        ("[[task]]\nname = x\n", "this is not a TOML file: .*line 2"),
        ("[[tasks]]", "it has tasks; expected"),
        ('[[task]]\nname="a"\n' + STS + '\n[[task]]\nname="a"\n' + STS, "two tasks are called 'a'"),
    ],
)
def test_a_wrong_suite_is_named(tmp_path: Path, text: str, said: str) -> None:
    suite(tmp_path)
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError, match=f"mine.toml: {said}"):
        read_local_suite(tmp_path / "mine.toml")
    with pytest.raises(InputError, match=r"local:.*other\.toml: no such file; expected a TOML file"):
        read_local_suite(tmp_path / "other.toml")


@pytest.mark.parametrize(
    ("task", "file", "text", "said"),
    [
        (STS, "pairs.tsv", "sentence1\tsentence2\na\tb\n", ":1: no column is named score; the header is se"),
        (STS, "pairs.tsv", "sentence1\tsentence2\tscore  \na\tb\t1\n", r"'score\\x20\\x20'; exp"),
        (STS.replace("tsv", "csv"), "pairs.csv", "sentence1;sentence2;score\n", ":1: the header is one col"),
        (STS, "pairs.tsv", FILES["pairs.tsv"] + "a\tb\n", ":4: 2 columns; expected 3 .sentence1"),
        (STS, "pairs.tsv", FILES["pairs.tsv"] + "\na\tb\t1\n", ":4: this line is empty; expected a row"),
        (STS, "pairs.tsv", "\n" + FILES["pairs.tsv"], ":1: this line is empty; expected the names of"),
        (STS, "pairs.tsv", FILES["pairs.tsv"] + "a\tb\tx\n", ":4: score is 'x'; expected a number"),
        (STS, "pairs.tsv", FILES["pairs.tsv"] + "a\tb\tnan\n", ":4: score is 'nan'"),
        (STS, "pairs.tsv", "sentence1\tsentence2\tscore\na\tb\t1\n", ": 1 pair; expected two pairs or more"),
        (STS, "pairs.tsv", FILES["pairs.tsv"].replace("1.5", "0.0"), ": all scores are equal"),
        (STS.replace("tsv", "jsonl"), "pairs.jsonl", '{"a": 1}\n{\n', ":1: column sentence1 is missing; th"),
        (STS.replace("tsv", "jsonl"), "pairs.jsonl", "\n{\n", ":2: no JSON"),
        (STS.replace("tsv", "jsonl"), "pairs.jsonl", "[1]\n", ":1: no JSON object"),
        (STS.replace("tsv", "jsonl"), "pairs.jsonl", '\n{"sentence1": "\\ud800"}', ":2: this can't be writ"),
        (STS.replace("tsv", "jsonl"), "pairs.jsonl", '{"sentence1": true}\n', ":1: sentence1 is true, neit"),
        (STS.replace("tsv", "txt"), "pairs.txt", "a", ": '.txt' is not a format; expected .tsv"),
        (CLASSES, "train.tsv", "text\tlabel\na\tx\nb\tx\n", "train.tsv: 1 class.es.; expected two or more"),
        (CLASSES, "test.tsv", "text\tlabel\na\tz\n", "test.tsv: label 'z' doesn't occur in training .row 1."),
        (CLASSES, "test.tsv", "text\tlabel\n", "test.tsv: no line"),
        (CLASSES, "train.tsv", FILES["train.tsv"] + "x \tz\n", ":4: label 'x ' differs from 'x' of train"),
        (CLASSES, "test.tsv", "text\tlabel\na\tY\n", "test.tsv:2: label 'Y' differs from 'y' of train.tsv:3"),
        (CLUSTERING, "train.tsv", FILES["train.tsv"] + "X\tz\n", ":4: label 'X' differs from 'x' of tr"),
        (SAME, "same.tsv", FILES["same.tsv"] + "a\td\t1 \n", ":4: label '1 ' differs from '1' of same.tsv:2"),
        (SAME, "same.tsv", FILES["same.tsv"] + "a\0\td\t1\n", ":4: sentence1 has the control character"),
        (SAME, "same.tsv", FILES["same.tsv"] + "a\td\t1.0\n", "4: label '1.0' differs from '1' of same"),
        (SAME, "same.tsv", FILES["same.tsv"] + "a\td\t01\n", "4: label '01' differs from '1' of same"),
        (CLUSTERING, "train.tsv", "text\tlabel\na\tcaf\xe9\nb\tcafe\u0301\n", r"3: label 'cafe\\u0301"),
        (CLUSTERING, "train.tsv", "text\tlabel\na\tx y\nb\tx  y\n", r"3: label 'x\\x20\\x20y'"),
        (CLUSTERING, "train.tsv", FILES["train.tsv"] + " \tz\n", ":4: the label is empty; exp"),
        (CLASSES, "train.tsv", FILES["train.tsv"] + "NaN\tz\n", ":4: the label is 'NaN', a missing value"),
        (RETRIEVAL, "corpus.tsv", FILES["corpus.tsv"] + "\tz\n", "corpus.tsv:4: the id is empty"),
        (RETRIEVAL, "corpus.tsv", "id\ttext\na\tx\n2\ty\nA \tz\n", "4: id 'A ' differs from 'a' of"),
        (STS, "pairs.tsv", FILES["pairs.tsv"] + "a\rb\tc\t1\n", ":4: a carriage return inside the line"),
        (STS, "pairs.tsv", FILES["pairs.tsv"] + FILES["pairs.tsv"], ":4: this row has the names"),
        (BITEXT, "pairs.tsv", "sentence1\tsentence2\na\tb\n", ": 1 pair; expected two pairs or more$"),
        (RERANKING, "candidates.tsv", FILES["candidates.tsv"].replace("2", "0"), "query 1 has candidates"),
        (RERANKING, "candidates.tsv", FILES["candidates.tsv"].replace("2", "-1"), ":2: relevant is '-1'"),
        (RERANKING, "candidates.tsv", FILES["candidates.tsv"] + "q\tyes\t0\n", "document of row 1 occur ag"),
        (RETRIEVAL, "qrels.tsv", FILES["qrels.tsv"] + "q\t2\t0\n", "qrels.tsv: query and document of row 1"),
        (RETRIEVAL, "corpus.tsv", "id\ttext\n1\ta\n1\tb\n", "corpus.tsv: id '1' twice"),
        (RETRIEVAL, "queries.tsv", "id\ttext\n", "queries.tsv: no line"),
        (RETRIEVAL, "qrels.tsv", FILES["qrels.tsv"] + "q\t3\t1\n", "'3' of row 2 is not an id of corpus.tsv"),
        (RETRIEVAL, "qrels.tsv", FILES["qrels.tsv"].replace("\t1", "\t0"), "query 'q' has no relevant"),
        (CLUSTERING, "train.tsv", "text\tlabel\na\tx\n", "train.tsv: 1 label.s.; expected two or more"),
        (SAME, "same.tsv", FILES["same.tsv"].replace("\t1", "\t2"), "labels 0, 2; expected 0 and 1"),
        (SAME, "same.tsv", FILES["same.tsv"].replace("\t0", "\t1"), "labels 1; expected 0 and 1"),
        (SUMMARIES, "summaries.tsv", "text\tsummary\tscore\nx\ty\t1\n", "summaries.tsv: nothing of the text"),
        (SUMMARIES, "references.tsv", "text\tsummary\nx\ty\n", "references.tsv: nothing of the text"),
        (SUMMARIES, "summaries.tsv", FILES["summaries.tsv"].replace("0.5", "1"), ": all scores are equal"),
        (SUMMARIES, "summaries.tsv", FILES["summaries.tsv"].replace("0.5", "x"), ":3: score is 'x'"),
    ],
)  # fmt: skip
def test_damaged_data_are_named_by_file_and_line(
    tmp_path: Path, task: str, file: str, text: str, said: str
) -> None:
    with pytest.raises(DataError, match=said) as raised:
        read_local_suite(suite(tmp_path, task, **{file: text}))
    assert file in str(raised.value)


def test_missing_and_undecodable_files(tmp_path: Path) -> None:
    path = suite(tmp_path, STS)
    (tmp_path / "pairs.tsv").write_bytes(b"sentence1\tsentence2\tscore\n\xff\tb\t1\n")
    with pytest.raises(DataError, match=r"pairs\.tsv:2: these bytes are not utf-8"):
        read_local_suite(path)
    (tmp_path / "pairs.tsv").unlink()
    with pytest.raises(DataError, match=r"pairs\.tsv: this file can't be read: .*No such file"):
        read_local_suite(path)


def test_a_task_counts_its_rows_and_what_is_odd_about_them(tmp_path: Path) -> None:
    rows = "sentence1\tsentence2\tscore\na\t\t1\na\t\t1\n\u200b\tb\t2\n"
    sts, classes = read_local_suite(suite(tmp_path, STS, CLASSES, pairs_tsv=rows))
    assert sts.described() == (
        "rows: 3, repeated rows: 1, empty texts: 2, texts of invisible characters alone: 1"
    )
    assert classes.described() == "train: 2, test: 1, classes: 2"


def test_columns_for_a_file_with_a_header_are_refused(tmp_path: Path) -> None:
    columns = 'columns = ["sentence1", "sentence2", "score"]'
    path = suite(tmp_path, f"{STS}\n{columns}", pairs_tsv=FILES["pairs.tsv"].replace("score", "Score "))
    with pytest.raises(
        DataError, match=r"pairs\.tsv:1: this row has the names of the columns.*leave out col"
    ):
        read_local_suite(path)
    path = suite(tmp_path, f"{BITEXT}\n{columns}", pairs_tsv=FILES["pairs.tsv"])
    with pytest.raises(DataError, match=r"pairs\.tsv:1: this row has the names of the columns"):
        read_local_suite(path)

    columns = columns.replace(', "score"', "")
    path = suite(tmp_path, f"{BITEXT.replace('tsv', 'csv')}\n{columns}", pairs_csv="sep=,\na,b\nc,d\n")
    with pytest.raises(DataError, match=r"pairs\.csv:1: this line is a spreadsheet's"):
        read_local_suite(path)


def test_a_bitext_counts_its_equal_targets(tmp_path: Path) -> None:
    (task,) = read_local_suite(suite(tmp_path, BITEXT, pairs_tsv="sentence1\tsentence2\na\tx\nb\tx\nc\ty\n"))
    assert task.described() == "rows: 3, rows that share a sentence2: 2"


def test_cells_of_several_lines_are_counted(tmp_path: Path) -> None:
    text = 'sentence1,sentence2,score\n"a\nb",c,1\nd,e,2\n'
    (task,) = read_local_suite(suite(tmp_path, STS.replace("tsv", "csv"), pairs_csv=text))
    assert task.described() == "rows: 2, pairs.csv: 1 cell of 2 lines"
