"""Pooling, batches, and the encoders around transformers, on a tiny BERT."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from bench.baselines.whitening import WhitenedEncoder
from bench.encoder import Encoder, FloatArray
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder
from bench.nn.hidden_states import average_states, pool_states, select_mask_state
from bench.nn.model_folder import hash_model, resolve_folder
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.nn.sum_encoder import SumEncoder
from bench.nn.tokens import length_sorted_batches
from bench.nn.two_phase_encoding import find_device
from bench.training.sentence_encoder import RecordingEncoder
from tests.support.folders import copy, sentence_transformers_folder
from tests.support.messages import missing_facts

SENTENCES = ["The doctor is reading a book.", "", "a", "Two children are singing a song on the hill.", "a"]
POOLINGS = ("cls", "avg", "avg_first_last", "avg_layer1_last", "avg_last_two", "pooler", "mask")


def test_pooling_by_hand() -> None:
    first = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]], dtype=torch.float64)
    middle, last = first * 10, first * 100
    mask = torch.tensor([[1, 1, 0]])
    states = (first, middle, last)
    assert pool_states(states, mask, "cls").tolist() == [[100, 200]]
    assert pool_states(states, mask, "avg").tolist() == [[200, 300]]
    assert pool_states(states, mask, "avg_first_last").tolist() == [[101, 151.5]]
    assert pool_states(states, mask, "avg_first_last", first_layer="layer1").tolist() == [[110, 165]]
    assert pool_states(states, mask, "avg_last_two").tolist() == [[110, 165]]
    assert average_states(first, torch.ones(1, 3)).tolist() == [[13 / 3, 5]]
    with pytest.raises(ValueError, match="pooling 'max'"):
        pool_states(states, mask, "max")
    ids = torch.tensor([[7, 4, 4], [4, 7, 7]])
    assert select_mask_state(first.expand(2, 3, 2), ids, 4).tolist() == [[3, 4], [1, 2]]


@given(st.lists(st.integers(1, 60), max_size=80), st.integers(1, 200))
def test_batches_cover_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = list(length_sorted_batches(lengths, budget))
    order = [index for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[index] for index in order] == sorted(lengths)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= budget
    for batch, following in pairwise(batches):  # no batch could have taken one more
        assert (len(batch) + 1) * lengths[following[0]] > budget


def by_hand(folder: Path, sentence: str, pooling: str) -> FloatArray:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    text = f'This sentence of "{sentence}" means[MASK].' if pooling == "mask" else sentence
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        output = model(input_ids=ids, output_hidden_states=True)
    layers = [states[0] for states in output.hidden_states]
    used = {"avg": [layers[-1]], "avg_first_last": [layers[0], layers[-1]], "avg_last_two": layers[-2:]}
    used["avg_layer1_last"] = [layers[1], layers[-1]]
    vector = layers[-1][ids[0].tolist().index(tokenizer.mask_token_id) if pooling == "mask" else 0]
    if pooling == "pooler":
        weights = load_file(folder / "model.safetensors")
        vector = torch.tanh(weights["pooler.dense.weight"] @ vector + weights["pooler.dense.bias"])
    if pooling in used:
        states = [s for layer in used[pooling] for s in layer]
        vector = sum(states, torch.zeros(16)) / len(states)
    values: FloatArray = vector.numpy()
    return values


@pytest.mark.parametrize("pooling", POOLINGS)
def test_encoder_equals_each_sentence_by_hand(tiny_bert: Path, pooling: str) -> None:
    how: dict[str, Any] = {"pooling": pooling}
    if pooling == "avg_layer1_last":
        how = {"pooling": "avg_first_last", "first_layer": "layer1"}
    encoder = TransformerEncoder(tiny_bert, **how)
    assert isinstance(encoder, Encoder)
    done: list[int] = []
    vectors = encoder.encode(SENTENCES, progress=done.append)
    assert (vectors.shape, sum(done)) == ((5, 16), 5)
    assert vectors.dtype == np.float32
    expected = [by_hand(tiny_bert, sentence, pooling) for sentence in SENTENCES]
    np.testing.assert_allclose(vectors, np.stack(expected), rtol=1e-4, atol=2e-5)  # float32, any processor
    np.testing.assert_array_equal(vectors[2], vectors[4])
    np.testing.assert_allclose(encoder.encode(SENTENCES, batch_tokens=1), vectors, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(encoder.encode(SENTENCES[::-1])[::-1], vectors, rtol=1e-4, atol=2e-5)
    assert encoder.encode([]).shape == (0, 16)
    np.testing.assert_array_equal(TransformerEncoder(tiny_bert, **how).encode(SENTENCES), vectors)


def test_what_waits_to_be_read_is_vectors_alone(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device's memory would hold all states of 32 batches, of which [CLS] is a view."""
    kept: list[int] = []
    concatenate = torch.cat

    def measure(waiting: list[torch.Tensor], *args: Any, **options: Any) -> torch.Tensor:
        kept.extend(vectors.untyped_storage().nbytes() // vectors.nbytes for vectors in waiting)
        return concatenate(waiting, *args, **options)

    monkeypatch.setattr(torch, "cat", measure)
    TransformerEncoder(tiny_bert, "cls").encode(["a red house", "a blue river"])
    assert kept == [1]


def test_long_input_is_cut_at_the_models_maximum(tiny_bert: Path) -> None:
    encoder = TransformerEncoder(tiny_bert, "avg")
    assert encoder.max_length == 40
    long = "the doctor " * 200
    before = torch.get_rng_state()
    np.testing.assert_array_equal(encoder.encode([long]), encoder.encode([long + "is reading"]))
    assert torch.equal(before, torch.get_rng_state())
    prompted = TransformerEncoder(tiny_bert, "mask").token_ids([long])[0]
    assert (len(prompted), prompted.count(4)) == (40, 1)


def drop_weights(folder: Path, target: Path, part: str) -> Path:
    weights = load_file(copy(folder, target) / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if part not in name}
    save_file(kept, target / "model.safetensors", metadata={"format": "pt"})
    return target


def test_missing_weights_are_never_made_up(tiny_bert: Path, tmp_path: Path) -> None:
    folder = drop_weights(tiny_bert, tmp_path / "pooler", "pooler")
    with pytest.raises(InputError, match="no pooler weights"):
        TransformerEncoder(folder, "pooler")
    vectors = [TransformerEncoder(place, "cls").encode(SENTENCES) for place in (folder, tiny_bert)]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    name = "encoder.layer.1.output.dense.weight"
    folder = drop_weights(tiny_bert, tmp_path / "layer", name)
    with pytest.raises(InputError, match=rf"1 weight\(s\) are missing .* {name}"):
        TransformerEncoder(folder, "cls")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 7}))
    with pytest.raises(InputError, match=r"can't be loaded|missing"):
        TransformerEncoder(folder, "cls")


def test_model_folders(tiny_bert: Path, tmp_path: Path) -> None:
    found = resolve_folder(str(tiny_bert), where="here")
    assert (found.name, found.path) == ("tiny-bert", tiny_bert)
    assert resolve_folder(str(copy(tiny_bert, tmp_path / "other")), where="here").sha256 == found.sha256
    (tmp_path / "other" / "README.md").write_text("words")
    assert hash_model(tmp_path / "other") == found.sha256
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        changed = copy(tiny_bert, tmp_path / file.split(".")[0])
        with (changed / file).open("ab") as stream:
            stream.write(b" ")
        assert hash_model(changed) != found.sha256
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"here: '.*empty'.* expected config.json"):
        resolve_folder(str(empty), where="here")
    (empty / "config.json").write_text("{}")
    with pytest.raises(InputError, match="has no weights"):
        resolve_folder(str(empty), where="here")
    with pytest.raises(InputError) as caught:
        resolve_folder("nobody/nothing", where="--backbone")
    assert caught.value.where == "--backbone"
    assert not missing_facts(caught.value, "'nobody/nothing'", "hf download nobody/nothing")


@pytest.mark.parametrize(("mean", "pooling"), [(True, "avg"), (False, "cls")])
def test_sentence_transformers_is_the_same(tiny_bert: Path, tmp_path: Path, mean: bool, pooling: str) -> None:
    folder = sentence_transformers_folder(tiny_bert, tmp_path / "st", mean=mean)
    encoder = SentenceTransformerEncoder(folder)
    assert isinstance(encoder, Encoder)
    assert encoder.dim == 16
    texts = [text for text in SENTENCES if text]
    expected = TransformerEncoder(tiny_bert, pooling).encode(texts)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(texts, batch_tokens=1), expected, atol=1e-5)
    assert encoder.encode([]).shape == (0, 16)
    long = "the doctor is reading a book on the hill and " * 3
    np.testing.assert_array_equal(encoder.encode([long]), encoder.encode([long + " a song"]))


def test_where_an_encoder_computes(tiny_bert: Path) -> None:
    one = TransformerEncoder(tiny_bert)
    one.device = "cuda"
    assert find_device(one) == "cuda"
    assert find_device(SumEncoder([one, one])) == "cuda"
    assert find_device(RecordingEncoder(SumEncoder([one, one]))) == "cuda"
    assert find_device(WhitenedEncoder(one, np.zeros(16), np.eye(16))) == "cuda"
    assert find_device(object()) == "cpu"


def test_damaged_and_missing_modules(tiny_bert: Path, tmp_path: Path) -> None:
    folder = sentence_transformers_folder(tiny_bert, tmp_path / "st", mean=True)
    (folder / "modules.json").write_text("{")
    for place, message in (
        (folder, r"modules\.json is damaged"),
        (tiny_bert, "tiny-bert: .*hf:PATH:pooling"),
    ):
        with pytest.raises(InputError, match=message):
            SentenceTransformerEncoder(place)
