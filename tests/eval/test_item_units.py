"""The sampling unit of every kind of suite: labels, and draws, by hand on tiny tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, f1_score  # type: ignore[import-untyped]

from bench.data.contrast_items import ContrastTask, make_contrast_tasks
from bench.data.local_tasks import read_local_suite
from bench.data.mteb_names import MtebName
from bench.data.rank_task import RankTask
from bench.data.sentence_clusters import cluster_items
from bench.data.suites import load_contrast, load_suite
from bench.data.tasks import LabelledSplit, LabelledTask, PairSubset, PairTask
from bench.encoder import FloatArray
from bench.errors import BenchError, DataError, InputError
from bench.eval import mteb_predictions
from bench.eval.measure import Measure
from bench.eval.mteb_items import MtebItems
from bench.eval.mteb_tasks import MtebTask, load_mteb_suite
from bench.eval.suite_measures import measure_of
from bench.eval.transfer_items import scored_items
from bench.stats.argument_checks import make_generator
from bench.stats.item_units import SuiteUnits, draw_scores
from bench.stats.resampling import draw_counts
from tests.support.messages import missing_facts

DRAWS = 100
RNG = np.random.default_rng(7)
Score = Callable[[FloatArray, Any], float]
"""The score of one run's values on items that may repeat."""


def label_items(measure: Measure[Any], tasks: Sequence[Any], record: Any = None) -> list[list[int]]:
    """Return the clusters of all parts of all tasks."""
    parts = [part for task in tasks for part in measure.item_texts(task, record)]
    return [labels.tolist() for labels in cluster_items(parts)]


def check_draws(
    measure: Measure[Any], task: Any, runs: FloatArray, score: Score, record: Any = None
) -> list[int]:
    """Compare scores in draws with a loop over the drawn clusters; return the labels."""
    (labels,) = label_items(measure, [task], record)
    members = [np.flatnonzero(np.array(labels) == cluster) for cluster in range(max(labels) + 1)]
    units = SuiteUnits({task.id: [np.array(labels)]})
    statistics = {task.id: measure.item_statistics(task, runs, record)}
    drawn = draw_scores(statistics, units, DRAWS, lambda stream: make_generator(3, stream))[:, :, 0]
    rng = make_generator(3, f"items/{task.id}")
    counts = np.concatenate(list(draw_counts(len(members), rng, DRAWS)))
    for row, of_draw in enumerate(counts):
        clusters = np.repeat(np.arange(len(members)), of_draw)
        items = np.concatenate([members[cluster] for cluster in clusters])
        assert drawn[row] == pytest.approx([score(run, items) for run in runs], abs=1e-9)
    assert len(members) < len(labels)  # a unit of single items gives other draws
    return labels


def test_pairs_that_share_a_sentence_over_subsets() -> None:
    first = tuple(f"first {i}" for i in range(12))
    second = ("second 0", "First  0.", *(f"second {i}" for i in range(2, 12)))
    subsets = [PairSubset("a", first[:8], second[:8], tuple(range(8)))]
    subsets.append(PairSubset("b", (*first[8:11], "second 2"), second[8:], (3, 1, 2, 0)))
    task = PairTask("T", tuple(subsets))
    gold = np.r_[np.arange(8.0), 3, 1, 2, 0]
    runs = RNG.normal(size=(2, 12)).astype(np.float32)
    measure = measure_of("sts7")
    labels = check_draws(measure, task, runs, lambda run, i: float(spearmanr(run[i], gold[i]).statistic))
    assert labels == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1]
    assert measure.unit == measure.task_unit(task) == "clusters of pairs that share a sentence"


def test_tested_items_of_transfer_over_tasks_with_the_weights_of_folds() -> None:
    texts = [f"text {i}" for i in range(25)]
    texts[24] = "Text 3"
    split = LabelledSplit("all", tuple(texts), (), tuple("yn"[i % 2] for i in range(25)))
    task = LabelledTask("MR", (split,))
    gold, weights = scored_items(task).gold, scored_items(task).weights
    assert len(set(weights)) > 1
    runs = RNG.integers(0, 2, (2, 25)).astype(np.float32)
    measure = measure_of("transfer7")

    def score(run: FloatArray, i: Any) -> float:
        return float(np.clip((weights * (run == gold))[i].mean(), 0, 1))

    assert check_draws(measure, task, runs, score) == [*range(24), 3]
    train = LabelledSplit("train", ("text 1", "text 2"), ("pair", "pair"), ("0", "1"))
    test = LabelledSplit("test", ("text 5", "new", "old"), ("a", "b", "A"), ("0", "1", "1"))
    other = LabelledTask("MRPC", (train, test))  # only tested items count
    assert label_items(measure, [task, other])[1] == [5, 24, 5]
    assert measure.unit == "clusters of tested items that share a sentence"


def test_contrast_items_of_one_sentence_and_of_one_source() -> None:
    triples = tuple((f"a {i}", f"b {i}", f"c {i}") for i in range(11))
    task = ContrastTask("swap", (*triples, ("a 11", "b 0", "c 11")), ("rules", 9, "x"))
    runs = RNG.normal(size=(2, 12)).astype(np.float32)
    runs[:, 3] = 0  # a tie
    measure = measure_of("contrast")

    def score(run: FloatArray, i: Any) -> float:
        return float(np.where(run == 0, 0.5, run > 0)[i].mean())

    assert check_draws(measure, task, runs, score) == [*range(11), 0]
    sources = (0, 0, 1, 1, *range(2, 10))
    pairs = ContrastTask("swap", task.triples, task.text, sources=sources)
    assert check_draws(measure, pairs, runs, score) == [0, 0, 1, 1, *range(2, 9), 0]
    assert (pairs, pairs.sha256) == (task, task.sha256)
    other = ContrastTask("order", (("x", "y", "z"),), task.text, sources=(1,))
    assert label_items(measure, [pairs, other])[1] == [1]
    assert measure.unit == "clusters of items that share a sentence or a source"


SENTENCES = (
    "Two men are talking in the kitchen.",
    "The man is buying a big car.",
    "The man is pushing the woman near a car.",
    "A man is sitting behind the couch near the car.",
    "Three boys are jumping in the river.",
)


def test_contrast_from_pairs_keeps_their_clusters_and_a_users_text_its_lines() -> None:
    clusters = dict(zip(SENTENCES, (4, 4, 0, 1, 2), strict=True))
    tasks = make_contrast_tasks([*SENTENCES, SENTENCES[0]], "here", sources=clusters)
    for task in tasks:
        assert task.sources == tuple(clusters[triple[0]] for triple in task.triples)
    assert {task.id: task.sources for task in tasks}["number"] == (4, 2)
    assert all(not task.sources for task in make_contrast_tasks(SENTENCES, "here"))
    assert all(not task.sources for task in load_contrast("mini-contrast"))


def test_evalrank_pairs_with_both_queries_and_shared_sentences() -> None:
    pairs = (*((f"a {i}", f"b {i}") for i in range(10)), ("B 4", "new"))
    background = tuple(sentence for pair in pairs for sentence in pair)
    task = RankTask("EvalRank", pairs, background)
    runs = RNG.integers(1, 23, (2, 44)).astype(np.float32)

    def score(run: FloatArray, i: Any) -> float:
        return float(np.mean([1 / run[2 * i].astype(float), 1 / run[2 * i + 1].astype(float)]))

    measure = measure_of("evalrank")
    assert check_draws(measure, task, runs, score) == [*range(10), 4]
    assert "both queries" in measure.unit


def record_of(sizes: dict[str, int], split: str = "test") -> Any:
    kept = {name: {"kept": [[split, "default", size]]} for name, size in sizes.items()}
    return SimpleNamespace(provenance={"mteb": {"tasks": kept}}, suite="local:mine")


def write_tasks(folder: Path, text: str, files: Mapping[str, Sequence[str]]) -> Path:
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def local_task(folder: Path, kind: str, files: Mapping[str, Sequence[str]]) -> MtebTask:
    entries = "".join(f'{name} = "{name}.tsv"\n' for name in files)
    path = write_tasks(
        folder,
        f'[[task]]\nname = "mine"\ntype = "{kind}"\n{entries}',
        {f"{k}.tsv": v for k, v in files.items()},
    )
    (task,) = load_mteb_suite(f"local:{path}")
    return task


def test_local_sts(tmp_path: Path) -> None:
    rows = [f"one {i}\ttwo {max(i, 1)}\t{i % 5}" for i in range(12)]
    task = local_task(tmp_path, "sts", {"file": ["sentence1\tsentence2\tscore", *rows]})
    gold, runs = np.arange(12) % 5, RNG.normal(size=(2, 12)).astype(np.float32)
    score = lambda run, i: float(spearmanr(run[i], gold[i]).statistic)  # noqa: E731
    labels = check_draws(measure_of("mteb:x"), task, runs, score, record_of({task.id: 12}))
    assert labels == [0, *range(11)]


def test_local_pair_classification(tmp_path: Path) -> None:
    rows = [f"premise {i // 3}\thypothesis {i}\t{int(i % 3 == 0)}" for i in range(30)]
    task = local_task(tmp_path, "pair-classification", {"file": ["sentence1\tsentence2\tlabel", *rows]})
    gold = np.tile([1, 0, 0], 10)
    runs = RNG.normal(size=(2, 5 * 30)).astype(np.float32)

    def score(run: FloatArray, i: Any) -> float:
        return max(float(average_precision_score(gold[i], row[i])) for row in run.reshape(5, 30))

    labels = check_draws(measure_of("mteb:x"), task, runs, score, record_of({task.id: 30}))
    assert labels == [i // 3 for i in range(30)]


def test_local_classification(tmp_path: Path) -> None:
    train = ["text\tlabel", *(f"train {i}\t{'xy'[i % 2]}" for i in range(8))]
    test = ["text\tlabel", *(f"text {i % 9}\t{'xy'[i % 2]}" for i in range(12))]
    task = local_task(tmp_path, "classification", {"train": train, "test": test})
    gold, runs = np.arange(12) % 2, RNG.integers(0, 2, (2, 3 * 12)).astype(np.float32)
    score = lambda run, i: float((run.reshape(3, 12) == gold)[:, i].mean())  # noqa: E731
    labels = check_draws(measure_of("mteb:x"), task, runs, score, record_of({task.id: 12}))
    assert labels == [*range(9), 0, 1, 2]


def test_local_bitext(tmp_path: Path) -> None:
    rows = [f"one {i}\tzwei {i - i % 2}" for i in range(10)]
    task = local_task(tmp_path, "bitext", {"file": ["sentence1\tsentence2", *rows]})
    gold, runs = np.arange(10), RNG.integers(0, 10, (2, 10)).astype(np.float32)
    runs[:, :6] = gold[:6]

    def score(run: FloatArray, i: Any) -> float:
        labels = np.unique(gold[i])
        return float(f1_score(gold[i], run[i], average="weighted", labels=labels, zero_division=0))

    labels = check_draws(measure_of("mteb:x"), task, runs, score, record_of({task.id: 10}))
    assert labels == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("kind", ["reranking", "retrieval"])
def test_local_queries_of_equal_text(tmp_path: Path, kind: str) -> None:
    files: dict[str, Sequence[str]]
    queries = [f"where {i}" for i in range(7)] + ["Where 2?"]
    if kind == "reranking":
        rows = [f"{query}\tdocument {d}\t{d}" for query in queries for d in (0, 1)]
        files = {"file": ["query\tdocument\trelevant", *rows]}
    else:
        files = {
            "corpus": ["id\ttext", "d0\tdocument 0", "d1\tdocument 1"],
            "queries": ["id\ttext", *(f"q{i}\t{query}" for i, query in enumerate(queries))],
            "qrels": ["query\tdocument\trelevant", *(f"q{i}\td1\t1" for i in range(8))],
        }
    task = local_task(tmp_path, kind, files)
    runs = RNG.random((2, 8)).astype(np.float32)
    measure = measure_of("mteb:x")
    score = lambda run, i: float(run[i].mean(dtype=np.float64))  # noqa: E731
    labels = check_draws(measure, task, runs, score, record_of({task.id: 8}))
    assert labels == [*range(7), 2]  # documents link no queries
    assert measure.task_unit(task) == "queries, those of equal text together"


@pytest.mark.parametrize("kind", ["clustering", "summarisation"])
def test_scores_of_whole_sets_have_no_unit(tmp_path: Path, kind: str) -> None:
    files = {"file": ["text\tlabel", "a\t1", "b\t2"]}
    if kind == "summarisation":
        files = {"references": ["text\tsummary", "a\tb"]}
        files["summaries"] = ["text\tsummary\tscore", "a\tc\t1", "a\td\t2"]
    task = local_task(tmp_path, kind, files)
    measure = measure_of("mteb:x")
    assert measure.task_unit(task) == ""
    with pytest.raises(BenchError, match="no predictions"):
        measure.item_statistics(task, np.empty((1, 0), dtype=np.float32), record_of({task.id: 2}))


PARALLEL = """[[task]]
name = "de"
type = "sts"
parallel = "pairs"
file = "de.tsv"
[[task]]
name = "fr"
type = "sts"
parallel = "pairs"
file = "fr.tsv"
[[task]]
name = "own"
type = "sts"
file = "own.tsv"
"""


def scored_rows(language: str, scores: Sequence[float] = (0, 1, 2, 3), count: int = 4) -> list[str]:
    rows = [f"{language} one {i}\t{language} two {i}\t{scores[i]}" for i in range(count)]
    return ["sentence1\tsentence2\tscore", *rows]


def test_translations_of_a_pair_are_one_unit_where_a_suite_states_it(tmp_path: Path) -> None:
    files = {f"{name}.tsv": scored_rows(name) for name in ("de", "fr", "own")}
    files["fr.tsv"][3] = "fr one 0\tfr two 2\t2"  # shares a sentence in one language
    tasks = load_mteb_suite(f"local:{write_tasks(tmp_path, PARALLEL, files)}")
    record = record_of({task.id: 4 for task in tasks})
    labels = label_items(measure_of("mteb:x"), tasks, record)
    assert labels == [[0, 1, 0, 2], [0, 1, 0, 2], [3, 4, 5, 6]]
    bare = write_tasks(tmp_path, PARALLEL.replace('parallel = "pairs"\n', ""), files)
    apart = label_items(measure_of("mteb:x"), load_mteb_suite(f"local:{bare}"), record)
    assert apart == [[0, 1, 2, 3], [4, 5, 4, 6], [7, 8, 9, 10]]
    assert [task.sha256 for task in load_mteb_suite(f"local:{bare}")] == [task.sha256 for task in tasks]


@pytest.mark.parametrize(
    "rows", [scored_rows("fr", count=3), scored_rows("fr", (0, 1, 3, 2)), scored_rows("fr", (0, 1, 2, 2))]
)
def test_a_false_statement_of_parallel_tasks_is_refused(tmp_path: Path, rows: list[str]) -> None:
    files = {"de.tsv": scored_rows("de"), "fr.tsv": rows, "own.tsv": scored_rows("own")}
    path = write_tasks(tmp_path, PARALLEL, files)
    with pytest.raises(DataError) as caught:
        read_local_suite(path)
    assert not missing_facts(str(caught.value), "'fr' and 'de'", "parallel = 'pairs'", "the same gold")


def test_parallel_is_for_kinds_with_an_item_a_row(tmp_path: Path) -> None:
    text = '[[task]]\nname = "a"\ntype = "clustering"\nparallel = "x"\nfile = "a.tsv"\n'
    with pytest.raises(InputError, match="parallel for type clustering"):
        read_local_suite(write_tasks(tmp_path, text, {"a.tsv": ["text\tlabel", "a\t1", "b\t2"]}))
    with pytest.raises(InputError, match="parallel = 'a b'"):
        read_local_suite(write_tasks(tmp_path, PARALLEL.replace('"pairs"', '"a b"'), {}))


@pytest.mark.parametrize(
    ("name", "links"),
    [("STS17", [[0, 1, 2], [0, 1, 2], [3, 4, 5]]), ("STS22", [[0, 1, 2], [3, 4, 5], [6, 7, 8]])],
)
def test_subsets_of_mtebs_translated_tasks(
    monkeypatch: pytest.MonkeyPatch, name: str, links: list[list[int]]
) -> None:
    """Only rows of listed tasks, and of subsets with equal gold, are translations."""
    gold = {"en-en": [1.0, 2.0, 0.5], "en-de": [1.0, 2.0, 0.5], "ar-ar": [2.0, 1.0, 0.5]}
    items = {}
    for subset, scores in gold.items():
        texts = tuple((f"{subset} {i}", f"{subset} two {i}") for i in range(3))
        items["test", subset] = MtebItems(texts, np.array(scores))
    monkeypatch.setattr(mteb_predictions, "_find_items", lambda task: items)
    task = MtebTask(MtebName(name, name), "STS", "cosine_spearman", ("data", "1"), ("test",))
    kept = [["test", subset, 3] for subset in gold]
    record: Any = SimpleNamespace(provenance={"mteb": {"tasks": {name: {"kept": kept}}}})
    measure = measure_of(f"mteb:{name}")
    assert label_items(measure, [task], record) == links
    assert measure.task_unit(task) == "clusters of pairs that share a sentence or a translated row"
    english = MtebTask(MtebName("EN", name, ("en-en",)), "STS", "cosine_spearman", ("data", "1"), ("test",))
    record.provenance["mteb"]["tasks"]["EN"] = {"kept": kept[:1]}
    apart = label_items(measure, [task, english], record)  # parts of one task in two rows of a suite
    assert apart[3] == apart[0]


def test_every_suite_states_its_unit() -> None:
    for name in ("sts7", "transfer7", "contrast", "evalrank", "stsb-multi", "mini-retrieval"):
        unit = measure_of(name).unit
        assert unit.startswith("clusters of ")
        assert len(unit) < 100
    toy = load_suite("toy")[1]
    assert set(label_items(measure_of("toy"), toy)[0]) == {0}  # every pair shares a chain of sentences
