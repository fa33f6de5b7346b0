"""The gradient probe: sampled components against the losses', Lemma 1, and figures of real embeddings."""

from __future__ import annotations

import csv
import errno
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock

from bench.data.toy_suite import make_toy_task
from bench.errors import BenchError, InputError
from bench.gradient import held_out
from bench.gradient.command import gradient_command as command
from bench.gradient.figures import gradient_figures
from bench.gradient.held_out import hold_out, take_snapshot, watch_training
from bench.gradient.real_embeddings import (
    batch_cosines,
    cosine_density,
    dropout_views,
    embedding_figures,
    hardest_negatives,
    hardest_shares,
    pair_cosines,
    required_ratios,
)
from bench.gradient.run import SAMPLED, write_sampled
from bench.gradient.sampled_angles import (
    LOSSES,
    FloatArray,
    arccon_ratio,
    batch_dissipation,
    dissipation_grid,
    euclidean_distance,
    negative_means,
    positive_means,
    ratio_bounds,
    ratio_grid,
    sample_negatives,
    sample_positives,
    sampled_hardest_share,
    shade_cells,
)
from bench.losses.paradigm_losses import Paradigm, negative_weights, positive_ratio
from bench.losses.paradigm_losses import gradient_dissipation as loss_dissipation
from bench.nn.backbone import TransformerEncoder
from bench.nn.dropout import set_dropout
from bench.registry import discover
from bench.stages import StageContext, TrainedMethod
from bench.stats.argument_checks import make_generator
from tests.support.messages import missing_facts
from tests.support.paradigm import options


def test_means_span_the_papers_intervals() -> None:
    positive, negative = positive_means(), negative_means()
    assert (len(positive), len(negative)) == (100, 100)
    assert [positive[0], positive[-1]] == pytest.approx([math.pi / 20, math.pi / 2])
    assert [negative[0], negative[-1]] == pytest.approx([math.pi / 20, math.pi])
    assert np.ptp(np.diff(positive)) < 1e-12


def test_draws_have_the_papers_moments() -> None:
    means = np.array([0.5, 1.2])
    angles = sample_positives(means, batches=20_000)
    one = np.arccos(sample_negatives(means, batches=20_000, negatives=1).largest)
    for drawn, deviation in ((angles, 0.05), (one, 0.1)):
        assert drawn.mean(axis=1) == pytest.approx(means, abs=0.04 * deviation)
        assert drawn.std(axis=1) == pytest.approx([deviation] * 2, abs=0.02 * deviation)
    again, other = sample_positives(means, 20_000), sample_positives(means, 20_000, seed=1)
    assert np.array_equal(again, angles)
    assert not np.array_equal(other, angles)
    assert abs(np.corrcoef(angles[0], angles[1])[0, 1]) < 0.05


def drawn_cosines(means: FloatArray, batches: int, negatives: int) -> FloatArray:
    """The negatives' cosines themselves, (means, batches, negatives), from the probe's own stream."""
    rng = make_generator(0, "gradient/negative")
    return np.stack([np.cos(mean + 0.1 * rng.standard_normal((batches, negatives))) for mean in means])


def as_losses_see_it(angle: float, negatives: FloatArray) -> torch.Tensor:
    """A matrix of cosines whose first row is a sampled batch."""
    s = torch.zeros(len(negatives) + 1, len(negatives) + 1, dtype=torch.float64)
    s[0] = torch.tensor([math.cos(angle), *negatives])
    return s


def test_components_are_those_of_the_losses() -> None:
    rows, columns, seen = np.array([0.2, 0.6, 1.4]), np.array([0.3, 0.9, 1.6, 2.9]), {0: 0, 1: 0}
    taus, angles = (0.05, 0.3), sample_positives(rows, batches=5)
    drawn = sample_negatives(columns, batches=5, taus=taus)
    cosines = drawn_cosines(columns, 5, 127)
    grid = dissipation_grid(positive=rows, negative=columns, batches=5)
    ratios = ratio_grid(rows, columns, batches=5)
    for p, n in itertools.product(range(3), range(4)):
        batches = [as_losses_see_it(angles[p, b], cosines[n, b]) for b in range(5)]
        for loss in LOSSES:
            expected = [float(loss_dissipation(s, Paradigm(gd=loss))[0]) for s in batches]
            assert batch_dissipation(loss, angles[p], drawn)[n] == pytest.approx(expected, rel=1e-12)
            assert grid[loss][p, n] == pytest.approx(np.mean(expected), rel=1e-12)
            seen = {value: count + expected.count(value) for value, count in seen.items()}
        arccon = [float(positive_ratio(s, Paradigm(r="arccon"))[0]) for s in batches]
        assert ratios["arccon"][p, n] == pytest.approx(np.mean(arccon), rel=1e-9)
        met = [float(positive_ratio(s, Paradigm(r="met"))[0][s[0, 1:].argmax() + 1]) for s in batches]
        assert ratios["met"][p, n] == pytest.approx(np.mean(met), rel=1e-9)
    assert min(seen.values()) > 20
    for tau, share in zip(taus, sampled_hardest_share(taus, columns, batches=5), strict=True):
        for n in range(4):
            batches = [as_losses_see_it(0.5, cosines[n, b]) for b in range(5)]
            largest = [float(negative_weights(s, Paradigm(tau=tau))[0].max()) for s in batches]
            assert share[n] == pytest.approx(np.mean(largest), rel=1e-9)


def test_dissipation_is_1_where_the_means_are_close_and_0_where_they_are_far() -> None:
    grid = dissipation_grid(positive=positive_means(10), negative=negative_means(10), batches=100)
    for values in grid.values():
        assert values.min() >= 0
        assert values.max() <= 1
        assert values[0, 0] > 0.98  # both pi/20
        assert values[0, -1] < 1e-3
        assert values[-1, 4] > 0.98  # about pi/2 both
        assert np.diff(values, axis=1).max() <= 0.02  # falls with mu_neg
        assert np.diff(values, axis=0).min() >= -0.02  # rises with mu_pos


def test_share_of_the_hardest() -> None:
    share = partial(sampled_hardest_share, negative=negative_means(10), batches=200)
    shares, released = share(), share(positive=0.5, least_dissipation=0.01)
    assert shares.shape == (6, 10)
    assert 1 / 127 <= shares.min() <= shares.max() <= 1
    assert np.diff(shares, axis=0).min() > 0  # a smaller temperature, a larger share
    assert released[:, 0] == pytest.approx(shares[:, 0], rel=1e-12)  # all batches count
    assert released[2:, -1].tolist() == [1, 1, 1, 1]  # none does
    assert shares[2, -1] < 0.1


def test_some_batches_count() -> None:
    """tau 0.05: the batches with a dissipation of at least 0.01, picked by hand."""
    column, tau = np.array([1.0]), 0.05
    cosines, angles = drawn_cosines(column, 50, 127)[0], sample_positives(np.array([0.5]), 50)[0]
    e = np.exp(cosines / tau)
    gd = 1 / (1 + np.exp(np.cos(angles) / tau) / e.sum(axis=1))
    level = float(np.median(gd))
    expected = float((e.max(axis=1) / e.sum(axis=1))[gd >= level].mean())
    share = partial(sampled_hardest_share, (tau,), column, batches=50)
    got = float(share(positive=0.5, least_dissipation=level)[0, 0])
    assert got == pytest.approx(expected, rel=1e-9)
    assert got != pytest.approx(float(share()[0, 0]), rel=1e-3)


def test_ratios_at_the_means_and_what_is_shaded() -> None:
    rows, columns = np.array([math.pi / 6, math.pi / 2]), np.array([math.pi / 3, math.pi / 2, math.pi])
    ratios = ratio_grid(rows, columns, sampled=False)
    u = math.radians(10)
    expected = [math.sin(math.pi / 6 + u) / 0.5, math.cos(u)]
    assert ratios["arccon"].tolist() == [pytest.approx([value] * 3) for value in expected]
    d = math.sqrt(2 - math.sqrt(3))
    assert ratios["met"][0].tolist() == pytest.approx([1 / d, math.sqrt(2) / d, 2 / d])
    sampled = ratio_grid(rows, columns)
    assert sampled["arccon"] == pytest.approx(ratios["arccon"], abs=0.02)
    assert bool((sampled["met"] < ratios["met"]).all())  # the nearest of 127
    assert shade_cells("met", rows, columns).tolist() == [[True, True, True], [True, False, True]]
    # cos(theta + u) - cos(mu) against tau (ln 99 + ln 127): row 0 0.766 - (0.5, 0, -1), row 1 -0.174 - ...
    assert shade_cells("arccon", rows, columns).tolist() == [[False, True, True], [True, False, True]]
    assert shade_cells("met").shape == (100, 100)
    assert arccon_ratio(np.array([1.0, -1.0])).tolist() == pytest.approx([123.8, -121.8], rel=0.01)
    assert euclidean_distance(np.array([1.0, 0.0, -1.0])).tolist() == pytest.approx([0.01, math.sqrt(2), 2])


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (partial(dissipation_grid, ("mat",), np.array([1.0]), np.array([1.0]), 1), "'mat'.* infonce, arccon"),
        (partial(sample_positives, positive_means(), 0), "0 batches; expected at least 1"),
        (partial(sample_negatives, negative_means(2), 1, (0.0,)), r"taus \(0\.0,\)"),
        (partial(ratio_bounds, [1.0], [1.0], [1.0], 0), "strength 0 must be above 0"),
    ],
)
def test_sampling_refuses(call: partial[Any], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        call()


def triples(count: int, size: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Unit anchors, positives and negatives, many of them close to each other."""
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(count, size))
    spread = rng.uniform(0.05, 2, size=(2, count, 1))
    near, far = (h + spread[i] * rng.normal(size=(count, size)) for i in (0, 1))
    return unit(h), unit(near), unit(far)


def unit(rows: FloatArray) -> FloatArray:
    values: FloatArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return values


def tangents(h: FloatArray, other: FloatArray) -> FloatArray:
    values: FloatArray = other - (h * other).sum(axis=1, keepdims=True) * h
    return values


@pytest.mark.parametrize("size", [3, 8])
def test_a_tangent_step_shrinks_the_distance_exactly_between_the_roots(size: int) -> None:
    h, near, far = triples(6000, size, seed=size)
    p, q = tangents(h, near), tangents(h, far)
    positive, negative = (np.arccos((h * other).sum(axis=1)) for other in (near, far))
    lengths = np.linalg.norm(p, axis=1), np.linalg.norm(q, axis=1)
    alpha = np.arccos(np.clip((p * q).sum(axis=1) / lengths[0] / lengths[1], -1, 1))
    rng = np.random.default_rng(0)
    for strength in (0.3, 1.0, 2.5):
        bounds = ratio_bounds(positive, negative, alpha, strength)
        assert bounds.imaginary > 200
        assert len(bounds.lower) == len(h) - bounds.imaginary > 500
        a, b = p[bounds.real], q[bounds.real]
        before = (a**2).sum(axis=1)
        width = bounds.upper - bounds.lower
        clear = width > 1e-6
        for place in (-1.0, -1e-3, 1e-3, 0.5, *rng.uniform(0, 1, 3), 1 - 1e-3, 1 + 1e-3, 3.0):
            r = (bounds.lower + place * width)[:, None]
            after = ((strength * (r * a - b) - a) ** 2).sum(axis=1)
            assert bool(((after < before) == (0 < place < 1))[clear].all())
        # imaginary: not even the r that brings it nearest
        a, b = p[~bounds.real], q[~bounds.real]
        best = 1 / strength + (a * b).sum(axis=1) / (a**2).sum(axis=1)
        after = ((strength * (best[:, None] * a - b) - a) ** 2).sum(axis=1)
        assert bool((after > (a**2).sum(axis=1)).all())


def test_bounds_by_hand() -> None:
    right, root = math.pi / 2, math.sqrt(3)
    own, other = [right, right, right, 0.0, 0.0], [right, right, right, 0.5, 0.0]
    bounds = ratio_bounds(own, other, [0, right, right, 1, 1], 0.5)
    assert bounds.real.tolist() == [True, True, True, False, False]
    assert bounds.lower.tolist() == pytest.approx([2 + 1 - 2, 2 - root, 2 - root])
    assert bounds.upper.tolist() == pytest.approx([2 + 1 + 2, 2 + root, 2 + root])
    assert ratio_bounds([right], [right], [right], 1.5).imaginary == 1
    assert bounds.imaginary == 2  # at its positive nothing brings an anchor nearer


def vectors(
    count: int = 24, size: int = 5, spread: float = 1.5, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    first = rng.normal(size=size) + spread * rng.normal(size=(count, size))
    second = first + 0.4 * spread * rng.normal(size=(count, size))
    return unit(first), unit(second)


def test_cosines_come_in_batches() -> None:
    first, second = vectors(26)
    cosines = batch_cosines(first, second, batch=8)
    assert cosines.shape == (3, 8, 8)  # two rows are left out
    for b, i, j in ((0, 0, 0), (1, 3, 5), (2, 7, 0)):
        assert cosines[b, i, j] == pytest.approx(float(first[8 * b + i] @ second[8 * b + j]), rel=1e-12)
    positive, negative = pair_cosines(cosines)
    assert (len(positive), len(negative)) == (24, 3 * 8 * 7)
    assert positive == pytest.approx((first * second).sum(axis=1)[:24], rel=1e-12)
    assert math.fsum(negative) == pytest.approx(float(cosines.sum() - positive.sum()))
    edges, heights = cosine_density(negative, bins=40)
    assert (len(edges), edges[0], edges[-1]) == (41, -1, 1)
    assert float((heights * np.diff(edges)).sum()) == pytest.approx(1)
    inside = (negative >= edges[30]) & (negative < edges[31])
    assert heights[30] == pytest.approx(inside.mean() / 0.05)
    for one, two, batch in ((first, second[:5], 8), (first[:7], second[:7], 8), (first, second, 1)):
        with pytest.raises(ValueError, match=r"\(n, dim\), n at least a batch"):
            batch_cosines(one, two, batch)


def kept_by_loops(first: FloatArray, second: FloatArray, m: float, batch: int) -> list[tuple[int, int]]:
    """(anchor, hardest negative) of every kept anchor."""
    found = []
    for i in range(len(first) // batch * batch):
        start = i // batch * batch
        rest = [j for j in range(start, start + batch) if j != i]
        hardest = max(rest, key=lambda j: float(first[i] @ second[j]))
        if float(first[i] @ second[i]) - float(first[i] @ second[hardest]) < m:
            found.append((i, hardest))
    return found


def test_hardest_negatives_and_the_ratios_they_require() -> None:
    first, second = vectors(52)
    pairs = kept_by_loops(first, second, 0.1, 16)
    assert 10 < len(pairs) < 40
    hardest = hardest_negatives(first, second, 0.1, 16)
    for number, (i, j) in enumerate(pairs):
        assert hardest.positive[number] == pytest.approx(float(first[i] @ second[i]), rel=1e-12)
        assert hardest.negative[number] == pytest.approx(float(first[i] @ second[j]), rel=1e-12)
        to = [v - float(first[i] @ v) * first[i] for v in (second[i], second[j])]
        alpha = math.acos(float(to[0] @ to[1]) / float(np.linalg.norm(to[0]) * np.linalg.norm(to[1])))
        assert hardest.alpha[number] == pytest.approx(alpha, rel=1e-8)
    whole, acute = required_ratios(hardest, 0.5), required_ratios(hardest, 0.5, acute=True)
    assert len(whole.real) == len(pairs)
    right = (hardest.positive > 0) & (hardest.negative > 0) & (hardest.alpha < math.pi / 2)
    assert len(acute.real) == int(right.sum()) < len(pairs)
    expected = ratio_bounds(np.arccos(hardest.positive), np.arccos(hardest.negative), hardest.alpha, 0.5)
    assert np.array_equal(whole.lower, expected.lower)
    none = hardest_negatives(first, second, -2.0, 16)
    assert len(none.positive) == len(none.alpha) == required_ratios(none, 1.0).imaginary == 0


def test_share_of_the_hardest_in_weights_and_in_tangent_directions() -> None:
    first, second = vectors(20)
    taus = (0.05, 0.5)
    paper = hardest_shares(first, second, taus, batch=10)
    released = hardest_shares(first, second, taus, form="released", m=0.1, batch=10)
    kept = [i for i, _ in kept_by_loops(first, second, 0.1, 10)]
    assert 0 < len(kept) < 20
    for number, tau in enumerate(taus):
        shares, along = {}, {}
        for i in range(20):
            rest = [j for j in range(i // 10 * 10, i // 10 * 10 + 10) if j != i]
            e = {j: math.exp(float(first[i] @ second[j]) / tau) for j in rest}
            weights = {j: value / sum(e.values()) for j, value in e.items()}
            parts = {j: w * (second[j] - float(first[i] @ second[j]) * first[i]) for j, w in weights.items()}
            total = np.sum(list(parts.values()), axis=0)
            top = max(rest, key=weights.__getitem__)
            shares[i] = weights[top]
            along[i] = float(parts[top] @ total / (total @ total))
        assert paper[number] == pytest.approx(np.mean(list(shares.values())), rel=1e-9)
        assert released[number] == pytest.approx(np.mean([along[i] for i in kept]), rel=1e-9)
    with pytest.raises(BenchError, match=r"margin -2\.0"):
        hardest_shares(first, second, taus, form="released", m=-2.0, batch=10)
    for form, given, fact in (("mean", taus, "'mean'"), ("paper", (0.0,), "above 0")):
        with pytest.raises(ValueError, match=fact):
            hardest_shares(first, second, given, form=form, batch=10)


def test_snapshot_by_loops() -> None:
    first, second = vectors(20)
    got = take_snapshot(7, first, second, m=0.1, batch=10)
    pairs = kept_by_loops(first, second, 0.1, 10)
    theta = [math.acos(float(first[i] @ second[i])) for i in range(20)]
    negative, u = [], math.radians(10)
    for i in range(20):
        rest = [j for j in range(i // 10 * 10, i // 10 * 10 + 10) if j != i]
        negative += [math.acos(float(first[i] @ second[j])) for j in rest]
    arccon = [math.sin(theta[i] + u) / math.sin(theta[i]) for i, _ in pairs]
    norm = np.linalg.norm
    distance = [(norm(first[i] - second[j]), norm(first[i] - second[i])) for i, j in pairs]
    assert (got.step, got.kept) == (7, len(pairs) / 20)
    assert got.arccon_ratio == pytest.approx(np.mean(arccon), rel=1e-9)
    assert got.met_ratio == pytest.approx(np.mean([far / near for far, near in distance]), rel=1e-9)
    assert got.positive_cosine == pytest.approx(np.mean(np.cos(theta)), rel=1e-12)
    assert got.positive_angle == pytest.approx((np.mean(theta), np.std(theta)), rel=1e-9)
    assert got.negative_angle == pytest.approx((np.mean(negative), np.std(negative)), rel=1e-9)
    none = take_snapshot(0, first, second, m=-2.0, batch=10)
    assert (none.kept, none.arccon_ratio, none.met_ratio) == (0, None, None)


def test_hold_out() -> None:
    text = [f"sentence {number}" for number in range(50)]
    fit, held = hold_out(text, seed=1)
    assert (len(fit), len(held)) == (45, 5)
    assert sorted(fit + held) == sorted(text)
    assert fit == [line for line in text if line in fit]
    assert hold_out(text, seed=1) == (fit, held)
    assert hold_out(text, seed=2)[1] != held
    for share in (0.0, 0.01, 1.0):
        with pytest.raises(InputError, match=f"a share of {share} holds out"):
            hold_out(text, 1, share)


def test_dropout_views(tiny_bert: Path) -> None:
    encoder = TransformerEncoder(tiny_bert)
    sentences = ["The doctor is reading a book.", "a", "Two children are singing.", "the farmer"]
    state = torch.get_rng_state()
    first, second = dropout_views(encoder, sentences, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert not encoder.model.training
    assert first.shape == (4, 16)
    assert np.linalg.norm(first, axis=1) == pytest.approx(np.ones(4))
    assert bool((np.abs(first - second).max(axis=1) > 1e-3).all())
    assert np.array_equal(dropout_views(encoder, sentences, seed=3)[0], first)
    assert not np.array_equal(dropout_views(encoder, sentences, seed=4)[0], first)
    set_dropout(encoder.model, 0.0)
    encoder.model.train()
    one, two = dropout_views(encoder, sentences, seed=3)
    assert encoder.model.training
    encoded = encoder.model.eval() and encoder.encode(sentences)
    assert one == pytest.approx(encoded / np.linalg.norm(encoded, axis=1, keepdims=True), abs=1e-5)
    assert one == pytest.approx(two, abs=1e-6)
    with torch.no_grad():
        encoder.model.encoder.layer[-1].output.LayerNorm.bias.fill_(torch.nan)
    with pytest.raises(BenchError, match="not finite"):
        dropout_views(encoder, sentences, seed=3)


def train_paradigm(given: StageContext) -> dict[str, Any]:
    method = discover().get("paradigm")
    assert isinstance(method, TrainedMethod)
    return method.stages(options("paradigm"))[0].train(given)


def context(tiny_bert: Path, corpus: Path, out: Path, seen: list[Any]) -> StageContext:
    def dev_score(encoder: Any) -> float:
        seen.append(encoder.encode(["a book"]))
        return len(seen) / 10

    config = options("paradigm", steps=5, eval_every=2, batch_size=8, lr=1e-3)
    out.mkdir()
    return StageContext(
        config=config, seed=1, role="paradigm", model=tiny_bert, device="cpu",
        sentences=corpus.read_text().split("\n")[:-1], corpus="c", dev_score=dev_score, inputs={}, out=out,
    )  # fmt: skip


def test_watching_does_not_change_a_training(tiny_bert: Path, corpus: Path, tmp_path: Path) -> None:
    made = context(tiny_bert, corpus, tmp_path / "watched", [])
    facts, held, found = watch_training(train_paradigm, made, share=0.4, batch=8)
    assert [shot.step for shot in found] == [0, 2, 4]
    assert facts["dev_curve"] == [[2, 0.1], [4, 0.2]]
    fit = [line for line in made.sentences if line not in held]
    assert (len(held), len(fit)) == (24, 36)
    assert found[0] == take_snapshot(0, *dropout_views(TransformerEncoder(tiny_bert), held, 1), batch=8)
    assert len({shot.positive_cosine for shot in found}) == 3
    # the same training without measuring
    plain = context(tiny_bert, corpus, tmp_path / "plain", [])
    train_paradigm(replace(plain, sentences=fit, corpus="c/without 0.4"))
    for name in ("selected", "last"):
        one, two = (folder / name / "model.safetensors" for folder in (made.out, plain.out))
        assert one.read_bytes() == two.read_bytes()
    selected = TransformerEncoder(made.out / "selected")
    at_end = take_snapshot(4, *dropout_views(selected, held, 1), batch=8)
    assert at_end.positive_cosine == pytest.approx(found[2].positive_cosine, abs=1e-6)

    def train(given: StageContext) -> dict[str, Any]:  # translations are held out with their sentences
        assert given.partners == [f"{text} again" for text in fit]
        return {"seen": True}

    paired = replace(made, partners=[f"{text} again" for text in made.sentences])
    assert watch_training(train, paired, share=0.4, batch=8)[0] == {"seen": True}


def test_watching_refuses(tiny_bert: Path, corpus: Path, tmp_path: Path) -> None:
    made = context(tiny_bert, corpus, tmp_path / "out", [])

    def scored(encoder: Any) -> Callable[[StageContext], dict[str, Any]]:
        return lambda given: {"score": given.dev_score(encoder)}

    few: dict[str, Any] = {"share": 0.5, "most": 9, "batch": 10}
    refused: list[tuple[Callable[[StageContext], dict[str, Any]], dict[str, Any], str]] = [
        (train_paradigm, {"batch": 8}, "6 sentences are held out.* batch of 8"),
        (train_paradigm, few, "9 sentences are held out.* batch of 10"),
        (scored(object()), {"share": 0.5, "batch": 8}, "one transformer"),
        (scored(TransformerEncoder(tiny_bert, "avg")), {"share": 0.5, "batch": 8}, "'avg'"),
    ]
    for train, options_of_watching, fact in refused:
        with pytest.raises(BenchError, match=fact):
            watch_training(train, made, **options_of_watching)


def test_embedding_figures() -> None:
    first, second = vectors(40)
    got = embedding_figures(first, second, strengths=(0.5,), taus=(0.05, 0.5), m=0.1, batch=20)
    positive, negative = pair_cosines(batch_cosines(first, second, 20))
    for name, values in (("positive", positive), ("negative", negative)):
        assert got["density"][name] == cosine_density(values)[1].tolist()
    for form in ("paper", "released"):
        shares = hardest_shares(first, second, (0.05, 0.5), form=form, m=0.1, batch=20)
        assert got["hardest_share"][form] == shares.tolist()
    bounds = required_ratios(hardest_negatives(first, second, 0.1, 20), 0.5)
    (lemma,) = got["lemma"]
    assert (lemma["lambda"], lemma["kept"], lemma["imaginary"]) == (0.5, len(bounds.real), bounds.imaginary)
    assert lemma["lower"] == bounds.lower.tolist()
    assert lemma["nearer"]["1.5"] == int(((bounds.lower < 1.5) & (bounds.upper > 1.5)).sum())
    none = embedding_figures(first, second, m=-2.0, batch=20)
    assert none["hardest_share"]["released"] is None
    assert none["lemma"][0]["kept"] == 0
    json.dumps(none, allow_nan=False)


def run(*arguments: str) -> None:
    command.main([*arguments], standalone_mode=False)


@pytest.mark.long
def test_the_command_writes_the_sampled_figures(tmp_path: Path) -> None:
    run("--out", str(tmp_path))
    grid = list(csv.DictReader((tmp_path / "gradient-grid.csv").open()))
    assert len(grid) == 10_000
    columns: dict[str, Any] = {f"gd_{loss}": values for loss, values in dissipation_grid(seed=1).items()}
    columns |= {"ratio_met_sampled": ratio_grid(seed=1)["met"], "shaded_arccon": shade_cells("arccon")}
    for number in (0, 1234, 9999):
        i, j = divmod(number, 100)
        row = {name: float(value) for name, value in grid[number].items()}
        means = positive_means()[i], negative_means()[j]
        assert (row["mu_pos"], row["mu_neg"]) == pytest.approx(means, rel=1e-5)
        for name, values in columns.items():
            assert row[name] == pytest.approx(float(values[i, j]), rel=1e-5)
    shares = list(csv.DictReader((tmp_path / "gradient-hardest.csv").open()))
    assert len(shares) == 600
    assert float(shares[250]["share"]) == pytest.approx(sampled_hardest_share(seed=1)[2, 50], rel=1e-5)


@pytest.fixture
def where(tiny_bert: Path, tmp_path: Path) -> tuple[str, ...]:
    """A tiny backbone and a text of 1,400 lines."""
    words = sorted({sentence for pair in make_toy_task().all_pairs() for sentence in pair})[:40]
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{a} {b}\n" for a in words for b in words[:35]))
    given = ("--out", str(tmp_path / "out"), "--suite", "toy", "--backbone", str(tiny_bert))
    return (*given, "--corpus", str(text), "--dev", "toy", "--results", str(tmp_path / "results"))


STEPS = "steps=4,eval_every=2,batch_size=8"


@pytest.mark.parametrize(
    ("method", "most", "measured"),
    [
        (f"paradigm[{STEPS},lr=1e-3]", 2560, 140),
        (f"unsee_barlow[{STEPS},select=best_of_four,pooling=cls]", 128, 128),
    ],
)
def test_measured_run(method: str, most: int, measured: int, where: tuple[str, ...], tmp_path: Path) -> None:
    run(method, "--most", str(most), *where)
    (folder,) = (tmp_path / "out").iterdir()
    assert folder.name.startswith(method.split("[")[0])
    assert [path.name for path in folder.iterdir()] == ["gradient.json"]  # no file that looks like a record
    found = json.loads((folder / "gradient.json").read_text())
    assert (found["seed"], found["sentences"]) == (1, measured)
    assert [shot["step"] for shot in found["steps"]] == [0, 2, 4]
    assert [step for step, _ in found["dev_curve"]] == [2, 4]
    assert found["before"]["density"] != found["after"]["density"]
    assert not (tmp_path / "results").exists()  # what was trained on a part of the text is nobody's stage
    with pytest.raises(InputError, match="the folder already exists"):
        run(method, *where)


def test_several_methods_share_figures(where: tuple[str, ...], tmp_path: Path) -> None:
    """All are checked before one trains, and each is measured as alone."""
    one, other = f"paradigm[{STEPS},lr=1e-3]", f"paradigm[{STEPS},lr=1e-3,gd=none]"
    for wrong in ((one, one), (one, "untrained")):
        with pytest.raises(InputError):
            run(*wrong, *where)
    assert list((tmp_path / "out").glob("*")) == []
    run(one, other, "--most", "128", *where)
    found = {figure.name: figure for figure in gradient_figures(tmp_path / "out")}
    joint = {name.removeprefix("gradient-runs-") for name in found if name.startswith("gradient-runs-")}
    assert joint >= {"density-negative", "density-positive", "hardest", "cosine"}
    cosines = found["gradient-runs-cosine"]
    paths = sorted((tmp_path / "out").glob("*/gradient.json"))
    for line, path in zip(cosines.series, paths, strict=True):
        data = json.loads(path.read_text())
        assert line.name == f"{data['method']}, seed 1"
        assert line.y == tuple(shot["positive_cosine"] for shot in data["steps"])
    originals = [line.name for line in found["gradient-runs-hardest"].series]
    assert originals == ["before training", *(line.name for line in cosines.series)]
    apart = tmp_path / "apart"  # runs of other folders have figures of their own
    for place, path in zip(("a", "b"), paths, strict=True):
        (apart / place).mkdir(parents=True)
        path.parent.rename(apart / place / path.parent.name)
    assert not any("runs" in figure.name for figure in gradient_figures(apart))


def test_lemmas_bounds_are_shares_of_the_kept_anchors(tmp_path: Path) -> None:
    side = {
        "density": {"positive": [0.5] * 4, "negative": [0.5] * 4},
        "hardest_share": {"taus": [0.05], "paper": [0.5], "released": None},
    }
    lemma = [{"lambda": 0.5, "kept": 4, "imaginary": 1, "nearer": {}, "lower": [0.95, 1.15, 1.12]}]
    none = [{"lambda": 0.5, "kept": 0, "imaginary": 0, "nearer": {}, "lower": []}]
    step: dict[str, Any] = {"step": 0, "arccon_ratio": None, "met_ratio": None, "positive_cosine": 0.9}
    step |= {"positive_angle": [0.4, 0.1], "negative_angle": [1.5, 0.2]}
    data: dict[str, Any] = {"method": "mhe", "seed": 1, "sentences": 9, "steps": [step]}
    data |= {"before": {**side, "lemma": none}, "after": {**side, "lemma": lemma}}
    (tmp_path / "mhe").mkdir()
    (tmp_path / "mhe" / "gradient.json").write_text(json.dumps(data))
    found = {figure.name: figure for figure in gradient_figures(tmp_path)}
    assert "gradient-mhe-lemma-before" not in found
    (line,) = found["gradient-mhe-lemma-after"].series
    at = {round(x, 2): y for x, y in zip(line.x, line.y, strict=True) if y}
    assert at == {0.95: 0.25, 1.15: 0.5}
    assert "gradient-mhe-ratio" not in found


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ("untrained", "one transformer in one stage"),
        ("tncse[rtt=none]", "one transformer in one stage"),
        ("infonce[pooler=avg]", "pooler=avg"),
        ("crop[pooling=cls]", "train_pooling=avg"),
        ("sncse", "pooling=mask and a prompt"),
    ],
)
def test_only_cls_is_measured(wrong: str, fact: str, where: tuple[str, ...], tmp_path: Path) -> None:
    untrained = wrong == "untrained"  # it reads no text
    with pytest.raises(InputError) as caught:
        run(
            *([] if untrained else [f"paradigm[{STEPS}]"]),
            wrong,
            *(where[:6] + where[10:] if untrained else where),
        )
    assert not missing_facts(caught.value, wrong.split(",")[0], fact)
    assert list((tmp_path / "out").glob("*")) == []


def test_a_folder_is_measured_by_one_process(
    where: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second command neither removes the first one's training nor writes into its files."""
    method, seen = f"paradigm[{STEPS},lr=1e-3]", list[str]()
    watch = held_out.watch_training

    def watch_beside(train: Any, given: StageContext, **options: Any) -> Any:
        watched = watch(train, given, **options)
        with pytest.raises(InputError, match="another process is making this") as caught:
            run(method, "--most", "128", *where)
        seen.append(str(caught.value))
        return watched

    monkeypatch.setattr(held_out, "watch_training", watch_beside)
    run(method, "--most", "128", *where)
    assert len(seen) == 1
    assert "name another output" in seen[0]
    (folder,) = (tmp_path / "out").iterdir()
    assert [path.name for path in folder.iterdir()] == ["gradient.json"]


@pytest.mark.parametrize("lacks", [OSError(errno.ENOTSUP, "no locks"), NotImplementedError("no locks")])
def test_without_locks_the_first_finished_measurement_stays(
    where: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: Exception
) -> None:
    def refuse(lock: Any, **_: object) -> None:
        raise lacks

    watch = held_out.watch_training

    def watch_beside(train: Any, given: StageContext, **options: Any) -> Any:
        monkeypatch.setattr(held_out, "watch_training", watch)
        run(method, "--most", "128", *where)
        return watch(train, given, **options)

    method = f"paradigm[{STEPS},lr=1e-3]"
    monkeypatch.setattr(FileLock, "acquire", refuse)
    monkeypatch.setattr(held_out, "watch_training", watch_beside)
    with pytest.raises(InputError, match="can't be written"):
        run(method, "--most", "128", *where)
    (folder,) = (tmp_path / "out").iterdir()
    assert [path.name for path in folder.iterdir()] == ["gradient.json"]


def test_sampled_figures_are_written_by_one_process(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / f".{SAMPLED}.lock")
    with lock, pytest.raises(InputError, match="another process is making this"):
        write_sampled(tmp_path, 1)
    assert not (tmp_path / SAMPLED).exists()
