"""``bench show hf:FOLDER``: the contents of a model folder, and the methods that can train on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.config.method_ids import parse_method
from bench.encoder import Encoder, PairScorer
from bench.method_card import DROPOUT, NEEDS, Need, OptionValue, format_value
from bench.nn.adapter_folder import find_bases, is_adapter
from bench.nn.adapter_view import open_plain_folder
from bench.nn.architecture import find_longest_input, find_special_ids, state_size
from bench.nn.backbone import load_folder
from bench.nn.dropout import find_dropout_classes
from bench.nn.folder_facts import FolderFacts, read_folder_facts
from bench.nn.model_files import list_hashed_files
from bench.nn.model_folder import hash_model
from bench.plan.backbones import find_sufficient_options, fulfils_need, method_needs
from bench.registry import METHODS
from bench.stages import ComposedMethod, TrainedMethod

Lines = Iterator[tuple[str, str]]
_MOST = 6  # names in a line
_FACTS = (
    *("adapter", "modules", "pooling", "pooling_from", "max_length", "dim", "prompt"),
    *(
        "similarity",
        "batches",
        "length_from",
        "routes",
        "unread",
        "folder_dtype",
        "unread_settings",
        "own_code",
    ),
)
"""Facts of an encoder in order of display."""
_LABELS = {"max_length": "longest input", "folder_dtype": "number type", "unread_settings": "left out"}


def report_folder(folder: Path, encoder: Encoder | PairScorer | None) -> Lines:
    """Yield (label, text) for a model folder and its encoder, if one can be built; raises InputError."""
    yield "folder", f"{folder.name}, sha256 {hash_model(folder)[:12]}"
    files = sorted(file.relative_to(folder).as_posix() for file in list_hashed_files(folder))
    yield "files", ", ".join(files)
    for base in find_bases(folder):
        yield "base", f"{base.name}, sha256 {base.sha256[:12]}"
    if not (folder / "config.json").is_file() and not is_adapter(folder):
        yield from _encoder_lines(encoder)
        return
    with open_plain_folder(folder) as plain:
        facts = read_folder_facts(plain)
    model, tokenizer, missing, unread = load_folder(folder)
    size = model.num_parameters()
    parameters = f"{size / 1e6:.1f} million" if size >= 1e6 else f"{size:,}"
    yield "architecture", f"{facts.kind}, {type(model).__name__}, {parameters} parameters"
    yield "missing", _join_some_names(missing) or "nothing"
    yield "not read", _join_some_names(unread) or "nothing"
    yield "tokenizer", f"{type(tokenizer).__name__}, {len(tokenizer):,} tokens"
    if not find_special_ids(tokenizer)[1]:
        yield "sentence ends", "without a token of its own: pooling last reads the last word's state"
    if encoder is None:
        yield "longest input", f"{find_longest_input(model, tokenizer)} tokens"
        yield "dim", str(state_size(model))
    yield from _encoder_lines(encoder)
    places = find_dropout_classes(model)
    drawn = f"drawn in {', '.join(places)}; training sets it in {facts.dropout}" if places else "none"
    yield "dropout", drawn
    yield from _method_lines(facts, drops=bool(places))


def _encoder_lines(encoder: Encoder | PairScorer | None) -> Lines:
    facts = getattr(encoder, "facts", {})
    for name in _FACTS:
        if name in facts:
            text = str(facts[name])
            if name == "max_length":
                text = f"{text} tokens" if facts[name] else "any: it cuts nothing"
            yield _LABELS.get(name, name.replace("_", " ")), text


def _method_lines(facts: FolderFacts, *, drops: bool) -> Lines:
    """Yield the methods that can train on a folder, and those that lack something, by what they lack."""
    able: list[str] = []
    unable: dict[str, list[str]] = defaultdict(list)
    for name, method in METHODS:
        card = method.card
        if isinstance(method, TrainedMethod) and card.needs_backbone and card.stands_alone:
            need = find_first_lack(name, facts, drops=drops)
            if need is None:
                able.append(name)
            else:
                unable[need].append(_suggest_variant(name, facts, drops=drops))
    yield "can train", ", ".join(able) or "no method"
    for need, names in unable.items():
        yield "can't train", f"{', '.join(names)}: for want of {NEEDS[need]}"


def find_first_lack(name: str, facts: FolderFacts, *, drops: bool = True) -> str | None:
    """Return the first need of a method, or of one it builds on, that a folder lacks with default options."""
    card = METHODS.get(name).card
    for need in method_needs(card, card.defaults):
        if _lacks_need(facts, need, card.defaults, drops=drops):
            return need.what
    lacks = (find_first_lack(member, facts, drops=drops) for member in _default_members(name))
    return next(filter(None, lacks), None)


def _default_members(name: str) -> list[str]:
    """Return the names of the methods that a method builds on by default."""
    method = METHODS.get(name)
    if not isinstance(method, ComposedMethod):
        return []
    return [parse_method(member, name).name for member in method.members(method.card.defaults).values()]


def _suggest_variant(name: str, facts: FolderFacts, *, drops: bool) -> str:
    """Name a method with the options by which it can train, if its defaults prevent that."""
    lacking = partial(_lacks_need, facts, drops=drops)
    card = METHODS.get(name).card
    options = find_sufficient_options(card, card.defaults, lacking)
    if not options or any(find_first_lack(member, facts, drops=drops) for member in _default_members(name)):
        return name
    texts = [f"{key}={format_value(value)}" for key, value in options.items()]
    return f"{name} (but {name}[{','.join(texts)}])"


def _lacks_need(facts: FolderFacts, need: Need, options: Mapping[str, OptionValue], *, drops: bool) -> bool:
    adapters_drop = bool(options.get("lora_rank") and options.get("lora_dropout"))
    undrawn = need.what == DROPOUT and not drops and not adapters_drop
    return undrawn or not fulfils_need(facts, need.what, options)


def _join_some_names(names: Sequence[str]) -> str:
    text = ", ".join(names[:_MOST])
    return f"{text} and {len(names) - _MOST} more" if len(names) > _MOST else text
