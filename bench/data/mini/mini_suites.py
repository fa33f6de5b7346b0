"""The world's suites, except its graded pairs.

They replace suites of real data in runs of the world; profiles list which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.data.data_source import World

if TYPE_CHECKING:
    from bench.data.contrast_items import ContrastTask
    from bench.data.local_tasks import LocalTask
    from bench.data.tasks import LabelledTask


@dataclass(frozen=True)
class MiniSuite:
    """A suite of the world."""

    summary: str
    tasks: tuple[str, ...]  # in the tables' order
    score: str = ""  # mteb's name of the reported score, "" for each task's main score
    note: str = ""  # added to the note of every record and table


MTEB_SUITES = {
    "mini-classification": MiniSuite(
        "topics, actions and negation of the embedded world",
        ("MiniTopicClassification", "MiniActionClassification", "MiniNegationClassification"),
    ),
    "mini-retrieval": MiniSuite(
        "MAP@10 of the embedded world: the same in other words, and the same action",
        ("MiniParaphraseRetrieval", "MiniActionRetrieval"),
        "map_at_10",
    ),
    "mini-reranking": MiniSuite(
        "reranking in the embedded world: the same in other words, and the same action",
        ("MiniParaphraseReranking", "MiniActionReranking"),
    ),
    "mini-bitext": MiniSuite(
        "a sentence of the embedded world and its paraphrase: no translation",
        ("MiniParaphraseBitext", "MiniGeneralBitext"),
        note="Its bitext pairs a sentence with its paraphrase in the same language: nothing is translated.",
    ),
    "mini-sts": MiniSuite(
        "test pairs of suite mini whose sentences share few, some and many words",
        ("MiniSTS-few", "MiniSTS-some", "MiniSTS-many"),
    ),
    "mini-mteb": MiniSuite(
        "tasks of the embedded world in the seven categories of MTEB(eng, v1)",
        (
            "MiniActionClassification",
            "MiniNegationClassification",
            "MiniTopicClustering",
            "MiniPairClassification",
            "MiniParaphraseReranking",
            "MiniParaphraseRetrieval",
            "MiniSTS",
            "MiniSummarisation",
        ),
    ),
}
TRANSFER_SUITE = MiniSuite(
    "topic, negation and paraphrase in the embedded world: accuracy of logistic regression",
    ("MINI-topic", "MINI-negation", "MINI-same"),
)

CONTRAST_SUITE = MiniSuite(
    "minimal pairs of the embedded world: a paraphrase against a distractor, accuracy",
    ("negation", "swap", "number", "antonym", "order"),
    note="Chance is 50, a tie counts half.",
)

RANK_SUITE = MiniSuite(
    "EvalRank on suite mini: the partner of each of its best pairs among all its sentences, MRR",
    ("EvalRank",),
)


def draw_mteb_tasks(suite: str, world: World) -> list[LocalTask]:
    """Return the tasks of one of :data:`MTEB_SUITES`."""
    from bench.data.mini.mini_tasks import draw_mteb_task  # few runs need the generator

    return [draw_mteb_task(name, world.seed) for name in MTEB_SUITES[suite].tasks]


def draw_transfer_tasks(world: World) -> list[LabelledTask]:
    """Return the tasks of ``mini-transfer``."""
    from bench.data.mini.mini_tasks import draw_transfer_task

    return [draw_transfer_task(name, world.seed) for name in TRANSFER_SUITE.tasks]


def draw_contrast_tasks(world: World) -> list[ContrastTask]:
    """Return the tasks of ``mini-contrast``."""
    from bench.data.mini.minimal_pairs import draw_contrast_task

    return [draw_contrast_task(phenomenon, world.seed) for phenomenon in CONTRAST_SUITE.tasks]
