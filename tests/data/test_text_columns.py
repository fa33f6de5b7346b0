from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.data import lock_files, text_columns
from bench.data.corpus import make_corpus, read_corpus
from bench.data.toy_suite import make_toy_task
from bench.data.training_data import read_copy
from bench.errors import DataError, InputError
from tests.support.cli import Cli, refusal
from tests.support.messages import check_error, missing_facts, numbers_in

SENTENCES = ["A cat sleeps.", 'It "rains", now.', "Die Sonne ist heiß."]
WANTED = make_corpus("x", SENTENCES).sha256
MARKED = "quotes read as a CSV writer's"
SIMCSE = ("--methods", "simcse", "--seeds", "1", "--suite", "toy", "--dev", "toy", "--dry-run")


def json_lines(name: str = "text", **more: Any) -> str:
    return "".join(json.dumps({name: sentence, **more}) + "\n" for sentence in SENTENCES)


QUOTED = [json.dumps(sentence, ensure_ascii=False).replace('\\"', '""') for sentence in SENTENCES]


def table(header: str, rows: list[str], number: str = "1,", end: str = "\n") -> str:
    return end.join([header, *(number + row for row in rows), ""])


@pytest.mark.parametrize(
    ("name", "content", "column", "form"),
    [
        ("x.txt", "\n".join(SENTENCES), None, ""),
        ("x.text", "\n".join(SENTENCES) + "\n", None, ""),  # other endings are lines
        ("x.jsonl", json_lines(), None, "column 'text'"),
        ("x.jsonl", "\n" + json_lines("line"), None, "column 'line'"),
        ("x.jsonl", json_lines("sentence", id=1), None, "column 'sentence'"),
        ("x.jsonl", json_lines("line", text="x"), "line", "column 'line'"),
        ("x.csv", "\n".join(["text", *QUOTED]), None, "column 'text'"),
        ("x.csv", table("id,sentence", QUOTED, end="\r\n"), None, "column 'sentence'"),
        ("x.csv", table("id,line", QUOTED), "line", "column 'line'"),
        ("x.tsv", table("id\ttext", SENTENCES, "1\t"), None, "column 'text'"),
        ("x.tsv", table("id\ttext", [SENTENCES[0], *QUOTED[1:]], "1\t"), None, f"column 'text', {MARKED}"),
    ],
)
def test_any_form_has_one_fingerprint(
    tmp_path: Path, name: str, content: str, column: str | None, form: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    corpus = read_corpus(tmp_path / name, column=column)
    assert (corpus.sentences, corpus.sha256, corpus.name) == (tuple(SENTENCES), WANTED, name)
    assert corpus.form == form


def test_parquet_and_saved_data_sets_are_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"id": [1, 2, 3], "text": SENTENCES})
    table.to_parquet(tmp_path / "x.parquet")
    table.save_to_disk(tmp_path / "saved")
    for name in ("x.parquet", "saved"):
        corpus = read_corpus(tmp_path / name)
        assert (corpus.sentences, corpus.sha256, corpus.name) == (tuple(SENTENCES), WANTED, name)
        read = partial(read_corpus, tmp_path / name)
        check_error(partial(read, column="texts"), "'texts'", "one of 'id', 'text'", "did you mean 'text'?")
        check_error(partial(read, column="id"), "id is 1", where=f"{tmp_path / name}, row 1", kind=DataError)
    datasets.DatasetDict(train=table, test=table).save_to_disk(tmp_path / "both")
    check_error(partial(read_corpus, tmp_path / "both"), "both: ", "splits train, test", kind=InputError)
    file = tmp_path / "x.parquet"
    datasets.Dataset.from_dict({"text": ["a", None]}).to_parquet(file)
    check_error(partial(read_corpus, file), "missing", where=f"{file}, row 2", kind=DataError)
    file.write_bytes(b"PAR1")
    check_error(partial(read_corpus, file), "can't be read", where=file, kind=DataError)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(text_columns, "import_module", missing)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    (tmp_path / "state.json").write_text("{}")
    for library, path in (("pyarrow", tmp_path / "x.parquet"), ("datasets", tmp_path)):
        with pytest.raises(InputError, match=rf"{library} .*pip install 'cse-bench\[text\]'"):
            read_corpus(path)


OPEN = "b\n" * 10 + '"\n'


@pytest.mark.parametrize(
    ("name", "content", "column", "place", "facts"),
    [
        ("x.csv", "a,b\nc,d\n", None, "", "'a', 'b'|--text-column NAME"),
        ("x.csv", "text,sentence\nc,d\n", None, "", "'text', 'sentence'|--text-column NAME"),
        ("x.csv", "A cat sleeps.\nIt rains.\n", None, "", "'A cat sleeps.'|first row"),
        ("x.csv", "text\n", None, "", "is empty"),
        ("x.csv", 'text\n"a\n', None, ":2", "unexpected end"),
        ("x.jsonl", '{"text": "a"}\n{"texts": "b"}\n', None, ":2", "text is missing"),
        ("x.jsonl", '{"text": "a"}\n\n{"text": 4.5}\n', None, ":3", "text is 4.5"),
        ("x.jsonl", '{"text": "a"}\n{"text": "b\\u0000"}\n', None, ":2", "U+0000"),
        ("x.jsonl", '{"text": "a"}\nb\n', None, ":2", "no JSON"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', None, ":2", "not utf-8"),
        ("x.csv", "text\na\n".encode("utf-16"), None, "", "UTF-16"),
        ("x.csv", "text\na\ncaf\xe9\n".encode("latin-1"), None, ":3", "not utf-8"),
        ("x.csv", "id;text;label\n1;A cat.;x\n", "text", ":1", "one column"),
        ("x.csv", "id\ttext\n1\tA cat.\n", None, ":1", "one column"),
        ("x.csv", "id,text\n1,A cat.\n2,A dog.\n", "id", "", "a number|'1', '2'"),
        ("x.txt", "1\n2.5\n", None, "", "a number"),
        ("x.csv", "label\npos\nneg\nneg\npos\n", None, "", "a few words|'neg'"),
        ("x.csv", 'a,text\nb,c\n1,"open\nd,e\n', "text", ":3", "unexpected end"),
        ("x.jsonl", '{"text": null}\n', None, ":1", "text is missing"),
        ("x.txt", "a\nb\0\n", None, ":2", "U+0000"),
        ("x.txt", "Again.\n" * 300, None, "", "300 sentences|the same: Again."),
        ("x.txt", b"PAR1\x15\x04\x15\n\x15\nPAR1", None, "", "a Parquet file|UTF-8|.parquet"),
        ("x.txt", b"PK\x03\x04abc", None, "", "a zip archive"),
        ("x.txt", "a\nb\n".encode("utf-16"), None, "", "UTF-16"),
        ("x.txt", "ab\nc\n".encode("utf-16-be"), None, "", "UTF-16|UTF-8|iconv"),
        ("x.txt", "a\ncaf\xe9\n".encode("latin-1"), None, ":2", "not utf-8|iconv"),
        ("x.csv", "text\na\n".encode("utf-16-le"), None, "", "UTF-16|UTF-8|iconv"),
        ("x.txt", "a\nb\rc\n", None, ":2", "carriage return|LF or CRLF"),
        ("x.csv", "text\na\nb\rc\n", None, ":3", "carriage return"),
        ("x.tsv", "text\na\nb\rc\n", None, ":3", "carriage return"),
        ("x.jsonl", '{"text": "a"}\r{"text": "b"}\n', None, ":1", "carriage return"),
        ("x.json", '{"text": "a"}\n\n{"text": "b"}\n', None, "", "every line|JSON object"),
        ("x.txt", '[{"text": "a"}]', None, "", "every line|JSON object"),
        ("x.txt", '[\n  {\n    "text": "a"\n  }\n]\n', None, "", "JSON document"),
        ("x.json", '{"a": [\n"b",\n"c",\n"d",\n"e",\n"f",\n"g"]}', None, "", "JSON document"),
        ("x.csv", "sep=;\ntext\na\n", None, ":1", "spreadsheet"),
        ("x.csv", "sep=,\ntext,n\na,1\n", None, ":1", "spreadsheet"),
        ("x.csv", "text,label,\na,b,\n", None, ":1", "header|with a separator"),
        ("x.csv", "text,label\na,b\ntext,label\n", None, ":3", "names of"),
        ("x.csv", "text,label\na,b\n\ufeffc,d\n", None, ":3", "byte order mark"),
        ("x.tsv", "text\tn\n1\ta\t2\n", None, ":2", "3 columns|2 (text, n)|R's"),
        ("x.csv", 'text\n"a\n' + OPEN, None, ":2", "12 lines|at most"),
        ("x.csv", 'n,text\n"a\nb","c\n' + OPEN, "text", ":3", "12 lines"),
        ("x.txt", "0/5\n3 %\n0,5\nnan\n", None, "", "a number"),
    ],
)
def test_bad_texts_are_refused(
    tmp_path: Path, name: str, content: str | bytes, column: str | None, place: str, facts: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    check_error(lambda: read_corpus(path, column=column), *facts.split("|"), where=f"{path}{place}")


def test_a_changed_text_is_named_as_such_before_its_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("a\nb\n")
    lock_files.write_pin(path, lock_files.measure_text(path))
    assert read_corpus(path).source.endswith(hashlib.sha256(b"a\nb\n").hexdigest())
    path.write_bytes(b"a\n\xff\nc\n")
    check_error(lambda: read_corpus(path), "pinned", kind=DataError)


def test_an_empty_line_of_the_text_is_not_blamed_on_the_copy(tmp_path: Path) -> None:
    text, copy = tmp_path / "x.txt", tmp_path / "copy.txt"
    text.write_text("a\n\nb\n")
    corpus = read_corpus(text)
    assert (corpus.empty, corpus.first_empty) == (1, f"{text}:2")
    copy.write_text("A\n\nB\n")
    read = partial(read_copy, copy, corpus, where="--copy a=copy.txt")
    check_error(read, f"{text}:2", "1 empty line", kind=DataError)
    copy.write_text("A\n\n")
    check_error(read, "copy.txt:2: ", "is empty", kind=DataError)


def test_the_column_is_an_option_and_the_dry_run_counts(cli: Cli, tmp_path: Path) -> None:
    lines = [json.dumps({"id": n, "line": f"line {n} is here"}) for n in range(70)]
    odd = [json.dumps({"id": 0, "line": text}) for text in ("\u200b", "", "line 1 is here")]
    (tmp_path / "x.jsonl").write_text("\n".join([*lines, *odd]))
    run, column = ("run", *SIMCSE, "--corpus"), ("--text-column", "line")
    assert not missing_facts(refusal(cli, *run, "x.jsonl"), "'id', 'line'", "--text-column NAME")
    code, out, err = cli(*run, "x.jsonl", *column, as_is=True)
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if "column 'line'" in line]
    assert numbers_in(line.partition("column 'line'")[2]) == [72, 1, 1, 1]
    (tmp_path / "x.txt").write_text("a\nb\n")
    err = refusal(cli, *run, "x.txt", *column)
    assert not missing_facts(err, "--text-column line", "x.txt", "no columns")
    assert not missing_facts(refusal(cli, *run[:-1], *column), "--text-column line", "--corpus FILE")
    code, out, err = cli("show", "simcse", "--profile", "mini", "--corpus", "x.jsonl", *column)
    assert (code, "x.jsonl, 72 sentences" in out) == (0, True), err


def test_the_overlap_of_a_column_is_that_of_its_sentences(cli: Cli, tmp_path: Path) -> None:
    first = make_toy_task().subsets[0].first[0]
    (tmp_path / "x.jsonl").write_text(json.dumps({"id": "1", "line": first}) + "\n")
    (tmp_path / "x.txt").write_text(f"{first}\n")
    audit = ("data", "overlap", "--suite", "toy", "--format", "csv")
    column = ("--text-column", "line")
    assert cli(*audit, "x.jsonl", *column)[:2] == cli(*audit, "x.txt")[:2]
    assert "x.txt" in refusal(cli, *audit, "x.txt", *column)
    assert "--text-column NAME" in refusal(cli, *audit, "x.jsonl")


@pytest.mark.skipif(sys.platform != "linux", reason="resource counts in kilobytes there")
def test_reading_a_text_takes_less_than_twice_its_size(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with path.open("w") as stream:
        stream.writelines(f"{'a line of a text that is not short ' * 6}{n}\n" for n in range(150_000))
    code = (
        "import resource, sys, pathlib; from bench.data.corpus import read_corpus\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before = peak(); read_corpus(pathlib.Path(sys.argv[1])); print(peak() - before)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 2 * path.stat().st_size


def test_texts_that_only_begin_like_json_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    for text in ("[laughter] Yes.\nNo.\n", "{\nint x;\nreturn;\n", '{"a": 1}\nA cat.\n', "[1] A.\n[2] B.\n"):
        path.write_text(text)
        assert len(read_corpus(path).sentences) == text.count("\n")


def test_white_space_of_every_kind_is_a_blank_in_every_form(tmp_path: Path) -> None:
    """Only LF and CRLF end lines."""
    text = "a\fb\vc\u2028d\x85e\x1cf"
    for name, content in (
        ("x.txt", f"{text}\r\nz\n"),
        ("x.csv", f"text\r\n{text}\r\nz\n"),
        ("x.tsv", f"text\n{text}\nz\n"),
        ("x.jsonl", "".join(json.dumps({"text": line}, ensure_ascii=False) + "\n" for line in (text, "z"))),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
        assert read_corpus(tmp_path / name).sentences == ("a b c d e f", "z")


def test_cells_of_several_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('text\n"a\nb\nc"\nd\n')
    assert numbers_in(read_corpus(tmp_path / "x.csv").form) == [1, 3]


def test_the_overlap_counts_what_it_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("A cat.\n\nA dog.\n")
    (tmp_path / "y.csv").write_text("text,n\nA cat.,1\n,2\n")
    audit = ("data", "overlap", "--suite", "toy", "x.txt")
    code, _, err = cli(*audit, "y.csv")
    assert code == 0, err
    counts = dict(line.split(": ", 1) for line in err.splitlines() if "sentence" in line)
    assert (numbers_in(counts["x.txt"]), numbers_in(counts["y.csv"])) == ([2, 1], [1, 1])
    for content, fact in (
        (b"A cat.\rA dog.\r", "carriage return"),
        ("A cat.\n".encode("utf-16"), "UTF-16"),
        ("caf\xe9\n".encode("latin-1"), "iconv"),
    ):
        (tmp_path / "x.txt").write_bytes(content)
        assert fact in refusal(cli, *audit)
