"""Tasks of the world, of mteb's kinds and SentEval's, drawn from its test events, each from its own stream.

Likeness is graded as in :func:`bench.data.mini.generator.draw_pairs`. A change of the draws raises GENERATOR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from bench.data.data_source import GENERATOR, World
from bench.data.local_tasks import LocalTask, Row
from bench.data.mini.generator import draw_customs, draw_partner, sample_event, word_cosine
from bench.data.mini.grammar import Draw, Event, realise
from bench.data.mini.world_text import graded_pairs
from bench.data.tasks import LabelledSplit, LabelledTask

Rows = tuple[Row, ...]
Tables = dict[str, Rows]
Label = Callable[[Event], str]

_STS_PAIRS = 200


class _EventSource:
    """Test events of a world and their distinct wordings."""

    def __init__(self, seed: int, task: str) -> None:
        self.seed, self.world = seed, draw_customs(seed)
        self.draw = Draw(f"mini/{GENERATOR}/{seed}/tasks/{task}")
        self._said: set[str] = set()

    def event(self, topic: int | None = None) -> Event:
        return sample_event(self.world, self.draw, "test", topic)

    def say(self, event: Event, general: float = 0.0) -> str:
        while True:
            text = realise(event, self.world.lexicon, self.draw, general=general)
            if text not in self._said:
                self._said.add(text)
                return text

    def around(self, grades: Sequence[int]) -> tuple[Event, list[str]]:
        """Draw an event, and a sentence of each likeness to it."""
        while True:
            event = self.event()
            partners = [draw_partner(self.world, self.draw, "test", event, grade) for grade in grades]
            if all(partners):
                return event, [self.say(*partner) for partner in partners if partner]

    def labelled(self, label: Label, labels: int, count: int, topic: int | None = None) -> Rows:
        """Draw rows of sentence and label, ``count`` of each label."""
        rows: list[Row] = []
        counts: Counter[str] = Counter()
        while len(rows) < labels * count:
            event = self.event(topic)
            if counts[label(event)] < count:
                counts[label(event)] += 1
                rows.append((self.say(event), label(event)))
        return tuple(rows)

    def topic(self, event: Event) -> str:
        return self.world.lexicon.topics[event.topic].name

    def action(self, event: Event) -> str:
        return self.world.lexicon.topics[event.topic].frames[event.frame].verb.words[0]


def _negation_label(event: Event) -> str:
    return "no" if event.negated else "yes"


def _draw_topic_rows(source: _EventSource, **sizes: int) -> Tables:
    count = len(source.world.lexicon.topics)
    return {split: source.labelled(source.topic, count, size) for split, size in sizes.items()}


def _draw_action_rows(source: _EventSource) -> Tables:
    """Draw sentences of one topic, labelled with their action."""
    topic = source.draw.below(len(source.world.lexicon.topics))
    count = len(source.world.lexicon.topics[topic].frames)
    return {split: source.labelled(source.action, count, 20, topic) for split in ("train", "test")}


def _draw_paraphrase_retrieval(source: _EventSource) -> Tables:
    """Draw queries with another wording among near misses."""
    corpus: list[Row] = []
    queries: list[Row] = []
    qrels: list[Row] = []
    for number in range(100):
        event, documents = source.around((5, 3, 2, 1))
        queries.append((f"q{number}", source.say(event)))
        qrels.append((f"q{number}", f"d{len(corpus)}", "1"))
        corpus += [(f"d{len(corpus) + i}", text) for i, text in enumerate(documents)]
    return {"corpus": tuple(corpus), "queries": tuple(queries), "qrels": tuple(qrels)}


def _draw_action_retrieval(source: _EventSource) -> Tables:
    """Draw queries whose relevant documents have the same action."""
    documents = [source.event() for _ in range(300)]
    corpus = tuple((f"d{i}", source.say(event)) for i, event in enumerate(documents))
    queries: list[Row] = []
    qrels: list[Row] = []
    while len(queries) < 100:
        event = source.event()
        same = [i for i, d in enumerate(documents) if (d.topic, d.frame) == (event.topic, event.frame)]
        if same:
            qrels += [(f"q{len(queries)}", f"d{i}", "1") for i in same]
            queries.append((f"q{len(queries)}", source.say(event)))
    return {"corpus": corpus, "queries": tuple(queries), "qrels": tuple(qrels)}


def _draw_reranking(source: _EventSource, relevant: Sequence[int], others: Sequence[int]) -> Tables:
    """Draw candidates of the relevant grades and of others, shuffled."""
    rows: list[Row] = []
    for _ in range(60):
        event, texts = source.around((*relevant, *others))
        query = source.say(event)
        judged = [(query, text, str(int(i < len(relevant)))) for i, text in enumerate(texts)]
        while judged:
            rows.append(judged.pop(source.draw.below(len(judged))))
    return {"file": tuple(rows)}


def _draw_bitext(source: _EventSource, general: float) -> Tables:
    events = [source.event() for _ in range(250)]
    return {"file": tuple((source.say(event), source.say(event, general)) for event in events)}


def _draw_sentence_pairs(source: _EventSource, each: int) -> Rows:
    """Draw pairs that say the same (1), and as many near misses (0)."""
    rows: list[Row] = []
    for _ in range(each):
        for grade, label in ((5, "1"), (source.draw.pick((3, 2, 1)), "0")):
            event, (text,) = source.around((grade,))
            rows.append((source.say(event), text, label))
    return tuple(rows)


def _draw_summaries(source: _EventSource) -> Tables:
    """Draw texts of three sentences; the summary is the first in general words, others get worse."""
    references: list[Row] = []
    summaries: list[Row] = []
    for _ in range(50):
        event, texts = source.around(range(6))
        more = [source.say(source.event(event.topic)) for _ in range(2)]
        text = " ".join([source.say(event), *more])
        references.append((text, source.say(event, 1.0)))
        summaries += [(text, other, str(grade)) for grade, other in enumerate(texts)]
    return {"references": tuple(references), "summaries": tuple(summaries)}


def _draw_sts(source: _EventSource, third: int | None) -> Tables:
    """Return test pairs of suite mini, of all word overlaps or of one third of them."""
    (subset,) = graded_pairs(World(source.seed), "test").subsets
    rows = [*zip(subset.first, subset.second, map("{:g}".format, subset.gold), strict=True)]
    if third is not None:
        rows.sort(key=lambda row: word_cosine(row[0], row[1]))
        count = len(rows)
        rows = rows[third * count // 3 : (third + 1) * count // 3 : max(1, count // (3 * _STS_PAIRS))]
    return {"file": tuple(rows[:_STS_PAIRS])}


_MTEB: dict[str, tuple[str, Callable[[_EventSource], Tables]]] = {
    "MiniTopicClassification": ("classification", lambda s: _draw_topic_rows(s, train=12, test=10)),
    "MiniActionClassification": ("classification", _draw_action_rows),
    "MiniNegationClassification": (
        "classification",
        lambda s: {split: s.labelled(_negation_label, 2, 50) for split in ("train", "test")},
    ),
    "MiniTopicClustering": ("clustering", lambda s: _draw_topic_rows(s, file=25)),
    "MiniPairClassification": ("pair-classification", lambda s: {"file": _draw_sentence_pairs(s, 150)}),
    "MiniParaphraseRetrieval": ("retrieval", _draw_paraphrase_retrieval),
    "MiniActionRetrieval": ("retrieval", _draw_action_retrieval),
    "MiniParaphraseReranking": ("reranking", lambda s: _draw_reranking(s, (5, 5), (3, 3, 2, 2, 1, 1, 0))),
    "MiniActionReranking": ("reranking", lambda s: _draw_reranking(s, (2, 2), (1, 1, 1, 0, 0))),
    "MiniParaphraseBitext": ("bitext", lambda source: _draw_bitext(source, 0.0)),
    "MiniGeneralBitext": ("bitext", lambda source: _draw_bitext(source, 1.0)),
    "MiniSummarisation": ("summarisation", _draw_summaries),
    "MiniSTS": ("sts", lambda source: _draw_sts(source, None)),
    "MiniSTS-few": ("sts", lambda source: _draw_sts(source, 0)),
    "MiniSTS-some": ("sts", lambda source: _draw_sts(source, 1)),
    "MiniSTS-many": ("sts", lambda source: _draw_sts(source, 2)),
}


@cache
def draw_mteb_task(name: str, seed: int) -> LocalTask:
    """Draw a task of :data:`bench.data.mini.mini_suites.MTEB_SUITES`."""
    kind, draw = _MTEB[name]
    return LocalTask(name, kind, "eng-Latn", "test", tuple(draw(_EventSource(seed, name)).items()))


@cache
def draw_transfer_task(name: str, seed: int) -> LabelledTask:
    """Draw a task of suite ``mini-transfer``: topic as TREC's, negation in folds, pairs as MRPC's."""
    source = _EventSource(seed, name)
    if name == "MINI-topic":
        tables = _draw_topic_rows(source, train=20, test=15)
    elif name == "MINI-negation":
        rows = source.labelled(_negation_label, 2, 100)
        tables = {"yes": tuple(row for row in rows if row[1] == "yes")}
        tables["no"] = tuple(row for row in rows if row[1] == "no")
    else:
        tables = {"train": _draw_sentence_pairs(source, 150), "test": _draw_sentence_pairs(source, 100)}
    splits = []
    for split, rows in tables.items():
        first, *second, labels = zip(*rows, strict=True)
        splits.append(LabelledSplit(split, first, second[0] if second else (), labels))
    return LabelledTask(name, tuple(splits))
