"""Tiny checkpoints of many architectures with random weights: two layers, real tokenizers.

The tokenizers are trained on the embedded world's text, so every sentence of it is known to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    ElectraForPreTraining,
    PreTrainedTokenizerFast,
)

from bench.data.data_source import World
from bench.data.mini.world_text import training_text
from bench.nn.backbone import silence_libraries

VOCABULARY = 600
LENGTH = 64
_MAKE: Any = PreTrainedTokenizerFast
_SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_LONG = {**_SIZE, "max_position_embeddings": LENGTH + 2}
_DECODER = {**_LONG, "num_key_value_heads": 2}
_HEADED = {**_DECODER, "head_dim": 8}
_MODERN = {**_LONG, "global_attn_every_n_layers": 2, "local_attention": 16}
_DRAWS = {"embedding_dropout": 0.1, "mlp_dropout": 0.1, "attention_dropout": 0.1}
_DEBERTA = {
    **_LONG,
    **{
        "relative_attention": True,
        "position_buckets": 32,
        "pos_att_type": ["p2c", "c2p"],
        "type_vocab_size": 0,
    },
}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": LENGTH}
_DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": LENGTH}
_T5 = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 64}
_SIDES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
}


@dataclass(frozen=True)
class Animal:
    """A checkpoint."""

    kind: str
    tokenizer: str
    config: dict[str, Any] = field(default_factory=dict)
    head: str = ""


ZOO: dict[str, Animal] = {
    "bert": Animal("bert", "wordpiece", _LONG, "mlm"),
    "roberta": Animal("roberta", "unigram", {**_LONG, "type_vocab_size": 1}, "mlm"),
    "xlm-roberta": Animal("xlm-roberta", "unigram", {**_LONG, "type_vocab_size": 1}, "mlm"),
    "distilbert": Animal("distilbert", "wordpiece", _DISTIL, "mlm"),
    "albert": Animal("albert", "wordpiece", {**_LONG, "embedding_size": 16}, "mlm"),
    "electra": Animal("electra", "wordpiece", {**_LONG, "embedding_size": 16}, "discriminator"),
    "mpnet": Animal("mpnet", "unigram", _LONG, "mlm"),
    "deberta-v2": Animal("deberta-v2", "unigram", _DEBERTA, "mlm"),
    "modernbert": Animal("modernbert", "wordpiece", _MODERN, "mlm"),
    "modernbert-drawing": Animal("modernbert", "wordpiece", {**_MODERN, **_DRAWS}, "mlm"),
    "nomic": Animal("nomic_bert", "wordpiece", _LONG, "mlm"),
    "eurobert": Animal("eurobert", "masked", _DECODER, "mlm"),
    "qwen2": Animal("qwen2", "bare", _DECODER, "causal"),
    "qwen3": Animal("qwen3", "bare", _HEADED, "causal"),
    "llama": Animal("llama", "begun", _DECODER, "causal"),
    "mistral": Animal("mistral", "begun", _DECODER, "causal"),
    "gemma2": Animal("gemma2", "begun", _HEADED, "causal"),
    "olmo2": Animal("olmo2", "bare", _DECODER, "causal"),
    "opt": Animal(
        "opt",
        "begun",
        {
            **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64},
            **{"word_embed_proj_dim": 32, "max_position_embeddings": LENGTH},
        },
        "causal",
    ),
    "gpt2": Animal("gpt2", "bare", _GPT2, "causal"),
    "t5": Animal("t5", "ended", _T5),
    "bart": Animal("bart", "unigram", {"d_model": 32, **_SIDES, "max_position_embeddings": LENGTH}),
    "mamba": Animal("mamba", "bare", {"hidden_size": 32, "num_hidden_layers": 2}),
}


def make(name: str, folder: Path) -> Path:
    """Write a checkpoint of :data:`ZOO` or :data:`PECULIAR` into a folder; return the folder."""
    return write({**ZOO, **PECULIAR}[name], folder)


def write(animal: Animal, folder: Path) -> Path:
    """Write a checkpoint into a folder; return the folder."""
    tokenizer = tokenizers(animal.tokenizer)
    with silence_libraries(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ids = {
            f"{token}_token_id": number
            for token in ("pad", "bos", "eos", "cls", "sep", "mask")
            if (number := getattr(tokenizer, f"{token}_token_id")) is not None
        }
        if animal.kind in ("t5", "bart"):
            ids |= {"decoder_start_token_id": tokenizer.pad_token_id}
        config = AutoConfig.for_model(animal.kind, vocab_size=len(tokenizer), **ids, **animal.config)
        model = _HEADS[animal.head](config)
        for weight in model.parameters():  # so that sentences differ before any training
            weight.data.mul_(3) if weight.dim() > 1 else None
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


_HEADS: dict[str, Callable[[Any], Any]] = {
    "": AutoModel.from_config,
    "mlm": AutoModelForMaskedLM.from_config,
    "causal": AutoModelForCausalLM.from_config,
    "discriminator": ElectraForPreTraining,
}


PECULIAR: dict[str, Animal] = {
    "distilbert-1": Animal("distilbert", "wordpiece", {**_DISTIL, "n_layers": 1}, "mlm"),
    "distilbert-5": Animal("distilbert", "wordpiece", {**_DISTIL, "n_layers": 5}, "mlm"),
    "deberta-v3": Animal(
        "deberta-v2", "unigram", {**_DEBERTA, "position_biased_input": False, "share_att_key": True}, "mlm"
    ),
    "deberta-conv": Animal("deberta-v2", "unigram", {**_DEBERTA, "conv_kernel_size": 3}, "mlm"),
    "albert-inner": Animal(
        "albert", "wordpiece", {**_LONG, "embedding_size": 16, "inner_group_num": 2}, "mlm"
    ),
    "fnet": Animal("fnet", "wordpiece", {**_LONG, "type_vocab_size": 2}),
    "convbert": Animal("convbert", "wordpiece", {**_LONG, "embedding_size": 16}),
    "big_bird": Animal("big_bird", "wordpiece", {**_SIZE, "max_position_embeddings": 1024}),
    "opt-narrow": Animal(
        "opt",
        "begun",
        {
            **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64},
            **{"word_embed_proj_dim": 16, "max_position_embeddings": LENGTH},
        },
    ),
    "llama-null": Animal("llama", "bare", {**_DECODER, "attention_dropout": None}),
    "diffllama": Animal("diffllama", "bare", _DECODER),
    "falcon_mamba": Animal("falcon_mamba", "bare", {"hidden_size": 32, "num_hidden_layers": 2}),
    "ibert": Animal("ibert", "unigram", {**_LONG, "type_vocab_size": 1}),
    "squeezebert": Animal("squeezebert", "wordpiece", {**_LONG, "embedding_size": 32}),
    "longt5": Animal("longt5", "ended", _T5),
    "canine": Animal("canine", "wordpiece", _LONG),
}
"""Architectures of which something has once been read wrongly."""


@cache
def tokenizers(name: str) -> Any:
    """Return a tokenizer trained on the embedded world's text."""
    if name == "wordpiece":
        return _wordpiece()
    if name == "unigram":
        return _unigram()
    specials = ["<pad>", "<begin>", "<end>", "<mask>"]
    forms = {"bare": None, "begun": "<begin> $A", "ended": "$A <end>", "masked": "<begin> $A <end>"}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_text(), trainer)
    if form := forms[name]:
        marks = [(token, tokenizer.token_to_id(token)) for token in specials]
        tokenizer.post_processor = processors.TemplateProcessing(single=form, special_tokens=marks)
    given = {"pad_token": "<pad>", "eos_token": "<end>", "bos_token": "<begin>"}
    given |= {"mask_token": "<mask>"} if name == "masked" else {}
    return _MAKE(tokenizer_object=tokenizer, model_max_length=LENGTH, **given)


def _wordpiece() -> Any:
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token=marks[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=marks, show_progress=False)
    tokenizer.train_from_iterator(_text(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    named = dict(zip(("pad", "unk", "cls", "sep", "mask"), marks, strict=True))
    given = {f"{name}_token": token for name, token in named.items()}
    return _MAKE(tokenizer_object=tokenizer, model_max_length=LENGTH, **given)


def _unigram() -> Any:
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY, special_tokens=marks, unk_token=marks[3], show_progress=False
    )
    tokenizer.train_from_iterator(_text(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    named = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>"}
    given = {f"{name}_token": token for name, token in (named | {"unk": "<unk>", "mask": "<mask>"}).items()}
    return _MAKE(tokenizer_object=tokenizer, model_max_length=LENGTH, **given)


def _text() -> list[str]:
    return [*training_text(World(1)).sentences[:2000]]


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what makes a checkpoint of :data:`ZOO` once and gives its folder."""
    root = tmp_path_factory.mktemp("zoo")

    @cache
    def folder(name: str) -> Path:
        return make(name, root / name)

    return folder
