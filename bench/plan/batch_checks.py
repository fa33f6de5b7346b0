"""Batches of a plan that are too small for a method's loss, found once the training text is known."""

from __future__ import annotations

from bench.data.training_data import TrainingData
from bench.plan.cell import Cell
from bench.registry import METHODS
from bench.stages import PAIRS
from bench.training.encoder_options import check_short_batch, refuse_batch_size


def check_least_rows(cell: Cell, training: TrainingData) -> None:
    """Raise InputError for a short last batch that a method can't train on, and for pairs one at a time.

    A method names the sentences that every batch needs in ``least_rows``. One labelled pair without a hard
    negative has no contrast.
    """
    for _, owner, stage in cell.named_stages:
        config, text = dict(stage.spec.config), training.texts[stage.spec.text]
        if stage.spec.text == PAIRS and not text.negatives:
            reason = f"{text.name} has no hard negatives, so one pair has no contrast"
            refuse_batch_size(config, owner.card.name, 2, reason)
        least = getattr(METHODS.get(owner.card.name), "least_rows", 1)
        if least > 1:
            check_short_batch(config, len(text.sentences), least, where=cell.describe())
