"""LoRA adapters in a transformer (Hu et al. 2022): W x becomes W x + (alpha / r) B A x, with W frozen.

The library peft puts them into a loaded model in place. The model keeps its class and its layers' modules, so
everything that calls these goes on. An adapter folder has peft's files and names.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from bench.errors import InputError
from bench.nn.dropout import set_adapter_dropout
from bench.nn.lora_settings import (
    CONFIG,
    WEIGHTS,
    LoraSettings,
    check_targets,
    is_in_layer,
    read_adapter_config,
)

_NAME = "default"
"""Name of the adapter in peft's modules; peft leaves it out of files."""
_PREFIX = "base_model.model."
"""How peft's names begin in files."""
_SETTINGS = "_bench_lora"


def add_lora(model: nn.Module, settings: LoraSettings) -> None:
    """Put adapters into a model, in place, and freeze all other weights.

    Initial weights are drawn from torch's state: A uniform, B zero, so that the model's states stay equal.
    Raises InputError for targets that name no linear module of a layer.
    """
    names = check_targets(settings.targets, list_linear_modules(model), type(model).__name__)
    _inject(model, settings, names)
    if settings.base == "bf16":
        lower_base(model)


def continue_lora(model: nn.Module, settings: LoraSettings) -> None:
    """Go on with a model's adapters of an earlier training, with these settings of dropout and base.

    Raises InputError for adapters of another rank or alpha.
    """
    present = get_lora_settings(model)
    if present is None or (present.rank, present.alpha) != (settings.rank, settings.alpha):
        raise InputError(
            f"adapters of rank {settings.rank} and alpha {settings.alpha} can't go on from {present}",
            expected="the settings of the earlier stage",
        )
    set_adapter_dropout(model, settings.dropout)
    if settings.base == "bf16":
        lower_base(model)


def has_lora(model: nn.Module) -> bool:
    """Test for adapters in a model."""
    return any(True for _ in _list_adapted(model))


def lora_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the adapters' weights by their names in peft's files; they share memory with the model."""
    state: dict[str, Tensor] = {}
    for name, module in _list_adapted(model):
        for part in ("lora_A", "lora_B"):
            state[f"{_PREFIX}{name}.{part}.weight"] = getattr(module, part)[_NAME].weight.detach()
    return state


@torch.no_grad()
def merge_lora(model: nn.Module) -> None:
    """Add the adapters to the weights, in place: a plain model in float32. Without adapters it stays."""
    adapted = list(_list_adapted(model))
    if not adapted:
        return
    model.float()
    for name, module in adapted:
        plain = module.get_base_layer()
        plain.weight.add_(module.get_delta_weight(_NAME))
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, plain.train(module.training))
    del vars(model)[_SETTINGS]
    model.requires_grad_(True)


def is_adapter_weight(name: str) -> bool:
    """Test a parameter's name for that of an adapter's weight."""
    return ".lora_A." in name or ".lora_B." in name


def lower_base(model: nn.Module) -> None:
    """Hold the frozen weights in bfloat16, in place; the adapters stay float32.

    So do poolers, which losses call on float32 vectors; they read bfloat16 states as float32.
    """
    spared: set[int] = set()
    for name, module in model.named_modules():
        if "pooler" in name.split("."):
            spared.update(map(id, module.parameters()))
            if isinstance(module, nn.Linear) and not module._forward_pre_hooks:
                module.register_forward_pre_hook(_widen_input)
    for parameter in model.parameters():
        frozen = not parameter.requires_grad and id(parameter) not in spared
        if frozen and parameter.dtype == torch.float32:
            parameter.data = parameter.data.to(torch.bfloat16)


def _widen_input(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Turn a module's bfloat16 input into float32."""
    states, *others = given
    return (states.float() if states.dtype == torch.bfloat16 else states, *others)


def get_lora_settings(model: nn.Module) -> LoraSettings | None:
    """Return the settings of a model's adapters, None without adapters."""
    settings: LoraSettings | None = vars(model).get(_SETTINGS)
    return settings


def write_lora(model: nn.Module, folder: Path, base: str) -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors`` of the model's adapters.

    ``base`` is the name of the base model that the configuration gives.
    """
    from safetensors.torch import save_file

    settings = get_lora_settings(model)
    if settings is None:
        raise ValueError("the model has no adapters")
    adapted = list(_list_adapted(model))
    turned = all(isinstance(module.get_base_layer(), Conv1D) for _, module in adapted)
    names = [name for name, _ in adapted]
    config = _make_config(
        settings,
        names,
        task_type="FEATURE_EXTRACTION",
        base_model_name_or_path=base,
        fan_in_fan_out=turned,
        inference_mode=True,
    )
    facts = config.to_dict() | {"target_modules": names}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    state = {name: tensor.to("cpu").contiguous() for name, tensor in lora_state(model).items()}
    save_file(state, folder / WEIGHTS, metadata={"format": "pt"})


def read_lora(model: nn.Module, folder: Path) -> None:
    """Put a folder's adapters into its base model, in place, frozen base included.

    Raises InputError for an adapter other than LoRA, and for names or shapes that differ from the model's.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    settings, targets = read_adapter_config(folder)
    where = f"{folder.name}/{WEIGHTS}"
    try:
        state = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise InputError(f"it can't be read: {error}", where=where, expected="peft's safetensors") from error
    known = list_linear_modules(model, everywhere=True)
    names = _list_targets(state, known, where)
    asked = {name for name in known if any(name == t or name.endswith(f".{t}") for t in targets)}
    if missing := sorted(asked - set(names)):
        raise InputError(f"it lacks {missing[0]}, which {CONFIG} names", where=where)
    for name in names:
        for part, shape in _expected_shapes(model.get_submodule(name), settings.rank).items():
            key = f"{_PREFIX}{name}.{part}.weight"
            if tuple(state[key].shape) != shape:
                what = f"{key} has the shape {_format_shape(state[key].shape)}"
                expected = f"{_format_shape(shape)}, by the rank and the base model"
                raise InputError(what, where=where, expected=expected)
    with torch.random.fork_rng(devices=[]):
        _inject(model, settings, names)
    for key, tensor in lora_state(model).items():
        tensor.copy_(state[key])


def _expected_shapes(module: nn.Module, rank: int) -> dict[str, tuple[int, int]]:
    """Return the shapes of A and B for a linear module."""
    first, second = (int(size) for size in module.weight.shape)  # type: ignore[union-attr]
    width, out = (first, second) if isinstance(module, Conv1D) else (second, first)
    return {"lora_A": (rank, width), "lora_B": (out, rank)}


def list_linear_modules(model: nn.Module, *, everywhere: bool = False) -> list[str]:
    """Return the names of the linear modules in a transformer's layers; ``everywhere``, of all."""
    linear = (name for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D))
    return [name for name in linear if everywhere or is_in_layer(name)]


def _list_adapted(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the modules with an adapter, by name."""
    for name, module in model.named_modules():
        if "lora_A" in module._modules:
            yield name, module


def _inject(model: nn.Module, settings: LoraSettings, names: Sequence[str]) -> None:
    from peft import inject_adapter_in_model

    config = _make_config(settings, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that a Conv1D is transposed
        inject_adapter_in_model(config, model, _NAME)
    vars(model).pop("peft_config", None)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter_weight(name))
    setattr(model, _SETTINGS, settings)


def _make_config(settings: LoraSettings, names: Sequence[str], **more: Any) -> Any:
    """Return peft's configuration; its alpha may be a fraction."""
    from peft import LoraConfig

    make: Any = LoraConfig
    given = {"r": settings.rank, "lora_alpha": settings.alpha, "lora_dropout": settings.dropout}
    return make(target_modules=list(names), **given, **more)


def _list_targets(state: Mapping[str, Tensor], known: Sequence[str], where: str) -> list[str]:
    """Return the modules that the tensors adapt; raises InputError for an unknown or incomplete one."""
    parts: dict[str, set[str]] = {}
    for name, tensor in state.items():
        match = re.fullmatch(re.escape(_PREFIX) + r"(.+)\.lora_([AB])\.weight", name)
        if match is None or match[1] not in known:
            what = f"nothing reads {name}"
            raise InputError(what, where=where, expected="LoRA adapters of the base model's linear modules")
        if not tensor.is_floating_point():
            raise InputError(f"{name} is of {tensor.dtype}", where=where, expected="floating-point weights")
        parts.setdefault(match[1], set()).add(match[2])
    incomplete = sorted(name for name, found in parts.items() if found != {"A", "B"})
    if incomplete or not parts:
        what = f"{incomplete[0]} has only one of its matrices A and B" if incomplete else "it has no adapter"
        raise InputError(what, where=where)
    return [name for name in known if name in parts]


def _format_shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
