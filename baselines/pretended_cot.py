"""Pretended chain of thought and knowledge enhancement: PromptEOL's prompt behind a lead-in, untrained."""

from __future__ import annotations

from dataclasses import replace

from bench import nn
from bench.baselines.prompteol import FORM, PROMPT_DEVIATIONS, RELEASED_FORM, PromptEol
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.method_card import BuildContext, MethodCard, Option
from bench.registry import add_method

PRETENDED_COT = 'After thinking step by step , this sentence : "{sentence}" means in one word:"'
"""Zhang et al. 2024, released."""
KNOWLEDGE = (
    "The essence of a sentence is often captured by its main subjects and actions, while descriptive terms "
    'provide additional but less central details. With this in mind , this sentence : "{sentence}" means in '
    'one word:"'
)
"""Zhang et al. 2024, released."""
OUTPUT_LAYER = Option(
    "output_layer",
    -2,
    "layer of the states, from the end: -1 the last (with the final norm), -2 the one before it",
    maximum=-1,
)
_PAPER = (
    "Zhang, Chang, Li 2024, Simple Techniques for Enhancing Sentence Embeddings in Generative Language Models"
)


def _make_card(name: str, printed: str, summary: str, instead: str, template: str) -> MethodCard:
    card = PromptEol.card
    prompt = template.replace("{sentence}", "s")
    return replace(
        card,
        name=name,
        printed=printed,
        summary=summary,
        instead=f"no training; a one-word prompt {instead}",
        cites=("zhang-etal-2024-simple",),
        paper=_PAPER,
        code="ZBWpro/PretCoTandKE ad3a799 settings.py, evaluation.py",
        equations=(
            f"x = {prompt}",
            "v_s = h_n of the last layer but one (output_layer), n the last token of x",
            RELEASED_FORM,
        ),
        options=(replace(card.options[0], default=template), FORM, OUTPUT_LAYER),
        deviations=PROMPT_DEVIATIONS,
    )


class LeadIn(PromptEol):
    """Base of a prompt with a lead-in: a subclass adds the card."""

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        if context.model is None:
            raise BenchError("no model folder was given")
        options = context.options
        return nn.OneWordEncoder(
            context.model,
            str(options["template"]),
            form=str(options["form"]),
            layer=int(options["output_layer"]),
            device=context.device,
        )


@add_method
class PretendedCot(LeadIn):
    """PromptEOL after the words "After thinking step by step"."""

    card = _make_card(
        "pretended_cot",
        "Pretended CoT",
        "pretended_cot:PATH, prompteol after 'After thinking step by step', untrained",
        "that begins with 'After thinking step by step'",
        PRETENDED_COT,
    )


@add_method
class KnowledgeEnhancement(LeadIn):
    """PromptEOL after a sentence on what matters in sentences."""

    card = _make_card(
        "knowledge_enhancement",
        "Knowledge Enhancement",
        "knowledge_enhancement:PATH, prompteol after a hint that subjects and actions matter, untrained",
        "after a hint that subjects and actions matter",
        KNOWLEDGE,
    )
