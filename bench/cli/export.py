"""``bench export``: one trained encoder as a folder for other libraries, with its model card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.options import PATH, check_device, load_plugin_options, make_spec, print_stderr, spec_options
from bench.cli.plan_notes import print_plan_notes
from bench.cli.signals import finish_command
from bench.cli.strict_options import strict_option
from bench.cli.terminal import progress_bar
from bench.cli.trained_rows import choose_trained_row
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.encoder import Encoder
    from bench.execution.encoder_builder import EncoderBuilder
    from bench.plan.plan import Plan


_WHERE = "bench export"
seed_option = strict_option(
    "--seed", type=click.IntRange(0), help="Seed of the encoder; leave it out for a deterministic method."
)
checkpoint_option = strict_option(
    "--checkpoint",
    type=click.Choice(["selected", "last"]),
    default="selected",
    help="Checkpoint that the dev set selected, or the last one.",
)


@click.command()
@click.argument("method", shell_complete=completion.method)
@seed_option
@strict_option("--out", type=PATH, required=True, help="Folder to write.")
@checkpoint_option
@spec_options
def export_command(method: str, seed: int | None, out: Path, checkpoint: str, **options: Any) -> None:
    """Save an encoder as a folder for other libraries.

    Transformers, sentence-transformers and bench.load read it. Give the options of the `bench run` that
    trained it, and its finished stages are reused.
    """
    from bench.config.method_ids import parse_method
    from bench.nn.device import torch_threads

    if options["precision"] != "fp32":
        where = f"--precision {options['precision']}"
        what = "an export has fp32 weights, and its card fp32 scores"
        raise InputError(what, where=where, hint="leave it out")
    load_plugin_options(options["plugins"], options["results"])
    if parse_method(method, _WHERE).name == "st":
        what = f"'{method}' is a sentence-transformers folder already"
        raise InputError(what, where=_WHERE, hint="copy it")
    plan = plan_encoder(method, seed, options, _WHERE)
    name = plan.jobs[0].cell.describe()
    with torch_threads(plan.spec.threads, needs_torch=True):
        from bench.execution import model_card
        from bench.nn.encoder_folder import check_target, export_encoder

        check_target(out)
        builder, encoder = prepare_encoder(plan, checkpoint, _WHERE)
        records = model_card.find_finished_records(plan)
        index = model_card.build_model_index(name, plan, records, checkpoint)
        facts = {**model_card.collect_model_facts(builder), "model_index": index}
        card = model_card.build_model_card(builder, records, checkpoint)
        export_encoder(encoder, out, card, facts, commit=finish_command)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    click.echo(f"{out}: {name}, {encoder.dim} dimensions, {size / 1e6:.1f} MB")


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


def prepare_encoder(plan: Plan, checkpoint: str, where: str) -> tuple[EncoderBuilder, Encoder]:
    """Return a one-cell plan's encoder and its builder; trains missing stages, refuses scorers of pairs."""
    from bench.encoder import PairScorer
    from bench.execution.encoder_builder import EncoderBuilder
    from bench.execution.stage_cache import StageCache
    from bench.stages import planned_steps

    cell, cache = plan.jobs[0].cell, StageCache(plan.spec.results / ".stages")
    missing = [stage.spec for stage in cell.all_stages if cache.find(stage) is None]
    if missing:
        roles = ", ".join(stage.role for stage in missing)
        print_stderr(f"{cell.describe()} is trained first: stage {roles} is not in {cache.root}")
    total = 0
    for stage in missing:
        config = dict(stage.config)
        size = len(plan.training.texts[stage.text].sentences) if plan.training else 0
        total += planned_steps(config, size) * int(config["batch_size"])
    with progress_bar("train", total) as advance:
        builder = EncoderBuilder(cell, plan.spec.device, plan.training, cache, advance)
        encoder = builder.encoder(checkpoint)
    if isinstance(encoder, PairScorer):
        action = where.split()[-1]
        what = f"'{cell.method}' compares two sentences directly: it has no vectors to {action}"
        raise InputError(what, where=where)
    return builder, encoder
