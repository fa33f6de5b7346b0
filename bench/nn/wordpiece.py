"""WordPiece vocabularies that are the same every time they are trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def train_wordpiece(sentences: Sequence[str], size: int, *, max_length: int) -> Any:
    """Train a lower-casing BERT tokenizer on a text.

    The trainer orders continuation characters (``##a``) by a hash that changes between runs, and the whole
    vocabulary with them; given as special tokens they have fixed places, and the tokenizer that is rebuilt
    from the vocabulary treats them as ordinary again.

    Args:
        sentences: The text.
        size: Largest number of tokens, specials included.
        max_length: Longest input in tokens.

    Returns:
        A ``BertTokenizer``.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

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
    from transformers import BertTokenizer

    ids = {token: i for i, token in enumerate(vocabulary)}
    return BertTokenizer(vocab=ids, do_lower_case=True, model_max_length=max_length)
