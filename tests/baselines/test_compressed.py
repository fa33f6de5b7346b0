"""Compressed vectors: what is stored, how it compares, and the rows of --dims and --quantize."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers.util.quantization import quantize_embeddings

from bench.baselines.compressed import CompressedEncoder, round_to_int8, take_signs
from bench.config.compressed_rows import add_compressed_rows
from bench.config.method_ids import parse_methods
from bench.encoder import FloatArray
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder
from tests.support.cli import Cli, records, refusal

SENTENCES = ["A dog runs", "", "Two children are singing a song.", "a b c"]


@pytest.fixture
def vectors() -> FloatArray:
    return np.random.default_rng(1).normal(size=(20, 16)).astype(np.float32)


def cosines(rows: FloatArray) -> FloatArray:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


def test_the_first_dimensions_are_kept(tiny_bert: Path) -> None:
    base = TransformerEncoder(tiny_bert)
    short = CompressedEncoder(base, 8, "float32")
    assert short.dim == short.facts["dim"] == 8
    assert np.array_equal(short.encode(SENTENCES), base.encode(SENTENCES)[:, :8])
    with pytest.raises(InputError, match=f"dims 999; expected 1 to {base.dim}"):
        CompressedEncoder(base, 999, "float32")


def test_int8_is_whole_and_within_half_a_step(vectors: FloatArray) -> None:
    rows = round_to_int8(vectors)
    assert np.array_equal(rows, np.rint(rows))
    assert np.array_equal(np.abs(rows).max(1), np.full(20, 127))
    largest = np.abs(vectors).max(1, keepdims=True)
    assert np.abs(rows / 127 * largest - vectors).max() <= (largest / 254).max() * (1 + 1e-5)
    assert np.abs(cosines(rows) - cosines(vectors)).max() < 0.01
    assert np.array_equal(round_to_int8(vectors[:1]), rows[:1])  # a row needs no other
    assert not round_to_int8(np.zeros((1, 4), dtype=np.float32)).any()


def test_binary_is_the_bits_that_sentence_transformers_packs(vectors: FloatArray) -> None:
    signs, packed = take_signs(vectors), quantize_embeddings(vectors, "ubinary")
    assert np.array_equal(np.packbits(signs > 0, axis=1), packed)
    hamming = (signs[:, None] != signs[None]).sum(2)
    assert np.allclose(cosines(signs), 1 - 2 * hamming / 16, atol=1e-6)


def test_rows_follow_their_method() -> None:
    methods = parse_methods("simcse[lr=1e-5],mine=untrained:avg")
    rows = add_compressed_rows(methods, "8,16", "binary")
    assert [row.text for row in rows] == [
        "simcse[lr=1e-5]",
        *(f"compressed[of=simcse[lr=1e-5],{form}]" for form in ("dims=8", "dims=16", "dtype=binary")),
        "mine=untrained:avg",
        *(
            f"mine-{name}=compressed[of=untrained:avg,{form}]"
            for name, form in (("8d", "dims=8"), ("16d", "dims=16"), ("binary", "dtype=binary"))
        ),
    ]
    assert add_compressed_rows(methods, None, None) == methods


@pytest.mark.parametrize(
    ("methods", "options", "what"),
    [
        ("untrained", "--dims 0", "'0' is no number of dimensions"),
        ("untrained", "--dims 8,8", "'8' is there twice"),
        ("untrained", "--quantize int4", "expected int8 or binary, or both"),
        ("all", "--dims 8", "name the methods whose vectors are compressed"),
        ("untrained", "--dims 999", "--dims, or compressed.dims: dims 999 of untrained; expected 1 to"),
        ("word_overlap", "--dims 8", "word_overlap scores pairs, so compressed has no vectors"),
        ("ensemble:word_overlap+untrained", "", "word_overlap scores pairs, so ensemble has no vectors"),
        ("compressed:untrained", "", "neither dims nor dtype is given"),
    ],
)
def test_what_cant_be_compressed_is_refused_in_the_plan(
    cli: Cli, methods: str, options: str, what: str
) -> None:
    words = f"run --suite toy --seeds 1 {options} --dry-run".split()
    assert what in refusal(cli, *words, "--methods", methods)


def test_a_row_of_all_dimensions_is_noted(cli: Cli, tiny_bert: Path) -> None:
    width = json.loads((tiny_bert / "config.json").read_text())["hidden_size"]
    words = f"run --suite toy --seeds 1 --dry-run --backbone {tiny_bert} --methods untrained:avg".split()
    note = f"{width} dimensions are all of them: its vectors are those of untrained:avg"
    for dims, kind, expected in (
        (width, "float32", 1),
        (width // 2, "float32", 0),
        (width, "int8", 0),
    ):
        row = f"compressed[of=untrained:avg,dims={dims},dtype={kind}]"
        status, out, err = cli(*words[:-1], row)
        assert (status, (out + err).count(note)) == (0, expected)
    status, out, err = cli(*words, "--dims", str(width))
    assert (status, (out + err).count(note)) == (0, 1)


def test_compressed_rows_share_the_training_and_keep_items(cli: Cli, tmp_path: Path) -> None:
    words = "run --profile mini --suite toy --seeds 1 --set simcse.steps=2 --set simcse.batch_size=8"
    where = ("--results", str(tmp_path / "results"), "--methods", "simcse")
    status, *_ = cli(*words.split(), *where, "--dims", "8", "--quantize", "int8")
    assert status == 0
    found = {record.method: record for record in records(tmp_path).values()}
    full, short = found["simcse[batch_size=8,steps=2]"], found["compressed[dims=8,of=simcse]"]
    assert len(found) == 3
    assert json.dumps(short.scores[0].value) != json.dumps(full.scores[0].value)
    assert short.scores[0].n == full.scores[0].n
