"""Distillation: a fresh encoder learns the vectors of a frozen teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.card import OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.losses.contrastive import cosine_matrix
from bench.nn.architecture import state_size
from bench.nn.backbone import load_backbone
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.training.batch_encoding import batch_states, token_batch
from bench.training.momentum import VectorQueue
from bench.training.recipe import FIRST_ROWS
from bench.training.sentence_encoder import train_towers
from bench.training.teachers import Teacher, TeacherQuery
from bench.training.two_phase_step import Objective


def train_student(context: StageContext) -> dict[str, Any]:
    """The stage: its teacher is the member ``teacher``, encoding in evaluation mode without gradient.

    Raises:
        BenchError: vectors of another dimension than the student's, and the loss is the mean squared error.
    """
    teacher, sentences, config = context.members["teacher"], context.sentences, context.config
    student = load_backbone(context.model)
    if config.get("student_loss") == "contrastive":
        return train_towers(
            context,
            [student],
            lambda model, pad_id: ContrastiveDistillation(model, pad_id, teacher, sentences, config),
            numbered=True,
        )
    width = state_size(student[0])
    if teacher.dim != width:
        raise BenchError(
            f"the teacher's vectors have {teacher.dim} dimensions, the student's {width}",
            hint="distill a method of the same width, or set student_loss=contrastive",
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

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[TokenBatch, TeacherQuery]:
        """The rows for the student, and what the teacher is asked."""
        tokens = token_batch([row for _, row in batch], self.pad_id, self.student)
        return tokens, self._teacher.prepare([number for number, _ in batch], self.device)

    def compute(self, prepared: tuple[TokenBatch, TeacherQuery]) -> Tensor:
        """Loss of a batch of (sentence number, token row) pairs."""
        tokens, asked = prepared
        vectors = self._teacher.vectors(asked)
        return nn.functional.mse_loss(batch_states(self.student, tokens), vectors)

    def why_not_finite(self) -> str | None:
        """The teacher's vectors, where they are why."""
        return self._teacher.why_not_finite()


class ContrastiveDistillation(Distillation):
    """DistilCSE's contrastive knowledge distillation: which of all teacher's vectors is the sentence's own.

    L = mean_i -log softmax_k(e^g cos(A s_i + b, t_k))_i over the batch's t_1 ... t_B and a queue of earlier
    ones (Gao et al. 2021, DistilCSE). A, b and g are trained and dropped; A and b start as torch's linear
    layer does. Gradient reaches the student and them alone.

    Args:
        student: The transformer that learns.
        pad_id: Padding id.
        teacher: The frozen encoder, of any width.
        sentences: The training text, which the batches number.
        config: student_queue, vectors kept of earlier batches, 0 for none; student_scale, g at the start;
            queue_cut, FIRST_ROWS where the queue cuts batches.
    """

    def __init__(
        self,
        student: Any,
        pad_id: int,
        teacher: Encoder,
        sentences: Sequence[str],
        config: Mapping[str, OptionValue],
    ) -> None:
        super().__init__(student, pad_id, teacher, sentences)
        size = int(config["student_queue"])
        self.project = nn.Linear(state_size(student), teacher.dim)
        self.log_scale = nn.Parameter(torch.tensor(float(config["student_scale"])))
        first_rows = config.get("queue_cut") == FIRST_ROWS
        self.queue = VectorQueue(size, first_rows=first_rows) if size else None

    def compute(self, prepared: tuple[TokenBatch, TeacherQuery]) -> Tensor:
        """Loss of a batch; its own vectors join the queue after it."""
        tokens, asked = prepared
        queries = self.project(batch_states(self.student, tokens))
        own = self._teacher.vectors(asked).to(queries.dtype)
        others = None if self.queue is None else self.queue.vectors
        scores = self.log_scale.exp() * cosine_matrix(
            queries, own if others is None else torch.cat([own, others])
        )
        if self.queue is not None:
            self.queue.push(own)
        return functional.cross_entropy(scores, torch.arange(len(own), device=scores.device))
