"""Tiny random models of many architectures, with tokenizers made here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

IDS = {"<s>": 0, "</s>": 1, "<pad>": 2}
VOCABULARY = 300
_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": VOCABULARY}
_D_MODEL = {"vocab_size": VOCABULARY, "d_model": 16, "pad_token_id": 2, "eos_token_id": 1}
_LLAMA = {**_SIZES, "intermediate_size": 32, "max_position_embeddings": 64}
_FUNNEL = {"vocab_size": VOCABULARY, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32}
_BART = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))
}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # name: model, its configuration, its tokenizer's settings and special tokens
    "gpt2": (
        "GPT2LMHeadModel",
        {
            **{"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
            **{"bos_token_id": 1, "eos_token_id": 1},
        },
        {"bos_token": "</s>", "eos_token": "</s>"},
    ),
    "llama": ("LlamaForCausalLM", _LLAMA, {"eos_token": "</s>", "padding_side": "left", "post": "<s> $A"}),
    "opt": (
        "OPTForCausalLM",
        {**_SIZES, "ffn_dim": 32, "word_embed_proj_dim": 8, "max_position_embeddings": 64, "pad_token_id": 2},
        {"pad_token": "<pad>", "post": "<s> $A </s>"},
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {**_D_MODEL, "d_kv": 8, "num_layers": 2, "num_heads": 2, "d_ff": 32, "decoder_start_token_id": 2},
        {"pad_token": "<pad>", "post": "$A </s>"},
    ),
    "xlnet": (
        "XLNetModel",
        {**_D_MODEL, "n_layer": 2, "n_head": 2, "d_inner": 32},
        {"pad_token": "<pad>", "cls_token": "<s>", "padding_side": "left", "post": "$A </s> <s>"},
    ),
    "bart": (
        "BartModel",
        {**_D_MODEL, **_BART, "max_position_embeddings": 64, "decoder_start_token_id": 1},
        {"pad_token": "<pad>", "post": "<s> $A </s>"},
    ),
    "deberta": (
        "DebertaV2Model",
        {**_SIZES, "intermediate_size": 32, "relative_attention": True, "pad_token_id": 2},
        {"pad_token": "<pad>", "post": "<s> $A </s>"},
    ),
    "fnet": (  # it reads padding as it reads words
        "FNetModel",
        {**_SIZES, "intermediate_size": 32, "max_position_embeddings": 64, "pad_token_id": 2},
        {"pad_token": "<pad>", "post": "<s> $A </s>"},
    ),
    "funnel": (  # so does it, and cannot read two tokens alone
        "FunnelModel",
        {**_FUNNEL, "block_sizes": [1, 1]},
        {"pad_token": "<pad>", "post": "<s> $A </s>"},
    ),
    "funnel-base": (
        "FunnelBaseModel",
        {**_FUNNEL, "block_sizes": [1, 1, 1]},
        {"pad_token": "<pad>", "post": "<s> $A </s>"},
    ),
    "short": (  # of its tokenizer's 300 ids it knows 100
        "BertModel",
        {**_SIZES, "intermediate_size": 32, "vocab_size": 100},
        {"pad_token": "<pad>", "post": "<s> $A </s>"},
    ),
}


def byte_pairs(post: str | None = None, **settings: Any) -> Any:
    """A tokenizer of bytes and some pairs of them, so that no text is unknown to it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=alphabet, special_tokens=list(IDS), show_progress=False
    )
    text = ['This sentence : "a" means in one word:"', "Rewrite the sentence: The doctor is reading."]
    tokenizer.train_from_iterator(text, trainer)
    if post:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=post, special_tokens=list(IDS.items())
        )
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=tokenizer, **settings)


def tiny(kind: str, folder: Path, *, seed: int = 0, length: int | None = None, **tokenizer: Any) -> Path:
    """Write a random model of :data:`MODELS` with its tokenizer into a folder; return the folder.

    ``length`` replaces the model's number of positions.
    """
    name, sizes, settings = MODELS[kind]
    if length is not None:
        places = {"n_positions", "max_position_embeddings"} & sizes.keys()
        sizes = {**sizes, **dict.fromkeys(places, length)}
    made = getattr(transformers, name)
    hide: Callable[[], None] = logging.disable_progress_bar
    hide()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = made(made.config_class(**sizes)).eval()
        for weight in model.parameters():
            weight.data += 0.2 * torch.randn_like(weight)
        model.save_pretrained(folder)
    byte_pairs(**{**settings, **tokenizer}).save_pretrained(folder)
    return folder
