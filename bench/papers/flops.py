"""The arithmetic of docs/scale.md and ``bench reproduce``: operations of a paper-scale stage, unmeasured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from bench.card import OptionValue
from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.spec import MethodRequest
from bench.plan.cells import profile_options
from bench.registry import discover
from bench.stages import PAIRS, ComposedMethod, StageSpec, TrainedMethod, planned_steps

SENTENCES = 1_000_000
LABELLED = 275_601
"""Triplets of SimCSE's NLI file."""
SEEDS = 5
"""Of the whole grid."""
SUSTAINED = 30e12
"""Assumed float32 operations a second of one H200 in training: 45% of the 67e12 that NVIDIA states."""
DEV_TOKENS = 47_750
"""Of STS-B dev, 2,909 distinct sentences, in BERT's word pieces."""
SUITE_TOKENS = 372_650
"""Of sts7, 26,083 distinct sentences."""
LAYERS, WIDTH, INNER = 12, 768, 3072

LIKE_SIMCSE = ("sub_encoder", "edfse_sub")
"""Stages of other names that train as SimCSE does."""
STUDENT = 3.0
TOWERS = {"tncse": 2, "jtcse": 2, "tncse_uc": 3, "jtcse_uc": 3, "edfse": 6}
"""Forward passes of what is a sum of several; also as a teacher."""
SHORT = 16
"""Mean tokens of an evaluated sentence."""


def token_operations(length: int) -> float:
    """Of one token in a forward pass of BERT-base, in a row of so many: 2 a multiplication, no embeddings."""
    return LAYERS * (2 * (4 * WIDTH**2 + 2 * WIDTH * INNER) + 4 * length * WIDTH)


@dataclass(frozen=True)
class TrainedStage:
    """A stage of a method: the stage, its passes a sentence, and what it is distilled from, or ""."""

    stage: StageSpec
    passes: float
    teacher: str

    @property
    def operations(self) -> float:
        """Of the whole stage, dev evaluations included."""
        config = dict(self.stage.config)
        steps, length = (
            planned_steps(config, LABELLED if self.stage.text == PAIRS else SENTENCES),
            int(config["max_length"]),
        )
        training = steps * int(config["batch_size"]) * self.passes * length * token_operations(length)
        towers = 2 if self.stage.role == "joint" else 1
        return training + steps // int(config["eval_every"]) * towers * DEV_TOKENS * token_operations(SHORT)

    @property
    def described(self) -> str:
        """Passes x tokens a row, x epochs where there are several."""
        config = dict(self.stage.config)
        epochs = f" x {config['epochs']}" if config["epochs"] != 1 else ""
        return f"{self.passes:g} x {config['max_length']}{epochs}"


@cache
def method_stages(method: str, profile: str) -> tuple[TrainedStage, ...]:
    """All stages of a method as ``--methods`` names it, those of what it builds on first, each once."""
    found, texts = discover().get(_parse_method(method).name), base_methods(method, profile)
    inner = [stage for text in texts.values() for stage in method_stages(text, profile)]
    own: tuple[StageSpec, ...] = ()
    if isinstance(found, TrainedMethod) and found.card.needs_backbone:
        own = found.stages(resolve_options(method, profile))
    teacher = _parse_method(texts["teacher"]).name if "teacher" in texts else ""
    passes = STUDENT + TOWERS.get(teacher, 0)
    made = (TrainedStage(stage, _stage_passes(stage.kind) or passes, teacher) for stage in own)
    return tuple(dict.fromkeys((*inner, *made)))


def _stage_passes(kind: str) -> float:
    """Passes a sentence of a kind of stage, where every state is computed; 0 where no card says them."""
    name = "simcse" if kind in LIKE_SIMCSE else kind
    return discover().get(name).card.passes if name in discover().names() else 0.0


def base_methods(method: str, profile: str) -> dict[str, str]:
    """The methods that one builds on, as ``--methods`` names them, by role."""
    found = discover().get(_parse_method(method).name)
    if not isinstance(found, ComposedMethod) or found.card.name == "released":  # which is trained already
        return {}
    return dict(found.members(resolve_options(method, profile)))


@cache
def resolve_options(method: str, profile: str) -> Mapping[str, OptionValue]:
    """Value of every option of a method as ``--methods`` names it; raises InputError for one that is none."""
    request = _parse_method(method)
    card = discover().get(request.name, where=method).card
    short = card.short_option if request.argument is not None and not card.takes_path else None
    given = [*([(short, request.argument)] if short else []), *request.options]
    own = {name: card.option(name, method).parse(value, method) for name, value in given if value is not None}
    return MappingProxyType(profile_options(card, profiles.load_profile(profile), own) | own)


def _parse_method(method: str) -> MethodRequest:
    return parse_methods(method)[0]


def training_hours(method: str, profile: str, *, own: bool = False) -> float:
    """Of a seed of a method on one H200, with all that it builds on, or its own stages alone."""
    others = [
        stage for name in base_methods(method, profile).values() for stage in method_stages(name, profile)
    ]
    found = [stage for stage in method_stages(method, profile) if not own or stage not in others]
    return sum(stage.operations for stage in found) / SUSTAINED / 3600


def trained_methods(profile: str) -> list[str]:
    """Bench's own methods with stages of the papers' size, by the hours of a seed with all it builds on."""
    registry = discover()
    own = [
        name
        for name, method in registry
        if registry.origin(name).startswith("bench.") and name != "whitening"
        if not method.card.takes_methods and not method.card.takes_path and method_stages(name, profile)
    ]
    return sorted(own, key=lambda name: (training_hours(name, profile), name))


def grid_hours(profile: str) -> float:
    """Of all methods and seeds on one H200, every stage once, with their evaluation on sts7."""
    kept = {stage for name in trained_methods(profile) for stage in method_stages(name, profile)}
    towers = sum(TOWERS.get(name, 1) for name in trained_methods(profile))
    evaluation = 2 * towers * SUITE_TOKENS * token_operations(SHORT)  # the selected and the last checkpoint
    return SEEDS * (sum(stage.operations for stage in kept) + evaluation) / SUSTAINED / 3600


def longest_method(profile: str) -> tuple[str, float]:
    """The method whose seed takes longest, and its hours: its stages wait for each other on any machine."""
    name = trained_methods(profile)[-1]
    return name, training_hours(name, profile)


def hour_rows() -> Iterator[tuple[str, ...]]:
    """Method, passes x tokens (x epochs) of its stages, hours of a seed, and of its own stages alone."""
    for name in trained_methods("bert-base"):
        parts = " + ".join(stage.described for stage in method_stages(name, "bert-base"))
        both = (training_hours(name, "bert-base", own=own) for own in (False, True))
        yield f"`{name}`", parts, *(f"{each:.1f}" for each in both)
