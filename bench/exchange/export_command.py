"""``bench export``: an encoder for other libraries, the vectors of a text, or scores for other tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.encoder_plan import plan_encoder, prepare_encoder
from bench.cli.modes import check_mode, require_parameter
from bench.cli.options import PATH, load_plugin_options, spec_options
from bench.cli.signals import finish_command
from bench.cli.strict_options import Panel, strict_option
from bench.cli.vectors import write_vectors
from bench.errors import InputError
from bench.exchange.score_export import LAYOUTS, write_scores

if TYPE_CHECKING:
    from bench.encoder import Encoder
    from bench.execution.encoder_builder import EncoderBuilder
    from bench.plan.plan import Plan

_WHERE = "bench export"
_OF_SCORES = ("layout", "out", "results", "campaign", "profile", "suites", "data_dir")
"""Parameters of --layout, besides its own."""


@bench_command()
@click.argument("method", required=False, shell_complete=completion.method)
@strict_option(
    "--seed",
    type=click.IntRange(0),
    panel=Panel.MAIN,
    help="Seed of the encoder; leave it out for a deterministic method.",
)
@strict_option(
    "--out",
    type=PATH,
    required=True,
    panel=Panel.MAIN,
    help="Folder to write; with --vectors a FILE.npy, with --layout csv and items a FILE.csv.",
)
@strict_option(
    "--checkpoint",
    type=click.Choice(["selected", "last"]),
    default="selected",
    panel=Panel.MAIN,
    help="Checkpoint that the dev set selected, or the last one.",
)
@strict_option(
    "--adapter",
    is_flag=True,
    panel=Panel.MAIN,
    help="Write the LoRA adapter by itself, without its base model; by default they are merged.",
)
@strict_option(
    "--vectors",
    "source",
    metavar="FILE|-",
    panel=Panel.VECTORS,
    help="Write the vectors of this text instead, a sentence a line; - is stdin.",
)
@strict_option(
    "--block",
    type=click.IntRange(1),
    default=4096,
    metavar="N",
    panel=Panel.VECTORS,
    help="Sentences in memory at a time.",
)
@strict_option(
    "--layout",
    type=click.Choice(LAYOUTS),
    panel=Panel.LAYOUT,
    help="Write a campaign's scores instead. mteb: its result files, below a folder; csv: a row a score; "
    "items: a row an item.",
)
@strict_option(
    "--methods",
    shell_complete=completion.recorded_methods,
    panel=Panel.LAYOUT,
    help="Only these methods, comma-separated.",
)
@spec_options
def export_command(
    method: str | None,
    seed: int | None,
    out: Path,
    checkpoint: str,
    adapter: bool,
    source: str | None,
    block: int,
    layout: str | None,
    methods: str | None,
    **options: Any,
) -> None:
    """Save an encoder, or write vectors or scores for other tools.

    Transformers, sentence-transformers and bench.load read the folder. Give the options of the `bench run`
    that trained it, and its finished stages are reused.

    --vectors writes a .npy file: float32, row i for line i; an empty line is an error. Memory use is
    independent of the text's length.

    --layout writes the records of --campaign; --profile, --suite and --methods choose among them. Their
    scores are computed again first. Every result that the layout can't hold is listed.
    """
    check_mode("--layout", ("methods",), _OF_SCORES, active=layout is not None)
    check_mode("--vectors", ("block",), active=source is not None)
    if layout is not None:
        write_scores(layout, out, methods=methods, options=options)
        return
    method = require_parameter("method", "METHOD or --layout")
    if source is not None and adapter:
        raise InputError("it is not for --vectors", where=f"{_WHERE}, --adapter", hint="leave it out")
    if source is not None:
        write_vectors(method, source, out, seed=seed, checkpoint=checkpoint, block=block, options=options)
        return
    from bench.config.method_ids import parse_method
    from bench.nn.device import torch_threads

    check_full_precision(options["precision"])
    load_plugin_options(options["plugins"], options["results"])
    if parse_method(method, _WHERE).name == "st":
        what = f"'{method}' is a sentence-transformers folder already"
        raise InputError(what, where=_WHERE, hint="copy it")
    plan = plan_encoder(method, seed, options, _WHERE)
    name = plan.jobs[0].cell.describe()
    with torch_threads(plan.spec.threads, needs_torch=True):
        from bench.nn.encoder_folder import check_target, find_encoder_bases

        check_target(out)
        if adapter:
            check_adapter_row(plan)
        builder, encoder = prepare_encoder(plan, checkpoint, _WHERE)
        save_encoder(plan, builder, encoder, checkpoint, out, adapter=adapter, commit=finish_command)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    click.echo(f"{out}: {name}, {encoder.dim} dimensions, {size / 1e6:.1f} MB")
    for base in find_encoder_bases(encoder) if adapter else ():
        line = f"loading needs its base model: {base.name}, sha256 {base.sha256[:12]}"
        click.echo(f"{line}; here it is {base.path}")


def check_adapter_row(plan: Plan) -> None:
    """Raise InputError, before any training, for a row without LoRA."""
    from bench.nn.model_folder import AdapterModel

    cell = plan.jobs[0].cell
    trained = any(dict(stage.spec.config).get("lora_rank") for stage in cell.all_stages)
    if trained or any(isinstance(model, AdapterModel) for part in cell.walk() for model in part.models):
        return
    what = f"{cell.describe()} has no LoRA adapter"
    raise InputError(what, where="--adapter", hint="leave it out for a whole model")


def check_full_precision(precision: str) -> None:
    """Raise InputError for an encoder in another precision than fp32."""
    if precision != "fp32":
        what = "an encoder on its own has fp32 weights, and its card fp32 scores"
        raise InputError(what, where=f"--precision {precision}", hint="leave it out")


def save_encoder(
    plan: Plan,
    builder: EncoderBuilder,
    encoder: Encoder,
    checkpoint: str,
    out: Path,
    *,
    adapter: bool = False,
    commit: Callable[[], object] = lambda: None,
) -> None:
    """Write a one-cell plan's encoder with its model card; raises as ``export_encoder``."""
    from bench.execution import model_card
    from bench.nn.encoder_folder import export_encoder

    records = model_card.find_finished_records(plan)
    index = model_card.build_model_index(plan.jobs[0].cell.describe(), plan, records, checkpoint)
    facts = {**model_card.collect_model_facts(builder), "model_index": index}
    card = model_card.build_model_card(builder, records, checkpoint)
    export_encoder(encoder, out, card, facts, adapter=adapter, commit=commit)
