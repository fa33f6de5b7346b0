"""Masked language modelling: a backbone from nothing, or a head for a backbone that has lost its own."""

from __future__ import annotations

import copy
import json
import lzma
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from bench.data.corpus import Corpus, make_corpus, read_corpus
from bench.data.text_lines import number_sentences
from bench.errors import BenchError, DataError, InputError
from bench.nn.backbone import silence_libraries, tokenize_rows
from bench.nn.masked_lm import load_masked_lm
from bench.nn.model_folder import PRETRAINING, ModelFolder
from bench.records.filesystem import create_folder_atomically
from bench.training.masked_lm_training import MlmSettings, frequency_loss, masked_accuracy, train_mlm
from bench.training.prepared_text import STD, PreparedText, count_cut_tokens, describe_corpus, prepare_text
from bench.training.pretraining_watch import Curve, PretrainingWatch, replace_folder, unfinished_folder
from bench.training.randomness import generator, own_random_state

_UNSEEN = 512  # lines for the masked accuracy


@dataclass(frozen=True)
class PretrainSettings(MlmSettings):
    """The same for a new BERT, which has as many positions as a row keeps tokens, and its size.

    Args:
        layers: Transformer layers.
        hidden: Width; the feed-forward layers are four times as wide.
        heads: Attention heads.
        vocabulary: Largest number of WordPiece tokens.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int


def pretrain(
    text: Corpus | PreparedText,
    settings: PretrainSettings,
    *,
    seed: int,
    out: Path,
    command: str,
    split: bool = False,
    device: str = "cpu",
    minutes: float | None = None,
    began: float | None = None,
    give_up: bool = False,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train a BERT with its MLM head on a text and write it as float16 safetensors, with its tokenizer.

    Word embeddings start from the text's counts (:mod:`bench.training.spectral`), dropout is off. Until it
    ends, ``OUT-unfinished`` holds the model of the last minute.

    Args:
        text: The text, or what was prepared of it, for the same weights.
        settings: Sizes and rates.
        seed: For weights, order and masks.
        out: Folder to write; it also gets the facts, in ``pretraining.json``.
        command: What the facts name as the way to repeat it.
        split: See :func:`bench.training.prepared_text.prepare_text`.
        device: "cpu", "cuda" or "mps".
        minutes: Stop then, in place of the settings' steps; the facts say how many ran. Saving comes after.
        began: What minutes count from, on time.monotonic's clock; default the call.
        give_up: End with an error after 500 steps that have taught the model hardly anything.
        progress: Called with the rows of each finished step.
        say: Called with what the user should know, and each minute with the loss.

    Returns:
        Facts: command, settings, text, rows, cut lines, loss curve, the tokens' entropy, CPU seconds.

    Raises:
        BenchError: a loss that is not finite, no time left, nothing learned, a text that doesn't fit.
    """
    cpu, end = time.process_time(), _find_end(minutes, began)
    sizes = {"max_length": settings.max_length, "vocabulary": settings.vocabulary, "hidden": settings.hidden}
    text = prepare_text(text, **sizes, split=split, say=say) if isinstance(text, Corpus) else text
    text.check({**sizes, "split": split}, where=text.text["name"])
    model = _new_bert(text, settings, seed, device)
    _place_model(model, device, end, say)
    known_loss = frequency_loss(text.rows)
    known = partial(_training_facts, command, settings, minutes, text.text, seed, model, known_loss, cpu)

    def facts(curve: Curve) -> dict[str, Any]:
        return known(curve) | {"embeddings": "spectral", "rows": len(text.rows), "cut": dict(text.cut)}

    made = _ModelWriter(model, text.tokenizer, settings.max_length, out, facts)
    watch = PretrainingWatch(made.keep, say, known_loss if give_up else None)
    return made.train(text.rows, settings, seed=seed, end=end, progress=progress, watch=watch)


def _new_bert(text: PreparedText, settings: PretrainSettings, seed: int, device: str) -> Any:
    """A BERT with random weights, except for the embeddings of tokens that occur in the rows."""
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
    backbone: ModelFolder,
    corpus: Corpus,
    settings: MlmSettings,
    *,
    seed: int,
    out: Path,
    command: str,
    device: str = "cpu",
    minutes: float | None = None,
    began: float | None = None,
    give_up: bool = False,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train a BERT whose checkpoint has no masked-LM head into a masked language model, and write it.

    The head is fresh, its decoder tied to the word embeddings. Both are trained together, without dropout.

    Args:
        backbone: The BERT.
        corpus: The text, a document a line.
        settings: Length and rates.
        seed: For the head, the choice of lines, their order and the masks.
        out: Folder to write; it also gets the facts, in ``pretraining.json``.
        command: What the facts name as the way to repeat it.
        device: "cpu", "cuda" or "mps".
        minutes: See :func:`pretrain`.
        began: See :func:`pretrain`.
        give_up: See :func:`pretrain`.
        progress: Called with the sentences of each finished step.
        say: See :func:`pretrain`.

    Returns:
        Facts as of :func:`pretrain`, with backbone and masked accuracy on unseen lines.

    Raises:
        InputError: a backbone that isn't BERT.
        BenchError: fewer than two lines, a loss that is not finite, no time left, or nothing learned.
    """
    cpu, end = time.process_time(), _find_end(minutes, began)
    with own_random_state(seed, "pretrain/weights", device):
        model, tokenizer = load_masked_lm(backbone.path, new_head=True)
    if model.config.model_type != "bert":
        raise InputError(f"a head for a {type(model).__name__}", expected="a BERT", where=backbone.name)
    chosen, unseen = _choose_lines(corpus, None if minutes else settings.steps * settings.batch_size, seed)
    rows = tokenize_rows(tokenizer, chosen, settings.max_length)
    cut = count_cut_tokens(tokenizer, corpus, chosen, rows, settings.max_length, say)
    _place_model(model, device, end, say)
    known_loss = frequency_loss(rows)
    known = partial(
        _training_facts, command, settings, minutes, describe_corpus(corpus), seed, model, known_loss, cpu
    )

    def facts(curve: Curve) -> dict[str, Any]:
        named = {"name": backbone.name, "sha256": backbone.sha256}
        accuracy = masked_accuracy(model, tokenizer, rows[:unseen], settings.mask, seed)
        return known(curve) | {"backbone": named, "cut": cut, "masked_accuracy": accuracy}

    made = _ModelWriter(model, tokenizer, settings.max_length, out, facts)
    watch = PretrainingWatch(made.keep, say, known_loss if give_up else None)
    return made.train(rows[unseen:], settings, seed=seed, end=end, progress=progress, watch=watch)


def _choose_lines(corpus: Corpus, most: int | None, seed: int) -> tuple[list[str], int]:
    """Lines in random order, no more than there is training for; how many, at the start, are kept from it."""
    lines = torch.randperm(len(corpus.sentences), generator=generator(seed, "pretrain/lines")).tolist()
    unseen = min(_UNSEEN, len(lines) // 2)
    if not unseen:
        raise BenchError("the text has fewer than two lines", where=corpus.name)
    return [corpus.sentences[line] for line in lines[: None if most is None else unseen + most]], unseen


def read_documents(path: Path) -> Corpus:
    """Read an xz-compressed UTF-8 text, a document a line, empty lines left out.

    Raises:
        DataError: missing, damaged, empty, or as :func:`bench.data.text_lines.number_sentences`.
    """
    try:
        with lzma.open(path, "rb") as stream:
            lines = [text for _, text in number_sentences(stream, str(path)) if text]
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"the text can't be read: {error}", where=path.name) from error
    if not lines:
        raise DataError("the text is empty", where=path.name)
    return make_corpus(path.name, lines)


def read_pretraining_text(path: Path) -> Corpus:
    """Read a text to pretrain on, a document a line: ``.txt``, or ``.txt.xz``.

    Raises:
        InputError: a file of another kind.
        DataError: see :func:`read_documents` and :func:`bench.data.corpus.read_corpus`.
    """
    if path.name.endswith(".txt.xz"):
        return read_documents(path)
    if path.suffix != ".txt":
        raise InputError("not a text to pretrain on", where=str(path), expected="a file .txt or .txt.xz")
    return read_corpus(path)


def _find_end(minutes: float | None, began: float | None) -> float | None:
    """When a training is over, on time.monotonic's clock."""
    if minutes is None:
        return None
    return (time.monotonic() if began is None else began) + 60 * minutes


def _place_model(model: Any, device: str, end: float | None, say: Callable[[str], None] | None) -> None:
    """Put a model on its device, without dropout; say what its text, now prepared, has left of the time."""
    model.to(device).eval()
    if end is not None and say is not None:
        left = max(0.0, end - time.monotonic())
        say(f"the text is prepared: {left:.0f} s are left to train, and saving comes after")


def _describe_settings(settings: MlmSettings, curve: Curve, minutes: float | None) -> dict[str, Any]:
    """The settings with the steps that ran, and the time that was given."""
    if minutes is None:
        return {"settings": asdict(settings)}
    return {"settings": asdict(replace(settings, steps=int(curve[-1][0]))), "minutes": minutes}


def _training_facts(
    command: str,
    settings: MlmSettings,
    minutes: float | None,
    text: Mapping[str, Any],
    seed: int,
    model: Any,
    known_loss: float,
    cpu: float,
    curve: Curve,
) -> dict[str, Any]:
    return {
        "command": command,
        **_describe_settings(settings, curve, minutes),
        "seed": seed,
        "text": dict(text),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "loss_curve": curve,
        "frequency_loss": round(known_loss, 4),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


class _ModelWriter:
    """The folder of a model that is trained.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        kept: Tokens that a row keeps.
        out: The folder.
        facts: What a loss curve makes of the facts in it.
    """

    def __init__(
        self, model: Any, tokenizer: Any, kept: int, out: Path, facts: Callable[[Curve], dict[str, Any]]
    ) -> None:
        self._model, self._tokenizer, self._kept = model, tokenizer, kept
        self._out, self._facts = out, facts

    def keep(self, curve: Curve) -> None:
        """Write the model as it is beside its folder-to-be, in place of what was kept before."""
        with replace_folder(unfinished_folder(self._out)) as folder:
            self._write(copy.deepcopy(self._model), {**self._facts(curve), "unfinished": True}, folder)

    def train(self, rows: Sequence[Any], settings: MlmSettings, **how: Any) -> dict[str, Any]:
        """Train it (:func:`bench.training.masked_lm_training.train_mlm`), write it, remove what was kept."""
        facts = self._facts(train_mlm(self._model, self._tokenizer, rows, settings, **how))
        with create_folder_atomically(self._out) as folder:
            self._write(self._model, facts, folder)
        shutil.rmtree(unfinished_folder(self._out), ignore_errors=True)
        return facts

    def _write(self, model: Any, facts: Mapping[str, Any], folder: Path) -> None:
        # a tokenizer is written with what its last call cut off: the hash must not depend on that call
        self._tokenizer.backend_tokenizer.enable_truncation(self._kept)
        with silence_libraries():
            model.half().save_pretrained(folder)
            self._tokenizer.save_pretrained(folder)
        _remove_version(folder / "config.json")
        (folder / PRETRAINING).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8", newline="\n")


def _remove_version(config: Path) -> None:
    """Take out the library's version: the folder's hash would change with it, and no weight would."""
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings.pop("transformers_version", None)
    config.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8", newline="\n")
