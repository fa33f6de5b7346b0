"""Model folders are data: refuse code, other folders' files and network access."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from bench.errors import InputError

MOST_LAYERS = 1024
_CODE = re.compile(r"[a-z0-9_]+")
VOCABULARY = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*.spm")
"""A tokenizer has one of these files, or of those that its class names."""
_MODULE = re.compile(r"sentence_transformers(\.\w+)*\.[A-Z]\w*", re.ASCII)
_ACTIVATION = re.compile(r"torch\.nn(\.\w+)*\.[A-Z]\w*", re.ASCII)
_SHARD = re.compile(r"[^/\\]+\.safetensors|pytorch_model[^/\\]*\.bin")
_NO_READERS = {"", "CNN", "Dense", "Dropout", "LSTM", "LayerNorm", "Normalize", "Pooling"}
_ARGUMENTS = (
    *("model_args", "model_kwargs", "tokenizer_args"),
    *("processor_kwargs", "config_args", "config_kwargs"),
)
_HARMLESS = {
    *("add_pooling_layer", "attn_implementation", "do_lower_case", "dtype", "model_max_length"),
    *("padding_side", "reference_compile", "torch_dtype", "truncation_side", "unpad_inputs", "use_cache"),
    *("use_fast", "use_memory_efficient_attention", "trust_remote_code"),  # which is dropped
}
"""Arguments for transformers that sentence_bert_config.json may hold; weights_only, for one, is refused."""


@contextmanager
def forbid_hub() -> Iterator[None]:
    """Forbid the hub while a folder is loaded, whose settings can name another model to fetch."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def check_folder(folder: Path) -> None:
    """Check a transformers folder before it is loaded.

    Raises InputError for an adapter, another folder's weights, foreign attention code, implausibly many
    layers, or damaged settings.
    """
    if (folder / "adapter_config.json").exists():
        raise InputError(
            "this is an adapter: its settings name another model to load",
            where=f"{folder.name}/adapter_config.json",
            expected="a whole model",
            hint="merge the adapter into its base model and save that",
        )
    for file in sorted(folder.glob("*.index.json")):
        for name in sorted(map(str, _get_object(read_settings(file), "weight_map").values())):
            if not _SHARD.fullmatch(name):
                what = f"it names the weights file '{name}'"
                expected = "files next to it, NAME.safetensors or pytorch_model*.bin"
                raise InputError(what, where=f"{folder.name}/{file.name}", expected=expected)
    if (folder / "config.json").is_file():
        settings = read_settings(folder / "config.json")
        if "transformers_weights" in settings:
            what = "it names another file of weights (transformers_weights)"
            expected = "weights under their usual names"
            raise InputError(what, where=f"{folder.name}/config.json", expected=expected)
        _check_settings(settings, f"{folder.name}/config.json")


def read_model_type(folder: Path) -> object:
    """Return config.json's ``model_type``, if any; raises InputError for a damaged file."""
    kind = _read_optional(folder / "config.json").get("model_type")
    if isinstance(kind, list | dict):
        raise InputError(f"model_type is {kind!r}", where=f"{folder.name}/config.json", expected="a text")
    return kind


def find_ignored_code(folder: Path) -> dict[str, str]:
    """Return a fact on a folder's own class, which stays unused; otherwise {}."""
    named = _get_object(_read_optional(folder / "config.json"), "auto_map").get("AutoModel")
    return {"own_code": f"{named}, not executed"} if isinstance(named, str) and named.isprintable() else {}


def _check_settings(settings: dict[str, Any], where: str) -> None:
    waiting = [settings]
    while waiting:
        for name, value in waiting.pop().items():
            if isinstance(value, dict):
                waiting.append(value)
            if name.endswith("attn_implementation"):
                for code in value.values() if isinstance(value, dict) else [value]:
                    if isinstance(code, str) and not _CODE.fullmatch(code):
                        what = f"{name} = '{code}' is code from elsewhere, which is not executed"
                        raise InputError(
                            what, where=where, expected="eager, sdpa or another of transformers' own"
                        )
            if name.endswith(("layer", "layers")) and type(value) is int and value > MOST_LAYERS:
                raise InputError(f"{name} = {value}", where=where, expected=f"at most {MOST_LAYERS}")


def check_tokenizer(tokenizer: Any, folder: Path, config: Any) -> None:
    """Raise InputError if the folder lacks the vocabulary, or has another than the model's (``config``).

    transformers replaces a missing one by an empty one, and may have saved that: all words would be unknown.
    """
    named = tuple(getattr(tokenizer, "vocab_files_names", {}).values())
    if named:
        check_vocabulary_files(folder, named)
    known, embedded = len(tokenizer), getattr(config, "vocab_size", None)
    if isinstance(embedded, int) and known < embedded / 10:
        what = f"the tokenizer knows {known:,} tokens, the model {embedded:,}"
        raise InputError(what, where=folder.name, expected="the tokenizer that the model was trained with")


def check_vocabulary_files(folder: Path, named: Iterable[str]) -> None:
    """Raise InputError for a folder that lacks the named files and those of :data:`VOCABULARY`."""
    if not any(True for name in (*named, *VOCABULARY) for _ in folder.glob(name)):
        expected = "tokenizer.json, vocab.txt or another file of the model's tokenizer"
        raise InputError("the tokenizer's vocabulary is missing", where=folder.name, expected=expected)


def check_modules(folder: Path) -> list[Path]:
    """Check a sentence-transformers folder before it is loaded; return its modules' folders.

    Raises InputError for a foreign class (it would be imported), a path that leads out, or settings that
    decide how weights and tokenizer are loaded.
    """
    modules, where = read_settings(folder / "modules.json", kind=list), f"{folder.name}/modules.json"
    places = []
    for number, module in enumerate(modules, 1):
        entry = module if isinstance(module, dict) else {}
        lacking = [key for key in ("name", "path", "type") if not isinstance(entry.get(key), str)]
        if lacking:
            raise InputError(f"module {number} has no {' and no '.join(lacking)}", where=where)
        _check_class(module["type"], where)
        _check_path(module["path"], where)
        places.append(folder / module["path"])
    for file in sorted(folder.rglob("*.json")):
        if file.name in ("modules.json", "tokenizer.json", "vocab.json") or file.name.endswith("index.json"):
            continue
        with suppress(_UnreadableError):  # sentence-transformers reads it with the same parser, or not at all
            if isinstance(settings := read_settings(file, kind=object), dict):
                _check_module_settings(settings, file.relative_to(folder.parent).as_posix())
    for place in (folder, *list_inner_folders(places)):
        check_folder(place)
    for place, module in zip(places, modules, strict=True):
        if module["type"].endswith(".Pooling") and not (place / "config.json").is_file():
            raise InputError("the pooling has no config.json", where=f"{folder.name}/{module['path']}")
    first = modules[0]["type"].rpartition(".")[2] if modules else ""
    if first in _NO_READERS:
        what = f"its first module is {f'a {first}' if first else 'missing'}, which reads no text"
        raise InputError(what, where=where, expected="a module that reads text first, such as Transformer")
    return places


def list_inner_folders(places: Iterable[Path]) -> list[Path]:
    """Return modules' folders with those of routers' routes, at any depth."""
    folders: dict[Path, None] = {}
    waiting = list(places)
    while waiting:
        place = waiting.pop(0)
        folders[place] = None
        for name in ("router_config.json", "config.json"):
            with suppress(InputError):
                settings = _read_optional(place / name)
                for path in _get_object(settings, "types"):
                    if "structure" in settings and place / path not in folders:
                        waiting.append(place / path)
    return list(folders)


def _check_module_settings(settings: dict[str, Any], where: str) -> None:
    tokenizer = settings.get("tokenizer_class")
    if isinstance(tokenizer, str) and "." in tokenizer:
        _check_class(tokenizer, where)
    for path, kind in _get_object(settings, "types").items():
        _check_class(kind, where)
        _check_path(path, where)
    activation = settings.get("activation_function")
    if isinstance(activation, str) and "." in activation:
        _check_class(activation, where, _ACTIVATION, "a class of torch.nn")
    for name in _ARGUMENTS:
        for argument, value in _get_object(settings, name).items():
            if argument not in _HARMLESS:
                what = f"{name} holds '{argument}', which decides how the files are loaded"
                raise InputError(what, where=where, expected=f"none but {', '.join(sorted(_HARMLESS))}")
            _check_settings({argument: value}, where)
    if "tokenizer_name_or_path" in settings:
        raise InputError("it names another model's tokenizer", where=where, expected="a tokenizer of its own")


def _check_class(
    kind: object,
    where: str,
    known: re.Pattern[str] = _MODULE,
    expected: str = "classes of sentence_transformers",
) -> None:
    if not isinstance(kind, str) or not known.fullmatch(kind):
        what = f"it names the foreign class '{kind}', which is not executed"
        raise InputError(what, where=where, expected=expected)


def _check_path(text: str, where: str) -> None:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or "\\" in text:
        what = f"the module's path '{text}' leads out of the folder"
        raise InputError(what, where=where, expected="a folder below it")


def loading_error(
    error: Exception, where: str, what: str = "this model", expected: str | None = None
) -> InputError:
    """Return the error for a folder that a library failed to load; ``what`` is its subject."""
    lines = [line.strip() for line in str(error).strip().split("\n")]
    reason = lines[0] or type(error).__name__
    if reason.endswith(":") and len(lines) > 1:  # the second line names the key of a state
        reason = f"{reason} {lines[1]}"
    if "weights only load failed" in reason.lower() or "UnpicklingError" in type(error).__name__:
        what = f"{what} can't be loaded: its .bin file holds pickled objects, which could run code"
        expected = "model.safetensors, or a .bin file of only tensors"
        return InputError(what, where=where, expected=expected, hint="ask its author for safetensors")
    if "ignore_mismatched_sizes" in reason:
        reason = "the shapes of its weights aren't those that config.json gives"
    return InputError(f"{what} can't be loaded: {reason}", where=where, expected=expected)


def check_weights(missing: Sequence[str], where: str, **more: str) -> None:
    """Raise InputError if weights are missing: transformers would draw them at random."""
    if missing:
        what = f"{len(missing)} weight(s) are missing from the checkpoint, the first is {missing[0]}"
        raise InputError(what, where=where, **more)


class _UnreadableError(InputError):
    """A damaged settings file."""


def read_settings(file: Path, kind: type = dict) -> Any:
    """Read a JSON file of a kind; raises InputError for a damaged one."""
    try:
        settings = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _UnreadableError(f"{file.name} is damaged", where=file.parent.name, expected="JSON") from error
    if not isinstance(settings, kind):
        raise InputError(f"{file.name} is damaged", where=file.parent.name, expected="a JSON object or list")
    return settings


def _read_optional(file: Path) -> dict[str, Any]:
    settings: dict[str, Any] = read_settings(file) if file.is_file() else {}
    return settings


def _get_object(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a setting that is a JSON object, {} in place of any other."""
    value = settings.get(name)
    return value if isinstance(value, dict) else {}
