"""Cropping: two spans of a text are its views, with dropout beside them or without."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench import losses, nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import DROPOUT, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, PROMPTLESS, TRAIN_POOLINGS, check_train_pooling
from bench.training.recipe import POOLING_OPTION, TEXT_OPTION, TrainedOnce, training_options


class CropObjective(training.Objective):
    """(Sentence number, token row) pairs to InfoNCE between two views, without a head."""

    def __init__(self, model: Any, pad_id: int, context: StageContext, tokenizer: Any) -> None:
        super().__init__()
        config, self.context = context.config, context
        self.encoder, self.pad_id, self.tau = model, pad_id, float(config["tau"])
        self.kind, self.unit = str(config["views"]), str(config["unit"])
        self.pooling = str(config["train_pooling"])
        # its own copy: a thread may prepare a step while the dev evaluation uses the tokenizer
        self.tokenizer = copy.deepcopy(tokenizer)
        self.prompted: training.PromptedRows | None = None
        if self.pooling == "mask":
            self.prompted = training.PromptedRows(tokenizer, (), int(config["max_length"]))
        self.seen = 0

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> nn.TokenBatch:
        """Draw the views: all first ones, after them all second ones."""
        epoch = self.seen // len(self.context.sentences)
        self.seen += len(batch)
        pairs = [self.views(number, row, epoch) for number, row in batch]
        rows = [pair[side] for side in (0, 1) for pair in pairs]
        return training.token_batch(rows, self.pad_id, self.encoder)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """Encode all views in one call."""
        anchors, positives = training.batch_states(self.encoder, prepared, self.pooling).chunk(2)
        return losses.info_nce(anchors, positives, self.tau)

    def views(self, number: int, row: list[int], epoch: int) -> tuple[list[int], list[int]]:
        """Draw both views of a text from its own stream, whatever the order of the texts."""
        if self.kind == "dropout":
            return row, row
        config = self.context.config
        units = self.units(number, row)
        size = training.span_length(
            len(units), int(config["length"]), float(config["share"]), int(config["shortest"])
        )
        draw = training.generator(self.context.seed, f"augment/{self.context.role}/{epoch}/{number}")
        spans = training.draw_two_spans(len(units), size, draw)
        if spans is None:
            return row, row
        first, second = (self.joined(row, units[span]) for span in spans)
        return first, first if self.kind == "dropout_span" else second

    def units(self, number: int, row: list[int]) -> list[Any]:
        """List the words, subwords or sentences of a text."""
        if self.unit == "token":
            return row[1:-1]
        sentence, config = self.context.sentences[number], self.context.config
        if self.unit == "word":
            return sentence.split()
        bounds = int(config["shortest_sentence"]), int(config["longest_sentence"])
        return training.split_sentences(sentence, *bounds)

    def joined(self, row: list[int], span: list[Any]) -> list[int]:
        """Join the units of a span to a token row."""
        if self.unit == "token":
            return [row[0], *span, row[-1]]
        text = " ".join(span)
        if self.prompted is not None:
            return self.prompted.make(text)
        return nn.tokenize_rows(self.tokenizer, [text], int(self.context.config["max_length"]))[0]


@add_method
class Crop(TrainedOnce):
    """Cropping."""

    card = MethodCard(
        name="crop",
        printed="Cropping",
        family="contrastive",
        adds="two random spans of a text as its views (dropout stays on); mean pooling, no head",
        cites=("gonzalez-marquez-etal-2025-cropping",),
        tags=("spans",),
        passes=6.0,
        kind="baseline",
        summary="two random spans of a text as its views, or dropout views: InfoNCE, mean pooling, no head",
        version=1,
        paper="González-Márquez, Berens, Kobak 2025, Cropping outperforms dropout as an augmentation "
        "strategy for self-supervised training of text embeddings",
        code="berenslab/text-embed-augm 09ac529",
        equations=(
            "v, v': two spans of x, each l units in a row from two different random places; they may overlap",
            "l = length; where that is 0: max(shortest, floor(share n + 1/2)), of the n units of x",
            "views=dropout: v = v' = x; views=dropout_span: v' = v; x with no two spans: v = v' = x",
            "e = mean of the last layer's states of v, specials included; e' of v'",
            "S_ij = cos(e_i, e'_j) / tau; L = mean_i -log softmax(S_i)_i",
            "at inference e of x",
        ),
        needs=(Need(DROPOUT, "views", ("dropout", "dropout_span"), instead="views=crop"),),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option(
                "views",
                "crop",
                "two spans of the text; or dropout views of the text or of one span (released comparisons)",
                ("crop", "dropout", "dropout_span"),
            ),
            Option(
                "unit",
                "word",
                "units of a span: words between blanks, subwords of the cut text, or sentences",
                ("word", "token", "sentence"),
            ),
            Option("length", 0, "units of a span (released: 2 sentences), 0 for a share of them", minimum=0),
            Option("share", 0.5, "share of the text's units that a span has, 0 to 1", minimum=0, maximum=1),
            Option("shortest", 3, "units that a share is at least", minimum=1),
            Option(
                "shortest_sentence", 100, "unit=sentence: characters below which one is left out", minimum=0
            ),
            Option(
                "longest_sentence", 250, "unit=sentence: characters above which one is left out", minimum=1
            ),
            Option(
                "train_pooling",
                "avg",
                "vector that is trained: mean of the states (published), [CLS] or another",
                ("avg", *(pooling for pooling in TRAIN_POOLINGS if pooling != "avg")),
            ),
            Option("warmup", 0.1, "share of the steps over which the rate rises", minimum=0, maximum=1),
            *training_options(lr=2e-5, clip=0.0),
            TEXT_OPTION,
            replace(POOLING_OPTION, default="avg"),
            *ENCODER_OPTIONS[1:],  # its own train_pooling stands above
        ),
        deviations=(
            "released: texts are abstracts of several sentences, spans are 2 of their sentences "
            "(unit=sentence,length=2,max_length=512); words by default, for a text of one sentence a line",
            "released: texts with fewer than two spans are left out; here they are their own two views",
            "crops have dropout too, as released; dropout=0 turns it off",
            "released: 10 % of the first epoch's steps warm up; here of all steps, the same for one epoch",
            "spans are drawn in every epoch, as released; here from each sentence's own stream",
            "checkpoint selected on the dev set every 125 steps; released: the last one",
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: bounds in the wrong order, or spans of a prompt."""
        shortest, longest = int(options["shortest_sentence"]), int(options["longest_sentence"])
        if shortest > longest:
            raise InputError(
                f"shortest_sentence {shortest} is above longest_sentence {longest}",
                where="crop.shortest_sentence",
                expected=f"at most crop.longest_sentence, {longest}",
            )
        if options["unit"] == "token" and options["views"] != "dropout":
            why = "has spans of its prompt's tokens"
            check_train_pooling(self.card.name, options, PROMPTLESS, why, expected="unit=word with it")
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on two views of each text, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        return training.train_towers(
            context,
            [tower],
            lambda model, pad_id: CropObjective(model, pad_id, context, tower[1]),
            numbered=True,
            pooling=str(context.config["train_pooling"]),
        )
