"""``bench tune``: choose one option of a method on the dev set, with the same budget for every method."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from bench.config import profiles
from bench.config.profiles import zero_steps
from bench.config.run_spec import RunSpec
from bench.encoder import Encoder
from bench.errors import BenchError, CellFailedError, InputError
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.gpu_sharing import choose_cells_per_gpu
from bench.execution.runner import choose_executor
from bench.execution.stage_cache import StageCache
from bench.method_card import OptionValue
from bench.nn.device import torch_threads
from bench.plan.cell_expansion import budget_options, collect_user_options
from bench.plan.plan import Plan, make_plan
from bench.registry import METHODS

MAX_VALUES = 6
Report = Callable[[float, float | str], None]
REPORTED_SEEDS = range(1, 11)
_TRAINING = (
    *("backbone", "corpus", "text_column", "pairs", "dev", "world_seed"),
    *("device", "ranks", "train_precision", "compiled"),
)
"""Fields of a specification that change a training, called like their options but for ``--compile``."""


def tune_option(
    spec: RunSpec, option: str, values: Sequence[str], report: Report, first: Sequence[str] = ()
) -> str:
    """Train once for every value, choose by the dev score, and return the lines for the profile."""
    # ``report`` gets each value with its score, or the reason of its failure. After the ``first`` values the
    # neighbours of the best are tried. Raises InputError, or CellFailedError if every value failed.
    numbers, begin = _parse_grid(spec, values, first)
    (request,) = spec.methods
    _check_option_unset(spec, option)
    outcomes: dict[float, float | str] = {}
    waiting = [index for index, value in enumerate(numbers) if value in begin]
    while waiting:
        changed = (replace(request, options=(*request.options, (option, values[i]))) for i in waiting)
        plans = [make_plan(replace(spec, methods=(row,))) for row in changed]
        if not plans[0].jobs[0].cell.stages:
            raise InputError(f"'{request.name}' doesn't train", where="bench tune")
        executor = choose_executor(spec, partial(choose_cells_per_gpu, plans[0], len(plans)))
        for index, outcome in executor.run(_measure_dev_score, list(zip(waiting, plans, strict=True))):
            outcomes[numbers[index]] = outcome
            report(numbers[index], outcome)
        scores = {v: score for v in numbers if isinstance(score := outcomes.get(v), float)}
        beside = list(numbers)
        if scores:
            chosen, order = max(scores, key=scores.__getitem__), sorted(numbers)
            beside = order[max(0, order.index(chosen) - 1) : order.index(chosen) + 2]
        waiting = [numbers.index(value) for value in beside if value not in outcomes]
    if not scores:
        raise CellFailedError("every value failed", where=request.name)
    rows = [f"[{value!r}, {score:.4f}]" for value, score in scores.items()]
    failed = [f"# failed: {value!r}\n" for value in numbers if isinstance(outcomes.get(value), str)]
    command = _build_command(spec, option, numbers, begin if first else [])
    return (
        f"{_format_table(spec, option, chosen)}\n"
        f"[[tuning]] # {shlex.join(command)}\n"
        f"method = {json.dumps(request.text)}\n"
        f'option = "{option}"\nseed = {spec.seeds[0]}\ndev = [{", ".join(rows)}]\n{"".join(failed)}'
    )


def _format_table(spec: RunSpec, option: str, chosen: float) -> str:
    """Return the method's table: the choice, the given options, and lengths where it replaces the budget."""
    (request,) = spec.methods
    card, profile = METHODS.get(request.name).card, profiles.load_profile(spec.profile)
    given = collect_user_options(request, card, spec, None)
    replaces = profile.budget is not None and not profile.budget.equal and card.name not in profile.methods
    lengths = budget_options(card, profile, {**given, option: chosen}) if replaces else {}
    values: dict[str, OptionValue] = {option: chosen, **lengths, **zero_steps(given, lengths), **given}
    lines = [f"[methods.{request.name}]"]
    for name, value in values.items():
        text = repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
        lines.append(f"{name} = {text}")
    return "\n".join([*lines, ""])


def _build_command(spec: RunSpec, option: str, numbers: Sequence[float], begin: Sequence[float]) -> list[str]:
    """Return the words of the command that repeats this choice."""
    words = ["bench", "tune", spec.methods[0].text, "--profile", spec.profile, "--option", option]
    words += ["--values", ",".join(map(repr, numbers))]
    if begin:
        words += ["--first", ",".join(map(repr, begin))]
    words += ["--seed", str(spec.seeds[0])]
    for override in spec.overrides:
        words += ["--set", override.text]
    for name, file in spec.copies:
        words += ["--copy", f"{name}={file}"]
    if spec.accept_data:
        words.append("--accept-data")
    for name in _TRAINING:
        if (value := getattr(spec, name)) != getattr(RunSpec, name):
            words += ["--compile" if name == "compiled" else f"--{name.replace('_', '-')}", str(value)]
    for plugin in spec.plugins:
        words += ["--plugin", plugin.path or plugin.name]
    return words


def _check_option_unset(spec: RunSpec, option: str) -> None:
    """Raise InputError where the option has a value, which would replace those to be tried."""
    (request,) = spec.methods
    taken = []
    for override in spec.overrides:
        name = f"{override.stage}.{override.option}" if override.stage else override.option
        if override.method in (request.name, request.alias) and name == option:
            taken.append(f"--set {override.text}")
    taken += [request.text for name, _ in request.options if name == option]
    if taken:
        raise InputError(f"{option} is the option to choose", where=taken[0], expected="no value for it")


def _measure_dev_score(task: tuple[int, Plan]) -> tuple[int, float | str]:
    """Train the stages of one value; return its index with the dev score, or why the training failed."""
    index, plan = task
    spec = plan.spec
    with torch_threads(spec.threads, needs_torch=True):
        cache = StageCache(spec.results / ".stages")
        builder = EncoderBuilder(plan.jobs[0].cell, spec.device, plan.training, cache)
        try:
            builder.folders()
            score = _selected_dev_score(builder, plan)
        except BenchError as error:
            return index, str(error)
    return index, "no dev evaluation: eval_every is more than the steps" if score is None else score


def _selected_dev_score(builder: EncoderBuilder, plan: Plan) -> float | None:
    """Return the dev score of the selected checkpoint, or of the encoder of several stages, if any."""
    scores = [builder.cache.facts(stage)["selected_dev"] for stage in builder.cell.final_stages]
    if None in scores or plan.training is None:
        return None
    if len(scores) == 1:
        return float(scores[0])
    from bench.eval.sts import dev_spearman

    encoder = builder.encoder()
    if not isinstance(encoder, Encoder):
        raise BenchError(f"{builder.cell.method} has no vectors, so it has no dev score")
    return dev_spearman(encoder, plan.training.dev)


def _parse_grid(
    spec: RunSpec, values: Sequence[str], first: Sequence[str]
) -> tuple[list[float], list[float]]:
    """Return the numbers to choose from, and those to begin with; raises InputError."""
    numbers = list(map(_parse_number, values))
    if len(numbers) > MAX_VALUES or len(set(numbers)) < len(numbers):
        what, expected = f"{len(numbers)} values", f"at most {MAX_VALUES}, each once"
        raise InputError(what, where="--values", expected=expected)
    if spec.seeds[0] in REPORTED_SEEDS:
        what = f"seed {spec.seeds[0]} is one of those that are reported"
        raise InputError(what, where="--seed", expected="another one")
    begin = list(map(_parse_number, first)) or numbers
    if other := [value for value in begin if value not in numbers]:
        raise InputError(f"{other[0]:g} is none of --values", where="--first", expected="some of them")
    return numbers, begin


def _parse_number(text: str) -> float:
    """Parse a value; a whole number stays an int, which some options require."""
    try:
        return int(text) if text.strip().isdecimal() else float(text)
    except ValueError:
        expected = "numbers such as 1e-5,3e-5"
        raise InputError(f"'{text}' is not a number", where="--values", expected=expected) from None
