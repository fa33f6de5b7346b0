"""EvalRank's data: the positive pairs, and the sentences among which a partner is ranked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bench.data.tasks import PairTask

TOP = 0.25  # share of the pairs that are positive, by gold score (Wang et al. 2022, their slides)
NOTE = (
    "EvalRank on STS-B's own pairs and sentences (train, dev, test); the published figures add those of STR."
)


@dataclass(frozen=True)
class RankTask:
    """A retrieval task on sentence pairs."""

    id: str
    pairs: tuple[tuple[str, str], ...]  # positive; each is a query in both directions
    background: tuple[str, ...]  # distinct sentences that are ranked
    reference: bool = True  # everybody else has the same data

    @property
    def items(self) -> int:
        """Number of queries: two a pair."""
        return 2 * len(self.pairs)

    @property
    def queries(self) -> tuple[tuple[str, str], ...]:
        """Every query and its partner, both directions of a pair in turn."""
        return tuple(query for one, other in self.pairs for query in ((one, other), (other, one)))

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of pairs and background."""
        return hashlib.sha256(json.dumps([self.id, self.pairs, self.background]).encode()).hexdigest()


def make_rank_task(name: str, tasks: Sequence[PairTask], *, reference: bool = True) -> RankTask:
    """Make a retrieval task of graded pairs, as EvalRank's lists were made.

    The quarter of all pairs with the highest gold scores is positive; of equal scores the first, in
    the order of the tasks. The background is every distinct sentence.

    >>> from bench.data.tasks import PairSubset
    >>> subset = PairSubset("all", ("a", "b", "c", "d"), ("e", "f", "a", "g"), (1.0, 5.0, 5.0, 2.0))
    >>> task = make_rank_task("tiny", [PairTask("tiny", (subset,))])
    >>> task.queries, task.background
    ((('b', 'f'), ('f', 'b')), ('a', 'e', 'b', 'f', 'c', 'd', 'g'))
    """
    pairs = [pair for task in tasks for pair in task.all_pairs()]
    gold = [score for task in tasks for subset in task.subsets for score in subset.gold]
    best = sorted(range(len(pairs)), key=lambda row: -gold[row])[: round(TOP * len(pairs))]
    background = dict.fromkeys(sentence for pair in pairs for sentence in pair)
    return RankTask(name, tuple(pairs[row] for row in best), tuple(background), reference)
