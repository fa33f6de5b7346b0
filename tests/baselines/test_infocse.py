"""InfoCSE: its loss, one step against an independent transcription, its frozen and its trained parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.baselines.infocse import copy_lower_half
from bench.errors import InputError
from bench.losses.masked_lm import masked_lm_loss
from bench.method_card import OptionValue
from bench.nn.backbone import load_backbone, tokenize_rows
from bench.nn.dropout import set_dropout
from bench.nn.masked_lm import load_masked_lm
from bench.training.randomness import generator, own_random_state
from tests.support.steps import (
    cls_of,
    gradients_of,
    masked_alone,
    nce_by_loops,
    objective_of,
    same_step,
    under_batch_norms,
    word_logits,
)
from tests.support.training import SENTENCES, options_of, random


def made_from(
    backbone: Path, folder: Path, sentences: Sequence[str] = SENTENCES, **changes: OptionValue
) -> tuple[Any, list[Any], Any]:
    given = {"auxiliaries": {"mlm_head": folder}}
    return objective_of("infocse", backbone, sentences, given, **({"max_length": 8} | changes))


def test_loss_by_hand_by_loops_and_at_its_limits() -> None:
    logits = torch.tensor([[0.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    by_hand = (math.log(2) + math.log(1 + math.exp(2))) / 2
    assert float(masked_lm_loss(logits, torch.tensor([1, 0]))) == pytest.approx(by_hand)
    logits, targets = random(4, 5), torch.tensor([4, 0, 2, 2])
    total = 0.0
    for k in range(4):
        total -= float(logits[k, targets[k]]) - math.log(sum(math.exp(float(x)) for x in logits[k]))
    assert float(masked_lm_loss(logits, targets)) == pytest.approx(total / 4)
    assert torch.autograd.gradcheck(lambda x: masked_lm_loss(x, targets), (logits.requires_grad_(),))
    assert float(masked_lm_loss(torch.zeros(3, 7), torch.tensor([0, 3, 6]))) == pytest.approx(math.log(7))
    sure = 60 * torch.eye(3, dtype=torch.float64)
    assert float(masked_lm_loss(sure, torch.arange(3))) == pytest.approx(0, abs=1e-12)
    loss = masked_lm_loss(torch.zeros(0, 7, requires_grad=True), torch.zeros(0, dtype=torch.long))
    torch.autograd.backward(loss)
    assert float(loss.detach()) == 0


def test_the_frozen_half(tiny_bert: Path) -> None:
    model, _ = load_backbone(tiny_bert)
    set_dropout(model, 0.1)
    frozen, noisy = copy_lower_half(model).train(), copy_lower_half(model, dropout=True).train()
    ids = torch.tensor([[2, 7, 8, 3]])
    states = model.eval()(input_ids=ids, output_hidden_states=True).hidden_states
    with torch.no_grad():  # the frozen half is a copy of 3 // 2 layers, without dropout
        model.encoder.layer[0].output.dense.weight.add_(1.0)
    torch.testing.assert_close(frozen(input_ids=ids).last_hidden_state, states[1])
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert len(model.encoder.layer) == 3
    with own_random_state(1, "x"):
        assert not torch.allclose(noisy(input_ids=ids).last_hidden_state, states[1])
    model.encoder.layer = model.encoder.layer[:1]
    with pytest.raises(InputError, match="one layer; expected two layers"):
        copy_lower_half(model)


def transcription(
    made: Any, tokenizer: Any, config: Mapping[str, OptionValue], sentences: list[str]
) -> tuple[Tensor, int]:
    """The loss sentence by sentence from the formulas alone, and the number of masked tokens."""
    rows, batch = tokenize_rows(tokenizer, sentences * 2, 8), len(sentences)
    h = torch.stack([cls_of(made.encoder, row) for row in rows])
    p = under_batch_norms(made.head, h)
    loss, terms = nce_by_loops(p[:batch], p[batch:]), []
    share, masks = float(config["mask"]), generator(1, "mask/infocse")
    for n, masked, chosen in masked_alone(rows, tokenizer, share, masks):
        lower = made.frozen.embeddings(input_ids=masked)
        for layer in made.frozen.encoder.layer:
            lower = layer(lower, None)
        states = torch.cat([h[n].view(1, 1, -1), lower.detach()[:, 1:]], dim=1)
        for layer in made.decoder:
            states = layer(states, None)
        for t in chosen:
            logits = word_logits(made.lm_head, states[0, t])
            terms.append(torch.logsumexp(logits, 0) - logits[rows[n][t]])
    restored = torch.stack(terms).mean() if terms else torch.zeros(())
    return loss + float(config["mlm_weight"]) * restored, len(terms)


@pytest.mark.parametrize(
    ("backbone", "changes", "sentences"),
    [
        ("tiny_bert", {}, SENTENCES),
        ("tiny_bert", {"mlm_weight": 0.5}, SENTENCES),
        ("tiny_bert", {"mlm_weight": 0.5, "decoder_layers": 1, "mask": 0.9}, SENTENCES),
        ("tiny_bert", {"mlm_weight": 0.5, "mask": 1.0}, ["a"]),  # a batch of one sentence of one word
        ("tiny_bert", {"mlm_weight": 0.5, "mask": 1.0}, ["quokka", "a", "the doctor"]),
        ("tiny_roberta", {"mlm_weight": 0.5}, SENTENCES),
    ],
)
def test_one_step_equals_a_transcription(
    backbone: str, changes: dict[str, OptionValue], sentences: list[str], request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(backbone)
    mlm = request.getfixturevalue({"tiny_bert": "tiny_mlm"}.get(backbone, backbone))
    made, batch, tokenizer = made_from(folder, mlm, sentences, **changes)
    counted: list[int] = []
    made.lm_head.register_forward_hook(lambda _module, args, _out: counted.append(len(args[0])))
    loss = made(batch)
    expected, count = transcription(made, tokenizer, options_of("infocse", **changes), sentences)
    assert counted == [count]  # exactly the masked tokens
    got = same_step(made, loss, expected)
    assert not any(name.startswith("frozen") for name in got)
    reached = {name for name, gradient in got.items() if bool(gradient.any())}
    parts = ["decoder.0", "lm_head", "encoder.encoder", *(["head.0"] if len(sentences) > 1 else [])]
    assert all(any(name.startswith(part) for name in reached) for part in parts)


def test_without_restoration_it_is_diffcse_without_detection(tiny_bert: Path, tiny_mlm: Path) -> None:
    made, batch, _ = made_from(tiny_bert, tiny_mlm, mlm_weight=0.0)
    given = {"auxiliaries": {"generator": tiny_mlm}}
    other, _, _ = objective_of("diffcse", tiny_bert, SENTENCES, given, rtd_weight=0.0, max_length=8)
    other.head.load_state_dict(made.head.state_dict())
    losses = [objective(batch) for objective in (made, other)]
    assert torch.equal(losses[0], losses[1])
    one, two = (gradients_of(*pair) for pair in zip((made, other), losses, strict=True))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert {name.split(".")[0] for name in one} == {"encoder", "head"}


@pytest.mark.parametrize(("sentences", "share"), [(["quokka"], 0.9), (SENTENCES, 0.0)])
def test_no_masked_token_is_no_loss(
    tiny_bert: Path, tiny_mlm: Path, sentences: list[str], share: float
) -> None:
    made, batch, _ = made_from(tiny_bert, tiny_mlm, sentences, mlm_weight=0.5, mask=share)
    plain, _, _ = made_from(tiny_bert, tiny_mlm, sentences, mlm_weight=0.0)
    loss = made(batch)
    assert float(loss.detach()) == pytest.approx(float(plain(batch).detach()), abs=1e-12)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients_of(made, loss).values())


def test_the_parts(tiny_bert: Path, tiny_mlm: Path) -> None:
    made, _, _ = made_from(tiny_bert, tiny_mlm, dropout=0.1)
    assert (len(made.frozen.encoder.layer), len(made.decoder)) == (1, 2)
    assert {m.p for m in made.decoder.modules() if isinstance(m, nn.Dropout)} == {0.1}
    assert {m.p for m in made.frozen.modules() if isinstance(m, nn.Dropout)} == {0.0}
    embeddings = made.encoder.embeddings.word_embeddings.weight
    assert all(parameter is not embeddings for parameter in made.lm_head.parameters())
    pretrained = load_masked_lm(tiny_mlm)[0].bert.embeddings.word_embeddings.weight.double()
    assert torch.equal(made.lm_head.predictions.decoder.weight, pretrained)
