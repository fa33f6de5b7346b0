"""Labelled pairs: files, faults, fingerprints, plans and downloads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from bench.data import downloads, lock_files
from bench.data.data_source import World
from bench.data.labelled_pairs import LONGEST, make_pairs, read_pairs
from bench.data.mini.generator import TRIPLETS, draw_customs, draw_triplets
from bench.data.mini.world_text import training_pairs
from bench.errors import DataError
from bench.records.record import name_label_models
from tests.support.cli import Cli, refusal
from tests.support.hub import Hub
from tests.support.messages import check_error, missing_facts, numbers_in
from tests.support.training import plan_on_toy, toy_sentences

ROWS = [("A cat sleeps.", "A cat naps.", "No cat sleeps."), ("It rains, now.", "Rain falls.", "It is dry.")]
TSV = "".join("\t".join(row) + "\n" for row in ROWS)
CSV = "".join(",".join(f'"{field}"' for field in row) + "\r\n" for row in ROWS)
NAMES = ("sent0", "sent1", "hard_neg")
OBJECTS = "".join(f"{json.dumps(dict(zip(NAMES, row, strict=True)))}\n" for row in ROWS)


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
        ("own.jsonl", OBJECTS),
        ("own.jsonl", OBJECTS.replace('"sent0"', '"Anchor"').replace('"hard_neg"', '"negative"') + "\n"),
        ("own.JSONL", "\N{ZERO WIDTH NO-BREAK SPACE}" + OBJECTS.replace("\n", "\r\n")),
        ("own.csv", "Sent0,Sent1,Hard_neg\n" + CSV.replace('cat sleeps."', 'cat\nsleeps."')),
    ],
)
def test_both_forms_hold_the_same(tmp_path: Path, name: str, content: str) -> None:
    pairs = read_pairs(write(tmp_path, content, name))
    assert list(zip(pairs.sentences, pairs.partners, pairs.negatives, strict=True)) == ROWS
    assert (pairs.sha256, pairs.name, pairs.source) == (make_pairs("x", ROWS).sha256, name, "")


def test_the_order_of_an_objects_fields_is_free(tmp_path: Path) -> None:
    lines = "".join(f"{json.dumps({'neg': c, 'sent0': a, 'pos': b})}\n" for a, b, c in ROWS)
    pairs = read_pairs(write(tmp_path, lines, "own.jsonl"))
    assert (pairs.sha256, pairs.form) == (make_pairs("x", ROWS).sha256, "fields sent0, pos, neg")


def test_pairs_have_no_negatives(tmp_path: Path) -> None:
    pairs = read_pairs(write(tmp_path, "sentence\tpositive\nA cat.\tCats.\n"))
    assert (pairs.sentences, pairs.partners, pairs.negatives) == (("A cat.",), ("Cats.",), ())


def test_the_fingerprint_covers_all_columns() -> None:
    rows = ("abc", "xbc", "axc", "abx", "acb", "ab", ("a", "b c"))
    assert len({make_pairs("x", [tuple(row)]).sha256 for row in rows}) == 7


@pytest.mark.parametrize(
    ("name", "content", "place", "facts"),
    [
        ("own.tsv", b"a\tb\nc\t\xff\n", ":2", "not utf-8"),
        ("own.tsv", "a\tb\nc\t \n", ":2", "positive is empty"),
        ("own.tsv", "a\tb\tc\na\tb\t\n", ":2", "hard negative is empty"),
        ("own.tsv", "a\tb\n\nc\td\n", ":2", "line is empty"),
        ("own.tsv", "a\tb\na\tb\tc\n", ":2", "is a triplet|is a pair|not both"),
        ("own.tsv", "sentence\tpositive\thard_negative\na\tb\n", ":2", "is a pair|is a triplet"),
        ("own.tsv", "a\n", ":1", "1 column|expected sentence, positive"),
        ("own.tsv", "a\tb\tc\td\n", ":1", "4 columns"),
        ("own.tsv", "a\tb\x1b[2J\n", ":1", "positive|U+001B"),
        ("own.tsv", "a\tb\nx\x00\tb\n", ":2", "sentence|U+0000"),
        ("own.tsv", f"a\tb\na\t{'b' * (LONGEST + 1)}\n", ":2", f"positive|{LONGEST + 1:,} characters"),
        ("own.tsv", "", "", "no pair"),
        ("own.csv", "sent0,sent1\n", "", "no pair"),
        ("own.csv", 'a,b\na,"b\nc,d\n', ":2", "unexpected end"),
        ("own.csv", 'a,b\na,"b"c\n', ":2", "',' expected after '\"'"),
        ("own.csv", 'a,"b\nb"\nc\n', ":3", "1 column"),  # counted in lines, not rows
        ("own.csv", f"a,{'b' * 140_000}\n", ":1", "131,072 characters"),
        ("own.txt", TSV, "", ".tsv, .csv and .jsonl"),
        ("own.jsonl", '{"a": "b"}', ":1", "fields are a;|sent0|hard_neg"),
        ("own.jsonl", '{"sent0": "a", "score": 1, "sent1": "b"}', ":1", "sent0, score, sent1|--dev local:"),
        ("own.jsonl", '{"sent0": "a", "sent1": "b", "text": "c"}', ":1", "fields are sent0, sent1, text"),
        ("own.jsonl", '{"sent0": "a", "hard_neg": "b"}', ":1", "fields are sent0, hard_neg"),
        ("own.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}', ":1", "pos is ['b']|not text"),
        ("own.jsonl", '{"sent0": "a", "sent1": "b"}\n\n{"sent0": "a", "sent1": "c"}', ":2", "line is empty"),
        ("own.jsonl", f'{OBJECTS}{{"sent0": "a", "sent1": "b"}}\n', ":3", "is a pair|is a triplet"),
        ("own.jsonl", '{"sent0": "a", "sent1": " "}', ":1", "positive is empty"),
        ("own.jsonl", '["a", "b"]', ":1", "no JSON object"),
        ("own.jsonl", "", "", "no pair"),
        ("own.csv", "list_sent\n\"['a', 'b', 'c']\"\n", ":1", "ranked list|docs/data.md"),
        ("own.csv", ",sent,round\n0,a b,0\n1,b c,1\n2,c d,2\n", ":1", "sentence is empty"),
        ("own.tsv", "a\tb\n".encode("utf-16"), "", "UTF-16"),
        ("own.tsv", "A cat\tCats\n".encode("utf-16-le"), "", "UTF-16"),
        ("own.csv", "a;b\n", ":1", "1 column"),
        ("own.csv", "A cat sleeps;A cat naps\n", ":1", "';'|commas (.csv)"),
        ("own.tsv", "A cat sleeps,A cat naps\n", ":1", "separated by commas"),
        ("own.tsv", "a\tb\tneutral\nc\td\tneutral\n", "", "hard negative|1 words"),
        ("own.CSV", "".join(f"a {n},b {n},{'yn'[n % 2]}\n" for n in range(4)), "", "2 words|'n', 'y'"),
        ("own.csv", "pos,a b\nneg,c d\npos,e f\nneg,g h\n", "", "the sentence|2 words"),
        ("own.csv", "premise,hypothesis,gold_label\na,b,c\n", ":1", "premise, hypothesis, gold_label"),
    ],
)
def test_a_fault_has_its_line(
    tmp_path: Path, name: str, content: str | bytes, place: str, facts: str
) -> None:
    path = write(tmp_path, content, name)
    check_error(lambda: read_pairs(path), *facts.split("|"), where=f"{path}{place}", kind=DataError)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    check_error(lambda: read_pairs(path), "No such file", where=path, kind=DataError)


def test_the_mini_worlds_triplets_are_of_train_events_and_repeat() -> None:
    rows = draw_triplets(1)
    assert len(rows) == len({first for first, _, _ in rows}) == TRIPLETS
    assert all(len(set(row)) == 3 for row in rows)
    assert rows == draw_triplets(1) != draw_triplets(2)
    pairs = training_pairs(World(1))
    assert (pairs.name, pairs.world, pairs.partners[0]) == ("mini-1-pairs.tsv", World(1).facts, rows[0][1])
    assert draw_customs(1).seed == 1


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


def test_the_model_of_the_labels_is_a_note_and_in_no_key(cli: Cli, tmp_path: Path) -> None:
    methods = "sup_simcse,distill:sup_simcse,simcse"
    file = small(tmp_path)
    before = plan_on_toy(methods, tmp_path, pairs=file)
    write(tmp_path, "gpt-3.5-turbo\n", "own.tsv.label-model")
    after = plan_on_toy(methods, tmp_path, pairs=file)
    assert [job.key for job in before.jobs] == [job.key for job in after.jobs]
    note = "Labels by a language model (gpt-3.5-turbo): pairs own.tsv."
    assert [note in job.record.notes for job in before.jobs] == [False, False, False]
    assert [note in job.record.notes for job in after.jobs] == [True, True, False]
    named = [name_label_models(job.record) for job in after.jobs]
    assert named == [{"gpt-3.5-turbo"}, {"gpt-3.5-turbo"}, set()]
    assert not any(name_label_models(job.record) for job in before.jobs)
    run = ("--seeds", "1", "--suite", "toy", "--dry-run", "--methods", "sup_simcse", "--pairs", str(file))
    for command in (("run", *run), ("show", "sup_simcse", "--profile", "mini", "--pairs", str(file))):
        code, out, err = cli(*command)
        assert (code, out.count("labels by a language model (gpt-3.5-turbo)")) == (0, 1), err


@pytest.mark.parametrize("name", ["", " \n", "a\nb\n", "a\x1b[2J", "x" * 101, b"\xff"])
def test_an_unfit_name_of_the_model_is_refused(tmp_path: Path, name: str | bytes) -> None:
    file = write(tmp_path, TSV)
    beside = write(tmp_path, name, "own.tsv.label-model")
    check_error(lambda: read_pairs(file), where=beside, kind=DataError)
    write(tmp_path, f" {'x' * 100}\r\n", beside.name)
    assert read_pairs(file).label_model == "x" * 100


def test_a_report_names_the_model_and_a_run_counts_other_records(
    cli: Cli, tmp_path: Path, tiny_bert: Path
) -> None:
    file = str(small(tmp_path, 24))
    beside = write(tmp_path, "llm-1", "own.tsv.label-model")
    sets = [f"sup_simcse.{text}" for text in ("steps=1", "eval_every=1", "batch_size=8")]
    words = [word for text in sets for word in ("--set", text)]
    run = ("run", "--seeds", "1", "--suite", "toy", "--dev", "toy", "--methods", "sup_simcse", *words)
    run = (*run, "--pairs", file, "--backbone", str(tiny_bert))
    code, _, err = cli(*run)
    assert (code, "language model" in err) == (0, False), err
    profile = next(path.name for path in Path("results", "local").iterdir() if path.is_dir())
    report = cli("report", "--all-rows", "--profile", profile)[1]
    assert "Labels by a language model (llm-1): pairs own.tsv." in report
    beside.unlink()
    code, _, err = cli(*run, "--dry-run")
    assert (code, missing_facts(err, "1 finished record(s)", "language model", "--force")) == (0, [])


def test_who_asks_for_syncse_gets_the_command(cli: Cli) -> None:
    err = refusal(cli, "show", "SynCSE")
    assert not missing_facts(err, "'SynCSE'", "sup_simcse with --pairs FILE")


def test_unused_or_unfit_texts_are_refused(cli: Cli, tmp_path: Path) -> None:
    file = str(small(tmp_path))
    one, damaged = (str(write(tmp_path, text, f"{n}.tsv")) for n, text in enumerate(("a\tb\n", "a\tb\na\n")))
    for methods, option, path, facts in (
        ("simcse", "--pairs", file, (f"--pairs {file}", "no method", "pairs")),
        ("sup_simcse", "--corpus", file, (f"--corpus {file}", "learn from pairs")),
        ("sup_simcse", "--pairs", one, ("1 pair", "batch of 64", "sup_simcse")),
        ("sup_simcse", "--pairs", damaged, ("1.tsv:2", "1 column")),
        ("simcse[match=sup_simcse]", "--dev", "toy", ("'sup_simcse'", "from pairs")),
    ):
        run = ("run", "--seeds", "1", "--suite", "toy", "--dry-run", "--methods", methods)
        assert not missing_facts(refusal(cli, *run, option, path), *facts)


def test_missing_pairs_of_a_profile_are_named(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    run = ("run", "--seeds", "1", "--suite", "toy", "--dev", "toy", "--profile", "bert-base", "--dry-run")
    more = ("--backbone", str(tiny_bert), "--methods", "sup_simcse", "--data", str(tmp_path))
    facts = (f"{tmp_path}/corpus/nli_for_simcse.csv", "missing", f"bench data fetch nli --data {tmp_path}")
    assert not missing_facts(refusal(cli, *run, *more), *facts)


@pytest.fixture
def nli(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Target of a small NLI file of the hub."""
    monkeypatch.setattr(downloads, "PAIRS", len(ROWS))
    server.files[lock_files.NLI] = f"sent0,sent1,hard_neg\n{CSV}".encode()
    return tmp_path / "data" / "corpus" / lock_files.NLI


def test_fetch_pins_what_came(nli: Path, server: Hub, cli: Cli) -> None:
    code, out, err = cli("data", "fetch", "nli", "--data", "data")
    assert code == 0, err
    sha256 = hashlib.sha256(server.files[lock_files.NLI]).hexdigest()
    assert f"sha256 {sha256}" in out
    assert read_pairs(nli).source.endswith(f"/{lock_files.NLI}, sha256 {sha256}")
    server.files.clear()
    assert cli("data", "fetch", "nli", "--data", "data")[0] == 0  # looked at, not fetched
    code, out, _ = cli("data", "verify", "nli", "--data", "data")
    assert (code, sha256[:12] in out) == (0, True)
    nli.write_bytes(nli.read_bytes().replace(b"cat", b"cow"))
    assert "pinned" in refusal(cli, "data", "fetch", "nli", "--data", "data")


@pytest.mark.parametrize("content", [b"sent0,sent1\na,b\nc,d\n", b"sent0,sent1,hard_neg\na,b,c\n"])
def test_fetch_refuses_another_number_of_triplets(nli: Path, server: Hub, cli: Cli, content: bytes) -> None:
    server.files[lock_files.NLI] = content
    assert "expected 2 triplets" in refusal(cli, "data", "fetch", "nli", "--data", "data")
    assert not nli.exists()


def test_what_builds_on_a_supervised_method_is_supervised_under_any_name(tmp_path: Path) -> None:
    methods = (
        "sup_simcse", "angle", "mine=sup_simcse", "distill:sup_simcse", "ensemble:angle+simcse",
        "ensemble:0.5*simcse+0.5*distill:angle", "tncse_uc[uc=sup_simcse]",
    )  # fmt: skip
    plan = plan_on_toy(",".join((*methods, "simcse", "edfse", "untrained")), tmp_path)
    supervised = {job.cell.method for job in plan.jobs if job.record.training.get("supervised")}
    notes = [note for job in plan.jobs for note in job.record.notes]
    assert supervised == {note.split(" is sup")[0] for note in notes if " is sup" in note}
    assert len(supervised) == len(methods)
    assert not supervised & {"simcse", "edfse", "untrained"}


@pytest.mark.parametrize(
    "header",
    [
        "anchor\tpositive\tnegative", "sentence1\tsentence2", "query\tpositive",
        "Premise\tHypothesis\tHard negative", "text1\ttext2\tneg",
    ],
)  # fmt: skip
def test_a_header_of_other_names_is_no_triplet(tmp_path: Path, header: str) -> None:
    rows = [row[: header.count("\t") + 1] for row in ROWS]
    pairs = read_pairs(write(tmp_path, "\n".join([header, *map("\t".join, rows)])))
    assert pairs.sha256 == make_pairs("x", rows).sha256


def rows_of(*columns: str, count: int = 12) -> str:
    """Rows with a number for each {}."""
    return "".join("\t".join(columns).format(*[n] * 9) + "\n" for n in range(count))


A, B = "A cat sleeps {} times.", "Cats nap {}."
NUMBER = "hard negative|every row is|a number"


@pytest.mark.parametrize(
    ("content", "place", "facts"),
    [
        ("sentence1\tsentence2\tscore\na\tb\t4.5\n", ":1", "sentence1, sentence2, score"),
        ("sentence1\tsentence2\tlabel\na\tb\tentailment\n", ":1", "sentence1, sentence2, label"),
        ("positive\tanchor\na\tb\n", ":1", "positive, anchor|in this order"),
        ("anchor\tpositive\tother\na\tb\tc\n", ":1", "anchor, positive, other"),
        ("a\tb\t4.5\nc\td\t0\n", "", f"{NUMBER}|4.5"),
        ("a\t0\nc\t1\n", "", "positive|a number|0"),
        ("1\ta\tb\n2\tc\td\n", "", "sentence|a number|1"),
        ("a\ta\nb\tb\n", "", "the positive|equals its sentence"),
        ("a\tb\tb\nc\td\td\n", "", "the hard negative|equals its positive"),
        ("a\tb\na\tb\n", "", "2 rows|the same"),
        ("a\tb\na\t\u200b\u2060\n", ":2", "positive|invisible"),
        ("x\ty\tz\n" + rows_of(A, B, "{}.5"), "", "hard negative|but the first|a number|0.5"),
        ("n\ta\tb\n" + rows_of("{}", A, B), "", "sentence|but the first|a number|0"),
        ("x\ty\tthe label\n" + rows_of(A, B, "neutral"), "", "hard negative|but the first|1 words"),
        ("x\ty\n" + rows_of(A, A), "", "positive|but the first|equals its sentence"),
        *((rows_of(A, B, c), "", NUMBER) for c in ["{}/5", "0,{}", "1.{}e-5", "2020-01-{}", "12:{}:00"]),
        *((rows_of(A, B, cell), "", NUMBER) for cell in ("$ {}", "{} %")),
        *(
            (rows_of(A, B, "{}.5") + f"a\tb\t{gap}\n", "", NUMBER)
            for gap in ["nan", "N/A", "NA", "-", "None"]
        ),
        (rows_of("id-000{}", A), "", "sentence|an id or|id-0000"),
        (rows_of(A, B, A), "", "hard negative|equals its sentence"),
        (rows_of(A, B).replace("3 times.", "3\rtimes."), ":4", "carriage return"),
        ("sentence\tpositive\n" + rows_of(A, B) + "Sentence\tpositive\n", ":14", "names of"),
        (rows_of(A, B) + "\ufeffa\tb\n", ":13", "byte order mark"),
        ("sep=\t\n" + rows_of(A, B), ":1", "spreadsheet"),
        ("sentence\tpositive\t\n" + rows_of(A, B, B), ":1", "with a separator"),
        ('"anchor"\t"score"\n' + rows_of(A, B), ":1", '"anchor", "score"'),
        ("sentence\tpositive\n" + rows_of("{}", A, B), ":2", "is a triplet|is a pair|R's"),
    ],
)
def test_tables_of_other_kinds_are_refused(tmp_path: Path, content: str, place: str, facts: str) -> None:
    path = write(tmp_path, content)
    check_error(lambda: read_pairs(path), *facts.split("|"), where=f"{path}{place}", kind=DataError)


def test_a_number_among_sentences_is_a_sentence(tmp_path: Path) -> None:
    assert read_pairs(write(tmp_path, "4.5\t7\na\tb\n")).partners == ("7", "b")


def test_the_dry_run_counts_equal_ones(cli: Cli, tmp_path: Path) -> None:
    rows = [(f"a {n}", f"b {n}", f"c {n}") for n in range(70)]
    rows += [("x", "x", "y"), ("v", "w", "w"), ("t", "u", "t")]
    write(tmp_path, "".join("\t".join(row) + "\n" for row in rows))
    run = ("run", "--methods", "sup_simcse", "--seeds", "1", "--suite", "toy", "--pairs", "own.tsv")
    code, out, err = cli(*run, "--dry-run", as_is=True)
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if "73 sentences" in line]
    assert numbers_in(line.partition("73 sentences")[2]) == [0, 1, 1, 1]
    assert not missing_facts(line, "equal to their sentence: 1", "equal to their positive: 1")


def test_single_words_that_differ_are_sentences(tmp_path: Path) -> None:
    words = "".join(f"word{'x' * n},other{'x' * n}\n" for n in range(50))
    assert len(read_pairs(write(tmp_path, words, "own.csv")).sentences) == 50


def test_a_quoted_header_of_unquoted_rows_is_read(tmp_path: Path) -> None:
    sentences = read_pairs(write(tmp_path, '"anchor"\t"positive"\n' + rows_of(A, B))).sentences
    assert (sentences[0], len(sentences)) == ("A cat sleeps 0 times.", 12)


def test_cells_of_several_lines_are_counted_and_of_many_refused(tmp_path: Path) -> None:
    rows = "".join(f"a {n},b {n}\n" for n in range(12))
    pairs = read_pairs(write(tmp_path, f'A cat.,"naps\nnow"\n"x\n\ny",z\n{rows}', "own.csv"))
    assert numbers_in(pairs.form) == [2, 2, 3]
    path = write(tmp_path, f'e,f\nA cat.,"naps\n{rows}"\n', "own.csv")
    check_error(lambda: read_pairs(path), "14 lines", "at most 10", where=f"{path}:2", kind=DataError)


@pytest.mark.parametrize("content", ["a,b\rc,d\n", 'a,b\n"c"\rd,e\n', "a,b\rc,d\re,f\r"])
def test_a_carriage_return_outside_quotes_ends_no_row(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, content, "own.csv")
    check_error(lambda: read_pairs(path), "carriage return", kind=DataError)
    assert read_pairs(write(tmp_path, 'a,"b\rc"\r\n', "own.csv")).partners == ("b c",)
