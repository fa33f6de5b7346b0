"""Decoders, encoder-decoders and models of relative positions, tiny and random, against plain loops."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer, T5EncoderModel

from bench.encoder import FloatArray
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder
from bench.nn.encoder_folder import export_encoder
from bench.nn.hidden_states import average_by_position, select_last_state
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from tests.support.architectures import tiny
from tests.support.cli import Cli, refusal
from tests.support.folders import sentence_transformers_folder

Bench = Callable[..., "subprocess.CompletedProcess[str]"]

SENTENCES = ["The doctor is reading a book.", "a", "Two children are singing a song on the hill.", "a"]
CAUSAL = ("gpt2", "llama", "opt")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("architectures")
    kinds = (*CAUSAL, "t5", "xlnet", "bart", "deberta", "fnet", "short")
    return {kind: tiny(kind, root / kind) for kind in kinds}


def alone(folder: Path, sentence: str, pooling: str) -> FloatArray:
    t5 = json.loads((folder / "config.json").read_text())["model_type"] == "t5"
    model = (T5EncoderModel if t5 else AutoModel).from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)(sentence)["input_ids"]
    with torch.no_grad():
        states = list(model(input_ids=torch.tensor([ids])).last_hidden_state[0])
    if pooling == "last":
        return np.asarray(states[-1].numpy())
    weights = [i + 1 if pooling == "weighted_mean" else 1 for i in range(len(ids))]
    total = sum((w * s for w, s in zip(weights, states, strict=True)), torch.zeros_like(states[0]))
    return np.asarray((total / sum(weights)).numpy())


def test_poolings_of_decoders_by_hand() -> None:
    states = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], [[1.0, 0.0], [2.0, 0.0], [6.0, 3.0]]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert select_last_state(states, mask).tolist() == [[3, 4], [6, 3]]
    expected = torch.tensor([[7 / 3, 10 / 3], [23 / 6, 9 / 6]])
    torch.testing.assert_close(average_by_position(states, mask), expected)


@pytest.mark.parametrize("pooling", ["last", "weighted_mean"])
@pytest.mark.parametrize("kind", [*CAUSAL, "t5", "xlnet", "bart", "deberta", "fnet"])
def test_batches_equal_each_sentence_alone(folders: dict[str, Path], kind: str, pooling: str) -> None:
    encoder = TransformerEncoder(folders[kind], pooling)
    vectors = encoder.encode(SENTENCES)
    assert encoder.dim == vectors.shape[1] == (8 if kind == "opt" else 16)
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        np.testing.assert_allclose(vector, alone(folders[kind], sentence, pooling), rtol=1e-4, atol=2e-5)
    assert np.abs(vectors[0] - vectors[2]).max() > 0.01


def test_where_padding_is_read_nothing_is_padded(folders: dict[str, Path], tmp_path: Path) -> None:
    encoder = TransformerEncoder(folders["fnet"], "avg")
    assert (encoder.sees_padding, encoder.facts["batches"]) == (True, "of one length each")
    assert [batch for batch in encoder._batch_rows([[0] * n for n in (3, 2, 3, 3)], 6)] == [[1], [0, 2], [3]]
    assert "batches" not in TransformerEncoder(folders["deberta"], "avg").facts
    folder = sentence_transformers_folder(folders["fnet"], tmp_path / "st", mean=True)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
    other = SentenceTransformerEncoder(folder)
    assert other.facts["batches"] == "of one sentence each"
    np.testing.assert_allclose(other.encode(SENTENCES), encoder.encode(SENTENCES), rtol=1e-4, atol=2e-5)
    export_encoder(encoder, tmp_path / "out", "# A card\n")
    assert not (tmp_path / "out" / "modules.json").exists()
    assert "Padding changes" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("kind", "said"), [("funnel", "padding .* FunnelModel"), ("funnel-base", "FunnelBaseModel .*4 .*16")]
)
def test_what_needs_padding_or_has_no_states_is_refused(tmp_path: Path, kind: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        TransformerEncoder(tiny(kind, tmp_path / kind), "avg")


@pytest.mark.parametrize("pooling", ["avg_first_last", "avg_last_two"])
def test_states_of_two_widths_are_not_added(folders: dict[str, Path], pooling: str) -> None:
    """OPT's last states have 8 components here, those of its other layers 16, as in OPT-350m."""
    with pytest.raises(InputError, match="16 components and a last one of 8; expected pooling avg, last"):
        TransformerEncoder(folders["opt"], pooling)
    for kind in ("gpt2", "llama", "t5", "bart"):
        assert TransformerEncoder(folders[kind], pooling).encode(SENTENCES).shape[1] == 16


@pytest.mark.parametrize("pooling", ["avg", "last", "weighted_mean", "avg_first_last"])
def test_a_sentence_without_tokens_is_the_zero_vector(folders: dict[str, Path], pooling: str) -> None:
    encoder = TransformerEncoder(folders["gpt2"], pooling)
    found = encoder.encode(["", "a longer one", ""])
    assert found.any(1).tolist() == [False, True, False]
    assert not encoder.encode([""]).any()


def test_a_folder_without_a_padding_token_is_one_clear_line(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = sentence_transformers_folder(folders["gpt2"], tmp_path / "st", mean=True)
    with pytest.raises(InputError, match=r'^st: .*padding token.*"pad_token".*hf:PATH'):
        SentenceTransformerEncoder(folder)


@pytest.mark.parametrize(
    ("kind", "pooling", "message"),
    [
        *((kind, "cls", "is causal.*expected pooling last, weighted_mean or avg") for kind in CAUSAL),
        ("xlnet", "cls", "classification token last"),
        ("xlnet", "mask", "can't be used with this model"),
    ],
)
def test_causal_first_tokens(
    folders: dict[str, Path], kind: str, pooling: str, message: str, cli: Cli
) -> None:
    with pytest.raises(InputError, match=message):
        TransformerEncoder(folders[kind], pooling)
    said = refusal(cli, "run", "--suite", "toy", "--methods", f"hf:{folders[kind]}:{pooling}")
    assert said.count("hf:PATH:last") == 1


def test_facts_say_whose_states_are_pooled(folders: dict[str, Path], tiny_bert: Path) -> None:
    for folder in (folders["deberta"], folders["bart"], folders["t5"], tiny_bert):
        assert not TransformerEncoder(folder, "cls").causal
    found = {k: TransformerEncoder(folders[k], "avg").facts.get("states") for k in ("bart", "t5", "gpt2")}
    assert found == {"bart": "the decoder's", "t5": "the encoder's", "gpt2": None}
    both = TransformerEncoder(folders["bart"], "avg_first_last").encode(SENTENCES)
    assert np.abs(both - TransformerEncoder(folders["bart"], "avg").encode(SENTENCES)).max() > 0.01


def test_a_folder_of_t5s_encoder_alone_is_the_same(folders: dict[str, Path], tmp_path: Path) -> None:
    for part in (T5EncoderModel, AutoTokenizer):
        part.from_pretrained(folders["t5"]).save_pretrained(tmp_path)
    whole, part = (TransformerEncoder(place, "avg").encode(SENTENCES) for place in (folders["t5"], tmp_path))
    np.testing.assert_array_equal(whole, part)
    # relative positions are bounded by the tokenizer
    assert [TransformerEncoder(folders[kind], "avg").max_length for kind in ("t5", "xlnet")] == [512, 512]
    short = TransformerEncoder(tiny("t5", tmp_path / "t5", model_max_length=9), "avg")
    assert (short.max_length, len(short.token_ids(["a " * 60])[0])) == (9, 9)


def test_tokens_beyond_the_table_are_one_clear_line(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"id 100, .* 100 rows"):
        TransformerEncoder(folders["short"], "avg")
    more: dict[str, Any] = {"pad_token": "<more>"}  # id 300 of 300, as many add one to Llama
    encoder = TransformerEncoder(tiny("gpt2", tmp_path / "added", **more), "avg")
    expected = TransformerEncoder(folders["gpt2"], "avg").encode(SENTENCES)
    np.testing.assert_array_equal(encoder.encode(SENTENCES), expected)
    with pytest.raises(InputError, match=r"'<more>' .*id 300, .* 300 rows"):
        encoder.encode(["a <more>"])


@pytest.mark.slow
@pytest.mark.long
def test_silent_libraries(folders: dict[str, Path], tiny_bert: Path, tmp_path: Path, bench: Bench) -> None:
    old = sentence_transformers_folder(tiny_bert, tmp_path / "old", mean=True)
    versions = {"__version__": {"sentence_transformers": "99.0.0", "transformers": "99.0.0", "pytorch": "9"}}
    (old / "config_sentence_transformers.json").write_text(json.dumps(versions))
    weights = load_file(old / "model.safetensors") | {"more.weight": torch.zeros(3)}
    save_file(weights, old / "model.safetensors", metadata={"format": "pt"})
    (old / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    methods = [f"st:{old}", f"hf:{old}:avg", *(f"{way}:{folders['gpt2']}" for way in ("prompteol", "echo"))]
    methods += [f"hf:{folders[kind]}:last" for kind in ("gpt2", "t5", "xlnet", "bart")]
    done = bench("run", "--suite", "toy", "--workers", "1", "--methods", ",".join(methods))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"(\[\d/8\] \S+ on toy: avg -?[\d.]+ in [\d.]+ s\n){8}records: \S+\n", done.stderr), (
        done.stderr
    )
