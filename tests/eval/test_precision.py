"""Precision of the evaluation, kept vectors, and batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.data.tasks import LabelledTask
from bench.data.toy_suite import make_toy_task
from bench.encoder import FloatArray
from bench.eval.embeddings import embed_sentences
from bench.eval.sts import score_task
from bench.eval.transfer import Protocol, run_transfer_task
from bench.eval.transfer_suite import labelled_sentences
from bench.eval.vector_storage import CachedEncoder
from bench.nn.backbone import TransformerEncoder, load_folder
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
    low = (*command, "--precision", "bf16")
    assert cli(*command, "--campaign", "full")[0] == 0
    assert cli(*low, "--campaign", "low", "--precision-effect")[0] == 0
    assert cli(*low, "--campaign", "once")[0] == 0
    place = "mini/m/no-seed/toy.json"
    names = ("full", "low", "once")
    texts = [(tmp_path / "results" / campaign / place).read_text() for campaign in names]
    assert len({compute_family_key(parse_record(text, "")) for text in texts}) == 2
    full, both, once = map(json.loads, texts)
    assert full["key"] != both["key"] == once["key"]
    assert (full["provenance"]["precision"], both["provenance"]["precision"]) == ("float32", "bf16")
    assert "evaluation_precision" not in full["provenance"]
    assert once["provenance"]["evaluation_precision"] == {"name": "bf16"}
    assert once["scores"] == both["scores"]
    effect = both["provenance"]["evaluation_precision"]
    assert effect["name"] == "bf16"
    assert set(effect["tasks"]) == {"TOY", "avg"}
    assert effect["tasks"]["TOY"]["fp32"] == full["scores"][0]["value"]
    difference = both["scores"][0]["value"] - full["scores"][0]["value"]
    assert effect["tasks"]["TOY"]["difference"] == pytest.approx(difference, abs=1e-15)
    assert 0 < abs(difference) < 0.1
    said = [cli("report", "--campaign", campaign)[1] for campaign in names]
    points = f"{100 * abs(difference):.2f}"
    assert f"Evaluated in bf16; fp32 scores of a task differ by at most {points}." in said[1]
    assert "Evaluated in bf16." in said[2]
    assert "Evaluated in" not in said[0]
    code, _, err = cli(*low, "--campaign", "full")
    assert (code, "another specification" in err) == (1, True)


def test_the_effect_of_a_precision_is_measured_on_request(cli: Cli, tiny_bert: Path, tmp_path: Path) -> None:
    command = ("run", "--methods", f"m=hf:{tiny_bert}:avg", "--suite", "toy", "--precision-effect")
    code, _, err = cli(*command)
    assert (code, err.count("\n")) == (2, 1)
    assert "--precision-effect: fp32 is not a lower precision" in err
    low = [*command[:-1], "--precision", "bf16"]
    record = tmp_path / "results/local/mini/m/no-seed/toy.json"
    assert "precision-effect" not in cli(*low)[2]
    before = record.read_bytes()
    code, _, err = cli(*low, "--precision-effect")
    assert (code, record.read_bytes()) == (0, before)
    assert "1 finished record(s) lack it" in err
    code, _, err = cli(*low, "--precision-effect", "--force")
    assert (code, "lack it" in err) == (0, False)
    assert "tasks" in json.loads(record.read_text())["provenance"]["evaluation_precision"]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """Return the types in which models are loaded, as they are."""
    dtypes: list[torch.dtype] = []

    def load(*given: Any, dtype: torch.dtype, **options: Any) -> Any:
        dtypes.append(dtype)
        return load_folder(*given, dtype=dtype, **options)

    monkeypatch.setattr("bench.nn.backbone.load_folder", load)
    return dtypes


def test_a_folder_is_loaded_once_in_the_precision(
    cli: Cli, tiny_bert: Path, loads: list[torch.dtype]
) -> None:
    command = ("run", "--suite", "toy", "--precision", "fp16", "--methods")
    backbone = ("--backbone", str(tiny_bert))
    assert cli(*command, f"m=hf:{tiny_bert}:avg,ensemble:untrained:avg+untrained:cls", *backbone)[0] == 0
    assert loads == 3 * [torch.float16]
    assert cli(*command, f"m=hf:{tiny_bert}:avg", "--force", "--precision-effect")[0] == 0
    assert loads[3:] == [torch.float16, torch.float32]


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
