"""Adapters that peft saves, with matrices that change a model's vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model
from transformers import AutoModel

from bench.nn.backbone import silence_libraries


def add_adapter(base: Path, out: Path, config: Any, seed: int = 1) -> Any:
    """Save an adapter with random matrices as peft does; return the model with it."""
    with silence_libraries(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = get_peft_model(AutoModel.from_pretrained(base), config)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data.normal_(0, 0.2)
        model.save_pretrained(out)
    return model.eval()
