"""Masked language modelling: a new backbone, or a head for a headless one."""

from __future__ import annotations

import copy
import json
import lzma
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import BertConfig, BertForMaskedLM

from bench.data.corpus import Corpus, make_corpus, read_corpus
from bench.data.text_lines import number_sentences
from bench.errors import BenchError, DataError, InputError, storage_reason
from bench.nn.backbone import silence_libraries, tokenize_rows
from bench.nn.masked_lm import load_masked_lm
from bench.nn.model_files import PRETRAINING
from bench.nn.model_folder import ModelFolder
from bench.records.environment import collect_training_environment
from bench.records.filesystem import create_folder_atomically, replace_folder
from bench.stages import estimate_checkpoint_size
from bench.training.checkpoint import Checkpoint, print_line
from bench.training.masked_lm_training import MlmSettings, frequency_loss, masked_accuracy, train_mlm
from bench.training.mixed_precision import get_precision
from bench.training.prepared_text import (
    STD,
    PreparedText,
    Say,
    count_cut_tokens,
    describe_corpus,
    prepare_text,
)
from bench.training.randomness import generator, own_random_state
from bench.version import __version__

Curve = list[list[float]]
LEARNED = 0.95
"""A model has learned to read below this share of the loss by frequencies."""
TRIAL = 500
"""A training is judged after so many steps."""
_SECONDS = 60.0
_UNSEEN = 512  # lines for the masked accuracy


@dataclass(frozen=True)
class PretrainSettings(MlmSettings):
    """Settings of a new BERT, with as many positions as a row keeps tokens, and its sizes."""

    layers: int  # transformer layers
    hidden: int  # width; the feed-forward layers are four times as wide
    heads: int  # attention heads
    vocabulary: int  # largest number of WordPiece tokens


@dataclass
class Training:
    """Options of :func:`pretrain` and :func:`train_mlm_head`, and what they have in common."""

    settings: MlmSettings  # lengths and rates
    seed: int  # for weights, order and masks
    out: Path  # folder to write; it also gets the facts, in ``pretraining.json``
    command: str  # the command that repeats it, for the facts
    device: str = "cpu"  # "cpu", "cuda" or "mps"
    minutes: float | None = None  # stop then, in place of the settings' steps; saving comes after
    began: float | None = None  # start of the minutes on time.monotonic's clock; default now
    give_up: bool = False  # end with an error after TRIAL steps if the loss stays near token frequencies'
    progress: Callable[[int], None] | None = None  # called with the rows of each finished step
    say: Say | None = None  # called with notes on the text, and each minute with the loss

    def __post_init__(self) -> None:
        """Start the clocks."""
        begin = time.monotonic() if self.began is None else self.began
        environment = collect_training_environment(self.device)
        facts = {"bench": __version__, "threads": torch.get_num_threads(), "precision": get_precision()}
        say = print_line if self.say is None else self.say
        identity = {**environment, **facts, "minutes": self.minutes, "command": self.command}
        self._checkpoint = Checkpoint(checkpoint_path(self.out), identity, self.device, say)
        self._end = None if self.minutes is None else begin + 60 * self.minutes

    def place(self, model: Any) -> None:
        """Put a model on its device, dropout off; report the time that preparing the text has left."""
        model.to(self.device).eval()
        if self.say is not None:
            size = estimate_checkpoint_size(sum(parameter.numel() for parameter in model.parameters()))
            line = f"after five minutes a checkpoint of about {size / 1e6:,.1f} MB is kept until the end"
            self.say(f"{line} (twice that as it is replaced): {self._checkpoint.path}")
        if self._end is not None and self.say is not None:
            left = max(0.0, self._end - time.monotonic())
            self.say(f"the text is prepared: {left:.0f} s are left to train, and saving comes after")

    def run(
        self,
        model: Any,
        tokenizer: Any,
        rows: Sequence[Any],
        known_loss: float,
        text: Mapping[str, Any],
        describe: Callable[[], Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Train a model and write it with its facts, to which ``describe`` adds; keep it each minute."""

        def collect(curve: Curve) -> dict[str, Any]:
            described, settings, timed = describe(), self.settings, {}
            if self.minutes is not None:
                settings, timed = replace(settings, steps=int(curve[-1][0])), {"minutes": self.minutes}
            return {
                "command": self.command,
                **{"settings": asdict(settings), **timed},
                "seed": self.seed,
                "text": dict(text),
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "loss_curve": curve,
                "frequency_loss": round(known_loss, 4),
                "cpu_seconds": round(self._checkpoint.cpu_seconds, 1),
                **described,
            }

        unfinished, kept_at = self.out.with_name(f"{self.out.name}-unfinished"), time.monotonic()

        def watch(step: int, curve: Callable[[], Curve]) -> None:
            nonlocal kept_at
            if step == TRIAL and self.give_up:
                check_learned(curve()[-1][1], known_loss)
            if time.monotonic() - kept_at < _SECONDS:
                return
            now = curve()
            kept_at = time.monotonic()
            try:
                with replace_folder(unfinished) as folder:
                    facts = {**collect(now), "unfinished": True}
                    _write_model(copy.deepcopy(model), tokenizer, self.settings.max_length, facts, folder)
            except (OSError, SafetensorError) as error:  # a full disk costs this copy only
                if self.say:
                    self.say(f"{unfinished} can't be written: {storage_reason(error) or error}")
                return
            if self.say:
                self.say(f"loss {now[-1][1]:.3f} after {step:,} steps; the model is kept")

        how: dict[str, Any] = {"seed": self.seed, "end": self._end, "progress": self.progress}
        how["checkpoint"] = self._checkpoint
        facts = collect(train_mlm(model, tokenizer, rows, self.settings, watch=watch, **how))
        with create_folder_atomically(self.out) as folder:
            _write_model(model, tokenizer, self.settings.max_length, facts, folder)
        shutil.rmtree(unfinished, ignore_errors=True)
        self._checkpoint.remove()
        return facts


def checkpoint_path(out: Path) -> Path:
    """Return the file for the state of a pretraining in progress, next to its folder."""
    return out.with_name(f"{out.name}-checkpoint.safetensors")


def pretrain(
    text: Corpus | PreparedText, settings: PretrainSettings, *, split: bool = False, **options: Any
) -> dict[str, Any]:
    """Train a BERT with its MLM head on a text and write it as float16 safetensors, with its tokenizer.

    Word embeddings start from the text's counts (:func:`compute_spectral_embeddings`), dropout is off. A
    prepared text gives the same weights. Meanwhile ``OUT-unfinished`` holds the model of the last minute.
    For the options see :class:`Training`, for ``split`` :func:`bench.training.prepared_text.prepare_text`.

    Returns:
        Facts: command, settings, text, rows, cut lines, loss curve, the tokens' entropy, CPU seconds.

    Raises:
        BenchError: an infinite or NaN loss, no time left, nothing learned, or an unsuitable text.
    """
    training = Training(settings, **options)
    sizes = {"max_length": settings.max_length, "vocabulary": settings.vocabulary, "hidden": settings.hidden}
    if isinstance(text, Corpus):
        text = prepare_text(text, **sizes, split=split, say=training.say)
    text.check({**sizes, "split": split}, where=text.text["name"])
    model = _new_bert(text, settings, training.seed, training.device)
    training.place(model)
    facts = {"embeddings": "spectral", "rows": len(text.rows), "cut": dict(text.cut)}
    known_loss = frequency_loss(text.rows)
    return training.run(model, text.tokenizer, text.rows, known_loss, text.text, lambda: facts)


def _new_bert(text: PreparedText, settings: PretrainSettings, seed: int, device: str) -> Any:
    """Return a BERT with random weights, and the text's embeddings of tokens that occur."""
    config = BertConfig(
        vocab_size=len(text.tokenizer),
        hidden_size=settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.hidden,
        max_position_embeddings=settings.max_length,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        initializer_range=STD,
    )
    with own_random_state(seed, "pretrain/weights", device):
        model: Any = BertForMaskedLM(config)
    start = torch.from_numpy(text.embeddings)
    known = start.abs().sum(1) > 0
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[known] = start[known]
    return model


def train_mlm_head(
    backbone: ModelFolder, corpus: Corpus, settings: MlmSettings, **options: Any
) -> dict[str, Any]:
    """Train a BERT whose checkpoint lacks a masked-LM head into a masked language model, and write it.

    The head is fresh, its decoder tied to the word embeddings. Both are trained together, dropout off. The
    corpus is a document a line. Options, facts and errors are those of :func:`pretrain`, with backbone and
    masked accuracy on unseen lines; InputError for a backbone other than BERT.
    """
    training = Training(settings, **options)
    seed, steps = training.seed, settings.steps
    with own_random_state(seed, "pretrain/weights", training.device):
        model, tokenizer = load_masked_lm(backbone.path, new_head=True)
    if model.config.model_type != "bert":
        raise InputError(f"a head for a {type(model).__name__}", expected="a BERT", where=backbone.name)
    chosen, unseen = _choose_lines(corpus, None if training.minutes else steps * settings.batch_size, seed)
    rows = tokenize_rows(tokenizer, chosen, settings.max_length)
    cut = count_cut_tokens(tokenizer, corpus, chosen, rows, settings.max_length, training.say)
    training.place(model)

    def describe() -> dict[str, Any]:
        named = {"name": backbone.name, "sha256": backbone.sha256}
        accuracy = masked_accuracy(model, tokenizer, rows[:unseen], settings.mask, seed)
        return {"backbone": named, "cut": cut, "masked_accuracy": accuracy}

    described, known_loss = describe_corpus(corpus), frequency_loss(rows)
    return training.run(model, tokenizer, rows[unseen:], known_loss, described, describe)


def _choose_lines(corpus: Corpus, most: int | None, seed: int) -> tuple[list[str], int]:
    """Draw as many lines as are trained on; return them and the number of unseen ones at the start."""
    lines = torch.randperm(len(corpus.sentences), generator=generator(seed, "pretrain/lines")).tolist()
    unseen = min(_UNSEEN, len(lines) // 2)
    if not unseen:
        raise BenchError("the text has fewer than two lines", where=corpus.name)
    end = None if most is None else unseen + most
    return [corpus.sentences[line] for line in lines[:end]], unseen


def read_documents(path: Path) -> Corpus:
    """Read an xz-compressed UTF-8 text, a document a line, empty lines left out; DataError if damaged."""
    try:
        with lzma.open(path, "rb") as stream:
            lines = [text for _, text in number_sentences(stream, str(path)) if text]
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"the text can't be read: {error}", where=path.name) from error
    if not lines:
        raise DataError("the text is empty", where=path.name)
    return make_corpus(path.name, lines)


def read_pretraining_text(path: Path) -> Corpus:
    """Read a text to pretrain on, a document a line: ``.txt``, or ``.txt.xz``."""
    if path.name.endswith(".txt.xz"):
        return read_documents(path)
    if path.suffix != ".txt":
        raise InputError("not a text to pretrain on", where=str(path), expected="a file .txt or .txt.xz")
    return read_corpus(path)


def _write_model(model: Any, tokenizer: Any, kept: int, facts: Mapping[str, Any], folder: Path) -> None:
    # a tokenizer is written with its last call's truncation, which the hash must not depend on
    tokenizer.backend_tokenizer.enable_truncation(kept)
    with silence_libraries():
        model.half().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    # the library's version would change the folder's hash and no weight
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config.pop("transformers_version", None)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8", newline="\n")
    (folder / PRETRAINING).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8", newline="\n")


def check_learned(loss: float, frequency_loss: float) -> None:
    """Raise BenchError if a model's loss is close to that of token frequencies."""
    if loss > LEARNED * frequency_loss:
        what = f"the loss is {loss:.3f} after {TRIAL} steps, and token frequencies give {frequency_loss:.3f}"
        raise BenchError(what, hint="try a smaller learning rate or a longer warm-up")
