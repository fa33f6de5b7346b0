"""Tiny language models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BertForMaskedLM,
    BertTokenizer,
    RobertaConfig,
    RobertaForMaskedLM,
)


@pytest.fixture(scope="session")
def tiny_mlm(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random masked language model with tiny_bert's vocabulary and sizes, other weights."""
    folder = tmp_path_factory.mktemp("mlm") / "tiny-mlm"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        BertForMaskedLM(AutoConfig.from_pretrained(tiny_bert)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_roberta(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random RoBERTa with its head: padding has id 1, positions are counted from it, [CLS] has id 0."""
    folder = tmp_path_factory.mktemp("roberta") / "tiny-roberta"
    words = AutoTokenizer.from_pretrained(tiny_bert).get_vocab()
    first = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    ordered = [*first, *sorted(word for word in words if word not in first)]
    vocabulary = {word: i for i, word in enumerate(ordered)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        config = RobertaConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=42,
            type_vocab_size=1,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
            initializer_range=0.5,
        )
        RobertaForMaskedLM(config).save_pretrained(folder)
    BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=40).save_pretrained(folder)
    return folder
