"""A stage that trains an encoder: loading, dropout, dev evaluation, results."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.encoder import Encoder, FloatArray, Progress
from bench.errors import InputError
from bench.eval.embedding_collapse import Collapse, collapse_figures
from bench.method_card import DROPOUT
from bench.nn.adapter_folder import write_adapter
from bench.nn.architecture import find_token_types, inspect_model
from bench.nn.backbone import IndexedRows, TransformerEncoder, load_backbone, silence_libraries
from bench.nn.device import move_module
from bench.nn.dropout import configured_dropout, set_dropout
from bench.nn.hidden_states import compute_last_states
from bench.nn.layer_checkpointing import checkpoint_layers
from bench.nn.lora import add_lora, continue_lora, has_lora
from bench.nn.lora_settings import LoraSettings
from bench.nn.model_folder import ModelFolder
from bench.nn.model_parts import save_model
from bench.nn.sum_encoder import SumEncoder
from bench.nn.tokens import wrap_chunk
from bench.records.environment import collect_training_environment
from bench.stages import ARITHMETIC, Report, StageContext, planned_steps
from bench.training.batch_encoding import encode_with
from bench.training.checkpoint import Checkpoint
from bench.training.distributed import is_first_process, seed_draws, sum_over_processes
from bench.training.encoder_options import check_short_batch, find_train_pooling
from bench.training.gradient_caching import cache_gradients, check_second_pass
from bench.training.loop import State, TrainResult, TrainSettings, train
from bench.training.prompted_rows import MASK, build_checked_rows
from bench.training.randomness import check_dropout, own_random_state
from bench.training.two_phase_step import Objective, as_objective
from bench.version import __version__

POINTS = 50


def thin_losses(losses: Sequence[float], most: int = POINTS) -> list[list[float]]:
    """Thin losses (one a step) to at most ``most`` points (last step, mean loss since the point before).

    >>> thin_losses([4.0, 2.0, 1.0, 1.0, 0.5], most=3)
    [[2, 3.0], [4, 1.0], [5, 0.5]]
    """
    size = math.ceil(len(losses) / most)
    starts = range(0, len(losses), size or 1)
    return [[min(at + size, len(losses)), fmean(losses[at : at + size])] for at in starts]


class DevEvaluation:
    """Scores an encoder repeatedly while it learns, by the dev Spearman of the similarity ``select``.

    With ``collapse`` it keeps the collapse figures of the dev sentences' vectors, and reports them as
    "collapse".
    """

    def __init__(
        self,
        dev_score: Callable[..., float],
        encoder: Encoder,
        select: str = "cosine",
        collapse: bool = False,
        report: Report | None = None,
    ) -> None:
        self.select, self.collapse = select, collapse
        self.figures: list[Collapse] = []
        """Of every evaluation so far."""
        self._dev_score, self._encoder, self._report = dev_score, encoder, report

    def score(self) -> float:
        """Evaluate now."""
        watched = RecordingEncoder(self._encoder) if self.collapse else self._encoder
        similarity = () if self.select == "cosine" else (self.select,)
        score = self._dev_score(watched, *similarity)
        if isinstance(watched, RecordingEncoder):
            self.figures.append(collapse_figures(np.concatenate(watched.seen)))
            if self._report:
                self._report({"collapse": list(self.figures[-1])})
        return score

    def collect(self) -> list[list[float]]:
        """Return the figures as data, for a checkpoint."""
        return [[*figures] for figures in self.figures]

    def restore(self, data: list[list[float]]) -> None:
        """Go on from a checkpoint."""
        self.figures = [Collapse(*figures) for figures in data]


class TokenizerState:
    """How tokenizers cut and pad: the settings of their last calls, which are saved with them."""

    def __init__(self, tokenizers: Sequence[Any]) -> None:
        backends = (getattr(tokenizer, "backend_tokenizer", None) for tokenizer in tokenizers)
        self._backends = [backend for backend in backends if backend is not None]

    def collect(self) -> list[list[dict[str, Any] | None]]:
        """Return both settings of each, for a checkpoint."""
        return [[backend.truncation, backend.padding] for backend in self._backends]

    def restore(self, data: list[list[dict[str, Any] | None]]) -> None:
        """Go on from a checkpoint."""
        for backend, (truncation, padding) in zip(self._backends, data, strict=True):
            backend.no_truncation()
            backend.no_padding()
            if truncation is not None:
                backend.enable_truncation(**truncation)
            if padding is not None:
                backend.enable_padding(**padding)


class RecordingEncoder:
    """An encoder that keeps the vectors that it returns."""

    def __init__(self, encoder: Encoder) -> None:
        self.dim, self.facts, self.encoder = encoder.dim, encoder.facts, encoder
        self.seen: list[FloatArray] = []

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode and keep the vectors; see :class:`bench.encoder.Encoder`."""
        vectors = self.encoder.encode(sentences, batch_tokens, progress)
        self.seen.append(np.array(vectors, copy=True))
        return vectors


MakeObjective = Callable[..., Objective | nn.Module]
Loaded = tuple[Any, Any]  # model and tokenizer


def train_sentence_encoder(context: StageContext, make_objective: MakeObjective) -> dict[str, Any]:
    """Train the backbone and keep the selected and the last checkpoint.

    Args:
        context: Its config needs lr, batch_size, epochs, steps (0: by epochs), eval_every, max_length,
            dropout, weight_decay, clip and schedule.
        make_objective: From (model, padding id) to a module that maps token rows to a loss; it draws its
            initial weights from torch's state, which is the stream ``head`` there.

    Returns:
        Facts for the record: steps, sentences seen, dev curve, selected step, seconds.

    Raises:
        InputError: an incomplete model folder; see :func:`train_towers` for other errors.
    """
    return train_towers(context, [load_backbone(context.model)], make_objective)


def train_towers(
    context: StageContext,
    towers: Sequence[Loaded],
    make_objective: MakeObjective,
    *,
    numbered: bool = False,
    pooling: str = "cls",
    select: str = "cosine",
    collapse: bool = False,
) -> dict[str, Any]:
    """Train one transformer, or several together whose vectors are added for the dev evaluation.

    Args:
        context: As for :func:`train_sentence_encoder`; its config may have warmup, drop_last and
            decay_all too (see :class:`bench.training.loop.TrainSettings`).
        towers: (model, tokenizer) of each; the first one's tokenizer makes the token rows.
        make_objective: From (model, ..., padding id) to a module that maps token rows to a loss.
        numbered: The module gets (sentence number, token row) pairs.
        pooling: The method's own pooling, of the dev evaluation; the setting ``train_pooling`` goes first, in
            all encoding of the objective too.
        select: Similarity whose Spearman chooses the checkpoint.
        collapse: Record how much of their space the dev sentences' vectors use, at every dev evaluation.

    Returns:
        Facts for the record.

    Raises:
        BenchError: an empty training text, or an infinite or NaN loss.
        InputError: settings that suit the text or the model badly.
    """
    config, models, checkpoint = context.config, [model for model, _ in towers], _make_checkpoint(context)
    trained = find_train_pooling(config, "")
    pooling = trained or pooling
    rows = build_checked_rows(context, towers, numbered=numbered, prompted=pooling == MASK)
    _add_adapters(models, context)
    for model, tokenizer in towers:
        _prepare_tower(model, tokenizer, rows, context)
    known = {field.name for field in fields(TrainSettings)}
    given: dict[str, Any] = {name: value for name, value in config.items() if name in known}
    settings = TrainSettings(**given | {"steps": planned_steps(config, len(rows))})
    with own_random_state(context.seed, f"head/{context.role}", context.device):
        objective = make_objective(*models, towers[0][1].pad_token_id)
        halves = as_objective(objective)
        move_module(halves.module, context.device)
    check_short_batch(config, len(rows), halves.least)
    parts = [
        TransformerEncoder(tower, pooling, first_layer="layer1", device=context.device) for tower in towers
    ]
    encoder = parts[0] if len(parts) == 1 else SumEncoder(parts)
    dev = DevEvaluation(context.dev_score, encoder, select, collapse, context.report)
    checkpoint.parts |= {"collapse": dev, "tokenizers": TokenizerState([t for _, t in towers])}
    seed_draws(context.seed, f"dropout/{context.role}")
    encoding = encode_with(trained, towers[0][1].mask_token_id)
    chunks = cache_gradients(int(config.get("chunk", 0)))
    dropout = own_random_state(context.seed, f"dropout/{context.role}", context.device)
    with encoding, chunks, dropout:
        result = train(
            objective,
            nn.ModuleList(models),
            rows,
            settings,
            seed=context.seed,
            corpus=context.corpus,
            dev_score=dev.score,
            progress=context.progress,
            report=context.report,
            checkpoint=checkpoint,
        )
    if is_first_process():
        _write_results(towers, result, dev.figures, context)
    facts = _describe_result(result, sum_over_processes(checkpoint.cpu_seconds))
    facts |= _count_adapted(nn.ModuleList([*models, halves.module]))
    if collapse and is_first_process():
        facts["collapse_curve"] = [[s, *f] for (s, _), f in zip(result.curve, dev.figures, strict=True)]
    return facts


def _add_adapters(models: Sequence[nn.Module], context: StageContext) -> None:
    """Put LoRA adapters into the towers, or go on with those of an earlier stage."""
    settings = LoraSettings.from_config(context.config)
    if settings is None:
        return
    with own_random_state(context.seed, f"lora/{context.role}"):
        for model in {id(model): model for model in models}.values():  # both towers may be one
            (continue_lora if has_lora(model) else add_lora)(model, settings)


def _count_adapted(module: nn.Module) -> dict[str, int]:
    """Return the record's facts on the size of a training with adapters, {} without."""
    if not has_lora(module):
        return {}
    sizes = [(weight.numel(), weight.requires_grad) for weight in module.parameters()]
    trained = sum(size for size, trains in sizes if trains)
    return {"trained_parameters": trained, "parameters": sum(size for size, _ in sizes)}


def _make_checkpoint(context: StageContext) -> Checkpoint:
    """Return the checkpoint of a stage: of this machine's arithmetic, threads and stage."""
    if context.checkpoint is None:
        return Checkpoint(None)
    environment = collect_training_environment(context.device)
    facts = {"arithmetic": ARITHMETIC, "bench": __version__, "threads": torch.get_num_threads()}
    identity = {**environment, **facts, "stage": context.checkpoint.name, "role": context.role}
    return Checkpoint(context.checkpoint, identity, context.device)


def _prepare_tower(model: nn.Module, tokenizer: Any, rows: IndexedRows, context: StageContext) -> None:
    """Set a model's dropout, send it to its device, and measure there that it draws as set.

    Reads two sentences of one length; random states stay. Raises InputError for token types, for padding that
    changes states, and as :func:`check_dropout`.
    """
    if find_token_types(model, tokenizer) is not None:
        what = f"its tokenizer gives token types, which training of {type(model).__name__} doesn't read"
        raise InputError(what, where=context.model.name, expected="a backbone without")
    set_dropout(model, float(context.config["dropout"]))
    model.to(context.device)
    if not len(rows):
        return  # which training refuses
    was_training = model.training
    if inspect_model(model.eval(), context.model.name).sees_padding:
        raise InputError(
            f"padding changes the states of {type(model).__name__}, although it is masked, so a sentence's "
            "vector would depend on the others of its batch",
            where=context.model.name,
            expected="a backbone that masks padding",
        )
    found = [rows[number % len(rows)] for number in range(2)]
    ids = [row[1] if isinstance(row, tuple) else row for row in found]
    length = max(1, min(map(len, ids)))
    pair = torch.tensor([(row or [0])[:length] for row in ids], device=context.device)
    dropout, needed = float(context.config["dropout"]), DROPOUT in context.needs
    check_dropout(model.train(), pair, dropout, needed=needed, where=context.model.name)
    if context.config.get("chunk"):
        check_second_pass(model, pair, context.model.name)
    if context.config.get("checkpoint_layers"):
        few = wrap_chunk(pair, None)
        with own_random_state(0, "dropout/measured", context.device), silence_libraries():
            checkpoint_layers(model, lambda: compute_last_states(model, few), context.model.name)
    model.train(was_training)


def checkpoint_folder(stage_folder: Path, checkpoint: str) -> Path:
    """Return the folder of the "selected" or "last" checkpoint; one folder where the last was selected."""
    folder = stage_folder / checkpoint
    return folder if folder.is_dir() else stage_folder / "selected"


def tower_folders(stage_folder: Path, checkpoint: str) -> list[Path]:
    """Return the model folders of a checkpoint: itself, or tower-1, tower-2, ... of several."""
    folder = checkpoint_folder(stage_folder, checkpoint)
    return sorted(folder.glob("tower-*")) or [folder]


def _save_checkpoint(towers: Sequence[Loaded], state: State, folder: Path, base: ModelFolder) -> None:
    """Write the models of a checkpoint, or their adapters to ``base``."""
    for number, (model, tokenizer) in enumerate(towers):
        prefix = f"{number}."
        names = [name for name in state if name.startswith(prefix)]
        adapted = has_lora(model)
        model.load_state_dict({name.removeprefix(prefix): state[name] for name in names}, strict=not adapted)
        target = folder if len(towers) == 1 else folder / f"tower-{number + 1}"
        if adapted:
            write_adapter(model, tokenizer, target, base)
            continue
        with silence_libraries(), configured_dropout(model):
            save_model(model, target)
            tokenizer.save_pretrained(target)


def _write_results(
    towers: Sequence[Loaded],
    result: TrainResult,
    collapse: Sequence[Sequence[float]],
    context: StageContext,
) -> None:
    """Write both checkpoints, one folder where they are equal, the losses and the dev evaluations."""
    out, base = context.out, ModelFolder(context.model, context.model_name, context.model_sha256)
    _save_checkpoint(towers, result.best, out / "selected", base)
    if result.best_step != len(result.losses):
        _save_checkpoint(towers, result.last, out / "last", base)
    (out / "losses.json").write_text(json.dumps(result.losses))
    lines = []
    for number, evaluation in enumerate(result.evaluations):
        figures = {"collapse": list(collapse[number])} if collapse else {}
        lines.append(f"{json.dumps({**evaluation, **figures})}\n")
    (out / "events.jsonl").write_text("".join(lines))


def _describe_result(result: TrainResult, cpu_seconds: float) -> dict[str, Any]:
    facts = {
        "steps": len(result.losses),
        "sentences_seen": result.sentences,
        "dev_curve": [[step, score] for step, score in result.curve],
        "selected_step": result.best_step,
        "selected_dev": max((score for _, score in result.curve), default=None),
        "last_loss": result.losses[-1],
        "loss_curve": thin_losses(result.losses),
        "cpu_seconds": round(cpu_seconds, 1),
        "step_seconds": result.step_seconds,
        "dev_seconds": result.dev_seconds,
    }
    if result.norms:
        facts["gradient_norms"] = list(result.norms)
    return facts
