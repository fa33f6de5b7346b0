"""What training on a profile's backbone takes by arithmetic, and which rates have no source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bench.config.profiles import Profile
from bench.method_card import MethodCard, OptionValue
from bench.nn.tokens import CUDA_BATCH_TOKENS
from bench.plan import cost_arithmetic
from bench.plan.cell import Cell
from bench.plan.cell_expansion import profile_options
from bench.plan.cost_arithmetic import Architecture, StepMemory, read_architecture
from bench.plan.untuned_rates import NO_SOURCE, describe_rate, is_untuned
from bench.registry import METHODS, discover
from bench.stages import PAIRS, StageSpec, TrainedMethod, planned_steps

SENTENCES = 1_000_000
LABELLED = 275_601
"""Triplets of SimCSE's NLI file."""
SUSTAINED = 30e12
"""Assumed float32 operations a second of one H200 in training: 45% of the 67e12 that NVIDIA states."""
DEV_TOKENS = 47_750
"""Of STS-B dev, 2,909 distinct sentences, in BERT's word pieces."""
SHORT = 16
"""Mean tokens of an evaluated sentence."""
LIKE_SIMCSE = ("sub_encoder", "edfse_sub")
"""Stages of other names that train as SimCSE does."""
VIEWS = 2
"""Rows of a sentence that a step encodes with a gradient."""
_PASSES = 3  # of a row: forward, and a backward of two
_GIB = 2**30


@dataclass(frozen=True)
class TrainingCost:
    """What a method's training takes on a GPU in float32, by arithmetic.

    Args:
        parameters: Weights of the backbone.
        trained: Those that are trained, or the adapters' weights.
        state: Bytes of weights, gradients and AdamW's states, of the largest stage.
        activations: Bytes of activations of that stage, or of evaluation if that is more.
        hours: Hours of one H200 for a seed; 0 where the passes of a stage are unknown.
    """

    parameters: int
    trained: int
    state: float
    activations: float
    hours: float

    @property
    def memory(self) -> float:
        """Bytes in all."""
        return self.state + self.activations

    def format_memory(self) -> str:
        """Return memory in words."""
        parts = f"{self.state / _GIB:.1f} of weights, gradients and AdamW"
        return f"{self.memory / _GIB:.1f} GiB: {parts}, {self.activations / _GIB:.1f} of activations"

    def format_hours(self) -> str:
        """Return hours in words, "?" where they are unknown."""
        return f"{self.hours:.1f} H200 hours a seed" if self.hours else "? hours"


def estimate_stages(
    stages: Iterable[StageSpec], card: MethodCard, sized: Architecture, sentences: int = SENTENCES
) -> TrainingCost | None:
    """Return what the training stages of a method take; None without stages that have steps."""
    costs = [_estimate_stage(stage, card, sized, sentences) for stage in stages if _has_steps(stage)]
    if not costs:
        return None
    largest = max(costs, key=lambda cost: cost.memory)
    known = all(cost.hours for cost in costs)
    hours = sum(cost.hours for cost in costs) if known else 0.0
    return TrainingCost(largest.parameters, largest.trained, largest.state, largest.activations, hours)


def estimate_method(name: str, profile: Profile) -> TrainingCost | None:
    """Return what a method takes in a profile; None where either has no sizes or no training."""
    sized = read_architecture(profile.architecture)
    method = discover().get(name)
    if sized is None or not isinstance(method, TrainedMethod):
        return None
    return estimate_stages(method.stages(profile_options(method.card, profile)), method.card, sized)


def _has_steps(stage: StageSpec) -> bool:
    return {"steps", "epochs", "batch_size", "max_length"} <= dict(stage.config).keys()


def _estimate_stage(stage: StageSpec, card: MethodCard, sized: Architecture, sentences: int) -> TrainingCost:
    config = dict(stage.config)
    step = _read_step(config)
    towers = 2 if stage.role == "joint" else 1
    state = towers * cost_arithmetic.weight_bytes(sized, step)
    held = towers * cost_arithmetic.activation_bytes(sized, step)
    evaluated = towers * cost_arithmetic.evaluation_bytes(sized, CUDA_BATCH_TOKENS)
    count = LABELLED if stage.text == PAIRS else sentences
    steps = planned_steps(config, count)
    tokens = steps * int(config["batch_size"]) * step.length
    training = (
        tokens * _count_passes(stage, card, step) * cost_arithmetic.token_operations(sized, step.length)
    )
    dev = DEV_TOKENS * cost_arithmetic.token_operations(sized, SHORT)
    evaluations = steps // int(config["eval_every"]) if config.get("eval_every") else 0
    hours = (training + towers * evaluations * dev) / SUSTAINED / 3600 if training else 0.0
    trained = cost_arithmetic.count_trained(sized, step)
    return TrainingCost(cost_arithmetic.count_parameters(sized), trained, state, max(held, evaluated), hours)


def _read_step(config: Mapping[str, OptionValue]) -> StepMemory:
    """Return what a step holds, of the options that its stage has."""
    return StepMemory(
        int(config["max_length"]),
        VIEWS * int(config["batch_size"]),
        int(config.get("chunk", 0)),
        bool(config.get("checkpoint_layers", False)),
        int(config.get("lora_rank", 0)),
        bool(config.get("lora_dropout", 0)),
        config.get("lora_base") == "bf16",
    )


def _count_passes(stage: StageSpec, card: MethodCard, step: StepMemory) -> float:
    """Return forward passes of a sentence, a backward counted as two; 0 where a card states none.

    Frozen weights need no gradient, one of a row's three passes. Chunks and layers that are computed again
    take a forward pass more.
    """
    name = "simcse" if stage.kind in LIKE_SIMCSE else stage.kind
    stated = METHODS.get(name).card.passes if name in METHODS.names() else card.passes
    spared = 1 if step.lora_rank else 0
    again = bool(step.chunk) + step.checkpoint_layers
    return stated * (_PASSES - spared + again) / _PASSES


def describe_cell_rate(cell: Cell, profile: Profile) -> str:
    """Return where a row's rate comes from; see :func:`describe_rate`."""
    return describe_rate(cell.card.name, dict(cell.options), profile_options(cell.card, profile), profile)


def describe_untuned(cells: Iterable[Cell], profile: Profile) -> Iterator[str]:
    """Yield a note that names the rows with untuned rates."""
    rows = {cell.method: cell for cell in cells if cell.stages}
    untuned = []
    for row, cell in rows.items():
        if is_untuned(cell.card.name, dict(cell.options), profile_options(cell.card, profile), profile):
            untuned.append(row)
    if untuned:
        yield f"untuned in profile {profile.name}: {', '.join(untuned)}: {NO_SOURCE}"


def describe_plan(cells: Iterable[Cell], sized: Architecture, sentences: int) -> str | None:
    """Return a line on what the rows take by arithmetic; None without training."""
    costs: dict[str, TrainingCost] = {}
    for cell in {cell.method: cell for cell in cells}.values():
        if cost := estimate_stages((stage.spec for stage in cell.stages), cell.card, sized, sentences):
            costs[cell.method] = cost
    if not costs:
        return None
    row = max(costs, key=lambda name: costs[name].memory)
    hours = sum(cost.hours for cost in costs.values())
    parts = f"{costs[row].parameters / 1e6:,.1f} M weights, at most {costs[row].format_memory()} ({row})"
    return f"by arithmetic, in float32: {parts}; {hours:.1f} H200 hours a seed of all rows"
