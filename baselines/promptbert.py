"""PromptBERT: two templates around a sentence, mask states, and what the template alone says taken away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bench.baselines._trained import ADAMW_EPS, TrainedApart
from bench.card import MASK_TOKEN, MLM_HEAD, POSITIONS, BuildContext, MethodCard, Need, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import StageSpec
from bench.train.recipe import TEXT_OPTION, training_options

PROMPT_POOLING_OPTION = Option(
    "pooling",
    "mask",
    "what the trained encoder's vectors are: mask in its template; all others without one",
    ("mask", "cls", "avg", "avg_first_last", "pooler"),
)


def prompt_training_options(max_length: str, **defaults: OptionValue) -> tuple[Option, ...]:
    """SimCSE's training options with other defaults and another meaning of ``max_length``."""
    return tuple(
        replace(option, help=max_length) if option.name == "max_length" else option
        for option in training_options(**defaults)
    )


@add_method
class PromptBERT(TrainedApart):
    """PromptBERT."""

    card = MethodCard(
        name="promptbert",
        kind="baseline",
        summary="PromptBERT: two templates as views, mask states, template denoising",
        version=1,
        paper="Jiang et al. 2022, PromptBERT: Improving BERT Sentence Embeddings with Prompts",
        code="kongds/Prompt-BERT 690ba6e",
        equations=(
            "h(t, x): last state of the mask token in template t around x",
            "delta(t, l): the same without x, positions behind x shifted by l tokens of x; with gradient",
            "z = tanh(W (h(t1, x) - delta(t1, l)) + b); z' likewise with t2",
            "L = mean_i -log softmax_j(cos(z_i, z'_j) / tau)_i",
            "at inference h(t1, x), without delta and head; a full stop ends x unless . ? \" or ' does",
            "prompt_form=continuous: t1 = t2, vectors v_k in place of its tokens' embeddings; v and the head "
            "alone are trained (OptiPrompt: prompt_head=mlm, denoising=false, lr=3e-5, epochs=5, "
            "eval_every=1000)",
            "prompt_head=mlm: z = f(h(t1, x)) - f(delta(t1, l)), f the dense layer, GELU and LayerNorm under "
            "the masked language model's logits",
        ),
        needs=(
            Need(MASK_TOKEN),
            Need(POSITIONS, "denoising", (True,), instead="denoising=false"),
            Need(MLM_HEAD, "prompt_head", ("mlm",), instead="prompt_head=tanh"),
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("denoising", True, "take delta away in training"),
            Option(
                "noise_positions",
                "released",
                "delta's position ids: from 0 (released), as the model counts (aligned; other for RoBERTa), "
                "or from 0 without the shift by l (unshifted; released delta_no_position)",
                ("released", "aligned", "unshifted"),
            ),
            Option("noise_gradient", True, "gradient through delta too (false: released delta_freeze)"),
            Option(
                "dev_vectors",
                "denoised",
                "what the dev set is scored on: h - delta (released) or h, as the test is",
                ("denoised", "plain"),
            ),
            Option(
                "prompt_form",
                "text",
                "templates are text, or trained vectors around a frozen model (OptiPrompt)",
                ("text", "continuous"),
            ),
            Option(
                "prompt_init",
                "tokens",
                "vectors start as the embeddings of the template's tokens, or at random with std 0.02",
                ("tokens", "random"),
            ),
            Option(
                "prompt_head",
                "tanh",
                "head in training: fresh, or the masked language model's (released org_mlp)",
                ("tanh", "mlm"),
            ),
            Option("template", "auto", "t1: text with {sentence} and {mask}; auto: as released"),
            Option("template2", "auto", "t2, of the second view"),
            Option(
                "test_template",
                "auto",
                "t1 at inference, {sentence.} adds a full stop; auto: as released, or template where given",
            ),
            *prompt_training_options(
                "subwords a sentence keeps in training, the template not included", lr=1e-5, batch_size=256
            ),
            TEXT_OPTION,
            PROMPT_POOLING_OPTION,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "released: the dev set is scored on h - delta, the test on h (dev_vectors=plain: both on h)",
            "released: test sentences get a final full stop, training and dev sentences don't "
            "(test_template with {sentence} in place of {sentence.}: no sentence does)",
            "released: delta's positions start at 0 for RoBERTa too, whose sentences start at 2 "
            "(noise_positions=aligned)",
            "delta is computed for the batch's lengths; the released code tabulates 0 to 49 each step, on "
            "the dev set 0 to 127, and fails on longer sentences",
            "a mask token in the text itself is left out",
            "released OptiPrompt, for BERT alone: a vector goes to the last place of its token in a row, so "
            "the opening quote's is never read, and a sentence with the word takes it; here each has its own "
            "place, as a token [PROMPTk] of the vocabulary",
            "released: where vectors are trained, delta on the dev set still reads the template's text",
            ADAMW_EPS,
        ),
        published_names=(("promptbert", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage; the test's template isn't one of its settings."""
        (stage,) = super().stages(options)
        config = tuple((name, value) for name, value in stage.config if name != "test_template")
        return (replace(stage, config=config),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint: template and mask token."""
        from bench.baselines import _promptbert

        return _promptbert.tested_encoder(context)
