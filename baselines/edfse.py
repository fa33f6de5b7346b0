"""EDFSE: six SimCSE encoders, each on another round-trip translation, added; EDFSE-D: distilled into one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.card import DROPOUT, FIRST_TOKEN, BuildContext, MethodCard, Need, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import SICK, TRAIN, StageContext, StageSpec, paired
from bench.train.recipe import POOLING_OPTION, trained_encoder, training_options

SUBMODELS = tuple((f"sub{number}", copy) for number, copy in enumerate("abcdef", start=1))
"""The six encoders and the round-trip translated copy that each of them learns from."""
_PAPER = (
    "Zong, Zhang 2023, An Ensemble Distillation Framework for Sentence Embeddings with Multilingual "
    "Round-Trip Translation"
)
_UNVERIFIED = "languages, rates and lengths of the original are not known; they are TNCSE's first stage's"
_OUTSIDE = ("rtt", "pairing", "sick", "pooling")
"""Options about a stage's text and about the encoder that is built: not settings of the stage."""


@add_method
class EDFSE:
    """EDFSE."""

    card = MethodCard(
        name="edfse",
        kind="baseline",
        summary="the sum of six SimCSE encoders, each on another round-trip translation (copies a to f)",
        version=1,
        paper=_PAPER,
        equations=(
            "k = 1 ... 6: z = tanh(W_k h_cls(x) + b_k), z' of x's k-th translation; "
            "L_k = mean_i -log softmax_j(cos(z_i, z'_j) / tau)_i, each encoder apart",
            "at inference h_1 + ... + h_6, the [CLS] of the last layers, without the heads",
        ),
        needs=(Need(FIRST_TOKEN), Need(DROPOUT, "rtt", ("none",), instead="rtt=copies")),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option(
                "rtt",
                "copies",
                "encoders learn from the translations a, b, c, d, e, f, or (none) from the text alone",
                ("copies", "none"),
            ),
            Option(
                "pairing",
                "positive",
                "a translation is its sentence's positive (abstract) or replaces it (as in TNCSE)",
                ("positive", "replace"),
            ),
            Option("sick", False, "add SICK's unlabelled sentences, untranslated, to all training text"),
            *training_options(lr=1.5e-5, max_length=64, eval_every=100),
            POOLING_OPTION,
        ),
        deviations=(
            "no code was released; the abstract names translations as augmentation, the rest is our reading",
            _UNVERIFIED,
            "in the mini world the copies are the grammar's own paraphrases: never ranked there",
        ),
        published_names=(("edfse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage an encoder; without translations they differ by their random streams alone."""
        config = tuple(sorted((name, value) for name, value in options.items() if name not in _OUTSIDE))
        return tuple(
            StageSpec(role, "edfse_sub", self.card.version, config, self.train, text=_text(options, copy))
            for role, copy in SUBMODELS
        )

    def build(self, context: BuildContext) -> Encoder:
        """Return the sum of the six."""
        from bench.nn.sum_encoder import SumEncoder

        return SumEncoder([trained_encoder(context, role) for role, _ in SUBMODELS])

    def train(self, context: StageContext) -> dict[str, Any]:
        """The stage of one encoder: SimCSE, with the translations as positives where the text is paired."""
        from bench.baselines import _edfse

        return _edfse.train(context)


def _text(options: Mapping[str, OptionValue], copy: str) -> str:
    more = SICK if options["sick"] else ""
    if options["rtt"] == "none":
        return TRAIN + more
    return (paired(copy) if options["pairing"] == "positive" else copy) + more


@add_method
class DistilledEDFSE:
    """EDFSE-D."""

    card = MethodCard(
        name="edfse_d",
        kind="baseline",
        summary="EDFSE distilled into one plain encoder",
        version=1,
        paper=_PAPER,
        equations=(
            "s = h_cls of the student, t = h_1 + ... + h_6 of the frozen teacher in evaluation mode",
            "L = mean_i -log softmax_j(cos(s_i, t_j) / tau)_i, or (distillation=mse) mean (s - t)^2",
        ),
        needs=(Need(FIRST_TOKEN),),
        options=(
            Option(
                "distillation",
                "contrastive",
                "the objective: contrastive (the paper's abstract) or mse (what JTCSE says of it)",
                ("contrastive", "mse"),
            ),
            Option("tau", 0.05, "temperature of the contrastive objective", minimum=1e-4),
            *training_options(lr=1e-5, max_length=64, eval_every=100),
            POOLING_OPTION,
            Option("sick", False, "the student learns from SICK's unlabelled sentences too"),
        ),
        deviations=(
            "no code was released; which of the two objectives gave the published rows is not known",
            _UNVERIFIED,
            "the teacher encodes whole sentences, the student their first max_length tokens",
        ),
        published_names=(("edfse_d", "as published: profile bert-base or roberta-base"),),
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """The teacher."""
        return {"teacher": "edfse"}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """The student's stage."""
        config = tuple(sorted((n, value) for n, value in options.items() if n not in ("pooling", "sick")))
        version, text = self.card.version, TRAIN + (SICK if options["sick"] else "")
        return (StageSpec("distill", "edfse_d", version, config, self.train, inputs=("teacher",), text=text),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the student of the asked checkpoint."""
        return trained_encoder(context, "distill")

    def train(self, context: StageContext) -> dict[str, Any]:
        """The stage of the student; the ensemble is the member ``teacher``."""
        from bench.baselines import _edfse

        return _edfse.train_student(context)
