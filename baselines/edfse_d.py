"""EDFSE-D: the sum of EDFSE's six encoders distilled into one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.baselines.edfse import PAPER, UNVERIFIED
from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import SICK, TRAIN, StageContext, StageSpec
from bench.train.recipe import POOLING_OPTION, trained_encoder, training_options


def train_student(context: StageContext) -> dict[str, Any]:
    """The stage of the distilled form; the ensemble is the member ``teacher``."""
    from bench.baselines import _edfse

    return _edfse.train_student(context)


@add_method
class DistilledEDFSE:
    """EDFSE-D."""

    card = MethodCard(
        name="edfse_d",
        kind="baseline",
        summary="EDFSE distilled into one plain encoder",
        version=1,
        paper=PAPER,
        equations=(
            "s = h_cls of the student, t = h_1 + ... + h_6 of the frozen teacher in evaluation mode",
            "L = mean_i -log softmax_j(cos(s_i, t_j) / tau)_i, or (distillation=mse) mean (s - t)^2",
        ),
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
            UNVERIFIED,
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
        return (
            StageSpec("distill", "edfse_d", version, config, train_student, inputs=("teacher",), text=text),
        )

    def build(self, context: BuildContext) -> Encoder:
        """Return the student of the asked checkpoint."""
        return trained_encoder(context, "distill")
