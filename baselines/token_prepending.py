"""Token Prepending: a prompt's last state, put before the sentence from layer to layer, without training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import nn
from bench.baselines.metaeol import COST, PROMPTS
from bench.baselines.pretended_cot import KNOWLEDGE, OUTPUT_LAYER, PRETENDED_COT
from bench.baselines.prompteol import FORM, PROMPT_DEVIATIONS, RELEASED_FORM, PromptEol
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.method_card import BuildContext, Option, OptionValue
from bench.registry import add_method

_PROMPTS = {
    "prompteol": (str(PromptEol.card.defaults["template"]),),
    "pretended_cot": (PRETENDED_COT,),
    "knowledge_enhancement": (KNOWLEDGE,),
    "metaeol": PROMPTS,
}


@add_method
class TokenPrepending(PromptEol):
    """A one-word prompt with a placeholder before the sentence, which takes the prompt's last state."""

    card = replace(
        PromptEol.card,
        name="token_prepending",
        instead="no training; a one-word prompt; its last state is put before the sentence, layer by layer",
        cites=("fu-etal-2025-token",),
        printed="Token Prepending",
        summary="token_prepending:PATH, a prompt with its last state put before the sentence, untrained",
        paper="Fu et al. 2025, Token Prepending: A Training-Free Approach for Eliciting Better Sentence "
        "Embeddings from LLMs",
        code="fuyuchenIfyw/token_prepending cc41b58 evaluate.py, senllm/modeling_llama.py",
        equations=(
            'x = This sentence : <PST> "s" means in one word:"',
            "<PST> starts as a vector of N(0, I); before each layer l, start <= l < end: h_PST = h_n, n the "
            "last token of x",
            "v_s = h_n of the layer output_layer; prompt=metaeol: the mean over its eight prompts",
            RELEASED_FORM,
        ),
        options=(
            Option("prompt", "prompteol", "the prompt that the placeholder is put into", tuple(_PROMPTS)),
            Option("start", 1, "first layer, from 0, before which the last state is put", minimum=0),
            Option(
                "end",
                7,
                "first layer without; beyond the last for all (released: by model, 3 to 7)",
                minimum=1,
            ),
            FORM,
            OUTPUT_LAYER,
        ),
        deviations=(
            *PROMPT_DEVIATIONS,
            "released: layer 27 of 32 for Llama-2-7B with prompteol's prompt (output_layer=-6)",
            "the placeholder's vector is drawn from the run's seed; released: from torch's state, "
            "unseeded on the CPU",
        ),
        deterministic=False,
    )

    def check_backbone(self, facts: Any, options: Mapping[str, OptionValue]) -> None:
        """Raise InputError, in the plan, for layers that the model lacks or that leave its vectors alone."""
        if facts.causal and facts.layers is not None:
            start, end, layer = (int(options[name]) for name in ("start", "end", "output_layer"))
            nn.check_prepended_layers(start, end, layer, facts.layers)

    @staticmethod
    def folder_note(folder: Path, options: Mapping[str, OptionValue]) -> str:
        """Return the dry run's note on the time that several prompts take."""
        return COST if len(_PROMPTS[str(options["prompt"])]) > 1 else ""

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder; its seed draws the placeholder's vector."""
        if context.model is None or context.seed is None:
            raise BenchError("no model folder or seed was given")
        options = context.options
        prompts = _PROMPTS[str(options["prompt"])]
        return nn.PrependedEncoder(
            context.model,
            [prompt.replace('"{', '<PST> "{') for prompt in prompts],
            start=int(options["start"]),
            end=int(options["end"]),
            seed=context.seed,
            form=str(options["form"]),
            layer=int(options["output_layer"]),
            device=context.device,
        )
