"""Precision of the evaluation, kept vectors, and batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.data.tasks import LabelledTask
from bench.data.toy_suite import make_toy_task
from bench.encoder import FloatArray
from bench.eval.embeddings import embed_sentences
from bench.eval.sts import score_task
from bench.eval.transfer import Protocol, run_transfer_task
from bench.eval.transfer_suite import labelled_sentences
from bench.eval.vector_storage import CachedEncoder
from bench.nn.backbone import TransformerEncoder
from bench.nn.half_precision import cast_encoder
from bench.nn.sum_encoder import SumEncoder
from bench.records.fingerprint import compute_family_key
from bench.records.record import parse_record
from tests.support.cli import Cli
from tests.support.encoders import FunctionEncoder
from tests.support.messages import check_error

SENTENCES = ["this sentence means .", "of", "", "means this of sentence this"]


@pytest.mark.parametrize(("precision", "digits"), [("bf16", 0.1), ("fp16", 0.02)])
def test_a_lower_precision_changes_vectors_a_little(tiny_bert: Path, precision: str, digits: float) -> None:
    encoder = TransformerEncoder(tiny_bert, "avg")
    twice = SumEncoder([encoder, encoder])
    before = encoder.encode(SENTENCES)
    lowered, sums = (cast_encoder(model, precision).encode(SENTENCES) for model in (encoder, twice))
    assert lowered.dtype == np.float32
    scale = np.abs(before).max()
    assert 1e-5 * scale < np.abs(lowered - before).max() < digits * scale
    np.testing.assert_allclose(sums, 2 * lowered, rtol=1e-6)
    np.testing.assert_array_equal(encoder.encode(SENTENCES), before)
    assert cast_encoder(encoder, "fp32") is encoder


def test_an_encoder_without_a_model_has_no_other_precision() -> None:
    facts = ("FunctionEncoder", "fp32 only", "--precision")
    check_error(lambda: cast_encoder(FunctionEncoder(len), "bf16"), *facts)


def test_the_record_says_what_the_precision_changed(cli: Cli, tiny_bert: Path, tmp_path: Path) -> None:
    command = ("run", "--methods", f"m=hf:{tiny_bert}:avg", "--suite", "toy")
    assert cli(*command, "--campaign", "full")[0] == 0
    assert cli(*command, "--campaign", "low", "--precision", "bf16")[0] == 0
    place = "mini/m/no-seed/toy.json"
    texts = [(tmp_path / "results" / campaign / place).read_text() for campaign in ("full", "low")]
    assert len({compute_family_key(parse_record(text, "")) for text in texts}) == 2
    full, low = map(json.loads, texts)
    assert full["key"] != low["key"]
    assert (full["provenance"]["precision"], low["provenance"]["precision"]) == ("float32", "bf16")
    assert "evaluation_precision" not in full["provenance"]
    effect = low["provenance"]["evaluation_precision"]
    assert effect["name"] == "bf16"
    assert set(effect["tasks"]) == {"TOY", "avg"}
    assert effect["tasks"]["TOY"]["fp32"] == full["scores"][0]["value"]
    difference = low["scores"][0]["value"] - full["scores"][0]["value"]
    assert effect["tasks"]["TOY"]["difference"] == pytest.approx(difference, abs=1e-15)
    assert 0 < abs(difference) < 0.1
    code, _, err = cli(*command, "--campaign", "full", "--precision", "bf16")
    assert (code, "another specification" in err) == (1, True)


def test_vectors_are_kept_under_all_that_determines_them(tmp_path: Path) -> None:
    encoder = FunctionEncoder(lambda texts: np.arange(3 * len(texts)).reshape(-1, 3), dim=3)

    def vectors(sentences: Sequence[str], **identity: object) -> FloatArray:
        return CachedEncoder(encoder, tmp_path, {"model": "a", **identity}).encode(sentences)

    first = vectors(["x", "y"])
    np.testing.assert_array_equal(vectors(["x", "y"]), first)
    assert len(encoder.asked) == 1
    for other in (vectors(["y", "x"]), vectors(["x y"]), vectors(["x", "y"], model="b")):
        assert other.shape[1] == 3
    assert len(encoder.asked) == 4
    (file, *_) = sorted(tmp_path.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
    payload = bytearray(file.read_bytes())
    payload[payload.index(np.float32(1).tobytes())] ^= 1
    file.write_bytes(payload)
    np.testing.assert_array_equal(vectors(["x", "y"]), first)
    assert len(encoder.asked) == 5


def test_kept_vectors(cli: Cli, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("run", "--methods", f"m=hf:{tiny_bert}:avg", "--suite", "toy", "--keep-vectors")
    assert cli(*command, "--campaign", "one")[0] == 0
    assert len(list((tmp_path / "results/.vectors").glob("*.npz"))) == 1
    monkeypatch.setattr(TransformerEncoder, "_embed_rows", None)  # nothing is computed again
    assert cli(*command, "--campaign", "two")[0] == 0
    records = [tmp_path / f"results/{campaign}/mini/m/no-seed/toy.json" for campaign in ("one", "two")]
    one, two = ({**json.loads(file.read_text()), "timing": None} for file in records)
    assert one == two


def test_scores_do_not_depend_on_batches(tiny_bert: Path, transfer_tasks: dict[str, LabelledTask]) -> None:
    encoder, toy, trec = TransformerEncoder(tiny_bert, "avg"), make_toy_task(), transfer_tasks["TREC"]
    first, second = (list(side) for side in zip(*toy.all_pairs(), strict=True))
    found = []
    for tokens in (1, 200, 8_192):  # one sentence a batch, some, and all in one
        vectors = embed_sentences(encoder, (*first, *second, *labelled_sentences(trec)), batch_tokens=tokens)
        values = [score.value for score in score_task(toy, vectors.cosine(first, second).astype(np.float32))]
        found.append([*values, *run_transfer_task(trec, vectors, Protocol(kfold=3)).test])
    np.testing.assert_allclose(found[1:], [found[0]] * 2, atol=1e-6)
