"""Tiny language models, and gradients of objectives on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BertForMaskedLM,
    BertTokenizer,
    RobertaConfig,
    RobertaForMaskedLM,
)

from bench.baselines._diffcse import DiffCSEObjective
from bench.card import OptionValue
from bench.nn.backbone import load_backbone
from bench.nn.masked_lm import load_masked_lm
from bench.train.sentence_encoder import set_dropout
from bench.train.streams import generator, own_random_state


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


def objective_of(
    backbone: Path, generator_folder: Path, config: Mapping[str, OptionValue], dropout: float = 0.0
) -> tuple[Any, Any]:
    """The objective in float64 and train mode, and the tokenizer."""
    model, tokenizer = load_backbone(backbone)
    set_dropout(model, dropout)
    masked_lm, _ = load_masked_lm(generator_folder)
    with own_random_state(1, "head"):
        made = DiffCSEObjective(
            model, tokenizer, masked_lm, config, generator(1, "mask"), generator(1, "replacement")
        )
    return made.double().train(), tokenizer


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
