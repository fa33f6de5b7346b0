"""DistilCSE's contrastive distillation: steps against a transcription, and the choice among the losses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder
from bench.training.distillation import ContrastiveDistillation, Distillation
from bench.training.momentum import VectorQueue
from tests.support.steps import cls_of, objective_of, same_step
from tests.support.training import SENTENCES, options_of, stages_of, train_alone

TEXT = [*SENTENCES, "the man is singing", "two", "A woman is reading a song to the farmer."]


class Wide:
    """A teacher of another width: two poolings of a sentence, one after the other."""

    dim = 32
    facts: ClassVar[dict[str, str | int]] = {}

    def __init__(self, folder: Path) -> None:
        self.parts = [TransformerEncoder(folder, pooling) for pooling in ("cls", "avg")]

    def encode(self, sentences: Sequence[str], *_: Any, **__: Any) -> FloatArray:
        return np.concatenate([part.encode(sentences) for part in self.parts], axis=1)


@pytest.mark.parametrize("queue", [0, 3, 100])
def test_steps_equal_a_transcription(tiny_bert: Path, queue: int) -> None:
    """Three batches, the last of one sentence; the teacher is wider, and the factor moves."""
    teacher = Wide(tiny_bert)
    given = {"members": {"teacher": teacher}}
    changes: dict[str, OptionValue] = {"student_loss": "contrastive", "student_queue": queue}
    made, rows, _ = objective_of("distill", tiny_bert, TEXT, given, **changes)
    assert type(made) is ContrastiveDistillation
    assert float(made.log_scale.detach()) == 1.0
    held: list[Tensor] = []
    for step, batch in enumerate(([0, 1, 2], [3, 4, 5], [6])):
        with torch.no_grad():
            made.log_scale.fill_(1.0 + step)
        loss = made([rows[i] for i in batch])
        own = list(torch.as_tensor(teacher.encode([TEXT[i] for i in batch])).double())
        losses = []
        for place, i in enumerate(batch):
            query = made.project.weight @ cls_of(made.student, rows[i][1]) + made.project.bias
            cosines = torch.stack([torch.cosine_similarity(query, other, dim=0) for other in [*own, *held]])
            scores = made.log_scale.exp() * cosines
            losses.append(torch.logsumexp(scores, 0) - scores[place])
        got = same_step(made, loss, torch.stack(losses).mean())
        if step < 2 or held:
            assert float(got["log_scale"].abs()) > 0
        held = [*held, *own][-queue:] if queue else []
    assert all(part.grad is None for each in teacher.parts for part in each.model.parameters())


def test_the_losses(tmp_path: Path, tiny_bert: Path) -> None:
    """mse is the default and wants equal widths; a student of either loss comes nearer to its teacher."""
    alike = {"members": {"teacher": TransformerEncoder(tiny_bert, "avg")}}
    made, _, _ = objective_of("distill", tiny_bert, TEXT, alike)
    assert type(made) is Distillation
    with pytest.raises(BenchError, match=r"32 dimensions, the student's 16; .*student_loss=contrastive"):
        train_alone("distill", tiny_bert, tmp_path, {"members": {"teacher": Wide(tiny_bert)}})
    settings: dict[str, OptionValue] = {"student_loss": "contrastive", "student_queue": 0, "steps": 8}
    losses = train_alone("tncse_uc_d", tiny_bert, tmp_path, alike, **settings).losses
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("size", [2, 5, 7, 8, 100])
def test_a_queue_that_cuts_batches_keeps_their_first_rows_as_released(size: int) -> None:
    """DistilCSE's script: the batch stands in front of the queue, and what is too long goes at the end."""
    queue, tags, held = VectorQueue(size, first_rows=True), iter(range(1000)), list[int]()
    for count in (4, 4, 4, 1, 4):
        batch = [next(tags) for _ in range(count)]
        held = (batch + held)[:size]
        queue.push(torch.tensor(batch, dtype=torch.float32)[:, None])
        assert queue.vectors is not None
        assert queue.vectors[:, 0].tolist() == held


@pytest.mark.parametrize("method", ["distill", "tncse_d", "tncse_uc_d", "jtcse_d", "jtcse_uc_d"])
@pytest.mark.parametrize(
    ("queue", "loss", "cut"),
    [(65536, "contrastive", None), (100, "contrastive", "first rows"), (100, "mse", None)],
)
def test_a_cutting_queue_has_another_key(method: str, queue: int, loss: str, cut: str | None) -> None:
    given = options_of(method, student_loss=loss, student_queue=queue, batch_size=64)
    config = dict(stages_of(method, given)[0].config)
    assert (config["student_loss"], config["student_queue"], config["student_scale"]) == (loss, queue, 1.0)
    assert config.get("queue_cut") == cut


@pytest.mark.parametrize(("batch_size", "kept"), [(2, 3), (3, 2)])
def test_the_objective_cuts_as_its_setting_says(tiny_bert: Path, batch_size: int, kept: int) -> None:
    given = {"members": {"teacher": Wide(tiny_bert)}}
    options: dict[str, OptionValue] = {"student_loss": "contrastive", "student_queue": 2}
    made, rows, _ = objective_of("distill", tiny_bert, TEXT, given, **options, batch_size=batch_size)
    made([rows[i] for i in (0, 1, 2)])
    assert len(made.queue.vectors) == kept
