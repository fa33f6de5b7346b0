"""Whether a model folder is whole, by its files alone: read without torch, so that a plan can refuse it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.nn.dtypes import opened
from bench.nn.folder_facts import json_object, layers_in, tensor_header
from bench.nn.untrusted import VOCABULARY, check_folder, model_type

OTHER_KINDS = ("sparse_encoder", "cross_encoder", "multi_vector_encoder")
_SETTINGS = "config_sentence_transformers.json"
_WITHOUT_WEIGHTS = {"Transformer", "Pooling", "Normalize", "Dropout"}  # but for the transformer's
_POOLINGS = {
    **{"cls": "cls", "cls_token": "cls", "mean": "avg", "mean_tokens": "avg"},
    **{"lasttoken": "last", "weightedmean": "weighted_mean", "weightedmean_tokens": "weighted_mean"},
    **{"max": "max", "max_tokens": "max"},
    **{"mean_sqrt_len_tokens": "mean_sqrt_len"},
}
"""What sentence-transformers' names of poolings are called here; the last three are not options."""
_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|groups?)\.(\d+)\.")


def check_whole(folder: Path) -> None:
    """Check the files of a transformers folder: what would fail when the model is loaded.

    Shapes of single tensors are not compared, nor what an architecture's class would name them.

    Raises:
        InputError: settings that aren't JSON, no tokenizer, a file of weights that was cut off, or fewer
            layers in it than the configuration names.
    """
    check_folder(folder)
    if model_type(folder) is None:
        return  # transformers may know it by the folder's name
    if not any(True for name in (*VOCABULARY, *_named_files(folder)) for _ in folder.glob(name)):
        raise InputError(
            "the tokenizer's vocabulary is missing",
            where=folder.name,
            expected="tokenizer.json, vocab.txt or another file of the model's tokenizer",
        )
    headers = {file: tensor_header(file) for file in opened(folder) if file.suffix == ".safetensors"}
    for file, header in headers.items():
        _check_length(file, header)
    _check_layers(folder, [name for header in headers.values() for name in header or ()])


def check_kind(folder: Path) -> None:
    """Raise InputError for a folder of another kind, of which mean pooling would be made.

    A Model2Vec folder has no modules.json, and needs none.
    """
    if not (folder / "modules.json").is_file() and not _is_model2vec(folder):
        raise InputError(
            "not a sentence-transformers folder (it would silently become mean pooling)",
            where=folder.name,
            expected="modules.json in it",
            hint="use hf:PATH:pooling for a plain transformers folder",
        )
    kind = json_object(folder / _SETTINGS).get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise InputError(
            f"it is a {kind}, which gives no single vector of a sentence here",
            where=f"{folder.name}/{_SETTINGS}",
            expected="a SentenceTransformer",
            hint=f"hf:{folder} reads its transformer alone, without the head that was trained with it",
        )


def _is_model2vec(folder: Path) -> bool:
    if model_type(folder) == "model2vec":
        return True
    return any("embeddings" in (tensor_header(file) or ()) for file in folder.glob("model.safetensors"))


def check_transformer_alone(folder: Path) -> None:
    """Refuse a sentence-transformers folder of which more is trained than its transformer.

    Raises:
        InputError: a module with weights, such as a dense layer, which hf: leaves out.
    """
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    types = [str(module.get("type")) for module in modules if isinstance(module, dict)]
    trained = [kind for kind in types if kind.rpartition(".")[2] not in _WITHOUT_WEIGHTS]
    if trained:
        own = trained[0].startswith("sentence_transformers.") and not any(
            k in trained[0] for k in OTHER_KINDS
        )
        raise InputError(
            f"its modules.json has a {trained[0].rpartition('.')[2]}, which hf: leaves out",
            where=folder.name,
            hint=f"st:{folder} reads all of it" if own else "it is no model of one vector a sentence",
        )


def unread_settings(folder: Path, pooling: str) -> str:
    """Say which of a folder's own settings the transformer alone with a pooling leaves out; "" for none.

    Args:
        folder: The folder.
        pooling: The pooling that is taken, as the option names it.
    """
    settings = json_object(folder / _SETTINGS)
    kind = settings.get("model_type", "SentenceTransformer")
    if kind == "CrossEncoder" or "sentence_transformers" in json_object(folder / "config.json"):
        return "it is a CrossEncoder, which scores pairs by a head: hf: leaves the head out"
    if kind != "SentenceTransformer":
        return f"it is a {kind}, of which hf: reads the transformer alone"
    parts = []
    own = [name for place in _poolings(folder) for name in place]
    if own and own != [pooling]:
        parts.append(f"its own pooling is {'+'.join(own)}, not {pooling}")
    if prompts := sorted(name for name, text in (settings.get("prompts") or {}).items() if text):
        parts.append(f"its prompts ({', '.join(prompts)}) are not read")
    return f"{' and '.join(parts)}: st: reads them" if parts else ""


def _poolings(folder: Path) -> Iterator[list[str]]:
    """Yield the poolings that each Pooling module of a folder names, as the option ``pooling`` does."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    for module in modules if isinstance(modules, list) else ():
        if not isinstance(module, dict) or not str(module.get("type")).endswith("Pooling"):
            continue
        said = json_object(folder / str(module.get("path", "")) / "config.json")
        named = said.get("pooling_mode")
        if isinstance(named, str):
            yield [_POOLINGS.get(mode, mode) for mode in named.split("+")]
        else:
            modes = [key.removeprefix("pooling_mode_") for key, value in said.items() if value is True]
            yield [_POOLINGS[mode] for mode in modes if mode in _POOLINGS]


def _named_files(folder: Path) -> Iterator[str]:
    """Files that the tokenizer's settings name, such as spiece.model."""
    settings = json_object(folder / "tokenizer_config.json")
    yield from (
        value
        for key, value in settings.items()
        if key.endswith("_file") and isinstance(value, str) and Path(value).name == value and value
    )


def _check_length(file: Path, header: Mapping[str, Any] | None) -> None:
    where = f"{file.parent.name}/{file.name}"
    if header is None:
        raise InputError("its header can't be read", where=where, expected="a whole file of safetensors")
    spans = [entry.get("data_offsets") for name, entry in header.items() if isinstance(entry, dict)]
    ends = [span[1] for span in spans if isinstance(span, list) and len(span) == 2 and type(span[1]) is int]
    with file.open("rb") as stream:
        start = 8 + int.from_bytes(stream.read(8), "little")
    missing = start + max(ends, default=0) - file.stat().st_size
    if missing > 0:
        raise InputError(
            f"{missing:,} bytes are missing at its end", where=where, expected="a whole file of safetensors"
        )


def _check_layers(folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder of one stack of numbered layers that has fewer of them than its configuration names."""
    numbers = {int(match[1]) for name in names if (match := _LAYER.search(name))}
    layers = layers_in(json_object(folder / "config.json"))
    shared = "num_hidden_groups" in json_object(folder / "config.json")
    if numbers and layers is not None and not shared and max(numbers) + 1 < layers:
        raise InputError(
            f"its weights have {max(numbers) + 1} layers, its config.json names {layers}",
            where=folder.name,
            expected="weights of every layer",
        )
