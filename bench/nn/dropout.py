"""Dropout of a transformer of any architecture, in every place that keeps a rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from bench.errors import InputError

_SAVED = "_bench_configured"
_WHOLE_LAYERS = ("layerdrop", "layer_drop", "drop_path", "droppath")
_RATES = ("dropout", "dropout_prob", "pdrop")


def set_dropout(model: nn.Module, probability: float) -> None:
    """Set every dropout of a model: modules, numbers that its layers and attention read, its configuration.

    Layerdrop and stochastic depth are turned off. A module that a rate of 0 left out is put in. LoRA adapters
    keep their own.
    :func:`configured_dropout` restores the configuration's values. Raises InputError outside [0, 1).
    """
    if not 0 <= probability < 1:
        raise InputError(f"dropout {probability}", expected="0 or more and less than 1")
    configs, nulls = _find_configs(model), _find_null_rates(model)
    spared = {id(module) for module in list_adapter_dropouts(model)}
    for config in configs:
        first = {n: value for n, value in vars(config).items() if n in nulls or _is_rate(n, value)}
        vars(model).setdefault(_SAVED, {}).setdefault(id(config), (config, first))
    for owner in (*configs, *model.modules()):
        vars(owner).update({name: 0.0 for name in nulls if vars(owner).get(name, 0.0) is None})
    for module in [*model.modules()]:
        if isinstance(module, nn.modules.dropout._DropoutNd):
            if id(module) not in spared:
                module.p = probability
            continue
        for name, child in [*module.named_children()]:
            if isinstance(child, nn.Identity) and _names_dropout(name):
                setattr(module, name, nn.Dropout(probability).train(module.training))
        _set_numbers(vars(module), probability)
    for config in configs:
        _set_numbers(vars(config), probability)


def list_adapter_dropouts(model: nn.Module) -> list[nn.Dropout]:
    """Return the dropout modules of a model's LoRA adapters."""
    owners = (module._modules.get("lora_dropout") for module in model.modules())
    inner = (child for owner in owners if owner is not None for child in owner.children())
    return [child for child in inner if isinstance(child, nn.Dropout)]


def set_adapter_dropout(model: nn.Module, probability: float) -> None:
    """Set the dropout on the input of a model's LoRA adapters."""
    for module in model.modules():
        own = module._modules.get("lora_dropout")
        for name in [*own._modules] if own is not None else ():
            rate: nn.Module = nn.Dropout(probability) if probability else nn.Identity()
            setattr(own, name, rate.train(module.training))


def _find_null_rates(model: nn.Module) -> set[str]:
    """Return the names of rates that a configuration sets to null, which means 0."""
    values = [item for config in _find_configs(model) for item in vars(config).items()]
    return {n for n, value in values if value is None and n.endswith(_RATES) and "classif" not in n}


def find_dropout_classes(model: nn.Module) -> list[str]:
    """Return the classes of the modules whose dropout :func:`set_dropout` sets."""
    classes: dict[str, None] = {}
    nulls = _find_null_rates(model)
    for module in model.modules():
        for name, child in module.named_children():
            left_out = isinstance(child, nn.Identity) and _names_dropout(name)
            if left_out or isinstance(child, nn.modules.dropout._DropoutNd):
                classes[type(module).__name__] = None
        rates = any(_is_rate(n, v) or (v is None and n in nulls) for n, v in vars(module).items())
        if rates and not isinstance(module, nn.modules.dropout._DropoutNd):
            classes[type(module).__name__] = None
    return [*classes]


@contextmanager
def configured_dropout(model: nn.Module) -> Iterator[None]:
    """Restore a configuration's original dropout within the block, for saving a folder."""
    saved: Mapping[int, tuple[Any, dict[str, float | None]]] = vars(model).get(_SAVED, {})
    present = [(config, {name: getattr(config, name) for name in first}) for config, first in saved.values()]
    for config, first in saved.values():
        vars(config).update(first)
    try:
        yield
    finally:
        for config, values in present:
            vars(config).update(values)


def _find_configs(model: nn.Module) -> list[Any]:
    """Return every configuration that a module of the model reads."""
    configs = [vars(module).get("config") for module in model.modules()]
    return [*{id(config): config for config in configs if config is not None}.values()]


def _set_numbers(values: dict[str, Any], probability: float) -> None:
    for name, value in values.items():
        if _is_rate(name, value):
            leaves_out = any(part in name.lower() for part in _WHOLE_LAYERS)
            values[name] = 0.0 if leaves_out else probability


def _is_rate(name: str, value: object) -> bool:
    """Test for a number called dropout, attn_pdrop, layerdrop or similar, classification heads excluded."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return number and _names_dropout(name) and "classif" not in name


def _names_dropout(name: str) -> bool:
    return "drop" in name.lower()
