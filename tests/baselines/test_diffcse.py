"""DiffCSE: its loss, one step against an independent transcription, and training."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, BertForMaskedLM

from bench.baselines.diffcse import build_training_head, generate_edits, rtd_loss, split_masked_rows
from bench.errors import InputError
from bench.method_card import OptionValue
from bench.nn.backbone import pad_rows, tokenize_rows
from bench.nn.masked_lm import load_masked_lm
from bench.records.record import record_to_json
from bench.registry import METHODS
from bench.training.masking import mask_tokens
from bench.training.randomness import generator, own_random_state
from tests.support.messages import missing_facts
from tests.support.steps import cls_of, nce_by_loops, objective_of, same_step, under_batch_norms
from tests.support.training import SENTENCES, options_of, plan_on_toy, random, stages_of, train_alone


def test_detection_loss_by_hand() -> None:
    logits = torch.tensor([[[0.0, 0.0], [1.0, 3.0]], [[2.0, 0.0], [5.0, 5.0]]], dtype=torch.float64)
    labels, mask = torch.tensor([[0, 1], [0, 0]]), torch.tensor([[1, 1], [1, 0]])
    cells = [math.log(2), math.log(1 + math.exp(-2)), math.log(1 + math.exp(-2)), math.log(2)]
    assert float(rtd_loss(logits, labels, mask)) == pytest.approx(sum(cells) / 4)
    assert float(rtd_loss(logits, labels, mask, "sentence")) == pytest.approx(sum(cells[:3]) / 2)
    mask, labels = torch.ones(2, 3, dtype=torch.long), torch.tensor([[0, 0, 1], [0, 1, 0]])
    sure = nn.functional.one_hot(labels, 2).double() * 50
    assert float(rtd_loss(0 * sure, labels, mask)) == pytest.approx(math.log(2))
    assert float(rtd_loss(sure, labels, mask)) == pytest.approx(0, abs=1e-12)
    assert float(rtd_loss(-sure, labels, mask)) == pytest.approx(50)
    assert float(rtd_loss(0 * sure, 0 * labels, mask)) == pytest.approx(math.log(2))  # nothing replaced


@pytest.mark.parametrize("reduction", ["cells", "sentence"])
def test_detection_loss_is_the_formula(reduction: str) -> None:
    logits = random(3, 5, 2)
    labels = (random(3, 5, seed=1) > 0).long()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    labels = labels * mask
    total = 0.0
    for n in range(3):
        for t in range(5):
            right, wrong = (float(logits[n, t, k]) for k in (labels[n, t], 1 - labels[n, t]))
            cell = -math.log(math.exp(right) / (math.exp(right) + math.exp(wrong)))
            total += cell / 15 if reduction == "cells" else cell * float(mask[n, t]) / 3
    assert float(rtd_loss(logits, labels, mask, reduction)) == pytest.approx(total, rel=1e-9)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rtd_loss(x, labels, mask, reduction), (logits,))


def test_padding_matters_to_the_released_mean_alone() -> None:
    logits, labels = random(2, 4, 2), torch.tensor([[0, 1, 0, 1], [0, 1, 1, 0]])
    mask, zeros = torch.ones(2, 4, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long)
    wide = nn.functional.pad(logits, (0, 0, 0, 3)), torch.cat([labels, zeros], 1), torch.cat([mask, zeros], 1)
    for reduction, same in (("cells", False), ("sentence", True)):
        narrow, padded = (float(rtd_loss(*given, reduction)) for given in ((logits, labels, mask), wide))
        assert (narrow == pytest.approx(padded)) == same
    assert METHODS.get("diffcse").card.padding_matters


def made_of(
    backbone: Path, folder: Path, sentences: Sequence[str] = SENTENCES, **changes: OptionValue
) -> tuple[Any, list[Any], Any]:
    given = {"auxiliaries": {"generator": folder}}
    return objective_of("diffcse", backbone, sentences, given, **({"max_length": 8} | changes))


def test_heads_are_the_formula() -> None:
    with own_random_state(1, "head"):
        head, tanh = (build_training_head(3, kind).double().train() for kind in ("bn", "tanh"))
    h = random(5, 3)
    assert float(head[0].weight.detach().std()) < 0.05
    with torch.no_grad():
        head[1].weight.copy_(random(6, seed=2))
        head[1].bias.copy_(random(6, seed=3))
    torch.testing.assert_close(head(h), under_batch_norms(head, h))
    torch.testing.assert_close(tanh(h), torch.tanh(h @ tanh[0].weight.T + tanh[0].bias))
    assert {name for name, _ in head.named_parameters()} == {"0.weight", "1.weight", "1.bias", "3.weight"}
    assert bool(head(h[:1].repeat(2, 1)).isfinite().all())  # two equal rows have no variance


@pytest.mark.parametrize("active", [True, False])
def test_the_generators_dropout(tiny_bert: Path, tiny_mlm: Path, active: bool) -> None:
    made, batch, _ = made_of(tiny_bert, tiny_mlm, max_length=12, generator_dropout=active)
    cut = split_masked_rows(*pad_rows(batch, 0, "cpu"), "cpu")
    with own_random_state(1, "dropout"):
        one, two = (generate_edits(made.generator, cut, cls_id=2) for _ in range(2))
    assert torch.equal(one, two) != active


def test_the_generator_speaks_greedily_at_every_position(tiny_mlm: Path) -> None:
    model, tokenizer = load_masked_lm(tiny_mlm)
    model.eval()
    rows = tokenize_rows(tokenizer, SENTENCES * 12, 12)  # more than one portion
    ids, mask = pad_rows(rows, tokenizer.pad_token_id, "cpu")
    masked, _ = mask_tokens(ids, tokenizer, 0.3, generator(1, "mask"))
    cut = split_masked_rows(masked, mask, "cpu")
    assert len(cut) > 1
    edited = generate_edits(model, cut, cls_id=tokenizer.cls_token_id)
    for n, row in enumerate(rows):
        alone = model(input_ids=masked[n : n + 1, : len(row)]).logits[0].argmax(-1)
        padding = [0] * (ids.shape[1] - len(row))
        assert edited[n].tolist() == [tokenizer.cls_token_id, *alone[1:].tolist(), *padding]
    assert not edited.requires_grad


def test_sampled_replacements_follow_the_generator() -> None:
    class Fixed(nn.Module):
        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
            logits = torch.log(torch.tensor([0.7, 0.0, 0.3, 0.0])).expand(*input_ids.shape, 4)
            return type("Output", (), {"logits": logits})

    ids = torch.ones(500, 4, dtype=torch.long)
    cut, short = split_masked_rows(ids, ids, "cpu"), split_masked_rows(ids[:1, :3], ids[:1, :3], "cpu")
    draws = torch.rand(ids.shape, generator=generator(1, "replacement"), dtype=torch.float64)
    found = generate_edits(Fixed(), cut, cls_id=2, draws=draws)[:, 1:]
    assert float((found == 2).float().mean()) == pytest.approx(0.3, abs=0.03)
    assert torch.equal(found == 2, draws[:, 1:] > 0.7)  # each its own number, in all portions
    assert not ((found == 1) | (found == 3)).any()
    ends = torch.tensor([[0.5, 0.0, 1 - 1e-16]], dtype=torch.float64)
    assert generate_edits(Fixed(), short, cls_id=9, draws=ends).tolist() == [[9, 0, 2]]
    assert not generate_edits(Fixed(), cut, cls_id=2)[:, 1:].any()  # greedy: the first
    for name, version in (("argmax", 1), ("sample", 2)):  # another draw than of older records
        assert stages_of("diffcse", options_of("diffcse", replacement=name))[0].version == version


def transcription(
    made: Any, tokenizer: Any, masked_lm: Any, config: Mapping[str, OptionValue], sentences: list[str]
) -> Tensor:
    """The loss sentence by sentence, from the formulas alone."""
    rows = tokenize_rows(tokenizer, sentences * 2, int(config["max_length"]))
    longest, batch = max(map(len, rows)), len(sentences)
    h = torch.stack([cls_of(made.encoder, row) for row in rows])
    p = torch.tanh(made.head[0](h)) if config["head"] == "tanh" else under_batch_norms(made.head, h)
    loss = nce_by_loops(p[:batch], p[batch:])

    ids = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])
    masked, chosen = mask_tokens(ids, tokenizer, float(config["mask"]), generator(1, "mask/diffcse"))
    inserted = p if config["rtd_input"] == "after_head" else h
    detector, detection = made.discriminator, torch.zeros((), dtype=torch.float64)
    for n, row in enumerate(rows):
        with torch.no_grad():
            guesses = masked_lm(input_ids=masked[n : n + 1, : len(row)]).logits[0].argmax(-1).tolist()
        if config["edited"] == "masked":
            guesses = [g if chosen[n, t] else row[t] for t, g in enumerate(guesses)]
        edited = [tokenizer.cls_token_id, *guesses[1:], *[0] * (longest - len(row))]
        handle = detector.embeddings.register_forward_hook(
            lambda _module, _args, out, n=n: torch.cat([inserted[n].view(1, 1, -1), out[:, 1:]], 1)
        )
        attention = torch.tensor([[1] * len(row) + [0] * (longest - len(row))])
        states = detector(input_ids=torch.tensor([edited]), attention_mask=attention).last_hidden_state[0]
        handle.remove()
        for t in range(longest):
            o = states[t] @ made.classifier.weight.T + made.classifier.bias
            replaced = t < len(row) and edited[t] != row[t]
            cell = torch.logsumexp(o, 0) - o[int(replaced)]
            if config["rtd_reduction"] == "cells":
                detection = detection + cell / (len(rows) * longest)
            elif t < len(row):
                detection = detection + cell / len(rows)
    return loss + float(config["rtd_weight"]) * detection


PAPER: dict[str, OptionValue] = {"edited": "masked", "rtd_reduction": "sentence", "generator_dropout": False}


@pytest.mark.parametrize(
    ("backbone", "changes", "sentences"),
    [
        ("tiny_bert", {}, SENTENCES),
        (
            "tiny_bert",
            {"rtd_weight": 0.5, "mask": 0.15, "rtd_input": "before_head", "head": "tanh"},
            SENTENCES,
        ),
        ("tiny_bert", {"rtd_weight": 0.5, **PAPER}, SENTENCES),
        ("tiny_bert", {"rtd_weight": 0.5}, ["a"]),  # a batch of one sentence of one word
        ("tiny_bert", {"rtd_weight": 0.5}, ["a", "the"]),
        ("tiny_roberta", {"rtd_weight": 0.5}, SENTENCES),
    ],
)
def test_one_step_equals_a_transcription(
    backbone: str, changes: dict[str, OptionValue], sentences: list[str], request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(backbone)
    mlm = request.getfixturevalue({"tiny_bert": "tiny_mlm"}.get(backbone, backbone))
    changes = {"generator_dropout": False} | changes
    made, batch, tokenizer = made_of(folder, mlm, sentences, **changes)
    masked_lm = copy.deepcopy(made.generator).eval()
    loss, config = made(batch), options_of("diffcse", **({"max_length": 8} | changes))
    got = same_step(made, loss, transcription(made, tokenizer, masked_lm, config, sentences))
    parts = {name.split(".")[0] for name in got}
    assert parts == {"encoder", "head", "discriminator", "classifier"}  # the generator has none
    for part in ("discriminator.encoder", "classifier"):
        assert any(bool(g.abs().sum() > 0) for name, g in got.items() if name.startswith(part))


def test_without_detection_it_is_info_nce_on_the_heads_output(tiny_bert: Path, tiny_mlm: Path) -> None:
    made, batch, tokenizer = made_of(tiny_bert, tiny_mlm, rtd_weight=0.0)
    masks = made.masks.get_state()
    config = options_of("diffcse", rtd_weight=0.0, max_length=8)
    expected = transcription(made, tokenizer, made.generator, config, SENTENCES)
    alone = same_step(made, made(batch), expected)
    assert {name.split(".")[0] for name in alone} == {"encoder", "head"}
    assert torch.equal(made.masks.get_state(), masks)


def test_the_discriminator_starts_as_the_backbone_and_learns_apart(tiny_bert: Path, tiny_mlm: Path) -> None:
    made, _, _ = made_of(tiny_bert, tiny_mlm, dropout=0.1)
    pairs = list(zip(made.encoder.parameters(), made.discriminator.parameters(), strict=True))
    assert all(torch.equal(one, two) and one is not two for one, two in pairs)
    assert all(m.p == 0.1 for m in made.discriminator.modules() if isinstance(m, nn.Dropout))
    assert not any(p.requires_grad for p in made.generator.parameters())
    assert made.generator.training  # its dropout is active


@pytest.mark.parametrize("method", ["diffcse", "infocse"])
def test_the_auxiliary_models_name(tmp_path: Path, tiny_bert: Path, tiny_mlm: Path, method: str) -> None:
    (auxiliary,) = METHODS.get(method).card.auxiliaries
    asked = f"{method}[{auxiliary}={tiny_mlm}]"
    (job,) = plan_on_toy(asked, tmp_path, backbone=str(tiny_bert)).jobs
    assert job.record.options[auxiliary] == "tiny-mlm"
    assert job.record.training["auxiliaries"][auxiliary]["name"] == "tiny-mlm"
    assert str(tiny_mlm.parent) not in record_to_json(job.record)


def test_another_generator_is_another_training(tmp_path: Path, tiny_bert: Path, tiny_mlm: Path) -> None:
    def keys(folder: Path) -> tuple[str, str]:
        (job,) = plan_on_toy(f"diffcse[generator={folder}]", tmp_path, backbone=str(tiny_bert)).jobs
        return job.key, job.cell.stages[0].key

    other = shutil.copytree(tiny_mlm, tmp_path / "tiny-mlm")
    first = keys(tiny_mlm)
    assert keys(other) == first  # the same files in another place are the same model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        BertForMaskedLM(AutoConfig.from_pretrained(tiny_mlm)).save_pretrained(other)
    assert not set(keys(other)) & set(first)


def test_a_generator_that_does_not_fit(tmp_path: Path, tiny_bert: Path, tiny_mlm: Path) -> None:
    other = shutil.copytree(tiny_mlm, tmp_path / "other")
    tokenizer = AutoTokenizer.from_pretrained(other)
    tokenizer.add_tokens(["quokka"])
    tokenizer.save_pretrained(other)
    for folder, facts in (
        (tiny_bert, ("missing from the checkpoint", "bench pretrain", "--profile minilm-mlm")),  # no head
        (other, ("generator backbone", "vocabulary")),
    ):
        with pytest.raises(InputError) as caught:
            train_alone("diffcse", tiny_bert, tmp_path, {"auxiliaries": {"generator": folder}})
        assert not missing_facts(caught.value, *facts)
