"""Dropout of a transformer of any architecture: every place that keeps its rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from bench.errors import InputError

_SAVED = "_bench_configured"
_RATES = ("dropout", "dropout_prob", "pdrop")


def set_dropout(model: nn.Module, probability: float) -> None:
    """Set every dropout of a model: modules, numbers that its layers and attention read, its configuration.

    Layers that are left out at random (layerdrop, stochastic depth) aren't any more. A configuration that has
    a dropout of 0 may leave its module out: it gets one. :func:`configured` shows the first values again.

    Args:
        model: A transformer, or a part of one.
        probability: Of each component, in [0, 1).

    Raises:
        InputError: a probability outside [0, 1).
    """
    if not 0 <= probability < 1:
        raise InputError(f"dropout {probability}", expected="0 or more and less than 1")
    configs, nulls = _find_configs(model), _find_null_rates(model)
    for config in configs:
        first = {n: value for n, value in vars(config).items() if n in nulls or _is_rate(n, value)}
        vars(model).setdefault(_SAVED, {}).setdefault(id(config), (config, first))
    for owner in (*configs, *model.modules()):
        vars(owner).update({name: 0.0 for name in nulls if vars(owner).get(name, 0.0) is None})
    for module in [*model.modules()]:
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = probability
            continue
        for name, child in [*module.named_children()]:
            if isinstance(child, nn.Identity) and _names_dropout(name):
                setattr(module, name, nn.Dropout(probability).train(module.training))
        _set_numbers(vars(module), probability)
    for config in configs:
        _set_numbers(vars(config), probability)


def _find_null_rates(model: nn.Module) -> set[str]:
    """Names of the rates that a configuration calls null, which its layers copy and which mean 0."""
    return {
        name
        for config in _find_configs(model)
        for name, value in vars(config).items()
        if value is None and name.endswith(_RATES) and "classif" not in name
    }


def find_dropout_classes(model: nn.Module) -> list[str]:
    """Return the classes of the modules that draw dropout, or could: what :func:`set_dropout` sets."""
    found: dict[str, None] = {}
    nulls = _find_null_rates(model)
    for module in model.modules():
        children = dict(module.named_children())
        own = any(isinstance(child, nn.modules.dropout._DropoutNd) for child in children.values())
        off = any(isinstance(child, nn.Identity) and _names_dropout(name) for name, child in children.items())
        numbers = any(_is_rate(n, v) or (v is None and n in nulls) for n, v in vars(module).items())
        if own or off or (numbers and not isinstance(module, nn.modules.dropout._DropoutNd)):
            found[type(module).__name__] = None
    return [*found]


@contextmanager
def configured_dropout(model: nn.Module) -> Iterator[None]:
    """Give a model's configuration the dropout that it came with, within the block: what a folder keeps."""
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
    """Every configuration that a module of the model reads."""
    found = {id(c): c for module in model.modules() if (c := vars(module).get("config")) is not None}
    return [*found.values()]


def _set_numbers(values: dict[str, Any], probability: float) -> None:
    for name, value in values.items():
        if _is_rate(name, value):
            values[name] = 0.0 if _leaves_out_layers(name) else probability


def _is_rate(name: str, value: object) -> bool:
    """A number called dropout, attn_pdrop, layerdrop or alike, but for classification heads."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return number and _names_dropout(name) and "classif" not in name


def _names_dropout(name: str) -> bool:
    return "drop" in name.lower()


def _leaves_out_layers(name: str) -> bool:
    return any(part in name.lower() for part in ("layerdrop", "layer_drop", "drop_path", "droppath"))
