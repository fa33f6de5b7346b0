"""LoRA adapters as peft saves them: settings and tensors, checked without torch and without peft.

peft itself would import modules that ``adapter_config.json`` names. An adapter adds s B A to the matrix W of
a module, with s = alpha / r, or alpha / sqrt(r) in rsLoRA.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.nn.folder_checks import check_whole_file, is_head
from bench.nn.folder_facts import list_model_types, read_tensor_header
from bench.nn.lora_settings import CONFIG, WEIGHTS
from bench.nn.untrusted_folder import read_settings

PREFIX = "base_model.model."
"""Beginning of every tensor's name in an adapter file."""
_READ = {
    *(
        "peft_type",
        "r",
        "lora_alpha",
        "use_rslora",
        "rank_pattern",
        "alpha_pattern",
        "target_modules",
        "bias",
    ),
    *("base_model_name_or_path", "revision", "init_lora_weights", "fan_in_fan_out"),
}
_WITHOUT_EFFECT = {
    *("task_type", "auto_mapping", "peft_version", "inference_mode", "lora_dropout", "megatron_core"),
    *("exclude_modules", "layers_to_transform", "layers_pattern", "qalora_group_size", "runtime_config"),
    "ensure_weight_tying",
}
"""Settings of peft that leave the sum of a base and its trained adapter as it is."""
_PLAIN_STARTS = (True, False, None, "gaussian", "orthogonal", "eva")
"""Values of ``init_lora_weights`` that leave the base's weights as they are."""
_EXPECTED = "LoRA or rsLoRA adapters of linear modules"
_SAME_BASE = "the base model that it was trained on"
_MERGE = "merge it with peft (merge_and_unload), and save the whole model"
_TENSOR = re.compile(re.escape(PREFIX) + r"(.+)\.lora_([AB])\.weight")
_PATTERN = re.compile(r"\^?(?:\w|\.|\\\.)+")
"""Keys of ``rank_pattern`` and ``alpha_pattern`` that are names; a regular expression may take forever."""
_NUMBERED = re.compile(r"(.*?\.)?(\d+)(\..+)")
_TYPES = ("F64", "F32", "F16", "BF16")
_TRANSPOSED = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp")
"""Values of ``model_type`` whose layers store W as (inputs, outputs), in transformers' Conv1D."""


@dataclass(frozen=True)
class Matrices:
    """The matrices A (rank, inputs) and B (outputs, rank) of a module, by their sizes."""

    rank: int
    scale: float
    inputs: int
    outputs: int


@dataclass(frozen=True)
class Adapter:
    """An adapter folder's facts."""

    folder: Path
    modules: Mapping[str, Matrices]  # by the module's name
    rank: int

    def describe(self) -> str:
        """Return its kind, rank and size in words."""
        return f"LoRA of rank {self.rank} on {len(self.modules)} modules"


def read_adapter(folder: Path) -> Adapter:
    """Read an adapter folder's settings and the header of its weights.

    Raises InputError for another kind of adapter, further trained weights, weights of a whole model in the
    same folder, pickled weights, and settings that its tensors contradict.
    """
    _check_files(folder)
    settings = read_settings(folder / CONFIG)
    where = f"{folder.name}/{CONFIG}"
    _check_kind(settings, where)
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise InputError(f"its rank r is {_quote(rank)}", where=where, expected="a whole number of 1 or more")
    if not _is_number(alpha):
        raise InputError(f"its lora_alpha is {_quote(alpha)}", where=where, expected="a number")
    ranks, alphas = (_read_pattern(settings, name, where) for name in ("rank_pattern", "alpha_pattern"))
    modules = {}
    for name, (inputs, outputs, own_rank) in _read_shapes(folder).items():
        wanted = _look_up(ranks, name, rank)
        if own_rank != wanted:
            what = f"{name} has matrices of rank {own_rank}, {CONFIG} says {wanted}"
            raise InputError(what, where=f"{folder.name}/{WEIGHTS}")
        divisor = math.sqrt(own_rank) if settings.get("use_rslora") else own_rank
        modules[name] = Matrices(own_rank, _look_up(alphas, name, alpha) / divisor, inputs, outputs)
    _check_targets(settings, modules, where)
    return Adapter(folder, modules, rank)


def check_fit(adapter: Adapter, base: Path, model_type: object) -> None:
    """Raise InputError unless a base folder's safetensors have the adapter's modules, in its shapes.

    Tensors of other formats, and renamed ones, are compared when the model is loaded.
    """
    if model_type in list_model_types("renamed_weights"):
        return
    shapes: dict[str, list[int]] = {}
    for file in base.glob("*.safetensors"):
        for name, entry in (read_tensor_header(file) or {}).items():
            if isinstance(entry, dict) and name.endswith(".weight"):
                shapes[name.removesuffix(".weight")] = list(entry.get("shape", ()))
    if not shapes:
        return
    where = f"{adapter.folder.name}/{WEIGHTS}"
    places = match_names(adapter.modules, shapes)
    check_distinct(places, where)
    for name, matrices in adapter.modules.items():
        place = places.get(name)
        if is_head(name) or is_head(place or name):
            what = f"it changes {name}, a head that sentence vectors bypass"
            raise InputError(what, where=where, expected="adapters of the encoder's modules")
        if place is not None:
            transposed = model_type in _TRANSPOSED
            _check_shape(name, matrices, shapes[place], where, transposed=transposed)
        elif "pooler" not in name.split("."):  # transformers draws one; only pooling=pooler reads it
            what = f"it changes {name}, which the base model {base.name} hasn't got"
            raise InputError(what, where=where, expected=_SAME_BASE)
    _check_layers(adapter, [*shapes], where)


def match_names(modules: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the known name of each module that has one; a first part may be on one side alone.

    >>> match_names(["bert.layer.0.q"], ["layer.0.q"]), match_names(["q"], ["a.q", "b.q"])
    ({'bert.layer.0.q': 'layer.0.q'}, {})
    """
    names = set(known)
    shortened: dict[str, list[str]] = defaultdict(list)
    for name in names:
        shortened[name.partition(".")[2]].append(name)
    found = {}
    for module in modules:
        bare = module.partition(".")[2]
        longer = shortened.get(module, [])
        if module in names:
            found[module] = module
        elif bare in names:
            found[module] = bare
        elif len(longer) == 1:
            (found[module],) = longer
    return found


def check_distinct(places: Mapping[str, str], where: str) -> None:
    """Raise InputError for two adapters of one module, under two names."""
    if len({*places.values()}) < len(places):
        what = "it has two adapters of one module, under two names"
        raise InputError(what, where=where, expected="one name for each module")


def _check_shape(name: str, matrices: Matrices, own: Sequence[int], where: str, *, transposed: bool) -> None:
    shape = [matrices.outputs, matrices.inputs]
    if transposed:
        shape.reverse()
    if [*own] != shape:
        what = f"{name} is made for a matrix of {_join(shape)}, the base model's has {_join(own)}"
        raise InputError(what, where=where, expected=_SAME_BASE)


def _check_files(folder: Path) -> None:
    whole = (
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model*.bin*",
        "model-*.safetensors",
    )
    both = next((file.name for pattern in whole for file in sorted(folder.glob(pattern))), None)
    if both is not None:
        raise InputError(
            f"the folder has an adapter and a whole model ({both}): either would give other vectors",
            where=f"{folder.name}/{CONFIG}",
            expected="one of them",
            hint="put adapter_config.json and adapter_model.safetensors into a folder of their own for the "
            "adapter, or remove them for the whole model",
        )
    if not (folder / WEIGHTS).is_file():
        if any(folder.glob("adapter_model*.bin")):
            what = "its weights are pickled, which could run code"
            hint = "ask its author for safetensors"
            raise InputError(what, where=f"{folder.name}/adapter_model.bin", expected=WEIGHTS, hint=hint)
        raise InputError("the adapter has no weights", where=folder.name, expected=f"{WEIGHTS} in it")


def _check_kind(settings: Mapping[str, Any], where: str) -> None:
    """Refuse adapters of another kind, and settings by which more than A and B would be needed."""

    def refuse(what: str) -> InputError:
        return InputError(what, where=where, expected=_EXPECTED, hint=_MERGE)

    if settings.get("peft_type") != "LORA":
        raise refuse(f"it is an adapter of the kind {_quote(settings.get('peft_type'))}")
    if settings.get("bias", "none") not in ("none", None):
        raise refuse(f"it has trained biases (bias = {_quote(settings['bias'])})")
    start = settings.get("init_lora_weights", True)
    if isinstance(start, dict | list) or start not in _PLAIN_STARTS:
        raise refuse(f"it began from changed weights of its base (init_lora_weights = {_quote(start)})")
    for name, value in settings.items():
        if name not in _READ | _WITHOUT_EFFECT and value not in (None, False, {}, [], ""):
            raise refuse(f"it sets {_quote(name)}, which is not supported")


def _read_pattern(settings: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """Return the numbers of single modules by their names, in their order."""
    pattern = settings.get(name) or {}
    if not isinstance(pattern, dict) or not all(map(_is_number, pattern.values())):
        raise InputError(f"its {name} is damaged", where=where, expected="numbers by names of modules")
    if key := next((key for key in pattern if not _PATTERN.fullmatch(key)), None):
        what = f"its {name} has the regular expression {_quote(key)}"
        raise InputError(what, where=where, expected="names of modules", hint=_MERGE)
    return pattern


def _look_up(pattern: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a module's number, as peft looks it up."""
    keys = (key for key in pattern if re.match(rf"(.*\.)?({key})$", name))
    return pattern.get(next(keys, ""), default)


def _read_shapes(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return inputs, outputs and rank of each module's matrices."""
    file, where = folder / WEIGHTS, f"{folder.name}/{WEIGHTS}"
    header = read_tensor_header(file)
    check_whole_file(file, header)
    parts: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for name, entry in (header or {}).items():
        match = _TENSOR.fullmatch(name)
        if match is None:
            what = f"nothing reads {_quote(name)}, which was trained with the adapter"
            raise InputError(what, where=where, expected=_EXPECTED, hint=_MERGE)
        kind, shape = (entry.get("dtype"), entry.get("shape")) if isinstance(entry, dict) else (None, None)
        if kind not in _TYPES or not isinstance(shape, list) or len(shape) != 2:
            what = f"{_quote(name)} is {_quote(kind)} of the shape {_quote(shape)}"
            raise InputError(what, where=where, expected="a matrix of floating-point numbers")
        parts[match[1]][match[2]] = shape
    if not parts:
        raise InputError("the adapter is empty", where=where, expected="matrices A and B of some modules")
    shapes = {}
    for name, pair in parts.items():
        if set(pair) != {"A", "B"} or pair["A"][0] != pair["B"][1]:
            what = f"the matrices A and B of {_quote(name)} don't belong together"
            raise InputError(what, where=where, expected="A of (rank, inputs) and B of (outputs, rank)")
        shapes[name] = (pair["A"][1], pair["B"][0], pair["A"][0])
    return shapes


def _check_targets(settings: Mapping[str, Any], modules: Iterable[str], where: str) -> None:
    """Refuse a named target without matrices; a target that is a regular expression isn't evaluated."""
    targets = settings.get("target_modules")
    if not isinstance(targets, list):
        return
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in modules):
            what = f"its target {_quote(target)} has no matrices in {WEIGHTS}"
            raise InputError(what, where=where, expected="matrices of every target")


def _check_layers(adapter: Adapter, known: Sequence[str], where: str) -> None:
    """Refuse an adapter that lacks a layer, where its settings name modules of all layers."""
    settings = read_settings(adapter.folder / CONFIG)
    targets = settings.get("target_modules")
    chosen = settings.get("layers_to_transform") is not None or settings.get("exclude_modules")
    if chosen or not isinstance(targets, list) or any(re.search(r"\d", str(target)) for target in targets):
        return
    stacks: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name in known:
        if match := _NUMBERED.fullmatch(name):
            stacks[match[1] or "", match[3]].add(match[2])
    places = match_names(adapter.modules, known)
    own: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name in places.values():
        if match := _NUMBERED.fullmatch(name):
            own[match[1] or "", match[3]].add(match[2])
    for (start, end), numbers in own.items():
        if missing := sorted(stacks[start, end] - numbers, key=int):
            what = f"{start}{missing[0]}{end} has no matrices, other layers have"
            raise InputError(what, where=where, expected="matrices of every layer")


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floating-point ones
        return False


def _join(shape: Sequence[object]) -> str:
    return " x ".join(map(str, shape))


def _quote(value: object) -> str:
    text = str(value)
    return f"'{text[:100]}...'" if len(text) > 100 else f"'{text}'"
