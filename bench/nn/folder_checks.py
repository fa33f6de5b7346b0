"""Checks of a model folder: its files, read for a plan before torch is imported, and its tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.nn.folder_facts import count_layers, read_json_object, read_tensor_header
from bench.nn.untrusted_folder import check_folder, check_vocabulary_files, read_model_type

_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_SCALE = re.compile(r"(^|\.)((weight|input)_scale(_inv)?|scales|qweight|qzeros|SCB|absmax|quant_state.*)$")
"""Quantisers' names of the scales of their integers."""
_INDEX = re.compile(r"(_ids|mask|masked_bias|attn\.bias|attention\.bias|mapping|buckets?)$")
"""Names of integer tables other than weights."""
_POINTER = b"version https://git-lfs"


def check_weight_types(folder: Path) -> None:
    """Refuse quantised weights: tensors of scales, or of 8 bits or fewer other than flags."""
    for file in list_weight_files(folder):
        with file.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                what, hint = "this is a pointer of git-lfs, not the weights", "fetch them with: git lfs pull"
                raise InputError(what, where=f"{folder.name}/{file.name}", hint=hint)
        for name, kind, dimensions in _list_tensors(file):
            flag = dimensions < 2 and not name.endswith(("weight", "bias"))
            if _SCALE.search(name) or not (kind in _NAMES or flag or _INDEX.search(name)):
                raise InputError(
                    f"{name} is quantised or a scale ({kind})",
                    where=f"{folder.name}/{file.name}",
                    expected="weights of float64, float32, float16 or bfloat16",
                    hint="save the model with its weights made floating-point again",
                )


def list_weight_files(folder: Path) -> list[Path]:
    """Return the files of weights that loading a folder opens, of several forms the first."""
    for pattern, index in (
        ("model.safetensors", "model.safetensors.index.json"),
        ("pytorch_model.bin", "pytorch_model.bin.index.json"),
    ):
        if (folder / pattern).is_file():
            return [folder / pattern]
        if (folder / index).is_file():
            break
    return sorted((*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")))


def _list_tensors(file: Path) -> Iterator[tuple[str, str, int]]:
    """Yield name, type and number of dimensions of a file's readable tensors."""
    if file.suffix == ".safetensors":
        for name, tensor in (read_tensor_header(file) or {}).items():
            if isinstance(tensor, dict):
                yield name, str(tensor.get("dtype")), len(tensor.get("shape", ()))
        return
    import torch

    try:
        content = torch.load(file, map_location="meta", weights_only=True, mmap=True)
    except Exception:  # many kinds: loading reports them
        return
    names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    for name, tensor in content.items() if isinstance(content, dict) else ():
        if isinstance(tensor, torch.Tensor):
            yield str(name), names.get(tensor.dtype, str(tensor.dtype)), tensor.dim()


def list_tensor_types(*folders: Path) -> Counter[str]:
    """Count the tensors of each floating-point type in the safetensors of folders."""
    counts: Counter[str] = Counter()
    for file in (file for folder in folders for file in sorted(folder.glob("*.safetensors"))):
        for tensor in (read_tensor_header(file) or {}).values():
            if isinstance(tensor, dict) and tensor.get("dtype") in _NAMES:
                counts[_NAMES[tensor["dtype"]]] += 1
    return counts


def dtype_facts(*folders: Path | None) -> dict[str, str | int]:
    """Return a record's facts on the types of safetensors loaded as float32, the most used first."""
    counts = list_tensor_types(*filter(None, folders))
    facts: dict[str, str | int] = {"dtype": "float32"}
    if counts:
        facts["folder_dtype"] = "+".join(name for name, _ in counts.most_common())
    return facts


_NUMBER = re.compile(r"\.\d+\.")
_BUFFER = re.compile(r"(inv_freq|masked_bias|attn\.bias|attention\.bias|position_ids|token_type_ids)$")
"""Tensors of a layer that follow from the configuration."""
_HEAD = re.compile(
    r"^(\w+\.)?(cls|lm_head|classifier|score|qa_outputs|\w+_predictions|generator_lm_head|predictions|head|mlm|decoder|"
    r"sop_classifier|logits_proj|lm_loss|summary|sequence_summary|seq_relationship|vocab_\w+|embed_out|out_proj)\."
)
"""Heads for words, classes and spans, which sentence vectors bypass."""


def check_unread_weights(model: Any, unread: Sequence[str], where: str) -> list[str]:
    """Return a checkpoint's unread tensors; raises InputError for one of the embeddings or of a layer."""
    prefix = f"{model.base_model_prefix}."
    names = [name for name, _ in model.named_parameters()]
    own = {_NUMBER.sub(".0.", name) for name in names}
    stacks = {name[: match.start()] for name in names if (match := _NUMBER.search(name))}
    for name in unread:
        bare = name.removeprefix(prefix)
        match = _NUMBER.search(bare)
        if _BUFFER.search(bare) or not (match or bare.startswith("embeddings.")):
            continue
        layer = "" if match is None else bare[: match.start()]
        if match and (_NUMBER.sub(".0.", bare) in own or (not stacks and not _HEAD.match(bare))):
            what = f"nothing reads {name}, a tensor of a layer that config.json doesn't count"
            expected = "a config.json that names every layer of the weights"
            raise InputError(what, where=where, expected=expected)
        if match is None or layer in stacks:
            what = f"nothing reads {name}, which is trained with the encoder"
            expected = f"weights of a {type(model).__name__} as config.json describes it"
            raise InputError(what, where=where, expected=expected)
    return list(unread)


def is_head(name: str) -> bool:
    """Test for a tensor, or a module, of a head for words, classes or spans.

    >>> is_head("lm_head"), is_head("cls.predictions.transform.dense"), is_head("decoder.layers.0.fc1")
    (True, True, False)
    """
    return _HEAD.match(f"{name}.") is not None and not _NUMBER.search(name)


def find_projections(unread: Sequence[str]) -> list[str]:
    """Return the unread matrices that may project an encoder's vectors."""
    matrices = [name for name in unread if name.endswith(".weight") and "orm" not in name]
    return [name for name in matrices if not _HEAD.match(name)]


def projection_error(names: Sequence[str], where: str) -> InputError:
    """Return the error for a pooler from before the training of a projection."""
    what = f"its pooler is the one from before the training that made {names[0]}, which nothing reads"
    hint = "use pooling cls, which its training read too, or convert the checkpoint"
    return InputError(what, where=where, hint=hint)


OTHER_KINDS = ("sparse_encoder", "cross_encoder", "multi_vector_encoder")
_SETTINGS = "config_sentence_transformers.json"
_WITHOUT_WEIGHTS = {"Transformer", "Pooling", "Normalize", "Dropout"}  # but for the transformer's
_POOLINGS = {
    **{"cls": "cls", "cls_token": "cls", "mean": "avg", "mean_tokens": "avg"},
    **{"lasttoken": "last", "weightedmean": "weighted_mean", "weightedmean_tokens": "weighted_mean"},
    **{"max": "max", "max_tokens": "max"},
    **{"mean_sqrt_len_tokens": "mean_sqrt_len"},
}
"""Our names of sentence-transformers' poolings; the last three are not options."""
_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|groups?)\.(\d+)\.")


def check_model_files(folder: Path) -> None:
    """Raise InputError for damaged settings, a missing tokenizer, truncated weights, or missing layers."""
    check_folder(folder)
    if read_model_type(folder) is None:
        return  # transformers may know it by the folder's name
    check_vocabulary_files(folder, _list_tokenizer_files(folder))
    names: list[str] = []
    for file in list_weight_files(folder):
        if file.suffix == ".safetensors":
            header = read_tensor_header(file)
            check_whole_file(file, header)
            names += header or ()
    _check_layers(folder, names)


def check_folder_kind(folder: Path) -> None:
    """Raise InputError for a folder of another kind, which would silently get mean pooling."""
    names = [name for file in folder.glob("model.safetensors") for name in read_tensor_header(file) or ()]
    if read_model_type(folder) != "model2vec" and "embeddings" not in names:
        check_modules_file(folder)
    kind = read_json_object(folder / _SETTINGS).get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise InputError(
            f"it is a {kind}, which gives no single vector of a sentence here",
            where=f"{folder.name}/{_SETTINGS}",
            expected="a SentenceTransformer",
            hint=f"hf:{folder} reads its transformer alone, without the head that was trained with it",
        )


def check_modules_file(folder: Path) -> None:
    """Raise InputError for a folder that lacks modules.json."""
    if not (folder / "modules.json").is_file():
        what = "not a sentence-transformers folder (it would silently become mean pooling)"
        hint = "use hf:PATH:pooling for a plain transformers folder"
        raise InputError(what, where=folder.name, expected="modules.json in it", hint=hint)


def check_transformer_alone(folder: Path) -> None:
    """Raise InputError for a sentence-transformers folder with more trained modules than hf: reads."""
    if (folder / "twin.json").is_file():
        what, hint = "it is a sum of encoders, which bench export wrote", f"use exported:{folder}"
        raise InputError(what, where=folder.name, expected="the folder of one transformer", hint=hint)
    modules = read_json_object(folder / "modules.json", list)
    for kind in (str(module.get("type")) for module in modules if isinstance(module, dict)):
        name = kind.rpartition(".")[2]
        if name in _WITHOUT_WEIGHTS:
            continue
        hint = f"st:{folder} reads all of it"
        if not kind.startswith("sentence_transformers.") or any(other in kind for other in OTHER_KINDS):
            hint = "it is no model of one vector a sentence"
        raise InputError(f"its modules.json has a {name}, which hf: leaves out", where=folder.name, hint=hint)


def describe_unread_settings(folder: Path, pooling: str, *, prompted: bool = False) -> str:
    """Name the settings of a folder that its transformer with a pooling leaves out; "" for none."""
    settings = read_json_object(folder / _SETTINGS)
    kind = settings.get("model_type", "SentenceTransformer")
    if kind == "CrossEncoder" or "sentence_transformers" in read_json_object(folder / "config.json"):
        return "it is a CrossEncoder, which scores pairs by a head: hf: leaves the head out"
    if kind != "SentenceTransformer":
        return f"it is a {kind}, of which hf: reads the transformer alone"
    if read_json_object(folder / "bench.json").get("kind") == "one word":
        return "its prompt around a sentence is not read: exported: reads it"
    unread = []
    poolings = [name for names in _list_poolings(folder) for name in names]
    if poolings and poolings != [pooling]:
        unread.append(f"its own pooling is {'+'.join(poolings)}, not {pooling}")
    prompts = sorted(name for name, text in (settings.get("prompts") or {}).items() if text)
    if prompts and not prompted:
        unread.append(f"its prompts ({', '.join(prompts)}) are not read")
    if unread and (folder / "modules.json").is_file():
        unread[-1] += ": st: reads them"
    return " and ".join(unread)


def _list_poolings(folder: Path) -> Iterator[list[str]]:
    """Yield the poolings that each Pooling module of a folder names, by their names as options."""
    modules = [{"type": "Pooling", "path": "1_Pooling"}]  # where sentence-transformers puts it
    if (folder / "modules.json").exists():
        modules = read_json_object(folder / "modules.json", list)
    for module in modules:
        if not isinstance(module, dict) or not str(module.get("type")).endswith("Pooling"):
            continue
        config = read_json_object(folder / str(module.get("path", "")) / "config.json")
        named = config.get("pooling_mode")
        if isinstance(named, str):
            yield [_POOLINGS.get(mode, mode) for mode in named.split("+")]
        else:
            modes = [key.removeprefix("pooling_mode_") for key, value in config.items() if value is True]
            yield [_POOLINGS[mode] for mode in modes if mode in _POOLINGS]


def _list_tokenizer_files(folder: Path) -> Iterator[str]:
    """Yield the files that the tokenizer's settings name, such as spiece.model."""
    for key, value in read_json_object(folder / "tokenizer_config.json").items():
        if key.endswith("_file") and isinstance(value, str) and value and Path(value).name == value:
            yield value


def check_whole_file(file: Path, header: Mapping[str, Any] | None) -> None:
    """Raise InputError for a safetensors file with an unreadable header, or bytes missing at its end."""
    where = f"{file.parent.name}/{file.name}"
    if header is None:
        raise InputError("its header can't be read", where=where, expected="a whole file of safetensors")
    end = 0
    for entry in header.values():
        span = entry.get("data_offsets") if isinstance(entry, dict) else None
        if isinstance(span, list) and len(span) == 2 and type(span[1]) is int:
            end = max(end, span[1])
    with file.open("rb") as stream:
        start = 8 + int.from_bytes(stream.read(8), "little")
    missing = start + end - file.stat().st_size
    if missing > 0:
        what = f"{missing:,} bytes are missing at its end"
        raise InputError(what, where=where, expected="a whole file of safetensors")


def _check_layers(folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder with fewer numbered layers than its configuration names."""
    numbers = {int(match[1]) for name in names if (match := _LAYER.search(name))}
    config = read_json_object(folder / "config.json")
    layers, shared = count_layers(config), "num_hidden_groups" in config
    if numbers and layers is not None and not shared and max(numbers) + 1 < layers:
        what = f"its weights have {max(numbers) + 1} layers, its config.json names {layers}"
        raise InputError(what, where=folder.name, expected="weights of every layer")
