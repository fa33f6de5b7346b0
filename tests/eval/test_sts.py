from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bench.baselines.word_overlap import WordOverlapScorer
from bench.data.tasks import PairSubset, PairTask
from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.eval.embeddings import compare_pairs, distinct_sentences, embed_sentences, stream_embeddings
from bench.eval.sts import predict_similarities, score_suite, score_task, spearman
from tests.support.encoders import FunctionEncoder
from tests.support.messages import check_error, missing_facts


def count_letters(sentences: Sequence[str]) -> list[list[int]]:
    return [[len(text), text.count("a")] for text in sentences]


def pair_task(name: str, first: Sequence[str], second: Sequence[str]) -> PairTask:
    gold = tuple(float(place) for place in range(len(first)))
    return PairTask(name, (PairSubset("x", tuple(first), tuple(second), gold),))


@given(st.lists(st.tuples(st.integers(-4, 4), st.floats(-5, 5)), min_size=2, max_size=30))
@settings(deadline=None)
def test_spearman_is_scipys(rows: list[tuple[int, float]]) -> None:
    x, y = np.asarray(rows, dtype=np.float64).T
    if len(set(x)) == 1 or len(set(y)) == 1:
        with pytest.raises(BenchError, match="undefined"):
            spearman(x, y)
    else:
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_float32_is_ranked_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of the input's type, as scipy gives them from 1.18 on, would lose digits."""
    rng = np.random.default_rng(0)
    x, y = rng.random(3000).astype(np.float32), rng.integers(0, 6, 3000).astype(np.float32)
    exact = stats.spearmanr(x.astype(np.float64), y.astype(np.float64)).statistic
    monkeypatch.setattr("bench.eval.sts.rankdata", lambda a: stats.rankdata(a).astype(a.dtype))
    assert spearman(x, y) == pytest.approx(exact, abs=1e-14)


@pytest.mark.parametrize(
    ("x", "y", "facts"),
    [
        ([1.0], [1.0], ("1 predictions", "1 gold scores")),
        ([1.0, 2.0], [1.0], ("2 predictions", "1 gold scores")),
        ([1.0, float("nan")], [1.0, 2.0], ("not finite",)),
        ([1.0, 1.0], [1.0, 2.0], ("all 2 predictions", "equal", "undefined")),
        ([1.0, 2.0], [3.0, 3.0], ("all 2 gold scores", "equal", "undefined", "expected", "differ")),
    ],
)
def test_undefined_correlations(x: list[float], y: list[float], facts: tuple[str, ...]) -> None:
    check_error(lambda: spearman(np.asarray(x), np.asarray(y)), *facts)


class BufferedScorer:
    def __init__(self, values: Sequence[float] = (0.5,)) -> None:
        self.facts: dict[str, str | int] = {}
        self.values, self.buffer = values, np.zeros(100, dtype=np.float32)

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
        self.buffer[: len(first)] = np.resize(np.asarray(self.values), len(first)) * len(first)
        return self.buffer[: len(first)]


def task_of(gold: Sequence[float], second: Sequence[float], files: str = "b.tsv") -> PairTask:
    """Two data sets of three pairs."""
    sides = ("a", "b", "c"), ("ab", "bb", "cab")
    news = PairSubset("news", *sides, tuple(gold), "a.tsv")
    return PairTask("STS", (news, PairSubset("forum", *sides, tuple(second), files)))


@pytest.mark.parametrize(
    ("golds", "files", "last", "where", "what"),
    [
        (((1, 1, 1), (1, 1, 1)), "b.tsv", 0.7, "STS (a.tsv, b.tsv)", "6 gold scores"),
        (((1, 2, 3), (1, 1, 1)), "b.tsv", 0.7, "STS, forum (b.tsv)", "3 gold scores"),
        (((1, 2, 3), (1, 2, 1)), "b.tsv", 0.9, "STS, forum (b.tsv)", "3 predictions"),
        (((1, 2, 3), (1, 2, 1)), "", 0.9, "STS, forum", "3 predictions"),
    ],
)
def test_undefined_correlations_are_placed(
    golds: Any, files: str, last: float, where: str, what: str
) -> None:
    predictions = np.array([0.1, 0.2, 0.3, 0.9, last, last], dtype=np.float32)
    with pytest.raises(BenchError) as caught:
        score_task(task_of(golds[0], golds[1], files), predictions)
    assert caught.value.where == where
    assert not missing_facts(caught.value, what, "equal", "undefined")
    assert (caught.value.expected is not None) == ("gold" in what)


@pytest.mark.parametrize(
    ("encoder", "collapsed"),
    [
        (FunctionEncoder(lambda texts: np.ones((len(texts), 2))), True),
        (FunctionEncoder(lambda texts: [[len(text), 0] for text in texts]), False),
        (BufferedScorer(), False),
    ],
)
def test_only_equal_vectors_are_a_collapsed_encoder(encoder: Any, collapsed: bool) -> None:
    task = task_of((1, 2, 3), (1, 2, 1))
    with pytest.raises(BenchError, match="correlation is undefined") as caught:
        score_suite([task], predict_similarities(encoder, [task]))
    assert ("collapsed" in str(caught.value)) == collapsed
    assert caught.value.where == (None if collapsed else "STS (a.tsv, b.tsv)")


def test_an_encoders_array_is_copied() -> None:
    """A plug-in may return a view of one buffer, which its next call writes to."""
    buffer = np.zeros((100, 2), dtype=np.float32)

    def fill(sentences: Sequence[str]) -> FloatArray:
        buffer[: len(sentences)] = count_letters(sentences)
        return buffer[: len(sentences)]

    encoder, plain = FunctionEncoder(fill), FunctionEncoder(count_letters)
    first, second = embed_sentences(encoder, ["a", "bb", "aaa"]), embed_sentences(encoder, ["bbbb", "aa"])
    np.testing.assert_array_equal(first.vectors, embed_sentences(plain, ["a", "bb", "aaa"]).vectors)
    np.testing.assert_array_equal(second.vectors, embed_sentences(plain, ["bbbb", "aa"]).vectors)
    texts = ["a", "bb", "aaa", "bbbb", "aa"]
    blocks = list(stream_embeddings(encoder, texts, block=2))
    np.testing.assert_array_equal(np.concatenate(blocks), embed_sentences(plain, texts).vectors)

    tasks = [pair_task("A", "ab", "bc"), pair_task("B", "abd", "bce")]
    found = predict_similarities(BufferedScorer((1, 2, 3)), tasks)
    assert [values.tolist() for values in found.values()] == [[2, 4], [3, 6, 9]]


def test_cosine_by_hand_and_of_a_zero_vector() -> None:
    table = {"a": [3, 4], "b": [4, 3], "c": [-3, -4], "z": [0, 0]}
    encoder = FunctionEncoder(lambda texts: [table[text] for text in texts])
    cosine = embed_sentences(encoder, "abcz").cosine(["a", "a", "a", "z"], ["a", "b", "c", "a"])
    np.testing.assert_allclose(cosine, [1, 0.96, -1, 0], atol=1e-12)


def test_every_distinct_sentence_is_encoded_once_over_all_tasks() -> None:
    encoder = FunctionEncoder(count_letters)
    tasks = [pair_task("A", ("aa", "b"), ("b", "ccc")), pair_task("B", ("b", "aa"), ("dddd", "aa"))]
    predictions = predict_similarities(encoder, tasks)
    assert encoder.asked == [["aa", "b", "ccc", "dddd"]]
    assert {name: values.shape for name, values in predictions.items()} == {"A": (2,), "B": (2,)}
    assert distinct_sentences(["b", "a", "b"]) == ["b", "a"]


def test_embeddings_must_be_finite_and_of_the_promised_shape() -> None:
    with pytest.raises(BenchError, match="2 of 2 sentences") as caught:
        embed_sentences(FunctionEncoder(lambda texts: np.full((len(texts), 2), np.nan)), ["a", "b"])
    assert not missing_facts(caught.value.where, "sentence 1", "first")
    with pytest.raises(BenchError, match=r"float32 \(1, 2\)") as caught:
        embed_sentences(FunctionEncoder(count_letters, dim=3), ["a"])
    assert caught.value.expected == "float32 (1, 3)"


def test_an_encoder_may_sort_its_list() -> None:
    def count_and_sort(sentences: Sequence[str]) -> list[list[int]]:
        rows = count_letters(sentences)
        sentences.sort(key=len)  # type: ignore[attr-defined]
        return rows

    found = embed_sentences(FunctionEncoder(count_and_sort), ["ccc", "aa", "b"])
    assert (list(found.rows), found.vectors[:, 0].tolist()) == (["ccc", "aa", "b"], [3, 2, 1])


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        (np.zeros(2), ("scorer", "float64 (2,)", "expected float32 (2,)")),
        (np.zeros((2, 1), np.float32), ("float32 (2, 1)", "expected")),
        ([0.5, 1.0], ("scorer", "a list", "expected")),
        (None, ("a NoneType",)),
        (np.array([0, np.inf], np.float32), ("pair 2", "first", "1 of 2 pairs")),
    ],
)
def test_unusable_similarities_are_refused(answer: object, facts: tuple[str, ...]) -> None:
    scorer: Any = SimpleNamespace(score_pairs=lambda *_: answer)
    check_error(lambda: compare_pairs(scorer, ["aa", "b"], ["b", "ccc"]), *facts)


def test_all_mean_and_weighted_mean() -> None:
    rng = np.random.default_rng(0)
    sizes = (5, 9, 4)
    gold = [rng.normal(size=n) for n in sizes]
    subsets = [PairSubset(f"s{i}", ("x",) * n, ("y",) * n, tuple(gold[i])) for i, n in enumerate(sizes)]
    task = PairTask("T", tuple(subsets))
    predictions = rng.normal(size=18).astype(np.float32)
    scores = {s.subset: s for s in score_task(task, predictions)}
    parts = np.split(predictions, [5, 14])
    expected = [stats.spearmanr(p, g).statistic for p, g in zip(parts, gold, strict=True)]
    assert scores["all"].value == pytest.approx(stats.spearmanr(predictions, np.concatenate(gold)).statistic)
    assert [scores[f"s{i}"].value for i in range(3)] == pytest.approx(expected)
    assert scores["mean"].value == pytest.approx(sum(expected) / 3)
    assert scores["wmean"].value == pytest.approx(np.dot(expected, sizes) / 18)
    assert [scores[name].n for name in ("all", "s1", "mean")] == [18, 9, 18]
    with pytest.raises(BenchError, match="T: 17 predictions for 18"):
        score_task(task, predictions[:17])


def test_the_average_is_of_unrounded_values_and_one_subset_has_no_mean() -> None:
    golds = {"A": (1.0, 2.0, 3.0), "B": (2.0, 1.0, 3.0)}
    tasks = [PairTask(n, (PairSubset("test", tuple("abc"), tuple("def"), g),)) for n, g in golds.items()]
    scores = score_suite(tasks, {name: np.array([1, 2, 3], dtype=np.float32) for name in "AB"})
    assert [(s.task, s.subset, s.value, s.n) for s in scores] == [
        *(("A", "all", 1.0, 3), ("B", "all", 0.5, 3), ("avg", "all", 0.75, 2))
    ]


def test_word_overlap_by_hand() -> None:
    scores = WordOverlapScorer().score_pairs(
        ["The cat, the CAT!", "a b c d", "", "...", "straße 7"], ["cat", "d x", "a", "...", "7 Straße"]
    )
    np.testing.assert_allclose(scores, [1 / np.sqrt(2), 1 / np.sqrt(8), 0, 0, 1], rtol=1e-6)
    assert scores.dtype == np.float32
    with pytest.raises(BenchError, match="2 first sentences and 1 second"):
        WordOverlapScorer().score_pairs(["a", "b"], ["a"])
