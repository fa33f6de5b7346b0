"""What objectives on labelled pairs share: the token rows of their columns, and the contrastive loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import nn
from bench.stages import StageContext


class PairColumns:
    """Token rows of the positives and, where there are any, of the hard negatives.

    Args:
        tokenizer: The model's.
        context: The stage.
    """

    def __init__(self, tokenizer: Any, context: StageContext) -> None:
        longest = int(context.config["max_length"])
        others = filter(None, (context.partners, context.negatives))
        self._others = [nn.TokenRows(tokenizer, column, longest) for column in others]

    @property
    def count(self) -> int:
        """Columns, the sentences' own among them: 2 of pairs, 3 of triplets."""
        return 1 + len(self._others)

    def rows(self, batch: Sequence[tuple[int, list[int]]]) -> list[list[int]]:
        """Return a batch's sentences, then their positives, then their hard negatives."""
        own = [row for _, row in batch]
        return [*own, *(column[number] for column in self._others for number, _ in batch)]
