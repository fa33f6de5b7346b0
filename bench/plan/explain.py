"""What ``bench run`` would do with a method in a profile, and where each of its settings comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bench.config import profiles
from bench.config.spec import MethodRequest, RunSpec
from bench.data.training_data import TrainingData, read_training_data
from bench.errors import InputError
from bench.plan.cell import Cell
from bench.plan.cells import budget_options, collect_user_options, flatten_table, make_bare_cell
from bench.plan.job import MATCHED
from bench.plan.spec_checks import check_overrides
from bench.registry import METHODS
from bench.stages import PAIRS, TRAIN, StageSpec, TrainedMethod, planned_steps


def explain_method(request: MethodRequest, spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield (what, text) of a method in a profile: models, texts, training stages, options.

    Reads the training text where it is at hand, to count its sentences; runs nothing and loads no torch.

    Args:
        request: The method.
        spec: For the profile, the overrides and the training text.

    Raises:
        InputError: an unknown method, profile or option, or a value that is none.
    """
    profile = profiles.load_profile(spec.profile)
    card = METHODS.get(request.name, where="bench show").card
    texts = {stage.text for _, stage in _walk_stages(make_bare_cell(request, spec, profile, 0))}
    training = _read_training(spec, profile, card.name, texts) if texts else None
    size = len(training.corpus.sentences) if training else 0
    cell = make_bare_cell(request, spec, profile, size)
    check_overrides(spec, [cell])
    yield "method", f"{cell.method} in profile {profile.name}"
    if card.needs_backbone:
        yield "backbone", spec.backbone or profile.backbone["name"]
    stages = list(_walk_stages(cell))
    if stages:
        labelled = texts == {PAIRS}
        given, name = (spec.pairs, "pairs") if labelled else (spec.corpus, "file")
        text = given or profile.corpus.get(name, f"the made-up world's text {profile.corpus}")
        unit = "pairs" if labelled else "sentences"
        yield (
            "training text",
            f"{training.corpus.name}, {size:,} {unit}" if training else f"{text}, not at hand",
        )
        yield "dev set", spec.dev or profile.dev
    yield "suites", ", ".join(spec.suites or profile.suites) or "none"
    if profile.budget is not None and any(_walk_stages(cell, own=True)):
        own = card.name in profile.methods and not profile.budget.equal
        yield "budget", f"its own table in profile {profile.name}" if own else profile.budget.text
    for name, stage in stages:
        count = len(training.texts[stage.text].sentences) if training and stage.text == PAIRS else size
        yield "stage", f"{name}: {_describe_training(stage, count)}"
    sources = _find_option_sources(request, spec, profile)
    for name, value in cell.options:
        yield "option", f"{name}={value}  ({sources.get(name, 'card')})"


def _walk_stages(cell: Cell, *, own: bool = False) -> Iterator[tuple[str, StageSpec]]:
    """Yield its members' training stages and its own by name, in the order in which they run."""
    for role, member in () if own else cell.members:
        yield from ((f"{role}/{name}", stage) for name, stage in _walk_stages(member))
    method = METHODS.get(cell.card.name)
    if isinstance(method, TrainedMethod):
        yield from ((stage.role, stage) for stage in method.stages(dict(cell.options)))


def _read_training(
    spec: RunSpec, profile: profiles.Profile, name: str, texts: set[str]
) -> TrainingData | None:
    try:
        return read_training_data(spec, profile, [name], texts)
    except InputError:
        if spec.corpus is not None or spec.pairs is not None:  # the user named it
            raise
        return None


def _describe_training(stage: StageSpec, sentences: int) -> str:
    """How long a stage trains, in words; ``sentences`` is 0 where the text isn't at hand."""
    config = dict(stage.config)
    parts = [] if stage.text == TRAIN else [f"training text {stage.text}"]
    if {"steps", "batch_size"} <= config.keys():
        batch = int(config["batch_size"])
        steps = planned_steps({"epochs": 0, **config}, sentences)
        if steps:
            parts.append(f"{steps:,} steps of {batch:,} = {steps * batch:,} sentences")
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
    """Where the values of options come from; the card is the source of those that aren't named."""
    card = METHODS.get(request.name).card
    short = (card.short_option, request.argument) if card.short_option and request.argument else None
    given = collect_user_options(request, card, spec, None if card.takes_path else short)
    found = dict.fromkeys(budget_options(card, profile, given), f"budget of profile {profile.name}")
    table = flatten_table(profile.methods.get(card.name, {}))
    found |= {name: f"profile {profile.name}" for name, _ in table}
    counted = {f"{name.removesuffix('epochs')}steps" for name in given if name.split(".")[-1] == "epochs"}
    found |= dict.fromkeys(counted, "epochs given")
    if given.get("match"):
        found |= dict.fromkeys(MATCHED, f"match={given['match']}")
    return found | dict.fromkeys(given, "given")
