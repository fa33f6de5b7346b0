"""EvalRank: the released protocol in other words, its data, and a small set by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.baselines.word_overlap import WordOverlapScorer
from bench.data.rank_task import RankTask, make_rank_task
from bench.data.source import DataSource
from bench.data.suites import load_rank
from bench.data.tasks import PairSubset, PairTask
from bench.errors import BenchError
from bench.eval.embeddings import Embeddings
from bench.eval.measure import MeasureContext
from bench.eval.rank_suite import RankSuite, partner_ranks, task_ranks
from bench.stats.inputs import make_generator
from tests.support.cli import Cli, records
from tests.support.encoders import FunctionEncoder

SETTING = MeasureContext("exact", "m", "i", Path())
SUITE = RankSuite("evalrank")


def given(vectors: dict[str, Any]) -> FunctionEncoder:
    """An encoder of vectors by hand."""
    dim = len(next(iter(vectors.values())))
    return FunctionEncoder(lambda texts: [vectors[text] for text in texts], dim)


def released(task: RankTask, vectors: dict[str, NDArray[np.float64]], metric: str) -> list[int]:
    """Ranks as in the released program: sort all scores, find the partner's place."""
    sentences = list(task.background)
    mean = sum(vectors.values()) / len(vectors)
    centred = {s: v - mean for s, v in vectors.items()}
    if metric == "cos":
        centred = {s: v / np.sqrt((v**2).sum()) for s, v in centred.items()}
    ranks = []
    for one, two in [pair for a, b in task.pairs for pair in ((a, b), (b, a))]:

        def score(a: str, b: str) -> float:
            if metric == "cos":
                return round(float((centred[a] * centred[b]).sum()), 9)
            return round(1 / (float(np.sqrt(((centred[a] - centred[b]) ** 2).sum())) + 1), 9)

        ascending = sorted(score(one, other) for other in sentences)
        wanted, place = score(one, two), 0
        while place < len(ascending) and ascending[place] <= wanted:
            place += 1
        ranks.append(max(1, len(ascending) - place))
    return ranks


def made_up(seed: int) -> tuple[RankTask, dict[str, NDArray[np.float64]]]:
    """A task of 40 pairs, of which one joins a sentence to itself and two sentences have one vector."""
    rng = np.random.default_rng(seed)
    first, second = ([f"{side}{i}" for i in range(40)] for side in "ab")
    second[3] = first[3]
    subset = PairSubset("p", tuple(first), tuple(second), tuple(rng.random(40)))
    task = make_rank_task("t", [PairTask("t", (subset,))])
    vectors = {s: rng.normal(1, 1, 6).astype(np.float32).astype(np.float64) for s in task.background}
    one, other = task.pairs[0]
    vectors[other] = vectors[one]
    return task, vectors


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ranks_are_those_of_the_released_protocol(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.eval.rank_suite._BLOCK", 7)
    task, vectors = made_up(seed)
    rows = {sentence: row for row, sentence in enumerate(vectors)}
    found = Embeddings(rows, np.stack(list(vectors.values())).astype(np.float32))
    cosine, distance = task_ranks(task, found)
    assert cosine.tolist() == released(task, vectors, "cos")
    assert distance.tolist() == released(task, vectors, "l2")
    assert cosine.tolist() != distance.tolist()
    assert len(set(cosine.tolist())) > 5


def test_by_hand() -> None:
    """Mean zero, so that centring changes nothing; on a line of angles and of lengths."""
    vectors: dict[str, list[float]] = {"a": [3.0, 0], "b": [1, 1], "c": [0, 2], "d": [-4, -3]}
    task = RankTask("t", (("a", "c"), ("b", "c")), ("a", "b", "c", "d"))
    found = SUITE.measure(given(vectors), [task], SETTING)
    assert found.predictions is not None
    # cosine: a looks for c: a, b before it; c for a: c, b; b for c: b, and a as near as c; c for b: c
    # distance: a: b at 2.2, c at 3.6; c: b at 1.4, a at 3.6; b: c at 1.4, a at 2.2
    assert found.predictions["t"].tolist() == [2, 2, 1, 1, 2, 2, 1, 1]
    scores = {(s.task, s.subset, s.metric): s.value for s in found.scores}
    assert scores["t", "all", "mrr"] == scores["avg", "all", "mrr"] == scores["t", "l2", "mrr"] == 0.75
    assert scores["t", "all", "hits@1"] == 0.5
    assert scores["t", "all", "hits@3"] == 1


def test_centring_is_part_of_the_cosine() -> None:
    task, vectors = made_up(1)
    given = np.stack([vectors[sentence] for sentence in task.background])
    rows = {sentence: row for row, sentence in enumerate(task.background)}
    unit = given / np.linalg.norm(given, axis=1, keepdims=True)
    plain = partner_ranks(unit, np.array([[rows[one], rows[other]] for one, other in task.queries]))
    found = Embeddings(rows, given.astype(np.float32))
    assert (task_ranks(task, found)[0] != plain).mean() > 0.2


@pytest.mark.parametrize("vector", [1.0, 0.0, 1e-9])
def test_a_collapsed_encoder_has_no_rank(vector: float) -> None:
    task, vectors = made_up(1)
    same = {s: np.full(6, vector) * (1 + 1e-8 * v) for s, v in vectors.items()}
    with pytest.raises(BenchError, match=r"vectors are equal.*collapsed"):
        SUITE.measure(given(same), [task], SETTING)


def test_ranks_do_not_depend_on_the_scale_of_small_vectors() -> None:
    task, vectors = made_up(1)
    tiny = SUITE.measure(given({s: v * 2.0**-26 for s, v in vectors.items()}), [task], SETTING)
    assert tiny.scores == SUITE.measure(given(vectors), [task], SETTING).scores


def test_positives_are_the_best_quarter_and_the_background_everything() -> None:
    one = PairTask("x", (PairSubset("p", ("a", "b", "c"), ("d", "e", "a"), (4.0, 5.0, 4.0)),))
    two = PairTask("y", (PairSubset("q", tuple("fghij"), tuple("klmno"), (0.0, 4.0, 1.0, 2.0, 3.0)),))
    task = make_rank_task("t", [one, two])
    assert task.pairs == (("b", "e"), ("a", "d"))  # the first of three of equal score
    assert task.background == tuple("adbec" + "fkglhminjo")
    assert task.items == 4
    assert make_rank_task("t", [two, one]).sha256 != task.sha256


def test_every_sentence_is_encoded_once() -> None:
    task, vectors = made_up(1)
    encoder = given(vectors)
    SUITE.measure(encoder, [task], SETTING)
    assert [sorted(sentences) for sentences in encoder.asked] == [sorted(task.background)]
    with pytest.raises(BenchError, match="no vectors"):
        SUITE.measure(WordOverlapScorer(), [task], SETTING)


def test_draws_are_of_pairs_with_both_directions() -> None:
    task = RankTask("t", (("a", "b"), ("c", "d")), tuple("abcd"))
    rows = np.array([[1, 2, 1, 4, 1, 1, 1, 1]], dtype=np.float32)
    drawn = SUITE.draws(task, rows, None, make_generator(1, "x"), 300)  # type: ignore[arg-type]
    assert set(drawn[:, 0].round(4).tolist()) == {0.75, 0.6875, 0.625}


@pytest.mark.parametrize("kept", [[1, 2, 3], [1, 0, 1, 1], [1, 9, 1, 1], [1, 1.5, 1, 1], [1, np.nan, 1, 1]])
def test_impossible_ranks_are_refused(kept: list[float]) -> None:
    task = RankTask("t", (("a", "b"),), tuple("abcd"))
    with pytest.raises(BenchError, match=r"3 ranks for 2|is not a rank"):
        SUITE.rescore([task], {"t": np.array(kept, dtype=np.float32)}, None)  # type: ignore[arg-type]


def test_records_of_the_embedded_world(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("run", "--methods", "noise", "--seeds", "1-2", "--suite", "mini-evalrank")
    assert (code, "Mrr x 100" in out) == (0, True), err
    (task,) = load_rank("mini-evalrank")
    assert task.sha256 != load_rank("mini-evalrank", DataSource(world_seed=2))[0].sha256
    assert (len(task.pairs), task.items) == (450, 900)
    record = next(iter(records(tmp_path).values()))
    assert (record.metric, record.tasks["EvalRank"]["items"]) == ("mrr", 900)
    assert cli("verify")[0] == 0
    code, out, _ = cli("diff", "noise#1", "noise#2", "--suite", "mini-evalrank")
    assert (code, "reciprocal rank" in out) == (0, True)
    code, _, err = cli("run", "--methods", "word_overlap", "--suite", "mini-evalrank")
    assert (code, "word_overlap" in err) == (2, True)
