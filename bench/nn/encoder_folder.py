"""Encoders as folders for transformers, and for sentence-transformers where it has the pooling.

``bench.json`` names the pooling of a folder's one transformer. A sum of encoders is a folder of such folders
with a ``twin.json`` for :func:`load_encoder`: sentence-transformers would have to run foreign code for it.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from bench.encoder import Encoder
from bench.errors import BenchError, DataError, InputError
from bench.nn.adapter_folder import AdapterBase, copy_adapter, find_base, is_adapter, offer_bases
from bench.nn.architecture import is_bidirectional_decoder
from bench.nn.backbone import TransformerEncoder, silence_libraries
from bench.nn.decoders import OneWordEncoder, TemplateEncoder
from bench.nn.model_metadata import format_front_matter
from bench.nn.model_parts import list_parts, save_model
from bench.nn.prompt_prefix import DOCUMENT, QUERY, PrefixedEncoder
from bench.nn.static_encoder import StaticEncoder, load_static, save_static
from bench.nn.sum_encoder import SumEncoder
from bench.records.filesystem import create_folder_atomically

SCHEMA = 1
SETTINGS, TWIN = "bench.json", "twin.json"
BIDIRECTIONAL = "bidirectional"
"""Value of ``attention`` in bench.json: a decoder's, whose config.json turns the causal mask off."""
TOLERANCE = 1e-6  # of the largest component, or of 1
_POOLINGS = (
    "cls",
    "avg",
    "avg_first_last",
    "avg_last_two",
    "pooler",
    "mask",
    "last",
    "weighted_mean",
    "ngrams",
)
_FIRST_LAYERS = ("embedding", "layer1")
_MODES = {
    "cls": "pooling_mode_cls_token",
    "avg": "pooling_mode_mean_tokens",
    "last": "pooling_mode_lasttoken",
    "weighted_mean": "pooling_mode_weightedmean_tokens",
}  # sentence-transformers has these
_FORMS = ("released", "paper")  # of a sentence in a one-word prompt
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_FRONT_MATTER = """---
library_name: {library}
pipeline_tag: sentence-similarity
tags:
- sentence-similarity
- feature-extraction
- cse-bench
{about}---

"""
_WITH_SENTENCE_TRANSFORMERS = """
## Loading

```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("DIR")
vectors = model.encode(["A sentence.", "Another one."])
```

`bench.load("DIR")` (cse-bench) gives an encoder with the same vectors.
"""
_WITH_BENCH = """
## Loading

```python
import bench  # cse-bench
encoder = bench.load("DIR")
vectors = encoder.encode(["A sentence.", "Another one."])
```

{why}
"""
_BOTH_WAYS = """
The model is a decoder whose attention is bidirectional (`is_causal: false` in config.json). Load it with
transformers 5: older releases may ignore the setting.
"""
_SUM = (
    "The vector of a sentence is the sum of those of its parts, {terms}; each part is "
    "a plain transformers folder."
)
_PLAIN = (
    "The folder is a plain transformers folder. sentence-transformers has no such pooling: it would "
    "silently take the mean of the tokens."
)
_ONE_WORD = (
    "The folder is a plain transformers folder. The vector is the last token's state of a prompt around "
    "the sentence, which `bench.json` has. sentence-transformers can't put text behind a sentence."
)
_SEES_PADDING = (
    "The folder is a plain transformers folder. Padding changes this architecture's vectors: "
    "sentence-transformers would give a sentence another vector beside a longer one."
)

_WITH_PARTS = (
    "Trained weights are in {files} too, which transformers and sentence-transformers leave unread: they "
    "would give other vectors."
)

_ADAPTER = """
## Base model

The folder has a LoRA adapter by itself. Loading adds it to its base model:

{bases}
bench finds the base model in the local model cache, or as a folder of its name next to this one, and
compares the sha256. sentence-transformers and peft (`pip install peft`) find it in the model cache, or by
its name in the current folder. They load the base in the type of its files: give `dtype=torch.float32`
(`model_kwargs={{"dtype": torch.float32}}`) for the same vectors.
"""


def check_target(out: Path) -> None:
    """Raise InputError if ``out`` is a file or a folder with content."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the folder is not empty", where=f"--out {out}", expected="a new folder")


def export_encoder(
    encoder: Encoder,
    out: Path,
    card: str,
    about: Mapping[str, Any] | None = None,
    *,
    adapter: bool = False,
    commit: Callable[[], object] = lambda: None,
) -> None:
    """Write an encoder atomically as a folder that gives the same vectors when it is loaded.

    It is a transformer, plain or with prompts, a table of token vectors, or a sum of such encoders. ``out``
    is new or empty. ``card`` is markdown; front matter (``about``, see
    :func:`bench.nn.model_metadata.format_front_matter`) and loading instructions are added. ``adapter``
    writes LoRA adapters by themselves, without their base models. ``commit`` is called just before the whole
    folder gets its name. Raises InputError for a folder with content, another kind of encoder, an encoder
    without adapters, or changed layers; BenchError where writing fails.
    """
    check_target(out)
    bases = find_encoder_bases(encoder) if adapter else ()
    try:
        with create_folder_atomically(out.resolve(), commit) as folder:
            _write_encoder(encoder, folder, adapter=adapter)
            readme = _format_readme(encoder, card, about or {}, bases)
            (folder / "README.md").write_text(readme, "utf-8", newline="\n")
            with offer_bases([base.path for base in bases]):
                _check_reloaded(encoder, folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BenchError(f"the export can't be written: {reason}", where=f"--out {out}") from error


def load_encoder(path: Path, device: str = "cpu") -> Encoder:
    """Return the encoder of a folder that :func:`export_encoder` wrote; code and pickles in it stay unused.

    Raises:
        InputError: another folder, a newer schema, missing or damaged files.
    """
    if (path / SETTINGS).is_file() == (path / TWIN).is_file():
        expected = f"{SETTINGS} (one transformer) or {TWIN} (a sum of them) in it"
        hint = "evaluate other folders with bench run --methods hf:PATH or st:PATH"
        raise InputError(f"'{path}' was not written by bench export", expected=expected, hint=hint)
    if (path / SETTINGS).is_file():
        return _load_part(path, device)
    file = path / TWIN
    values = _read_settings(file, {"parts": list, "weights": list}, kind="sum")
    parts, weights = values["parts"], values["weights"]
    if not all(map(_is_number, weights)) or len(weights) != len(parts):
        raise _damage_error(file, f"weights {weights!r}", "a finite number for each part")
    if len(parts) < 2 or not all(isinstance(part, str) and _PART.fullmatch(part) for part in parts):
        raise _damage_error(file, f"parts {parts!r}", "the names of two or more folders next to it")
    for part in parts:
        if (path / part).resolve().parent != path.resolve():
            raise _damage_error(file, f"part {part!r} leads out of the folder", "a folder next to it")
    return SumEncoder([_load_part(path / part, device) for part in parts], weights)


def _exportable_parts(encoder: Encoder) -> tuple[Encoder, ...]:
    """Return the parts of a sum, or the encoder; raises InputError for an unsupported kind."""
    parts = encoder.parts if isinstance(encoder, SumEncoder) else (encoder,)
    for part in map(_strip_prompts, parts):
        if isinstance(part, TemplateEncoder) and type(part) is not OneWordEncoder:
            what = f"a decoder's folder can't keep the template '{part.template}' around a sentence"
            hint = "name the method with the folder that it was made from: its weights are unchanged"
            raise InputError(what, expected="an encoder with prompts before a sentence", hint=hint)
    kinds = TransformerEncoder | StaticEncoder
    if names := {type(part).__name__ for part in parts if not isinstance(_strip_prompts(part), kinds)}:
        what = f"an encoder of the kind {' and '.join(sorted(names))} can't be exported"
        raise InputError(what, expected="a transformer with a pooling, or a sum of such encoders")
    return parts


def _list_transformers(encoder: Encoder) -> list[TransformerEncoder]:
    parts = map(_strip_prompts, _exportable_parts(encoder))
    return [part for part in parts if isinstance(part, TransformerEncoder)]


def _strip_prompts(part: Encoder) -> Any:
    """Return the encoder that reads sentences with their prompts."""
    return part.base if isinstance(part, PrefixedEncoder) else part


def find_encoder_bases(encoder: Encoder) -> tuple[AdapterBase, ...]:
    """Return the base models of an encoder's adapters; raises InputError for a part without one."""
    bases: dict[str, AdapterBase] = {}
    for number, part in enumerate(_exportable_parts(encoder), 1):
        source = getattr(_strip_prompts(part), "adapter", None)
        if source is None:
            whole = not isinstance(encoder, SumEncoder)
            what = "the encoder has no LoRA adapter" if whole else f"part {number} has no LoRA adapter"
            raise InputError(what, where="--adapter", hint="leave it out for a whole model")
        base = find_base(source)
        bases[base.sha256] = base
    return tuple(bases.values())


def _write_encoder(encoder: Encoder, folder: Path, *, adapter: bool) -> None:
    parts = _exportable_parts(encoder)
    if not isinstance(encoder, SumEncoder):
        _write_part(parts[0], folder, adapter=adapter)
        return
    names = [f"part-{number}" for number in range(1, len(parts) + 1)]
    for name, part in zip(names, parts, strict=True):
        (folder / name).mkdir()
        _write_part(part, folder / name, adapter=adapter)
    weights = list(encoder.weights)
    _write_json(folder / TWIN, {"schema": SCHEMA, "kind": "sum", "parts": names, "weights": weights})


def _write_part(part: Encoder, folder: Path, *, adapter: bool) -> None:
    if isinstance(part, StaticEncoder):
        if part.without is not None or not part.normalize:
            raise InputError("a Model2Vec encoder can't be exported", hint="copy its folder")
        save_static(part.tokenizer, part.table, folder)
        _write_json(folder / SETTINGS, {"schema": SCHEMA, "kind": "static", "dim": part.dim})
        _write_modules(folder, "StaticEmbedding", "Normalize")
        return
    encoder: TransformerEncoder = _strip_prompts(part)
    tokenizer = copy.deepcopy(encoder.tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:  # it would save the latest call's truncation and padding
        backend.no_truncation()
        backend.no_padding()
    tokenizer.model_max_length = encoder.max_length
    tokenizer.padding_side = "right"  # as here: others would count positions from the padding
    if adapter and encoder.adapter is not None:
        copy_adapter(encoder.adapter, folder)
    else:
        _write_weights(encoder, folder)
    with silence_libraries():
        tokenizer.save_pretrained(folder)
    _write_json(folder / SETTINGS, _describe_settings(part, encoder))
    if _fits_sentence_transformers(encoder):
        _write_sentence_transformers(encoder, folder)
        if isinstance(part, PrefixedEncoder):
            prompts = {kind or "any": text for kind, text in part.used.items()}
            config = {"prompts": prompts, "default_prompt_name": "any", "similarity_fn_name": part.similarity}
            _write_json(folder / "config_sentence_transformers.json", config)


def _describe_settings(part: Encoder, encoder: TransformerEncoder) -> dict[str, Any]:
    """Return the content of ``bench.json``."""
    sizes = {"max_length": encoder.max_length, "dim": encoder.dim}
    if isinstance(encoder, OneWordEncoder):
        prompt = {"template": encoder.template, "form": encoder.form, "layer": encoder.layer}
        return {"schema": SCHEMA, "kind": "one word", **prompt, **sizes}
    settings = {
        "schema": SCHEMA,
        "kind": "transformer",
        "pooling": encoder.pooling,
        "first_layer": encoder.first_layer,
        "template": encoder.prompt.text if encoder.prompt else None,
        **sizes,
    }
    if is_bidirectional_decoder(encoder.model.config):
        settings["attention"] = BIDIRECTIONAL
    return settings | ({"prompts": part.used} if isinstance(part, PrefixedEncoder) else {})


def _write_weights(encoder: TransformerEncoder, folder: Path) -> None:
    """Write configuration and weights."""
    weights = encoder.model.state_dict()
    if encoder.pooling != "pooler":  # transformers draws a pooler that a checkpoint lacks
        weights = {name: weight for name, weight in weights.items() if "pooler" not in name.split(".")}
    with silence_libraries():
        save_model(encoder.model, folder, weights)
    shutil.copymode(folder / "config.json", folder / "model.safetensors")  # safetensors keeps others out


def _write_modules(folder: Path, first: str, second: str) -> None:
    """Write modules.json; these class names load in old and new releases of sentence-transformers."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"sentence_transformers.models.{first}"},
        {"idx": 1, "name": "1", "path": f"1_{second}", "type": f"sentence_transformers.models.{second}"},
    ]
    _write_json(folder / "modules.json", modules)


def _fits_sentence_transformers(encoder: TransformerEncoder | StaticEncoder) -> bool:
    if isinstance(encoder, StaticEncoder):
        return True
    plain = not encoder.sees_padding and not list_parts(encoder.model)
    return encoder.pooling in _MODES and plain and not isinstance(encoder, OneWordEncoder)


def _write_sentence_transformers(encoder: TransformerEncoder, folder: Path) -> None:
    _write_modules(folder, "Transformer", "Pooling")
    config: dict[str, Any] = {"max_seq_length": encoder.max_length, "do_lower_case": False}
    if "add_pooling_layer" in inspect.signature(type(encoder.model).__init__).parameters:
        config["model_args"] = {"add_pooling_layer": False}  # prevents a warning about the missing pooler
    _write_json(folder / "sentence_bert_config.json", config)
    (folder / "1_Pooling").mkdir()
    names = (*_MODES.values(), "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens")
    modes = {name: name == _MODES[encoder.pooling] for name in names}
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": encoder.dim, **modes})


def _check_reloaded(encoder: Encoder, folder: Path) -> None:
    """Raise InputError unless the folder gives the encoder's vectors: a changed architecture is lost."""
    sentences = ["", "A sentence.", "Another one, of some more words.", "word " * 50]
    expected = encoder.encode(sentences)
    hint = "its files don't determine it, as after a change of its layers"
    device = _strip_prompts(_exportable_parts(encoder)[0]).device
    try:
        reloaded = load_encoder(folder, device).encode(sentences)
    except InputError as error:
        raise InputError(f"the encoder can't be exported: {error.what}", hint=hint) from error
    scale = max(1.0, float(np.abs(expected).max()))
    if not np.allclose(reloaded, expected, rtol=0, atol=TOLERANCE * scale, equal_nan=True):
        difference = float(np.abs(reloaded - expected).max())
        what = f"the encoder can't be exported: reloading it changes its vectors by {difference:.1e}"
        raise InputError(what, hint=hint)


def _format_readme(
    encoder: Encoder, card: str, about: Mapping[str, Any], bases: Sequence[AdapterBase]
) -> str:
    """Return the card between its front matter and the loading instructions."""
    if isinstance(encoder, SumEncoder):
        terms = " + ".join(f"{w:g} x part-{i}" for i, w in enumerate(encoder.weights, start=1))
        library, loading = "cse-bench", _WITH_BENCH.format(why=_SUM.format(terms=terms))
    elif _fits_sentence_transformers(_strip_prompts(encoder)):
        library, loading = "sentence-transformers", _WITH_SENTENCE_TRANSFORMERS
    else:
        why = _explain_loading(_strip_prompts(encoder))
        library, loading = "transformers", _WITH_BENCH.format(why=why)
    if any(is_bidirectional_decoder(part.model.config) for part in _list_transformers(encoder)):
        loading += _BOTH_WAYS
    matter = format_front_matter(about)
    if bases:
        lines = "".join(f"- {base.name}, sha256 {base.sha256}\n" for base in bases)
        loading = _ADAPTER.format(bases=lines) + loading
        names = json.dumps([base.name for base in bases], ensure_ascii=False)
        matter = f"base_model: {names}\nbase_model_relation: adapter\n{matter}"
    return _FRONT_MATTER.format(library=library, about=matter) + card + loading


def _explain_loading(encoder: TransformerEncoder) -> str:
    """Say why sentence-transformers can't give the encoder's vectors, or what others would leave out."""
    if isinstance(encoder, OneWordEncoder):
        return _ONE_WORD
    if parts := list_parts(encoder.model):
        return _WITH_PARTS.format(files=" and ".join(parts))
    return _SEES_PADDING if encoder.pooling in _MODES else _PLAIN


def _load_part(folder: Path, device: str) -> Encoder:
    """Load a folder of one encoder: a table or a transformer."""
    file = folder / SETTINGS
    if _parse_object(file).get("kind") == "static":
        values = _read_settings(file, {"dim": int}, kind="static")
        table = load_static(folder, device)
        if table.dim != values["dim"]:
            raise _damage_error(file, f"dim {values['dim']}", f"{table.dim}, as the table says")
        table.facts["pooling_from"] = SETTINGS
        return table
    if not is_adapter(folder) and not (folder / "model.safetensors").is_file():
        raise _damage_error(folder, "the weights are missing", "model.safetensors")
    if _parse_object(file).get("kind") == "one word":
        return _load_one_word(folder, device)
    return _load_transformer(folder, device)


def _load_one_word(folder: Path, device: str) -> Encoder:
    """Load a causal model that reads sentences in a prompt."""
    file = folder / SETTINGS
    types = {"template": str, "form": str, "layer": int, "max_length": int, "dim": int}
    values = _read_settings(file, types, kind="one word")
    template, form = values["template"], values["form"]
    if form not in _FORMS:
        raise _damage_error(file, f"form {form!r}", f"one of {', '.join(_FORMS)}")
    if template.count("{sentence}") != 1 or not template.isprintable():
        raise _damage_error(file, f"template {template!r}", "text with {sentence} once")
    encoder = OneWordEncoder(folder, template, form=form, layer=values["layer"], device=device)
    _check_sizes(encoder, values, file)
    return encoder


def _check_sizes(encoder: TransformerEncoder, values: Mapping[str, Any], file: Path) -> None:
    """Raise DataError unless model and tokenizer have the sizes that the settings say."""
    for name in ("max_length", "dim"):
        actual = getattr(encoder, name)
        if actual != values[name]:
            raise _damage_error(file, f"{name} {values[name]}", f"{actual}, as model and tokenizer say")
    encoder.facts["pooling_from"] = SETTINGS


def _load_transformer(folder: Path, device: str) -> Encoder:
    file = folder / SETTINGS
    types = {"pooling": str, "first_layer": str, "template": str | None, "max_length": int, "dim": int}
    optional = {"prompts": dict, "attention": str}
    values = _read_settings(file, types, kind="transformer", optional=optional)
    for name, choices in (("pooling", _POOLINGS), ("first_layer", _FIRST_LAYERS)):
        if values[name] not in choices:
            raise _damage_error(file, f"{name} {values[name]!r}", f"one of {', '.join(choices)}")
    template = values["template"]
    if (template is not None) != (values["pooling"] == "mask") or not (template or "").isprintable():
        raise _damage_error(file, f"template {template!r}", "text for pooling 'mask', else null")
    encoder = TransformerEncoder(
        folder,
        values["pooling"],
        first_layer=values["first_layer"],
        template="auto" if template is None else template,
        device=device,
    )
    _check_sizes(encoder, values, file)
    attention, real = values.get("attention"), is_bidirectional_decoder(encoder.model.config)
    if attention not in (None, BIDIRECTIONAL) or (attention is not None and not real):
        expected = f"{BIDIRECTIONAL}, with is_causal: false in config.json"
        raise _damage_error(file, f"attention {attention!r}", expected)
    prompts = values.get("prompts")
    if prompts is None:
        return encoder
    if set(prompts) != {"", QUERY, DOCUMENT} or not all(isinstance(text, str) for text in prompts.values()):
        expected = f"a text for each of '', '{QUERY}' and '{DOCUMENT}'"
        raise _damage_error(file, f"prompts {prompts!r}", expected)
    return PrefixedEncoder(encoder, prompts[""], prompts[QUERY], prompts[DOCUMENT], source=SETTINGS)


def _read_settings(
    file: Path, types: dict[str, Any], *, kind: str, optional: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Read a settings file with exactly the fields schema, kind, ``types`` and some of ``optional``."""
    values = _parse_object(file)
    schema = values.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        hint = "another bench wrote it: upgrade cse-bench"
        raise _damage_error(file, f"schema {schema!r}", f"schema {SCHEMA}", hint)
    if values.get("kind") != kind:
        raise _damage_error(file, f"kind {values.get('kind')!r}", f"kind '{kind}'")
    types = types | {name: wanted for name, wanted in (optional or {}).items() if name in values}
    if set(values) != {"schema", "kind", *types}:
        raise _damage_error(file, f"fields {sorted(values)}", f"schema, kind, {', '.join(types)}")
    for name, wanted in types.items():
        if not isinstance(values[name], wanted) or isinstance(values[name], bool):
            raise _damage_error(file, f"{name} {values[name]!r}", "a value of its type")
    return values


def _parse_object(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damage_error(file, "it can't be read", "JSON") from error
    if not isinstance(values, dict):
        raise _damage_error(file, "it holds no fields", "a JSON object")
    return values


def _damage_error(place: Path, what: str, expected: str, hint: str = "export the encoder again") -> DataError:
    short = what if len(what) < 200 else f"{what[:200]}..."
    return DataError(short, where=f"{place.parent.name}/{place.name}", expected=expected, hint=hint)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _write_json(file: Path, values: Any) -> None:
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    file.write_text(f"{text}\n", "utf-8", newline="\n")
