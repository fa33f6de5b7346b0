"""DiffCSE: SimCSE, and a discriminator that must find a generator's edits with the sentence vector's help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bench.baselines._trained import ADAMW_EPS, TrainedApart, usual_options
from bench.card import LAYERS, MASKED_LM, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageSpec
from bench.train.recipe import CLS_VIEWS

HEAD_OPTION = Option(
    "head",
    "bn",
    "training-only head: bn (two layers with batch norms, the released script) or tanh (SimCSE's)",
    ("bn", "tanh"),
)


@add_method
class DiffCSE(TrainedApart):
    """DiffCSE."""

    card = MethodCard(
        name="diffcse",
        kind="baseline",
        summary="DiffCSE: SimCSE and replaced-token detection conditioned on the sentence vector",
        version=1,
        paper="Chuang et al. 2022, DiffCSE: Difference-based Contrastive Learning for Sentence Embeddings",
        code="voidism/DiffCSE f724b2c",
        equations=(
            "h = E(x)[0]; p = BN2(W2 ReLU(BN1(W1 h))), statistics over both views; z, z' = p of each view",
            "x'' = argmax G(mask(x; q)) at every position, [CLS] at position 0, no gradient, G's dropout on",
            "r = 1 where x'' differs from x on an attended token; o = c(D(x'' with p in place of [CLS]))",
            "L = mean_i -log softmax_j(cos(z_i, z'_j) / tau)_i + lambda mean_{n,t} CE(o_nt, r_nt)",
            "at inference h of the last layer, without the head",
        ),
        needs=(*CLS_VIEWS, Need(LAYERS), Need(MASKED_LM, of="generator")),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            HEAD_OPTION,
            Option("generator", "backbone", "masked LM that edits: a model folder, a hub name, or backbone"),
            Option("mask", 0.3, "q, share of tokens that are masked for the generator", minimum=0, maximum=1),
            Option("rtd_weight", 0.005, "lambda, weight of replaced-token detection; 0: none", minimum=0),
            Option(
                "rtd_input",
                "after_head",
                "what the discriminator gets: the head's output or h",
                ("after_head", "before_head"),
            ),
            Option(
                "replacement",
                "argmax",
                "the generator's most probable token (released) or one drawn from it (paper)",
                ("argmax", "sample"),
            ),
            Option(
                "edited",
                "all",
                "the generator speaks at every position (released) or at masked ones only (paper)",
                ("all", "masked"),
            ),
            Option(
                "rtd_reduction",
                "cells",
                "mean over all padded cells (released) or sum over a sentence's tokens (paper)",
                ("cells", "sentence"),
            ),
            Option("generator_dropout", True, "the generator's dropout is active (released)"),
            *usual_options(lr=7e-6, epochs=2),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "the generator is the backbone with its own masked-LM head; profiles bert-base and roberta-base "
            "take the released distilbert-base-uncased and distilroberta-base, minilm takes what bench "
            "pretrain --profile minilm-mlm makes",
            "random replacements in masking are ordinary tokens; the released code may draw a special one",
            "a sampled replacement is drawn by inverting the generator's cumulated distribution, a number a "
            "token, instead of a multinomial draw: the same distribution (version 2 of the stage)",
            "rate, mask share and weight for roberta-base are not verified",
            ADAMW_EPS,
        ),
        published_names=(("diffcse", "as published: profile bert-base or roberta-base"),),
        padding_matters=True,
        auxiliaries=("generator",),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage; with sampled replacements its version is 2, see the card's deviations."""
        (stage,) = super().stages(options)
        return (replace(stage, version=2) if options["replacement"] == "sample" else stage,)
