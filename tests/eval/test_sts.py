from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bench.baselines.word_overlap import WordOverlapScorer
from bench.data.tasks import PairSubset, PairTask
from bench.encoder import FloatArray, Progress
from bench.errors import BenchError
from bench.eval.embeddings import distinct_sentences, embed_sentences, stream_embeddings
from bench.eval.sts import predict_similarities, score_suite, score_task, spearman


class Lengths:
    """Two numbers of a sentence as its vector; keeps what it was asked."""

    def __init__(self, bad: float | None = None, dim: int = 2) -> None:
        self.dim, self.bad, self.asked = dim, bad, []  # type: ignore[var-annotated]
        self.facts: dict[str, str | int] = {}

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        self.asked += list(sentences)
        rows = [[len(s), s.count("a") if self.bad is None else self.bad] for s in sentences]
        return np.asarray(rows, dtype=np.float32)


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
    """Ranks of the type that comes in, as scipy gives them from 1.18 on, would lose digits."""
    rng = np.random.default_rng(0)
    x, y = rng.random(3000).astype(np.float32), rng.integers(0, 6, 3000).astype(np.float32)
    exact = stats.spearmanr(x.astype(np.float64), y.astype(np.float64)).statistic
    monkeypatch.setattr("bench.eval.sts.rankdata", lambda a: stats.rankdata(a).astype(a.dtype))
    assert spearman(x, y) == pytest.approx(exact, abs=1e-14)


def test_spearman_refuses_what_has_no_answer() -> None:
    for x, y, message in (
        ([1.0], [1.0], "no correlation of 1 predictions with 1 gold scores"),
        ([1.0, 2.0], [1.0], "no correlation of 2 predictions with 1 gold scores"),
        ([1.0, float("nan")], [1.0, 2.0], "a prediction is not finite"),
        ([1.0, 1.0], [1.0, 2.0], "^all 2 predictions are equal, so the correlation is undefined$"),
        (
            [1.0, 2.0],
            [3.0, 3.0],
            "^all 2 gold scores are equal, so the correlation is undefined; expected gold .* that differ$",
        ),
    ):
        with pytest.raises(BenchError, match=message):
            spearman(np.asarray(x), np.asarray(y))


def test_scorers_want_two_sides_of_one_length() -> None:
    with pytest.raises(
        BenchError, match="2 first sentences and 1 second ones; expected one of each for every"
    ):
        WordOverlapScorer().score_pairs(["a", "b"], ["a"])


class BufferedScorer:
    """Compares by nothing, into one buffer."""

    def __init__(self, values: Sequence[float] = (0.5,)) -> None:
        self.facts: dict[str, str | int] = {}
        self.values, self.buffer = values, np.zeros(100, dtype=np.float32)

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
        self.buffer[: len(first)] = np.resize(np.asarray(self.values), len(first)) * len(first)
        return self.buffer[: len(first)]


def task_of(gold: Sequence[float], second: Sequence[float], files: str = "b.tsv") -> PairTask:
    """Two data sets of three pairs."""
    sides = ("a", "b", "c"), ("ab", "bb", "cab")
    subsets = (
        PairSubset("news", *sides, tuple(gold), "a.tsv"),
        PairSubset("forum", *sides, tuple(second), files),
    )
    return PairTask("STS", subsets)


def test_undefined_correlations_name_task_and_file() -> None:
    predictions = np.array([0.1, 0.2, 0.3, 0.9, 0.7, 0.8], dtype=np.float32)
    equal = np.array([0.1, 0.2, 0.3, 0.9, 0.9, 0.9], dtype=np.float32)
    undefined = "so the correlation is undefined"
    for task, similarities, message in (
        (
            task_of((1, 1, 1), (1, 1, 1)),
            predictions,
            f"STS (a.tsv, b.tsv): all 6 gold scores are equal, {undefined}; expected gold scores that differ",
        ),
        (
            task_of((1, 2, 3), (1, 1, 1)),
            predictions,
            f"STS, forum (b.tsv): all 3 gold scores are equal, {undefined}; expected gold scores that differ",
        ),
        (
            task_of((1, 2, 3), (1, 2, 1)),
            equal,
            f"STS, forum (b.tsv): all 3 predictions are equal, {undefined}",
        ),
        (task_of((1, 2, 3), (1, 2, 1), ""), equal, f"STS, forum: all 3 predictions are equal, {undefined}"),
    ):
        with pytest.raises(BenchError) as caught:
            score_task(task, similarities)
        assert str(caught.value) == message


def test_only_equal_vectors_are_a_collapsed_encoder() -> None:
    class Constant(Lengths):
        def encode(self, sentences, batch_tokens=None, progress=None):  # type: ignore[no-untyped-def]
            return np.ones((len(sentences), 2), dtype=np.float32)

    class OnALine(Lengths):
        def encode(self, sentences, batch_tokens=None, progress=None):  # type: ignore[no-untyped-def]
            return np.asarray([[len(s), 0] for s in sentences], dtype=np.float32)

    task = task_of((1, 2, 3), (1, 2, 1))
    with pytest.raises(BenchError) as caught:
        score_suite([task], predict_similarities(Constant(), [task]))
    assert str(caught.value).endswith("so the correlation is undefined (a collapsed encoder?)")
    for encoder in (OnALine(), BufferedScorer()):
        with pytest.raises(BenchError) as caught:
            score_suite([task], predict_similarities(encoder, [task]))
        said = "STS (a.tsv, b.tsv): all 6 predictions are equal, so the correlation is undefined"
        assert str(caught.value) == said


def test_what_an_encoder_returns_is_copied() -> None:
    """A plug-in may return a view of one buffer, which its next call writes to."""

    class Buffered(Lengths):
        def encode(self, sentences, batch_tokens=None, progress=None):  # type: ignore[no-untyped-def]
            self.buffer = getattr(self, "buffer", np.zeros((100, 2), dtype=np.float32))
            self.buffer[: len(sentences)] = Lengths.encode(self, sentences)
            return self.buffer[: len(sentences)]

    encoder, plain = Buffered(), Lengths()
    first, second = embed_sentences(encoder, ["a", "bb", "aaa"]), embed_sentences(encoder, ["bbbb", "aa"])
    np.testing.assert_array_equal(first.vectors, embed_sentences(plain, ["a", "bb", "aaa"]).vectors)
    np.testing.assert_array_equal(second.vectors, embed_sentences(plain, ["bbbb", "aa"]).vectors)
    texts = ["a", "bb", "aaa", "bbbb", "aa"]
    blocks = list(stream_embeddings(encoder, texts, block=2))
    np.testing.assert_array_equal(np.concatenate(blocks), embed_sentences(plain, texts).vectors)

    one = PairTask("A", (PairSubset("x", ("a", "b"), ("b", "c"), (1.0, 2.0)),))
    two = PairTask("B", (PairSubset("x", ("a", "b", "d"), ("b", "c", "e"), (1.0, 2.0, 3.0)),))
    found = predict_similarities(BufferedScorer((1, 2, 3)), [one, two])
    assert [values.tolist() for values in found.values()] == [[2, 4], [3, 6, 9]]


def test_cosine_by_hand_and_of_a_zero_vector() -> None:
    class Fixed(Lengths):
        def encode(self, sentences, batch_tokens=None, progress=None):  # type: ignore[no-untyped-def]
            table = {"a": [3, 4], "b": [4, 3], "c": [-3, -4], "z": [0, 0]}
            return np.asarray([table[s] for s in sentences], dtype=np.float32)

    cosine = embed_sentences(Fixed(), "abcz").cosine(["a", "a", "a", "z"], ["a", "b", "c", "a"])
    np.testing.assert_allclose(cosine, [1, 0.96, -1, 0], atol=1e-12)


def test_every_distinct_sentence_is_encoded_once_over_all_tasks() -> None:
    one = PairTask("A", (PairSubset("x", ("aa", "b"), ("b", "ccc"), (1.0, 2.0)),))
    two = PairTask("B", (PairSubset("x", ("b", "aa"), ("dddd", "aa"), (1.0, 2.0)),))
    encoder = Lengths()
    predictions = predict_similarities(encoder, [one, two])
    assert encoder.asked == ["aa", "b", "ccc", "dddd"]
    assert {name: values.shape for name, values in predictions.items()} == {"A": (2,), "B": (2,)}
    assert distinct_sentences(["b", "a", "b"]) == ["b", "a"]


def test_embeddings_must_be_finite_and_of_the_promised_shape() -> None:
    with pytest.raises(
        BenchError, match=r"distinct sentence 1 is the first: the embeddings of 2 of 2 sentences"
    ):
        embed_sentences(Lengths(float("nan")), ["a", "b"])
    with pytest.raises(BenchError, match=r"float32 \(1, 2\); expected float32 \(1, 3\)"):
        embed_sentences(Lengths(dim=3), ["a"])


class Sorting(Lengths):
    """Sorts the sentences by length in place, and gives the vectors of the order that it got."""

    def encode(self, sentences: Sequence[str], *others: object, **more: object) -> FloatArray:
        vectors = super().encode(sentences)
        sentences.sort(key=len)  # type: ignore[attr-defined]
        return vectors


def test_an_encoder_may_sort_what_it_gets() -> None:
    found = embed_sentences(Sorting(), ["ccc", "aa", "b"])
    assert (list(found.rows), found.vectors[:, 0].tolist()) == (["ccc", "aa", "b"], [3, 2, 1])


class Scorer:
    """A scorer of pairs that returns what it is told."""

    def __init__(self, found: object) -> None:
        self.found, self.facts = found, dict[str, str | int]()

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
        return self.found  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (np.zeros(2), r"the scorer returned float64 \(2,\); expected float32 \(2,\)"),
        (np.zeros((2, 1), np.float32), r"float32 \(2, 1\); expected"),
        ([0.5, 1.0], "the scorer returned a list; expected"),
        (None, "returned a NoneType"),
        (np.array([0, np.inf], np.float32), "pair 2 is the first: the similarities of 1 of 2 pairs"),
    ],
)
def test_similarities_must_be_finite_and_of_the_promised_shape(found: object, said: str) -> None:
    task = PairTask("A", (PairSubset("x", ("aa", "b"), ("b", "ccc"), (1.0, 2.0)),))
    with pytest.raises(BenchError, match=said):
        predict_similarities(Scorer(found), [task])


def test_all_mean_and_weighted_mean() -> None:
    rng = np.random.default_rng(0)
    sizes = (5, 9, 4)
    gold = [rng.normal(size=n) for n in sizes]
    subsets = tuple(
        PairSubset(f"s{i}", ("x",) * len(part), ("y",) * len(part), tuple(part))
        for i, part in enumerate(gold)
    )
    predictions = rng.normal(size=18).astype(np.float32)
    scores = {s.subset: s for s in score_task(PairTask("T", subsets), predictions)}
    parts = np.split(predictions, [5, 14])
    each = [stats.spearmanr(p, g).statistic for p, g in zip(parts, gold, strict=True)]
    assert scores["all"].value == pytest.approx(stats.spearmanr(predictions, np.concatenate(gold)).statistic)
    assert [scores[f"s{i}"].value for i in range(3)] == pytest.approx(each)
    assert scores["mean"].value == pytest.approx(sum(each) / 3)
    assert scores["wmean"].value == pytest.approx(sum(v * n for v, n in zip(each, sizes, strict=True)) / 18)
    assert [scores[name].n for name in ("all", "s1", "mean")] == [18, 9, 18]
    with pytest.raises(BenchError, match="T: 17 predictions for 18 pairs"):
        score_task(PairTask("T", subsets), predictions[:17])


def test_the_average_is_of_unrounded_values_and_one_subset_has_no_mean() -> None:
    tasks = [
        PairTask(name, (PairSubset("test", tuple("abc"), tuple("def"), gold),))
        for name, gold in (("A", (1.0, 2.0, 3.0)), ("B", (2.0, 1.0, 3.0)))
    ]
    values = {name: np.array([1, 2, 3], dtype=np.float32) for name in "AB"}
    scores = score_suite(tasks, values)
    assert [(s.task, s.subset, s.value, s.n) for s in scores] == [
        ("A", "all", 1.0, 3),
        ("B", "all", 0.5, 3),
        ("avg", "all", 0.75, 2),
    ]


def test_word_overlap_by_hand() -> None:
    scores = WordOverlapScorer().score_pairs(
        ["The cat, the CAT!", "a b c d", "", "...", "straße 7"], ["cat", "d x", "a", "...", "7 Straße"]
    )
    np.testing.assert_allclose(scores, [1 / np.sqrt(2), 1 / np.sqrt(8), 0, 0, 1], rtol=1e-6)
    assert scores.dtype == np.float32
