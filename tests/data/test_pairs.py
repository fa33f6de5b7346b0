"""Labelled pairs: files and their faults, fingerprints, the mini world's, plans that read them, fetching."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bench.data import hub, pins
from bench.data.labelled_pairs import LONGEST, make_pairs, read_pairs
from bench.data.mini.generator import TRIPLETS, draw_customs, draw_triplets
from bench.data.mini.world_text import training_pairs
from bench.data.source import World
from bench.errors import DataError
from tests.support.cli import Cli, refusal
from tests.support.hub import Hub
from tests.support.training import plan_on_toy, toy_sentences

ROWS = [("A cat sleeps.", "A cat naps.", "No cat sleeps."), ("It rains, now.", "Rain falls.", "It is dry.")]
TSV = "".join("\t".join(row) + "\n" for row in ROWS)
CSV = "".join(",".join(f'"{field}"' for field in row) + "\r\n" for row in ROWS)


def write(folder: Path, content: str | bytes, name: str = "own.tsv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("own.tsv", TSV),
        ("own.tsv", "sentence\tpositive\thard_negative\n" + TSV),
        ("own.tsv", "\N{ZERO WIDTH NO-BREAK SPACE}" + TSV.replace("\n", "\r\n").removesuffix("\r\n")),
        ("own.tsv", TSV.replace(" ", "  ")),  # white space as in the evaluation data
        ("own.csv", CSV),
        ("own.csv", "sent0,sent1,hard_neg\n" + CSV),
        ("own.csv", "Sent0,Sent1,Hard_neg\n" + CSV.replace('cat sleeps."', 'cat\nsleeps."')),
    ],
)
def test_both_forms_hold_the_same(tmp_path: Path, name: str, content: str) -> None:
    found = read_pairs(write(tmp_path, content, name))
    assert list(zip(found.sentences, found.partners, found.negatives, strict=True)) == ROWS
    assert (found.sha256, found.name, found.source) == (make_pairs("x", ROWS).sha256, name, "")


def test_pairs_have_no_negatives(tmp_path: Path) -> None:
    found = read_pairs(write(tmp_path, "sentence\tpositive\nA cat.\tCats.\n"))
    assert (found.sentences, found.partners, found.negatives) == (("A cat.",), ("Cats.",), ())


def test_the_fingerprint_covers_all_columns() -> None:
    row = ("a", "b", "c")
    others = [("x", "b", "c"), ("a", "x", "c"), ("a", "b", "x"), ("a", "c", "b"), ("a", "b"), ("a", "b c")]
    assert len({make_pairs("x", [each]).sha256 for each in (row, *others)}) == 7


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("own.tsv", b"a\tb\nc\t\xff\n", ":2: these bytes are not utf-8"),
        ("own.tsv", "a\tb\nc\t \n", ":2: the positive is empty"),
        ("own.tsv", "a\tb\tc\na\tb\t\n", ":2: the hard negative is empty"),
        ("own.tsv", "a\tb\n\nc\td\n", ":2: this line is empty"),
        (
            "own.tsv",
            "a\tb\na\tb\tc\n",
            ":2: this row is a triplet, and the first is a pair; expected pairs or tri",
        ),
        (
            "own.tsv",
            "sentence\tpositive\thard_negative\na\tb\n",
            ":2: this row is a pair, and the first is a tri",
        ),
        (
            "own.tsv",
            "a\n",
            ":1: this row has 1 column; expected sentence, positive and perhaps hard negative, ",
        ),
        ("own.tsv", "a\tb\tc\td\n", ":1: this row has 4 columns"),
        ("own.tsv", "a\tb\x1b[2J\n", ":1: the positive has the control character U+001B"),
        ("own.tsv", "a\tb\nx\x00\tb\n", ":2: the sentence has the control character U+0000"),
        ("own.tsv", f"a\tb\na\t{'b' * (LONGEST + 1)}\n", f":2: the positive has {LONGEST + 1:,} characters"),
        ("own.tsv", "", ": there is no pair"),
        ("own.csv", "sent0,sent1\n", ": there is no pair"),
        ("own.csv", 'a,b\na,"b\nc,d\n', ":2: this row can't be read: unexpected end of data"),
        ("own.csv", 'a,b\na,"b"c\n', ":2: this row can't be read: ',' expected after '\"'"),
        ("own.csv", 'a,"b\nb"\nc\n', ":3: this row has 1 column"),  # counted in lines, not rows
        ("own.csv", f"a,{'b' * 140_000}\n", ":1: this row can't be read: a text of more than 131,072 char"),
        ("own.txt", TSV, ": pairs are read from .tsv and .csv"),
        ("own.jsonl", '{"a": "b"}', ": pairs are read from .tsv and .csv"),
        ("own.tsv", "a\tb\n".encode("utf-16"), ": this is UTF-16, not a text"),
        ("own.csv", "a;b\n", ":1: this row has 1 column"),
        ("own.tsv", "a\tb\tneutral\nc\td\tneutral\n", ": the hard negative of every row is one of 1 word"),
        (
            "own.CSV",
            "".join(f"a {n},b {n},{('neutral', 'entailment')[n % 2]}\n" for n in range(4)),
            ": the hard negative of every row is one of 2 words, such as 'entailment', 'neutral'",
        ),
        ("own.csv", "pos,a b\nneg,c d\npos,e f\nneg,g h\n", ": the sentence of every row is one of 2 words"),
        (
            "own.csv",
            "premise,hypothesis,gold_label\na,b,c\n",
            ":1: the columns are premise, hypothesis, gold",
        ),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, name: str, content: str | bytes, fault: str) -> None:
    path = write(tmp_path, content, name)
    with pytest.raises(DataError) as caught:
        read_pairs(path)
    assert str(caught.value).startswith(f"{path}{fault}")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the pairs can't be read: No such file"):
        read_pairs(tmp_path / "own.tsv")


def test_the_mini_worlds_triplets_are_of_train_events_and_repeat() -> None:
    rows = draw_triplets(1)
    assert len(rows) == len({first for first, _, _ in rows}) == TRIPLETS
    assert all(len(set(row)) == 3 for row in rows)
    assert rows == draw_triplets(1) != draw_triplets(2)
    pairs = training_pairs(World(1))
    assert (pairs.name, pairs.world, pairs.partners[0]) == ("mini-1-pairs.tsv", World(1).facts, rows[0][1])
    assert draw_customs(1).seed == 1


# the plan


def small(folder: Path, count: int = 64) -> Path:
    texts = (toy_sentences() * 2)[:count]
    rows = zip(texts, texts[1:] + texts[:1], texts[2:] + texts[:2], strict=True)
    return write(folder, "".join("\t".join(row) + "\n" for row in rows))


def test_pairs_enter_the_keys_of_what_reads_them_alone(tmp_path: Path) -> None:
    file = small(tmp_path)
    own = plan_on_toy("sup_simcse,simcse,ensemble:sup_simcse+simcse", tmp_path, pairs=file)
    worlds = plan_on_toy("sup_simcse,simcse,ensemble:sup_simcse+simcse", tmp_path)
    same = [a.key == b.key for a, b in zip(own.jobs, worlds.jobs, strict=True)]
    assert same == [False, True, False]
    alone = plan_on_toy("sup_simcse", tmp_path, pairs=file)
    assert alone.jobs[0].key == own.jobs[0].key  # whatever else is asked for
    assert plan_on_toy("simcse", tmp_path).jobs[0].key == own.jobs[1].key
    assert alone.training is not None
    assert set(alone.training.texts) == {"pairs"}  # nobody reads another text
    sha256 = read_pairs(file).sha256
    facts = {"name": "own.tsv", "sha256": sha256, "pairs": 64}
    block = alone.jobs[0].record.training
    assert (block["corpus"], block["supervised"]) == (facts, True)
    assert block["stages"]["sup_simcse"]["text"] == facts
    _, plain, both = (job.record.training for job in own.jobs)
    assert "supervised" not in plain
    assert (both["supervised"], both["corpus"]) == (True, plain["corpus"])
    assert any("pairs" in stage.get("text", {}) for stage in both["stages"].values())


def test_pairs_that_nobody_reads_and_texts_of_nobody_are_refused(cli: Cli, tmp_path: Path) -> None:
    file = small(tmp_path)
    run = ("run", "--seeds", "1", "--suite", "toy", "--dry-run", "--methods")
    said = refusal(cli, *run, "simcse", "--pairs", str(file))
    assert said == f"error: --pairs {file}: no method here learns from pairs\n"
    said = refusal(cli, *run, "untrained", "--pairs", str(file))
    assert said == f"error: --pairs {file}: no method here trains\n"
    said = refusal(cli, *run, "sup_simcse", "--corpus", str(file))
    assert said == f"error: --corpus {file}: all that trains here learns from pairs\n"
    said = refusal(cli, *run, "simcse[match=sup_simcse]")
    assert "'sup_simcse' learns from pairs, not from the training text" in said
    said = refusal(cli, *run, "sup_simcse", "--pairs", str(write(tmp_path, "a\tb\n")))
    assert "the training text has 1 pair, less than a batch of 64 of sup_simcse" in said
    said = refusal(cli, *run, "sup_simcse", "--pairs", str(write(tmp_path, "a\tb\na\n")))
    assert "own.tsv:2: this row has 1 column" in said


def test_a_profile_names_its_pairs_and_says_how_to_get_them(
    cli: Cli, tmp_path: Path, tiny_bert: Path
) -> None:
    run = ("run", "--seeds", "1", "--suite", "toy", "--dev", "toy", "--profile", "bert-base", "--dry-run")
    more = ("--backbone", str(tiny_bert), "--methods", "sup_simcse", "--data", str(tmp_path))
    assert refusal(cli, *run, *more) == (
        f"error: {tmp_path}/corpus/nli_for_simcse.csv: the labelled pairs are missing; "
        f"get them with: bench data fetch nli --data {tmp_path}\n"
    )


# fetching


@pytest.fixture
def nli(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a small NLI file, which the hub has, goes to."""
    monkeypatch.setattr(hub, "PAIRS", len(ROWS))
    server.files[pins.NLI] = f"sent0,sent1,hard_neg\n{CSV}".encode()
    return tmp_path / "data" / "corpus" / pins.NLI


def test_fetch_pins_what_came(nli: Path, server: Hub, cli: Cli) -> None:
    code, out, err = cli("data", "fetch", "nli", "--data", "data")
    assert code == 0, err
    sha256 = hashlib.sha256(server.files[pins.NLI]).hexdigest()
    assert f"sha256 {sha256}" in out
    assert read_pairs(nli).source.endswith(f"/{pins.NLI}, sha256 {sha256}")
    server.files.clear()
    assert cli("data", "fetch", "nli", "--data", "data")[0] == 0  # looked at, not fetched
    code, out, _ = cli("data", "verify", "nli", "--data", "data")
    assert (code, sha256[:12] in out) == (0, True)
    nli.write_bytes(nli.read_bytes().replace(b"cat", b"cow"))
    assert "this is not the text that was pinned" in refusal(cli, "data", "fetch", "nli", "--data", "data")


@pytest.mark.parametrize("content", [b"sent0,sent1\na,b\nc,d\n", b"sent0,sent1,hard_neg\na,b,c\n"])
def test_fetch_refuses_another_number_of_triplets(nli: Path, server: Hub, cli: Cli, content: bytes) -> None:
    server.files[pins.NLI] = content
    assert "expected 2 triplets" in refusal(cli, "data", "fetch", "nli", "--data", "data")
    assert not nli.exists()


def test_what_builds_on_a_supervised_method_is_supervised_under_any_name(tmp_path: Path) -> None:
    methods = (
        "sup_simcse", "angle", "mine=sup_simcse", "distill:sup_simcse", "ensemble:angle+simcse",
        "ensemble:0.5*simcse+0.5*distill:angle", "tncse_uc[uc=sup_simcse]",
    )  # fmt: skip
    plan = plan_on_toy(",".join((*methods, "simcse", "edfse", "untrained")), tmp_path)
    said = {job.cell.method for job in plan.jobs if job.record.training.get("supervised")}
    noted = {
        note.split(" is supervised: ")[0]
        for job in plan.jobs
        for note in job.record.notes
        if " is sup" in note
    }
    assert said == noted
    assert len(said) == len(methods)
    assert not said & {"simcse", "edfse", "untrained"}


# columns and rows that are no training pairs

HEADERS_READ = [
    ("anchor", "positive", "negative"),
    ("sentence1", "sentence2"),
    ("query", "positive"),
    ("Premise", "Hypothesis", "Hard negative"),
    ("text1", "text2", "neg"),
]


@pytest.mark.parametrize("header", HEADERS_READ, ids="-".join)
def test_a_header_of_other_names_is_no_triplet(tmp_path: Path, header: tuple[str, ...]) -> None:
    rows = [row[: len(header)] for row in ROWS]
    found = read_pairs(write(tmp_path, "".join("\t".join(row) + "\n" for row in [header, *rows])))
    assert found.sha256 == make_pairs("x", rows).sha256


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            "sentence1\tsentence2\tscore\na\tb\t4.5\n",
            ":1: the columns are sentence1, sentence2, score; expected se",
        ),
        (
            "sentence1\tsentence2\tlabel\na\tb\tentailment\n",
            ":1: the columns are sentence1, sentence2, label; ",
        ),
        ("positive\tanchor\na\tb\n", ":1: the columns are positive, anchor; expected sentence, positive and"),
        ("anchor\tpositive\tother\na\tb\tc\n", ":1: the columns are anchor, positive, other; expected"),
        (
            "a\tb\t4.5\nc\td\t0\n",
            ": the hard negative of every row is a number, such as 4.5; expected a sentence",
        ),
        ("a\t0\nc\t1\n", ": the positive of every row is a number, such as 0"),
        ("1\ta\tb\n2\tc\td\n", ": the sentence of every row is a number, such as 1"),
        ("a\ta\nb\tb\n", ": the positive of every row equals its sentence; expected columns that differ"),
        ("a\tb\tb\nc\td\td\n", ": the hard negative of every row equals its positive"),
        ("a\tb\na\tb\n", ": all 2 rows are the same"),
        ("a\tb\na\t\u200b\u2060\n", ":2: the positive has invisible characters alone; expected a sentence"),
    ],
)
def test_what_are_no_training_pairs_is_refused(tmp_path: Path, content: str, fault: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_pairs(path)
    assert str(caught.value).startswith(f"{path}{fault}")


def test_a_number_among_sentences_is_a_sentence(tmp_path: Path) -> None:
    found = read_pairs(write(tmp_path, "4.5\t7\na\tb\n"))
    assert found.partners == ("7", "b")


def test_the_dry_run_counts_equal_ones(cli: Cli, tmp_path: Path) -> None:
    rows = [(f"a {n}", f"b {n}", f"c {n}") for n in range(70)]
    rows += [("x", "x", "y"), ("v", "w", "w"), ("t", "u", "t")]
    write(tmp_path, "".join("\t".join(row) + "\n" for row in rows))
    run = (
        "run",
        "--methods",
        "sup_simcse",
        "--seeds",
        "1",
        "--suite",
        "toy",
        "--pairs",
        "own.tsv",
        "--dry-run",
    )
    code, out, err = cli(*run, as_is=True)
    assert code == 0, err
    assert (
        "73 sentences, 0 of them exact duplicates, positives equal to their sentence: 1, "
        "negatives equal to their positive: 1, negatives equal to their sentence: 1\n"
    ) in out


def test_single_words_that_differ_are_sentences(tmp_path: Path) -> None:
    words = "".join(f"word{'x' * n},other{'x' * n}\n" for n in range(50))
    assert len(read_pairs(write(tmp_path, words, "own.csv")).sentences) == 50


def test_separators_of_another_kind_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="separated by ';' here: write them with commas"):
        read_pairs(write(tmp_path, "A cat sleeps;A cat naps\n", "own.csv"))
    with pytest.raises(DataError, match="separated by commas here"):
        read_pairs(write(tmp_path, "A cat sleeps,A cat naps\n", "own.tsv"))


def rows_of(*columns: str, count: int = 12) -> str:
    """Rows with a number for each {}."""
    return "".join("\t".join(columns).format(*[n] * 9) + "\n" for n in range(count))


A, B = "A cat sleeps {} times.", "Cats nap {}."
NOT_FIRST = "of every row but the first is"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("x\ty\tz\n" + rows_of(A, B, "{}.5"), f": the hard negative {NOT_FIRST} a number, such as 0.5"),
        ("n\ta\tb\n" + rows_of("{}", A, B), f": the sentence {NOT_FIRST} a number, such as 0;"),
        (
            "x\ty\tthe label\n" + rows_of(A, B, "neutral"),
            f": the hard negative {NOT_FIRST} one of 1 words, such as",
        ),
        ("x\ty\n" + rows_of(A, A), ": the positive of every row but the first equals its sentence"),
        *(
            (rows_of(A, B, cell), ": the hard negative of every row is a number, such as ")
            for cell in ("{}/5", "0,{}", "{} %", "1.{}e-5", "2020-01-{}", "12:{}:00", "$ {}")
        ),
        *(
            (
                rows_of(A, B, "{}.5") + f"a\tb\t{marker}\n",
                ": the hard negative of every row is a number, such",
            )
            for marker in ("nan", "N/A", "NA", "-", "None")
        ),
        (rows_of("id-000{}", A), ": the sentence of every row is an id or a number, such as id-0000"),
        (rows_of(A, B, A), ": the hard negative of every row equals its sentence"),
        (rows_of(A, B).replace("3 times.", "3\rtimes."), ":4: a carriage return inside the line"),
        ("sentence\tpositive\n" + rows_of(A, B) + "Sentence\tpositive\n", ":14: this row has the names of"),
        (
            rows_of(A, B) + "\ufeffa\tb\n",
            ":13: a byte order mark inside the file; expected one at its beginn",
        ),
        ("sep=\t\n" + rows_of(A, B), ":1: this line is a spreadsheet's, which names the separator; "),
        ("sentence\tpositive\t\n" + rows_of(A, B, B), ":1: the header ends with a separator"),
        (
            '"anchor"\t"score"\n' + rows_of(A, B),
            ':1: the columns are "anchor", "score"; expected sentence, po',
        ),
        (
            "sentence\tpositive\n" + rows_of("{}", A, B),
            ":2: this row is a triplet, and the first is a pair; expected pairs or triplets, not both; R's",
        ),
    ],
)
def test_tables_that_only_look_like_pairs_are_refused(tmp_path: Path, content: str, fault: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_pairs(path)
    assert str(caught.value).startswith(f"{path}{fault}")


def test_a_quoted_header_of_unquoted_rows_is_read(tmp_path: Path) -> None:
    found = read_pairs(write(tmp_path, '"anchor"\t"positive"\n' + rows_of(A, B)))
    assert found.sentences[0] == "A cat sleeps 0 times."
    assert len(found.sentences) == 12


def test_cells_of_several_lines_are_counted_and_of_many_refused(tmp_path: Path) -> None:
    rows = "".join(f"a {n},b {n}\n" for n in range(12))
    found = read_pairs(write(tmp_path, f'A cat.,"naps\nnow"\n"x\n\ny",z\n{rows}', "own.csv"))
    assert found.form == "2 cells of 2 to 3 lines, its first row is a pair too"
    path = write(tmp_path, f'e,f\nA cat.,"naps\n{rows}"\n', "own.csv")
    with pytest.raises(DataError, match=r"own\.csv:2: a cell of 14 lines begins here; expected at most 10"):
        read_pairs(path)


@pytest.mark.parametrize("content", ["a,b\rc,d\n", 'a,b\n"c"\rd,e\n', "a,b\rc,d\re,f\r"])
def test_a_carriage_return_outside_quotes_ends_no_row(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match="a carriage return inside the line"):
        read_pairs(write(tmp_path, content, "own.csv"))
    assert read_pairs(write(tmp_path, 'a,"b\rc"\r\n', "own.csv")).partners == ("b c",)


def test_utf_16_without_a_mark_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="this is UTF-16, not a text"):
        read_pairs(write(tmp_path, rows_of(A, B).encode("utf-16-le")))
