"""Whether a model folder is whole: its files, read without torch for a plan, and its tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.nn.model_folder import count_layers, read_json_object, read_tensor_header
from bench.nn.untrusted import VOCABULARY, check_folder, read_model_type

_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_SCALE = re.compile(r"(^|\.)((weight|input)_scale(_inv)?|scales|qweight|qzeros|SCB|absmax|quant_state.*)$")
"""Names that quantisers give to what their integers are multiplied with."""
_INDEX = re.compile(r"(_ids|mask|masked_bias|attn\.bias|attention\.bias|mapping|buckets?)$")
"""Names of tables of whole numbers that are no weights."""
_POINTER = b"version https://git-lfs"


def read_stored_dtypes(*folders: Path) -> tuple[str, ...]:
    """Return the floating types of the weights in safetensors files of folders, the most used first.

    Empty where there are none: a pickle isn't opened for it.
    """
    found: dict[str, int] = {}
    for file in (file for folder in folders for file in sorted(folder.glob("*.safetensors"))):
        for tensor in (read_tensor_header(file) or {}).values():
            name = tensor.get("dtype") if isinstance(tensor, dict) else None
            if name in _NAMES:
                found[_NAMES[name]] = found.get(_NAMES[name], 0) + 1
    return tuple(sorted(found, key=lambda name: -found[name]))


def check_weight_types(folder: Path) -> None:
    """Refuse weights that stand for other numbers than they hold: quantised ones, whose scales are apart.

    Raises:
        InputError: a tensor of 8 bits or fewer that isn't a flag, or one of scales.
    """
    for file in list_weight_files(folder):
        with file.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise InputError(
                    "this is a pointer of git-lfs, not the weights",
                    where=f"{folder.name}/{file.name}",
                    hint="fetch them with: git lfs pull",
                )
        for name, kind, dimensions in _list_tensors(file):
            flag = dimensions < 2 and not name.endswith(("weight", "bias"))
            if _SCALE.search(name) or not (kind in _NAMES or flag or _INDEX.search(name)):
                raise InputError(
                    f"{name} is quantised or the scale of what is ({kind})",
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
    """Name, type and number of dimensions of a file's tensors; none of what can't be read."""
    if file.suffix == ".safetensors":
        for name, tensor in (read_tensor_header(file) or {}).items():
            if isinstance(tensor, dict):
                yield name, str(tensor.get("dtype")), len(tensor.get("shape", ()))
        return
    import torch

    try:
        found = torch.load(file, map_location="meta", weights_only=True, mmap=True)
    except Exception:  # many kinds: whoever loads it says what is wrong
        return
    names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    for name, tensor in found.items() if isinstance(found, dict) else ():
        if isinstance(tensor, torch.Tensor):
            yield str(name), names.get(tensor.dtype, str(tensor.dtype)), tensor.dim()


def dtype_facts(*folders: Path | None) -> dict[str, str | int]:
    """Return what a record says of the types of an encoder loaded as float32; None: from no folder."""
    names = read_stored_dtypes(*(folder for folder in folders if folder))
    return {"dtype": "float32", **({"folder_dtype": "+".join(names)} if names else {})}


_NUMBER = re.compile(r"\.\d+\.")
_BUFFER = re.compile(r"(inv_freq|masked_bias|attn\.bias|attention\.bias|position_ids|token_type_ids)$")
"""Tensors of a layer that are no weights: they follow from the configuration."""
_HEAD = re.compile(
    r"^(\w+\.)?(cls|lm_head|classifier|score|qa_outputs|\w+_predictions|generator_lm_head|predictions|head|mlm|decoder|"
    r"sop_classifier|logits_proj|lm_loss|summary|sequence_summary|seq_relationship|vocab_\w+|embed_out|out_proj)\."
)
"""Heads for words, classes and spans, which a sentence's vector doesn't pass."""


def check_unread_weights(model: Any, unread: Sequence[str], where: str) -> list[str]:
    """Refuse a checkpoint of whose encoder something isn't read; return what else nothing reads.

    Args:
        model: The loaded model.
        unread: Names of the tensors that it left out.
        where: The folder's name.

    Raises:
        InputError: a tensor of a layer that the model doesn't count, or of one that it has, or of its
            embeddings.
    """
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
            raise InputError(
                f"nothing reads {name}, a tensor of a layer that config.json doesn't count",
                where=where,
                expected="a config.json that names every layer of the weights",
            )
        if match is None or layer in stacks:
            raise InputError(
                f"nothing reads {name}, which is trained with the encoder",
                where=where,
                expected=f"weights of a {type(model).__name__} as config.json describes it",
            )
    return list(unread)


def find_projections(unread: Sequence[str]) -> list[str]:
    """Return the matrices among those that nothing reads that may project an encoder's vectors."""
    return [
        name for name in unread if name.endswith(".weight") and not _HEAD.match(name) and "orm" not in name
    ]


def projection_error(names: Sequence[str], where: str) -> InputError:
    """Return the error for a pooler that comes from before the training of a projection."""
    return InputError(
        f"its pooler is the one from before the training that made {names[0]}, which nothing reads",
        where=where,
        hint="use pooling cls, which its training read too, or convert the checkpoint",
    )


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


def check_model_files(folder: Path) -> None:
    """Check the files of a transformers folder: what would fail when the model is loaded.

    Shapes of single tensors are not compared, nor what an architecture's class would name them.

    Raises:
        InputError: settings that aren't JSON, no tokenizer, a file of weights that was cut off, or fewer
            layers in it than the configuration names.
    """
    check_folder(folder)
    if read_model_type(folder) is None:
        return  # transformers may know it by the folder's name
    if not any(True for name in (*VOCABULARY, *_list_tokenizer_files(folder)) for _ in folder.glob(name)):
        raise InputError(
            "the tokenizer's vocabulary is missing",
            where=folder.name,
            expected="tokenizer.json, vocab.txt or another file of the model's tokenizer",
        )
    headers = {
        file: read_tensor_header(file) for file in list_weight_files(folder) if file.suffix == ".safetensors"
    }
    for file, header in headers.items():
        _check_length(file, header)
    _check_layers(folder, [name for header in headers.values() for name in header or ()])


def check_folder_kind(folder: Path) -> None:
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
    kind = read_json_object(folder / _SETTINGS).get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise InputError(
            f"it is a {kind}, which gives no single vector of a sentence here",
            where=f"{folder.name}/{_SETTINGS}",
            expected="a SentenceTransformer",
            hint=f"hf:{folder} reads its transformer alone, without the head that was trained with it",
        )


def _is_model2vec(folder: Path) -> bool:
    if read_model_type(folder) == "model2vec":
        return True
    return any("embeddings" in (read_tensor_header(file) or ()) for file in folder.glob("model.safetensors"))


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


def describe_unread_settings(folder: Path, pooling: str, *, prompted: bool = False) -> str:
    """Say which of a folder's own settings the transformer alone with a pooling leaves out; "" for none.

    Args:
        folder: The folder.
        pooling: The pooling that is taken, as the option names it.
        prompted: A prompt is given as an option.
    """
    settings = read_json_object(folder / _SETTINGS)
    kind = settings.get("model_type", "SentenceTransformer")
    if kind == "CrossEncoder" or "sentence_transformers" in read_json_object(folder / "config.json"):
        return "it is a CrossEncoder, which scores pairs by a head: hf: leaves the head out"
    if kind != "SentenceTransformer":
        return f"it is a {kind}, of which hf: reads the transformer alone"
    parts = []
    own = [name for place in _list_poolings(folder) for name in place]
    if own and own != [pooling]:
        parts.append(f"its own pooling is {'+'.join(own)}, not {pooling}")
    prompts = sorted(name for name, text in (settings.get("prompts") or {}).items() if text)
    if prompts and not prompted:
        parts.append(f"its prompts ({', '.join(prompts)}) are not read")
    way = ": st: reads them" if (folder / "modules.json").is_file() else ""
    return f"{' and '.join(parts)}{way}" if parts else ""


def _list_poolings(folder: Path) -> Iterator[list[str]]:
    """Yield the poolings that each Pooling module of a folder names, as the option ``pooling`` does."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        modules = [{"type": "Pooling", "path": "1_Pooling"}]  # where sentence-transformers puts it
    except (OSError, ValueError, RecursionError):
        return
    for module in modules if isinstance(modules, list) else ():
        if not isinstance(module, dict) or not str(module.get("type")).endswith("Pooling"):
            continue
        said = read_json_object(folder / str(module.get("path", "")) / "config.json")
        named = said.get("pooling_mode")
        if isinstance(named, str):
            yield [_POOLINGS.get(mode, mode) for mode in named.split("+")]
        else:
            modes = [key.removeprefix("pooling_mode_") for key, value in said.items() if value is True]
            yield [_POOLINGS[mode] for mode in modes if mode in _POOLINGS]


def _list_tokenizer_files(folder: Path) -> Iterator[str]:
    """Files that the tokenizer's settings name, such as spiece.model."""
    settings = read_json_object(folder / "tokenizer_config.json")
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
    layers = count_layers(read_json_object(folder / "config.json"))
    shared = "num_hidden_groups" in read_json_object(folder / "config.json")
    if numbers and layers is not None and not shared and max(numbers) + 1 < layers:
        raise InputError(
            f"its weights have {max(numbers) + 1} layers, its config.json names {layers}",
            where=folder.name,
            expected="weights of every layer",
        )
