"""A text made ready to pretrain on: vocabulary, token rows, first embeddings; kept in a folder if asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bench.data.corpus import Corpus
from bench.errors import DataError, InputError
from bench.nn.backbone import tokenize_rows
from bench.nn.wordpiece import build_wordpiece_tokenizer, train_wordpiece
from bench.records.filesystem import create_folder_atomically
from bench.training.spectral import compute_spectral_embeddings

STD = 0.02
"""Standard deviation of a BERT's first weights, its embeddings' too."""
_FACTS, _ROWS = "prepared.json", "rows.safetensors"


@dataclass(frozen=True)
class PreparedText:
    """What a new BERT is trained on.

    Args:
        tokenizer: A WordPiece tokenizer, trained on the text.
        rows: Token ids, specials included: lists or arrays.
        embeddings: First word embeddings, (vocabulary, width) float32; zeros for a token that doesn't occur.
        text: The text's name, fingerprint, number of lines, and made-up world.
        cut: How many lines were cut, of how many, and the tokens that this leaves out; empty where none is.
        sizes: max_length, vocabulary, hidden and split: what it was prepared for.
    """

    tokenizer: Any
    rows: Sequence[Any]
    embeddings: NDArray[np.float32]
    text: Mapping[str, Any]
    cut: Mapping[str, int]
    sizes: Mapping[str, Any]

    def check(self, sizes: Mapping[str, Any], *, where: str) -> None:
        """Raise InputError unless the text was prepared for these sizes."""
        other = [f"{name} {self.sizes[name]}, not {value}" for name, value in sizes.items()
                 if self.sizes[name] != value]  # fmt: skip
        if other:
            raise InputError(
                f"the text was prepared for {' and '.join(other)}",
                where=where,
                expected="the sizes that it was prepared for",
                hint="prepare it anew with --prepare",
            )


def prepare_text(
    corpus: Corpus,
    *,
    max_length: int,
    vocabulary: int,
    hidden: int,
    split: bool = False,
    say: Callable[[str], None] | None = None,
) -> PreparedText:
    """Train a vocabulary on a text, tokenise it, and count which tokens occur together.

    Args:
        corpus: The text.
        max_length: Tokens that a row keeps, specials included.
        vocabulary: Largest number of WordPiece tokens.
        hidden: Width of the embeddings.
        split: Read all of a line, in several rows where it has more tokens than a row keeps; else it is cut.
        say: Called with what the user should know of the text.

    Raises:
        InputError: a width above the number of the text's tokens.
    """
    tokenizer = train_wordpiece(corpus.sentences, vocabulary, max_length=max_length)
    if hidden > len(tokenizer):
        raise InputError(
            f"a width of {hidden} for a text of {len(tokenizer)} tokens",
            where=corpus.name,
            expected="a smaller one, since the embeddings start from the text's counts",
        )
    rows = (_split_rows if split else tokenize_rows)(tokenizer, corpus.sentences, max_length)
    inner = [row[1:-1] for row in rows]
    return PreparedText(
        tokenizer=tokenizer,
        rows=rows,
        embeddings=compute_spectral_embeddings(inner, len(tokenizer), hidden, STD),
        text=describe_corpus(corpus),
        cut={} if split else count_cut_tokens(tokenizer, corpus, corpus.sentences, rows, max_length, say),
        sizes={"max_length": max_length, "vocabulary": vocabulary, "hidden": hidden, "split": split},
    )


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """A text's name, fingerprint, number of lines, and made-up world."""
    return {
        "name": corpus.name,
        "sha256": corpus.sha256,
        "sentences": len(corpus.sentences),
        "world": corpus.world,
    }


def _split_rows(tokenizer: Any, lines: Sequence[str], kept: int) -> list[list[int]]:
    """Token ids of all of the text: a line of more tokens than are kept goes on in rows of its own."""
    whole = tokenizer(list(lines), add_special_tokens=False, verbose=False)["input_ids"]
    cls, sep, inner = tokenizer.cls_token_id, tokenizer.sep_token_id, kept - 2
    return [[cls, *ids[i : i + inner], sep] for ids in whole for i in range(0, len(ids), inner)]


def count_cut_tokens(
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


def save_prepared_text(text: PreparedText, out: Path) -> None:
    """Write a prepared text as a folder: rows.safetensors, and prepared.json with the vocabulary."""
    kind = np.uint16 if len(text.tokenizer) <= 1 << 16 else np.int32  # half of the folder
    lengths = np.fromiter(map(len, text.rows), dtype=np.int32, count=len(text.rows))
    arrays = {
        "ids": np.concatenate([np.asarray(row, dtype=kind) for row in text.rows]),
        "lengths": lengths,
        "embeddings": np.ascontiguousarray(text.embeddings),  # save_file writes the memory as it lies
    }
    ids = text.tokenizer.get_vocab()
    facts = {
        "text": dict(text.text),
        "cut": dict(text.cut),
        "sizes": dict(text.sizes),
        "vocabulary": sorted(ids, key=ids.__getitem__),
    }
    with create_folder_atomically(out) as folder:
        save_file(arrays, folder / _ROWS)
        (folder / _FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8", newline="\n")


def load_prepared_text(folder: Path) -> PreparedText:
    """Read what :func:`save_text` wrote.

    Raises:
        DataError: not such a folder, or a damaged one.
    """
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        text, cut = facts["text"], facts["cut"]
        sizes = {name: facts["sizes"][name] for name in ("max_length", "vocabulary", "hidden", "split")}
        arrays = load_file(folder / _ROWS)
        ids, lengths, embeddings = arrays["ids"], arrays["lengths"], arrays["embeddings"]
        tokenizer = build_wordpiece_tokenizer(facts["vocabulary"], max_length=sizes["max_length"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"not a prepared text: {type(error).__name__}",
            where=str(folder),
            expected="a folder that bench pretrain --prepare wrote",
        ) from error
    whole = (
        int(lengths.sum()) == len(ids)
        and embeddings.shape == (len(tokenizer), sizes["hidden"])
        and len(ids) > 0
        and 0 <= int(ids.min()) <= int(ids.max()) < len(tokenizer)
        and 2 <= int(lengths.min()) <= int(lengths.max()) <= sizes["max_length"]
    )
    if not whole:
        raise DataError("a prepared text whose parts don't fit", where=str(folder))
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    return PreparedText(tokenizer, rows, embeddings, text, cut, sizes)
