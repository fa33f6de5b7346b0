"""``bench tune``: one option of one method chosen on the dev set, with the same budget for every method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from bench.errors import BenchError, CellFailedError, InputError
from bench.nn.threads import torch_threads
from bench.plan.plan import Plan, make_plan
from bench.request.spec import RunSpec
from bench.run.builder import Builder
from bench.run.executors import executor_for
from bench.run.sharing import sharing
from bench.run.stage_cache import StageCache

MAX_VALUES = 6
REPORTED_SEEDS = range(1, 6)


def tune_option(
    spec: RunSpec, option: str, values: Sequence[str], report: Callable[[float, float | str], None]
) -> str:
    """Train once for every value and choose by the dev score of the selected checkpoint.

    Args:
        spec: One method, one seed, the profile.
        option: The option to vary.
        values: At most MAX_VALUES numbers.
        report: Called with each value and its dev score, or why its training failed.

    Returns:
        The lines for the profile: the value with the largest score, the earliest of equals, and the grid that
        it was chosen from.

    Raises:
        InputError: too many values or none, a value twice, a reported seed, a method that doesn't train.
        CellFailedError: every value failed.
    """
    numbers = [_number(text) for text in values]
    if len(numbers) > MAX_VALUES or len(set(numbers)) < len(numbers):
        raise InputError(
            f"{len(numbers)} values", where="--values", expected=f"at most {MAX_VALUES}, each once"
        )
    if spec.seeds[0] in REPORTED_SEEDS:
        raise InputError(
            f"seed {spec.seeds[0]} is one of those that are reported", where="--seed", expected="another one"
        )
    (request,) = spec.methods
    plans = []
    for value in values:
        changed = replace(request, options=(*request.options, (option, value)))
        plans.append(make_plan(replace(spec, methods=(changed,))))
    if not plans[0].jobs[0].cell.stages:
        raise InputError(f"'{request.name}' doesn't train", where="bench tune")
    outcomes: dict[float, float | str] = {}
    executor = executor_for(spec, partial(sharing, plans[0], len(plans)))
    for index, outcome in executor.run(_dev_score, list(enumerate(plans))):
        outcomes[numbers[index]] = outcome
        report(numbers[index], outcome)
    scores = {value: score for value in numbers if isinstance(score := outcomes[value], float)}
    if not scores:
        raise CellFailedError("every value failed", where=request.name)
    method, seed, chosen = request.name, spec.seeds[0], max(scores, key=scores.__getitem__)
    stage, dot, name = option.rpartition(".")
    rows = [f"[{value!r}, {score:.4f}]" for value, score in scores.items()]
    return (
        f"[methods.{method}{dot}{stage}]\n{name} = {chosen!r}\n\n"
        f"[[tuning]] # bench tune {method} --profile {spec.profile} --option {option} "
        f"--values {','.join(f'{value:g}' for value in scores)} --seed {seed}\n"
        f'method = "{method}"\noption = "{option}"\nseed = {seed}\ndev = [{", ".join(rows)}]\n'
    )


def _dev_score(task: tuple[int, Plan]) -> tuple[int, float | str]:
    """Train one value's stages; return its dev score, or why the training failed."""
    index, plan = task
    spec, cell = plan.spec, plan.jobs[0].cell
    cache = StageCache(spec.results / ".stages")
    with torch_threads(spec.threads, needs_torch=True):
        builder = Builder(cell, spec.device, plan.training, cache)
        try:
            builder.folders()
        except BenchError as error:
            return index, str(error)
    score = cache.facts(cell.stages[-1])["selected_dev"]
    return index, "no dev evaluation: eval_every is more than the steps" if score is None else float(score)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"'{text}' is not a number", where="--values", expected="numbers such as 1e-5,3e-5"
        ) from None
