"""RankCSE: its losses, its teachers, a step against an independent transcription, and training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.baselines.rankcse import consistency_loss, list_mle, list_net, off_diagonal, rank_loss
from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.losses.contrastive import cosine_matrix, info_nce
from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder
from bench.nn.sum_encoder import SumEncoder
from bench.nn.two_phase_encoding import embed_prepared, has_halves, prepare_sentences
from bench.training.randomness import generator
from bench.training.teachers import Teacher, mix_cosines
from tests.support.encoders import FunctionEncoder
from tests.support.steps import gradients_of, nce_by_loops, objective_of, same_step, under_head
from tests.support.training import SENTENCES, options_of, random, stages_of, train_alone

options = partial(options_of, "rankcse")


def plackett_luce(scores: Sequence[float], order: Sequence[int]) -> float:
    """Negative log-likelihood of an order, item by item."""
    return -sum(
        math.log(math.exp(scores[item]) / sum(math.exp(scores[rest]) for rest in order[k:]))
        for k, item in enumerate(order)
    )


def mle_by_loops(student: Tensor, teacher: Tensor, eps: float) -> Tensor:
    """The released formula, row by row."""
    rows = []
    for s, t in zip(student, teacher, strict=True):
        order = sorted(range(len(s)), key=lambda j: -float(t[j]))
        shifted = s - s.max()
        terms = [
            torch.log(torch.stack([shifted[j].exp() for j in order[k:]]).sum() + eps) - shifted[order[k]]
            for k in range(len(order))
        ]
        rows.append(torch.stack(terms).sum())
    return torch.stack(rows).mean()


def net_by_loops(student: Tensor, teacher: Tensor) -> Tensor:
    """The formula over a full matrix, j = i left out of both."""
    rows = []
    for i in range(len(student)):
        others = [j for j in range(len(student)) if j != i]
        q = [math.exp(float(teacher[i, j])) for j in others]
        total = torch.stack([student[i, j].exp() for j in others]).sum().log()
        terms = [-(weight / sum(q)) * (student[i, j] - total) for j, weight in zip(others, q, strict=True)]
        rows.append(torch.stack(terms).sum())
    return torch.stack(rows).mean()


def entropy(row: Tensor) -> Tensor:
    return -(row * row.log()).sum()


def test_list_mle_is_the_likelihood_of_the_teachers_order() -> None:
    s, t = random(4, 6), random(4, 6, seed=1)
    orders = t.sort(dim=1, descending=True).indices.tolist()
    expected = np.mean([plackett_luce(row.tolist(), order) for row, order in zip(s, orders, strict=True)])
    assert float(list_mle(s, t, eps=0)) == pytest.approx(float(expected), rel=1e-10)
    for eps in (0.0, 1e-7, 0.1):
        slow = float(mle_by_loops(20 * s, t, eps))
        assert float(list_mle(20 * s, t, eps=eps)) == pytest.approx(slow, rel=1e-9)


def test_list_mle_by_hand_and_limits() -> None:
    zeros = torch.zeros(2, 128, dtype=torch.float64)
    assert float(list_mle(zeros, random(2, 128), eps=0)) == pytest.approx(math.lgamma(129))  # ln 128!
    two = torch.tensor([[0.0, -20.0]], dtype=torch.float64)  # the last item is 20 below the first
    assert float(list_mle(two, -two, eps=0)) == pytest.approx(20, abs=1e-6)
    added = float(list_mle(two, two)) - float(list_mle(two, two, eps=0))
    assert added == pytest.approx(3.90, abs=0.005)
    one = torch.tensor([[3.0]], dtype=torch.float64)
    assert float(list_mle(one, one)) == pytest.approx(1e-7)
    assert float(list_mle(one, one, eps=0)) == 0
    far = torch.tensor([[0.0, -900.0, -1800.0]])  # float32: e^-900 is 0, its logarithm here is not
    assert float(list_mle(far, far, eps=0)) == 0
    assert float(list_mle(far, -far, eps=0)) == pytest.approx(2700)


def test_list_mle_sees_the_order_alone_and_shifts_do_not_matter() -> None:
    s, t = random(5, 5), random(5, 5, seed=1)
    base = float(list_mle(s, t))
    assert float(list_mle(s + random(5, 1, seed=2), t)) == pytest.approx(base, rel=1e-10)
    assert float(list_mle(s, t.exp() * 3 - 1)) == pytest.approx(base, rel=1e-12)
    assert float(list_mle(s, t.sigmoid())) == pytest.approx(base, rel=1e-12)
    assert float(list_mle(s, -t)) != pytest.approx(base)
    a, b = random(3, 4).requires_grad_(), random(3, 4, seed=1)
    assert torch.autograd.gradcheck(lambda x: list_mle(x, b), (a,))
    assert torch.autograd.gradcheck(lambda x: list_mle(x, b, eps=0), (a,))


def test_ties_are_broken_by_one_drawn_order_of_columns() -> None:
    s, tied = random(1, 4).expand(3, 4), torch.zeros(3, 4, dtype=torch.float64)
    drawn = [torch.randperm(4, generator=generator(seed, "ties")) for seed in range(40)]
    seen = {float(list_mle(s, tied, columns=columns)) for columns in drawn}
    orders = [plackett_luce(s[0].tolist(), order) for order in itertools.permutations(range(4))]
    assert len(seen) > 6
    for value in seen:  # equal rows, so one order for all of them
        assert min(abs(value - expected) for expected in orders) < 1e-5
    t = random(3, 4, seed=1)
    assert float(list_mle(s, t, columns=drawn[0])) == pytest.approx(float(list_mle(s, t)), rel=1e-12)


def test_list_net_is_the_formula() -> None:
    s, t = random(5, 5), random(5, 5, seed=1)
    got = float(list_net(off_diagonal(s), off_diagonal(t)))
    assert got == pytest.approx(float(net_by_loops(s, t)), rel=1e-10)
    uniform = float(list_net(s[:2, :3], torch.zeros(2, 3, dtype=torch.float64)))
    assert uniform == pytest.approx(-float(s[:2, :3].log_softmax(1).mean()))
    s.requires_grad_()

    def gradient(loss: Tensor) -> Tensor:
        return torch.autograd.grad(loss, s)[0]

    reached = gradient(list_net(off_diagonal(s), off_diagonal(t)))
    assert bool((reached.diagonal() == 0).all())
    assert float(reached.abs().sum()) > 0
    assert float(gradient(list_net(off_diagonal(s), off_diagonal(s.detach()))).abs().max()) < 1e-15
    a, b = random(3, 4).requires_grad_(), random(3, 4, seed=1)
    assert torch.autograd.gradcheck(lambda x: list_net(x, b), (a,))
    loss = list_net(off_diagonal(s[:2, :2]), off_diagonal(t[:2, :2]))  # of two sentences
    assert (float(loss.detach()), float(gradient(loss).abs().max())) == (0, 0)


def test_consistency_is_the_formula() -> None:
    s = random(4, 4)
    p, q = s.softmax(1), s.T.softmax(1)
    expected = -torch.stack([(entropy(p[i]) + entropy(q[i])) / 2 for i in range(4)]).mean()
    assert float(consistency_loss(s)) == pytest.approx(float(expected), rel=1e-9)
    m = (p + q) / 2
    js = torch.stack([entropy(m[i]) - (entropy(p[i]) + entropy(q[i])) / 2 for i in range(4)]).mean()
    assert float(consistency_loss(s, "js")) == pytest.approx(float(js), rel=1e-9)
    assert float(consistency_loss(s)) == pytest.approx(float(consistency_loss(s.T)))


def test_consistency_limits() -> None:
    uniform = torch.zeros(8, 8, dtype=torch.float64)
    assert float(consistency_loss(uniform)) == pytest.approx(-math.log(8))
    symmetric = random(5, 5) + random(5, 5).T
    assert float(consistency_loss(symmetric, "js")) == pytest.approx(0, abs=1e-12)
    apart = torch.full((3, 3), -60.0, dtype=torch.float64)  # row i points at i + 1, column i at i - 1
    apart[torch.arange(3), (torch.arange(3) + 1) % 3] = 60
    assert float(consistency_loss(apart, "js")) == pytest.approx(math.log(2), abs=1e-5)
    assert float(consistency_loss(apart)) == pytest.approx(0, abs=1e-5)
    for seed in range(20):
        lists = 5 * random(6, 6, seed=seed)
        assert 0 <= float(consistency_loss(lists, "js")) <= math.log(2)
        assert -math.log(6) <= float(consistency_loss(lists)) <= 0
    for form in ("neg_entropy", "js"):
        assert float(consistency_loss(torch.ones(1, 1), form)) == 0
        a = random(3, 3).requires_grad_()
        assert torch.autograd.gradcheck(lambda x, form=form: consistency_loss(x, form), (a,))


def test_negative_entropy_is_what_the_clamp_of_log_m_leaves() -> None:
    """The released lines: log M is at least 1e-7, although a logarithm of a probability never is."""
    s, again = random(5, 5).requires_grad_(), random(5, 5).requires_grad_()
    p, q = again.softmax(1).clamp(min=1e-7), again.T.softmax(1).clamp(min=1e-7)
    log_m = ((p + q) / 2).log().clamp(min=1e-7)
    released = sum(
        torch.nn.functional.kl_div(log_m, side, reduction="batchmean", log_target=False) for side in (p, q)
    )
    torch.autograd.backward(torch.as_tensor(released) / 2)
    loss = consistency_loss(s)
    torch.autograd.backward(loss)
    assert float(loss.detach()) == pytest.approx(float(torch.as_tensor(released).detach()) / 2, abs=2e-7)
    torch.testing.assert_close(s.grad, again.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, lambda c, t: mle_by_loops(c / 0.05, t, 1e-7)),
        ({"listmle_eps": 0.0, "tau": 0.1}, lambda c, t: mle_by_loops(c / 0.1, t, 0)),
        (
            {"listmle_drop_diagonal": True},
            lambda c, t: mle_by_loops(off_diagonal(c) / 0.05, off_diagonal(t), 1e-7),
        ),
        ({"rank_loss": "listnet", "teacher_tau": 0.02}, lambda c, t: net_by_loops(c / 0.05, t / 0.02)),
        (
            {"rank_loss": "listnet", "listnet_temps": "tau2_tau3", "teacher_tau": 0.1},
            lambda c, t: net_by_loops(c / 0.1, t / 0.05),
        ),
        (
            {"rank_loss": "listnet", "listnet_drop_diagonal": False},
            lambda c, t: -((t / 0.05).softmax(1) * (c / 0.05).log_softmax(1)).sum(1).mean(),
        ),
        ({"listnet_temps": "tau2_tau3"}, lambda c, t: mle_by_loops(c / 0.05, t, 1e-7)),
    ],
)
def test_options_of_the_ranking_term(changes: dict[str, OptionValue], expected: Any) -> None:
    a, b, d = (random(5, 3, seed=seed) for seed in range(3))
    c, t = cosine_matrix(a, b), cosine_matrix(d, a)
    before = c.clone(), t.clone()
    value = float(rank_loss(c, t, options(**changes)))
    assert value == pytest.approx(float(expected(c, t)), rel=1e-9)
    assert torch.equal(c, before[0])  # worked on copies
    assert torch.equal(t, before[1])


def counting(scale: float = 1.0, dim: int = 3) -> FunctionEncoder:
    """The vector of a sentence is (length, 1, 2, 0, ...)."""
    rest = [0.0] * (dim - 3)
    return FunctionEncoder(lambda texts: [[len(text) * scale, 1, 2, *rest] for text in texts], dim)


def test_a_teacher_encodes_a_sentence_once_while_there_is_room() -> None:
    text = ["a", "bb", "ccc", "dddd"]
    encoder = counting()
    teacher = Teacher(encoder, text, kept_bytes=3 * 4 * 2)  # room for two
    for batch in ([2, 0, 2], [3, 0, 2, 1], [3, 0]):
        vectors = teacher.vectors(teacher.prepare(batch, "cpu"))
        assert vectors[:, 0].tolist() == [n + 1 for n in batch]
        assert not vectors.requires_grad
    assert list(itertools.chain(*encoder.asked)) == ["ccc", "a", "dddd", "bb", "dddd"]
    encoder = counting()
    none = Teacher(encoder, text, kept_bytes=0)
    for _ in range(2):
        assert none.vectors(none.prepare([1], "cpu")).tolist() == [[2, 1, 2]]
    assert encoder.asked == [["bb"], ["bb"]]
    # a step may be prepared before the one before it is computed
    first, second = (teacher.prepare(batch, "cpu") for batch in ([0, 1], [1, 2, 0]))
    assert [teacher.vectors(asked)[:, 0].tolist() for asked in (first, second)] == [[1, 2], [2, 3, 1]]


@pytest.mark.parametrize("pooling", ["cls", "avg", "mask"])
def test_an_encoder_in_halves_gives_what_it_encodes(tiny_bert: Path, pooling: str) -> None:
    class Doubled(TransformerEncoder):
        def encode(self, *given: Any, **more: Any) -> FloatArray:
            return 2 * super().encode(*given, **more)

    text = [*SENTENCES, *SENTENCES[:2], "the"]
    halves = TransformerEncoder(tiny_bert, pooling)
    summed = SumEncoder([halves, counting(dim=16), halves], [0.3, 0.5, 0.2])
    for encoder, whole in ((halves, True), (summed, True), (Doubled(tiny_bert, pooling), False)):
        assert has_halves(encoder) == whole
        vectors = embed_prepared(encoder, prepare_sentences(encoder, text))
        assert not vectors.is_inference()  # a loss may keep it for its gradient
        np.testing.assert_array_equal(vectors.numpy(), encoder.encode(text))


@pytest.mark.parametrize("scale", [math.inf, math.nan])
@pytest.mark.parametrize(
    ("method", "teachers"),
    [("rankcse", ("teacher1", "teacher2")), ("tncse_d", ("teacher",)), ("dclr", ("complement",))],
)
def test_vectors_that_are_not_finite_end_the_training(
    tiny_bert: Path, tmp_path: Path, method: str, teachers: tuple[str, ...], scale: float
) -> None:
    members = {"members": dict.fromkeys(teachers, counting(scale, 16))}
    with pytest.raises(BenchError, match="a teacher's vectors are not finite"):
        train_alone(method, tiny_bert, tmp_path, members)


def test_teachers_similarities_are_mixed_not_their_vectors() -> None:
    one, two = random(3, 4), random(3, 7, seed=1)  # of other sizes
    mixed = mix_cosines([one, two], (0.33, 0.67))
    for i, j in itertools.product(range(3), range(3)):
        parts = [float(torch.cosine_similarity(t[i], t[j], dim=0)) for t in (one, two)]
        assert float(mixed[i, j]) == pytest.approx(0.33 * parts[0] + 0.67 * parts[1])
    assert torch.equal(mix_cosines([one, two], (1.0, 0.0)), mix_cosines([one], (1.0,)))
    assert mixed.diagonal().tolist() == pytest.approx([1, 1, 1])
    torch.testing.assert_close(mixed, mixed.T)
    assert float(cosine_matrix(torch.zeros(2, 3), torch.ones(2, 3)).abs().max()) == 0


def made_of(
    folder: Path, *teachers: Any, sentences: Sequence[str] = SENTENCES, **changes: OptionValue
) -> tuple[Any, list[Any], Any]:
    members = {f"teacher{number}": encoder for number, encoder in enumerate(teachers, start=1)}
    return objective_of("rankcse", folder, sentences, {"members": members}, **changes)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 2),
        ({"gamma": 0.1, "rank_loss": "listnet", "consistency": "js", "beta": 0.5}, 2),
        ({"gamma": 0.3, "alpha": 0.9, "beta": 0.5}, 1),
    ],
)
def test_a_step_equals_a_transcription(tiny_bert: Path, changes: dict[str, Any], count: int) -> None:
    """Loss and gradient, all rows by loops; the teachers are two poolings."""
    encoders = [TransformerEncoder(tiny_bert, pooling) for pooling in ("avg", "pooler")][:count]
    settings = options(**changes)
    made, batch, _ = made_of(tiny_bert, *encoders, **changes)
    z, size = [under_head(made, row) for _, row in batch], len(SENTENCES)
    whole = torch.stack(z)
    s = torch.cosine_similarity(whole.unsqueeze(1), whole.unsqueeze(0), dim=-1) / 0.05
    weights = [1.0] if count == 1 else [float(settings["alpha"]), 1 - float(settings["alpha"])]
    t = torch.zeros(size, size, dtype=torch.float64)
    for encoder, weight in zip(encoders, weights, strict=True):
        vectors = torch.from_numpy(encoder.encode(SENTENCES)).double()
        for i, j in itertools.product(range(size), range(size)):
            t[i, j] += weight * float(torch.cosine_similarity(vectors[i], vectors[j], dim=0)) / 0.05
    expected = nce_by_loops(z, z)
    p, q = s.softmax(1).clamp(min=1e-7), s.T.softmax(1).clamp(min=1e-7)
    for i in range(size):
        share = -(entropy(p[i]) + entropy(q[i])) / 2
        if settings["consistency"] == "js":
            share = share + entropy((p[i] + q[i]) / 2)
        expected = expected + float(settings["beta"]) * share / size
    rank = net_by_loops(s, t) if settings["rank_loss"] == "listnet" else mle_by_loops(s, t, 1e-7)
    expected = expected + float(settings["gamma"]) * rank
    # the teachers' cosines are float32: an error of 1e-7, divided by tau
    got = same_step(made, made(batch), expected, rel=5e-6, rtol=1e-4, atol=1e-6)
    assert all(p.grad is None for encoder in encoders for p in encoder.model.parameters())
    assert float(got["head.weight"].abs().max()) > 0.01


def test_with_alpha_1_the_second_teacher_counts_nothing(tiny_bert: Path) -> None:
    one, two = (TransformerEncoder(tiny_bert, pooling) for pooling in ("avg", "pooler"))
    make = partial(made_of, tiny_bert, one, rank_loss="listnet")
    steps = make(), make(two, alpha=1.0), make(two)
    alone, first, both = (float(made(batch).detach()) for made, batch, _ in steps)
    assert alone == pytest.approx(first, rel=1e-12)
    assert alone != pytest.approx(both, rel=1e-9)
    assert stages_of("rankcse", options())[0].inputs == ("teacher1", "teacher2")
    assert stages_of("rankcse", options(teacher2=""))[0].inputs == ("teacher1",)


@pytest.mark.parametrize("rank", ["listmle", "listnet"])
@pytest.mark.parametrize("size", [1, 2])
def test_one_or_two_sentences_have_nothing_to_rank(tiny_bert: Path, rank: str, size: int) -> None:
    encoder, silent = counting(), counting()
    made, batch, _ = made_of(tiny_bert, encoder, sentences=[*["two", "a"][:size], *SENTENCES], rank_loss=rank)
    loss = made(batch[:size])
    assert encoder.asked == []
    z = torch.stack([under_head(made, row) for _, row in batch[:size]])
    plain = info_nce(z, z, 0.05) + consistency_loss(cosine_matrix(z, z) / 0.05)
    assert float(loss.detach()) == pytest.approx(float(plain.detach()), abs=1e-5)
    assert all(bool(part.isfinite().all()) for part in gradients_of(made, loss).values())
    assert bool(made(batch[size:]).isfinite())
    assert encoder.asked == [SENTENCES]
    plain_loss, batch, _ = made_of(tiny_bert, silent, gamma=0.0)
    plain_loss(batch)
    assert silent.asked == []
