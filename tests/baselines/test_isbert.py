"""IS-BERT: the loss by its formulas, a step against a transcription, folders that keep the convolutions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bench.baselines.isbert import jensen_shannon_loss
from bench.errors import InputError
from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.nn.ngram_layers import NGRAMS, NgramLayers
from tests.support.steps import objective_of, same_step
from tests.support.training import options_of, random, stages_of, toy_sentences, train_alone


def released_loss(sentences: list[Tensor], vectors: list[Tensor]) -> Tensor:
    """``local_global_loss_`` with JSD of losses/MutualInformationLoss.py, ea6622c, pair by pair.

    The released masks put 0 in place of the others' scores, whose expectations, log 2 - log 2, are 0.
    """
    count = sum(map(len, sentences))
    positive = negative = torch.zeros((), dtype=torch.float64)
    for i, tokens in enumerate(sentences):
        for token in tokens:
            for j, vector in enumerate(vectors):
                score = token @ vector
                if i == j:
                    positive = positive + math.log(2) - torch.log(1 + torch.exp(-score))
                else:
                    negative = negative + torch.log(1 + torch.exp(-score)) + score - math.log(2)
    return negative / (count * (len(vectors) - 1)) - positive / count


@pytest.mark.parametrize("lengths", [[1, 1], [3, 1, 2], [2, 5, 1, 4]])
def test_the_loss_is_the_formula(lengths: list[int]) -> None:
    features, vectors = random(sum(lengths), 4), random(len(lengths), 4, seed=1)
    owner = torch.tensor([i for i, length in enumerate(lengths) for _ in range(length)])
    expected = released_loss(
        list(torch.tensor_split(features, [sum(lengths[:n]) for n in range(1, len(lengths))])), list(vectors)
    )
    assert float(jensen_shannon_loss(features, vectors, owner)) == pytest.approx(float(expected), rel=1e-12)


def test_the_loss_by_hand() -> None:
    """Zeros give 0; own scores of s, others' of -s give 2 (log(1 + e^-s) - log 2), above -2 log 2."""
    owner = torch.tensor([0, 1, 1])
    assert float(jensen_shannon_loss(torch.zeros(3, 2), torch.zeros(2, 2), owner)) == pytest.approx(
        0, abs=1e-7
    )
    features, vectors = torch.tensor([[1.0], [-1.0], [-1.0]]), torch.tensor([[3.0], [-3.0]])
    expected = 2 * (math.log(1 + math.exp(-3)) - math.log(2))
    assert float(jensen_shannon_loss(features, vectors, owner)) == pytest.approx(expected, rel=1e-6)
    far = jensen_shannon_loss(features * 1e4, vectors, owner)
    assert float(far) == pytest.approx(-2 * math.log(2))
    with pytest.raises(ValueError, match="second sentence"):
        jensen_shannon_loss(features[:1], vectors[:1], owner[:1])


def features_by_hand(layers: Any, states: Tensor, *, relu: bool) -> Tensor:
    """Each window's weights times the states around a token, with zeros outside; (T, F)."""
    rows = []
    for place in range(len(states)):
        parts = []
        for convolution in layers.convolutions:
            weight, bias = convolution.weight, convolution.bias
            total, reach = bias, weight.shape[2] // 2
            for offset in range(-reach, reach + 1):
                if 0 <= place + offset < len(states):
                    total = total + weight[:, :, reach + offset] @ states[place + offset]
            parts.append(total)
        rows.append(torch.cat(parts))
    features = torch.stack(rows)
    return features.clamp(min=0) if relu else features


@pytest.mark.parametrize(
    "changes",
    [{"channels": 5}, {"channels": 3, "activation": "relu"}, {"channels": 4, "checkpoint_layers": True}],
)
def test_a_step_by_hand(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    """Loss and all gradients, the encoder's too, each sentence alone and so without padding."""
    made, rows, _ = objective_of("isbert", tiny_bert, **changes)
    layers = made.encoder.ngram_layers
    sentences = []
    for row in rows:
        states = made.encoder(input_ids=torch.tensor([row])).last_hidden_state[0]
        sentences.append(features_by_hand(layers, states, relu=changes.get("activation") == "relu"))
    expected = released_loss(sentences, [tokens.sum(0) / len(tokens) for tokens in sentences])
    found = same_step(made, made(rows), expected)
    convolutions = {name: part for name, part in found.items() if "ngram_layers" in name}
    assert len(convolutions) == 6
    assert all(bool(part.any()) for part in convolutions.values())
    assert [tuple(c.weight.shape[1:]) for c in layers.convolutions] == [(16, 1), (16, 3), (16, 5)]


def test_settings_of_the_released_training() -> None:
    options = options_of("isbert")
    wanted: dict[str, Any] = {
        "lr": 2e-6,
        "adam_eps": 1e-7,
        "weight_decay": 0.01,
        "decay_all": False,
        "warmup": 0.1,
    }
    wanted |= {"batch_size": 32, "clip": 1.0, "epochs": 1, "schedule": "linear", "channels": 256}
    assert {name: options[name] for name in wanted} == wanted
    (stage,) = stages_of("isbert", options)
    assert {"channels", "activation", "warmup"} <= dict(stage.config).keys()


def test_folders_keep_the_convolutions(tiny_bert: Path, tmp_path: Path) -> None:
    trained = train_alone("isbert", tiny_bert, tmp_path, channels=4, activation="relu", warmup=0.0)
    text = toy_sentences()[:8]
    encoder = trained.encoder()
    assert isinstance(encoder, TransformerEncoder)
    assert encoder.dim == 12
    assert encoder.facts["dim"] == 12
    states: Any = trained.encoder(pooling="avg")
    assert states.dim == 16
    scores = dict(trained.facts["dev_curve"])
    assert len(scores) == 2
    before, kept = load_backbone(tiny_bert)[0].state_dict(), trained.kept()
    assert set(before) == set(kept)  # the convolutions are elsewhere
    assert any(not torch.equal(before[name], kept[name]) for name in before)
    together, alone = encoder.encode(text), np.stack([encoder.encode([sentence])[0] for sentence in text])
    np.testing.assert_allclose(together, alone, rtol=0, atol=2e-5)  # padding is unseen
    layers = encoder.model.ngram_layers
    with torch.no_grad():
        own = encoder.model(input_ids=torch.tensor(encoder.token_ids(text[:1]))).last_hidden_state[0]
        wanted = features_by_hand(layers, own, relu=True).mean(0)
    np.testing.assert_allclose(together[0], wanted.numpy(), rtol=0, atol=2e-5)
    export_encoder(encoder, tmp_path / "out", "card")
    np.testing.assert_array_equal(load_encoder(tmp_path / "out").encode(text), together)
    assert not (tmp_path / "out" / "modules.json").exists()


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("missing", "other names or shapes"),
        ("width", "other names or shapes"),
        ("bias", "lacks the first"),
        ("activation", "activation is 'tanh'"),
        ("read", "can't be read"),
    ],
)
def test_a_damaged_file_is_refused(kind: str, what: str, tiny_bert: Path, tmp_path: Path) -> None:
    from bench.nn.model_parts import save_model

    model, tokenizer = load_backbone(tiny_bert)
    model.ngram_layers = NgramLayers(16, 2)
    folder = tmp_path / "x"
    save_model(model, folder)
    tokenizer.save_pretrained(folder)
    assert load_backbone(folder)[0].ngram_layers.width == 6
    tensors = load_file(folder / NGRAMS)
    if kind == "missing":
        del tensors["convolutions.2.weight"]
    if kind == "width":
        tensors["convolutions.1.weight"] = tensors["convolutions.1.weight"][:, :8].clone()
    if kind == "bias":
        del tensors["convolutions.0.bias"]
    save_file(tensors, folder / NGRAMS, metadata={"activation": "tanh" if kind == "activation" else "none"})
    if kind == "read":
        (folder / NGRAMS).write_bytes(b"no tensors")
    with pytest.raises(InputError, match=what) as error:
        load_backbone(folder)
    assert error.value.where == f"x/{NGRAMS}"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"train_pooling": "cls"}, "train_pooling=cls isn't trained"),
        ({"lora_rank": 4}, "lora_rank=4"),
        ({"chunk": 8}, "chunk=8"),
    ],
)
def test_refused_settings(changes: dict[str, OptionValue], what: str) -> None:
    with pytest.raises(InputError, match=what):
        stages_of("isbert", options_of("isbert", **changes))


def test_a_plain_folder_has_no_convolutions(tiny_bert: Path) -> None:
    with pytest.raises(InputError, match="needs isbert's convolutions"):
        TransformerEncoder(tiny_bert, "ngrams")
