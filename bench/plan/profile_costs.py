"""What training on a profile's backbone takes by arithmetic, and which rates have no source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from bench.config.profiles import Profile
from bench.method_card import FROZEN, TRAINED, HeldEncoder, MethodCard, OptionValue
from bench.nn.tokens import CUDA_BATCH_TOKENS
from bench.plan import cost_arithmetic
from bench.plan.cell import Cell
from bench.plan.cell_expansion import profile_options
from bench.plan.cost_arithmetic import Architecture, StepMemory, count_adapters, read_architecture
from bench.plan.untuned_rates import NO_SOURCE, describe_rate, is_untuned
from bench.registry import METHODS, discover
from bench.stages import PAIRS, StageSpec, TrainedMethod, planned_steps

OPTIMIZERS = {"adamw": "AdamW", "rmsprop": "RMSprop"}
"""Optimisers in words."""
SENTENCES = 1_000_000
LABELLED = 275_601
"""Triplets of SimCSE's NLI file."""
SUSTAINED = 30e12
"""Assumed float32 operations a second of one H200 in training: 45% of the 67e12 that NVIDIA states."""
DEV_TOKENS = 47_750
"""Of STS-B dev, 2,909 distinct sentences, in BERT's word pieces."""
SHORT = 16
"""Mean tokens of an evaluated sentence."""
RANK = 64
"""Of the adapters that SimCSE trains in the profiles of decoders."""
LIKE_SIMCSE = ("sub_encoder", "edfse_sub")
"""Stages of other names that train as SimCSE does."""
_PASSES = 3  # of a row: forward, and a backward of two
_GIB = 2**30


@dataclass(frozen=True)
class TrainingCost:
    """What a method's training takes on a GPU in float32, by arithmetic.

    Args:
        parameters: Weights of the backbone.
        trained: Those that are trained, of all encoders, or the adapters' weights.
        state: Bytes of weights, gradients and the optimiser's states, of the largest stage.
        activations: Bytes of activations of that stage, or of evaluation if that is more.
        hours: Hours of one H200 for a seed; 0 where the passes of a stage are unknown.
        encoders: Encoders that the stage trains.
        copies: Frozen encoders, moving averages and teachers that it holds.
        optimizer: Its optimiser, a key of :data:`OPTIMIZERS`.
    """

    parameters: int
    trained: int
    state: float
    activations: float
    hours: float
    encoders: int = 1
    copies: int = 0
    optimizer: str = "adamw"

    @property
    def memory(self) -> float:
        """Bytes in all."""
        return self.state + self.activations

    def format_memory(self) -> str:
        """Return memory in words."""
        parts = f"{self.state / _GIB:.1f} of weights, gradients and {OPTIMIZERS[self.optimizer]}"
        return f"{self.memory / _GIB:.1f} GiB: {parts}, {self.activations / _GIB:.1f} of activations"

    def format_weights(self) -> str:
        """Return the weights and encoders in words."""
        if not self.encoders:
            return f"{self.parameters / 1e6:,.1f} M, all frozen besides what the method adds"
        text = f"{self.parameters / 1e6:,.1f} M, {self.trained / 1e6:,.1f} M trained"
        if self.encoders > 1:
            text += f" in {self.encoders} encoders"
        if self.copies:
            text += f", {self.copies} cop{'y' if self.copies == 1 else 'ies'} without gradients"
        return text

    def format_hours(self) -> str:
        """Return hours in words, "?" where they are unknown."""
        return f"{self.hours:.1f} H200 hours a seed" if self.hours else "? hours"


def estimate_stages(
    stages: Iterable[StageSpec], card: MethodCard, sized: Architecture, sentences: int = SENTENCES
) -> TrainingCost | None:
    """Return what the training stages of a method take; None without stages that have steps."""
    given = list(stages)
    roles = {stage.role for stage in given}
    costs = [_estimate_stage(stage, card, sized, sentences, roles) for stage in given if _has_steps(stage)]
    if not costs:
        return None
    largest = max(costs, key=lambda cost: cost.memory)
    known = all(cost.hours for cost in costs)
    hours = sum(cost.hours for cost in costs) if known else 0.0
    return replace(largest, hours=hours)


def estimate_method(name: str, profile: Profile) -> TrainingCost | None:
    """Return what a method takes in a profile; None where either has no sizes or no training."""
    sized = read_architecture(profile.architecture)
    method = discover().get(name)
    if sized is None or not isinstance(method, TrainedMethod):
        return None
    return estimate_stages(method.stages(profile_options(method.card, profile)), method.card, sized)


def _has_steps(stage: StageSpec) -> bool:
    return {"steps", "epochs", "batch_size", "max_length"} <= dict(stage.config).keys()


def _estimate_stage(
    stage: StageSpec, card: MethodCard, sized: Architecture, sentences: int, roles: Collection[str]
) -> TrainingCost:
    config = dict(stage.config)
    step = _read_step(config)
    encoders = [held for held in _find_card(stage, card).encoders if held.holds(config)]
    trained = sum(held.state == TRAINED for held in encoders)
    towers = sum(held.returned for held in encoders)
    teachers = sum(role not in roles for role in stage.inputs)  # other methods, by the roles of members
    state = sum(_held_bytes(held, sized, step) for held in encoders)
    state += teachers * cost_arithmetic.frozen_bytes(sized)
    kept = sum(_activation_bytes(held, sized, step, int(config["batch_size"])) for held in encoders)
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
    return TrainingCost(
        cost_arithmetic.count_parameters(sized),
        trained * cost_arithmetic.count_trained(sized, step),
        state,
        max(kept, evaluated),
        hours,
        trained,
        len(encoders) - trained + teachers,
        step.optimizer,
    )


def _activation_bytes(held: HeldEncoder, sized: Architecture, step: StepMemory, batch: int) -> float:
    """Return the bytes that an encoder keeps of a batch's rows."""
    return cost_arithmetic.activation_bytes(sized, replace(step, rows=round(held.views * batch)))


def _held_bytes(held: HeldEncoder, sized: Architecture, step: StepMemory) -> int:
    """Return the bytes of an encoder's weights, and where it is trained of their gradients and states."""
    if held.state == TRAINED:
        return cost_arithmetic.weight_bytes(sized, step)
    if held.state == FROZEN:
        return cost_arithmetic.frozen_bytes(sized)
    return cost_arithmetic.average_bytes(sized, step)


def _read_step(config: Mapping[str, OptionValue]) -> StepMemory:
    """Return what a step holds, of the options that its stage has."""
    return StepMemory(
        int(config["max_length"]),
        int(config["batch_size"]),
        int(config.get("chunk", 0)),
        bool(config.get("checkpoint_layers", False)),
        int(config.get("lora_rank", 0)),
        bool(config.get("lora_dropout", 0)),
        config.get("lora_base") == "bf16",
        str(config.get("optimizer", "adamw")),
    )


def _count_passes(stage: StageSpec, card: MethodCard, step: StepMemory) -> float:
    """Return forward passes of a sentence, a backward counted as two; 0 where a card states none.

    Frozen weights need no gradient, one of a row's three passes. Chunks and layers that are computed again
    take a forward pass more.
    """
    stated = _find_card(stage, card).passes
    spared = 1 if step.lora_rank else 0
    again = bool(step.chunk) + step.checkpoint_layers
    return stated * (_PASSES - spared + again) / _PASSES


def _find_card(stage: StageSpec, card: MethodCard) -> MethodCard:
    """Return the card of the method that a stage trains as; the given one for kinds without a method."""
    name = "simcse" if stage.kind in LIKE_SIMCSE else stage.kind
    return METHODS.get(name).card if name in METHODS.names() else card


def describe_adapters(
    cost: TrainingCost, sized: Architecture, options: Mapping[str, OptionValue]
) -> str | None:
    """Return what adapters would train of a decoder whose weights are all trained; None otherwise."""
    if sized.kind not in cost_arithmetic.DECODERS or options.get("lora_rank", 1) or not cost.encoders:
        return None
    return f"lora_rank={RANK} trains {cost.encoders * count_adapters(sized, RANK) / 1e6:,.0f} M"


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
    whole: dict[str, str] = {}
    for cell in {cell.method: cell for cell in cells}.values():
        if cost := estimate_stages((stage.spec for stage in cell.stages), cell.card, sized, sentences):
            costs[cell.method] = cost
            if adapters := describe_adapters(cost, sized, dict(cell.options)):
                whole[cell.method] = adapters
    if not costs:
        return None
    row = max(costs, key=lambda name: costs[name].memory)
    hours = sum(cost.hours for cost in costs.values())
    parts = f"{costs[row].parameters / 1e6:,.1f} M weights, at most {costs[row].format_memory()} ({row})"
    text = f"by arithmetic, in float32: {parts}; {hours:.1f} H200 hours a seed of all rows"
    if whole:
        text += f"; all weights are trained by {', '.join(whole)}: {next(iter(whole.values()))}"
    return text
