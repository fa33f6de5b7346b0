"""What EDFSE and EDFSE-D train: SimCSE against translations, and a student against the sum of encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional

from bench.baselines import _simcse
from bench.nn.backbone import TokenRows, load_backbone
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_states, token_batch
from bench.train.objective import Objective
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import train_towers
from bench.train.teachers import Asked, Teacher


def train(context: StageContext) -> dict[str, Any]:
    """The stage of one encoder: SimCSE, with the translations as positives where the text is paired."""
    if not context.partners:
        return _simcse.train(context)
    tau, tower = float(context.config["tau"]), load_backbone(context.model)
    partners = TokenRows(tower[1], context.partners, int(context.config["max_length"]))
    return train_towers(
        context,
        [tower],
        lambda model, pad_id: _simcse.SimCSEObjective(model, pad_id, tau, partners=partners),
        numbered=True,
    )


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

    Example:
        >>> import torch
        >>> student, teacher = torch.eye(2), 3 * torch.eye(2)
        >>> distillation_loss(student, teacher, "mse", tau=0.05).item()  # 4 in two of four cells
        2.0
        >>> round(distillation_loss(student, teacher, "contrastive", tau=1.0).item(), 4)
        0.3133
    """
    if form == "contrastive":
        return info_nce(student, teacher.detach(), tau)
    if form != "mse":
        raise ValueError(f"form {form!r}; expected contrastive or mse")
    if student.shape != teacher.shape:
        raise ValueError(f"student {tuple(student.shape)} and teacher {tuple(teacher.shape)} must be alike")
    return functional.mse_loss(student, teacher.detach())


class StudentObjective(Objective):
    """(Sentence number, token row) pairs to the distillation loss.

    Args:
        model: The transformer that learns.
        pad_id: Padding id.
        context: The stage: distillation and tau, and the frozen teacher, which encodes its text.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, pad_id
        self.teacher = Teacher(context.members["teacher"], context.sentences)
        self.form, self.tau = str(context.config["distillation"]), float(context.config["tau"])

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[TokenBatch, Asked]:
        """The rows for the student, and what the teacher is asked."""
        tokens = token_batch([row for _, row in batch], self.pad_id, self.encoder)
        return tokens, self.teacher.prepare([number for number, _ in batch], self.device)

    def compute(self, prepared: tuple[TokenBatch, Asked]) -> Tensor:
        """The student's [CLS] against the teacher's vectors."""
        tokens, asked = prepared
        states = batch_states(self.encoder, tokens)
        goal = self.teacher.vectors(asked).to(states.dtype)
        return distillation_loss(states, goal, self.form, self.tau)

    def why_not_finite(self) -> str | None:
        """The teacher's vectors, where they are why."""
        return self.teacher.why_not_finite()


def train_student(context: StageContext) -> dict[str, Any]:
    """The stage of the distilled form; the ensemble is the member ``teacher``."""
    return train_towers(
        context,
        [load_backbone(context.model)],
        lambda model, pad_id: StudentObjective(model, pad_id, context),
        numbered=True,
    )
