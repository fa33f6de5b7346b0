"""ConSERT: augmentations by loops, a step against position ids and cut embeddings, AdamW as released."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.baselines.consert import ConSERTObjective, draw_cutoff, shuffle_row
from bench.errors import InputError
from bench.method_card import OptionValue
from bench.nn.backbone import load_backbone
from bench.nn.embedding_augmentation import attach_zeros, cut_embeddings, prepare_cutoffs
from bench.nn.hidden_states import compute_last_states
from bench.nn.tokens import pad_chunk, split_into_chunks
from bench.training.loop import TrainSettings, train
from bench.training.randomness import generator
from tests.support.steps import count_losses, descend, gradients_of, objective_of, same_step
from tests.support.training import SENTENCES, options_of, random, stages_of

TEXT = [*SENTENCES, "the doctor is on the hill", "children are singing"]
Zoo = Callable[[str], Path]
Draws = list[list[int]]  # of each row of a view, the drawn order of its units


def states_of(model: Any, row: list[int], view: str, rate: float, order: list[int]) -> Tensor:
    """States of one row, (n, H): BertModel's steps, with position ids and embeddings changed as released.

    ConSERT 03c9e8f, transformers/modeling_bert.py: _replace_position_ids, _cutoff_embeddings.
    """
    parts, ids, count = model.embeddings, torch.tensor(row), len(row)
    places = torch.arange(count)
    if view == "shuffle":  # the token drawn as number p takes place p
        for place, token in enumerate(order):
            places[token] = place
    embedded = parts.word_embeddings(ids) + parts.position_embeddings(places)
    embedded = parts.LayerNorm(embedded + parts.token_type_embeddings(torch.zeros_like(ids)))
    keep = torch.ones_like(embedded)
    if view == "token_cutoff":
        for token in order[: int(count * rate)]:
            keep[token] = 0
    if view == "feature_cutoff":
        for feature in order[: int(keep.shape[1] * rate)]:
            keep[:, feature] = 0
    if view == "element_cutoff":
        for element in order[: int(keep.numel() * rate)]:
            keep[element // keep.shape[1], element % keep.shape[1]] = 0
    states = (embedded * keep)[None]
    for layer in model.encoder.layer:
        states = layer(states)
        states = states[0] if isinstance(states, tuple) else states
    last: Tensor = states[0]
    return last


def drawn_orders(rows: list[list[int]], config: dict[str, OptionValue], features: int) -> list[Draws]:
    """The orders that a step draws, view by view and row by row."""
    draw, views = generator(1, "augment/consert"), []
    for side in (1, 2):
        view = str(config[f"view{side}"])
        counts = []
        for row in rows:
            sizes = {"feature_cutoff": features, "element_cutoff": len(row) * features}
            counts.append(sizes.get(view, len(row)))
        orders = [[] if view == "none" else torch.randperm(n, generator=draw).tolist() for n in counts]
        views.append(orders)
    return views


def slow_step(made: Any, rows: list[list[int]], config: dict[str, OptionValue]) -> Tensor:
    """Loss of a step: AdvCLSoftmaxLoss._contrastive_loss_forward, one cosine at a time."""
    tau, weight = float(config["tau"]), float(config["weight"])
    views = []
    for side, orders in enumerate(drawn_orders(rows, config, made.features), start=1):
        view, rate = str(config[f"view{side}"]), float(config[f"rate{side}"])
        states = [states_of(made.encoder, r, view, rate, o) for r, o in zip(rows, orders, strict=True)]
        views.append([each.sum(0) / len(each) for each in states])
    total = torch.zeros((), dtype=torch.float64)
    for own, other in (views, views[::-1]):
        terms = []
        for i, vector in enumerate(own):
            cosine = partial(torch.cosine_similarity, vector, dim=0)
            positive = (cosine(other[i]) / tau).exp()
            negatives = [(cosine(v[j]) / tau).exp() for v in (own, other) for j in range(len(own)) if j != i]
            terms.append(-torch.log(positive / (positive + sum(negatives))))
        total = total + torch.stack(terms).mean()
    return weight * total


CHANGES: list[dict[str, OptionValue]] = [
    {},
    {"view1": "token_cutoff", "view2": "none"},
    {"view1": "shuffle", "view2": "element_cutoff"},
    {"view1": "none", "view2": "none"},
    {"view1": "token_cutoff", "rate1": 0.5, "view2": "token_cutoff", "rate2": 0.3},
    {"rate1": 0.5},
    {"tau": 0.3},
    {"weight": 1.0},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_a_step_by_hand(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    """Loss and every gradient; shuffled tokens have the mean state of shuffled position ids."""
    made, rows, _ = objective_of("consert", tiny_bert, TEXT, **changes)
    same_step(made, made(rows), slow_step(made, rows, options_of("consert", **changes)), rel=1e-8)


def test_every_option_changes_the_loss(tiny_bert: Path) -> None:
    step = partial(objective_of, "consert", tiny_bert, TEXT)
    assert count_losses(step, CHANGES) == len(CHANGES)


def test_each_row_and_step_draws_anew(tiny_bert: Path) -> None:
    made, rows, _ = objective_of("consert", tiny_bert, [TEXT[0]] * 4)
    first, second = made.prepare(rows), made.prepare(rows)
    (chunk,), (other,) = first.chunks, second.chunks
    assert isinstance(made, ConSERTObjective)
    assert chunk.zeros is not None
    cut = [tuple(row.nonzero().flatten().tolist()) for row in chunk.zeros[:4].all(1)]
    assert len(set(cut)) == 4
    assert {len(each) for each in cut} == {int(0.2 * made.features)}
    assert not bool(chunk.zeros[4:].any())
    assert len({tuple(ids.tolist()) for ids in chunk.ids[4:]}) == 4
    assert [sorted(ids.tolist()) for ids in chunk.ids[4:]] == [sorted(rows[0])] * 4
    assert not torch.equal(other.zeros, chunk.zeros)


def test_cutoffs_are_uniform_and_of_the_released_size() -> None:
    draw = torch.Generator().manual_seed(0)
    tokens, features = Counter[int](), Counter[int]()
    for _ in range(2000):
        cut = draw_cutoff("token_cutoff", 7, 5, 0.3, draw)
        assert cut is not None
        assert cut.shape == (7, 5)
        assert cut.all(1).sum() == 2 == cut.any(1).sum()  # floor(2.1), whole tokens
        tokens.update(cut[:, 0].nonzero().flatten().tolist())
        cut = draw_cutoff("feature_cutoff", 3, 8, 0.2, draw)
        assert cut is not None
        assert cut.all(0).sum() == 1 == cut.any(0).sum()
        features.update(cut[0].nonzero().flatten().tolist())
    assert [sorted(tokens), sorted(features)] == [[*range(7)], [*range(8)]]  # specials too
    assert max(abs(count - 4000 / 7) for count in tokens.values()) < 100  # 5 standard deviations
    assert max(abs(count - 2000 / 8) for count in features.values()) < 75
    cut = draw_cutoff("element_cutoff", 3, 5, 0.5, draw)
    assert cut is not None
    assert (int(cut.sum()), cut.shape) == (7, (3, 5))
    assert [draw_cutoff(view, 3, 5, 0.5, draw) for view in ("none", "shuffle")] == [None, None]
    assert not bool(draw_cutoff("token_cutoff", 3, 5, 0.3, draw).any())  # type: ignore[union-attr]
    assert shuffle_row([], draw) == []
    orders = Counter(tuple(shuffle_row([1, 2, 3], draw)) for _ in range(1200))
    assert len(orders) == 6
    assert max(abs(count - 200) for count in orders.values()) < 65


def test_zeros_follow_their_rows_through_chunks() -> None:
    rows = [[1, 2, 3], [1], [1, 2, 3, 4], [1, 2]]
    zeros = [None if n == 3 else random(len(row), 2, seed=n) > 0 for n, row in enumerate(rows)]
    chunks, order = split_into_chunks(rows, 0, 6)
    seen = 0
    for chunk in attach_zeros(chunks, order, zeros):
        for ids, row in zip(chunk.ids, () if chunk.zeros is None else chunk.zeros, strict=False):
            wanted = zeros[order[seen]]
            count = len(rows[order[seen]])
            assert ids[:count].tolist() == rows[order[seen]]
            assert not bool(row[count:].any())
            assert torch.equal(row[:count], torch.zeros(count, 2) > 0 if wanted is None else wanted)
            seen += 1
    assert seen == len(rows)
    assert attach_zeros(chunks, order, [None] * 4)[0].zeros is None


def test_a_cut_ends_with_its_block(tiny_bert: Path) -> None:
    made, rows, _ = objective_of("consert", tiny_bert, TEXT)
    model, ids = made.encoder, torch.tensor([rows[0]])
    plain = model(input_ids=ids).last_hidden_state
    cut = torch.ones(1, ids.shape[1], made.features, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="must match"), cut_embeddings(model, cut[:, :2]):
        model(input_ids=ids)
    with cut_embeddings(model, cut):
        flat = model(input_ids=ids).last_hidden_state
    torch.testing.assert_close(flat, flat[:, :1].expand_as(flat))  # nothing is left of the tokens
    assert torch.equal(model(input_ids=ids).last_hidden_state, plain)
    assert prepare_cutoffs(model) == plain.shape[2]
    assert model.training


@pytest.mark.parametrize(
    ("backbone", "features"), [("roberta", 32), ("albert", 16), ("modernbert", 32), ("llama", 32), ("t5", 32)]
)
def test_a_cutoff_reaches_every_architecture(zoo: Zoo, backbone: str, features: int) -> None:
    """Rows that differ by one token are alike once it is cut."""
    model = load_backbone(zoo(backbone))[0].eval()
    assert prepare_cutoffs(model) == prepare_cutoffs(model) == features
    chunk = pad_chunk([[3, 4, 5, 6], [3, 7, 5, 6]], 0)
    cut = torch.zeros(2, 4, features, dtype=torch.bool)
    cut[:, 1] = True
    with torch.no_grad():
        plain = compute_last_states(model, chunk)
        with cut_embeddings(model, cut):
            states = compute_last_states(model, chunk)
        assert torch.equal(compute_last_states(model, chunk), plain)
    assert not torch.allclose(plain[0], plain[1])
    torch.testing.assert_close(states[0], states[1])


@pytest.mark.parametrize(
    ("changes", "pooling", "allowed"),
    [
        ({}, "cls", ("avg", "avg_first_last")),
        ({"view1": "shuffle", "view2": "none"}, "last", ("avg_first_last",)),
        ({"view2": "token_cutoff"}, "mask", ("cls", "last", "avg")),
        ({"view1": "none", "view2": "none"}, None, ("cls", "mask", "avg")),
    ],
)
def test_poolings_that_an_augmentation_would_break(
    changes: dict[str, OptionValue], pooling: str | None, allowed: tuple[str, ...]
) -> None:
    for value in ("auto", *allowed):
        assert stages_of("consert", options_of("consert", **changes, train_pooling=value))
    if pooling:
        with pytest.raises(InputError, match=f"train_pooling={pooling}"):
            stages_of("consert", options_of("consert", **changes, train_pooling=pooling))


def test_adamw_takes_the_released_steps(tiny_bert: Path) -> None:
    """transformers' AdamW(eps=1e-6, correct_bias=False), warm-up, clipping: five steps, written out."""
    made, rows, _ = objective_of("consert", tiny_bert, TEXT, weight=1.0)
    other, _, _ = objective_of("consert", tiny_bert, TEXT, weight=1.0)
    settings = TrainSettings(
        1e-3, len(rows), 5, 9, warmup=0.4, adam_eps=1e-6, bias_correction=False, decay_all=False, clip=0.5
    )
    batches: list[Any] = []
    prepare = made.prepare

    def note(batch: Any) -> Any:
        batches.append(batch)
        return prepare(batch)

    made.prepare = note
    train(made, made.encoder, rows, settings, seed=1, corpus="c", dev_score=lambda: 0.0)
    moments: dict[str, tuple[Tensor, Tensor]] = {}
    for step, batch in enumerate(batches):
        gradients = gradients_of(other, other(batch))
        norm = torch.sqrt(sum((g.square().sum() for g in gradients.values()), torch.tensor(0.0)))
        rate = 1e-3 * (step / 2 if step < 2 else (5 - step) / 3)
        moves = {}
        for name, gradient in gradients.items():
            g = gradient * min(1.0, 0.5 / (float(norm) + 1e-6))
            first, second = moments.get(name, (torch.zeros_like(g), torch.zeros_like(g)))
            moments[name] = first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
            moves[name] = first / (second.sqrt() + 1e-6)
        descend(other, moves, rate)
    assert len(batches) == 5
    trained = dict(made.named_parameters())
    for name, parameter in other.named_parameters():
        torch.testing.assert_close(trained[name], parameter, rtol=1e-7, atol=1e-9, msg=name)
