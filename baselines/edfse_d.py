"""EDFSE-D: the sum of EDFSE's six encoders distilled into one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.baselines.edfse import PAPER, UNVERIFIED
from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import SICK, TRAIN, StageContext, StageSpec
from bench.train.recipe import POOLING_OPTION, info_nce, trained_encoder, training_options

if TYPE_CHECKING:
    from torch import Tensor

    from bench.train.teachers import Teacher


def distillation_loss(student: Tensor, teacher: Tensor, form: str, tau: float) -> Tensor:
    """EDFSE-D's loss between the student's vectors s and the teacher's t, which are constant.

    ``contrastive`` (the abstract): InfoNCE(s_i, t_j), :func:`bench.train.recipe.info_nce`. ``mse`` (what
    JTCSE says of it): mean_{i,k} (s_ik - t_ik)^2, 0 where the student gives the teacher's sum.

    Args:
        student: s, (B, H).
        teacher: t, (B, H).
        form: "contrastive" or "mse".
        tau: Temperature of the contrastive form, above 0.

    Returns:
        Scalar, at least 0.

    Raises:
        ValueError: different shapes, an unknown form, or a temperature that isn't above 0.
    """
    from torch.nn import functional

    if form == "contrastive":
        return info_nce(student, teacher.detach(), tau)
    if form != "mse":
        raise ValueError(f"form {form!r}; expected contrastive or mse")
    if student.shape != teacher.shape:
        raise ValueError(f"student {tuple(student.shape)} and teacher {tuple(teacher.shape)} must be alike")
    return functional.mse_loss(student, teacher.detach())


def make_student_objective(
    model: Any, pad_id: int, config: Mapping[str, OptionValue], teacher: Teacher
) -> Any:
    """Return the module: (sentence number, token row) pairs to the distillation loss.

    Args:
        model: The transformer that learns.
        pad_id: Padding id.
        config: distillation and tau.
        teacher: The frozen teacher, which knows the training text.
    """
    from torch import nn

    from bench.train.chunks import cls_states

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model

        def forward(self, batch: list[tuple[int, list[int]]]) -> Tensor:
            states = cls_states(model, [row for _, row in batch], pad_id)
            goal = teacher.vectors([number for number, _ in batch]).to(states)
            return distillation_loss(states, goal, str(config["distillation"]), float(config["tau"]))

    return Objective()


def train_student(context: StageContext) -> dict[str, Any]:
    """The stage of the distilled form; the ensemble is the member ``teacher``."""
    from bench.nn.backbone import load_backbone
    from bench.train.sentence_encoder import train_towers
    from bench.train.teachers import Teacher

    teacher = Teacher(context.members["teacher"], context.sentences)
    return train_towers(
        context,
        [load_backbone(context.model)],
        lambda model, pad_id: make_student_objective(model, pad_id, context.config, teacher),
        numbered=True,
    )


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
            Option(POOLING_OPTION.name, POOLING_OPTION.default, POOLING_OPTION.help, POOLING_OPTION.choices),
            Option("sick", False, "the student learns from SICK's unlabelled sentences too", added=True),
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
