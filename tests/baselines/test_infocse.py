"""InfoCSE: its loss, one step against an independent transcription, its frozen and its trained parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.baselines._infocse import InfoCSEObjective, lower_half, masked_lm_loss
from bench.card import OptionValue
from bench.errors import InputError
from bench.nn.backbone import load_backbone, token_rows
from bench.nn.masked_lm import load_masked_lm, mlm_head
from bench.registry import METHODS
from bench.train import chunks
from bench.train.masking import mask_tokens
from bench.train.sentence_encoder import set_dropout
from bench.train.streams import generator, own_random_state
from tests.support.language_models import gradients, objective_of
from tests.support.training import SENTENCES, options_of, random


def made_from(
    backbone: Path, folder: Path, config: Mapping[str, OptionValue], dropout: float = 0.0
) -> tuple[Any, Any]:
    """The objective in float64 and train mode, and the tokenizer."""
    model, tokenizer = load_backbone(backbone)
    set_dropout(model, dropout)
    head = mlm_head(load_masked_lm(folder)[0])
    with own_random_state(1, "head"):
        made = InfoCSEObjective(model, tokenizer, head, config, generator(1, "mask"))
    return made.double().train(), tokenizer


def settings(**changes: OptionValue) -> dict[str, OptionValue]:
    return options_of("infocse", **({"dropout": 0.0, "max_length": 8} | changes))


def test_loss_by_hand_and_by_loops() -> None:
    logits = torch.tensor([[0.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    by_hand = (math.log(2) + math.log(1 + math.exp(2))) / 2
    assert float(masked_lm_loss(logits, torch.tensor([1, 0]))) == pytest.approx(by_hand)
    logits, targets = random(4, 5), torch.tensor([4, 0, 2, 2])
    total = 0.0
    for k in range(4):
        total -= float(logits[k, targets[k]]) - math.log(sum(math.exp(float(x)) for x in logits[k]))
    assert float(masked_lm_loss(logits, targets)) == pytest.approx(total / 4)
    assert torch.autograd.gradcheck(lambda x: masked_lm_loss(x, targets), (logits.requires_grad_(),))


def test_loss_limits() -> None:
    assert float(masked_lm_loss(torch.zeros(3, 7), torch.tensor([0, 3, 6]))) == pytest.approx(math.log(7))
    sure = 60 * torch.eye(3, dtype=torch.float64)
    assert float(masked_lm_loss(sure, torch.arange(3))) == pytest.approx(0, abs=1e-12)
    nothing = torch.zeros(0, 7, requires_grad=True)
    loss = masked_lm_loss(nothing, torch.zeros(0, dtype=torch.long))
    torch.autograd.backward(loss)
    assert float(loss.detach()) == 0


@pytest.mark.parametrize(("logits", "targets"), [((3,), (3,)), ((3, 2), (2,)), ((3, 2), (3, 1))])
def test_bad_input(logits: tuple[int, ...], targets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must be \(K, V\) and \(K,\)"):
        masked_lm_loss(torch.zeros(logits), torch.zeros(targets).long())


def test_the_frozen_half(tiny_bert: Path) -> None:
    model, _ = load_backbone(tiny_bert)
    set_dropout(model, 0.1)
    frozen = lower_half(model).train()
    ids = torch.tensor([[2, 7, 8, 3]])
    states = model.eval()(input_ids=ids, output_hidden_states=True).hidden_states
    torch.testing.assert_close(
        frozen(input_ids=ids).last_hidden_state, states[1]
    )  # 3 // 2 layers, no dropout
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert len(model.encoder.layer) == 3
    noisy = lower_half(model, dropout=True).train()
    with own_random_state(1, "x"):
        assert not torch.allclose(noisy(input_ids=ids).last_hidden_state, states[1])
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight.add_(1.0)
    torch.testing.assert_close(frozen(input_ids=ids).last_hidden_state, states[1])  # a copy
    model.encoder.layer = model.encoder.layer[:1]
    with pytest.raises(InputError, match="one layer; expected two layers or more"):
        lower_half(model)


def _roberta_parts(head: Any) -> tuple[Any, Any]:
    return head.dense, head.layer_norm


def transcription(
    made: Any, tokenizer: Any, config: Mapping[str, OptionValue], sentences: list[str]
) -> tuple[Tensor, int]:
    """The loss sentence by sentence from the formulas alone, and the number of masked tokens."""
    rows = token_rows(tokenizer, sentences * 2, 8)
    longest, batch = max(map(len, rows)), len(sentences)
    h = torch.stack([made.encoder(input_ids=torch.tensor([r])).last_hidden_state[0, 0] for r in rows])
    p = h
    for linear, affine in ((made.head[0], made.head[1]), (made.head[3], None)):
        p = p @ linear.weight.T
        p = (p - p.mean(0)) / (p.var(0, unbiased=False) + 1e-5).sqrt()
        p = torch.relu(p * affine.weight + affine.bias) if affine is not None else p
    loss = torch.zeros((), dtype=torch.float64)
    for i in range(batch):
        scores = [torch.cosine_similarity(p[i], p[batch + j], dim=0) / 0.05 for j in range(batch)]
        loss = loss + (torch.logsumexp(torch.stack(scores), 0) - scores[i]) / batch

    ids = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])
    masked, chosen = mask_tokens(ids, tokenizer, float(config["mask"]), generator(1, "mask"))
    bert = getattr(made.lm_head, "predictions", None)
    dense, norm = (bert.transform.dense, bert.transform.LayerNorm) if bert else _roberta_parts(made.lm_head)
    decoder = (bert or made.lm_head).decoder
    losses = []
    for n, row in enumerate(rows):
        given = masked[n : n + 1, : len(row)]  # alone, without padding
        lower = made.frozen.embeddings(input_ids=given)
        for layer in made.frozen.encoder.layer:
            lower = layer(lower, None)
        states = torch.cat([h[n].view(1, 1, -1), lower.detach()[:, 1:]], dim=1)
        for layer in made.decoder:
            states = layer(states, None)
        for t in range(len(row)):
            if chosen[n, t]:
                hidden = norm(nn.functional.gelu(states[0, t] @ dense.weight.T + dense.bias))
                logits = hidden @ decoder.weight.T + decoder.bias
                losses.append(torch.logsumexp(logits, 0) - logits[row[t]])
    restored = torch.stack(losses).mean() if losses else torch.zeros(())
    return loss + float(config["mlm_weight"]) * restored, len(losses)


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({}, SENTENCES),
        ({"mlm_weight": 0.5}, SENTENCES),
        ({"mlm_weight": 0.5, "decoder_layers": 1, "mask": 0.9}, SENTENCES),
        ({"mlm_weight": 0.5, "mask": 1.0}, ["a"]),  # a batch of one sentence of one word
        ({"mlm_weight": 0.5}, ["quokka", "a"]),
    ],
)
def test_one_step_equals_a_transcription(
    tiny_bert: Path, tiny_mlm: Path, changes: dict[str, OptionValue], sentences: list[str]
) -> None:
    check_step(tiny_bert, tiny_mlm, changes, sentences)


def test_one_step_of_a_roberta(tiny_roberta: Path) -> None:
    check_step(tiny_roberta, tiny_roberta, {"mlm_weight": 0.5}, SENTENCES)


def check_step(backbone: Path, folder: Path, changes: dict[str, OptionValue], sentences: list[str]) -> None:
    config = settings(**changes)
    made, tokenizer = made_from(backbone, folder, config)
    counted: list[int] = []
    made.lm_head.register_forward_hook(lambda _module, args, _out: counted.append(len(args[0])))
    loss = made(token_rows(tokenizer, sentences, 8))
    torch.autograd.backward(loss)
    got = gradients(made)
    made.zero_grad()
    expected, count = transcription(made, tokenizer, config, sentences)
    torch.autograd.backward(expected)
    assert counted == [count]  # exactly the masked tokens
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    wanted = gradients(made)
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-6, atol=1e-9)
    assert not any(bool(got[name].any()) for name in got.keys() - wanted.keys())
    assert not any(name.startswith("frozen") for name in got)
    reached = {name for name, gradient in got.items() if bool(gradient.any())}
    parts = ["decoder.0", "lm_head", "encoder.encoder", *(["head.0"] if len(sentences) > 1 else [])]
    assert all(any(name.startswith(part) for name in reached) for part in parts)


def test_without_restoration_it_is_diffcse_without_detection(tiny_bert: Path, tiny_mlm: Path) -> None:
    made, tokenizer = made_from(tiny_bert, tiny_mlm, settings(mlm_weight=0.0))
    other, _ = objective_of(tiny_bert, tiny_mlm, options_of("diffcse", rtd_weight=0.0))
    losses = [objective(token_rows(tokenizer, SENTENCES, 8)) for objective in (made, other)]
    assert torch.equal(losses[0], losses[1])
    for loss in losses:
        torch.autograd.backward(loss)
    one, two = gradients(made), gradients(other)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert {name.split(".")[0] for name in one} == {"encoder", "head"}


def test_only_the_sentence_vector_carries_restoration_to_the_encoder(tiny_bert: Path, tiny_mlm: Path) -> None:
    plain, tokenizer = made_from(tiny_bert, tiny_mlm, settings(mlm_weight=0.0))
    rows = token_rows(tokenizer, SENTENCES, 8)
    torch.autograd.backward(plain(rows))
    cut, _ = made_from(tiny_bert, tiny_mlm, settings(mlm_weight=0.5))
    inner = cut.restoration
    cut.restoration = lambda views, vectors: inner(views, vectors.detach())
    torch.autograd.backward(cut(rows))
    whole, _ = made_from(tiny_bert, tiny_mlm, settings(mlm_weight=0.5))
    torch.autograd.backward(whole(rows))
    alone, without, joined = gradients(plain), gradients(cut), gradients(whole)
    for name, gradient in alone.items():
        torch.testing.assert_close(without[name], gradient, rtol=1e-9, atol=1e-12)
    name = "encoder.encoder.layer.0.attention.self.value.weight"
    assert not torch.allclose(joined[name], alone[name])
    assert bool(without["decoder.0.output.dense.weight"].any())


def test_no_masked_token_is_no_loss(tiny_bert: Path, tiny_mlm: Path) -> None:
    for sentences, share in ((["quokka"], 0.9), (SENTENCES, 0.0)):
        made, tokenizer = made_from(tiny_bert, tiny_mlm, settings(mlm_weight=0.5, mask=share))
        plain, _ = made_from(tiny_bert, tiny_mlm, settings(mlm_weight=0.0))
        rows = token_rows(tokenizer, sentences, 8)
        loss = made(rows)
        torch.autograd.backward(loss)
        assert float(loss.detach()) == pytest.approx(float(plain(rows).detach()), abs=1e-12)
        assert all(bool(gradient.isfinite().all()) for gradient in gradients(made).values())


def test_chunks_change_nothing(tiny_bert: Path, tiny_mlm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not METHODS.get("infocse").card.padding_matters
    found = []
    for budget in (16, 10_000):
        monkeypatch.setattr(chunks, "default_batch_tokens", lambda _device, _now=budget: _now)
        made, tokenizer = made_from(tiny_bert, tiny_mlm, settings(mlm_weight=0.5))
        loss = made(token_rows(tokenizer, SENTENCES, 8))
        torch.autograd.backward(loss)
        found.append((loss.detach(), gradients(made)))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-10, atol=0)
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(gradient, found[1][1][name], rtol=1e-7, atol=1e-11)


def test_the_parts(tiny_bert: Path, tiny_mlm: Path) -> None:
    made, _ = made_from(tiny_bert, tiny_mlm, settings(dropout=0.1), dropout=0.1)
    assert (len(made.frozen.encoder.layer), len(made.decoder)) == (1, 2)
    assert {m.p for m in made.decoder.modules() if isinstance(m, nn.Dropout)} == {0.1}
    assert {m.p for m in made.frozen.modules() if isinstance(m, nn.Dropout)} == {0.0}
    embeddings = made.encoder.embeddings.word_embeddings.weight
    assert all(parameter is not embeddings for parameter in made.lm_head.parameters())
    pretrained = load_masked_lm(tiny_mlm)[0].bert.embeddings.word_embeddings.weight.double()
    assert torch.equal(made.lm_head.predictions.decoder.weight, pretrained)
