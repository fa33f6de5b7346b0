"""The quotes of a .tsv file: a CSV writer's with a proof, otherwise text; or refused with the line."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from bench.data.corpus import read_corpus
from bench.data.delimited import QUOTED, count_quoted_cells, has_csv_quotes
from bench.data.labelled_pairs import read_pairs
from bench.data.local_tasks import read_local_pairs, read_local_suite
from bench.data.suites import read_local_task
from bench.errors import DataError
from tests.support.cli import Cli
from tests.support.messages import check_error, numbers_in

HEADER = ("sentence1", "sentence2", "score")
ROWS = [
    ('She said "yes" to him.', "She agreed.", "4.5"),
    ("A plain line.", 'The "plain" line.', "3"),
    ("It rains.", "The sun\nis hot.", "0.5"),
]
Quoting = Literal[0, 1, 2, 3]


def written(rows: Sequence[Sequence[str]], quoting: Quoting = csv.QUOTE_MINIMAL, end: str = "\n") -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter="\t", quoting=quoting, lineterminator=end).writerows(rows)
    return stream.getvalue()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("rows", "quoting"),
    [
        (ROWS, csv.QUOTE_MINIMAL),
        (ROWS[:1] + ROWS[1:2], csv.QUOTE_ALL),
        ([*ROWS[2:], ("a", "b", "1")], csv.QUOTE_MINIMAL),  # a new line and no quote
        ([("a\tb", "c", "1"), ("d", "e", "2")], csv.QUOTE_MINIMAL),
        ([("a", "b", "1"), ("c", "d", "2")], csv.QUOTE_ALL),
        ([("a", "b", 1), ("c", "d", 2)], csv.QUOTE_NONNUMERIC),
    ],
)
def test_output_of_a_csv_writer_is_read(
    tmp_path: Path, rows: list[tuple[str, ...]], quoting: Quoting, end: str
) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(written([HEADER, *rows], quoting, end), encoding="utf-8", newline="")
    name, read, form = read_local_pairs(path)
    assert (name, read) == ("pairs", tuple(tuple(map(str, row)) for row in rows))
    breaks = any("\n" in cell for row in read for cell in row)
    assert form == (f"{QUOTED}, 1 cell of 2 lines" if breaks else QUOTED)
    (tmp_path / "own.toml").write_text('[[task]]\nname = "t"\ntype = "sts"\nfile = "pairs.tsv"\n')
    (task,) = read_local_suite(tmp_path / "own.toml")
    assert (task.table("file"), task.forms) == (read, (f"pairs.tsv: {form}",))
    comma = path.with_suffix(".csv")
    comma.write_text(path.read_text().replace("\t", ","))
    if "a\tb" not in rows[0]:
        assert read_local_task(comma).sha256 == read_local_task(path).sha256


@pytest.mark.parametrize(
    "text",
    [
        "a\tb\n", 'a "b"\tc\n"d"\te\n', '"a"\tb\n', '5" wide\t6" wide\n', '""\tb\n', '""Hello""\tb\n',
        '"a\tb\nc"\td\n', 'a\tb\n"c\td"\n',  # a reader with quotes would take the last for one column
    ],
)  # fmt: skip
def test_without_a_proof_quotes_are_text(text: str) -> None:
    assert not has_csv_quotes(text, Path("x.tsv"))


@pytest.mark.parametrize(
    ("text", "line", "proof"),
    [
        ('"a ""b"""\tc\n5" wide\td\n', 2, 1),
        ('a\t5"\n\n"a ""b"""\tc\n', 1, 3),
        ('"a ""b"""\tc\n"d\te\nf\tg\n', 2, 1),  # it stays open
        ('"a ""b"""\tc\n"d\te"\nf\tg\n', 2, 1),  # the row would be too short
    ],
)
def test_quotes_of_both_kinds_are_refused_with_both_lines(text: str, line: int, proof: int) -> None:
    path = Path("x.tsv")
    check_error(lambda: has_csv_quotes(text, path), f"line {proof}", where=f"{path}:{line}", kind=DataError)


def test_pairs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text(written([("anchor", "positive"), *(row[:2] for row in ROWS)]), newline="")
    pairs = read_pairs(path)
    assert pairs.sentences == ('She said "yes" to him.', "A plain line.", "It rains.")
    assert pairs.partners == ("She agreed.", 'The "plain" line.', "The sun is hot.")
    assert pairs.form == f"{QUOTED}, 1 cell of 2 lines"
    path.write_text('"Yes", he said.\tHe "agreed".\n')
    assert read_pairs(path).sentences == ('"Yes", he said.',)
    assert QUOTED not in read_pairs(path).form


def test_the_dry_run_says_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text(written([HEADER, *ROWS]), newline="")
    (tmp_path / "own.toml").write_text('[[task]]\nname = "t"\ntype = "sts"\nfile = "dev.tsv"\n')
    texts = [(f'line "{n}" is here', f"line {n} stands here") for n in range(70)]
    (tmp_path / "own.tsv").write_text(written(texts), newline="")
    run = ("run", "--methods", "sup_simcse", "--seeds", "1", "--pairs", "own.tsv", "--dry-run")
    code, out, err = cli(*run, "--suite", "local:own.toml", "--dev", "local:dev.tsv", as_is=True)
    assert code == 0, err
    lines = [line.strip() for line in out.splitlines() if QUOTED in line]
    names = [line.split(":")[0] for line in lines]
    assert names == ["reads text pairs", "reads dev set", "reads task t"], out
    assert numbers_in(lines[2]) == [3, 1, 2]


def test_cells_in_quotes_are_counted_where_these_are_text(tmp_path: Path) -> None:
    text = '"Yes, it is."\tIt is.\nNo.\t"No, it isn\'t."\n'
    assert numbers_in(count_quoted_cells(text)) == [2]
    path = tmp_path / "own.tsv"
    path.write_text(text)
    assert read_pairs(path).form.startswith(count_quoted_cells(text))
    assert count_quoted_cells('a "b" c\td\n') == ""


@pytest.mark.parametrize("columns", [("", "", ""), ('\t"ok"', "\tTRUE", "\tNA")])
def test_output_of_r_is_read_unquoted(tmp_path: Path, columns: tuple[str, ...]) -> None:
    rows = zip(('"text"', '"A cat."', '"A dog."'), columns, strict=True)
    (tmp_path / "r.tsv").write_text("".join(f"{cell}{more}\n" for cell, more in rows))
    assert read_corpus(tmp_path / "r.tsv", column="text").sentences == ("A cat.", "A dog.")


def test_empty_lines_do_no_harm_where_they_lead_to_no_row(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,text\n1,A cat.\n\n2,A dog.\n\n")
    corpus = read_corpus(tmp_path / "x.csv", column="text")
    assert (corpus.sentences, corpus.empty) == (("A cat.", "A dog."), 2)
    (tmp_path / "p.csv").write_text("A cat.,Cats.\nA dog.,Dogs.\n\n\n")
    assert len(read_pairs(tmp_path / "p.csv").sentences) == 2
    (tmp_path / "d.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t2\n\n")
    assert read_local_task(tmp_path / "d.tsv").items == 2
