"""Distillation: a fresh encoder learns the vectors of a frozen teacher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from bench.encoder import Encoder
from bench.errors import BenchError
from bench.nn.backbone import load_backbone
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_states, token_batch
from bench.train.objective import Objective
from bench.train.sentence_encoder import train_towers
from bench.train.teachers import Asked, Teacher


def train_student(context: StageContext) -> dict[str, Any]:
    """The stage: its teacher is the member ``teacher``, encoding in evaluation mode without gradient.

    Raises:
        BenchError: vectors of another dimension than the student's.
    """
    teacher, sentences = context.members["teacher"], context.sentences
    student = load_backbone(context.model)
    width = student[0].config.hidden_size
    if teacher.dim != width:
        raise BenchError(
            f"the teacher's vectors have {teacher.dim} dimensions, the student's {width}",
            hint="distill a method of the same width, or name another --backbone",
        )
    return train_towers(
        context,
        [student],
        lambda model, pad_id: Distillation(model, pad_id, teacher, sentences),
        numbered=True,
    )


class Distillation(Objective):
    """Mean squared error, over all elements, between the student's [CLS] and the teacher's vector.

    L = mean_{i,k} (s_ik - t_ik)^2 (TNCSE-D; the script isn't released). Gradient reaches the student
    alone; 0 where it equals the teacher.

    Args:
        student: The transformer that learns.
        pad_id: Padding id.
        teacher: The frozen encoder.
        sentences: The training text, which the batches number.
    """

    def __init__(self, student: Any, pad_id: int, teacher: Encoder, sentences: Sequence[str]) -> None:
        super().__init__()
        self.student, self.pad_id = student, pad_id
        self._teacher = Teacher(teacher, sentences, kept_bytes=0)

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[TokenBatch, Asked]:
        """The rows for the student, and what the teacher is asked."""
        tokens = token_batch([row for _, row in batch], self.pad_id, self.student)
        return tokens, self._teacher.prepare([number for number, _ in batch], self.device)

    def compute(self, prepared: tuple[TokenBatch, Asked]) -> Tensor:
        """Loss of a batch of (sentence number, token row) pairs."""
        tokens, asked = prepared
        vectors = self._teacher.vectors(asked)
        return nn.functional.mse_loss(batch_states(self.student, tokens), vectors)

    def why_not_finite(self) -> str | None:
        """The teacher's vectors, where they are why."""
        return self._teacher.why_not_finite()
