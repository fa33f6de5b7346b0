"""The pooling in training: the vectors of inference, their gradient, and the rows of a prompt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.errors import InputError
from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.training.batch_encoding import batch_states, batch_twin_states, encode_with, token_batch
from bench.training.encoder_options import PROMPTLESS, TRAIN_POOLINGS
from bench.training.prompted_rows import build_rows
from tests.support.training import options_of, stages_of, toy_sentences, train_alone

Zoo = Callable[[str], Path]
ENCODERS, DECODERS = ("bert", "distilbert", "mpnet", "modernbert"), ("gpt2", "llama")
SENTENCES = ["the farmer is singing a song on the hill", "a child", "", "two doctors are reading a book", "x"]
STEP = {"steps": 1, "eval_every": 1, "batch_size": 8}


def vectors(tower: tuple[Any, Any], pooling: str, length: int = 40) -> torch.Tensor:
    """Training's vectors of the sentences in evaluation mode, in two chunks."""
    model, tokenizer = tower
    config: dict[str, OptionValue] = {"train_pooling": pooling, "max_length": length}
    made = build_rows(tokenizer, SENTENCES, config)
    rows = [made[number] for number in range(len(made))]
    with encode_with(pooling, tokenizer.mask_token_id):
        batch = token_batch(rows, tokenizer.pad_token_id, model, budget=2 * max(map(len, rows)))
        assert len(batch.chunks) > 1
        return batch_states(model, batch)


@pytest.mark.parametrize("backbone", [*ENCODERS, *DECODERS])
def test_training_has_the_vectors_of_inference(zoo: Zoo, backbone: str) -> None:
    tower = load_backbone(zoo(backbone))
    tower[0].eval()
    causal = backbone in DECODERS
    seen = set()
    for pooling in ("avg", "avg_first_last", "last", "weighted_mean") if causal else TRAIN_POOLINGS:
        expected = TransformerEncoder(tower, pooling, first_layer="layer1").encode(SENTENCES)
        found = vectors(tower, pooling).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        seen.add(expected[0].tobytes())
        if backbone == "gpt2":  # no token, no vector
            assert not found[2].any()
    assert len(seen) == (4 if causal else len(TRAIN_POOLINGS))


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_tokenizers_padding_side_is_unread(zoo: Zoo, side: str) -> None:
    tower = load_backbone(zoo("llama"))
    tower[0].eval()
    tower[1].padding_side = side
    made = build_rows(tower[1], SENTENCES, {"max_length": 40})
    for number, found in enumerate(vectors(tower, "last")):
        (alone,) = tower[0](torch.tensor([made[number]])).last_hidden_state
        torch.testing.assert_close(found, alone[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("backbone", "end"), [("llama", False), ("distilbert", True), ("t5", True)])
def test_the_last_token_of_a_cut_sentence(zoo: Zoo, backbone: str, end: bool) -> None:
    """The end token stays where the tokenizer adds one, otherwise it is the last word that is left."""
    model, tokenizer = load_backbone(zoo(backbone))
    cut, whole = (build_rows(tokenizer, SENTENCES, {"max_length": n})[0] for n in (5, 40))
    assert len(cut) == 5 < len(whole)
    assert (cut[-1] == whole[-1]) is end
    found = vectors((model.eval(), tokenizer), "last", 5)[0]
    torch.testing.assert_close(
        found, model(torch.tensor([cut])).last_hidden_state[0, -1], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("pooling", [*PROMPTLESS[1:], "mask"])
@pytest.mark.parametrize("backbone", ["bert", "distilbert"])
def test_the_gradient_is_that_of_finite_differences(zoo: Zoo, backbone: str, pooling: str) -> None:
    model, tokenizer = load_backbone(zoo(backbone))
    tower = (model.double().eval(), tokenizer)
    weight = model.get_input_embeddings().weight
    row = build_rows(tokenizer, SENTENCES, {"max_length": 40})[0]
    probe = torch.randn(weight.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(vectors(tower, pooling)[0].dot(probe), weight)
    assert bool((gradient[row].abs().sum(1) > 0).all())  # it reaches every token
    for token in (row[1], row[-2]):
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                weight[token, 3] += step
                values.append(float(vectors(tower, pooling)[0].dot(probe)))
                weight[token, 3] -= step
        assert float(gradient[token, 3]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-8)


def test_an_empty_row_has_a_finite_gradient(zoo: Zoo) -> None:
    model, tokenizer = load_backbone(zoo("gpt2"))
    for pooling in ("avg", "avg_first_last", "last", "weighted_mean"):
        total = vectors((model, tokenizer), pooling).square().sum()
        gradients = torch.autograd.grad(total, [*model.parameters()], allow_unused=True)
        assert all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)


def test_towers_are_pooled_alike(zoo: Zoo) -> None:
    towers = [load_backbone(zoo(name)) for name in ("bert", "distilbert")]
    tokenizer = towers[0][1]
    models = [model.eval() for model, _ in towers]
    made = build_rows(tokenizer, SENTENCES, {"max_length": 40, "train_pooling": "mask"})
    batch = token_batch([made[n] for n in range(len(made))], tokenizer.pad_token_id, models[0])
    for pooling in TRAIN_POOLINGS:
        with encode_with(pooling, tokenizer.mask_token_id):
            states = batch_twin_states(models[0], models[1], batch)
            for found, model in zip(states[:2], models, strict=True):
                torch.testing.assert_close(found, batch_states(model, batch), rtol=1e-4, atol=1e-5)
    with encode_with("avg"), pytest.raises(ValueError, match="cross-attention"):
        batch_twin_states(models[0], models[1], batch, caels=(1,))


TRAINED: list[tuple[str, str, str, dict[str, Any]]] = [
    *(("simcse", "bert", pooling, {}) for pooling in TRAIN_POOLINGS),
    ("simcse", "gpt2", "last", {}),
    ("simcse", "llama", "last", {}),
    ("esimcse", "llama", "weighted_mean", {}),
    ("pcl", "gpt2", "avg", {"peer_mask": True}),
    ("unsee_byol", "distilbert", "mask", {"layers": 1}),
    ("unsee_byol", "gpt2", "last", {"drop_last": False, "layers": 1}),
    ("consert", "albert", "avg_first_last", {}),
    ("mirror_bert", "roberta", "cls", {}),
    ("crop", "bert", "mask", {}),
    ("crop", "gpt2", "last", {}),
    ("vascl", "distilbert", "avg_first_last", {}),
    ("whitenedcse", "bert", "last", {"groups": 4}),
    ("infonce", "bert", "mask", {}),
    ("tncse_single", "bert", "avg", {}),
]


@pytest.mark.parametrize(("method", "backbone", "pooling", "changes"), TRAINED)
def test_the_dev_set_reads_the_trained_vectors(
    zoo: Zoo, tmp_path: Path, method: str, backbone: str, pooling: str, changes: dict[str, Any]
) -> None:
    trained = train_alone(method, zoo(backbone), tmp_path, **STEP, train_pooling=pooling, **changes)
    assert trained.score(pooling=pooling) == pytest.approx(trained.facts["selected_dev"], abs=1e-6)
    assert np.isfinite(trained.losses).all()


def test_the_loss_depends_on_the_pooling(zoo: Zoo, tmp_path: Path) -> None:
    train = partial(train_alone, "simcse", zoo("distilbert"), tmp_path, **STEP)
    losses = [train(train_pooling=pooling).losses[0] for pooling in ("auto", *TRAIN_POOLINGS)]
    assert losses[0] == losses[1]
    assert len(set(losses)) == len(TRAIN_POOLINGS)
    unsee = partial(train_alone, "unsee_vicreg", zoo("distilbert"), tmp_path, **STEP, layers=1)
    given, own = unsee(train_pooling="last"), unsee(pooling="last")
    assert given.losses == own.losses != unsee().losses


def test_partners_are_in_the_prompt_too(zoo: Zoo, tmp_path: Path) -> None:
    given = {"partners": toy_sentences()[::-1]}
    for method in ("bsl", "edfse"):
        trained = train_alone(method, zoo("bert"), tmp_path, given, **STEP, train_pooling="mask")
        assert np.isfinite(trained.losses).all()


def test_a_prompt_that_fills_the_input_is_refused(zoo: Zoo, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_length 64 and the prompt are"):
        train_alone("simcse", zoo("distilbert"), tmp_path, **STEP, train_pooling="mask", max_length=64)


REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("promptbert", "avg", {}, "mask"),
    ("sncse", "last", {}, "mask"),
    ("denosent", "cls", {}, "mask"),
    ("infonce", "last", {"pooler": "mask"}, "mask"),
    ("infonce", "mask", {"pooler": "avg"}, "avg"),
    ("sup_simcse", "avg", {}, "cls"),
    ("jtcse", "avg", {}, "caels=0"),
    ("pcl", "avg", {}, "peer_mask=true"),
    ("pcl", "mask", {"peer_mask": True}, "weighted_mean"),
    ("dclr", "last", {}, "mask_padding=true"),
    ("simcse", "mask", {"mlm_term": 0.1}, "mlm_term=0"),
    ("arccse", "mask", {}, "triplet=false"),
    ("diffcse", "mask", {}, "rtd_weight=0"),
    ("infocse", "mask", {}, "mlm_weight=0"),
    ("esimcse", "mask", {}, "weighted_mean"),
    ("whitenedcse", "mask", {"repetition_rate": 0.3}, "repetition_rate=0"),
    ("crop", "mask", {"unit": "token"}, "unit=word"),
    ("tsdae", "mask", {}, "weighted_mean"),
    ("mirror_bert", "mask", {}, "weighted_mean"),
    ("consert", "cls", {}, "avg_first_last"),
    ("consert", "mask", {"view2": "none"}, "weighted_mean"),
]


@pytest.mark.parametrize(("method", "pooling", "changes", "expected"), REFUSED)
def test_what_a_method_cannot_train(
    method: str, pooling: str, changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        stages_of(method, options_of(method, train_pooling=pooling, **changes))
    assert f"train_pooling={pooling}" in caught.value.what
    assert caught.value.where == f"{method}.train_pooling"
    assert expected in str(caught.value.expected)


@pytest.mark.parametrize("method", ["promptbert", "sncse", "denosent", "unsee_byol"])
def test_equal_trainings_have_equal_settings(method: str) -> None:
    """A prompt's own pooling by name, and an inference pooling that training doesn't read."""
    if method == "unsee_byol":
        one, other = (options_of(method, train_pooling="last", pooling=name) for name in ("avg", "last"))
    else:
        one, other = options_of(method), options_of(method, train_pooling="mask")
    (first,), (second,) = stages_of(method, one), stages_of(method, other)
    assert dict(first.config) == dict(second.config)
