"""Word vectors from a file: reading, mean, SIF, and the command."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from bench.baselines.word_vectors import (
    AverageEncoder,
    SifScorer,
    fill_mean_vectors,
    remove_common_component,
    sif_weights,
)
from bench.data.tasks import PairSubset, PairTask
from bench.data.toy_suite import make_toy_task
from bench.data.word_vectors import WordVectors, read_dimension, read_word_vectors, strip_endings
from bench.encoder import Encoder, PairScorer
from bench.errors import BenchError, DataError
from bench.eval.embeddings import embed_sentences
from bench.eval.sts import predict_similarities
from bench.method_card import BuildContext, OptionValue
from bench.probes.interface import ProbeData
from bench.probes.measurement import measure_probes
from bench.registry import discover
from tests.support.cli import Cli, records, refusal, stable_bytes
from tests.support.local_suite import write_local_suite
from tests.support.messages import missing_facts, numbers_in
from tests.support.training import stage_context, stages_of

LINES = b"the 1 0 0.5\nCat 0 2 -1e-1\ncat 0.25 0 3\n. 4 4 4\n"
FORM = "word vectors as text (word2vec or GloVe: a word and its numbers a line), plain, .gz or .xz"


def written(folder: Path, content: bytes = LINES, name: str = "g.txt") -> Path:
    path = folder / name
    if path.suffix == ".gz":
        content = gzip.compress(content)
    elif path.suffix == ".xz":
        content = lzma.compress(content)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["g.txt", "g.vec", "glove", "g.txt.gz", "g.xz"])
@pytest.mark.parametrize("header", [b"", b"4 3\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf4 3\n"])
def test_every_form_gives_the_same_vectors(tmp_path: Path, name: str, header: bytes) -> None:
    path = written(tmp_path, header + LINES, name)
    table = read_word_vectors(path)
    assert table.rows == {"the": 0, "Cat": 1, "cat": 2, ".": 3}
    assert table.vectors.dtype == np.float32
    expected = np.array([[1, 0, 0.5], [0, 2, -0.1], [0.25, 0, 3], [4, 4, 4]], dtype=np.float32)
    np.testing.assert_array_equal(table.vectors, expected)
    assert (table.repeated, read_dimension(path)) == (0, 3)
    assert strip_endings(path) == name.split(".")[0]
    assert strip_endings(path.with_name(".txt")) == ".txt"
    assert strip_endings(path.with_name("glove.6B.50d")) == "glove.6B.50d"


def test_words_with_spaces_repeated_words_and_loose_ends(tmp_path: Path) -> None:
    """As GloVe 840B has them; the numbers are the last fields, the first line of a word counts."""
    content = ". . . 1 2\r\na 3 4 \nat b@c.de 5 6\n\xc2\xa0 7 8\na 9 9\na 8 8\n 1 1\n\n".encode("latin-1")
    table = read_word_vectors(written(tmp_path, b"7 2\n" + content))
    assert table.rows == {". . .": 0, "a": 1, "at b@c.de": 2, "\xa0": 3, "": 4}
    assert table.vectors.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [1, 1]]
    assert table.repeated == 2
    assert [table.find(token) for token in ("at", "a", "!", "")] == [None, 1, None, None]


def test_a_token_is_looked_up_as_it_is_then_lower_cased_then_without_punctuation(tmp_path: Path) -> None:
    table = read_word_vectors(written(tmp_path))
    words = {"Cat": "Cat", "CAT": "cat", "(Cat)": "Cat", "CAT.": "cat", "The": "the", ".": "."}
    assert {token: table.find(token) for token in words} == {t: table.rows[w] for t, w in words.items()}
    assert [table.find(token) for token in ("...", "cats", "ca-t")] == [None] * 3


NUMBERS = ("expected 2 numbers", "first line")
BLANKS = "expected single blanks"
UTF16 = ("UTF-16", "expected UTF-8", "iconv")
# a file, the place of its error, and what the message names
ERRORS: list[tuple[str, bytes, str, tuple[str, ...]]] = [
    ("g.txt", b"", "", ("no word vector", FORM)),
    ("g.txt", b"a 1 2\nb 1\n", ":2", ("1 fields", *NUMBERS)),
    ("g.txt", b"word\n", ":1", ("0 fields", FORM)),
    ("g.txt", b"a 1 2\nb 1 x\xff\n", ":2", ("'x\\\\xff'", FORM)),
    ("g.txt", b"a 1 2\nb 1  2\n", ":2", ("two blanks", BLANKS)),
    ("g.txt", b"a\t1\t2\n", ":1", ("a tab", BLANKS)),
    ("g.txt", b"a 1 2\rb 1 2\r", ":1", ("carriage return", "LF or CRLF")),
    ("g.txt", b'"V1" "V2"\n"a" 1 2\n', ":1", ("no numbers", FORM, "column names")),
    ("g.txt", gzip.compress(LINES, mtime=0), "", (".gz", FORM)),
    ("g.txt", bz2.compress(LINES), "", (".bz2", FORM, "unpack it")),
    ("g.txt", "a 1 2\n".encode("utf-16"), "", UTF16),
    ("g.txt", b"a 1 2\nb 1 1e39\n", ":2", ("not finite", "float32")),
    ("g.txt", b"a 1 2\n\xe9 1 2\n", ":2", ("not utf-8", FORM)),
    ("g.txt", b"3 2\na 1 2\n", "", ("1 word vectors", "says 3")),
    ("g.txt", b"a" * (1 << 20), "", ("a megabyte", FORM)),
    ("g.gz", gzip.compress(LINES, mtime=0)[:-9], "", ("unpacked", "end-of-stream marker", "a whole file")),
]


@pytest.mark.parametrize(("name", "content", "place", "facts"), ERRORS)
def test_damaged_files(tmp_path: Path, name: str, content: bytes, place: str, facts: tuple[str, ...]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_word_vectors(path)
    assert str(caught.value).startswith(f"{path}{place}: ")
    assert not missing_facts(caught.value, *facts)


def test_mean_by_hand(tmp_path: Path) -> None:
    encoder = AverageEncoder(written(tmp_path))
    assert isinstance(encoder, Encoder)
    told: list[int] = []
    got = encoder.encode(["The cat .", "the  dog CAT CAT!", "no word", "", "Cat"], progress=told.append)
    assert got.dtype == np.float32
    expected = np.array([[5.25 / 3, 4 / 3, 2.5], [0.5, 0, 6.5 / 3], [0, 0, 0], [0, 0, 0], [0, 2, -0.1]])
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert sum(told) == 5
    first = encoder.coverage
    assert first == {
        **{"words": 4, "repeated_words": 0, "tokens": 10, "tokens_without_vector": 3},
        **{"share_without_vector": "30.00%", "sentences_without_vector": 2},
    }
    np.testing.assert_array_equal(encoder.encode(["Cat", "The cat ."]), got[[4, 0]])
    assert encoder.encode([]).shape == (0, 3)
    assert first["tokens"] == 10  # a record keeps what it was given
    assert (encoder.coverage["tokens"], encoder.coverage["share_without_vector"]) == (0, "0.00%")
    assert encoder.facts == {"pooling": "avg", "dim": 3}
    # a sentence without a known word has cosine 0 with all
    embeddings = embed_sentences(encoder, ["zzz", "the", "Cat", "cat"])
    cosines = embeddings.cosine(["zzz", "zzz", "Cat"], ["zzz", "the", "Cat"])
    assert cosines.tolist() == pytest.approx([0, 0, 1], abs=1e-12)


TEXT = ("the cat sat on the mat .", "The dog and the CAT", "a dog sat", "the the the cat.")
FIRST = ("the cat sat", "a dog sat on the mat", "zzz", "the cat and the dog", "the .")
SECOND = ("The dog sat.", "a cat sat on a mat", "the cat", "the cat and the dog", "cat sat")


@pytest.fixture
def random_file(tmp_path: Path) -> Path:
    """Vectors of every word of the text but "and", of very unequal directions."""
    draw = np.random.default_rng(0)
    words = ("the", "cat", "sat", "on", "mat", ".", "dog", "a", "never")
    rows = draw.normal(size=(len(words), 5)) * [3, 1, 1, 0.5, 1] + [2, 0, 0, 0, 0]
    lines = (f"{word} {' '.join(f'{x:.4f}' for x in row)}" for word, row in zip(words, rows, strict=True))
    return written(tmp_path, "\n".join(lines).encode(), "r.txt")


def counted(out: Path, sentences: Sequence[str], **changes: OptionValue) -> dict[str, Any]:
    (stage,) = stages_of("vectors", {"pooling": "sif", "a": 1e-3})
    out.mkdir()
    told: list[int] = []
    given = {"config": dict(stage.config) | changes, "sentences": sentences, "progress": told.append}
    facts = stage.train(stage_context(stage, out, out, **given))
    assert sum(told) == facts["sentences_seen"]
    return facts


def sif_by_loops(path: Path, text: Sequence[str], pairs: Sequence[tuple[str, str]], a: float) -> list[float]:
    """Arora et al. 2017, Algorithm 1, a word and a sentence at a time."""
    vectors = {}
    for line in path.read_text().splitlines():
        word, *numbers = line.split(" ")
        vectors[word] = np.array([float(np.float32(number)) for number in numbers])

    def known(sentence: str) -> list[str]:
        spelled = [token.lower() for token in sentence.split()]
        spelled = [word if word in vectors else word.rstrip(".") for word in spelled]
        return [word for word in spelled if word in vectors]

    tokens = sum(len(sentence.split()) for sentence in text)
    words = [word for sentence in text for word in known(sentence)]
    sentences = [sentence for side in (0, 1) for sentence in (pair[side] for pair in pairs)]
    columns = []
    for sentence in sentences:
        total = np.zeros(5)
        for word in known(sentence):
            total += a / (a + words.count(word) / tokens) * vectors[word]
        columns.append(total / len(known(sentence)) if known(sentence) else total)
    x = np.stack(columns, axis=1)
    u = np.linalg.svd(x)[0][:, :1]
    x = x - u @ u.T @ x
    cosines = []
    for i in range(len(pairs)):
        v, w = x[:, i], x[:, i + len(pairs)]
        scale = math.sqrt(v @ v) * math.sqrt(w @ w)
        cosines.append(float(v @ w) / scale if scale else 0.0)
    return cosines


@pytest.mark.parametrize("a", [1e-4, 1e-3, 0.5, 1e6])
def test_sif_is_the_printed_algorithm(tmp_path: Path, random_file: Path, a: float) -> None:
    facts = counted(tmp_path / "stage", TEXT)
    assert (facts["steps"], facts["selected_step"], facts["tokens"], facts["dev_curve"]) == (0, 0, 19, [])
    options: dict[str, OptionValue] = {"pooling": "sif", "a": a}
    context = BuildContext(options, None, random_file, "cpu", {"counts": tmp_path / "stage"})
    scorer = discover().get("vectors").build(context)
    assert isinstance(scorer, PairScorer)
    assert not isinstance(scorer, Encoder)
    got = scorer.score_pairs(FIRST, SECOND)
    assert got.dtype == np.float32
    expected = sif_by_loops(random_file, TEXT, list(zip(FIRST, SECOND, strict=True)), a)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert got[2] == 0  # no word of "zzz" is known
    assert got[3] == pytest.approx(1)
    np.testing.assert_array_equal(scorer.score_pairs(FIRST, SECOND), got)
    assert scorer.facts == {"pooling": "sif", "fit": "target", "dim": 5}
    with pytest.raises(BenchError, match="5 first sentences and 4 second"):
        scorer.score_pairs(FIRST, SECOND[:4])
    other = scorer.score_pairs((*FIRST, "mat ."), (*SECOND, "on"))[:5]
    assert np.abs(other - got).max() > 1e-3  # another task has another component


def test_weights_by_hand() -> None:
    table = WordVectors({"the": 0, "cat": 1, "never": 2}, np.eye(3, dtype=np.float32), 0)
    counts = {"the": 5, "The": 3, "cat.": 1, "dog": 1}  # of 10 tokens 8 are "the", 1 is "cat"
    assert sif_weights(table, counts, 0.2).tolist() == pytest.approx([0.2, 2 / 3, 1])
    out = np.zeros((1, 3))
    facts = fill_mean_vectors(table, ["The cat dog"], out, np.array([0.2, 0.5, 1.0]))
    assert out.tolist() == [[0.1, 0.25, 0]]
    assert (facts["tokens"], facts["tokens_without_vector"]) == (3, 1)


def test_common_component_by_hand() -> None:
    """The first singular vector of rows (3, 0), (0, 2), (3, 0) is the first axis: nothing is centred."""
    left = remove_common_component(np.array([[3.0, 0], [0, 2], [3, 0]]))
    assert np.abs(left).tolist() == [[0, 0], [0, 2], [0, 0]]


@pytest.mark.parametrize(
    ("rows", "fact"), [([[0.0, 0.0], [0.0, 0.0]], "no word"), ([[1.0, 2.0], [2.0, 4.0]], "one line")]
)
def test_nothing_left_is_an_error(rows: list[list[float]], fact: str) -> None:
    with pytest.raises(BenchError, match=fact):
        remove_common_component(np.array(rows))


def test_the_stage_counts_the_text_and_only_sif_has_it(tmp_path: Path) -> None:
    facts = counted(tmp_path / "all", TEXT)
    counts = json.loads((tmp_path / "all" / "counts.json").read_text())
    assert (counts["the"], counts["The"], counts["CAT"], counts["cat."]) == (6, 1, 1, 1)
    assert sum(counts.values()) == facts["tokens"] == 19
    assert counted(tmp_path / "few", TEXT, steps=1)["sentences_seen"] == 1  # as the dry run's sample
    stages = partial(stages_of, "vectors")
    assert stages({"pooling": "avg", "a": 1e-3}) == ()
    assert stages({"pooling": "sif", "a": 1.0}) == stages({"pooling": "sif", "a": 2.0})
    context = BuildContext({"pooling": "sif", "a": 1e-3}, None, written(tmp_path), "cpu")
    with pytest.raises(BenchError, match="the stage 'counts' has not run"):
        discover().get("vectors").build(context)


def test_probes_say_that_it_has_no_transformer(random_file: Path) -> None:
    kept = [(a, b) for a, b in zip(FIRST, SECOND, strict=True) if a != "zzz"]
    first, second = zip(*kept, strict=True)
    task = PairTask("T", (PairSubset("s", first, second, (5.0, 4.0, 3.0, 2.0)),))
    names = ("alignment", "uniformity", "cls_energy", "attention_sink", "modulus", "cost")
    found = measure_probes(AverageEncoder(random_file), ProbeData("t", (task,)), names).probes
    assert all(found[name] == {"missing": "it has no transformer"} for name in names[2:])
    assert np.isfinite([found[name]["value"] for name in names[:2]]).all()


def toy_file(folder: Path) -> Path:
    """Vectors of most words of the toy suite, in a file with a telling path."""
    words = sorted({w for pair in make_toy_task().all_pairs() for s in pair for w in s.lower().split()})
    rows = np.random.default_rng(3).normal(size=(len(words), 8)) + 1
    lines = [f"{word} {' '.join(f'{x:.3f}' for x in row)}" for word, row in zip(words, rows, strict=True)]
    (folder / "private").mkdir()
    return written(folder / "private", "\n".join(lines[5:]).encode(), "mine.8d.txt.gz")


def covered(table: WordVectors, sentences: Iterable[str]) -> str:
    """The shares as a record has them, counted token by token."""
    tokens = [token for sentence in sentences for token in sentence.split()]
    known = [token for token in tokens if table.find(token) is not None]
    words, known_words = len(set(tokens)), len(set(known))
    shares = 100 * len(known) / len(tokens), 100 * known_words / words
    return f"{shares[0]:.2f}% of {len(tokens):,} tokens and {shares[1]:.2f}% of {words:,} distinct words"


def test_a_task_without_a_known_word_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = PairTask("EN", (PairSubset("x", ("the", "cat ."), ("Cat", "the cat"), (1.0, 2.0)),))
    strange = PairTask("DE", (PairSubset("x", ("Katze", "ja"), ("Hund", "nein ja"), (1.0, 2.0)),))
    encoder = AverageEncoder(written(tmp_path))
    predict_similarities(encoder, [known])
    assert numbers_in(capsys.readouterr().err) == [100, 6, 100, 4]
    with pytest.raises(BenchError) as caught:
        predict_similarities(encoder, [known, strange])
    assert not missing_facts(caught.value, "DE", "g.txt", "5 tokens", "4 distinct words")
    assert numbers_in(capsys.readouterr().err) == [54.55, 11, 50, 8]


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    path = toy_file(tmp_path)
    methods = f"vectors:{path},vectors:{path}:sif,named=vectors:{path}:sif[a=0.01]"
    run = ("run", "--methods", methods, "--suite", "toy")
    code, out, err = cli(*run)
    assert code == 0, err
    found = {record.method: record for record in records(tmp_path).values()}
    identity = f"mine.8d-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    assert sorted(found) == sorted([identity, f"{identity}[pooling=sif]", "named"])
    assert identity in out
    assert {record.seed for record in found.values()} == {None}
    assert len({record.score("TOY") for record in found.values()}) == 3

    average, sif = found[identity], found[f"{identity}[pooling=sif]"]
    task = make_toy_task()
    pairs = list(task.all_pairs())
    gold = [value for subset in task.subsets for value in subset.gold]
    table = read_word_vectors(path)
    sides = [np.zeros((len(pairs), 8)) for _ in range(2)]
    for i, side in enumerate(sides):
        fill_mean_vectors(table, [pair[i] for pair in pairs], side)
        side /= np.linalg.norm(side, axis=1, keepdims=True)
    expected = spearmanr((sides[0] * sides[1]).sum(1), gold).statistic
    assert average.score("TOY") == pytest.approx(expected, abs=1e-6)
    sentences = {sentence for pair in pairs for sentence in pair}
    facts = average.provenance["encoder"]
    assert facts["tokens"] == sum(len(sentence.split()) for sentence in sentences)
    assert 0 < facts["tokens_without_vector"] < facts["tokens"]
    assert (facts["pooling"], facts["words"], facts["repeated_words"]) == ("avg", len(table.rows), 0)
    words = {"words": len(table.rows), "repeated_words": 0}
    coverage = covered(table, sentences)
    facts_of_sif = {"pooling": "sif", "fit": "target", "dim": 8, **words, "coverage": coverage}
    assert (sif.provenance["encoder"], facts["coverage"]) == (facts_of_sif, coverage)
    assert err.count(f"mine.8d.txt.gz has vectors for {coverage}\n") == 3
    assert (average.training, average.backbone) == ({}, sif.backbone)
    assert average.backbone is not None
    assert average.backbone["name"] == "mine.8d"
    assert sif.training["stages"]["counts"]["sentences_seen"] == 24_000
    for record in (tmp_path / "results").rglob("*.json"):
        assert "private" not in record.read_text()

    assert cli(*run, "--campaign", "again")[0] == 0
    assert stable_bytes(tmp_path, "again") == stable_bytes(tmp_path)
    for record in (tmp_path / "results" / "local").rglob("toy.json"):
        code, out, err = cli("verify", str(record), "--rerun", "--model", str(path))
        assert (code, out.split(":")[0]) == (0, "equal"), err


def test_the_counts_are_of_the_text_that_is_given(cli: Cli, tmp_path: Path) -> None:
    path, text, counts = toy_file(tmp_path), tmp_path / "text.txt", tmp_path / "counts.json"
    text.write_text("the old man\nthe\na car\n")
    counts.write_text(json.dumps({"the": 2, "old": 1, "man": 1, "a": 1, "car": 1}))
    given = ("--corpus", str(text), "--dev", "toy")
    code, _, err = cli("run", "--methods", f"x=vectors:{path}:sif", "--suite", "toy", *given)
    assert code == 0, err
    (record,) = records(tmp_path).values()
    task = make_toy_task()
    first, second = zip(*task.all_pairs(), strict=True)
    gold = [value for subset in task.subsets for value in subset.gold]
    similarities = SifScorer(path, counts, 1e-3).score_pairs(first, second)
    assert record.score("TOY") == pytest.approx(spearmanr(similarities, gold).statistic, abs=1e-9)


def test_a_damaged_number_fails_the_cell_with_file_and_line(cli: Cli, tmp_path: Path) -> None:
    """The plan reads neither numbers nor sentences."""
    written(tmp_path, LINES + b"dog 1 2 x\n")
    written(tmp_path, b"Katze 1 2\nHund 3 4\n", "german.txt")
    methods = "a=vectors:g.txt,b=vectors:german.txt,c=vectors:german.txt:sif"
    assert cli("run", "--methods", methods, "--suite", "toy")[0] == 1
    reasons = {record.method: str(record.reason) for record in records(tmp_path).values()}
    assert reasons["a"].startswith("g.txt:5: 'x'")
    tokens = [token for pair in make_toy_task().all_pairs() for token in " ".join(set(pair)).split()]
    for name in "bc":
        assert not missing_facts(reasons[name], "german.txt", f"{len(set(tokens))} distinct words")


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        (None, b"", ("--methods vectors:nowhere.txt", "'nowhere.txt'", FORM)),
        ("g.zip", b"PK\x03\x04 \x00 \xff", ("{path}", "zip archive", "UTF-8")),
        ("g.txt", b"9 3\n" + LINES, ("{path}", "4 word vectors", "says 9")),
    ],
)
def test_what_is_no_file_of_vectors_is_said_before_anything_runs(
    cli: Cli, tmp_path: Path, name: str | None, content: bytes, facts: tuple[str, ...]
) -> None:
    path = written(tmp_path, content, name) if name else Path("nowhere.txt")
    code, out, err = cli("run", "--methods", f"vectors:{path}", "--suite", "toy", "--dry-run")
    assert (code, out) == (2, "")
    assert not missing_facts(err, *(fact.format(path=path) for fact in facts))
    assert not (tmp_path / "results").exists()


def test_sif_is_refused_by_the_plan_where_a_suite_needs_vectors(cli: Cli, tmp_path: Path) -> None:
    written(tmp_path, LINES)
    suite = f"local:{write_local_suite(tmp_path)}"
    message = refusal(cli, "run", "--methods", "vectors:g.txt:sif", "--suite", suite, "--dry-run")
    assert "has no vectors" in message
