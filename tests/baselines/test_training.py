"""What every baseline that trains does: odd batches, what it keeps, its seed, refused settings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from bench.errors import InputError
from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder
from bench.registry import discover
from bench.stages import TrainedMethod
from bench.training import batch_encoding
from bench.training.randomness import own_random_state
from tests.support.messages import missing_facts
from tests.support.steps import count_losses, gradients_of, objective_of
from tests.support.training import options_of, stages_of, toy_sentences, train_alone

Changes = dict[str, OptionValue]
DECODER: Changes = {"decoder_layers": 1, "decoder_inner": 8}
# methods to which single words, equal and empty sentences could matter
SHORT: list[tuple[str, Changes]] = [
    ("arccse", {"triplet_min_length": 1, "triplet_margin": 2.5}),
    ("consert", {}),
    ("crop", {}),
    ("ct", {"dropout": 0.0, "batch_size": 3}),
    ("ct_batch", {}),
    ("dclr", {}),
    ("denosent", DECODER),
    ("diffcse", {}),
    ("esimcse", {"dropout": 0.0}),
    ("iscse", {"buffer": 3, "neighbours": 2}),
    ("mirror_bert", {}),
    ("mixcse", {"mixed": "released"}),
    ("mixcse", {"mixed": "paper"}),
    ("promcse", {}),
    ("promptbert", {}),
    ("sncse", {"negate_unfinished": True, "bml_weight": 0.5, "max_length": 32}),
    ("tsdae", {}),
    ("vascl", {}),
]


def context(method: str, bert: Path, mlm: Path) -> dict[str, Any]:
    """Members, auxiliary models and columns of the toy text, as far as a method reads them."""
    texts = toy_sentences()
    given: dict[str, Any] = {
        "auxiliaries": dict.fromkeys(discover().get(method).card.auxiliaries, mlm),
        "partners": texts[1:] + texts[:1],
        "negatives": texts[2:] + texts[:2],
    }
    if method == "dclr":
        given["members"] = {"complement": TransformerEncoder(bert, "avg")}
    return given


@pytest.mark.parametrize(
    "sentences", [["two"], ["a", "a"], ["", "the farmer"], ["quokka", "a man is singing " * 9]]
)
@pytest.mark.parametrize(("method", "changes"), SHORT)
def test_odd_batches_have_a_finite_loss_and_gradient(
    method: str, changes: Changes, sentences: list[str], tiny_bert: Path, tiny_mlm: Path
) -> None:
    text = [*sentences, "a child", "the hill"]  # more than a batch: the epoch goes on
    given = context(method, tiny_bert, tiny_mlm) | {"partners": text[::-1]}
    made, batch, _ = objective_of(method, tiny_bert, text, given, **({"dropout": 0.3} | changes))
    batch = batch[: len(sentences)]
    for part in (batch, batch[:1]):
        loss = made(part)
        assert bool(loss.isfinite())
        assert float(loss.detach()) >= 0
        assert all(bool(gradient.isfinite().all()) for gradient in gradients_of(made, loss).values())
    if method == "esimcse":  # the second batch met the first one's vectors
        assert len(made.queue.vectors) == len(batch) + 1
        assert float(loss.detach()) > 0


@pytest.mark.parametrize(("method", "changes"), [*SHORT, ("bsl", {"blocks": 1}), ("simcse", {})])
def test_only_dropout_draws_anew(method: str, changes: Changes, tiny_bert: Path, tiny_mlm: Path) -> None:
    """The loss of one step under two states of the generator, with and without dropout."""
    losses: dict[float, set[float]] = {0.3: set(), 0.0: set()}
    text = toy_sentences()[:6]
    given = context(method, tiny_bert, tiny_mlm) | {"partners": text[::-1]}
    stills: dict[str, Changes] = {
        "denosent": {"noise": 0.0},
        "tsdae": {"noise": 0.0},
        "diffcse": {"generator_dropout": False},
    }
    options = changes | stills.get(method, {})
    for dropout, found in losses.items():
        for seed in (1, 2):
            made, batch, _ = objective_of(method, tiny_bert, text, given, **(options | {"dropout": dropout}))
            with own_random_state(seed, "dropout"):
                found.add(float(made(batch).detach()))
    assert [len(found) for found in losses.values()] == [2, 1]
    assert not losses[0.0] & losses[0.3]


OTHERS: list[tuple[str, Changes]] = [
    ("bsl", {"blocks": 1}),
    ("crop", {"train_pooling": "cls"}),
    ("infocse", {"mlm_weight": 0.5}),
    ("scd", {"width": 8, "dropout2": 0.0}),
    ("isbert", {"channels": 4}),
    ("simcse", {}),
    ("sup_simcse", {}),
    ("whitenedcse", {"groups": 4}),
]


@pytest.mark.parametrize(
    ("method", "changes"), [*OTHERS, *(case for case in SHORT if case[0] not in ("dclr", "diffcse"))]
)
def test_chunks_change_nothing(
    method: str, changes: Changes, tiny_bert: Path, tiny_mlm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step's loss and gradients are the same whatever fits into one forward."""
    assert not discover().get(method).card.padding_matters
    text, found = toy_sentences()[:6], []
    given = context(method, tiny_bert, tiny_mlm) | {"partners": text[::-1]}
    for budget in (16, 10_000):
        monkeypatch.setattr(batch_encoding, "default_batch_tokens", lambda _, budget=budget: budget)
        made, batch, _ = objective_of(method, tiny_bert, text, given, **changes)
        with own_random_state(1, "noise"):
            loss = made(batch)
        found.append((float(loss.detach()), gradients_of(made, loss)))
    (one, parts), (other, whole) = found
    assert one == pytest.approx(other, rel=1e-9)
    for name, gradient in parts.items():
        torch.testing.assert_close(gradient, whole[name], rtol=1e-6, atol=1e-9)


# a method, options of all its steps, and options that each change the loss
OPTIONS: list[tuple[str, Changes, list[Changes]]] = [
    (
        "angle",
        {},
        [{"angle_weight": 1.0}, {"cosine_weight": 1.0}, {"ibn_weight": 2.0}, {"cln_weight": 0.5},
         {"ibn_scale": 5.0}, {"angle_scale": 5.0}],
    ),
    (
        "arccse",
        {"triplet_min_length": 3, "triplet_margin": 0.5},
        [{"triplet": False}, {"margin": 0.0}, {"triplet_weight": 1.0}, {"triplet_margin": 0.1}, {"tau": 0.1}],
    ),
    (
        "dclr",
        {},
        [{"phi": 1.1}, {"noise_times": 0.5}, {"noise_steps": 0}, {"noise_rate": 0.5}, {"loss": "paper"},
         {"head": "tanh"}, {"mask_padding": True}, {"tau": 0.1}],
    ),
    ("mixcse", {}, [{"mix": 0.5}, {"mixed": "paper"}, {"tau": 0.1}]),
    ("sncse", {"max_length": 24}, [{"bml_weight": 0.5}, {"alpha": 0.2}, {"beta": 0.21}, {"tau": 0.1}]),
    ("sup_simcse", {}, [{"hard_negative_weight": 2.0}, {"tau": 0.1}]),
]  # fmt: skip


@pytest.mark.parametrize(("method", "base", "changes"), OPTIONS)
def test_every_option_changes_the_loss(
    method: str, base: Changes, changes: list[Changes], tiny_bert: Path, tiny_mlm: Path
) -> None:
    text = toy_sentences()[:8]
    given = context(method, tiny_bert, tiny_mlm) | {"partners": text[::-1], "negatives": text[1:] + text[:1]}
    step = partial(objective_of, method, tiny_bert, text, given)
    assert count_losses(step, [base | change for change in ({}, *changes)]) == 1 + len(changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("bsl", {"blocks": 1, "lr": 1e-2}),
        ("consert", {"lr": 1e-3}),
        ("crop", {}),
        ("scd", {"width": 8}),
        ("denosent", DECODER),
        ("diffcse", {}),
        ("esimcse", {}),
        ("infocse", {}),
        ("iscse", {"buffer": 24}),
        ("pcl", {}),
        ("pcl", {"fix_peer": True, "augs": "dp"}),
        ("mirror_bert", {"drop_last": False}),
        ("mixcse", {}),
        ("vascl", {}),
        ("whitenedcse", {"groups": 4}),
        ("sup_simcse", {}),  # whose head is the pooler
        ("angle", {}),
    ],
)
def test_what_is_kept(tmp_path: Path, tiny_bert: Path, tiny_mlm: Path, method: str, changes: Changes) -> None:
    """No head, peer, target, queue or auxiliary network is kept."""
    trained = train_alone(method, tiny_bert, tmp_path, context(method, tiny_bert, tiny_mlm), **changes)
    assert trained.facts["sentences_seen"] == 24 + 24 + (24 if method == "bsl" else 12) + 24
    before, after = AutoModel.from_pretrained(tiny_bert).state_dict(), trained.kept()
    assert after.keys() == before.keys()
    name = "embeddings.LayerNorm.weight"
    assert not torch.equal(after[name], before[name])
    pooler = "pooler.dense.weight"  # of PCL the peer's learns
    assert torch.equal(after[pooler], before[pooler]) == (method != "sup_simcse")


@pytest.mark.parametrize(
    ("method", "changes", "others"),
    [
        ("angle", {}, {"angle_weight": 1.0}),
        ("bsl", {"blocks": 1, "select": "cosine"}, {"decay": 0.5}),
        ("consert", {"lr": 1e-3, "pooling": "avg"}, {"view2": "none"}),
        ("crop", {}, {"views": "dropout"}),
        ("scd", {"width": 8}, {"dropout2": 0.3}),
        ("dclr", {}, {"noise_steps": 0}),
        ("denosent", {**DECODER, "max_length": 12}, {"noise": 0.1}),
        ("iscse", {"buffer": 30, "neighbours": 4}, {"tau": 0.1}),
        ("mirror_bert", {}, {"drophead": 0.5}),
        ("mixcse", {}, {"mixed": "paper"}),
        ("sncse", {"max_length": 24, "bml_weight": 0.5}, {"bml_weight": 0.0}),
        ("sup_simcse", {}, {"hard_negative_weight": 2.0}),
        ("vascl", {"radius": 2.0, "lr": 1e-4}, {"radius": 1.0}),
    ],
)
def test_training_repeats_with_its_seed(
    tmp_path: Path, tiny_bert: Path, tiny_mlm: Path, method: str, changes: Changes, others: Changes
) -> None:
    """Same losses and weights; another seed and another option give others. The dev set is the test set."""
    given = context(method, tiny_bert, tiny_mlm)

    def train(options: Changes = changes, seed: int = 1) -> Any:
        return train_alone(method, tiny_bert, tmp_path, given | {"seed": seed}, **options)

    first, same = train(), train()
    assert first.losses == same.losses
    assert all(torch.equal(value, same.kept()[name]) for name, value in first.kept().items())
    assert first.score() == pytest.approx(first.facts["selected_dev"], abs=1e-6)
    assert train(seed=2).losses != first.losses
    assert train(changes | others).losses != first.losses


@pytest.mark.parametrize(
    ("method", "changes", "others"),
    [
        ("denosent", {**DECODER, "max_length": 12}, {"warmup": 0.0}),
        ("vascl", {"radius": 2.0, "lr": 1e-4}, {"head_rate": 1.0}),
        ("bsl", {"blocks": 1}, {"adam_eps": 1e-2}),
        ("consert", {"lr": 1e-3, "warmup": 0.0}, {"bias_correction": True}),
        ("mirror_bert", {}, {"clip": 0.1}),
        ("simcse", {}, {"lr": 1e-4}),
        ("simcse", {}, {"schedule": "constant"}),
        ("simcse", {}, {"weight_decay": 0.5}),
    ],
)
def test_rates_are_seen_from_the_second_step_on(
    tmp_path: Path, tiny_bert: Path, tiny_mlm: Path, method: str, changes: Changes, others: Changes
) -> None:
    given = context(method, tiny_bert, tiny_mlm)
    one, other = (
        train_alone(method, tiny_bert, tmp_path, given, **more).losses for more in (changes, changes | others)
    )
    assert one[0] == other[0]
    assert one[1:] != other[1:]


def test_pooling_at_inference_is_no_setting_of_the_training() -> None:
    tested = 0
    for name, method in discover():
        options = options_of(name)
        if not isinstance(method, TrainedMethod) or name.startswith(
            ("unsee", "whitening", "bert_flow", "vectors")
        ):
            continue  # those train or fit the vectors of their pooling
        for stage in stages_of(name, options) if "pooling" in options else ():
            assert "pooling" not in dict(stage.config)
            tested += 1
    assert tested > 40


@pytest.mark.parametrize(("method", "option", "value"), [("crop", "share", 1.5), ("rankcse", "alpha", 1.5)])
def test_a_share_is_at_most_1(method: str, option: str, value: float) -> None:
    with pytest.raises(InputError) as caught:
        discover().get(method).card.option(option, "--set").parse(value, "--set")
    assert not missing_facts(caught.value, "--set", value, 1)


# method, its options, and what the refusal names
REFUSED: list[tuple[str, Changes, tuple[object, ...]]] = [
    ("arccse", {"triplet_heavy": 0.1}, ("triplet_light 0.2", "triplet_heavy 0.1")),
    ("bsl", {"batch_size": 1}, ("batch_size 1", "2 or more")),
    ("bsl", {"batch_size": 59, "drop_last": False}, ("1 of 59", "2 or more", "drop_last")),
    ("bsl", {"batch_size": 61}, (60, 61, "smaller batch_size")),
    ("crop", {"shortest_sentence": 300}, ("crop.shortest_sentence", 300, "crop.longest_sentence", 250)),
    ("denosent", {"decoder_heads": 3}, ("denosent.decoder_heads", 3, "divisor of 16")),
    ("denosent", {"contrastive_weight": 0.0, "generative_weight": 0.0}, ("generative_weight", "above 0")),
    ("denosent", {"max_length": 40}, ("max_length 40", "up to 35")),
    ("esimcse", {"max_length": 36}, ("max_length 36", 45, "below 40", "esimcse.repetition_rate")),
    ("esimcse", {"repetition_unit": "word", "repetition_rule": "paper"}, ("esimcse.repetition_rule",)),
    ("iscse", {"buffer": 20}, ("iscse.buffer", 20, "a batch, 24", "a group, 17")),
    ("iscse", {"buffer": 40, "neighbours": 40}, ("iscse.buffer", 40, "a group, 41")),
    ("iscse", {"alpha_schedule": "cosine", "alpha_start": 0.2}, ("iscse.alpha_start", 0.2, "alpha 0.1")),
    ("pcl", {"augs": "sf+xx"}, ("pcl.augs", "'xx'", "sf, rv, de, rp, dp")),
    ("promptbert", {"max_length": 31}, ("max_length 31", "up to 30")),
    ("promptbert", {"template2": "{sentence}"}, ("'{sentence}'", "mask token")),
    (
        "promptbert",
        {"max_length": 16, "prompt_form": "continuous", "weight_decay": 0.1},
        ("promptbert.weight_decay", "prompt_form=continuous"),
    ),
    (
        "promptbert",
        {"max_length": 16, "prompt_form": "continuous", "prompt_head": "mlm"},
        ("missing from the checkpoint", "masked language model"),
    ),
    ("sncse", {"max_length": 10}, ("10 tokens of 10",)),
    ("sncse", {"alpha": 0.5}, ("alpha 0.5", "beta 0.3")),
    ("whitenedcse", {"groups": 5}, ("whitenedcse.groups", 5, 16, "divisor of 16")),
    (
        "whitenedcse",
        {"groups": 4, "engine": "lowrank", "grad_through_whitening": True},
        ("whitenedcse.grad_through_whitening", "engine=zca", "engine=cholesky"),
    ),
]


@pytest.mark.parametrize(("method", "changes", "facts"), REFUSED)
def test_refused_settings(
    tmp_path: Path, tiny_bert: Path, tiny_mlm: Path, method: str, changes: Changes, facts: tuple[object, ...]
) -> None:
    defaults: dict[str, Changes] = {"bsl": {"blocks": 1}, "denosent": DECODER}
    small, given = defaults.get(method, {}), context(method, tiny_bert, tiny_mlm)
    with pytest.raises((InputError, ValueError)) as caught:
        train_alone(method, tiny_bert, tmp_path, given, **(small | changes))
    assert not missing_facts(caught.value, *facts)


def test_a_text_longer_than_the_model_reads(tmp_path: Path, tiny_bert: Path) -> None:
    """A longer max_length alone is no error: the text may be short."""
    assert train_alone("simcse", tiny_bert, tmp_path, max_length=41).facts["steps"] == 4
    words = train_alone("esimcse", tiny_bert, tmp_path, max_length=38, repetition_unit="word", steps=1)
    assert words.facts["steps"] == 1  # repeated words are cut with their sentence, repeated subwords are not
    long = {"sentences": ["a b", "one " * 60, "a"]}
    with pytest.raises(InputError) as caught:
        train_alone("simcse", tiny_bert, tmp_path, long, max_length=41)
    assert not missing_facts(caught.value, "max_length 41", "sentence 2", 40)
