"""The modules of a sentence-transformers model, at any depth, each compared with its folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bench.errors import InputError
from bench.nn.adapter_folder import is_adapter
from bench.nn.adapter_merge import merge_adapter
from bench.nn.architecture import check_vocabulary, find_longest_input
from bench.nn.folder_checks import OTHER_KINDS, check_unread_weights, find_projections, projection_error
from bench.nn.folder_facts import read_json_object
from bench.nn.untrusted_folder import check_tokenizer, check_weights, find_ignored_code

_ROUTERS = ("Router", "Asym")  # the second is the older name of the first
_ROUTER_SETTINGS = ("router_config.json", "config.json")


class ModulePart(NamedTuple):
    """A module of a model."""

    module: Any
    folder: Path  # folder of its files
    kind: str  # class that the folder names, without its package
    route: str  # names of the routes that lead to it, "" for all texts


def match_modules(model: Any, folder: Path) -> list[ModulePart]:
    """Return a model's modules, routers' too, with folders; raises InputError for unexpected classes."""
    entries = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    named = [(folder / entry["path"], str(entry.get("type"))) for entry in entries]
    return list(_match_level([*model], named, folder, ""))


def _match_level(
    modules: Sequence[Any], named: Sequence[tuple[Path, str]], folder: Path, route: str
) -> Iterator[ModulePart]:
    where = f"{folder.name}, route {route}" if route else folder.name
    if len(modules) != len(named):
        what = f"it names {len(named)} modules, of which sentence-transformers built {len(modules)}"
        raise InputError(what, where=where, expected="modules with names of their own")
    for module, (place, kind) in zip(modules, named, strict=True):
        wanted, built = kind.rpartition(".")[2], type(module).__name__
        if other := next((part for part in kind.split(".") if part in OTHER_KINDS), None):
            what = f"its {wanted} is a module of a {other}, which gives no single vector of a sentence"
            raise InputError(what, where=where, expected="modules of a SentenceTransformer")
        if {wanted, built} - {*_ROUTERS} and wanted != built:
            what = f"it names the module {wanted}, of which sentence-transformers made a {built}"
            raise InputError(what, where=where, expected="a module that gives one vector of a sentence")
        yield ModulePart(module, place, wanted, route)
        if built in _ROUTERS:
            yield from _match_routes(module, place, route)


def _match_routes(router: Any, place: Path, outer: str) -> Iterator[ModulePart]:
    """Yield the modules of a router's routes; a shared one once."""
    router_settings, config = (read_json_object(place / name) for name in _ROUTER_SETTINGS)
    settings = router_settings or config
    types, structure = settings.get("types", {}), settings.get("structure", {})
    seen: set[int] = set()
    for name, modules in router.sub_modules.items():
        inner = structure.get(name, [])
        named = [(place / path, str(types.get(path))) for path in inner]
        for part in _match_level([*modules], named, place, f"{outer}/{name}".strip("/")):
            if id(part.module) not in seen:
                yield part
            seen.add(id(part.module))


def check_module_part(part: ModulePart, source: Path) -> dict[str, Any]:
    """Check a transformer's weights, vocabulary and padding, and cut its length to its positions.

    An adapter in the folder ``source`` is added to the weights.

    Returns facts on unread weights and a cut length; {} for other modules, which load strictly. Raises
    InputError for missing weights, or unread parts of the encoder.
    """
    model, folder = getattr(part.module, "auto_model", None), part.folder
    if not isinstance(model, PreTrainedModel):
        return {}
    facts = {**find_ignored_code(folder), **_check_weights(model, part)}
    if is_adapter(source) and (left_out := merge_adapter(model, source)):
        facts["unread"] = ", ".join(filter(None, (facts.get("unread"), *left_out)))
    tokenizer = getattr(part.module, "tokenizer", None)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return facts
    check_tokenizer(tokenizer, folder, model.config)
    check_vocabulary(model, tokenizer, folder.name)
    if tokenizer.pad_token is None:
        raise InputError(
            "the tokenizer has no padding token, and sentence-transformers pads",
            where=folder.name,
            expected='a "pad_token" in tokenizer_config.json',
            hint="hf:PATH with the folder's pooling, such as hf:PATH:last, does without",
        )
    asked, most = part.module.max_seq_length, find_longest_input(model, tokenizer)
    if asked is not None and asked > most:
        part.module.max_seq_length = most
        facts["length_from"] = f"the model's positions; the folder says {asked}"
    return facts


def _check_weights(model: PreTrainedModel, part: ModulePart) -> dict[str, Any]:
    kind: Any = type(model)
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False, "weights_only": True}
    with torch.random.fork_rng(devices=[]):
        _, info = kind.from_pretrained(part.folder, config=model.config, output_loading_info=True, **safe)
    missing = sorted(info["missing_keys"]) + sorted(map(str, info["mismatched_keys"]))
    if not _reads_pooler(part.module):
        missing = [key for key in missing if "pooler" not in key.split(".")]
    check_weights(missing, part.folder.name)
    unread = find_projections(check_unread_weights(model, sorted(info["unexpected_keys"]), part.folder.name))
    if unread and _reads_pooler(part.module):
        raise projection_error(unread, part.folder.name)
    return {"unread": ", ".join(unread)} if unread else {}


def _reads_pooler(module: Any) -> bool:
    """Test whether a module passes on its model's pooler output."""
    outputs = getattr(module, "modality_config", None) or {}
    read = [way.get("method_output_name") for way in outputs.values() if isinstance(way, dict)]
    return any("pooler_output" in name for name in read if isinstance(name, str | list | tuple))
