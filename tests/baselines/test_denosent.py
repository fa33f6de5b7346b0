"""DenoSent: a step against a transcription, its decoder, its head tied to the embeddings, training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.baselines.denosent import fresh_decoder
from bench.errors import InputError
from bench.method_card import OptionValue
from bench.training.randomness import own_random_state
from tests.support.steps import count_losses, gradients_of, nce_by_loops, objective_of, same_step
from tests.support.training import SENTENCES, options_of, stages_of

COPIES = ["the doctor is reading", "a child", "children are singing a song", "the farmer is on the hill ."]
SMALL: dict[str, OptionValue] = {"decoder_layers": 2, "decoder_inner": 24, "max_length": 12, "noise": 0.0}


def made_from(
    backbone: Path,
    folder: Path,
    sentences: Sequence[str] = SENTENCES,
    copies: Sequence[str] = COPIES,
    /,
    **changes: OptionValue,
) -> tuple[Any, list[Any], Any]:
    given = {"auxiliaries": {"mlm_head": folder}, "partners": copies}
    return objective_of("denosent", backbone, sentences, given, **(SMALL | changes))


def attention(module: Any, heads: int, asked: Tensor, read: Tensor) -> Tensor:
    """softmax(q k / sqrt(d)) v head by head, then the output layer, of one sentence: (L, H)."""
    size = asked.shape[1]
    q, k, v = (
        given @ module.in_proj_weight[n * size : (n + 1) * size].T
        + module.in_proj_bias[n * size : (n + 1) * size]
        for n, given in enumerate((asked, read, read))
    )
    width, parts = size // heads, []
    for head in range(heads):
        cut = slice(head * width, (head + 1) * width)
        scores = q[:, cut] @ k[:, cut].T / width**0.5
        parts.append(torch.softmax(scores, 1) @ v[:, cut])
    found: Tensor = torch.cat(parts, 1) @ module.out_proj.weight.T + module.out_proj.bias
    return found


def decoded(decoder: nn.TransformerDecoder, heads: int, states: Tensor, vector: Tensor) -> Tensor:
    """Vaswani's decoder on one sentence, norms behind, every token seeing every other."""
    for layer in decoder.layers:
        each: Any = layer
        states = each.norm1(states + attention(each.self_attn, heads, states, states))
        states = each.norm2(states + attention(each.multihead_attn, heads, states, vector.unsqueeze(0)))
        inner = torch.relu(states @ each.linear1.weight.T + each.linear1.bias)
        states = each.norm3(states + inner @ each.linear2.weight.T + each.linear2.bias)
    return states


def transcription(
    made: Any, tokenizer: Any, config: dict[str, OptionValue], pairs: Sequence[tuple[str, str]], kept: Tensor
) -> Tensor:
    """The loss pair by pair; ``kept`` is what the noise leaves of each number, times 1 / (1 - p)."""
    ids, table = tokenizer.convert_tokens_to_ids, made.encoder.embeddings.word_embeddings.weight

    def row(text: str) -> list[int]:
        subwords = tokenizer(text, add_special_tokens=False)["input_ids"][: int(config["max_length"]) - 2]
        return [*ids(["[CLS]", '"']), *subwords, *ids(['"', "means", "[MASK]", ".", "[SEP]"])]

    def vector(text: str) -> Tensor:
        tokens = row(text)
        states = made.encoder(input_ids=torch.tensor([tokens])).last_hidden_state[0]
        found: Tensor = made.head.weight @ states[len(tokens) - 3] + made.head.bias
        return found

    z, other = ([vector(pair[side]) for pair in pairs] for side in (0, 1))
    loss = float(config["contrastive_weight"]) * nce_by_loops(z, other, float(config["tau"]))
    if not config["generative_weight"]:
        return loss
    layer, terms = made.lm_head.transform, []
    for n, (_, text) in enumerate(pairs):
        tokens = row(text)
        given = made.encoder.embeddings(input_ids=torch.tensor([tokens]))[0].detach()
        states = decoded(made.decoder, int(config["decoder_heads"]), given * kept[n, : len(tokens)], z[n])
        words = layer.LayerNorm(functional.gelu(states @ layer.dense.weight.T + layer.dense.bias))
        logits = words @ table.T + made.lm_head.bias
        terms += [torch.logsumexp(line, 0) - line[token] for line, token in zip(logits, tokens, strict=True)]
    return loss + float(config["generative_weight"]) * torch.stack(terms).mean()


CHANGES: list[dict[str, OptionValue]] = [
    {},
    {"restored": "sentence"},
    {"noise": 0.825},
    {"decoder_heads": 4},
    {"decoder_layers": 3},
    {"decoder_inner": 7},
    {"contrastive_weight": 0.0},
    {"generative_weight": 0.0},
    {"tau": 0.3},
    {"max_length": 5},  # a long sentence is cut
]


@pytest.mark.parametrize("changes", CHANGES)
def test_a_step_by_hand(tiny_bert: Path, tiny_mlm: Path, changes: dict[str, OptionValue]) -> None:
    config = options_of("denosent") | SMALL | changes
    made, batch, tokenizer = made_from(tiny_bert, tiny_mlm, **changes)
    pairs = list(zip(SENTENCES, COPIES, strict=True))
    if config["restored"] == "sentence":
        pairs = [(copy, sentence) for sentence, copy in pairs]
    longest = min(int(config["max_length"]) + 6, 7 + max(len(tokenizer.tokenize(text)) for _, text in pairs))
    with own_random_state(5, "noise"):
        loss = made(batch)
    with own_random_state(5, "noise"):
        ones = torch.ones(len(pairs), longest, 16, dtype=torch.float64)
        kept = functional.dropout(ones, float(config["noise"]))
    expected = transcription(made, tokenizer, config, pairs, kept)
    same_step(made, loss, expected, rel=1e-8, rtol=1e-5)


def test_every_option_changes_the_loss(tiny_bert: Path, tiny_mlm: Path) -> None:
    assert count_losses(partial(made_from, tiny_bert, tiny_mlm), CHANGES) == len(CHANGES)


def test_noise_is_dropouts(tiny_bert: Path, tiny_mlm: Path) -> None:
    """None in evaluation; in training it draws anew each step."""
    made, batch, _ = made_from(tiny_bert, tiny_mlm, noise=0.5)
    plain, _, _ = made_from(tiny_bert, tiny_mlm)
    with own_random_state(1, "noise"):
        assert float(made(batch).detach()) != float(made(batch).detach())
    assert float(made.eval()(batch).detach()) == pytest.approx(float(plain(batch).detach()), rel=1e-12)


def test_without_a_copy_a_sentence_is_its_own(tiny_bert: Path, tiny_mlm: Path) -> None:
    made, batch, tokenizer = made_from(tiny_bert, tiny_mlm, SENTENCES, ())
    pairs, config = [(text, text) for text in SENTENCES], options_of("denosent") | SMALL
    kept = torch.ones(4, 18, 16, dtype=torch.float64)
    same_step(made, made(batch), transcription(made, tokenizer, config, pairs, kept), rel=1e-8, rtol=1e-5)


def test_what_the_denoising_loss_trains(tiny_bert: Path, tiny_mlm: Path) -> None:
    """The vector of the first sentence, the words at the output, never the embeddings at the input."""
    made, batch, tokenizer = made_from(tiny_bert, tiny_mlm, contrastive_weight=0.0)
    found = gradients_of(made, made(batch))
    reached = {name for name, gradient in found.items() if bool(gradient.any())}
    assert {"head.weight", "encoder.encoder.layer.0.output.dense.weight", "lm_head.bias"} <= reached
    # one vector alone is read: what it is asked with and which of one it is doesn't matter
    size = 16
    for n in range(2):
        part = found[f"decoder.layers.{n}.multihead_attn.in_proj_weight"]
        assert float(part[: 2 * size].abs().max()) < 1e-15  # rounding
        assert float(part[2 * size :].abs().max()) > 1e-6
    read = {int(token) for chunk in made.prepare(batch)[0].chunks for token in chunk.ids.flatten()}
    absent = next(token for token in range(len(tokenizer)) if token not in read)
    assert bool(found["encoder.embeddings.word_embeddings.weight"][absent].any())  # as an output word


def test_the_decoder_starts_as_released() -> None:
    with own_random_state(1, "head"):
        decoder = fresh_decoder(64, 3, 1, 128, 0.3)
    one, two = (decoder.layers[n] for n in (0, 2))
    for layer in (one, two):
        each: Any = layer
        for linear in (each.linear1, each.linear2, each.self_attn.out_proj, each.multihead_attn.out_proj):
            assert float(linear.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
            assert not bool(linear.bias.detach().any())
        assert float(each.self_attn.in_proj_weight.detach().abs().max()) <= (6 / 256) ** 0.5  # Xavier
        assert each.self_attn.dropout == each.dropout.p == 0.3
        assert each.activation is functional.relu
    first, last = (dict(layer.named_parameters()) for layer in (one, two))
    assert torch.equal(first["self_attn.in_proj_weight"], last["self_attn.in_proj_weight"])
    assert not torch.equal(first["linear1.weight"], last["linear1.weight"])


def test_a_head_of_another_size_is_refused(tmp_path: Path, tiny_bert: Path, tiny_mlm: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer, BertForMaskedLM

    wide = tmp_path / "wide"
    BertForMaskedLM(AutoConfig.from_pretrained(tiny_mlm, hidden_size=32)).save_pretrained(wide)
    AutoTokenizer.from_pretrained(tiny_mlm).save_pretrained(wide)
    with pytest.raises(InputError, match=r"its word embeddings are \(\d+, 32\), the backbone's \(\d+, 16\)"):
        made_from(tiny_bert, wide)


def test_the_text_that_is_asked_for() -> None:
    for rtt, text in (("d", "train:d"), ("a", "train:a"), ("none", "train")):
        (stage,) = stages_of("denosent", options_of("denosent", rtt=rtt))
        assert stage.text == text
        assert not {"rtt", "pooling"} & dict(stage.config).keys()
