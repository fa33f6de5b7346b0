"""A text prepared for pretraining: vocabulary, token rows, first embeddings; optionally as a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy import sparse
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer

from bench.data.corpus import Corpus
from bench.errors import DataError, InputError
from bench.nn.backbone import tokenize_rows
from bench.records.filesystem import create_folder_atomically

Say = Callable[[str], None]
STD = 0.02
"""Standard deviation of a BERT's first weights, embeddings included."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_FACTS, _ROWS = "prepared.json", "rows.safetensors"


@dataclass(frozen=True)
class PreparedText:
    """Training input of a new BERT."""

    tokenizer: Any  # a WordPiece tokenizer, trained on the text
    rows: Sequence[Any]  # token ids, specials included: lists or arrays
    # first word embeddings, (vocabulary, width) float32; zeros for a token that doesn't occur
    embeddings: NDArray[np.float32]
    text: Mapping[str, Any]  # the text's name, fingerprint, number of lines, and synthetic world
    # numbers of lines that were cut, of all lines, and of tokens left out; {} for none
    cut: Mapping[str, int]
    sizes: Mapping[str, Any]  # max_length, vocabulary, hidden and split

    def check(self, sizes: Mapping[str, Any], *, where: str) -> None:
        """Raise InputError unless the text was prepared for these sizes."""
        different = [name for name, value in sizes.items() if self.sizes[name] != value]
        other = [f"{name} {self.sizes[name]}, not {sizes[name]}" for name in different]
        if other:
            what = f"the text was prepared for {' and '.join(other)}"
            expected = "the sizes that it was prepared for"
            raise InputError(what, where=where, expected=expected, hint="prepare it again with --prepare")


def prepare_text(
    corpus: Corpus,
    *,
    max_length: int,
    vocabulary: int,
    hidden: int,
    split: bool = False,
    say: Say | None = None,
) -> PreparedText:
    """Train a vocabulary on a text, tokenise it, and count which tokens occur together.

    ``split`` makes several rows of a longer line, which is otherwise cut to ``max_length`` tokens (``say`` is
    told). Raises InputError for a width above the number of the text's tokens.
    """
    tokenizer = train_wordpiece(corpus.sentences, vocabulary, max_length=max_length)
    if hidden > len(tokenizer):
        what = f"a width of {hidden} for a text of {len(tokenizer)} tokens"
        expected = "a smaller one, since the embeddings start from the text's counts"
        raise InputError(what, where=corpus.name, expected=expected)
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
    """Return a text's name, fingerprint, number of lines, and synthetic world."""
    facts = {"name": corpus.name, "sha256": corpus.sha256}
    return {**facts, "sentences": len(corpus.sentences), "world": corpus.world}


def _split_rows(tokenizer: Any, lines: Sequence[str], kept: int) -> list[list[int]]:
    """Return the token ids of all of the text, a long line in several rows."""
    whole = tokenizer(list(lines), add_special_tokens=False, verbose=False)["input_ids"]
    cls, sep, inner = tokenizer.cls_token_id, tokenizer.sep_token_id, kept - 2
    return [[cls, *ids[i : i + inner], sep] for ids in whole for i in range(0, len(ids), inner)]


def count_cut_tokens(
    tokenizer: Any,
    corpus: Corpus,
    lines: Sequence[str],
    rows: Sequence[list[int]],
    kept: int,
    say: Say | None,
) -> dict[str, int]:
    """Count the lines that are cut, all lines, and the tokens that this leaves out."""
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
    arrays = {
        "ids": np.concatenate([np.asarray(row, dtype=kind) for row in text.rows]),
        "lengths": np.fromiter(map(len, text.rows), dtype=np.int32, count=len(text.rows)),
        "embeddings": np.ascontiguousarray(text.embeddings),  # save_file writes the memory as it lies
    }
    ids = text.tokenizer.get_vocab()
    facts: dict[str, Any] = {"text": dict(text.text), "cut": dict(text.cut), "sizes": dict(text.sizes)}
    facts["vocabulary"] = sorted(ids, key=ids.__getitem__)
    with create_folder_atomically(out) as folder:
        save_file(arrays, folder / _ROWS)
        (folder / _FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8", newline="\n")


def load_prepared_text(folder: Path) -> PreparedText:
    """Read :func:`save_prepared_text`'s folder; raises DataError for another or a damaged one."""
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        text, cut = facts["text"], facts["cut"]
        sizes = {name: facts["sizes"][name] for name in ("max_length", "vocabulary", "hidden", "split")}
        arrays = load_file(folder / _ROWS)
        ids, lengths, embeddings = arrays["ids"], arrays["lengths"], arrays["embeddings"]
        tokenizer = build_wordpiece_tokenizer(facts["vocabulary"], max_length=sizes["max_length"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        what = f"not a prepared text: {type(error).__name__}"
        expected = "a folder that bench pretrain --prepare wrote"
        raise DataError(what, where=str(folder), expected=expected) from error
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


def train_wordpiece(sentences: Sequence[str], size: int, *, max_length: int) -> Any:
    """Train a lower-casing ``BertTokenizer`` of at most ``size`` tokens on a text, the same every time.

    The trainer orders continuation characters (``##a``) by a hash that changes between runs, and the whole
    vocabulary with them. As special tokens they have fixed places; the tokenizer that is rebuilt from the
    vocabulary treats them as ordinary again.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    characters: set[str] = set()
    for sentence in sentences:
        characters.update(tokenizer.normalizer.normalize_str(sentence))
    fixed = [*SPECIAL, *(f"##{char}" for char in sorted(characters) if not char.isspace())]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=fixed, show_progress=False)
    tokenizer.train_from_iterator(sentences, trainer)
    vocabulary = tokenizer.get_vocab()
    return build_wordpiece_tokenizer(sorted(vocabulary, key=vocabulary.__getitem__), max_length=max_length)


def build_wordpiece_tokenizer(vocabulary: Sequence[str], *, max_length: int) -> Any:
    """Return a lower-casing ``BertTokenizer`` whose token of id i is ``vocabulary[i]``."""
    ids = {token: i for i, token in enumerate(vocabulary)}
    return BertTokenizer(vocab=ids, do_lower_case=True, model_max_length=max_length)


def compute_spectral_embeddings(
    rows: Sequence[Sequence[int]], tokens: int, size: int, std: float
) -> NDArray[np.float32]:
    """Return leading eigenvectors of the positive pointwise mutual information of tokens in one row.

    PPMI(a, b) = max(0, log p(a, b) / (p(a) p(b))), p(a, b) the share of pairs of different tokens in one row
    (Levy and Goldberg 2014, section 3). A token's vector is its row of the eigenvectors times the roots of
    the eigenvalues, at the length of a random one with ``std``: tokens in similar company get similar
    vectors. Needs memory for tokens x tokens numbers. The result is (tokens, size) float32; zeros for a token
    without company.
    """
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    read = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
    pairs = np.unique(np.repeat(np.arange(len(rows)), lengths) * tokens + read)
    documents, members = np.divmod(pairs, tokens)
    ones = np.ones(len(members))
    incidence = sparse.csr_matrix((ones, (documents, members)), shape=(len(rows), tokens))
    together = (incidence.T @ incidence).toarray()
    np.fill_diagonal(together, 0.0)
    single = together.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(together * single.sum() / np.outer(single, single))
    information = np.where(together > 0, np.maximum(information, 0.0), 0.0)
    values, vectors = np.linalg.eigh(information)
    leading = np.argsort(-values, kind="stable")[:size]
    embeddings = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    scaled = np.divide(embeddings, norms, out=np.zeros_like(embeddings), where=norms > 1e-9)
    result: NDArray[np.float32] = (scaled * std * np.sqrt(size)).astype(np.float32)
    return result
