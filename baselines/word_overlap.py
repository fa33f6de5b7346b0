"""Word overlap: what can be had without any network."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from bench.encoder import FloatArray, PairScorer, check_pairs
from bench.method_card import BuildContext, MethodCard
from bench.registry import add_method

_WORD = re.compile(r"[^\W_]+")


def split_words(sentence: str) -> frozenset[str]:
    """Distinct lower-cased words: runs of letters and digits of any script."""
    return frozenset(_WORD.findall(sentence.lower()))


class WordOverlapScorer:
    """Cosine of the binary word vectors of two sentences."""

    def __init__(self) -> None:
        self.facts: dict[str, str | int] = {}

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
        """Return float32 (n,) in [0, 1]: |A and B| / sqrt(|A| |B|), 0 where a sentence has no word."""
        check_pairs(first, second)
        scores = np.zeros(len(first), dtype=np.float32)
        for row, (a, b) in enumerate(zip(map(split_words, first), map(split_words, second), strict=True)):
            if a and b:
                scores[row] = len(a & b) / np.sqrt(len(a) * len(b))
        return scores


@add_method
class WordOverlap:
    """SemEval's token-cosine baseline."""

    card = MethodCard(
        name="word_overlap",
        printed="Word overlap",
        family="untrained",
        instead="no network; the words that two sentences share",
        cites=("agirre-etal-2012-semeval",),
        kind="baseline",
        summary="cosine of binary word vectors, without a network",
        version=1,
        paper="Agirre et al. 2012 (SemEval-2012 Task 6), baseline 'tokencos'",
        equations=("|A and B| / sqrt(|A| |B|) over the sets of words of the two sentences",),
        deviations=("words are runs of letters and digits, lower-cased; SemEval splits at white space",),
        deterministic=True,
        needs_backbone=False,
        scores_pairs=True,
    )

    def build(self, context: BuildContext) -> PairScorer:
        """Return the scorer."""
        return WordOverlapScorer()
