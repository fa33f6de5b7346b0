"""Tiny stand-ins of profiles' backbones: the profile's own architecture with other sizes."""

from __future__ import annotations

import json
from pathlib import Path

from bench.config.profiles import load_profile
from tests.support.zoo import LENGTH, Animal, write

KINDS = {
    "bert-large": ("wordpiece", "mlm"),
    "roberta-large": ("unigram", "mlm"),
    "modernbert-base": ("wordpiece", "mlm"),
    "deberta-v3-base": ("unigram", "mlm"),
    "qwen3-0.6b": ("bare", "causal"),
    "llama-3.2-1b": ("begun", "causal"),
}
"""Tokenizer and head of each profile's stand-in."""
DECODERS = ("qwen3-0.6b", "llama-3.2-1b")
_PROMPTS = 512
_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "max_position_embeddings": LENGTH + 2,
    "position_buckets": 16,
}


def make_stand_in(profile: str, folder: Path) -> Path:
    """Write a random checkpoint of a profile's architecture into a folder; return the folder."""
    config = dict(load_profile(profile).architecture)
    kind = str(config.pop("model_type"))
    del config["vocab_size"]
    sizes = {name: value for name, value in _SIZES.items() if name in config}
    tokenizer, head = KINDS[profile]
    if profile in DECODERS:  # a prompt of MetaEOL has 231 tokens
        sizes["max_position_embeddings"] = _PROMPTS
    write(Animal(kind, tokenizer, {**config, **sizes}, head), folder)
    if profile in DECODERS:
        settings = folder / "tokenizer_config.json"
        facts = json.loads(settings.read_text(encoding="utf-8")) | {"model_max_length": _PROMPTS}
        settings.write_text(json.dumps(facts), encoding="utf-8")
    return folder
