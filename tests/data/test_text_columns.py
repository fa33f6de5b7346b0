"""Training texts: formats, columns, what is refused or counted, and memory."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.data import pins, text_columns
from bench.data.corpus import make_corpus, read_corpus
from bench.data.toy import make_toy_task
from bench.data.training_data import read_copy
from bench.errors import DataError, InputError
from tests.support.cli import Cli, refusal

SENTENCES = ["A cat sleeps.", 'It "rains", now.', "Die Sonne ist heiß."]
WANTED = make_corpus("x", SENTENCES).sha256
SIMCSE = ("--methods", "simcse", "--seeds", "1", "--suite", "toy", "--dev", "toy", "--dry-run")


def json_lines(name: str = "text", **more: Any) -> str:
    return "".join(json.dumps({name: sentence, **more}) + "\n" for sentence in SENTENCES)


QUOTED = [json.dumps(sentence, ensure_ascii=False).replace('\\"', '""') for sentence in SENTENCES]


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
        (
            "x.csv",
            "\r\n".join(["id,sentence", *(f"1,{each}" for each in QUOTED), ""]),
            None,
            "column 'sentence'",
        ),
        ("x.csv", "\n".join(["id,line", *(f"1,{each}" for each in QUOTED)]), "line", "column 'line'"),
        ("x.tsv", "\n".join(["id\ttext", *(f"1\t{each}" for each in SENTENCES)]), None, "column 'text'"),
        (
            "x.tsv",
            "\n".join(["id\ttext", "1\tA cat sleeps.", *(f"1\t{each}" for each in QUOTED[1:])]),
            None,
            "column 'text', quotes read as a CSV writer's",
        ),
    ],
)
def test_one_text_in_any_form_has_one_fingerprint(
    tmp_path: Path, name: str, content: str, column: str | None, form: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    found = read_corpus(tmp_path / name, column=column)
    assert (found.sentences, found.sha256, found.name) == (tuple(SENTENCES), WANTED, name)
    assert found.form == form


def test_parquet_and_saved_data_sets_are_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"id": [1, 2, 3], "text": SENTENCES})
    table.to_parquet(tmp_path / "x.parquet")
    table.save_to_disk(tmp_path / "saved")
    for name in ("x.parquet", "saved"):
        found = read_corpus(tmp_path / name)
        assert (found.sentences, found.sha256, found.name) == (tuple(SENTENCES), WANTED, name)
        with pytest.raises(
            InputError, match="has no column 'texts'; expected one of 'id', 'text'; did you mean"
        ):
            read_corpus(tmp_path / name, column="texts")
        with pytest.raises(DataError, match=f"{name}, row 1: id is 1, which is no text"):
            read_corpus(tmp_path / name, column="id")
    datasets.DatasetDict(train=table, test=table).save_to_disk(tmp_path / "both")
    with pytest.raises(
        InputError, match="both: this data set has the splits train, test; expected the folder"
    ):
        read_corpus(tmp_path / "both")
    datasets.Dataset.from_dict({"text": ["a", None]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet, row 2: text is missing"):
        read_corpus(tmp_path / "x.parquet")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"x\.parquet: the training text can't be read: "):
        read_corpus(tmp_path / "x.parquet")


def test_a_missing_library_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(text_columns, "import_module", missing)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"pyarrow is not installed.*pip install 'cse-bench\[text\]'"):
        read_corpus(tmp_path / "x.parquet")
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(InputError, match="datasets is not installed"):
        read_corpus(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "column", "said"),
    [
        (
            "x.csv",
            "a,b\nc,d\n",
            None,
            ": the columns are 'a', 'b'; expected --text-column NAME for one of them",
        ),
        (
            "x.csv",
            "text,sentence\nc,d\n",
            None,
            ": the columns are 'text', 'sentence'; expected --text-column NAME",
        ),
        (
            "x.csv",
            "A cat sleeps.\nIt rains.\n",
            None,
            ": the first row is 'A cat sleeps.', not the name of a col",
        ),
        ("x.csv", "text\n", None, ": the training text is empty"),
        ("x.csv", 'text\n"a\n', None, ":2: this row can't be read: unexpected end of data"),
        ("x.jsonl", '{"text": "a"}\n{"texts": "b"}\n', None, ":2: text is missing"),
        ("x.jsonl", '{"text": "a"}\n\n{"text": 4.5}\n', None, ":3: text is 4.5, which is no text"),
        (
            "x.jsonl",
            '{"text": "a"}\n{"text": "b\\u0000"}\n',
            None,
            ":2: text has the control character U+0000",
        ),
        ("x.jsonl", '{"text": "a"}\nb\n', None, ":2: no JSON"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', None, ":2: these bytes are not utf-8"),
        ("x.csv", "text\na\n".encode("utf-16"), None, ": this is UTF-16, not a text"),
        ("x.csv", "text\na\ncaf\xe9\n".encode("latin-1"), None, ":3: these bytes are not utf-8"),
        ("x.csv", "id;text;label\n1;A cat.;x\n", "text", ":1: the header is one column"),
        ("x.csv", "id\ttext\n1\tA cat.\n", None, ":1: the header is one column"),
        ("x.csv", "id,text\n1,A cat.\n2,A dog.\n", "id", ": every sentence is a number, such as '1', '2'"),
        ("x.txt", "1\n2.5\n", None, ": every sentence is a number"),
        (
            "x.csv",
            "label\npos\nneg\nneg\npos\n",
            None,
            ": every sentence is one of a few words, such as 'neg'",
        ),
        (
            "x.csv",
            'a,text\nb,c\n1,"open\nd,e\n',
            "text",
            ":3: this row can't be read: unexpected end of data",
        ),
        ("x.jsonl", '{"text": null}\n', None, ":1: text is missing"),
        ("x.txt", "a\nb\0\n", None, ":2: this line has the control character U+0000"),
        (
            "x.txt",
            "Again.\n" * 300,
            None,
            ": all 300 sentences are the same: Again.; expected sentences that",
        ),
        (
            "x.txt",
            b"PAR1\x15\x04\x15\n\x15\nPAR1",
            None,
            ": this is a Parquet file, not a text; expected UTF-8; n",
        ),
        ("x.txt", b"PK\x03\x04abc", None, ": this is a zip archive"),
        ("x.txt", "a\nb\n".encode("utf-16"), None, ": this is UTF-16, not a text"),
        ("x.txt", "ab\nc\n".encode("utf-16-be"), None, ": this is UTF-16, not a text; expected UTF-8; save"),
        ("x.txt", "a\ncaf\xe9\n".encode("latin-1"), None, ":2: these bytes are not utf-8; save it as UTF-8"),
        (
            "x.csv",
            "text\na\n".encode("utf-16-le"),
            None,
            ": this is UTF-16, not a text; expected UTF-8; save",
        ),
        ("x.txt", "a\nb\rc\n", None, ":2: a carriage return inside the line; expected line ends LF or CRLF"),
        ("x.csv", "text\na\nb\rc\n", None, ":3: a carriage return inside the line"),
        ("x.tsv", "text\na\nb\rc\n", None, ":3: a carriage return inside the line"),
        ("x.jsonl", '{"text": "a"}\r{"text": "b"}\n', None, ":1: a carriage return inside the line"),
        (
            "x.json",
            '{"text": "a"}\n\n{"text": "b"}\n',
            None,
            ": every line is a JSON object or array; expect",
        ),
        ("x.txt", '[{"text": "a"}]', None, ": every line is a JSON object or array"),
        ("x.txt", '[\n  {\n    "text": "a"\n  }\n]\n', None, ": the text is a JSON document; expected a sen"),
        ("x.json", '{"a": [\n"b",\n"c",\n"d",\n"e",\n"f",\n"g"]}', None, ": the text is a JSON document"),
        ("x.csv", "sep=;\ntext\na\n", None, ":1: this line is a spreadsheet's, which names the separator"),
        ("x.csv", "sep=,\ntext,n\na,1\n", None, ":1: this line is a spreadsheet's"),
        ("x.csv", "text,label,\na,b,\n", None, ":1: the header ends with a separator; expected a name after"),
        ("x.csv", "text,label\na,b\ntext,label\n", None, ":3: this row has the names of the columns; expect"),
        ("x.csv", "text,label\na,b\n\ufeffc,d\n", None, ":3: a byte order mark inside the file"),
        ("x.tsv", "text\tn\n1\ta\t2\n", None, ":2: 3 columns; expected 2 (text, n); R's write.table gives"),
        ("x.csv", 'text\n"a\n' + "b\n" * 10 + '"\n', None, ":2: a cell of 12 lines begins here; expected at"),
        ("x.csv", 'n,text\n"a\nb","c\n' + "d\n" * 10 + '"\n', "text", ":3: a cell of 12 lines begins here"),
        ("x.txt", "0/5\n3 %\n0,5\nnan\n", None, ": every sentence is a number"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(
    tmp_path: Path, name: str, content: str | bytes, column: str | None, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_corpus(path, column=column)
    assert str(caught.value).startswith(f"{path}{said}")


def test_a_changed_text_is_named_as_such_before_its_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("a\nb\n")
    pins.write_pin(path, pins.measure_text(path))
    assert read_corpus(path).source.endswith(hashlib.sha256(b"a\nb\n").hexdigest())
    path.write_bytes(b"a\n\xff\nc\n")
    with pytest.raises(DataError, match="this is not the text that was pinned"):
        read_corpus(path)


def test_an_empty_line_of_the_text_is_not_blamed_on_the_copy(tmp_path: Path) -> None:
    text, copy = tmp_path / "x.txt", tmp_path / "copy.txt"
    text.write_text("a\n\nb\n")
    corpus = read_corpus(text)
    assert (corpus.empty, corpus.first_empty) == (1, f"{text}:2")
    copy.write_text("A\n\nB\n")
    with pytest.raises(DataError) as caught:
        read_copy(copy, corpus, where="--copy a=copy.txt")
    assert str(caught.value).startswith(
        f"{text}:2: the training text has 1 empty line from here on, for which"
    )
    copy.write_text("A\n\n")
    with pytest.raises(DataError, match=r"copy\.txt:2: this line of the copy is empty"):
        read_copy(copy, corpus, where="--copy a=copy.txt")


def test_the_column_is_an_option_and_the_dry_run_counts(cli: Cli, tmp_path: Path) -> None:
    lines = [json.dumps({"id": n, "line": f"line {n} is here"}) for n in range(70)]
    more = [json.dumps({"id": 0, "line": text}) for text in ("\u200b", "", "line 1 is here")]
    (tmp_path / "x.jsonl").write_text("\n".join([*lines, *more]))
    run = ("run", *SIMCSE, "--corpus", "x.jsonl")
    assert "the columns are 'id', 'line'; expected --text-column NAME for one of them" in refusal(cli, *run)
    code, out, err = cli(*run, "--text-column", "line", as_is=True)
    assert code == 0, err
    assert (
        "column 'line', 72 sentences, 1 of them exact duplicates, empty lines or cells left out: 1, "
        "sentences of invisible characters alone: 1\n"
    ) in out
    (tmp_path / "x.txt").write_text("a\nb\n")
    said = refusal(cli, "run", *SIMCSE, "--corpus", "x.txt", "--text-column", "line")
    assert (
        "error: --text-column line: x.txt has no columns: it is read as a sentence a line; expected" in said
    )
    assert "--text-column line: it is of the text of --corpus; expected --corpus FILE too" in refusal(
        cli, "run", *SIMCSE, "--text-column", "line"
    )
    code, out, err = cli(
        "show", "simcse", "--profile", "mini", "--corpus", "x.jsonl", "--text-column", "line"
    )
    assert (code, "x.jsonl, 72 sentences" in out) == (0, True), err


def test_the_overlap_of_a_column_is_that_of_its_sentences(cli: Cli, tmp_path: Path) -> None:
    first = make_toy_task().subsets[0].first[0]
    (tmp_path / "x.jsonl").write_text(json.dumps({"id": "1", "line": first}) + "\n")
    (tmp_path / "x.txt").write_text(f"{first}\n")
    audit = ("data", "overlap", "--suite", "toy", "--format", "csv")
    column = ("--text-column", "line")
    assert cli(*audit, "x.jsonl", *column)[:2] == cli(*audit, "x.txt")[:2]
    assert "x.txt is read as a sentence a line" in refusal(cli, *audit, "x.txt", *column)
    assert "expected --text-column NAME" in refusal(cli, *audit, "x.jsonl")


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
    """Lines end at LF or CRLF in every form, and other breaks are blanks."""
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
    assert read_corpus(tmp_path / "x.csv").form == "column 'text', 1 cell of 3 lines"


def test_the_overlap_counts_what_it_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("A cat.\n\nA dog.\n")
    (tmp_path / "y.csv").write_text("text,n\nA cat.,1\n,2\n")
    code, _, err = cli("data", "overlap", "--suite", "toy", "x.txt", "y.csv")
    assert code == 0, err
    assert "x.txt: 2 sentences, empty lines or cells left out: 1\n" in err
    assert "y.csv: 1 sentence, empty lines or cells left out: 1\n" in err
    (tmp_path / "x.txt").write_text("A cat.\rA dog.\r")
    assert "x.txt:1: a carriage return inside" in refusal(cli, "data", "overlap", "--suite", "toy", "x.txt")
    (tmp_path / "x.txt").write_bytes("A cat.\n".encode("utf-16"))
    assert "this is UTF-16, not a text" in refusal(cli, "data", "overlap", "--suite", "toy", "x.txt")
    (tmp_path / "x.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    assert "save it as UTF-8" in refusal(cli, "data", "overlap", "--suite", "toy", "x.txt")
