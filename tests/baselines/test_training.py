"""What every baseline that trains does: odd batches, what it keeps, and the settings that it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from bench.card import OptionValue
from bench.errors import InputError
from bench.registry import discover
from tests.support.steps import gradients_of, objective_of
from tests.support.training import toy_sentences, train_alone

SHORT: list[tuple[str, dict[str, OptionValue]]] = [
    ("arccse", {"triplet_min_length": 1, "triplet_margin": 2.5, "dropout": 0.3}),
    ("crop", {"dropout": 0.3}),
    ("diffcse", {}),
    ("esimcse", {}),
    ("iscse", {"buffer": 3, "neighbours": 2, "dropout": 0.3}),
    ("promptbert", {"dropout": 0.3}),
]
"""Methods to which single words, equal and empty sentences could matter, and are not tested elsewhere."""


@pytest.mark.parametrize(
    "sentences", [["two"], ["a", "a"], ["", "the farmer"], ["quokka", "a man is singing " * 9]]
)
@pytest.mark.parametrize(("method", "changes"), SHORT)
def test_odd_batches_have_a_finite_loss_and_gradient(
    method: str, changes: dict[str, OptionValue], sentences: list[str], tiny_bert: Path, tiny_mlm: Path
) -> None:
    given = {"auxiliaries": {"generator": tiny_mlm}}
    text = [*sentences, "a child", "the hill"]  # more than a batch: the epoch goes on
    made, batch, _ = objective_of(method, tiny_bert, text, given, **changes)
    batch = batch[: len(sentences)]
    for part in (batch, batch[:1]):
        loss = made(part)
        assert bool(loss.isfinite())
        assert float(loss.detach()) >= 0
        assert all(bool(gradient.isfinite().all()) for gradient in gradients_of(made, loss).values())
    if method == "esimcse":  # the second batch met the first one's vectors
        assert len(made.queue.vectors) == len(batch) + 1
        assert float(loss.detach()) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("bsl", {"blocks": 1, "lr": 1e-2}),
        ("crop", {}),
        ("denosent", {"decoder_layers": 1, "decoder_inner": 8}),
        ("diffcse", {}),
        ("esimcse", {}),
        ("infocse", {}),
        ("iscse", {"buffer": 24}),
        ("pcl", {}),
        ("pcl", {"fix_peer": True, "augs": "dp"}),
        ("mixcse", {}),
        ("vascl", {}),
        ("whitenedcse", {"groups": 4}),
        ("sup_simcse", {}),  # whose head is the pooler
        ("angle", {}),
    ],
)
def test_training_keeps_the_encoder_alone(
    tmp_path: Path, tiny_bert: Path, tiny_mlm: Path, method: str, changes: dict[str, OptionValue]
) -> None:
    """No head, peer, target, queue or auxiliary network is kept."""
    given: dict[str, Any] = {"auxiliaries": dict.fromkeys(discover().get(method).card.auxiliaries, tiny_mlm)}
    given["partners"] = [" ".join(sentence.split()[::-1]) for sentence in toy_sentences()]
    found = train_alone(method, tiny_bert, tmp_path, given, **changes)
    assert found.facts["sentences_seen"] == 24 + 24 + (24 if method == "bsl" else 12) + 24
    before, after = AutoModel.from_pretrained(tiny_bert).state_dict(), found.kept()
    assert after.keys() == before.keys()
    name = "embeddings.LayerNorm.weight"
    assert not torch.equal(after[name], before[name])


REFUSED: list[tuple[str, dict[str, OptionValue], str]] = [
    ("arccse", {"triplet_heavy": 0.1}, "triplet_light 0.2, triplet_heavy 0.1; expected shares above 0"),
    ("bsl", {"batch_size": 1}, "batch_size 1; expected 2 or more, which this method needs"),
    (
        "bsl",
        {"batch_size": 59, "drop_last": False},
        "an epoch's last batch has 1 of 59 sentences; expected 2 or more, which this method needs; drop_last",
    ),
    (
        "bsl",
        {"batch_size": 61},
        "60 sentences don't fill a batch of 61; expected a longer training text, or a smaller batch_size",
    ),
    ("bsl", {"decay": 1.5}, "momentum 1.5; expected 0 to 1"),
    ("bsl", {"warmup": 2.0}, "warmup 2.0; expected a share of the steps, 0 to 1"),
    (
        "crop",
        {"shortest_sentence": 300},
        "crop.shortest_sentence: shortest_sentence 300 is above longest_sentence 250",
    ),
    ("esimcse", {"max_length": 36}, "max_length 36 and repetitions are 45 tokens; the model's limit is 40"),
    ("esimcse", {"momentum": 1.5}, "momentum 1.5; expected 0 to 1"),
    (
        "iscse",
        {"buffer": 20},
        "iscse.buffer: a memory of 20 vectors; expected at least a batch, 24, and a group, 17",
    ),
    ("iscse", {"buffer": 40, "neighbours": 40}, "expected at least a batch, 24, and a group, 41"),
    (
        "iscse",
        {"alpha_schedule": "cosine", "alpha_start": 0.2},
        "iscse.alpha_start: alpha_start 0.2 is above alpha 0.1; expected a weight that rises",
    ),
    (
        "pcl",
        {"augs": "sf+xx"},
        "pcl.augs: unknown edit 'xx'; expected some of sf, rv, de, rp, dp, joined by +",
    ),
    ("promptbert", {"max_length": 31}, "max_length 31 and the template exceed"),
    ("promptbert", {"template2": "{sentence}"}, "the template '{sentence}' can't be used with this model"),
    ("promptbert", {"dropout": 2.0}, "dropout 2.0; expected 0 or more and less than 1"),
    ("sncse", {"max_length": 10}, "takes 10 tokens of 10; expected room for a sentence"),
    ("sncse", {"template": "{sentence}"}, "the template '{sentence}' can't be used with this model"),
    ("sncse", {"alpha": 0.5}, "alpha 0.5 must be at most beta 0.3"),
    (
        "whitenedcse",
        {"groups": 5},
        "whitenedcse.groups: 5 groups don't divide the backbone's 16 channels; expected a divisor of 16",
    ),
    (
        "whitenedcse",
        {"groups": 4, "engine": "lowrank", "grad_through_whitening": True},
        "whitenedcse.grad_through_whitening: the gradient through lowrank's matrices jumps where",
    ),
]


@pytest.mark.parametrize(("method", "changes", "message"), REFUSED)
def test_refused_settings(
    tmp_path: Path, tiny_bert: Path, method: str, changes: dict[str, OptionValue], message: str
) -> None:
    with pytest.raises((InputError, ValueError), match=re.escape(message)):
        train_alone(method, tiny_bert, tmp_path, **({"blocks": 1} if method == "bsl" else {}), **changes)


def test_a_text_that_the_model_cannot_read_is_refused_before_training(
    tmp_path: Path, tiny_bert: Path
) -> None:
    """A longer max_length alone is no error: the text may be short."""
    assert train_alone("simcse", tiny_bert, tmp_path, max_length=41).facts["steps"] > 0
    long = {"sentences": ["a b", "one " * 60, "a"]}
    with pytest.raises(InputError, match="max_length 41, and sentence 2 has more than 40 tokens"):
        train_alone("simcse", tiny_bert, tmp_path, long, max_length=41)
