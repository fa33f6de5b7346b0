"""``bench probe``: what a score doesn't say about an encoder."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.options import (
    PATH,
    check_device,
    format_option,
    make_spec,
    print_json,
    print_stderr,
    seeds_option,
    spec_options,
)
from bench.cli.strict_option import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.plan.cell import Cell
    from bench.plan.plan import Plan
    from bench.probes.interface import ProbeOptions
    from bench.probes.probe_data import ProbeData
    from bench.reports.tables.probes import ProbedRun

_WHERE = "bench probe"


@click.command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...", shell_complete=completion.method)
@seeds_option("1")
@strict_option("--probes", "names", default="all", help="Names from `bench list probes`.")
@strict_option(
    "--on",
    "suite",
    shell_complete=completion.suite,
    help="Suite whose sentences are probed; default is the dev set.",
)
@strict_option("--strict", is_flag=True, help="Alignment over pairs of a gold score above 4, not at least 4.")
@strict_option(
    "--groups",
    type=click.Choice(["width", "quantiles"]),
    default="width",
    help="Gold groups of the density: intervals of width 1, or five of like size.",
)
@strict_option("--per-head", is_flag=True, help="Attention mass by head too (json).")
@strict_option("--sentence", help="Sentence of the attention maps; default is that of JTCSE's Fig. 9.")
@strict_option("--heatmaps", type=PATH, help="Draw its maps by layer (SVG) into DIR.")
@strict_option(
    "--along",
    is_flag=True,
    help="Train each METHOD's own stages anew and probe them at every dev evaluation; keeps no stage.",
)
@strict_option("--out", type=PATH, help="File of --along: written after every training, continued if there.")
@format_option("text", "json")
@spec_options
def probe_command(
    methods: tuple[str, ...], names: str, form: str, heatmaps: Path | None, **options: Any
) -> None:
    """Measure the probes of each METHOD's encoder; finished training stages are used as they are.

    Without METHOD: the probes in the records of --campaign (`bench run --probes all` puts them there), and
    how they go with the score over its methods.
    """
    along, out = options.pop("along"), options.pop("out")
    if out is not None and not along:
        raise InputError("only probes along trainings are written to a file", where=f"--out {out}")
    if not methods:
        if along:
            raise InputError("no METHOD to train", where="--along")
        _print_records(options["results"], options["campaign"], form)
        return
    from bench.cli.terminal import format_grids
    from bench.probes import parse_probes
    from bench.probes.interface import ProbeOptions
    from bench.reports.tables.probes import probe_grids

    if along:
        probe_training = import_module("bench.training_probes.command").probe_training
        probe_training(methods, names, form, heatmaps, out, options)
        return
    wanted = parse_probes(names, print_stderr)
    if heatmaps is not None and "attention_sink" not in wanted:
        raise InputError("heatmaps come with the probe attention_sink", where=f"--probes {names}")
    how = ProbeOptions(
        strict=options["strict"],
        groups=options["groups"],
        per_head=options["per_head"],
        sentence=_check_sentence(options["sentence"], maps=heatmaps is not None or form == "json"),
    )
    found = _measure_methods(methods, wanted, how, options)
    if heatmaps is not None:
        _draw_maps(found, heatmaps)
    if form == "json":
        print_json([asdict(one) for one in found])
    else:
        click.echo(format_grids(probe_grids(found)), nl=False)


def _check_sentence(given: str | None, *, maps: bool) -> str | None:
    """The sentence of the attention maps, None where there are none; raises InputError for one in vain."""
    from bench.probes.attention_sink import PAPER_SENTENCE

    if given is None:
        return PAPER_SENTENCE if maps else None
    if not maps:
        raise InputError("there are no attention maps", where="--sentence", expected="--heatmaps DIR as well")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise InputError("this is not UTF-8", where="--sentence") from error
    if not given.strip():
        raise InputError("this is empty", where="--sentence", expected="a sentence")
    return given


def _measure_methods(
    methods: tuple[str, ...], names: tuple[str, ...], how: ProbeOptions, options: dict[str, Any]
) -> list[ProbedRun]:
    from bench.config import profiles
    from bench.data.source import DataSource
    from bench.execution.record_probes import load_probe_data
    from bench.nn.device import torch_threads
    from bench.plan.plan import make_plan

    plan = make_plan(make_spec({**options, "methods": ",".join(methods)}))
    spec = plan.spec
    check_device(spec.device)
    suite = options["suite"] or spec.dev or profiles.load_profile(spec.profile).dev
    data = load_probe_data(suite, DataSource.of_run(spec))
    cells = {(job.cell.method, job.cell.seed): job.cell for job in plan.jobs}
    with torch_threads(spec.threads, needs_torch=True):
        return [_measure_cell(plan, cell, data, names, how) for cell in cells.values()]


def _measure_cell(
    plan: Plan, cell: Cell, data: ProbeData, names: tuple[str, ...], how: ProbeOptions
) -> ProbedRun:
    """Measure one cell's encoder; its average is that of its finished record on the plan's first suite."""
    from bench.execution.encoder_builder import EncoderBuilder
    from bench.execution.record_probes import add_cost_efficiency, find_finished_record
    from bench.execution.stage_cache import StageCache
    from bench.probes.measurement import measure_probes
    from bench.reports.tables.probes import ProbedRun

    cache = StageCache(plan.spec.results / ".stages")
    missing = [stage.spec.role for stage in cell.all_stages if cache.find(stage) is None]
    if missing:
        stages = ", ".join(missing)
        click.echo(f"{cell.describe()} is trained first, stage {stages}: not in {cache.root}", err=True)
    encoder = EncoderBuilder(cell, plan.spec.device, plan.training, cache).encoder()
    with progress_bar(cell.describe(), len(data.sentences)) as advance:
        found = measure_probes(encoder, data, names, how, advance)
    job = next(job for job in plan.jobs if job.cell == cell)
    record = find_finished_record(plan, job)
    probes = add_cost_efficiency(found.probes, record) if record else found.probes
    average = record.score("avg") if record else None
    return ProbedRun(cell.profile, cell.method, cell.seed, job.suite, average, probes, found.timing)


def _draw_maps(found: list[ProbedRun], folder: Path) -> None:
    from bench.records.record import safe_name
    from bench.reports.figures.heatmaps import draw_heatmaps

    for one in found:
        name = one.method if one.seed is None else f"{one.method} seed {one.seed}"
        maps = one.probes["attention_sink"].get("maps")
        if maps is None:
            click.echo(f"no heatmap of {name}: {one.probes['attention_sink']['missing']}", err=True)
            continue
        for number, tower in enumerate(maps, start=1):
            title = name if len(maps) == 1 else f"{name}, tower {number}"
            path = folder / f"{safe_name(title.replace(' ', '-').replace(',', ''))}.svg"
            draw_heatmaps(tower["tokens"], tower["layers"], title, path)
            click.echo(f"heatmap: {path}", err=True)


def _print_records(results: Path, campaign: str, form: str) -> None:
    from bench.cli.terminal import format_grids
    from bench.records.store import ResultStore
    from bench.reports.campaign import make_campaign
    from bench.reports.tables.mechanism import all_relations, mechanism_grids
    from bench.reports.tables.probes import probe_grids, probed_runs

    store = ResultStore(results, campaign)
    source = make_campaign(store, store.records())
    found = probed_runs(source.records)
    if not found:
        raise InputError(
            "no record has probes",
            where=f"{_WHERE}, campaign {campaign}",
            expected="METHOD, or records with probes",
            hint="bench run --probes all adds them",
        )
    if form == "json":
        relations = all_relations(source)
        print_json({"probes": list(map(asdict, found)), "mechanism": list(map(asdict, relations))})
    else:
        click.echo(format_grids([*probe_grids(found), *mechanism_grids(source)]), nl=False)
