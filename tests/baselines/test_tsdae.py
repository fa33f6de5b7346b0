"""TSDAE: a step against a transcription and the released loss, its noise, its decoder, what it trains."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from bench.errors import InputError
from bench.method_card import OptionValue
from bench.nn.folder_facts import list_model_types
from bench.nn.layer_adapters import BertLayers
from bench.nn.layer_streams import find_adapter
from bench.nn.tokens import pad_chunk
from bench.nn.vector_decoder import VectorDecoder, VectorReading, mask_later_tokens
from bench.training.augmentation import delete_words, draw_kept
from bench.training.randomness import generator, own_random_state
from tests.support.layered_encoders import ENCODERS, encoder
from tests.support.steps import count_losses, gradients_of, objective_of, same_step
from tests.support.training import SENTENCES, options_of, stages_of

Zoo = Callable[[str], Path]


def made_from(
    backbone: Path, folder: Path, sentences: Sequence[str] = SENTENCES, /, **changes: OptionValue
) -> tuple[Any, list[Any], Any]:
    return objective_of("tsdae", backbone, sentences, {"auxiliaries": {"mlm_head": folder}}, **changes)


def linear(module: Any, states: Tensor) -> Tensor:
    found: Tensor = states @ module.weight.T + module.bias
    return found


def normed(norm: Any, states: Tensor) -> Tensor:
    centred = states - states.mean(-1, keepdim=True)
    scale = (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()
    found: Tensor = centred / scale * norm.weight + norm.bias
    return found


def decoded(body: Any, readings: Any, row: Sequence[int], vector: Tensor) -> Tensor:
    """The last states of a row, (L, H), token by token and head by head."""
    tables = body.embeddings
    count = len(row)
    states = normed(
        tables.LayerNorm,
        tables.word_embeddings.weight[list(row)]
        + tables.position_embeddings.weight[:count]
        + tables.token_type_embeddings.weight[0],
    )
    heads = body.config.num_attention_heads
    size = states.shape[1] // heads
    for layer, reading in zip(body.encoder.layer, readings, strict=True):
        own = layer.attention.self
        query, key, value = (linear(part, states) for part in (own.query, own.key, own.value))
        rows = []
        for t in range(count):
            parts = []
            for head in range(heads):
                cut = slice(head * size, (head + 1) * size)
                weights = torch.softmax(key[: t + 1, cut] @ query[t, cut] / size**0.5, 0)
                parts.append(weights @ value[: t + 1, cut])
            rows.append(torch.cat(parts))
        mixed = linear(layer.attention.output.dense, torch.stack(rows))
        states = normed(layer.attention.output.LayerNorm, states + mixed)
        states = normed(reading.norm, states + linear(reading.output, linear(reading.value, vector)))
        inner = functional.gelu(linear(layer.intermediate.dense, states))
        states = normed(layer.output.LayerNorm, states + linear(layer.output.dense, inner))
    return states


def transcription(made: Any, rows: Sequence[Sequence[int]], remains: Sequence[Sequence[int]]) -> Tensor:
    """The loss sentence by sentence, the encoder called on one at a time."""
    body = made.body or made.encoder
    transform, terms = made.lm_head.transform, []
    for row, left in zip(rows, remains, strict=True):
        vector = made.encoder(input_ids=torch.tensor([list(left)])).last_hidden_state[0, 0]
        states = decoded(body, made.decoder.readings, row[:-1], vector)
        hidden = normed(transform.LayerNorm, functional.gelu(linear(transform.dense, states)))
        logits = hidden @ body.embeddings.word_embeddings.weight.T + made.lm_head.bias
        terms += [torch.logsumexp(line, 0) - line[token] for line, token in zip(logits, row[1:], strict=True)]
    return torch.stack(terms).mean()


def drawn_remains(
    sentences: Sequence[str], rows: Sequence[list[int]], tokenizer: Any, config: dict[str, OptionValue]
) -> list[list[int]]:
    draw, ratio, found = generator(1, "noise/tsdae"), float(config["noise"]), []
    for sentence, row in zip(sentences, rows, strict=True):
        if config["unit"] == "subword":
            kept = draw_kept(len(row) - 2, ratio, draw)
            found.append([row[0], *(row[1 + place] for place in kept), row[-1]])
            continue
        text = delete_words(sentence, ratio, draw)
        found.append(tokenizer(text, truncation=True, max_length=int(config["max_length"]))["input_ids"])
    return found


CHANGES: list[dict[str, OptionValue]] = [
    {},
    {"noise": 0.0},
    {"noise": 0.9},
    {"max_length": 5},  # a long sentence is cut, its remains after the noise
    {"max_length": 5, "unit": "subword"},
]


@pytest.mark.parametrize("changes", [*CHANGES, {"tied": False}])
def test_a_step_by_hand(tiny_bert: Path, tiny_mlm: Path, changes: dict[str, OptionValue]) -> None:
    config = options_of("tsdae", **({"max_length": 20} | changes))
    made, batch, tokenizer = made_from(tiny_bert, tiny_mlm, **changes)
    rows = [row for _, row in batch]
    expected = transcription(made, rows, drawn_remains(SENTENCES, rows, tokenizer, config))
    same_step(made, made(batch), expected, rel=1e-8, rtol=1e-5)


def test_every_option_changes_the_loss(tiny_bert: Path, tiny_mlm: Path) -> None:
    assert count_losses(partial(made_from, tiny_bert, tiny_mlm), CHANGES) == len(CHANGES)


def test_the_released_loss_and_gradient(tiny_bert: Path, tiny_mlm: Path, tmp_path: Path) -> None:
    """Those of DenoisingAutoEncoderLoss with its own tied decoder, on remains that are given to both."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses, modules

    folder = tmp_path / "mlm"  # one folder for both halves, as released
    AutoModelForMaskedLM.from_pretrained(tiny_mlm).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_mlm).save_pretrained(folder)
    whole = modules.Transformer(str(folder))
    model = SentenceTransformer(modules=[whole, modules.Pooling(whole.get_embedding_dimension(), "cls")])
    released: Any = losses.DenoisingAutoEncoderLoss(model.to("cpu")).double()
    made, batch, tokenizer = made_from(folder, folder)
    body = released.decoder.bert
    for layer, reading in zip(body.encoder.layer, made.decoder.readings, strict=True):
        cross = layer.crossattention
        reading.value.load_state_dict(cross.self.value.state_dict())
        reading.output.load_state_dict(cross.output.dense.state_dict())
        reading.norm.load_state_dict(cross.output.LayerNorm.state_dict())
    for module in released.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    rows = [row for _, row in batch]
    remains = drawn_remains(SENTENCES, rows, tokenizer, options_of("tsdae", max_length=20))
    features = [tokenizer.pad({"input_ids": part}, return_tensors="pt") for part in (remains, rows)]
    loss, expected = made(batch), released([dict(part) for part in features], None)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    found, wanted = gradients_of(made, loss), gradients_of(released, expected)
    pairs = 0
    for name, gradient in wanted.items():
        own = found.get(
            name.replace("encoder.0.model.", "encoder.", 1).replace("decoder.bert.", "encoder.", 1)
        )
        if own is not None and ".crossattention." not in name:
            torch.testing.assert_close(own, gradient, rtol=1e-6, atol=1e-12)
            pairs += 1
    assert pairs == len([name for name in found if name.startswith("encoder.")])
    for n, layer in enumerate(body.encoder.layer):
        torch.testing.assert_close(
            found[f"decoder.readings.{n}.value.weight"],
            torch.autograd.grad(expected, layer.crossattention.self.value.weight, retain_graph=True)[0],
            rtol=1e-6,
            atol=1e-12,
        )
        for part in (layer.crossattention.self.query, layer.crossattention.self.key):
            (gradient,) = torch.autograd.grad(expected, part.weight, retain_graph=True)
            assert float(gradient.abs().max()) < 1e-15  # one key: the softmax is 1


def test_the_gradient_of_tied_weights_is_the_sum_of_both_passes(tiny_bert: Path, tiny_mlm: Path) -> None:
    tied, batch, _ = made_from(tiny_bert, tiny_mlm)
    apart, _, _ = made_from(tiny_bert, tiny_mlm, tied=False)
    apart.decoder.load_state_dict(tied.decoder.state_dict())
    loss, other = tied(batch), apart(batch)
    assert float(loss.detach()) == pytest.approx(float(other.detach()), rel=1e-12)
    whole, parts = gradients_of(tied, loss), gradients_of(apart, other)
    both = 0
    for name, gradient in whole.items():
        if not name.startswith("encoder."):
            continue
        halves = [parts.get(start + name.removeprefix("encoder.")) for start in ("encoder.", "body.")]
        present = [half for half in halves if half is not None]
        torch.testing.assert_close(gradient, sum(present, torch.zeros_like(gradient)), rtol=1e-8, atol=1e-12)
        both += len(present) == 2 and all(bool(half.any()) for half in present)
    assert both > 20


def test_words_are_deleted_at_random() -> None:
    text, draw = "The old dog (brown, tired) didn't run.", generator(1, "noise")
    words = re.findall(r"\w+|[^\w\s]", text)
    lengths = []
    for _ in range(3000):
        left = re.findall(r"\w+|[^\w\s]", delete_words(text, 0.6, draw))
        position = -1
        for word in left:  # in their order
            position = words.index(word, position + 1)
        lengths.append(len(left))
    assert sum(lengths) / 3000 == pytest.approx(0.4 * len(words), rel=0.03)
    assert min(lengths) == 1
    assert delete_words(text, 0.0, draw) == text
    assert {delete_words("one two three", 1.0, draw) for _ in range(50)} == {"one", "two", "three"}
    assert delete_words("", 0.6, draw) == ""
    kept = {delete_words("a (b) c", 0.5, draw) for _ in range(400)}
    assert {"a (b) c", "a b c", "a ( c", "a) c", "(b", "b)", "()", "a (b", "a b) c"} <= kept
    assert not {"ab c", "ab", "a(b)c", "bc"} & kept


def test_units_that_stay() -> None:
    draw = generator(1, "noise")
    assert draw_kept(0, 0.6, draw) == []
    assert [len(draw_kept(1, 0.9, draw)) for _ in range(50)] == [1] * 50
    counts = [0] * 4
    for _ in range(2000):
        (place,) = draw_kept(4, 1.0, draw)
        counts[place] += 1
    assert min(counts) > 400


def test_the_decoder_reads_prefix_and_vector_alone(tiny_bert: Path) -> None:
    model = AutoModel.from_pretrained(tiny_bert).eval()
    decoder = VectorDecoder(model).eval()
    rows = [[2, 5, 6, 7, 8], [2, 9, 3]]
    vectors = torch.randn(2, 16, requires_grad=True)
    states = decoder.decode(model, mask_later_tokens(pad_chunk(rows, 0)), vectors)
    changed = decoder.decode(model, mask_later_tokens(pad_chunk([[2, 5, 6, 7, 9], [2, 9, 3]], 0)), vectors)
    torch.testing.assert_close(states[0, :4], changed[0, :4])
    assert not torch.allclose(states[0, 4], changed[0, 4])
    (gradient,) = torch.autograd.grad(states[0].sum(-1).pow(2).sum() + states[0].pow(3).sum(), vectors)
    assert bool(gradient[0].any())
    assert not bool(gradient[1].any())
    alone = decoder.decode(model, mask_later_tokens(pad_chunk(rows[1:], 0)), vectors[1:])
    torch.testing.assert_close(states[1, :3], alone[0], rtol=1e-4, atol=1e-5)


def test_cross_attentions_start_as_berts(tiny_bert: Path) -> None:
    config = AutoModel.from_pretrained(tiny_bert).config
    config.update({"hidden_size": 256, "num_attention_heads": 4, "initializer_range": 0.03})
    with own_random_state(1, "head"):
        reading = VectorReading(config)
    for part in (reading.value, reading.output):
        assert float(part.weight.detach().std()) == pytest.approx(0.03, rel=0.02)
        assert not bool(part.bias.detach().any())
    assert reading.norm.eps == config.layer_norm_eps
    for name in ("output", "norm", "dropout"):
        setattr(reading, name, torch.nn.Identity())
    reading.attention_dropout.p = 0.25
    vectors = torch.ones(1, 256)
    with own_random_state(1, "noise"), torch.no_grad():
        scaled = reading(torch.zeros(1, 4000, 256), vectors) / reading.value(vectors)
    heads = scaled.unflatten(-1, (4, 64)).round(decimals=3)
    assert bool((heads == heads[..., :1]).all())  # a head of a token is left out whole
    assert sorted({round(float(share), 3) for share in heads.unique()}) == [0.0, 1.333]
    assert float((heads == 0).float().mean()) == pytest.approx(0.25, abs=0.02)


def test_the_kinds_that_decode() -> None:
    found = {kind for name, (kind, _) in ENCODERS.items() if type(find_adapter(encoder(name))) is BertLayers}
    assert found == list_model_types("decoding")


@pytest.mark.parametrize("backbone", ["roberta", "xlm-roberta"])
def test_other_encoders(zoo: Zoo, backbone: str) -> None:
    made, batch, _ = made_from(zoo(backbone), zoo(backbone), max_length=16)
    found = gradients_of(made, made(batch))
    assert all(bool(gradient.isfinite().all()) for gradient in found.values())
    assert {name.split(".")[0] for name in found} == {"encoder", "decoder", "lm_head"}


def test_refused() -> None:
    for changes, where in (({"chunk": 8}, "tsdae.chunk"), ({"train_pooling": "mask"}, "tsdae.train_pooling")):
        with pytest.raises(InputError, match=where):
            stages_of("tsdae", options_of("tsdae", **changes))


def test_a_model_that_cannot_decode(zoo: Zoo) -> None:
    with pytest.raises(InputError, match=r"a decoder made of a DistilBertModel.*electra"):
        VectorDecoder(AutoModel.from_pretrained(zoo("distilbert")))
