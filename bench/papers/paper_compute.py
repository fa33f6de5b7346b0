"""Compute operations and hours of paper-scale training, for docs/scale.md and ``bench reproduce``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.method_card import OptionValue
from bench.plan import cost_arithmetic
from bench.plan.cell_expansion import profile_options
from bench.plan.cost_arithmetic import read_architecture
from bench.plan.profile_costs import DEV_TOKENS, LABELLED, LIKE_SIMCSE, SENTENCES, SHORT, SUSTAINED
from bench.registry import discover
from bench.stages import PAIRS, ComposedMethod, StageSpec, TrainedMethod, planned_steps

SEEDS = 5
"""Of the whole grid."""
SUITE_TOKENS = 372_650
"""Of sts7, 26,083 distinct sentences."""

STUDENT = 3.0
TOWERS = {"tncse": 2, "jtcse": 2, "tncse_uc": 3, "jtcse_uc": 3, "edfse": 6}
"""Forward passes of methods that add several encoders, also as teachers."""


def token_operations(length: int) -> float:
    """Return the operations of a token in BERT-base's forward pass of so many, 2 a multiplication."""
    sized = read_architecture(profiles.load_profile("bert-base").architecture)
    return cost_arithmetic.token_operations(sized, length) if sized else 0.0


@dataclass(frozen=True)
class TrainedStage:
    """A stage of a method, with its passes a sentence and its teacher's name, if any."""

    stage: StageSpec
    passes: float
    teacher: str

    @property
    def operations(self) -> float:
        """Of the whole stage, dev evaluations included."""
        config = dict(self.stage.config)
        sentences = LABELLED if self.stage.text == PAIRS else SENTENCES
        steps, length = planned_steps(config, sentences), int(config["max_length"])
        training = steps * int(config["batch_size"]) * self.passes * length * token_operations(length)
        towers = 2 if self.stage.role == "joint" else 1
        return training + steps // int(config["eval_every"]) * towers * DEV_TOKENS * token_operations(SHORT)

    @property
    def description(self) -> str:
        """Passes x tokens, and x epochs where there are several."""
        config = dict(self.stage.config)
        epochs = f" x {config['epochs']}" if config["epochs"] != 1 else ""
        return f"{self.passes:g} x {config['max_length']}{epochs}"


@cache
def method_stages(method: str, profile: str) -> tuple[TrainedStage, ...]:
    """Return all stages of a method as ``--methods`` names it, each once, its base methods' first."""
    bases = base_methods(method, profile)
    stages: dict[TrainedStage, None] = {}
    for base in bases.values():
        stages |= dict.fromkeys(method_stages(base, profile))
    registered = discover().get(_method_name(method))
    if isinstance(registered, TrainedMethod) and registered.card.needs_backbone:
        teacher = _method_name(bases["teacher"]) if "teacher" in bases else ""
        passes = STUDENT + TOWERS.get(teacher, 0)
        for stage in registered.stages(resolve_options(method, profile)):
            name = "simcse" if stage.kind in LIKE_SIMCSE else stage.kind
            stated = discover().get(name).card.passes if name in discover().names() else 0.0
            stages[TrainedStage(stage, stated or passes, teacher)] = None
    return tuple(stages)


def base_methods(method: str, profile: str) -> dict[str, str]:
    """Return the methods that a method is composed of, as ``--methods`` names them, by role."""
    registered = discover().get(_method_name(method))
    if not isinstance(registered, ComposedMethod) or registered.card.name == "released":  # trained already
        return {}
    return dict(registered.members(resolve_options(method, profile)))


@cache
def resolve_options(method: str, profile: str) -> Mapping[str, OptionValue]:
    """Return every option's value of a method as ``--methods`` names it; raises InputError."""
    request = parse_methods(method)[0]
    card = discover().get(request.name, where=method).card
    given = dict(request.options)
    if request.argument is not None and card.short_option and not card.takes_path:
        given = {card.short_option: request.argument} | given
    own = {name: card.option(name, method).parse(text, method) for name, text in given.items()}
    return MappingProxyType(profile_options(card, profiles.load_profile(profile), own) | own)


def _method_name(method: str) -> str:
    return parse_methods(method)[0].name


def training_hours(method: str, profile: str, *, own: bool = False) -> float:
    """Return one H200's hours for a seed of a method with its base methods, or of its ``own`` stages."""
    stages = dict.fromkeys(method_stages(method, profile))
    if own:
        for base in base_methods(method, profile).values():
            for stage in method_stages(base, profile):
                stages.pop(stage, None)
    return sum(stage.operations for stage in stages) / SUSTAINED / 3600


def trained_methods(profile: str) -> list[str]:
    """Return bench's own methods with stages of the papers' size, by the hours of a seed."""
    registry = discover()
    hours = {}
    for name, method in registry:
        card = method.card  # the profiles' backbones are encoders
        left_out = card.takes_methods or card.takes_path or card.needs_decoder or name == "whitening"
        if registry.origin(name).startswith("bench.") and not left_out and method_stages(name, profile):
            hours[name] = training_hours(name, profile)
    return sorted(hours, key=lambda name: (hours[name], name))


def grid_hours(profile: str) -> float:
    """Return one H200's hours for all methods and seeds, every stage once, with evaluation on sts7."""
    methods = trained_methods(profile)
    stages = {stage for name in methods for stage in method_stages(name, profile)}
    towers = sum(TOWERS.get(name, 1) for name in methods)
    evaluation = 2 * towers * SUITE_TOKENS * token_operations(SHORT)  # the selected and the last checkpoint
    return SEEDS * (sum(stage.operations for stage in stages) + evaluation) / SUSTAINED / 3600


def longest_method(profile: str) -> tuple[str, float]:
    """Return the method whose seed takes longest, and its hours: the least wall time on many machines."""
    name = trained_methods(profile)[-1]
    return name, training_hours(name, profile)


def hour_rows() -> Iterator[tuple[str, ...]]:
    """Yield method, passes x tokens (x epochs) of its stages, hours of a seed, and of its own stages."""
    for name in trained_methods("bert-base"):
        parts = " + ".join(stage.description for stage in method_stages(name, "bert-base"))
        hours = training_hours(name, "bert-base"), training_hours(name, "bert-base", own=True)
        yield f"`{name}`", parts, f"{hours[0]:.1f}", f"{hours[1]:.1f}"
