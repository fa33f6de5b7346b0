"""ESimCSE: repetition, momentum, queue, its loss, steps against an independent transcription, training."""

from __future__ import annotations

import copy
import math
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from bench.baselines.esimcse import build_random_copy
from bench.errors import InputError
from bench.losses.contrastive import info_nce, queue_nce
from bench.method_card import OptionValue
from bench.training.augmentation import repeat_subwords, repeat_words, repetition_bound
from bench.training.momentum import MomentumCopy, VectorQueue
from bench.training.randomness import generator
from tests.support.steps import (
    cls_of,
    descend,
    follow,
    nce_by_loops,
    objective_of,
    same_step,
    simcse_loss,
    under_head,
)
from tests.support.training import SENTENCES, random, train_alone


def row_of(subwords: int) -> list[int]:
    """Distinct ids, so that a repeated one is known as such."""
    return [1001, *range(1, subwords + 1), 1002]


@pytest.mark.parametrize(
    ("rate", "rule", "bounds"),
    [
        # c = 1 at 6: the upper end is not drawn; c = min(10, 10) at 32
        (0.32, "released", {2: 0, 6: 0, 7: 1, 25: 7, 32: 9, 200: 9}),
        (1.0, "released", {4: 2}),  # no more than there are
        (0.0, "released", {20: 0}),
        (0.32, "paper", {2: 0, 3: 1, 10: 2, 32: 9, 102: 32}),
    ],
)
def test_how_many_subwords_may_be_repeated(rate: float, rule: str, bounds: dict[int, int]) -> None:
    assert {length: repetition_bound(length, rate, rule) for length in bounds} == bounds


@pytest.mark.parametrize(("rate", "rule"), [(0.32, "released"), (0.30, "released"), (0.32, "paper")])
@pytest.mark.parametrize("subwords", [0, 1, 4, 5, 17, 30])
def test_repetition_doubles_distinct_subwords_in_place(subwords: int, rate: float, rule: str) -> None:
    row, draw = row_of(subwords), generator(1, f"test/{rate}")
    bound = repetition_bound(len(row), rate, rule)
    counts: Counter[int] = Counter()
    doubled: set[int] = set()
    for _ in range(400):
        out = repeat_subwords(row, rate, draw, rule)
        assert list(dict.fromkeys(out)) == row  # without the second of each pair it is the sentence
        assert [out[i] for i in range(1, len(out)) if out[i] == out[i - 1]] == [
            token for token, times in Counter(out).items() if times == 2
        ]
        assert (out.count(1001), out.count(1002)) == (1, 1)
        counts[len(out) - len(row)] += 1
        doubled |= {token for token, times in Counter(out).items() if times == 2}
    assert set(counts) == set(range(bound + 1))
    for count in counts.values():  # uniform; 5 standard deviations
        share = 1 / (bound + 1)
        assert abs(count / 400 - share) <= 5 * math.sqrt(share * (1 - share) / 400)
    assert doubled == (set(range(1, subwords + 1)) if bound else set())
    assert repeat_subwords([5], 0.32, draw, "paper") == [5]  # not even two specials


@pytest.mark.parametrize(
    ("words", "rate", "most"),
    [(1, 0.32, 0), (2, 0.32, 1), (3, 0.32, 1), (9, 0.32, 1), (12, 0.32, 2), (40, 0.9, 9)],
)
def test_words_are_repeated_in_place_but_never_the_last(words: int, rate: float, most: int) -> None:
    """Every count from 0 to the released c - 1, equally often, and every word but the last."""
    named = [f"w{n}" for n in range(words)]
    draw, counts, seen = generator(1, "words"), Counter[int](), set[str]()
    for _ in range(400):
        out = repeat_words(" ".join(named), rate, draw).split(" ")
        assert list(dict.fromkeys(out)) == named
        twice = {word for word, times in Counter(out).items() if times == 2}
        assert all(out[out.index(word) + 1] == word for word in twice)
        assert len(out) == words + len(twice)
        counts[len(twice)] += 1
        seen |= twice
    assert set(counts) == set(range(most + 1))
    share = 1 / (most + 1)
    assert all(abs(n / 400 - share) <= 5 * math.sqrt(share * (1 - share) / 400) for n in counts.values())
    assert seen == (set(named[:-1]) if most else set())
    assert repeat_words("a b c", 0.0, draw) == "a b c"


def test_a_step_with_repeated_words_equals_a_transcription(tiny_bert: Path) -> None:
    """Words are repeated in the text, so what is longer than max_length is cut; M = 0."""
    changes: dict[str, OptionValue] = {"repetition_unit": "word", "queue": 0, "max_length": 9}
    made, rows, tokenizer = objective_of("esimcse", tiny_bert, TEXT, repetition_rate=0.6, **changes)
    views = []
    for number, sentence in enumerate(TEXT):
        text = repeat_words(sentence, 0.6, generator(1, f"augment/esimcse/0/{number}"))
        views.append(tokenizer(text, truncation=True, max_length=9)["input_ids"])
    assert views == [made.positive(number, row, 0) for number, row in rows]
    assert views != [row for _, row in rows]
    assert max(map(len, views)) == 9
    z, positives = ([under_head(made, row) for row in each] for each in ([row for _, row in rows], views))
    same_step(made, made(rows), nce_by_loops(z, positives), rel=1e-8)


def test_queue_holds_the_newest_in_order_of_arrival() -> None:
    """Tags instead of vectors; B = 64 and M = 160 as released, with a short batch, and B > M."""
    queue, tags, pushed = VectorQueue(160), iter(range(10_000)), []
    expected = [64, 128, 160, 160, 160]
    for batch, held in zip((64, 64, 64, 3, 64), expected, strict=True):
        new = [next(tags) for _ in range(batch)]
        pushed += new
        queue.push(torch.tensor(new, dtype=torch.float32)[:, None].requires_grad_())
        assert queue.vectors is not None
        assert queue.vectors[:, 0].tolist() == pushed[-held:]
        assert not queue.vectors.requires_grad
    queue.clear()
    assert queue.vectors is None
    small = VectorQueue(2)
    small.push(torch.arange(5.0)[:, None])
    assert small.vectors is not None
    assert small.vectors[:, 0].tolist() == [0, 1, 2, 3, 4]  # the first push is not cut
    small.push(torch.tensor([[9.0]]))
    assert small.vectors[:, 0].tolist() == [4, 9]
    with pytest.raises(ValueError, match="size 0 must be at least 1"):
        VectorQueue(0)


def test_momentum_copy_follows_and_is_hidden() -> None:
    source = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
    source(torch.ones(1, 3)).sum().backward()
    slow = MomentumCopy(source, 0.995)
    assert all(p.grad is None and not p.requires_grad for p in slow.model.parameters())
    assert all(p.requires_grad and p.grad is not None for p in source[0].parameters())
    start = [p.clone() for p in slow.model.parameters()]
    with torch.no_grad():
        for p in source.parameters():
            p.add_(1.0)
    for share in (0.995, 0.995**2):
        slow.update(source)
        for p, before, theta in zip(slow.model.parameters(), start, source.parameters(), strict=True):
            torch.testing.assert_close(p, share * before + (1 - share) * theta, rtol=1e-6, atol=1e-6)
    holder = torch.nn.Module()
    holder.slow = slow  # type: ignore[assignment]
    holder.train()
    assert not list(holder.parameters())
    assert not holder.state_dict()
    assert not any(module.training for module in slow.model.modules())
    exact = MomentumCopy(source, 0.0)
    exact.update(source)
    assert torch.equal(next(exact.model.parameters()), next(source.parameters()))
    for momentum in (-0.1, 1.5):
        with pytest.raises(InputError, match=f"momentum {momentum}; expected 0 to 1"):
            MomentumCopy(source, momentum)
    with pytest.raises(ValueError, match="other parameters"):
        MomentumCopy(source, 0.5, start=torch.nn.Linear(2, 2))


@pytest.mark.parametrize(("batch", "held"), [(1, 1), (1, 7), (3, 0), (5, 2), (4, 9)])
def test_loss_is_the_formula(batch: int, held: int) -> None:
    a, p, q = random(batch, 5), random(batch, 5, seed=1), random(held, 5, seed=2)
    assert float(queue_nce(a, p, q, 0.05)) == pytest.approx(float(nce_by_loops(a, p, 0.05, q)), rel=1e-9)


def test_loss_by_hand_and_limits() -> None:
    a = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    q = torch.tensor([[0.0, 3.0], [-2.0, 0.0]], dtype=torch.float64)
    hand = math.log(math.e + 1 + 1 / math.e) - 1  # cosines 1, 0 and -1
    assert float(queue_nce(a, 5 * a, q, 1.0)) == pytest.approx(hand)
    equal = torch.ones(8, 4, dtype=torch.float64)
    assert float(queue_nce(equal, equal, equal[:5], 0.05)) == pytest.approx(math.log(13))
    z, p = random(6, 5), random(6, 5, seed=1)
    assert float(queue_nce(z, p, None, 0.05)) == float(info_nce(z, p, 0.05))
    values = [float(queue_nce(z, p, random(40, 5, seed=2)[:n], 0.05)) for n in range(41)]
    assert values[0] == pytest.approx(float(info_nce(z, p, 0.05)))
    assert all(later >= earlier for earlier, later in pairwise(values))
    one = random(1, 4).requires_grad_()  # alone in its batch an anchor still learns from the queue
    loss = queue_nce(one, random(1, 4, seed=1), random(5, 4, seed=2), 0.3)
    assert float(torch.autograd.grad(loss, one)[0].abs().max()) > 0


TEXT = [
    *SENTENCES,
    "a man is playing a guitar for the children on the hill",
    "The woman is reading a song to the doctor and the farmer.",
    "two",
    "the man is singing",
    "a child and a farmer and a doctor and a woman and a man",
]


@pytest.mark.parametrize("start", ["random", "pretrained"])
def test_steps_equal_a_transcription(tiny_bert: Path, start: str) -> None:
    """Losses and gradients of three batches, the last of one sentence; M = 6.

    The transcription encodes each sentence alone and moves each weight by itself.
    """
    settings: dict[str, OptionValue] = {"momentum": 0.9, "momentum_init": start, "queue": 6}
    made, rows, _ = objective_of("esimcse", tiny_bert, TEXT, **settings)
    phi = copy.deepcopy(made.slow.model)
    queue: list[Tensor] = []
    for batch in ([0, 1, 2, 3], [4, 5, 6, 7], [8]):
        loss = made([rows[i] for i in batch])
        views = [repeat_subwords(rows[i][1], 0.32, generator(1, f"augment/esimcse/0/{i}")) for i in batch]
        anchors = [under_head(made, rows[i][1]) for i in batch]
        expected = nce_by_loops(anchors, [under_head(made, view) for view in views], 0.05, queue)
        got = same_step(made, loss, expected, rel=1e-8)
        with torch.no_grad():
            follow(phi, made.encoder)
            states = [cls_of(phi.eval(), rows[i][1]) for i in batch]
            queue += [torch.tanh(made.head.weight @ h + made.head.bias) for h in states]
            if len(queue) > len(batch):
                queue = queue[-6:]
        torch.testing.assert_close(made.queue.vectors, torch.stack(queue), rtol=1e-9, atol=1e-9)
        descend(made, got)  # the copy must have moved with the weights before it
    assert not any(p.requires_grad for p in made.slow.model.parameters())
    assert [len(queue), made.seen] == [6, 9]
    assert max(len(view) for view in views) > len(rows[8][1])  # some sentence was really repeated


def test_random_start_is_like_the_model_and_not_it(tiny_bert: Path) -> None:
    made, _, _ = objective_of("esimcse", tiny_bert)
    other, _, _ = objective_of("esimcse", tiny_bert, momentum_init="pretrained")
    assert torch.equal(made.head.weight, other.head.weight)  # a switch changes only what it switches
    model = made.encoder
    for fresh, same, theta in zip(
        made.slow.model.parameters(), other.slow.model.parameters(), model.parameters(), strict=True
    ):
        assert torch.equal(same, theta)
        assert fresh.dtype == theta.dtype
    name = "embeddings.word_embeddings.weight"
    assert not torch.equal(made.slow.model.get_parameter(name), model.get_parameter(name))
    model.pooler = None
    assert build_random_copy(model).pooler is None


def test_momentum_vectors_have_no_dropout(tiny_bert: Path) -> None:
    """In training mode, dropout 0.5: the queue's vectors are those of the evaluation mode."""
    made, batch, _ = objective_of("esimcse", tiny_bert, momentum=0.0, dropout=0.5)
    made(batch)
    first = made.queue.vectors
    made.seen = 0
    made(batch)
    assert torch.equal(first, made.queue.vectors)
    made.encoder.eval()  # with momentum 0 the copy is the encoder itself
    with torch.no_grad():
        expected = made.projected(made.tokens([row for _, row in batch]))
    torch.testing.assert_close(first, expected, rtol=1e-9, atol=1e-9)
    sizes = [sum(p.numel() for p in module.parameters()) for module in (made, made.encoder)]
    assert sizes[0] == sizes[1] + 272


def test_what_an_epoch_begins_anew(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[list[int]]] = {}
    for resample in ("never", "per_epoch"):
        changes: dict[str, OptionValue] = {"repetition_resample": resample, "repetition_rate": 0.6}
        made, rows, _ = objective_of("esimcse", tiny_bert, TEXT, **changes)
        spied, lengths = Mock(side_effect=made.positive), []
        monkeypatch.setattr(made, "positive", spied)
        for _ in range(2):
            for batch in (rows[:4], rows[4:8], rows[8:]):
                made(batch)
                lengths.append(len(made.queue.vectors))
        assert lengths == [4, 8, 9] * 2
        epochs = [call.args[2] for call in spied.call_args_list]
        assert epochs == [0] * 9 + [int(resample == "per_epoch")] * 9
        seen[resample] = [made.positive(8, rows[8][1], epoch) for epoch in epochs[8::9]]
    never, anew = seen["never"], seen["per_epoch"]
    assert never[0] == never[1] == anew[0]
    assert anew[1] != anew[0]


def test_without_queue_and_repetition_it_is_simcse(tiny_bert: Path) -> None:
    made, batch, _ = objective_of("esimcse", tiny_bert, queue=0, repetition_rate=0.0)
    assert (made.slow, made.queue) == (None, None)
    assert float(made(batch).detach()) == simcse_loss(made, tiny_bert)


def test_the_queue_only_adds_negatives_within_an_epoch(tmp_path: Path, tiny_bert: Path) -> None:
    """Weights that stand still: 60 sentences in batches of 24, so that each epoch has three steps."""
    train = partial(train_alone, "esimcse", tiny_bert, tmp_path, steps=6, lr=0.0)
    added = [full - plain for full, plain in zip(train().losses, train(queue=0).losses, strict=True)]
    assert added[0] == added[3] == 0
    assert min(added[step] for step in (1, 2, 4, 5)) > 0
