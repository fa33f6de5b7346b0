"""Figures of probes against independent computations, cost, overlap with a training text."""

from __future__ import annotations

import importlib
import lzma
import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.distance import pdist
from scipy.stats import norm
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

from bench.data.data_source import DataSource
from bench.data.suites import load_suite
from bench.data.tasks import PairSubset, PairTask
from bench.errors import BenchError, DataError, InputError
from bench.nn.backbone import TransformerEncoder
from bench.nn.observer import ObservedTower
from bench.probes import cost as module
from bench.probes.alignment import alignment, positive_pairs
from bench.probes.cost import count_gmacs, count_parameters, encoder_cost, measure_speed
from bench.probes.density import compare_densities, density_overlap, gold_groups
from bench.probes.isotropy import isotropy, spectrum
from bench.probes.training_overlap import (
    CleanScore,
    audit_overlap,
    clean_score,
    read_training_lines,
    sentence_key,
    word_runs,
)
from bench.probes.uniformity import uniformity
from bench.stats.clustered_tests import spearman_influence
from bench.stats.item_statistics import spearman_interval
from tests.support.messages import check_error

RNG = np.random.default_rng(0)


def vectors(n: int, d: int = 6) -> NDArray[np.float32]:
    return np.random.default_rng(n).normal(0.3, 1.0, (n, d)).astype(np.float32)


def units(x: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    return np.stack([row / math.sqrt(sum(value * value for value in row)) for row in wide])


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_alignment_pair_by_pair(alpha: float) -> None:
    x, y = vectors(20), vectors(21)[:20]
    total = sum(math.dist(a, b) ** alpha for a, b in zip(units(x).tolist(), units(y).tolist(), strict=True))
    assert alignment(x, y, alpha) == pytest.approx(total / 20, rel=1e-12)


def test_known_alignment_and_uniformity() -> None:
    x = np.array([[1.0, 0.0], [3.0, 0.0]])
    assert alignment(x, 5 * x) == 0
    assert alignment(x, x[:, ::-1]) == pytest.approx(2)
    assert alignment(x, -x) == pytest.approx(4)
    assert uniformity(np.ones((5, 3))) == pytest.approx(0, abs=1e-12)
    assert uniformity(np.array([[1.0, 0], [-2, 0]])) == pytest.approx(-8)
    assert uniformity(np.array([[1.0, 0], [0, 2]])) == pytest.approx(-4)


@pytest.mark.parametrize("n", [2, 3, 1024, 1025, 2100])  # within a block, at its end, over several
@pytest.mark.parametrize("t", [2.0, 0.5])
def test_uniformity_against_pdist(n: int, t: float) -> None:
    x = vectors(n)
    expected = math.log(np.exp(-t * pdist(units(x), "sqeuclidean")).mean())
    assert uniformity(x, t) == pytest.approx(expected, abs=1e-12)


def test_positive_pairs_by_threshold() -> None:
    one = PairSubset("a", ("a", "b", "c"), ("d", "e", "f"), (4.0, 3.9, 5.0))
    task = PairTask("T", (one, PairSubset("b", ("g",), ("h",), (4.0,))))
    assert positive_pairs([task]) == (["a", "c", "g"], ["d", "f", "h"])
    assert positive_pairs([task], strict=True) == (["c"], ["f"])
    assert positive_pairs([task, task], 5.0) == (["c", "c"], ["f", "f"])


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_isotropy_of_identity_and_of_rank_one(scale: float) -> None:
    even = isotropy(scale * np.eye(8))
    assert even["effective_rank"] == pytest.approx(8)
    assert even["mean_cosine"] == pytest.approx(0, abs=1e-12)
    assert even["cumulative"] == pytest.approx({"1": 1 / 8, "2": 2 / 8, "4": 4 / 8, "8": 1})
    line = isotropy(scale * np.outer([1.0, 2.0, 3.0, 5.0], [1.0, -1.0, 0.5]))
    assert line["effective_rank"] == pytest.approx(1)
    assert line["mean_cosine"] == pytest.approx(1)
    assert line["deviation"] == pytest.approx(0, abs=1e-7)


def test_isotropy_against_the_gram_matrix_and_all_pairs() -> None:
    x = vectors(40)
    found = isotropy(x)
    singular = np.sqrt(np.linalg.eigvalsh(x.astype(np.float64).T @ x)[::-1])
    shares = singular / singular.sum()
    assert found["spectrum"] == pytest.approx(shares.tolist())
    assert found["effective_rank"] == pytest.approx(math.prod(share**-share for share in shares))
    assert found["mean_cosine"] == pytest.approx(1 - pdist(x, "cosine").mean(), abs=1e-6)
    assert found["deviation"] == pytest.approx(np.sqrt(units(x).var(0)).mean() * math.sqrt(6))
    assert found["dim"] == 6
    assert sum(found["spectrum"]) == pytest.approx(1)
    assert spectrum(x[:3]).shape == (3,)


def test_gold_groups_of_width_one_and_of_like_size() -> None:
    gold = np.array([0.0, 0.9, 1.0, 2.5, 3.999, 4.0, 5.0, 4.2])
    values = np.arange(8.0)
    groups = gold_groups(values, gold)
    assert [(group.low, group.high) for group in groups] == [(low, low + 1) for low in range(5)]
    assert [group.similarities.tolist() for group in groups] == [[0, 1], [2], [3], [4], [5, 6, 7]]
    many = RNG.uniform(0, 5, 500)
    assert [len(group.similarities) for group in gold_groups(many, many, "quantiles")] == [100] * 5
    tied = np.repeat([1.0, 2.0, 5.0], [60, 20, 20])
    groups = gold_groups(tied, tied, "quantiles")
    assert [(g.low, g.high) for g in groups] == [
        pytest.approx(ends) for ends in ((1, 1.4), (1.4, 2.6), (2.6, 5))
    ]
    assert [len(g.similarities) for g in groups] == [60, 20, 20]
    (only,) = gold_groups(values[:3], np.full(3, 2.0))
    assert (only.low, only.high) == (2, 3)
    (only,) = gold_groups(values[:3], np.full(3, 2.0), "quantiles")
    assert len(only.similarities) == 3


def kernel_density(sample: NDArray[np.float64], at: float) -> float:
    """Scott's rule and the Gaussian kernel, written out."""
    n = len(sample)
    mean = sum(sample.tolist()) / n
    width = math.sqrt(sum((x - mean) ** 2 for x in sample.tolist()) / (n - 1)) / math.pow(n, 0.2)
    total = sum(math.exp(-(((at - x) / width) ** 2) / 2) for x in sample)
    return total / (n * width * math.sqrt(2 * math.pi))


def test_overlap_of_two_densities() -> None:
    first, second = RNG.normal(0.2, 0.1, 30), RNG.normal(0.35, 0.2, 20)
    grid = np.linspace(-1.5, 2, 1001)
    smaller = [min(kernel_density(first, x), kernel_density(second, x)) for x in grid]
    assert density_overlap(first, second) == pytest.approx(sum(smaller) * (grid[1] - grid[0]), abs=1e-5)
    assert density_overlap(first, first) == pytest.approx(1, abs=1e-5)
    assert density_overlap(first, first + 10) == pytest.approx(0, abs=1e-5)
    assert density_overlap(first, second) == pytest.approx(density_overlap(second, first))
    wide = RNG.normal(0, 1, 20_000), RNG.normal(1, 1, 20_000)
    assert density_overlap(*wide) == pytest.approx(2 * norm.cdf(-0.5), abs=0.02)


def test_density_of_neighbouring_groups() -> None:
    gold = np.repeat([0.5, 1.5, 2.5, 4.5], [40, 40, 3, 40])
    values = np.concatenate([RNG.normal(mean, 0.05, 40) for mean in (0.1, 0.2, 0.7)])
    values = np.insert(values, 80, [0.3, 0.4, 0.5])
    found = compare_densities(values, gold)
    assert found["overlaps"] == [pytest.approx(density_overlap(values[:40], values[40:80])), None, None]
    assert found["value"] == found["overlaps"][0]
    assert [group["pairs"] for group in found["groups"]] == [40, 40, 3, 40]
    assert found["groups"][0]["mean"] == pytest.approx(values[:40].mean())
    assert found["groups"][0]["sd"] == pytest.approx(values[:40].std(ddof=1))
    assert [curve is None for curve in found["curves"]] == [False, False, True, False]
    assert found["curves"][0][55] == pytest.approx(kernel_density(values[:40], 0.1))
    assert "width 1" in found["convention"]


def test_undefined_figures_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, flat = vectors(4), np.full(20, 0.7)
    zero = x.copy()
    zero[2] = 0
    gold = np.repeat([0.5, 1.5], 10)
    calls: dict[Any, tuple[str, ...]] = {
        lambda: alignment(x[:0], x[:0]): ("no pair", "alignment"),
        lambda: alignment(x, zero): ("vector 3 of 4", "length 0"),
        lambda: uniformity(zero): ("vector 3 of 4", "length 0"),
        lambda: uniformity(x[:1]): ("uniformity", "two sentences", "1"),
        lambda: isotropy(x[:1]): ("isotropy", "two sentences", "1"),
        lambda: isotropy(0 * x): ("vectors are 0", "no spectrum"),
        lambda: gold_groups(flat[:0], flat[:0]): ("no pair", "gold score"),
        lambda: compare_densities(flat, gold): ("2 gold group(s)", "too few pairs", "all alike"),
    }
    for call, facts in calls.items():
        check_error(call, *facts)
    monkeypatch.setattr("bench.probes.uniformity.MOST", 3)
    with pytest.raises(InputError, match=r"uniformity of 4 .*at most 3"):
        uniformity(x)
    for bad in (
        lambda: alignment(x, x[:2]),
        lambda: alignment(x, x, 0),
        lambda: uniformity(x, 0),
        lambda: uniformity(x, 101),
        lambda: gold_groups(flat, flat, "x"),
        lambda: gold_groups(flat, flat[:3]),
    ):
        with pytest.raises(ValueError, match=r"vectors|t=|by="):
            bad()


def small(**other: Any) -> BertModel:
    shape = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    return BertModel(BertConfig(**{**shape, "vocab_size": 60, **other}))


def test_bert_base_and_a_twin_as_the_papers_have_them() -> None:
    with torch.device("meta"):  # its shape alone: thop reads no value
        towers = [ObservedTower(BertModel(BertConfig()), None, "cls", True) for _ in range(2)]
    assert encoder_cost(towers[:1])["gmac"] == pytest.approx(5.441, abs=5e-4)
    twin = encoder_cost(towers)
    assert twin["gmac"] == pytest.approx(10.88, abs=5e-3)
    assert twin["towers"] == [twin["gmac"] / 2] * 2
    assert (twin["parameters"], twin["length"]) == (2 * 109_482_240, 64)


@pytest.mark.parametrize("length", [5, 64])
@pytest.mark.parametrize("pooler", [True, False])
def test_gmacs_against_the_closed_formula(length: int, pooler: bool) -> None:
    model = small()
    if not pooler:
        model.pooler = None
    layers, h, i = 2, 32, 48
    dense = layers * (4 * h * h + 2 * h * i) * length + pooler * h * h
    norms = 4 * (2 * layers + 1) * length * h
    assert count_gmacs(model, length) == pytest.approx((dense + norms) / 1e9, rel=1e-12)


def test_counting_leaves_the_model_as_it_was() -> None:
    model = small().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = count_gmacs(model)
    assert count_gmacs(model) == first  # nothing is counted on top
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert model.training
    assert not any(m._forward_hooks for m in model.modules())


def test_gmacs_of_another_architecture() -> None:
    config = DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=60)
    norms = 4 * 5 * 64 * 32
    dense = 2 * (4 * 32 * 32 + 2 * 32 * 48) * 64
    assert count_gmacs(DistilBertModel(config)) == pytest.approx((dense + norms) / 1e9)
    with pytest.raises(BenchError, match="40 tokens at most, not 64"):
        count_gmacs(small(max_position_embeddings=40))


def test_shared_parameters_count_once() -> None:
    model = small()
    one = sum(weight.numel() for weight in model.parameters())
    assert count_parameters([model, model]) == one
    assert count_parameters([model, small()]) == 2 * one


def test_the_other_thop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = lambda model, inputs, stride=1: pytest.fail("called")  # noqa: E731
    monkeypatch.setattr(importlib.import_module("thop"), "profile", profile)
    with pytest.raises(InputError) as caught:
        count_gmacs(small())
    assert "ultralytics-thop" in caught.value.what
    assert caught.value.hint == "pip uninstall ultralytics-thop thop && pip install thop"


def test_sentences_a_second_by_the_clock(tiny_bert: Path) -> None:
    times: Iterator[float] = iter([10.0, 12.5])
    found = measure_speed(TransformerEncoder(tiny_bert), ["two children"] * 5, lambda: next(times))
    assert (found["sentences"], found["sentences_per_second"]) == (5, 2.0)
    assert found["peak_memory_mb"] > 50
    assert found["peak_of"] in ("resident set", "process so far", "cuda tensors")


def test_peak_memory_sees_what_was_held_meanwhile() -> None:
    def peak(megabytes: int) -> float:
        read, _ = module._peak_meter()
        held = mmap.mmap(-1, megabytes * 2**20)  # not from the heap, which may have as much to give
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1  # written to, so it is resident
        held.close()
        return (read() or 0) / 2**20

    assert peak(300) - peak(1) > 250


def test_without_a_resettable_peak_the_process_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=PermissionError(1, "not permitted")))
    read, what = module._peak_meter()
    assert what == "process so far"
    assert (read() or 0) > 50 * 2**20


FIRST = ("A man sings.", "One two three four five six seven eight nine", "Short one", "...")
SUBSET = PairSubset("x", FIRST, ("a man sings", "other", "b", "c"), (1.0, 2.0, 3.0, 4.0))
TASK = PairTask("T", (SUBSET,))


@pytest.mark.parametrize(
    ("text", "exact", "key", "near"),
    [
        ("nothing of it", (8, 0, 4), (7, 0, 4), (7, 0, 4)),
        ("A man sings.", (8, 1, 3), (7, 1, 3), (7, 1, 3)),
        ("a MAN... sings", (8, 0, 4), (7, 1, 3), (7, 1, 3)),
        ("zero, ONE two three four five six seven eight ten", (8, 0, 4), (7, 0, 4), (7, 1, 3)),
        ("one two three four five six seven", (8, 0, 4), (7, 0, 4), (7, 0, 4)),
        ("!!!", (8, 0, 4), (7, 0, 4), (7, 0, 4)),  # texts without letters differ
        ("...", (8, 1, 3), (7, 1, 3), (7, 1, 3)),
    ],
)
def test_levels_by_hand(text: str, exact: object, key: object, near: object) -> None:
    overlaps = audit_overlap([text], [TASK])
    counts = {o.level: (o.sentences, o.touched_sentences, o.clean_pairs) for o in overlaps}
    assert counts == {"exact": exact, "key": key, "near": near}


def test_keys_and_runs() -> None:
    assert sentence_key("It's  4 O'clock, ÄÖ!") == "its4oclock"
    assert list(word_runs("a b c d e f g")) == []
    assert list(word_runs("a b, C d e f g h i")) == ["a b c d e f g h", "b c d e f g h i"]
    # text without Latin letters is touched at every level
    task = PairTask("T", (PairSubset("all", ("你好", "再见"), ("早上", "晚上"), (1.0, 4.0)),))
    assert [found.clean_pairs for found in audit_overlap(["你好"], [task])] == [1, 1, 1]


def test_training_text(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.xz"
    plain.write_bytes(b"a  b \n\nc\r\nd")
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    assert list(read_training_lines(plain)) == list(read_training_lines(packed)) == ["a b", "c", "d"]
    plain.write_bytes(b"a\nb\n\xff\n")
    with pytest.raises(DataError, match=r"a.txt:3: .*utf-8"):
        list(read_training_lines(plain))
    packed.write_bytes(b"no xz")
    for path in (packed, tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match="can't be read"):
            list(read_training_lines(path))


def test_clean_scores_and_none_under_fifty_pairs() -> None:
    rng = np.random.default_rng(1)
    gold = rng.normal(size=120)
    first = tuple(f"sentence {i}" for i in range(120))
    task = PairTask("T", (PairSubset("x", first, tuple(f"other {i}" for i in range(120)), tuple(gold)),))
    predictions = (gold + rng.normal(size=120)).astype(np.float32)
    for touched, n in ((70, 50), (71, 49), (0, 120)):
        overlap = next(o for o in audit_overlap(first[:touched], [task]) if o.level == "exact")
        score = clean_score(task, overlap, predictions)
        assert score.n == n
        if n < 50:
            assert (score.value, score.low, score.high) == (None, None, None)
        else:
            expected = stats.spearmanr(predictions[touched:], gold[touched:]).statistic
            assert score.value == pytest.approx(expected)
            assert (score.low, score.high) == spearman_interval(score.value or 0, n)


def test_clean_score_takes_clusters_of_clean_pairs() -> None:
    rng = np.random.default_rng(2)
    common = np.repeat(rng.normal(size=(2, 30)), 4, axis=1)
    gold, noise = common + 0.3 * rng.normal(size=(2, 120))
    predictions = (gold + noise).astype(np.float32)
    first = tuple(f"sentence {i}" for i in range(120))

    def score(second: tuple[str, ...]) -> CleanScore:
        task = PairTask("T", (PairSubset("x", first, second, tuple(gold)),))
        overlap = next(o for o in audit_overlap(first[:4], [task]) if o.level == "exact")
        return clean_score(task, overlap, predictions)

    single = score(tuple(f"other {i}" for i in range(120)))
    found = score(tuple(f"other {i // 4}" for i in range(120)))
    assert (found.n, found.value) == (single.n, single.value) == (116, single.value)
    assert single.value is not None
    assert found.value is not None
    influence = spearman_influence(predictions[4:], gold[4:])[0]
    sums = [sum(influence[i : i + 4]) for i in range(0, 116, 4)]
    ratio = sum(x * x for x in influence) / (29 / 28 * sum(x * x for x in sums))
    few = (stats.norm.ppf(0.975) / stats.t.ppf(0.975, 28)) ** 2
    n = round(116 * few * ratio)
    assert n < 60
    assert (found.low, found.high) == spearman_interval(found.value, n)
    one = score(("other",) * 120)
    assert (one.n, one.value, one.low, one.high) == (116, single.value, None, None)


def test_interval_by_hand_and_its_limits() -> None:
    low, high = spearman_interval(0.77, 1379)
    half = 1.959963984540054 * math.sqrt((1 + 0.77**2 / 2) / 1376)
    assert low == pytest.approx(math.tanh(math.atanh(0.77) - half), abs=1e-12)
    assert high == pytest.approx(math.tanh(math.atanh(0.77) + half), abs=1e-12)
    assert spearman_interval(-0.77, 1379) == pytest.approx((-high, -low))
    assert spearman_interval(1.0, 10) == (1.0, 1.0)
    for rho, n, level in ((0.5, 3, 0.95), (1.1, 10, 0.95), (0.5, 10, 1.0)):
        with pytest.raises(ValueError, match="rho="):
            spearman_interval(rho, n, level)


def test_interval_covers_the_truth_at_its_level() -> None:
    rng = np.random.default_rng(2)
    r, n, draws = 0.6, 100, 2000
    truth = 6 / math.pi * math.asin(r / 2)  # Spearman of a bivariate normal
    x, other = rng.normal(size=(draws, 2, n)).swapaxes(0, 1)
    y = r * x + math.sqrt(1 - r * r) * other
    ranks = [values.argsort(1).argsort(1) - (n - 1) / 2 for values in (x, y)]
    intervals = [spearman_interval(rho, n) for rho in 12 * (ranks[0] * ranks[1]).sum(1) / (n**3 - n)]
    assert 0.935 < sum(low <= truth <= high for low, high in intervals) / draws < 0.965


@pytest.mark.slow
@pytest.mark.data
def test_counts_on_the_real_data(data_dir: Path) -> None:
    _, tasks = load_suite("sts7", DataSource(data_dir))
    lines = read_training_lines(data_dir / "corpus" / "sick_unlabelled.txt")
    sick = {(o.task, o.level): o for o in audit_overlap(lines, tasks)}
    for level, touched in (
        ("exact", {"SICKR": 3743, "STS12": 0, "STSB": 0}),
        ("key", {"SICKR": 3742, "STS12": 269, "STSB": 118, "STS15": 10}),
    ):
        assert {task: sick[task, level].touched_sentences for task in touched} == touched
    assert (sick["SICKR", "exact"].clean_pairs, sick["SICKR", "key"].clean_pairs) == (116, 116)
    wiki = audit_overlap(read_training_lines(data_dir / "corpus" / "wiki.txt"), tasks)
    assert sum(o.touched_sentences for o in wiki if o.level == "exact") == 0
    near = {o.task: o.touched_sentences for o in wiki if o.level == "near" and o.touched_sentences}
    assert near == {"STS15": 1, "STS16": 2}
