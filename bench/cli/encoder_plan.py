"""The plan of one encoder, and the encoder, trained where its stages are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.cli.options import check_device, load_plugin_options, make_spec, print_stderr
from bench.cli.plan_notes import print_plan_notes
from bench.cli.terminal import progress_bar
from bench.cli.trained_rows import choose_trained_row
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.encoder import Encoder
    from bench.execution.encoder_builder import EncoderBuilder
    from bench.plan.plan import Plan


def plan_encoder(text: str, seed: int | None, options: dict[str, Any], where: str) -> Plan:
    """Return the plan of one encoder; raises InputError for its method, seed or device."""
    from bench.config.method_ids import parse_method
    from bench.plan.plan import make_plan
    from bench.registry import discover

    load_plugin_options(options["plugins"], options["results"])
    text = choose_trained_row(text, options)
    card = discover().get(parse_method(text, where).name, where=where).card
    if not card.takes_methods:  # those have seeds if their members have
        _check_seed(text, seed, where, has_seeds=not card.deterministic)
    plan = make_plan(make_spec({**options, "methods": text, "seeds": (seed or 0,)}))
    print_plan_notes(plan)
    _check_seed(text, seed, where, has_seeds=plan.jobs[0].cell.seed is not None)
    check_device(plan.spec.device)
    return plan


def _check_seed(text: str, seed: int | None, where: str, *, has_seeds: bool) -> None:
    if seed is None and has_seeds:
        raise InputError(f"'{text}' has one encoder per seed", where=where, expected="--seed N")
    if seed is not None and not has_seeds:
        what = f"'{text}' is deterministic: it is the same for every seed"
        raise InputError(what, where=where, hint="leave out --seed")


def prepare_encoder(
    plan: Plan, checkpoint: str, where: str, *, precision: str = "fp32"
) -> tuple[EncoderBuilder, Encoder]:
    """Return a one-cell plan's encoder and its builder; trains missing stages, refuses scorers of pairs."""
    from bench.encoder import PairScorer
    from bench.execution.encoder_builder import EncoderBuilder
    from bench.execution.stage_cache import StageCache
    from bench.plan.backbones import check_backbones
    from bench.plan.memory_options import check_memory_options
    from bench.stages import planned_steps

    cell, cache = plan.jobs[0].cell, StageCache(plan.spec.results / ".stages")
    missing = [stage.spec for stage in cell.all_stages if cache.find(stage) is None]
    if missing:
        check_backbones([cell], plan.training)
        check_memory_options([cell])
        roles = ", ".join(stage.role for stage in missing)
        print_stderr(f"{cell.describe()} is trained first: stage {roles} is not in {cache.root}")
    total = 0
    for stage in missing:
        config = dict(stage.config)
        size = len(plan.training.texts[stage.text].sentences) if plan.training else 0
        total += planned_steps(config, size) * int(config["batch_size"])
    with progress_bar("train", total) as advance:
        builder = EncoderBuilder(cell, plan.spec.device, plan.training, cache, advance)
        encoder = builder.encoder(checkpoint, precision)
    if isinstance(encoder, PairScorer):
        what = f"'{cell.method}' compares two sentences directly: it has no vectors"
        raise InputError(what, where=where)
    return builder, encoder
