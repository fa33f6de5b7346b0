"""A stage that trains one transformer: loading, dropout, dev evaluation, what it leaves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder, load_backbone, quiet, token_rows
from bench.stages import StageContext
from bench.train.loop import State, TrainResult, TrainSettings, train
from bench.train.streams import own_random_state

MakeObjective = Callable[[Any, int], nn.Module]


def train_sentence_encoder(context: StageContext, make_objective: MakeObjective) -> dict[str, Any]:
    """Train the backbone and keep the selected and the last checkpoint.

    Args:
        context: Its config needs lr, batch_size, epochs, steps (0: by epochs), eval_every, max_length,
            dropout, weight_decay, clip and schedule.
        make_objective: From (model, padding id) to a module that maps token rows to a loss; it draws its
            initial weights from torch's state, which is the stream ``head`` there.

    Returns:
        Facts for the record: steps, sentences seen, dev curve, selected step, CPU seconds.
    """
    config, cpu = context.config, time.process_time()
    model, tokenizer = load_backbone(context.model)
    set_dropout(model, float(config["dropout"]))
    model.to(context.device)
    rows = token_rows(tokenizer, context.sentences, int(config["max_length"]))
    steps = int(config["steps"]) or int(config["epochs"]) * -(-len(rows) // int(config["batch_size"]))
    settings = TrainSettings(
        lr=float(config["lr"]),
        batch_size=int(config["batch_size"]),
        steps=steps,
        eval_every=int(config["eval_every"]),
        weight_decay=float(config["weight_decay"]),
        clip=float(config["clip"]),
        schedule=str(config["schedule"]),
    )
    with own_random_state(context.seed, f"head/{context.role}", context.device):
        objective = make_objective(model, tokenizer.pad_token_id).to(context.device)
    encoder = TransformerEncoder((model, tokenizer), "cls", device=context.device)
    with own_random_state(context.seed, f"dropout/{context.role}", context.device):
        result = train(
            objective,
            model,
            rows,
            settings,
            seed=context.seed,
            corpus=context.corpus,
            dev_score=lambda: context.dev_score(encoder),
            progress=context.progress,
        )
    _save(model, tokenizer, result.best, context.out / "selected")
    if result.best_step != settings.steps:
        _save(model, tokenizer, result.last, context.out / "last")
    (context.out / "losses.json").write_text(json.dumps(result.losses))
    return _facts(result, settings, time.process_time() - cpu)


def set_dropout(model: nn.Module, probability: float) -> None:
    """Set every dropout of a transformer, hidden and attention.

    Raises:
        InputError: a probability outside [0, 1).
    """
    if not 0 <= probability < 1:
        raise InputError(f"dropout {probability}", expected="0 or more and less than 1")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability


def checkpoint_folder(stage_folder: Path, checkpoint: str) -> Path:
    """Folder of the "selected" or "last" checkpoint; they are one where the last was selected."""
    folder = stage_folder / checkpoint
    return folder if folder.is_dir() else stage_folder / "selected"


def _save(model: Any, tokenizer: Any, state: State, folder: Path) -> None:
    with torch.no_grad():
        model.load_state_dict(state)
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _facts(result: TrainResult, settings: TrainSettings, cpu_seconds: float) -> dict[str, Any]:
    return {
        "steps": settings.steps,
        "sentences_seen": result.sentences,
        "dev_curve": [[step, score] for step, score in result.curve],
        "selected_step": result.best_step,
        "selected_dev": max((score for _, score in result.curve), default=None),
        "last_loss": result.losses[-1],
        "cpu_seconds": round(cpu_seconds, 1),
    }
