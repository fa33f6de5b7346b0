"""Cropping: two spans of a text are its views, with dropout beside them or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bench.baselines._trained import TrainedApart
from bench.card import DROPOUT, MethodCard, Need, Option, OptionValue
from bench.errors import InputError
from bench.registry import add_method
from bench.stages import StageSpec
from bench.train.recipe import POOLING_OPTION, TEXT_OPTION, training_options


@add_method
class Crop(TrainedApart):
    """Cropping."""

    card = MethodCard(
        name="crop",
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
                "two spans of the text; or, told apart by dropout alone, the text twice, or one span twice "
                "(released for comparison)",
                ("crop", "dropout", "dropout_span"),
            ),
            Option(
                "unit",
                "word",
                "what a span consists of: words between blanks, subwords of the cut text, or sentences",
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
                "vector that is trained: mean of the states (published), or [CLS]",
                ("avg", "cls"),
            ),
            Option("warmup", 0.1, "share of the steps over which the rate rises", minimum=0, maximum=1),
            *training_options(lr=2e-5, clip=0.0),
            TEXT_OPTION,
            replace(POOLING_OPTION, default="avg"),
        ),
        deviations=(
            "released: texts are abstracts of several sentences, spans are 2 of their sentences "
            "(unit=sentence,length=2,max_length=512); words by default, for a text of one sentence a line",
            "released: texts with fewer than two spans are left out; here they are their own two views",
            "dropout stays on beside crops, as released; dropout=0 leaves crops alone",
            "released: 10 % of the first epoch's steps warm up; here of all steps, the same for one epoch",
            "spans are drawn anew in every epoch, as released; here from each sentence's own stream",
            "checkpoint selected on the dev set every 125 steps; released: the last one",
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage.

        Raises:
            InputError: a share above 1, or no length between the shortest and the longest sentence.
        """
        share, bounds = (
            float(options["share"]),
            [int(options[f"{end}_sentence"]) for end in ("shortest", "longest")],
        )
        if share > 1:
            raise InputError(f"share {share:g}", where="crop.share", expected="0 to 1")
        if bounds[0] > bounds[1]:
            raise InputError(
                f"no sentence has {bounds[0]} characters or more and {bounds[1]} or fewer",
                where="crop.shortest_sentence",
                expected=f"at most crop.longest_sentence, {bounds[1]}",
            )
        return super().stages(options)
