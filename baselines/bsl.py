"""BSL: BYOL for sentences, a predictor on the vector of one view finds the slow encoder's of the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench import losses, nn, training
from bench.method_card import (
    AVERAGE,
    DROPOUT,
    ONE_ENCODER,
    HeldEncoder,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.registry import add_method
from bench.stages import TRAIN, StageContext, StageSpec, paired
from bench.training.encoder_options import ENCODER_OPTIONS
from bench.training.recipe import POOLING_OPTION, TrainedOnce, select_option, training_options

COPY = "a"  # the round-trip translated copy that gives each sentence its other view


@add_method
class BSL(TrainedOnce):
    """BSL."""

    least_rows = 2

    card = MethodCard(
        name="bsl",
        printed="BSL",
        family="non-contrastive",
        instead="no negatives; a predictor matches a moving-average encoder's vector of the translation",
        cites=("zhang-etal-2021-bootstrapped",),
        tags=("target network",),
        passes=8.2,
        encoders=(*ONE_ENCODER, HeldEncoder(AVERAGE, views=0)),
        kind="baseline",
        summary="BYOL for sentences: no negatives, a moving-average target, pairs by back-translation",
        version=2,
        paper="Zhang, He, Liu, Bing, Li 2021, Bootstrapped Unsupervised Sentence Representation Learning",
        code="yanzhangnlp/BSL cfacb3b",
        equations=(
            "e = mean of the last layer's states; t the same under the target, phi <- m phi + (1 - m) theta",
            "q: 3 blocks [Linear H to 10H, BatchNorm, ReLU, Linear 10H to 10H, ReLU, Linear 10H to H]",
            "L = mean_i (2 - 2 cos(q(e1_i), t2_i)) + mean_i (2 - 2 cos(q(e2_i), t1_i)), t constant",
            "at inference e, without q",
        ),
        needs=(Need(DROPOUT, "rtt", ("none",), instead="rtt=copies"),),
        options=(
            Option(
                "rtt",
                "copies",
                "a sentence's other view: its round-trip translation (copy a), or (none) other dropout",
                ("copies", "none"),
            ),
            Option("decay", 0.999, "m of the target, 0 to 1", minimum=0, maximum=1),
            Option("blocks", 3, "blocks of the predictor q", minimum=1),
            Option("warmup", 0.1, "share of the steps over which the rate rises", minimum=0, maximum=1),
            Option("drop_last", True, "leave out an epoch's short last batch"),
            Option(
                "adam_eps",
                1e-6,
                "AdamW's eps, added to the root of the second moment before its bias is corrected (released)",
                minimum=1e-12,
            ),
            select_option("best_of_four"),
            *training_options(lr=1e-4, max_length=64, eval_every=1562),
            replace(POOLING_OPTION, default="avg"),
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "pairs of the profile's text; released: back-translated sentences of SNLI and MNLI",
            "dev evaluation every 1,562 steps, 10 % of an epoch of wiki1m; released: 10 % of its own text "
            "and the end of an epoch",
            "released: dev and test sentences too are cut at 64 tokens; here where the input ends",
            "an earlier commit of the released code sends the second view through blocks 1, 2, 2 of q",
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage."""
        name = self.card.name
        config = {key: value for key, value in options.items() if key not in ("rtt", "pooling")}
        text = paired(COPY) if options["rtt"] == "copies" else TRAIN
        settings = tuple(sorted(config.items()))
        return (StageSpec(name, name, self.card.version, settings, self.train, text=text),)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with the bootstrapped loss, as :func:`bench.training.train_towers`."""
        config, tower = context.config, nn.load_backbone(context.model)
        partners = training.build_rows(tower[1], context.partners, config) if context.partners else None

        def objective(model: Any, pad_id: int) -> training.Bootstrap:
            head = training.build_predictor(nn.state_size(model), int(config["blocks"]))
            decay = float(config["decay"])
            return training.Bootstrap(
                model, head, pad_id, loss=losses.byol_loss, decay=decay, partners=partners
            )

        select = str(config["select"])
        return training.train_towers(context, [tower], objective, numbered=True, pooling="avg", select=select)
