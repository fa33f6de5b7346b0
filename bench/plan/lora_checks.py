"""LoRA in a plan: settings, the library and the targets, checked before any training and without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from bench.errors import InputError
from bench.nn.adapter_folder import is_adapter
from bench.nn.folder_facts import list_model_types, read_json_object
from bench.nn.lora_settings import LoraSettings, check_targets, read_linear_shapes
from bench.nn.model_folder import ModelFolder
from bench.plan.cell import Cell
from bench.training.encoder_options import ENCODER_OPTIONS

_LOW_RATE = 3e-4  # below it adapters hardly move in a short training
_LOWERED = "bf16-weights"
_DEFAULTS = {option.name: option.default for option in ENCODER_OPTIONS if option.name.startswith("lora_")}


def check_lora(cells: Iterable[Cell]) -> None:
    """Raise InputError for settings of LoRA that have no effect or can't work."""
    for part in dict.fromkeys(part for cell in cells for part in cell.walk()):
        options = dict(part.options)
        if "lora_rank" not in options:
            continue
        settings = LoraSettings.from_config(options)
        if settings is None:
            _check_unused(part, options)
        else:
            _check_settings(part, settings)


def _check_unused(part: Cell, options: Mapping[str, Any]) -> None:
    for name, default in _DEFAULTS.items():
        if options.get(name, default) not in (default, part.card.defaults.get(name, default)):
            raise InputError(
                f"{name}={options[name]} has no effect with lora_rank=0, which trains all weights",
                where=part.describe(),
                expected="lora_rank of 1 or more with it",
                hint=f"such as {part.card.name}[lora_rank=8,{name}={options[name]}]",
            )


def _check_settings(part: Cell, settings: LoraSettings) -> None:
    if not has_peft():
        hint = "pip install 'cse-bench[peft]'"
        raise InputError("lora_rank needs the package peft", where=part.describe(), hint=hint)
    if part.model is not None and is_adapter(part.model.path):
        what = f"{part.describe()} trains adapters on {part.model.name}, which is an adapter itself"
        hint = f"merge it with its base model: bench export hf:{part.model.path} --out DIR"
        raise InputError(what, where="--backbone", expected="a whole model", hint=hint)
    if not settings.alpha:
        what = "lora_alpha=0 scales the adapters to nothing"
        raise InputError(what, where=part.describe(), expected="more than 0")
    if part.train_precision == _LOWERED:
        what = f"--train-precision {_LOWERED} with lora_rank={settings.rank}"
        hint = "lora_base=bf16 holds the frozen weights in bfloat16"
        raise InputError(what, where=part.describe(), expected="fp32, tf32 or bf16", hint=hint)
    if part.model is not None and (shapes := find_linear_shapes(part.model)):
        where = f"{part.describe()} on the backbone {part.model.name}"
        try:
            targets = check_targets(settings.targets, list(shapes), part.model.name)
        except InputError as error:
            error.where = where
            raise
        most = max(min(shapes[name]) for name in targets)
        if settings.rank > most:
            what = f"lora_rank={settings.rank} is more than any of its matrices has"
            raise InputError(what, where=where, expected=f"at most {most}, the smaller side of the largest")


def describe_rates(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield a note for each row that trains adapters at a rate for all weights, its own card's excepted."""
    for method, cell in {cell.method: cell for cell in cells}.items():
        low = []
        for role, owner, stage in cell.named_stages:
            config = dict(stage.spec.config)
            own = owner.card.defaults
            usual = own.get(f"{role}.lr", own.get("lr"))
            chosen = not own.get("lora_rank") or config.get("lr") != usual
            low_rate = config.get("lora_rank") and float(config.get("lr", 1.0)) < _LOW_RATE
            if owner is cell and low_rate and chosen:
                low.append(f"{role} lr={config['lr']:g}")
        if low:
            yield f"{method}: {', '.join(low)} suits all weights; adapters mostly need more, such as lr=1e-3"


@cache
def has_peft() -> bool:
    """Return whether the library of adapters is installed."""
    return find_spec("peft") is not None


def find_linear_shapes(model: ModelFolder) -> dict[str, tuple[int, int]]:
    """Return the shapes of a backbone's linear modules by name; {} where its files don't name them."""
    kind = read_json_object(model.path / "config.json").get("model_type")
    return {} if kind in list_model_types("renamed_weights") else read_linear_shapes(model.path)


def count_adapter_weights(model: ModelFolder, settings: LoraSettings) -> int:
    """Count the weights of adapters to a backbone, 0 where its files don't show them."""
    shapes = read_linear_shapes(model.path)
    try:
        names = check_targets(settings.targets, list(shapes), model.name)
    except InputError:  # of other names than the model's modules
        return 0
    return sum(settings.rank * sum(shapes[name]) for name in names)
