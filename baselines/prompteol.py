"""PromptEOL: what a causal language model would say of a sentence in one word, without training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import nn
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.method_card import CAUSAL, BuildContext, MethodCard, Need, Option, OptionValue
from bench.registry import add_method

PROMPT_DEVIATIONS = (
    "padding on the right, unread; released: on the left, with positions from the first token where "
    "the model counts so",
    "a sentence that exceeds the model's input is cut, the prompt is kept; released: SentEval's long "
    "tasks are cut at 500 tokens",
    "a final special token is left out: the prompt's own last token counts",
)
"""Differences of every one-word prompt from the released code."""
FORM = Option(
    "form", "released", "the sentence as the released code writes it, or as it is", ("released", "paper")
)
RELEASED_FORM = (
    "form=released: s ends with a full stop unless it ends with one of . ? \" '; its \" become '; "
    "a ? at its end becomes a full stop"
)
"""What happens to a sentence before it enters a prompt."""


@add_method
class PromptEol:
    """The state from which a causal model predicts the one word."""

    card = MethodCard(
        name="prompteol",
        family="decoders",
        instead="no training; a causal model's state where it would say the meaning in one word",
        cites=("jiang-etal-2024-scaling",),
        kind="external",
        summary="prompteol:PATH, a causal model asked for a sentence's meaning in one word, untrained",
        version=1,
        paper="Jiang et al. 2023, Scaling Sentence Embeddings with Large Language Models",
        code="kongds/scaling_sentemb evaluation.py",
        equations=(
            'x = This sentence : "s" means in one word:"',
            "v_s = h_n of the last layer, n the last token of x: where the word would follow",
            RELEASED_FORM,
        ),
        options=(
            Option(
                "template",
                'This sentence : "{sentence}" means in one word:"',
                "the prompt, with {sentence} once",
            ),
            FORM,
        ),
        deviations=(
            "float32; released: 8-bit weights by default",
            *PROMPT_DEVIATIONS,
            "a demonstration (in-context learning) belongs into the template",
        ),
        deterministic=True,
        needs_backbone=False,
        takes_path=True,
        named_rows=True,
        needs=(Need(CAUSAL),),
    )

    def check_backbone(self, facts: Any, options: Mapping[str, OptionValue]) -> None:
        """Raise InputError, in the plan, for an output layer that the model lacks."""
        layer = options.get("output_layer")
        if facts.causal and facts.layers is not None and layer is not None:
            nn.check_output_layer(int(layer), facts.layers)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        if context.model is None:
            raise BenchError("no model folder was given")
        options = context.options
        return nn.OneWordEncoder(
            context.model, str(options["template"]), form=str(options["form"]), device=context.device
        )
