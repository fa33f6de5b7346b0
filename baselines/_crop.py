"""What cropping trains: two spans of each text, or the same one twice, in one call of the transformer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bench.nn.backbone import load_backbone, token_rows
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.augment import sentences_in, span_length, two_spans
from bench.train.chunks import batch_states, token_batch
from bench.train.objective import Objective
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import train_towers
from bench.train.streams import generator


class CropObjective(Objective):
    """(Sentence number, token row) pairs to InfoNCE between two views, without a head.

    Args:
        model: The transformer.
        pad_id: Padding id.
        context: The stage: its options, its text, and the streams of the spans.
        tokenizer: Reads spans of words and of sentences.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext, tokenizer: Any) -> None:
        super().__init__()
        config, self.context = context.config, context
        self.encoder, self.pad_id, self.tau = model, pad_id, float(config["tau"])
        self.kind, self.unit = str(config["views"]), str(config["unit"])
        self.pooling = str(config["train_pooling"])
        # its own copy: a thread may prepare a step while the dev evaluation uses the tokenizer
        self.tokenizer = copy.deepcopy(tokenizer)
        self.seen = 0

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> TokenBatch:
        """Draw the views: all first ones, after them all second ones."""
        epoch = self.seen // len(self.context.sentences)
        self.seen += len(batch)
        pairs = [self.views(number, row, epoch) for number, row in batch]
        return token_batch([pair[side] for side in (0, 1) for pair in pairs], self.pad_id, self.encoder)

    def compute(self, prepared: TokenBatch) -> Tensor:
        """All views go through one call."""
        anchors, positives = batch_states(self.encoder, prepared, self.pooling).chunk(2)
        return info_nce(anchors, positives, self.tau)

    def views(self, number: int, row: list[int], epoch: int) -> tuple[list[int], list[int]]:
        """Both views of a text, drawn from its own stream: the same in whatever order it comes."""
        if self.kind == "dropout":
            return row, row
        config = self.context.config
        units = self.units(number, row)
        size = span_length(len(units), int(config["length"]), float(config["share"]), int(config["shortest"]))
        draw = generator(self.context.seed, f"augment/{self.context.role}/{epoch}/{number}")
        spans = two_spans(len(units), size, draw)
        if spans is None:
            return row, row
        first, second = (self.joined(row, units[span]) for span in spans)
        return first, first if self.kind == "dropout_span" else second

    def units(self, number: int, row: list[int]) -> list[Any]:
        """What a text's spans consist of."""
        if self.unit == "token":
            return row[1:-1]
        sentence, config = self.context.sentences[number], self.context.config
        if self.unit == "word":
            return sentence.split()
        return sentences_in(sentence, int(config["shortest_sentence"]), int(config["longest_sentence"]))

    def joined(self, row: list[int], span: list[Any]) -> list[int]:
        """The token row of a span."""
        if self.unit == "token":
            return [row[0], *span, row[-1]]
        return token_rows(self.tokenizer, [" ".join(span)], int(self.context.config["max_length"]))[0]


def train(context: StageContext) -> dict[str, Any]:
    """Train on two views of each text: the stage, as :func:`bench.train.sentence_encoder.train_towers`."""
    tower = load_backbone(context.model)
    return train_towers(
        context,
        [tower],
        lambda model, pad_id: CropObjective(model, pad_id, context, tower[1]),
        numbered=True,
        pooling=str(context.config["train_pooling"]),
    )
