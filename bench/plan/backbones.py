"""Backbones: a profile's own, made on first use, and what methods need of theirs, before anything trains."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from bench.card import (
    DROPOUT,
    EMBEDDINGS,
    FIRST_TOKEN,
    IDS_ALONE,
    LAYERS,
    MASK_TOKEN,
    MASKED_LM,
    MLM_HEAD,
    NEEDS,
    OWN_NORMS,
    PADDING,
    POOLER,
    POOLER_LAYER,
    POSITIONS,
    MethodCard,
    Need,
    OptionValue,
)
from bench.config import profiles
from bench.config.method_ids import parse_method
from bench.config.profiles import Profile
from bench.data.training_data import TrainingData
from bench.errors import DataError, InputError
from bench.nn.folder_checks import check_model_files
from bench.nn.model_folder import (
    PRETRAINING,
    FolderFacts,
    ModelFolder,
    RecipeModel,
    hash_model,
    read_folder_facts,
    read_layer_count,
    resolve_folder,
)
from bench.plan.cell import Cell
from bench.records.fingerprint import hash_canonical_json
from bench.registry import METHODS
from bench.stages import TrainedMethod

THREADS = 2
"""A made backbone is made with as many, whatever its run has: else its last bits would depend on the run."""
_SEED = 1
_VERSION = 1  # to raise with whatever changes the weights that a recipe makes


def profile_backbone(profile: Profile, data: Path | None) -> ModelFolder:
    """Find a profile's backbone.

    Args:
        profile: The profile.
        data: Data folder, for the text of a backbone that is still to be made.

    Returns:
        The folder; of a backbone that is to be made first, where it is going to be, without a hash.

    Raises:
        InputError: it isn't installed.
        DataError: what lies in its place was made otherwise.
    """
    where, name = f"profile {profile.name}", profile.backbone["name"]
    if not profiles.makes_backbone(profile):
        return resolve_folder(profiles.backbone_reference(profile), where=where, name=name)
    recipe = _profile_recipe(profile)
    path = Path(profiles.backbone_reference(profile) or backbone_cache_folder() / f"{name}-{recipe[:12]}")
    words = ["pretrain", "--profile", profile.backbone["profile"], "--steps", str(profile.backbone["steps"])]
    words += ["--seed", str(_SEED), "--threads", str(THREADS)]
    words += ["--data", str(data)] if data else []
    if not path.exists():
        return RecipeModel(path, name, "", recipe, tuple(words))
    check_backbone_recipe(path, recipe)
    return RecipeModel(path, name, hash_model(path), recipe, tuple(words))


def describe_weight_difference(profile: Profile, models: Iterable[ModelFolder | None]) -> str | None:
    """Say where a made backbone isn't the one that the profile names; None where nothing is to be said."""
    own = next((model for model in models if isinstance(model, RecipeModel)), None)
    made = profile.backbone.get("made")
    if own is None or made is None or not (weights := own.path / "model.safetensors").is_file():
        return None
    with weights.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found == made["weights"]:
        return None
    return (
        f"{own.name}: weights {found[:12]}, where the committed records have {made['weights'][:12]}: made by "
        "another kind of processor, or another torch; figures will be near theirs, not equal"
    )


def backbone_shape(profile: Profile, model: ModelFolder) -> tuple[int, bool]:
    """Count layers and pooler like :func:`read_layer_count`, also of a backbone that is still to be made."""
    if model.sha256:
        return read_layer_count(model.path)
    layers, _ = read_layer_count(
        Path(profiles.backbone_reference(profiles.load_profile(profile.backbone["profile"])))
    )
    return layers, False  # a language model has no pooler


def backbone_cache_folder() -> Path:
    """Return the folder of the backbones that were made here: BENCH_CACHE, else the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BENCH_CACHE") or Path(cache) / "cse-bench") / "backbones"


def check_backbone_recipe(path: Path, recipe: str) -> None:
    """Raise DataError unless the folder holds what the recipe makes, by what its training said of itself."""
    try:
        facts = json.loads((path / PRETRAINING).read_text(encoding="utf-8"))
        made = _recipe_hash(
            facts["settings"], facts["seed"], facts["backbone"]["sha256"], facts["text"]["sha256"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{PRETRAINING} does not say how this model was made", where=path.name, hint=f"remove {path}"
        ) from error
    if made != recipe:
        raise DataError(
            "this model was made from another model, text or settings than the profile says",
            where=path.name,
            expected=f"recipe {recipe[:12]}, and this is {made[:12]}",
            hint=f"remove {path}",
        )


def _profile_recipe(profile: Profile) -> str:
    own = profile.backbone
    settings = {**profiles.load_profile(own["profile"]).pretrain, "steps": own["steps"]}
    return _recipe_hash(settings, _SEED, own["from"], own["text"])


def _recipe_hash(settings: Mapping[str, Any], seed: int, model: str, text: str) -> str:
    numbers = {name: float(value) for name, value in settings.items()}
    return hash_canonical_json(
        {"version": _VERSION, "settings": numbers, "seed": seed, "from": model, "text": text}
    )


_TRAINED = (Need(IDS_ALONE), Need(PADDING))
"""What a transformer needs to be trained at all."""
_POOLINGS = {"cls": FIRST_TOKEN, "pooler": POOLER, "mask": MASK_TOKEN}


def check_backbones(cells: Iterable[Cell], training: TrainingData | None = None) -> None:
    """Refuse methods whose backbone lacks what they need, as far as its files say so.

    What they don't say is found when the model is loaded, before its first step.

    Args:
        cells: The cells that are to run.
        training: Their texts, for sentences that are longer than a backbone can read.

    Raises:
        InputError: a folder that isn't whole, a sentence that is too long, or all such methods.
    """
    refused = {}
    asked = list(dict.fromkeys(cells))
    for model in dict.fromkeys(
        model for cell in asked for part in _walk_members(cell) for model in _transformer_folders(part)
    ):
        check_model_files(model.path)
    for cell in asked:
        check = getattr(METHODS.get(cell.card.name), "check_folder", None)
        if check is not None and cell.model is not None:
            check(cell.model.path)
    for cell in asked:
        if training is not None:
            _check_sentence_lengths(cell, training)
        if cell.method not in refused and (found := list(find_missing_needs(cell))):
            refused[cell.method] = found
    if refused:
        raise _build_refusal(list(refused.values()))


def _check_sentence_lengths(cell: Cell, training: TrainingData) -> None:
    """Refuse sentences that some stage reads whole and the backbone has no positions for.

    Words are counted, of which every one is a token at least, so what is refused would surely fail.
    """
    for _, owner, stage in cell.named_stages:
        if owner.model is None or not (owner.model.path / "config.json").is_file():
            continue
        length, most = dict(stage.spec.config).get("max_length"), _read_folder_facts(owner.model).positions
        if not isinstance(length, int) or most is None or length <= most:
            continue
        sentences = training.texts[stage.spec.text].sentences
        long = next((n for n, text in enumerate(sentences, 1) if len(text.split()) + 2 > most), None)
        if long is not None:
            raise InputError(
                f"{cell.describe()} trains on up to {length} tokens of a sentence, {owner.model.name} has "
                f"positions for {most}, and sentence {long} of the text is longer",
                where="--backbone",
                hint=f"give max_length={most}, such as --set {cell.card.name}.max_length={most}",
            )


@dataclass(frozen=True)
class MissingNeed:
    """What a model lacks that a method needs.

    Args:
        cell: What was asked for.
        part: It, or a member of it, which has the need.
        need: The need.
        model: The model.
    """

    cell: Cell
    part: Cell
    need: Need
    model: ModelFolder


def find_missing_needs(cell: Cell) -> Iterator[MissingNeed]:
    """Yield what a cell's models lack, and its members'."""
    for part in _walk_members(cell):
        options = dict(part.options)
        for need in method_needs(part.card, options):
            if model := _find_lacking_model(part, need, options):
                yield MissingNeed(cell, part, need, model)


def _find_lacking_model(part: Cell, need: Need, options: Mapping[str, OptionValue]) -> ModelFolder | None:
    """The model that lacks what is needed, if any."""
    models = {"": part.model, **dict(part.auxiliaries)}
    model = models.get(need.of)
    if model is None or not (model.path / "config.json").is_file():
        return None  # made on first use, or of another kind of folder
    return None if fulfils_need(_read_folder_facts(model), need.what, options) else model


def method_needs(card: MethodCard, options: Mapping[str, OptionValue]) -> list[Need]:
    """Return what a method needs with these options, of its backbone and of the models that options name."""
    by_pooling = (
        _pooling_needs(card) if options.get("pooler", "cls") == "cls" else ()
    )  # else its pooler reads
    found = [
        need
        for need in (*(_TRAINED if _trains_transformer(card) else ()), *card.needs, *by_pooling)
        if need.holds(options)
    ]
    made = any(need.what == POOLER_LAYER for need in found)  # such a method trains a pooler of its own
    return [need for need in found if not (made and need.what == POOLER)]


def _trains_transformer(card: MethodCard) -> bool:
    """True if the method trains a transformer."""
    return any(option.name.split(".")[-1] == "dropout" for option in card.options)


def _pooling_needs(card: MethodCard) -> Iterator[Need]:
    """What the option ``pooling`` of any method needs; avg does without, where the method has it."""
    has_avg = any(option.name == "pooling" and "avg" in option.choices for option in card.options)
    for pooling, what in _POOLINGS.items():
        yield Need(what, "pooling", (pooling,), instead="pooling=avg" if has_avg else "")


def fulfils_need(facts: FolderFacts, what: str, options: Mapping[str, OptionValue]) -> bool:
    """Return whether a folder has what is needed, or doesn't say that it hasn't.

    Args:
        facts: Of the folder.
        what: One of :data:`bench.card.NEEDS`.
        options: The method's, for how many layers it changes.
    """
    known = {
        FIRST_TOKEN: facts.first_token is not False and facts.causal is not True,
        LAYERS: facts.layered,
        OWN_NORMS: facts.own_layers and int(options.get("drop_norms", 0)) <= (facts.layers or 2**31),
        EMBEDDINGS: facts.embeddings,
        POSITIONS: facts.position_ids,
        POOLER: facts.pooler,
        POOLER_LAYER: facts.pooler_layer,
        MASK_TOKEN: facts.mask_token,
        MASKED_LM: facts.masked_lm,
        MLM_HEAD: facts.mlm_head,
        PADDING: facts.masks_padding,
        IDS_ALONE: facts.reads_ids,
        DROPOUT: facts.drops is not False or not _asks_for_dropout(options),
    }
    return known[what] is not False


def _asks_for_dropout(options: Mapping[str, OptionValue]) -> bool:
    return any(bool(value) for name, value in options.items() if name.split(".")[-1] == "dropout")


def _build_refusal(refused: Sequence[Sequence[MissingNeed]]) -> InputError:
    """One error for all methods that are refused: the first in full, of the others what they need."""
    first = refused[0][0]
    cell, part, need, model = first.cell, first.part, first.need, first.model
    facts = _read_folder_facts(model)
    kind = f" ({facts.kind})" if facts.kind else ""
    where = "--methods" if need.of or cell.card.takes_path else "--backbone"
    if cell.card.takes_path:
        named, expected = (
            model.name,
            f"another pooling, as in {cell.card.name}:PATH:avg or {cell.card.name}:PATH:last",
        )
        hint = f"bench show hf:{model.path} says what is read of it"
    else:
        named = f"{part.card.name}.{need.of}: {model.name}" if need.of else f"the backbone {model.name}"
        expected = " or ".join(
            ["another model", *dict.fromkeys(filter(None, map(_suggest_options, refused)))]
        )
        hint = f"bench show hf:{model.path} lists the methods that can train on it"
    through = "" if part is cell else f", by its {part.card.name},"
    others = "".join(f"; {lack.cell.describe()} {NEEDS[lack.need.what]}" for lack, *_ in refused[1:])
    return InputError(
        f"{cell.describe()}{through} needs {NEEDS[need.what]}, which {named}{kind} hasn't got{others}",
        where=where,
        expected=expected,
        hint=hint,
    )


def _suggest_options(found: Sequence[MissingNeed]) -> str:
    """Options, as they are typed, with which a method lacks nothing; "" where there are none."""
    cell = found[0].cell
    asked = parse_method(cell.method, "--methods", recorded=True)
    aliased, brackets, others = asked.name != cell.card.name, cell.method, []
    for part in dict.fromkeys(lack.part for lack in found):
        options = find_sufficient_options(part.card, dict(part.options), partial(_find_lacking_model, part))
        if options is None:
            return ""
        texts = {name: str(value).lower() for name, value in options.items()}
        if part is cell and not aliased:
            given = dict(asked.options) | texts
            start = cell.method[: cell.method.index("[")] if asked.options else cell.method
            brackets = f"{start}[{','.join(f'{name}={text}' for name, text in given.items())}]"
        else:
            row = asked.name if part is cell else part.card.name
            others += [f"--set {row}.{name}={text}" for name, text in texts.items()]
    return " ".join([brackets, *others])


def find_sufficient_options(
    card: MethodCard,
    options: Mapping[str, OptionValue],
    lacking: Callable[[Need, Mapping[str, OptionValue]], object],
) -> dict[str, OptionValue] | None:
    """Return the options to change so that a method needs nothing that is lacking; None where none do.

    Args:
        card: The method's.
        options: All of its options.
        lacking: Of a need and the options, true where a model lacks it.
    """
    now, changed = dict(options), dict[str, OptionValue]()
    while need := next((need for need in method_needs(card, now) if lacking(need, now)), None):
        name, _, text = need.instead.partition("=")
        if not name or name in changed:
            return None
        now[name] = changed[name] = card.option(name, card.name).parse(text, name)
    method = METHODS.get(card.name)
    try:
        if isinstance(method, TrainedMethod):
            method.stages(now)
    except InputError:
        return None
    return changed


def _walk_members(cell: Cell) -> Iterator[Cell]:
    yield cell
    for _, member in cell.members:
        yield from _walk_members(member)


def _transformer_folders(part: Cell) -> Iterator[ModelFolder]:
    """A cell's folders in transformers' format that are there."""
    for model in (part.model, *(model for _, model in part.auxiliaries)):
        if model is not None and (model.path / "config.json").is_file():
            yield model


@cache
def _read_folder_facts(model: ModelFolder) -> FolderFacts:
    """Read a model's folder once: its hash says which one it is."""
    return read_folder_facts(model.path)
