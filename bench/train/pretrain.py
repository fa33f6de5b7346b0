"""Masked language modelling: a backbone from nothing, or a head for a backbone that has lost its own."""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from bench.data.corpus import Corpus, make_corpus, read_corpus
from bench.data.tasks import normalise
from bench.errors import BenchError, DataError, InputError
from bench.nn.backbone import quiet, token_rows
from bench.nn.folder import PRETRAINING, ModelFolder
from bench.nn.masked_lm import load_masked_lm
from bench.nn.wordpiece import train_wordpiece
from bench.records.files import whole_folder
from bench.train.mlm import MlmSettings, frequency_loss, masked_accuracy, train_mlm
from bench.train.spectral import spectral_embeddings
from bench.train.streams import generator, own_random_state

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
    corpus: Corpus,
    settings: PretrainSettings,
    *,
    seed: int,
    out: Path,
    command: str,
    split: bool = False,
    device: str = "cpu",
    minutes: float | None = None,
    began: float | None = None,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train a BERT with its MLM head on a text and write it as float16 safetensors, with its tokenizer.

    Minutes are enough for two reasons. The word embeddings start from the text's co-occurrence counts
    (:mod:`bench.train.spectral`) instead of noise: tried without, the topics of the mini world alone took
    nine of twelve CPU minutes. And dropout is off, since the text is seen a few times only.

    Args:
        corpus: The text.
        settings: Sizes and rates.
        seed: For weights, order and masks.
        out: Folder to write; it also gets the facts, in ``pretraining.json``.
        command: What the facts name as the way to repeat it.
        split: Read all of a line, in several rows where it has more tokens than a row keeps; else it is cut.
        device: "cpu", "cuda" or "mps".
        minutes: Stop then, in place of the settings' steps; the facts say how many ran. Saving comes after.
        began: What minutes count from, on time.monotonic's clock; default the call.
        progress: Called with the rows of each finished step.
        say: Called, before training, with what the user should know of the text.

    Returns:
        Facts: command, settings, text with fingerprint, rows, the lines that were cut, loss curve, the loss
        of a model that knows how frequent each token is and nothing else, CPU seconds.

    Raises:
        InputError: a model wider than the text has tokens, or less text than a batch.
        BenchError: a loss that is not finite, or no time left to train.
    """
    cpu, end = time.process_time(), _end(minutes, began)
    tokenizer = train_wordpiece(corpus.sentences, settings.vocabulary, max_length=settings.max_length)
    _check_width(settings, tokenizer, corpus)
    rows = (_whole_rows if split else token_rows)(tokenizer, corpus.sentences, settings.max_length)
    cut = {} if split else _cut(tokenizer, corpus, corpus.sentences, rows, settings.max_length, say)
    model = _new_bert(len(tokenizer), rows, settings, seed, device)
    _ready(model, device, end, say)
    curve = train_mlm(model, tokenizer, rows, settings, seed=seed, end=end, progress=progress)
    facts = {
        "command": command,
        **_ran(settings, curve, minutes),
        "embeddings": "spectral",
        **_facts(corpus, seed, model, rows, curve, cpu),
        "rows": len(rows),
        "cut": cut,
    }
    _save(model, tokenizer, settings.max_length, facts, out)
    return facts


def _check_width(settings: PretrainSettings, tokenizer: Any, corpus: Corpus) -> None:
    if settings.hidden > len(tokenizer):
        raise InputError(
            f"a width of {settings.hidden} for a text of {len(tokenizer)} tokens",
            where=corpus.name,
            expected="a smaller one, since the embeddings start from the text's counts",
        )


def _whole_rows(tokenizer: Any, lines: Sequence[str], kept: int) -> list[list[int]]:
    """Token ids of all of the text: a line of more tokens than are kept goes on in rows of its own."""
    whole = tokenizer(list(lines), add_special_tokens=False, verbose=False)["input_ids"]
    cls, sep, inner = tokenizer.cls_token_id, tokenizer.sep_token_id, kept - 2
    return [[cls, *ids[i : i + inner], sep] for ids in whole for i in range(0, len(ids), inner)]


def _new_bert(
    vocabulary: int, rows: Sequence[list[int]], settings: PretrainSettings, seed: int, device: str
) -> Any:
    """A BERT with random weights, except for the embeddings of tokens that occur in the rows."""
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.hidden,
        max_position_embeddings=settings.max_length,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    with own_random_state(seed, "pretrain/weights", device):
        model: Any = BertForMaskedLM(config)
    inner = [row[1:-1] for row in rows]
    start = torch.from_numpy(
        spectral_embeddings(inner, vocabulary, settings.hidden, config.initializer_range)
    )
    known = start.abs().sum(1) > 0
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[known] = start[known]
    return model


def add_head(
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
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train a BERT whose checkpoint has no masked-LM head into a masked language model, and write it.

    The head is fresh, its decoder tied to the word embeddings. Encoder and head are trained together, without
    dropout, on as many lines as the steps need; lines that were not trained on give the masked accuracy.

    Args:
        backbone: The BERT.
        corpus: The text, a document a line.
        settings: Length and rates.
        seed: For the head, the choice of lines, their order and the masks.
        out: Folder to write; it also gets the facts, in ``pretraining.json``.
        command: What the facts name as the way to repeat it.
        device: "cpu", "cuda" or "mps".
        minutes: Stop then, in place of the settings' steps; the facts say how many ran. Saving comes after.
        began: What minutes count from, on time.monotonic's clock; default the call.
        progress: Called with the sentences of each finished step.
        say: Called, before training, with what the user should know of the text.

    Returns:
        Facts: command, settings, backbone and text with fingerprints, the lines that were cut, loss curve,
        masked accuracy on unseen lines, CPU seconds.

    Raises:
        InputError: a backbone that isn't BERT.
        BenchError: fewer than two lines, a loss that is not finite, or no time left to train.
    """
    cpu, end = time.process_time(), _end(minutes, began)
    with own_random_state(seed, "pretrain/weights", device):
        model, tokenizer = load_masked_lm(backbone.path, new_head=True)
    if model.config.model_type != "bert":
        raise InputError(f"a head for a {type(model).__name__}", expected="a BERT", where=backbone.name)
    chosen, unseen = _choose_lines(corpus, None if minutes else settings.steps * settings.batch_size, seed)
    rows = token_rows(tokenizer, chosen, settings.max_length)
    cut = _cut(tokenizer, corpus, chosen, rows, settings.max_length, say)
    _ready(model, device, end, say)
    curve = train_mlm(model, tokenizer, rows[unseen:], settings, seed=seed, end=end, progress=progress)
    facts = {
        "command": command,
        **_ran(settings, curve, minutes),
        "backbone": {"name": backbone.name, "sha256": backbone.sha256},
        **_facts(corpus, seed, model, rows, curve, cpu),
        "cut": cut,
        "masked_accuracy": masked_accuracy(model, tokenizer, rows[:unseen], settings.mask, seed),
    }
    _save(model, tokenizer, settings.max_length, facts, out)
    return facts


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
        DataError: missing, damaged, not UTF-8, or empty.
    """
    try:
        with lzma.open(path, "rt", encoding="utf-8") as stream:
            lines = [text for line in stream if (text := normalise(line))]
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise DataError(f"the text can't be read: {error}", where=path.name) from error
    if not lines:
        raise DataError("the text is empty", where=path.name)
    return make_corpus(path.name, lines)


def read_text(path: Path) -> Corpus:
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


def _end(minutes: float | None, began: float | None) -> float | None:
    """When a training is over, on time.monotonic's clock."""
    if minutes is None:
        return None
    return (time.monotonic() if began is None else began) + 60 * minutes


def _ready(model: Any, device: str, end: float | None, say: Callable[[str], None] | None) -> None:
    """Put a model on its device, without dropout; say what its text, now prepared, has left of the time."""
    model.to(device).eval()
    if end is not None and say is not None:
        left = max(0.0, end - time.monotonic())
        say(f"the text is prepared: {left:.0f} s are left to train, and saving comes after")


def _ran(settings: MlmSettings, curve: list[list[float]], minutes: float | None) -> dict[str, Any]:
    """The settings with the steps that ran, and the time that was given."""
    if minutes is None:
        return {"settings": asdict(settings)}
    return {"settings": asdict(replace(settings, steps=int(curve[-1][0]))), "minutes": minutes}


def _cut(
    tokenizer: Any,
    corpus: Corpus,
    lines: Sequence[str],
    rows: Sequence[list[int]],
    kept: int,
    say: Callable[[str], None] | None,
) -> dict[str, int]:
    """How many lines are longer than what is kept of them, and how many of all tokens that leaves out."""
    full = [line for line, row in zip(lines, rows, strict=True) if len(row) == kept]
    whole = [len(ids) for ids in tokenizer(full, verbose=False)["input_ids"]] if full else []
    cut, unread = sum(length > kept for length in whole), sum(whole) - kept * len(full)
    if cut and say is not None:
        tokens = sum(map(len, rows)) + unread
        say(
            f"{corpus.name}: {cut:,} of {len(rows):,} lines are longer than {kept} tokens and are cut there, "
            f"{unread / tokens:.1%} of the tokens"
        )
    return {"lines": cut, "of": len(rows), "tokens": unread}


def _facts(
    corpus: Corpus, seed: int, model: Any, rows: Sequence[list[int]], curve: list[list[float]], cpu: float
) -> dict[str, Any]:
    return {
        "seed": seed,
        "text": {
            "name": corpus.name,
            "sha256": corpus.sha256,
            "sentences": len(corpus.sentences),
            "world": corpus.world,
        },
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "loss_curve": curve,
        "frequency_loss": round(frequency_loss(rows), 4),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def _save(model: Any, tokenizer: Any, kept: int, facts: dict[str, Any], out: Path) -> None:
    # a tokenizer is written with what its last call cut off: the folder's hash must not depend on that call
    tokenizer.backend_tokenizer.enable_truncation(kept)
    with whole_folder(out) as folder:
        with quiet():
            model.half().save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        _without_version(folder / "config.json")
        (folder / PRETRAINING).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8", newline="\n")


def _without_version(config: Path) -> None:
    """Take out the library's version: the folder's hash would change with it, and no weight would."""
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings.pop("transformers_version", None)
    config.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8", newline="\n")
