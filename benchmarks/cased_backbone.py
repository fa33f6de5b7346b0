"""Make the backbone of profile ``cased`` again: ``python benchmarks/cased_backbone.py``.

A small BERT with random weights and a cased vocabulary. New weights need new records of the gate's reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, BertTokenizerFast

from bench.data.cased.texts import make_dev_task, make_pair_task, make_training_text, make_transfer_task
from bench.training.randomness import own_random_state

FOLDER = Path(__file__).resolve().parents[1] / "bench" / "data" / "cased" / "backbone"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LENGTH = 40
SEED = 1


def list_vocabulary() -> list[str]:
    """Return the special tokens and every word of the texts in its case, sorted."""
    words = {word for sentence in _iter_sentences() for word in sentence.replace(".", " .").split()}
    return [*SPECIAL, *sorted(words)]


def _iter_sentences() -> Iterator[str]:
    yield from make_training_text().sentences
    for task in (make_pair_task(), make_dev_task()):
        for pair in task.all_pairs():
            yield from pair
    for split in make_transfer_task().splits:
        yield from split.first


def make_tokenizer() -> BertTokenizerFast:
    """Return a tokenizer that keeps case."""
    words = {word: number for number, word in enumerate(list_vocabulary())}
    tokenizer = Tokenizer(WordPiece(words, unk_token=SPECIAL[1]))
    tokenizer.normalizer = BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, words[token]) for token in ("[CLS]", "[SEP]")],
    )
    return BertTokenizerFast(tokenizer_object=tokenizer, do_lower_case=False, model_max_length=LENGTH)


def main() -> None:
    """Write model and tokenizer."""
    config = BertConfig(
        vocab_size=len(list_vocabulary()),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=96,
        max_position_embeddings=LENGTH,
        initializer_range=0.1,
    )
    with own_random_state(SEED, "cased backbone", "cpu"):
        model = BertModel(config, add_pooling_layer=False)
    model.half().save_pretrained(FOLDER)
    make_tokenizer().save_pretrained(FOLDER)
    facts = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
    (FOLDER / "config.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
