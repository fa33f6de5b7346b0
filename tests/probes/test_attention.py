"""CLS energy and attention sink against loops over output_attentions and contexts of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from transformers import PreTrainedTokenizerFast

from bench.data.toy_suite import make_toy_task
from bench.errors import BenchError, InputError
from bench.nn.backbone import TransformerEncoder
from bench.nn.hooks import find_towers, watch_towers
from bench.nn.observer import ObservedTower, UntraceableError
from bench.nn.sum_encoder import SumEncoder
from bench.probes import attention_sink as sink
from bench.probes.attention_sink import AttentionMass, attention_maps, attention_mass, token_classes
from bench.probes.cls_energy import ClsEnergy, LayerMeans, cls_energy
from bench.probes.modulus import Modulus, Norms
from bench.render.figure_files import draw_heatmaps
from tests.support.messages import missing_facts

TEXTS = ["The doctor is reading a book.", "two children", ". .", "", "Our teacher is painting. the fence . ."]
SENTENCES = [*TEXTS, *list(dict.fromkeys(pair[0] for pair in make_toy_task().all_pairs()))[::4]]


def by_hand(encoder: TransformerEncoder, sentence: str) -> tuple[Any, list[int]]:
    """Contexts (layers, T, H) and weights (layers, heads, T, T) of one sentence, and its token ids."""
    ids = encoder.token_ids([sentence])[0]
    model = encoder.model
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            output = model(input_ids=torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
    finally:
        model.set_attn_implementation("sdpa")
    contexts = []
    for layer, weights in enumerate(output.attentions):
        value = model.encoder.layer[layer].attention.self.value
        with torch.inference_mode():
            heads = value(output.hidden_states[layer][0]).reshape(len(ids), 2, 8)
        contexts.append(torch.einsum("hqk,khd->qhd", weights[0], heads).reshape(len(ids), 16))
    return (contexts, [weights[0] for weights in output.attentions], output), ids


def classes_by_hand(encoder: TransformerEncoder, ids: list[int]) -> list[int]:
    tokens = encoder.tokenizer.convert_ids_to_tokens(ids)
    kinds = [3] * len(tokens)
    kinds[0], kinds[-1] = 0, 1
    position = len(tokens) - 2
    while position > 0 and tokens[position] in (".", '"'):
        kinds[position] = 2
        position -= 1
    return kinds


@pytest.fixture(scope="module")
def encoder(tiny_bert: Path) -> TransformerEncoder:
    return TransformerEncoder(tiny_bert)


@pytest.fixture(scope="module")
def observed(encoder: TransformerEncoder) -> dict[str, Any]:
    watched = find_towers(encoder)
    observers = {"energy": ClsEnergy(watched), "mass": AttentionMass(watched), "norms": Modulus(watched)}
    with watch_towers(watched, list(observers.values())):
        encoder.encode(SENTENCES, 60)
    return observers


def test_cls_energy_of_a_context_and_means_over_batches() -> None:
    context = torch.tensor([[[3.0, 4.0], [2.0, 0.0], [0.0, 1.0], [9.0, 9.0]], [[0.0, 0.0], [1.0, 0.0]] * 2])
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    torch.testing.assert_close(cls_energy(context, mask), torch.tensor([math.sqrt(5), 0.0]))
    means = LayerMeans()
    for batch in ([1.0, 2.0], [6.0]):
        for layer in (0, 1):
            means.add(layer, (1 + layer) * torch.tensor(batch))
    assert means.result("x").tolist() == [3.0, 6.0]


def test_cls_energy_is_the_mean_over_sentences(encoder: TransformerEncoder, observed: dict[str, Any]) -> None:
    expected = np.zeros((len(SENTENCES), 3))
    for row, sentence in enumerate(SENTENCES):
        (contexts, _, _), _ = by_hand(encoder, sentence)
        for layer, context in enumerate(contexts):
            rest = math.sqrt(sum(float(x) ** 2 for token in context[1:] for x in token))
            expected[row, layer] = math.sqrt(sum(float(x) ** 2 for x in context[0])) / rest
    found = observed["energy"].result()
    assert found["layers"] == pytest.approx(expected.mean(0).tolist(), rel=1e-5)
    assert found["value"] == pytest.approx(expected.mean(), rel=1e-5)
    assert found["towers"] == [{"value": found["value"], "layers": found["layers"]}]


def test_attention_mass_by_layer_and_head(encoder: TransformerEncoder, observed: dict[str, Any]) -> None:
    expected = np.zeros((len(SENTENCES), 3, 2, 4))
    for row, sentence in enumerate(SENTENCES):
        (_, layers, _), ids = by_hand(encoder, sentence)
        kinds = classes_by_hand(encoder, ids)
        for layer, weights in enumerate(layers):
            for head in range(2):
                for query in range(len(ids)):
                    for key, kind in enumerate(kinds):
                        expected[row, layer, head, kind] += float(weights[head, query, key]) / len(ids)
    found = observed["mass"].result(per_head=True)
    heads = expected.mean(0)
    np.testing.assert_allclose(found["towers"][0]["heads"], heads, atol=1e-6)
    np.testing.assert_allclose(found["layers"], heads.mean(1), atol=1e-6)
    np.testing.assert_allclose(np.sum(found["layers"], axis=1), 1, atol=1e-6)
    assert found["value"] == pytest.approx(heads[-1].mean(0)[1:3].sum(), abs=1e-6)
    assert found["classes"] == list(sink.CLASSES)
    with_final = sum(2 in classes_by_hand(encoder, encoder.token_ids([s])[0]) for s in SENTENCES)
    assert found["sentences_with_final_punctuation"] == with_final
    assert "heads" not in observed["mass"].result()["towers"][0]


def test_norms_of_cls_and_pooler(encoder: TransformerEncoder, observed: dict[str, Any]) -> None:
    outputs = [by_hand(encoder, sentence)[0][2] for sentence in SENTENCES]
    cls, pooler = ([o.last_hidden_state[0, 0] for o in outputs], [o.pooler_output[0] for o in outputs])
    found = observed["norms"].result()
    for part, states in (("cls", cls), ("pooler", pooler)):
        norms = [math.sqrt(sum(float(x) ** 2 for x in state)) for state in states]
        expected = {"mean": np.mean(norms), "sd": np.std(norms, ddof=1), "min": min(norms), "max": max(norms)}
        assert found["towers"][0][part] == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert found[part] == found["towers"][0][part]["mean"]


def test_norms_do_not_depend_on_the_batches() -> None:
    vectors = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)) + 1000
    whole, parts = Norms(), Norms()
    whole.add(vectors)
    for start, end in ((0, 1), (1, 31), (31, 50)):
        parts.add(vectors[start:end])
    assert parts.result() == pytest.approx(whole.result(), rel=1e-9)
    one = Norms()
    one.add(vectors[:1])
    with pytest.raises(BenchError, match="norms of 1 vector"):
        one.result()


def test_two_towers_each_and_their_mean(tiny_bert: Path, encoder: TransformerEncoder) -> None:
    other = TransformerEncoder(tiny_bert)
    with torch.no_grad():
        for weight in other.model.parameters():
            weight.mul_(1.3)
    twin = SumEncoder([encoder, other])
    results = []
    for model in (encoder, other, twin):
        watched = find_towers(model)
        observers = ClsEnergy(watched), AttentionMass(watched), Modulus(watched)
        with watch_towers(watched, observers):
            model.encode(SENTENCES)
        results.append([observer.result() for observer in observers])
    for one, two, both in zip(*results, strict=True):
        assert both["towers"] == [*one["towers"], *two["towers"]]
        for name in ("value", "cls", "pooler"):
            if name in both:
                assert both[name] == pytest.approx((one[name] + two[name]) / 2)
        if "layers" in both:
            np.testing.assert_allclose(both["layers"], (np.array(one["layers"]) + two["layers"]) / 2)


WORDS = ("[CLS]", ".", "##.", "\u0120!", "\u2581?", "a.", "#", "$", "``", "<s>", "\u00bb", "")
QUOTE, STOP, EURO = "\u00e2\u0122\u013f", "\u00e3\u0122\u0124", "\u00e2\u0124\u00ac"
SPELT = ("a", ".", "\u0120.", QUOTE, STOP, EURO, QUOTE[:2])  # bytes spelt as letters, as RoBERTa's


@pytest.mark.parametrize(
    ("decoder", "vocabulary", "marks"),
    [
        (None, WORDS, [".", "##.", "\u0120!", "\u2581?", "#", "\u00bb"]),
        (tokenizers.decoders.ByteLevel(), SPELT, [".", "\u0120.", QUOTE, STOP]),
    ],
)
def test_punctuation_of_a_vocabulary(decoder: Any, vocabulary: tuple[str, ...], marks: list[str]) -> None:
    ids = {text: place for place, text in enumerate(vocabulary)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=[]))
    if decoder:
        tokenizer.decoder = decoder
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token="[CLS]" if "[CLS]" in ids else None)
    found = sink.punctuation_tokens(fast).tolist()
    assert [text for text, mark in zip(vocabulary, found, strict=False) if mark] == marks


@pytest.mark.parametrize(
    ("ids", "kinds"),
    [
        ([1, 5, 6, 7, 2], "c..fs"),  # 7 and 8 are punctuation, 2 is [SEP]
        ([1, 7, 5, 7, 8, 2], "c..ffs"),
        ([1, 7, 2], "cfs"),
        ([1, 2], "cs"),
        ([1, 5, 7, 5, 2], "c...s"),
        ([1, 5, 7], "c.f"),  # cut: no [SEP]
        ([1, 5, 2, 6, 7, 2], "c.s.fs"),
        ([1, 5, 7, 2, 0, 0], "c.fs__"),
        ([7, 7], "cf"),
    ],
)
def test_classes_of_tokens(ids: list[int], kinds: str) -> None:
    punctuation = torch.zeros(9, dtype=torch.bool)
    punctuation[[7, 8]] = True
    mask = torch.tensor([[kind != "_" for kind in kinds]])
    found = token_classes(torch.tensor([ids]), mask, 2, punctuation)[0]
    letters = ["csf."[int(row.argmax())] if row.any() else "_" for row in found]
    assert "".join(letters) == kinds
    found_without = token_classes(torch.tensor([ids]), mask, None, punctuation)[0]
    assert found_without[:, 1].tolist() == [0] * len(ids)
    assert found.sum(1).tolist() == [float(kind != "_") for kind in kinds]


def test_attention_mass_leaves_padded_queries_out() -> None:
    weights = torch.tensor([[[[0.5, 0.5, 0.0], [0.1, 0.9, 0.0], [1.0, 0.0, 0.0]]]])
    classes = torch.eye(3)[None]
    classes[0, 2] = 0
    mask = torch.tensor([[True, True, False]])
    torch.testing.assert_close(attention_mass(weights, mask, classes), torch.tensor([[[0.3, 0.7, 0.0]]]))


@pytest.mark.slow
def test_maps_of_the_papers_sentence(encoder: TransformerEncoder, tmp_path: Path) -> None:
    (found,) = attention_maps(encoder)
    (_, layers, _), ids = by_hand(encoder, sink.PAPER_SENTENCE)
    assert found["tokens"] == encoder.tokenizer.convert_ids_to_tokens(ids)
    for own, reference in zip(found["layers"], layers, strict=True):
        np.testing.assert_allclose(own, reference.mean(0), atol=2e-6)
    drawn = []
    for path in (tmp_path / "a.svg", tmp_path / "b.svg"):
        draw_heatmaps(found["tokens"], found["layers"], "tiny $ <bert>", path)
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]
    assert b"layer 3" in drawn[0]
    with pytest.raises(InputError, match="a heatmap can't be written"):
        draw_heatmaps(found["tokens"], found["layers"], "x", path / "b.svg")


def test_impossible_figures_are_refused(encoder: TransformerEncoder) -> None:
    tower = ObservedTower(encoder.model, None, "cls", False)
    infinite = LayerMeans()
    infinite.add(0, torch.tensor([1.0, math.inf]))
    calls: dict[Any, tuple[str, ...]] = {
        lambda: AttentionMass([tower]): ("BertModel", "tokenizer"),
        lambda: attention_maps(object()): ("no transformer",),  # type: ignore[arg-type]
        lambda: ClsEnergy([tower]).result(): ("no layer", "CLS energy"),
        lambda: infinite.result("x"): ("the x", "not finite"),
    }
    for call, facts in calls.items():
        with pytest.raises(BenchError) as caught:
            call()
        assert not missing_facts(caught.value, *facts)
        assert isinstance(caught.value, UntraceableError) == (facts[0] in ("BertModel", "no transformer"))
