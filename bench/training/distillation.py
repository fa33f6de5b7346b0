"""Distillation: a fresh encoder learns the vectors of a frozen teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.encoder import Encoder
from bench.errors import BenchError
from bench.losses.contrastive import cosine_matrix
from bench.method_card import OptionValue
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
    """Train a student on the frozen member ``teacher``: the stage; BenchError for unequal dimensions."""
    teacher, sentences, config = context.members["teacher"], context.sentences, context.config
    student = load_backbone(context.model)
    contrastive, width = config.get("student_loss") == "contrastive", state_size(student[0])
    if not contrastive and teacher.dim != width:
        what = f"the teacher's vectors have {teacher.dim} dimensions, the student's {width}"
        raise BenchError(what, hint="distill a method of the same width, or set student_loss=contrastive")

    def make_objective(model: Any, pad_id: int) -> Distillation:
        if contrastive:
            return ContrastiveDistillation(model, pad_id, teacher, sentences, config)
        return Distillation(model, pad_id, teacher, sentences)

    return train_towers(context, [student], make_objective, numbered=True)


class Distillation(Objective):
    """Mean squared error, over all elements, between the student's [CLS] and the frozen teacher's vector.

    L = mean_{i,k} (s_ik - t_ik)^2 (TNCSE-D, unreleased). Gradient reaches only the student.
    """

    def __init__(self, student: Any, pad_id: int, teacher: Encoder, sentences: Sequence[str]) -> None:
        super().__init__()
        self.student, self.pad_id = student, pad_id
        self._teacher = Teacher(teacher, sentences, kept_bytes=0)

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[TokenBatch, TeacherQuery]:
        """Build the student's rows and the query to the teacher."""
        tokens = token_batch([row for _, row in batch], self.pad_id, self.student)
        return tokens, self._teacher.prepare([number for number, _ in batch], self.device)

    def compute(self, prepared: tuple[TokenBatch, TeacherQuery]) -> Tensor:
        """Compute the loss of a batch of (sentence number, token row) pairs."""
        tokens, asked = prepared
        vectors = self._teacher.vectors(asked)
        return nn.functional.mse_loss(batch_states(self.student, tokens), vectors)

    def why_not_finite(self) -> str | None:
        """Report infinite vectors of the teacher."""
        return self._teacher.why_not_finite()


class ContrastiveDistillation(Distillation):
    """DistilCSE's contrastive knowledge distillation: identify the sentence's own vector among the teacher's.

    L = mean_i -log softmax_k(e^g cos(A s_i + b, t_k))_i over the batch's t_1 ... t_B and a queue of earlier
    ones (Gao et al. 2021, DistilCSE). A, b and g are trained and dropped; A and b start as torch's linear
    layer does. Gradient reaches only the student and them. Settings: student_queue, vectors kept of earlier
    batches; student_scale, g at the start; queue_cut, FIRST_ROWS where the queue cuts batches.
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
        """Compute the loss of a batch; its own vectors join the queue after it."""
        tokens, asked = prepared
        queries = self.project(batch_states(self.student, tokens))
        own = self._teacher.vectors(asked).to(queries.dtype)
        candidates = own
        if self.queue is not None and self.queue.vectors is not None:
            candidates = torch.cat([own, self.queue.vectors])
        scores = self.log_scale.exp() * cosine_matrix(queries, candidates)
        if self.queue is not None:
            self.queue.push(own)
        return functional.cross_entropy(scores, torch.arange(len(own), device=scores.device))
