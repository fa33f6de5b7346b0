"""Simulations of test pairs that share sentences, for coverage.py: on the real pairs of sts7.

Gold scores and predictions have effects of sentences, which all pairs of a sentence share, and effects of
pairs. A sentence has 30 or 60% of the variance. With "topics" it has 50%, and a tenth is common to a
whole cluster. Two methods of equal expectation share 60% of their noise, as in coverage_items.py. The graph
of pairs and sentences comes from BENCH_DATA; of its sentences nothing is kept.

Intervals and tests are those of bench.stats with clusters. "pairs", "dyadic-robust" and "node resampling"
are the alternatives: normal intervals from the items' influence, with the variance of independent pairs, with
products of all pairs that share a sentence (Aronow, Samii and Assenova 2015), and with both sentences of a
pair drawn (Owen 2007).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from coverage_items import DRAWS
from coverage_rows import ALPHA, BOTH, LEVEL, Array, Setting, Sizes, graded, row
from numpy.typing import NDArray
from scipy import sparse, stats

from bench.data.data_source import DataSource, data_folder
from bench.data.sentence_clusters import cluster_items, identify_sentence
from bench.data.suites import load_suite
from bench.errors import BenchError
from bench.stats.argument_checks import make_generator
from bench.stats.classification_statistics import effective_items, mcnemar, wilson_interval
from bench.stats.clustered_tests import clustered_test, spearman_influence
from bench.stats.correlations import steiger, williams
from bench.stats.coverage import CoverageRow
from bench.stats.item_statistics import AVERAGE, SuiteDraws, draw_suite, paired_bootstrap
from bench.stats.resampling import spearman_rows
from bench.stats.variance_components import variance_components

SUITE, ITEMS, TOPIC = "sts7", "further items", 0.1
FULL = 2000  # from so many simulations on, the table needs the data
MOST, SD, R, PAIRED = 8, 0.008, 0.75, 0.9
NUMBERS = (2, 3, 5, 8)
RIGHT = -0.84  # four fifths of predictions lie above and count as right
ALTERNATIVES = ("pairs", "clusters", "dyadic-robust", "node resampling")
NORMAL = float(stats.norm.ppf((1 + LEVEL) / 2))


@dataclass(frozen=True)
class Graph:
    """Pairs of sentences over all tasks.

    Args:
        first: (pairs,) numbers of first sentences; ``second`` those of second ones.
        pair: (pairs,) numbers of distinct pairs, since tasks repeat some.
        cluster: (pairs,) numbers of clusters.
        tasks: The pairs of each task.
        sharing: (pairs, pairs), 1 for pairs with a common sentence.
        incidence: (sentences, pairs), 1 for the sentences of a pair.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    pair: NDArray[np.intp]
    cluster: NDArray[np.intp]
    tasks: dict[str, slice]
    sharing: sparse.csr_matrix
    incidence: sparse.csr_matrix

    def draw(self, rng: np.random.Generator, share: float, topic: float, runs: int) -> Array:
        """Draw (runs, pairs) of variance 1 with effects of sentences, pairs and clusters."""
        sentences = rng.normal(size=(runs, self.incidence.shape[0]))
        pairs = rng.normal(size=(runs, self.pair.max() + 1))
        values = np.sqrt(share / 2) * (sentences[:, self.first] + sentences[:, self.second])
        values += np.sqrt(1 - share) * pairs[:, self.pair]
        if topic:
            clusters = rng.normal(size=(runs, self.cluster.max() + 1))
            values = np.sqrt(1 - topic) * values + np.sqrt(topic) * clusters[:, self.cluster]
        return np.asarray(values)

    def variances(self, values: Array, tasks: slice) -> dict[str, float]:
        """Variance of the sum of (pairs,) values by each of ALTERNATIVES."""
        sharing, incidence = self.sharing[tasks, tasks], self.incidence[:, tasks]
        found = {
            "pairs": values @ values,
            "clusters": np.sum(np.bincount(self.cluster[tasks], values) ** 2),
            "dyadic-robust": values @ (sharing @ values),
            "node resampling": np.sum((incidence @ values) ** 2),
        }
        return {name: max(0.0, float(variance)) for name, variance in found.items()}


@cache
def real_graph() -> Graph:
    """The graph of the suite's pairs."""
    tasks = load_suite(SUITE, DataSource(data_folder(None)))[1]
    numbers: dict[str, int] = {}
    pairs: list[list[int]] = []
    ends = {}
    for task in tasks:
        start = len(pairs)
        for one, other in task.all_pairs():
            keys = identify_sentence(one), identify_sentence(other)
            pairs.append([numbers.setdefault(key, len(numbers)) for key in keys])
        ends[task.id] = slice(start, len(pairs))
    first, second = np.array(pairs).T
    _, distinct = np.unique(np.sort(np.array(pairs), axis=1), axis=0, return_inverse=True)
    columns = np.tile(np.arange(len(pairs)), 2)
    ones = np.ones(2 * len(pairs))
    incidence = sparse.csr_matrix((ones, (np.r_[first, second], columns)), (len(numbers), len(pairs)))
    incidence.data[:] = 1
    sharing = sparse.csr_matrix(incidence.T @ incidence)
    sharing.data[:] = 1
    labels = np.concatenate(cluster_items([list(task.all_pairs()) for task in tasks]))
    return Graph(first, second, distinct.ravel(), labels, ends, sharing, incidence)


@dataclass(frozen=True)
class Sharing:
    """A design: the sentences' share of the variance, and the topics'."""

    share: float
    topic: float = 0.0

    @property
    def name(self) -> str:
        """The design's name."""
        return f"sentences {100 * self.share:.0f}%{', topics' if self.topic else ''}"


DESIGNS = (Sharing(0.3), Sharing(0.6), Sharing(0.5, TOPIC))


class Simulation:
    """Two methods on one draw of all sentences and pairs.

    Runs "c" are b's with seeds that correlate with a's; "x" and "y" are one checkpoint each.
    """

    def __init__(self, graph: Graph, design: Sharing, rng: np.random.Generator) -> None:
        self.graph, self._of = graph, (design.share, design.topic)
        latent, shared, of_a, of_b = graph.draw(rng, *self._of, 4)
        self.gold = graded(latent)
        seeds = rng.normal(size=(2, MOST))
        noise = [graph.draw(rng, *self._of, MOST) for _ in range(2)]
        rest = np.sqrt(1 - PAIRED**2)
        seeds_c = PAIRED * seeds[0] + rest * seeds[1]
        noise_c = PAIRED * noise[0] + rest * noise[1]
        self.runs = {}
        for name, of, own, each in (
            ("a", of_a, seeds[0], noise[0]),
            ("b", of_b, seeds[1], noise[1]),
            ("c", of_b, seeds_c, noise_c),
        ):
            r = (R + SD * own)[:, None]
            both = np.sqrt(0.6) * shared + np.sqrt(0.2) * of + np.sqrt(0.2) * each
            self.runs[name] = r * latent + np.sqrt(1 - r**2) * both
        for name, of in (("x", of_a), ("y", of_b)):  # checkpoints that are equal over all items
            both = np.sqrt(0.6) * shared + np.sqrt(0.4) * of
            self.runs[name] = (R * latent + np.sqrt(1 - R**2) * both)[None]

    def sample(self, rng: np.random.Generator, methods: str, runs: int, draws: int) -> SuiteDraws:
        """Draws of the clusters, with the first runs of each method."""
        tasks = self.graph.tasks
        predictions = {}
        for name in methods:
            predictions[name] = {task: self.runs[name][:runs, items] for task, items in tasks.items()}
        gold = {task: self.gold[items] for task, items in tasks.items()}
        clusters = {task: self.graph.cluster[items] for task, items in tasks.items()}
        return draw_suite(predictions, gold, rng, draws, clusters)


Held = dict[tuple[str, str, int, int, float | None, str], list[float]]


def shared_sentences(sizes: Sizes) -> Iterator[CoverageRow]:
    """Seeds and items, and items alone, where pairs share sentences; a few without data are left out."""
    try:
        graph = real_graph()
    except BenchError as error:
        if sizes.few >= FULL:
            raise
        print(f"shared_sentences: left out, {error}", file=sys.stderr)
        return
    for design in DESIGNS:
        rng = make_generator(0, f"coverage/{design.name}")
        held: Held = {}
        scores: list[tuple[dict[str, float], dict[str, tuple[float, float]]]] = []
        for _ in range(max(1, sizes.few // 5)):
            simulation = Simulation(graph, design, rng)
            _test_seeds_and_items(held, simulation.sample(rng, "abc", MOST, DRAWS))
            _test_checkpoints(held, scores, simulation, rng)
            _test_classes(held, graph, design, rng)
        for task in (*graph.tasks, AVERAGE):
            true = float(np.mean([own[task] for own, _ in scores]))
            found = [ends[task][0] <= true <= ends[task][1] for _, ends in scores]
            held["item bootstrap, one run", task, 1, 1, None, ITEMS] = list(map(float, found))
        for (method, task, n_a, n_b, r, target), found_of in held.items():
            where = design.name if task == AVERAGE else f"{design.name}, {task}"
            nominal = ALPHA if method in TESTS else LEVEL
            yield row(method, Setting(where, (n_a, n_b), r), found_of, nominal, target)


TESTS = ("clustered test", "williams", "steiger", "mcnemar", "mcnemar by clusters")


def _test_seeds_and_items(held: Held, sample: SuiteDraws) -> None:
    """Intervals for further seeds and items, of the average."""

    def add(method: str, n: tuple[int, int], r: float | None, low: float, high: float) -> None:
        held.setdefault((method, AVERAGE, *n, r, BOTH), []).append(float(low <= 0 <= high))

    for n in NUMBERS:
        start = {name: rows.start for name, rows in sample.rows.items()}
        rows = {name: slice(first, first + n) for name, first in start.items()}
        own = SuiteDraws(rows, sample.tasks, sample.pairs, sample.observed, sample.draws, sample.units)
        found = variance_components(own, "a", "b")
        add("components", (n, n), None, found.low, found.high)
        found = variance_components(own, "a", "c", paired=True)
        add("components, paired", (n, n), PAIRED, found.low, found.high)
        alone = paired_bootstrap(own, "a", "b")[AVERAGE]
        add("item bootstrap", (n, n), None, alone.low, alone.high)


def _test_checkpoints(
    held: Held,
    scores: list[tuple[dict[str, float], dict[str, tuple[float, float]]]],
    simulation: Simulation,
    rng: np.random.Generator,
) -> None:
    """Intervals and tests of two checkpoints, of every task and the average."""
    graph, sample = simulation.graph, simulation.sample(rng, "xy", 1, 5 * DRAWS)
    a, b = simulation.runs["x"][0], simulation.runs["y"][0]
    influence = np.empty(len(a))

    def add(method: str, task: str, found: bool) -> None:
        held.setdefault((method, task, 1, 1, None, ITEMS), []).append(float(found))

    bootstrap = paired_bootstrap(sample, "x", "y")
    for task, test in bootstrap.items():
        add("paired bootstrap", task, test.low <= 0 <= test.high)
    for task, items in graph.tasks.items():
        gold = simulation.gold[items]
        values = spearman_influence(np.stack([a[items], b[items]]), gold)
        influence[items] = (values[0] - values[1]) / len(gold)
        for name, variance in graph.variances(influence[items], items).items():
            add(name, task, abs(bootstrap[task].difference) <= NORMAL * np.sqrt(variance))
        test_of = clustered_test(a[items], b[items], gold, graph.cluster[items])
        add("clustered test", task, test_of.p <= ALPHA)
        rho = spearman_rows(np.stack([a[items], b[items]]), gold)
        triple = float(rho[0]), float(rho[1]), float(spearman_rows(a[items], b[items])[0])
        add("williams", task, williams(*triple, len(gold)).p <= ALPHA)
        add("steiger", task, steiger(*triple, len(gold)).p <= ALPHA)
    everything = slice(0, len(a))
    for name, variance in graph.variances(influence / len(graph.tasks), everything).items():
        add(name, AVERAGE, abs(bootstrap[AVERAGE].difference) <= NORMAL * np.sqrt(variance))
    observed, drawn = sample.select("x")
    columns = np.concatenate([drawn[:, 0], drawn[:, 0].mean(1, keepdims=True)], axis=1)
    low, high = np.quantile(columns, [ALPHA / 2, 1 - ALPHA / 2], axis=0).tolist()
    names = (*sample.tasks, AVERAGE)
    own = dict(zip(names, [*observed[0].tolist(), float(observed[0].mean())], strict=True))
    scores.append((own, dict(zip(names, zip(low, high, strict=True), strict=True))))


def _test_classes(held: Held, graph: Graph, design: Sharing, rng: np.random.Generator) -> None:
    """Shares of right answers of two classifiers of equal expectation, of every task."""
    shared, *own = graph.draw(rng, design.share, design.topic, 3)
    a, b = (np.sqrt(0.6) * shared + np.sqrt(0.4) * each > RIGHT for each in own)
    true = float(stats.norm.sf(RIGHT))
    for task, items in graph.tasks.items():
        right, clusters = a[items].astype(np.float64), graph.cluster[items]
        share = float(right.mean())
        sizes = np.bincount(clusters)
        variance = np.sum(np.bincount(clusters, right - share) ** 2) / len(right) ** 2
        number = effective_items(share, variance, len(right), len(right) ** 2 / float(sizes @ sizes))
        for method, count in (("wilson", len(right)), ("wilson by clusters", number)):
            low, high = wilson_interval(share, count)
            held.setdefault((method, task, 1, 1, None, ITEMS), []).append(float(low <= true <= high))
        for method, of in (("mcnemar", None), ("mcnemar by clusters", clusters)):
            p = mcnemar(a[items], b[items], of).p
            held.setdefault((method, task, 1, 1, None, ITEMS), []).append(float(p <= ALPHA))


PARTS = (shared_sentences,)
