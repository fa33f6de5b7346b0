"""Add an adapter's matrices to the weights of its base model, in float32."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers.pytorch_utils import Conv1D

from bench.errors import InputError
from bench.nn.adapter_files import PREFIX, check_distinct, match_names, read_adapter
from bench.nn.architecture import ENCODERS_OF_PAIRS
from bench.nn.lora_settings import WEIGHTS


@torch.no_grad()
def merge_adapter(model: nn.Module, folder: Path, missing: Collection[str] = ()) -> list[str]:
    """Add a folder's adapter to a model's weights, in place; return the names of the tensors left out.

    Left out are those of a pooler whose weights are ``missing``, and of the decoder of an encoder alone.
    Raises InputError for an unreadable file, and for modules or shapes that differ from the model's.
    """
    adapter, where = read_adapter(folder), f"{folder.name}/{WEIGHTS}"
    try:
        tensors = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise InputError(f"it can't be read: {error}", where=where, expected="safetensors") from error
    modules: dict[str, Any] = dict(model.named_modules())
    linear = [name for name, module in modules.items() if isinstance(module, nn.Linear | Conv1D)]
    places = match_names(adapter.modules, linear)
    check_distinct(places, where)
    left_out: list[str] = []
    for name, matrices in adapter.modules.items():
        keys = [f"{PREFIX}{name}.lora_{part}.weight" for part in "AB"]
        absent = name not in places or f"{places[name]}.weight" in missing
        if absent and _is_bypassed(name, model):
            left_out += keys
            continue
        if name not in places:
            what = f"it changes {name}, which is no linear module of the {type(model).__name__}"
            raise InputError(what, where=where, expected="the base model that it was trained on")
        module = modules[places[name]]
        inner, outer = (tensors[key].float() for key in keys)
        change = outer @ inner * matrices.scale
        if isinstance(module, Conv1D):
            change = change.T
        if not bool(change.isfinite().all()):
            what = f"the adapter of {name} has values that are infinite or not numbers"
            raise InputError(what, where=where, expected="finite numbers")
        weight = module.weight
        if weight.shape != change.shape:
            what = (
                f"{name} is made for a matrix of {tuple(change.shape)}, the base's has {tuple(weight.shape)}"
            )
            raise InputError(what, where=where, expected="the base model that it was trained on")
        weight.copy_((weight.float() + change.to(weight.device)).to(weight.dtype))
    return left_out


def _is_bypassed(name: str, model: Any) -> bool:
    """Test for a module that a model was loaded without."""
    parts = name.split(".")
    encoder_alone = model.config.model_type in ENCODERS_OF_PAIRS and "decoder" in parts
    return "pooler" in parts or encoder_alone
