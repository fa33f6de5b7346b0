"""Watched transformers compute the same to the bit, and observers get their real figures."""

from __future__ import annotations

import copy
import functools
import math
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from bench.baselines.whitening import WhitenedEncoder
from bench.data.toy_suite import make_toy_task
from bench.nn.backbone import TransformerEncoder, silence_libraries
from bench.nn.denoising import DenoisedEncoder
from bench.nn.hooks import compute_attention_weights, find_towers, watch_towers
from bench.nn.observer import LayerView, ObservedTower, Observer, UntraceableError
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.nn.sum_encoder import SumEncoder
from tests.support.folders import sentence_transformers_folder
from tests.support.zoo import ZOO

LAYERS, HEADS, SIZE = 3, 2, 16
COMMON = {"vocab_size": 50, "initializer_range": 0.5}
SHAPE: dict[str, Any] = {"hidden_size": SIZE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
SHAPE |= {**COMMON, "intermediate_size": 32, "max_position_embeddings": 40}
DISTIL = {**COMMON, "dim": SIZE, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 32}
DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
DENSE = "encoder.layer.{}.attention.output.dense"
ALBERT = "encoder.albert_layer_groups.0.albert_layers.0.attention.dense"
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    # class, shape, and the dense layer after the context
    "bert": ("Bert", SHAPE, DENSE),
    "bert eager": ("Bert", {**SHAPE, "attn_implementation": "eager"}, DENSE),
    "roberta": ("Roberta", SHAPE, DENSE),
    "electra": ("Electra", {**SHAPE, "embedding_size": SIZE}, DENSE),
    "distilbert": ("DistilBert", DISTIL, "transformer.layer.{}.attention.out_lin"),
    "mpnet": ("MPNet", SHAPE, "encoder.layer.{}.attention.attn.o"),
    "deberta": ("DebertaV2", {**SHAPE, **DEBERTA}, DENSE),
    "albert": ("Albert", {**SHAPE, "embedding_size": SIZE}, ALBERT),
}
IDS = torch.tensor([[2, 7, 8, 9, 10, 3], [2, 11, 12, 3, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])


class Seen(Observer):
    def __init__(self) -> None:
        self.batches: list[tuple[int, Tensor, Tensor]] = []
        self.layers: list[tuple[int, int, Tensor, Tensor]] = []
        self.outputs: list[tuple[int, Tensor, Tensor | None]] = []

    def on_batch(self, tower: int, ids: Tensor, mask: Tensor) -> None:
        self.batches.append((tower, ids, mask))

    def on_layer(self, view: LayerView) -> None:
        self.layers.append((view.tower, view.layer, view.context, view.weights()))

    def on_output(self, tower: int, states: Tensor, pooled: Tensor | None) -> None:
        self.outputs.append((tower, states, pooled))


def build(name: str) -> Any:
    kind, shape, _ = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**shape)
        return getattr(transformers, f"{kind}Model")(config).eval()


def contexts(model: PreTrainedModel, place: str) -> tuple[list[Tensor], Any]:
    """The input of the dense layer after each attention, and the output with all attentions."""
    inputs: list[Tensor] = []
    for name in dict.fromkeys(place.format(layer) for layer in range(LAYERS)):
        model.get_submodule(name).register_forward_pre_hook(lambda _m, args: inputs.append(args[0]))
    with torch.inference_mode():
        output = model(input_ids=IDS, attention_mask=MASK, output_attentions=True)
    return inputs, output


def tower_of(model: Any) -> ObservedTower:
    return ObservedTower(model, None, "cls", False)


@pytest.mark.parametrize("name", MODELS)
def test_contexts_and_weights_of_every_architecture(name: str) -> None:
    model = build(name)
    plain = copy.deepcopy(model)
    with torch.inference_mode():
        expected = plain(input_ids=IDS, attention_mask=MASK).last_hidden_state
        seen = Seen()
        with watch_towers([tower_of(model)], [seen]) as rows:
            states = model(input_ids=IDS, attention_mask=MASK).last_hidden_state
    assert torch.equal(states, expected)
    assert rows == [2]
    assert [layer for _, layer, _, _ in seen.layers] == [0, 1, 2]
    eager = copy.deepcopy(plain)
    eager.set_attn_implementation("eager")
    context, output = contexts(eager, MODELS[name][2])
    assert len(output.attentions) == LAYERS
    for (_, layer, given, weights), own in zip(seen.layers, context, strict=True):
        assert given.shape == (2, 6, SIZE)
        assert weights.shape == (2, HEADS, 6, 6)
        torch.testing.assert_close(given[0], own[0], rtol=0, atol=2e-5)
        torch.testing.assert_close(given[1, :4], own[1, :4], rtol=0, atol=2e-5)
        reference = output.attentions[layer]
        torch.testing.assert_close(weights[0], reference[0], rtol=0, atol=2e-5)
        torch.testing.assert_close(weights[1, :, :4], reference[1, :, :4], rtol=0, atol=2e-5)
        assert not weights[1, :, :4, 4:].any()


@torch.inference_mode()
def test_the_context_of_a_layer_by_hand() -> None:
    model: Any = build("bert")
    seen = Seen()
    with watch_towers([ObservedTower(model, None, "", True)], [seen]):
        output = model(input_ids=IDS[1:], attention_mask=MASK[1:], output_hidden_states=True)
    attention = model.encoder.layer[1].attention.self
    states = output.hidden_states[1][0, :4]  # without the padding
    q, k, v = (layer(states) for layer in (attention.query, attention.key, attention.value))
    half = SIZE // HEADS
    for head in range(HEADS):
        part = slice(head * half, (head + 1) * half)
        for query in range(4):
            powers = [math.exp(float(q[query, part] @ k[key, part]) / half**0.5) for key in range(4)]
            weights = torch.tensor(powers) / sum(powers)
            torch.testing.assert_close(seen.layers[1][3][0, head, query, :4], weights, rtol=0, atol=2e-6)
            by_hand = sum(weights[key] * v[key, part] for key in range(4))
            torch.testing.assert_close(seen.layers[1][2][0, query, part], by_hand, rtol=0, atol=2e-5)
    (_, states, pooled) = seen.outputs[0]
    assert torch.equal(states, output.last_hidden_state)
    assert pooled is not None
    assert torch.equal(pooled, output.pooler_output)


def test_weights_with_a_float_mask_fewer_key_heads_and_a_bias() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, heads, 3, 4, generator=generator) for heads in (4, 2))
    bias = torch.randn(1, 4, 3, 3, generator=generator)
    mask = torch.tensor([0.0, 0.0, torch.finfo(torch.float32).min]).expand(1, 1, 3, 3)
    found = compute_attention_weights(query, key, mask, None, bias)
    for head in range(4):
        scores = query[0, head] @ key[0, head // 2].T / 2 + bias[0, head]
        expected = torch.cat([scores[:, :2].softmax(1), torch.zeros(3, 1)], dim=1)
        torch.testing.assert_close(found[0, head], expected)


def test_after_the_block_nothing_is_watched_any_more_not_even_after_an_error() -> None:
    model, seen = build("bert"), Seen()
    tower = tower_of(model)
    before = {name: ALL_ATTENTION_FUNCTIONS.get(name) for name in ("sdpa", "eager")}

    def hooks() -> int:
        of_modules = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
        return of_modules + ("forward" in vars(model))

    def stop() -> None:
        with watch_towers([tower], [seen]):
            assert hooks() == 1
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    assert hooks() == 0
    assert {name: ALL_ATTENTION_FUNCTIONS.get(name) for name in ("sdpa", "eager")} == before
    with torch.inference_mode():
        model(input_ids=IDS, attention_mask=MASK)
    assert not seen.batches


def test_only_the_tower_that_computes_is_told_and_a_template_is_no_sentence() -> None:
    first, second, outsider = build("bert"), build("roberta"), build("bert")
    seen = Seen()
    with torch.inference_mode(), watch_towers([tower_of(first), tower_of(second)], [seen]) as rows:
        second(input_ids=IDS, attention_mask=MASK)
        outsider(input_ids=IDS, attention_mask=MASK)
        first(input_ids=IDS)  # no mask
        first(input_ids=IDS[:1], attention_mask=MASK[:1])
    assert rows == [1, 2]
    assert [tower for tower, _, _ in seen.batches] == [1, 0]
    layers = [(tower, layer) for tower, layer, _, _ in seen.layers]
    assert layers == [(tower, layer) for tower in (1, 0) for layer in range(LAYERS)]
    assert torch.equal(seen.batches[0][2], MASK.bool())
    assert torch.equal(seen.batches[0][1], IDS)


def test_a_forward_of_the_instance_itself_is_kept() -> None:
    model, seen = build("bert"), Seen()
    own = functools.partial(type(model).forward, model)
    model.forward = own
    with torch.inference_mode(), watch_towers([tower_of(model)], [seen]) as rows:
        model.forward(input_ids=IDS, attention_mask=MASK)
    assert rows == [2]
    assert model.forward is own


def test_weights_are_computed_on_request_and_not_kept() -> None:
    model = build("bert")
    alive: list[weakref.ref[Tensor]] = []

    class Looks(Observer):
        def on_layer(self, view: LayerView) -> None:
            assert not any(ref() is not None for ref in alive)
            alive.append(weakref.ref(view.weights()))

    with torch.inference_mode(), watch_towers([tower_of(model)], [Looks()]):
        for _ in range(2):
            model(input_ids=IDS, attention_mask=MASK)
    assert len(alive) == 2 * LAYERS
    assert all(ref() is None for ref in alive)


class NoLayers(nn.Module):
    def forward(self, states: Tensor, **_: object) -> BaseModelOutputWithPastAndCrossAttentions:
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states)


def test_unwatchable_models_are_refused() -> None:
    model = build("bert")
    with pytest.raises(UntraceableError, match=r"BertModel: .*left"), watch_towers([tower_of(model)], []):
        model(input_ids=IDS, attention_mask=MASK.flip(1))
    model.encoder = NoLayers()
    with pytest.raises(UntraceableError, match="BertModel: no att"), watch_towers([tower_of(model)], []):
        model(input_ids=IDS, attention_mask=MASK)


def test_towers_of_every_kind_of_encoder(tiny_bert: Path) -> None:
    one, two = TransformerEncoder(tiny_bert), TransformerEncoder(tiny_bert, "avg")
    (tower,) = find_towers(one)
    assert tower == ObservedTower(one.model, one.tokenizer, "cls", True)
    assert [t.model for t in find_towers(SumEncoder([one, two]))] == [one.model, two.model]
    assert [t.pooling for t in find_towers(SumEncoder([one, two]))] == ["cls", "avg"]
    assert [t.model for t in find_towers(SumEncoder([one, one]))] == [one.model]
    mean, kernel = torch.zeros(16).double().numpy(), torch.eye(16).double().numpy()
    assert find_towers(WhitenedEncoder(one, mean, kernel)) == (tower,)
    assert find_towers(object()) == ()
    one.model.pooler = None
    assert not find_towers(one)[0].has_pooler


@pytest.mark.parametrize("kind", ["cls", "avg_first_last", "mask", "denoised", "twin", "st"])
def test_watched_encoders_give_the_same_vectors(kind: str, tiny_bert: Path, tmp_path: Path) -> None:
    sentences = list(dict.fromkeys(s for pair in make_toy_task().all_pairs() for s in pair))[:40]
    if kind == "denoised":
        encoder: Any = DenoisedEncoder(tiny_bert)
    elif kind == "twin":
        encoder = SumEncoder([TransformerEncoder(tiny_bert), TransformerEncoder(tiny_bert)])
    elif kind == "st":  # its library calls the model's forward directly
        folder = sentence_transformers_folder(tiny_bert, tmp_path / "st", mean=True)
        encoder = SentenceTransformerEncoder(folder)
    else:
        encoder = TransformerEncoder(tiny_bert, kind)
    expected = encoder.encode(sentences, 100)
    seen = Seen()
    with watch_towers(find_towers(encoder), [seen]) as rows:
        found = encoder.encode(sentences, 100)
    assert (found == expected).all()
    assert rows == [40] * len(find_towers(encoder))
    assert sum(len(ids) for _, ids, _ in seen.batches) == 40 * len(rows)


WATCHED = [name for name in ZOO if name not in ("bart", "mamba", "t5")]
"""Those with one attention a layer; T5's scores are not scaled, so their rounding is larger."""
PADDED = ("A child plays.", "The doctor reads a long book in the garden.")  # as they are encoded
EQUAL = ("A child plays.", "A child plays.")


def eager(folder: Path, encoder: TransformerEncoder, texts: Sequence[str]) -> tuple[list[Tensor], Tensor]:
    """Weights of every layer by eager attention, and the mask of tokens."""
    kind: Any = type(encoder.model)
    with silence_libraries(), torch.no_grad():
        model = kind.from_pretrained(folder, attn_implementation="eager").eval()
        chunk = encoder._prepare_rows(encoder.token_ids(texts))
        output = model(input_ids=chunk.ids, attention_mask=chunk.mask.long(), output_attentions=True)
    return list(output.attentions), chunk.mask


@pytest.mark.parametrize("texts", [PADDED, EQUAL], ids=["padded", "of one length"])
@pytest.mark.parametrize("name", WATCHED)
def test_weights_are_those_of_eager(name: str, texts: tuple[str, ...], zoo: Callable[[str], Path]) -> None:
    encoder, seen = TransformerEncoder(zoo(name), "avg"), Seen()
    expected, mask = eager(zoo(name), encoder, texts)
    with watch_towers(find_towers(encoder), [seen]):
        encoder.encode(texts, batch_tokens=10_000)
    assert len(seen.layers) == len(expected) == 2
    tokens = mask[:, None, :, None].bool()
    for (*_, own), theirs in zip(seen.layers, expected, strict=True):
        assert own.shape == theirs.shape
        assert float(((own - theirs) * tokens).abs().max()) <= 1e-6
        if encoder.causal:
            assert float(own.triu(1).abs().max()) == 0
