"""Vectors of a text of any length: the stream, the file that grows, the lines, the command."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cli.encode import encode_command as command
from bench.config import profiles
from bench.data.text_lines import read_sentences
from bench.encoder import FloatArray
from bench.errors import BenchError, DataError, InputError
from bench.eval.embeddings import BLOCK, stream_embeddings
from bench.eval.vector_storage import VectorFile
from tests.support.cli import Cli
from tests.support.messages import missing_facts, numbers_in

TEXT = ["The doctor is reading a book.", "a", "", "Two children are singing a song on the hill.", "a"]
TEXT += ["The doctor is reading a book on the hill.", "The doctor is reading a book."]


class Lengths:
    """An encoder whose vectors are lengths; "bad" has none."""

    dim = 1

    def __init__(self) -> None:
        self.facts: dict[str, str | int] = {}
        self.calls: list[list[str]] = []

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Any = None
    ) -> FloatArray:
        self.calls.append(list(sentences))
        for _ in sentences:
            progress and progress(1)
        rows = [[np.nan if sentence == "bad" else len(sentence)] for sentence in sentences]
        return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_the_streams_rows_are_those_of_encode(block: int) -> None:
    from bench.nn.backbone import TransformerEncoder

    encoder = TransformerEncoder(Path(profiles.backbone_reference(profiles.load_profile("mini"))), "avg")
    blocks = list(stream_embeddings(encoder, iter(TEXT), block=block))
    assert [len(rows) for rows in blocks[:-1]] == [block] * (len(blocks) - 1)
    assert {rows.dtype for rows in blocks} == {np.dtype(np.float32)}
    whole = encoder.encode(TEXT)
    np.testing.assert_allclose(np.concatenate(blocks), whole, rtol=1e-6, atol=1e-6)


def test_the_stream_draws_one_block_ahead_at_most() -> None:
    drawn: list[str] = []

    def endless() -> Iterator[str]:
        while True:
            drawn.append("a" * len(drawn))
            yield drawn[-1]

    encoder = Lengths()
    blocks = stream_embeddings(encoder, endless(), block=4)
    assert drawn == []
    for number in range(1, 4):
        assert next(blocks)[:, 0].tolist() == [4 * number - 4, 4 * number - 3, 4 * number - 2, 4 * number - 1]
        assert len(drawn) == 4 * number


def test_the_stream_encodes_equal_sentences_of_a_block_once_and_counts_each() -> None:
    encoder, counted = Lengths(), list[int]()
    rows = np.concatenate(list(stream_embeddings(encoder, TEXT, block=5, progress=counted.append)))
    assert rows[:, 0].tolist() == [len(sentence) for sentence in TEXT]
    assert encoder.calls == [[TEXT[0], "a", "", TEXT[3]], TEXT[5:]]
    assert sum(counted) == len(TEXT)
    assert list(stream_embeddings(encoder, [])) == []


def test_the_stream_names_the_block_whose_vectors_are_none() -> None:
    blocks = stream_embeddings(Lengths(), ["a"] * 2000 + ["a", "bad"], block=1000)
    next(blocks), next(blocks)
    with pytest.raises(BenchError) as raised:
        next(blocks)
    assert numbers_in(str(raised.value)) == [2001, 2002, 1, 2, 2]


@pytest.mark.parametrize("sizes", [(), (3,), (4, 4, 1)])
def test_the_file_grows_by_rows(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    path = tmp_path / "out.npy"
    parts = [np.random.default_rng(n).normal(size=(n, 5)).astype(np.float32)[::-1] for n in sizes]
    with VectorFile(path, 5) as file:
        for part in parts:
            file.append(part)
            assert not path.exists()
    assert file.rows == sum(sizes)
    rows = np.load(path, mmap_mode="r" if sizes else None, allow_pickle=False)
    assert (rows.dtype, isinstance(rows, np.memmap)) == (np.float32, bool(sizes))
    assert np.array_equal(rows, np.concatenate([np.empty((0, 5)), *parts]))
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with VectorFile(tmp_path / "out.npy", 1) as file:
            file.append(np.ones((1, 1), dtype=np.float32))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out.npy").write_text("mine")
    with pytest.raises(InputError, match=r"out\.npy: .* exists"):
        VectorFile(tmp_path / "out.npy", 1)
    with pytest.raises(InputError, match=r"out\.npy: .* folder"):
        VectorFile(tmp_path / "none" / "out.npy", 1)
    assert (tmp_path / "out.npy").read_text() == "mine"


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def fill() -> None:
        with VectorFile(tmp_path / "out.npy", 1) as file:
            file.append(np.ones((1, 1), dtype=np.float32))
            monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)

    with pytest.raises(BenchError, match=r"out\.npy: .*: No space left"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_lines_are_sentences() -> None:
    lines = ["\ufeffone  two\r\n".encode(), b" three\tfour \n", b"five"]
    assert list(read_sentences(lines, "text")) == ["one two", "three four", "five"]


@pytest.mark.parametrize(
    ("content", "where", "fact"),
    [
        (b"", "text", "empty"),
        (b"a\n\nb\n", "text:2", "empty"),
        (b"a\n \t\n", "text:2", "empty"),
        (b"a\nb\n\xff\n", "text:3", "utf-8"),
    ],
)
def test_lines_that_are_none(content: bytes, where: str, fact: str) -> None:
    with pytest.raises(DataError, match=fact) as raised:
        list(read_sentences(io.BytesIO(content), "text"))
    assert raised.value.where == where


@pytest.mark.parametrize("piped", [False, True])
def test_encode(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piped: bool) -> None:
    text = ["one", "two words", "one", "three of them", "last"]
    content = "\n".join(text).encode()
    (tmp_path / "text.txt").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    source = "-" if piped else "text.txt"
    given = ("--seed", "3", "--input", source, "--out", "v.npy", "--block", "2")
    code, out, err = cli("encode", "noise", *given)
    assert (code, err) == (0, "")
    assert not missing_facts(out, "v.npy: noise seed 3", "5 sentences", "8 dimensions")
    from bench_test_methods import Noise  # type: ignore[import-not-found]

    assert np.array_equal(np.load(tmp_path / "v.npy"), Noise(3).encode(text))


def test_a_transformer_at_lower_precision(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    (tmp_path / "text.txt").write_text("The doctor is reading a book.\nTwo children are singing.\n")
    for precision in ("fp32", "bf16"):
        given = ("--input", "text.txt", "--out", f"{precision}.npy", "--precision", precision)
        assert cli("encode", f"hf:{tiny_bert}:avg", *given)[0] == 0
    whole, lowered = (np.load(tmp_path / f"{name}.npy") for name in ("fp32", "bf16"))
    assert not np.array_equal(whole, lowered)
    np.testing.assert_allclose(whole, lowered, atol=0.1)


def test_the_default_block_is_the_streams() -> None:
    assert [option.default for option in command.params if option.name == "block"] == [BLOCK]


BERT = "the tiny one"


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("noise",), ("bench encode: 'noise'", "--seed N")),
        (("ensemble:noise+untrained", "--backbone", BERT), ("'ensemble:noise+untrained'", "--seed N")),
        (
            ("ensemble:untrained+untrained:avg", "--seed", "3", "--backbone", BERT),
            ("'ensemble:untrained+untrained:avg'", "deterministic"),
        ),
        (("noise,broken",), ("'noise,broken'", "2 methods")),
        (("noise", "--seed", "1", "--input", "bad.txt"), ("bad.txt:2:", "empty")),
        (("noise", "--seed", "1", "--input", "none"), ("--input none:", "No such")),
        (("noise", "--seed", "1", "--out", "text.txt"), ("--out text.txt:", "exists")),
        (("noise", "--seed", "1", "--out", "v.txt"), ("--out v.txt:", "NumPy's")),
        (("untrained", "--seed", "1"), ("'untrained'", "deterministic", "leave out")),
        (("word_overlap",), ("'word_overlap' compares",)),
    ],
)
def test_what_cant_be_encoded(
    cli: Cli, tmp_path: Path, tiny_bert: Path, arguments: tuple[str, ...], facts: tuple[str, ...]
) -> None:
    (tmp_path / "text.txt").write_bytes(b"a\n")
    (tmp_path / "bad.txt").write_bytes(b"a\n\n")
    given = [str(tiny_bert) if word == BERT else word for word in arguments]
    code, out, err = cli("encode", "--input", "text.txt", "--out", "v.npy", *given)
    assert (code, out, missing_facts(err, *facts)) == (2, "", [])
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "bad.txt"}
