"""``bench show METHOD --profile``: what ``bench run`` would do, and where each setting comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.config import profiles
from bench.config.run_spec import MethodRequest, RunSpec
from bench.data.label_origin import describe_labels
from bench.data.training_data import TrainingData, read_training_data
from bench.errors import InputError
from bench.method_card import OptionValue
from bench.plan import cell_expansion
from bench.plan.cell import Cell
from bench.plan.cost_arithmetic import read_architecture
from bench.plan.job import MATCHED
from bench.plan.profile_costs import SUSTAINED, describe_adapters, describe_cell_rate, estimate_stages
from bench.plan.profile_needs import describe_unmet_needs
from bench.registry import METHODS
from bench.stages import PAIRS, TRAIN, StageSpec, TrainedMethod, planned_sentences, planned_steps


@dataclass(frozen=True)
class MethodExplanation:
    """What a method would do in a profile.

    Args:
        title: Method and profile.
        facts: (what, text) of models, texts, suites and budget.
        stages: (name, text) of each training stage.
        options: (name, value, source) of each option.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    stages: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, OptionValue, str], ...]


def explain_method(request: MethodRequest, spec: RunSpec) -> MethodExplanation:
    """Return what a method would do in a profile, without torch; raises InputError."""
    profile = profiles.load_profile(spec.profile)
    card = METHODS.get(request.name, where="bench show").card
    bare_cell = cell_expansion.make_bare_cell(request, spec, profile, 0)
    texts = {stage.text for _, stage in _walk_stages(bare_cell)}
    training: TrainingData | None = None
    try:
        training = read_training_data(spec, profile, [card.name], texts) if texts else None
    except InputError:
        if spec.corpus is not None or spec.pairs is not None:  # the user named it
            raise
    size = len(training.corpus.sentences) if training else 0
    cell = cell_expansion.make_bare_cell(request, spec, profile, size)
    cell_expansion.check_overrides(spec, [cell])
    stages = list(_walk_stages(cell))
    sources = _find_option_sources(request, spec, profile)
    described = []
    for name, stage in stages:
        count = len(training.texts[stage.text].sentences) if training and stage.text == PAIRS else size
        described.append((name, _describe_training(stage, count)))
    facts = _list_facts(cell, spec, profile, training, texts, [name for name, _ in stages])
    options = tuple((name, value, sources.get(name, "card")) for name, value in cell.options)
    title = f"{cell.method} in profile {profile.name}"
    return MethodExplanation(title, tuple(facts), tuple(described), options)


def _list_facts(
    cell: Cell,
    spec: RunSpec,
    profile: profiles.Profile,
    training: TrainingData | None,
    texts: set[str],
    stages: Sequence[str],
) -> Iterator[tuple[str, str]]:
    """Yield (what, text) of models, texts, suites, budget and costs."""
    card = cell.card
    if card.needs_backbone:
        yield "backbone", spec.backbone or profile.backbone["name"]
    if stages:
        unit, given, name = "sentences", spec.corpus, "file"
        if texts == {PAIRS}:
            unit, given, name = "pairs", spec.pairs, "pairs"
        text = given or profile.corpus.get(name, f"the made-up world's text {profile.corpus}")
        text = f"{text}, not at hand"
        if training:
            corpus = training.corpus
            parts = (corpus.name, f"{len(corpus.sentences):,} {unit}", describe_labels(corpus.label_model))
            text = ", ".join(filter(None, parts))
        yield "training text", text
        yield "dev set", spec.dev or profile.dev
    yield "suites", ", ".join(spec.suites or profile.suites) or "none"
    if profile.budget is not None and any("/" not in name for name in stages):
        own_table = card.name in profile.methods and not profile.budget.equal
        yield "budget", f"its own table in profile {profile.name}" if own_table else profile.budget.text
    if stages and spec.backbone is None:
        yield from _list_costs(cell, profile)


def _list_costs(cell: Cell, profile: profiles.Profile) -> Iterator[tuple[str, str]]:
    """Yield the rate's source and the training's costs by the profile, or the need that it can't meet."""
    card = cell.card
    options = dict(cell.options)
    if unmet := describe_unmet_needs(card, options, profile):
        yield "can't run", unmet
        return
    if rate := describe_cell_rate(cell, profile):
        yield "rate", rate
    sized, method = read_architecture(profile.architecture), METHODS.get(card.name)
    if sized is None or not isinstance(method, TrainedMethod):
        return
    if cost := estimate_stages(method.stages(options), card, sized):
        adapters = describe_adapters(cost, sized, options)
        yield "weights", "; ".join(filter(None, (cost.format_weights(), adapters)))
        yield "memory", f"{cost.format_memory()} (arithmetic, float32)"
        yield "hours", f"{cost.format_hours()} (arithmetic, {SUSTAINED / 1e12:.0f} TFLOP/s)"


def _walk_stages(cell: Cell) -> Iterator[tuple[str, StageSpec]]:
    """Yield the training stages of its members and its own by name, in the order of training."""
    for role, member in cell.members:
        yield from ((f"{role}/{name}", stage) for name, stage in _walk_stages(member))
    method = METHODS.get(cell.card.name)
    if isinstance(method, TrainedMethod):
        yield from ((stage.role, stage) for stage in method.stages(dict(cell.options)))


def _describe_training(stage: StageSpec, sentences: int) -> str:
    """Describe a stage's length and settings; ``sentences`` is 0 for an unknown number."""
    config, parts = dict(stage.config), list[str]()
    if stage.text != TRAIN:
        parts.append(f"training text {stage.text}")
    if {"steps", "batch_size"} <= config.keys():
        batch = int(config["batch_size"])
        steps = planned_steps({"epochs": 0, **config}, sentences)
        if steps:
            total = planned_sentences(config, sentences) if sentences else steps * batch
            parts.append(f"{steps:,} steps of {batch:,} = {total:,} sentences")
        else:
            epochs = config.get("epochs", 1)
            parts.append(f"{epochs} epoch{'s' * (epochs != 1)} in steps of {batch:,}")
        if "eval_every" in config:
            times = f", {steps // int(config['eval_every'])} in all" if steps else ""
            parts.append(f"a dev evaluation every {int(config['eval_every']):,} steps{times}")
    parts += [f"{name} {config[name]}" for name in ("lr", "max_length") if name in config]
    return "; ".join(parts) or "no training steps"


def _find_option_sources(
    request: MethodRequest, spec: RunSpec, profile: profiles.Profile
) -> Mapping[str, str]:
    """Return the source of each option's value, other than the card's default."""
    card = METHODS.get(request.name).card
    short = None
    if card.short_option and request.argument and not card.takes_path:
        short = card.short_option, request.argument
    given = cell_expansion.collect_user_options(request, card, spec, short)
    budget, table = cell_expansion.budget_options(card, profile, given), profile.methods.get(card.name, {})
    sources = dict.fromkeys(budget, f"budget of profile {profile.name}")
    sources |= dict.fromkeys(dict(cell_expansion.flatten_table(table)), f"profile {profile.name}")
    counted = {f"{name.removesuffix('epochs')}steps" for name in given if name.split(".")[-1] == "epochs"}
    sources |= dict.fromkeys(counted, "epochs given")
    if given.get("match"):
        sources |= dict.fromkeys(MATCHED, f"match={given['match']}")
    return sources | dict.fromkeys(given, "given")
