"""Settings of LoRA adapters and of an adapter folder, read without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.nn.folder_facts import read_tensor_header
from bench.nn.untrusted_folder import read_settings

CONFIG = "adapter_config.json"
"""Configuration of an adapter, as peft writes it."""
WEIGHTS = "adapter_model.safetensors"
"""Weights of an adapter, by peft's names."""
ALL_LINEAR = "all-linear"
"""Value of ``lora_targets`` for every linear module of the layers."""
_KINDS_OF_LORA = ("use_dora", "use_qalora", "use_bdlora", "lora_bias", "rank_pattern", "alpha_pattern")
_MORE = (
    *("modules_to_save", "trainable_token_indices", "target_parameters", "layer_replication"),
    *("alora_invocation_tokens", "megatron_config", "arrow_config", "exclude_modules"),
    *("layers_to_transform", "layers_pattern"),
)
_IN_LAYER = re.compile(r"\.\d+\.")
_OTHER_MATRIX = re.compile(r"norm|emb|bias", re.IGNORECASE)
"""Parts of the names of matrices that are no linear module's."""


@dataclass(frozen=True)
class LoraSettings:
    """Rank r, alpha and dropout of adapters, and the modules that they adapt."""

    rank: int
    alpha: float
    dropout: float = 0.0
    targets: str = ALL_LINEAR  # or the last parts of modules' names, joined by +
    base: str = "fp32"  # weights of the frozen backbone in training: fp32 or bf16

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LoraSettings | None:
        """Return the settings that options or a stage's config give; None where LoRA is off."""
        rank = int(config.get("lora_rank", 0))
        if not rank:
            return None
        return cls(
            rank,
            float(config["lora_alpha"]),
            float(config["lora_dropout"]),
            str(config["lora_targets"]),
            str(config["lora_base"]),
        )


def check_targets(targets: str, known: Sequence[str], where: str) -> list[str]:
    """Return the modules that ``lora_targets`` asks for, of the linear modules of the layers.

    Raises InputError for a target that names none of them.
    """
    if targets == ALL_LINEAR:
        if not known:
            raise InputError("its layers have no linear module, so LoRA has nothing to adapt", where=where)
        return list(known)
    chosen: set[str] = set()
    for target in targets.split("+"):
        matching = [name for name in known if f".{name}".endswith(f".{target}")]
        if not target or not matching:
            raise InputError(
                f"lora_targets: no linear module of the layers is called '{target}'",
                where=where,
                expected=f"{ALL_LINEAR}, or of {', '.join(list_module_names(known))}, joined by +",
            )
        chosen.update(matching)
    return [name for name in known if name in chosen]


def read_linear_shapes(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the shapes of the matrices in a folder's layers by module, as its safetensors headers say."""
    shapes: dict[str, tuple[int, int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        for tensor, entry in (read_tensor_header(file) or {}).items():
            name, _, kind = tensor.rpartition(".")
            shape = entry.get("shape") if isinstance(entry, dict) else None
            if kind != "weight" or not is_in_layer(name) or _OTHER_MATRIX.search(name.rpartition(".")[2]):
                continue
            if isinstance(shape, list) and len(shape) == 2:
                shapes[name] = (int(shape[0]), int(shape[1]))
    return shapes


def is_in_layer(name: str) -> bool:
    """Test a module's name for one within a numbered layer."""
    return _IN_LAYER.search(f".{name}.") is not None


def list_module_names(known: Sequence[str]) -> list[str]:
    """Return the last parts of modules' names, each once."""
    return [*dict.fromkeys(name.rpartition(".")[2] for name in known)]


def read_adapter_config(folder: Path) -> tuple[LoraSettings, list[str]]:
    """Return the settings in ``adapter_config.json``, and the names of modules in it.

    A pattern in place of names gives none. Raises InputError for an adapter other than plain LoRA.
    """
    settings = read_settings(folder / CONFIG)
    where, expected = f"{folder.name}/{CONFIG}", "a plain LoRA adapter, as peft saves it"
    kind = settings.get("peft_type")
    if kind != "LORA":
        raise InputError(f"it is an adapter of the type {kind!r}", where=where, expected=expected)
    if settings.get("bias", "none") != "none":
        raise InputError(f"it trained biases (bias {settings['bias']!r})", where=where, expected=expected)
    if name := next((name for name in (*_KINDS_OF_LORA, *_MORE) if settings.get(name)), None):
        raise InputError(f"it has {name}, which is not supported", where=where, expected=expected)
    rank, alpha, dropout = settings.get("r"), settings.get("lora_alpha"), settings.get("lora_dropout", 0.0)
    if type(rank) is not int or rank < 1:
        raise InputError(f"its rank r is {rank!r}", where=where, expected="a whole number of 1 or more")
    if not _is_number(alpha) or not _is_number(dropout) or not 0 <= dropout < 1:
        what = f"lora_alpha is {alpha!r}, lora_dropout {dropout!r}"
        raise InputError(what, where=where, expected="numbers, the dropout 0 or more and less than 1")
    scale = float(alpha)
    if settings.get("use_rslora"):
        scale *= math.sqrt(rank)
    targets = settings.get("target_modules")
    if isinstance(targets, str):
        targets = []
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise InputError("its target_modules are no list of names", where=where, expected=expected)
    return LoraSettings(rank, scale, float(dropout), "+".join(targets)), targets


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floating-point ones
        return False
