"""Backbones: a profile's own, made on first use, and the needs of methods, checked before any training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from bench import method_card as needs
from bench.config import profiles
from bench.config.method_ids import parse_method
from bench.config.profiles import Profile
from bench.data.training_data import TrainingData
from bench.errors import DataError, InputError
from bench.method_card import NEEDS, MethodCard, Need, OptionValue, format_value
from bench.nn import folder_facts, model_folder
from bench.nn.adapter_folder import is_adapter
from bench.nn.adapter_view import open_plain_folder
from bench.nn.folder_checks import check_model_files
from bench.nn.folder_facts import FolderFacts, list_model_types
from bench.nn.model_files import PRETRAINING
from bench.nn.model_folder import ModelFolder, RecipeModel
from bench.plan.batch_checks import check_least_rows
from bench.plan.cell import Cell
from bench.plan.lora_checks import check_lora
from bench.records.filesystem import user_cache_folder
from bench.records.fingerprint import hash_canonical_json
from bench.registry import METHODS
from bench.stages import TrainedMethod
from bench.training.encoder_options import OWN_POOLING, find_train_pooling

THREADS = 2  # threads that make a backbone, whatever its run uses: they change its last bits
_SEED = 1
_VERSION = 1  # to raise with a change of the weights that a recipe makes


def profile_backbone(profile: Profile, data: Path | None) -> ModelFolder:
    """Find a profile's backbone; one that is still to be made, from ``data``, lacks a hash."""
    # Raises InputError if it is missing, DataError if the folder in its place was made otherwise.
    where, own = f"profile {profile.name}", profile.backbone
    reference = profiles.backbone_reference(profile)
    if not profiles.makes_backbone(profile):
        try:
            return model_folder.resolve_folder(reference, where=where, name=own["name"])
        except InputError as error:
            error.hint = "; ".join(filter(None, (error.hint, own.get("access")))) or None
            raise
    settings = {**profiles.load_profile(own["profile"]).pretrain, "steps": own["steps"]}
    recipe = _recipe_hash(settings, _SEED, own["from"], own["text"])
    path = Path(reference or backbone_cache_folder() / f"{own['name']}-{recipe[:12]}")
    words = ["pretrain", "--profile", own["profile"], "--steps", str(own["steps"])]
    words += ["--seed", str(_SEED), "--threads", str(THREADS)]
    if data:
        words += ["--data", str(data)]
    sha256 = ""
    if path.exists():
        check_backbone_recipe(path, recipe)
        sha256 = model_folder.hash_model(path)
    return RecipeModel(path, own["name"], sha256, recipe, tuple(words))


def describe_weight_difference(profile: Profile, models: Iterable[ModelFolder | None]) -> str | None:
    """Return a warning if the profile's backbone was made with other weights here."""
    recipe = next((model for model in models if isinstance(model, RecipeModel)), None)
    made = profile.backbone.get("made")
    if recipe is None or made is None or not (weights := recipe.path / "model.safetensors").is_file():
        return None
    with weights.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 == made["weights"]:
        return None
    return (
        f"{recipe.name}: weights {sha256[:12]}, where the committed records have {made['weights'][:12]}: "
        "made by another kind of processor, or another torch; figures will be near theirs, not equal"
    )


def backbone_shape(profile: Profile, model: ModelFolder) -> tuple[int, bool]:
    """Count layers and find the pooler like :func:`read_layer_count`, before the backbone is made too."""
    if model.sha256:
        with open_plain_folder(model.path) as plain:
            return model_folder.read_layer_count(plain)
    start = profiles.backbone_reference(profiles.load_profile(profile.backbone["profile"]))
    layers, _ = model_folder.read_layer_count(Path(start))
    return layers, False  # a language model lacks the pooler


def backbone_cache_folder() -> Path:
    """Return the folder of backbones made here: BENCH_CACHE, otherwise in the user's cache folder."""
    return user_cache_folder() / "backbones"


def check_backbone_recipe(path: Path, recipe: str) -> None:
    """Raise DataError unless the training facts in a folder match the recipe."""
    try:
        facts = json.loads((path / PRETRAINING).read_text(encoding="utf-8"))
        model, text = facts["backbone"]["sha256"], facts["text"]["sha256"]
        made = _recipe_hash(facts["settings"], facts["seed"], model, text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"{PRETRAINING} does not say how this model was made"
        raise DataError(what, where=path.name, hint=f"remove {path}") from error
    if made != recipe:
        what = "this model was made from another model, text or settings than the profile says"
        expected = f"recipe {recipe[:12]}, and this is {made[:12]}"
        raise DataError(what, where=path.name, expected=expected, hint=f"remove {path}")


def _recipe_hash(settings: Mapping[str, Any], seed: int, model: str, text: str) -> str:
    facts = {"version": _VERSION, "seed": seed, "from": model, "text": text}
    return hash_canonical_json(facts | {"settings": {name: float(n) for name, n in settings.items()}})


_TRAINED = (Need(needs.IDS_ALONE), Need(needs.PADDING))  # needs of every training of a transformer
_POOLINGS = {
    **{"cls": needs.FIRST_TOKEN, "pooler": needs.POOLER, "mask": needs.MASK_TOKEN},
    **dict.fromkeys(("avg_first_last", "avg_last_two"), needs.ONE_WIDTH),
}
_MOST_REFUSED = 8  # methods that an error names besides the first
_TRAIN_LAST = "train_pooling=last"  # the way out for want of a first token that sees the sentence


def check_backbones(cells: Iterable[Cell], training: TrainingData | None = None) -> None:
    """Raise InputError for backbones whose files lack a method's needs, and for too long texts."""
    refused: dict[str, list[MissingNeed]] = {}
    asked = list(dict.fromkeys(cells))
    models = dict.fromkeys(model for cell in asked for part in cell.walk() for model in part.models)
    for model in models:
        if _is_transformer(model):
            with open_plain_folder(model.path) as plain:
                check_model_files(plain)
    check_lora(asked)
    for cell in asked:
        check = getattr(METHODS.get(cell.card.name), "check_folder", None)
        if check is not None and cell.model is not None:
            check(cell.model.path)
    for part in dict.fromkeys(part for cell in asked for part in cell.walk()):
        check_backbone(part)
        _check_members(part)
    for cell in asked:
        if training is not None:
            _check_sentence_lengths(cell, training)
            check_least_rows(cell, training)
        if cell.method not in refused and (missing := list(find_missing_needs(cell))):
            refused[cell.method] = missing
    if refused:
        raise _build_refusal(list(refused.values()))


def check_backbone(part: Cell) -> None:
    """Let a method refuse facts of its backbone's files with its options; needs are checked elsewhere."""
    check = getattr(METHODS.get(part.card.name), "check_backbone", None)
    if check is None or part.model is None or not _is_transformer(part.model):
        return
    try:
        check(read_backbone_facts(part.model), dict(part.options))
    except InputError as error:
        error.where = error.where or _describe_place(part, part.model)
        raise


def _describe_place(part: Cell, model: ModelFolder) -> str:
    """Return a row with its backbone, or with the model that it names, for an error."""
    return f"{part.describe()} on {'' if part.card.takes_path else 'the backbone '}{model.name}"


def _check_members(part: Cell) -> None:
    """Refuse members without vectors; let a method refuse the widths of its members' models."""
    for _, member in part.members:
        if member.lacks_vectors:
            what = f"{member.describe()} scores pairs, so {part.card.name} has no vectors to work on"
            raise InputError(what, where="--methods", expected="methods that encode sentences")
    check = getattr(METHODS.get(part.card.name), "check_widths", None)
    if check is None:
        return
    check(_read_member_widths(part), dict(part.options))


def _read_member_widths(part: Cell) -> dict[str, int | None]:
    """Return the components of a state of each member's model, by role; None where its files are silent."""
    models = {role: member.model for role, member in part.members}
    facts = {role: read_backbone_facts(m) for role, m in models.items() if m and _is_transformer(m)}
    return {role: fact.width for role, fact in facts.items()}


def describe_widths(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield the notes that methods have on the widths of their members' models, once a row."""
    for method, cell in {cell.method: cell for cell in cells}.items():
        describe = getattr(METHODS.get(cell.card.name), "describe_widths", None)
        note = describe and describe(_read_member_widths(cell), dict(cell.options))
        if note:
            yield f"{method}: {note}"


def _check_sentence_lengths(cell: Cell, training: TrainingData) -> None:
    """Refuse sentences with more words than the backbone has positions, where a stage reads them whole."""
    for role, owner, stage in cell.named_stages:
        if owner.model is None or not _is_transformer(owner.model):
            continue
        length, most = dict(stage.spec.config).get("max_length"), read_backbone_facts(owner.model).positions
        if not isinstance(length, int) or most is None or length <= most:
            continue
        sentences = training.texts[stage.spec.text].sentences
        long = next((n for n, text in enumerate(sentences, 1) if len(text.split()) + 2 > most), None)
        if long is not None:
            what = f"{cell.describe()} trains on up to {length} tokens of a sentence, {owner.model.name} has "
            what += f"positions for {most}, and sentence {long} of the text is longer"
            option = f"{role}.max_length" if f"{role}.max_length" in cell.card.defaults else "max_length"
            hint = f"give max_length={most}, such as --set {cell.card.name}.{option}={most}"
            raise InputError(what, where="--backbone", hint=hint)


@dataclass(frozen=True)
class MissingNeed:
    """A need that a model lacks: ``part`` is the requested cell or the member that has the need."""

    cell: Cell
    part: Cell
    need: Need
    model: ModelFolder


def find_missing_needs(cell: Cell) -> Iterator[MissingNeed]:
    """Yield the needs that the models of a cell and of its members lack."""
    for part in cell.walk():
        options = dict(part.options)
        for need in method_needs(part.card, options):
            if model := _find_lacking_model(part, need, options):
                yield MissingNeed(cell, part, need, model)


def _find_lacking_model(part: Cell, need: Need, options: Mapping[str, OptionValue]) -> ModelFolder | None:
    """Return the model that lacks a need, if any; unreadable models count as sufficient."""
    models = {"": part.model, **dict(part.auxiliaries)}
    model = models.get(need.of)
    if model is None or not _is_transformer(model):  # still to be made, or of another kind of folder
        return None
    return None if fulfils_need(read_backbone_facts(model), need.what, options) else model


def method_needs(card: MethodCard, options: Mapping[str, OptionValue]) -> list[Need]:
    """Return a method's needs with these options, of its backbone and of the models that options name."""
    trains = any(option.name.split(".")[-1] == "dropout" for option in card.options)
    asked = [*_TRAINED, *card.needs] if trains else list(card.needs)
    asked = _need_trained_pooling(card, asked, options)
    if options.get("pooler", "cls") == "cls":  # otherwise its own pooler reads the states
        instead = _suggest_pooling(card, options)
        asked += [Need(what, "pooling", (name,), instead=instead) for name, what in _POOLINGS.items()]
    asked = [need for need in asked if need.holds(options)]
    trains_pooler = any(need.what == needs.POOLER_LAYER for need in asked)
    return [need for need in asked if not (trains_pooler and need.what == needs.POOLER)]


def _need_trained_pooling(
    card: MethodCard, asked: Sequence[Need], options: Mapping[str, OptionValue]
) -> list[Need]:
    """Return the needs with those of the pooling in training: a card's first token is that of its own."""
    if not any(option.name == "train_pooling" for option in card.options):
        return list(asked)
    trained = find_train_pooling(options, OWN_POOLING)
    if trained == OWN_POOLING:
        way = {needs.FIRST_TOKEN: _TRAIN_LAST}
        return [replace(need, instead=need.instead or way.get(need.what, "")) for need in asked]
    left = [need for need in asked if need.what != needs.FIRST_TOKEN]
    read = [Need(_POOLINGS[trained], instead=_TRAIN_LAST)] if trained in _POOLINGS else []
    return [*left, *read]


def _suggest_pooling(card: MethodCard, options: Mapping[str, OptionValue]) -> str:
    """Return the setting in place of an inference pooling that a backbone lacks: the trained one, or avg."""
    choices = {choice for option in card.options if option.name == "pooling" for choice in option.choices}
    trained = find_train_pooling(options, "")
    best = trained if trained in choices - {*_POOLINGS} else "avg"
    return f"pooling={best}" if best in choices else ""


def fulfils_need(facts: FolderFacts, what: str, options: Mapping[str, OptionValue]) -> bool:
    """Return whether a folder fulfils one of ``bench.method_card.NEEDS``, as far as its files show."""
    asks_dropout = any(bool(value) for name, value in options.items() if name.split(".")[-1] == "dropout")
    adapters_drop = bool(options.get("lora_rank") and options.get("lora_dropout"))
    # an unlisted kind that looks like an encoder; others are found when the model is loaded
    reads_both_sides = facts.layered or facts.mask_token or facts.pooler_layer is False
    known = {
        needs.FIRST_TOKEN: facts.first_token is not False and facts.causal is not True,
        needs.LAYERS: facts.layered,
        needs.DECODING: facts.decodes,
        needs.OWN_NORMS: facts.own_layers and int(options.get("drop_norms", 0)) <= (facts.layers or 2**31),
        needs.EMBEDDINGS: facts.embeddings,
        needs.POSITIONS: facts.position_ids,
        needs.POOLER: facts.pooler,
        needs.POOLER_LAYER: facts.pooler_layer,
        needs.MASK_TOKEN: facts.mask_token,
        needs.MASKED_LM: facts.masked_lm,
        needs.MLM_HEAD: facts.mlm_head,
        needs.MLM_TRANSFORM: facts.mlm_transform,
        needs.PADDING: facts.masks_padding,
        needs.IDS_ALONE: facts.reads_ids,
        needs.ONE_WIDTH: facts.one_width,
        needs.CAUSAL: facts.causal or not reads_both_sides,
        needs.BOTH_WAYS: facts.kind not in list_model_types("stays_causal"),
        needs.DROPOUT: facts.drops is not False or adapters_drop or not asks_dropout,
    }
    return known[what] is not False


def _build_refusal(refused: Sequence[Sequence[MissingNeed]]) -> InputError:
    """Return one error for all refused methods: the first in full, of the others their needs."""
    first, named = refused[0][0], refused[1 : 1 + _MOST_REFUSED]
    cell, part, need, model = first.cell, first.part, first.need, first.model
    if cell.card.takes_path:
        where, name = "--methods", model.name
        expected = f"another pooling, as in {cell.card.name}:PATH:avg or {cell.card.name}:PATH:last"
        hint = f"bench show hf:{model.path} says what is read of it"
        if need.what == needs.CAUSAL:
            expected, hint = "the folder of such a decoder", "use hf:PATH for an encoder"
    else:
        where, name = "--backbone", f"the backbone {model.name}"
        if need.of:
            where, name = "--methods", f"{part.card.name}.{need.of}: {model.name}"
        options = dict.fromkeys(filter(None, map(_suggest_options, [refused[0], *named])))
        expected = " or ".join(["another model", *options])
        hint = suggest_backbone(need, model)
    if kind := read_backbone_facts(model).kind:
        name += f" ({kind})"
    through = "" if part is cell else f", by its {part.card.name},"
    others = "".join(f"; {lack.cell.describe()} {NEEDS[lack.need.what]}" for lack, *_ in named)
    if more := len(refused) - 1 - len(named):
        others += f"; and {more} more"
    what = f"{cell.describe()}{through} needs {NEEDS[need.what]}, which {name} hasn't got{others}"
    return InputError(what, where=where, expected=expected, hint=hint)


def suggest_backbone(need: Need, model: ModelFolder) -> str:
    """Return the hint for a need that a backbone lacks: another backbone, or the way to other methods."""
    if need.what == needs.CAUSAL:
        return "give --backbone DIR of a decoder such as Llama"
    return f"bench show hf:{model.path} lists the methods that can train on it"


def _suggest_options(missing: Sequence[MissingNeed]) -> str:
    """Return the options to type so that all needs are met, "" if impossible."""
    cell = missing[0].cell
    asked = parse_method(cell.method, "--methods", recorded=True)
    method, words = cell.method, list[str]()
    for part in dict.fromkeys(lack.part for lack in missing):
        options = find_sufficient_options(part.card, dict(part.options), partial(_find_lacking_model, part))
        if options is None:
            return ""
        texts = {name: format_value(value) for name, value in options.items()}
        if part is cell and asked.name == cell.card.name and not cell.card.takes_methods:
            given = dict(asked.options) | texts
            start = method[: method.index("[")] if asked.options else method
            method = f"{start}[{','.join(f'{name}={text}' for name, text in given.items())}]"
        else:
            row = asked.name if part is cell else part.card.name
            words += [f"--set {row}.{name}={text}" for name, text in texts.items()]
    return " ".join([method, *words])


def find_sufficient_options(
    card: MethodCard,
    options: Mapping[str, OptionValue],
    lacking: Callable[[Need, Mapping[str, OptionValue]], object],
) -> dict[str, OptionValue] | None:
    """Return the options to change so that all needs are met, None if impossible."""
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


def _is_transformer(model: ModelFolder) -> bool:
    """Return whether a folder is there, in transformers' format, or an adapter of one."""
    return (model.path / "config.json").is_file() or is_adapter(model.path)


@cache
def read_backbone_facts(model: ModelFolder) -> FolderFacts:
    """Read a backbone's facts, once."""
    with open_plain_folder(model.path) as plain:
        return folder_facts.read_folder_facts(plain)
