"""A small causal decoder with random weights: the backbone of methods that profile mini's can't train."""

from __future__ import annotations

from pathlib import Path

from bench.config import profiles
from bench.records.filesystem import create_folder_atomically

_SIZES = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 128}
_SEED = 1


def make_decoder(folder: Path) -> Path:
    """Write a random GPT-2 with the tokenizer of profile mini, unless the folder is there; return it."""
    if folder.is_dir():
        return folder
    import torch
    from transformers import AutoTokenizer, GPT2Config, GPT2Model

    from bench.nn.backbone import silence_libraries
    from bench.training.randomness import own_random_state

    reference = profiles.backbone_reference(profiles.load_profile("mini"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with silence_libraries(), own_random_state(_SEED, "decoder"), create_folder_atomically(folder) as made:
        tokenizer = AutoTokenizer.from_pretrained(reference)
        model = GPT2Model(GPT2Config(vocab_size=len(tokenizer), **_SIZES))
        model.to(torch.float32).save_pretrained(made)
        tokenizer.save_pretrained(made)
    return folder
