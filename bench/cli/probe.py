"""``bench probe``: properties of an encoder besides its score."""

from __future__ import annotations

from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.commands import bench_command
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
from bench.cli.plan_notes import print_plan_notes
from bench.cli.strict_options import Panel, strict_option
from bench.cli.terminal import progress_bar
from bench.cli.trained_rows import choose_trained_row
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.plan.cell import Cell
    from bench.plan.plan import Plan
    from bench.probes.interface import ProbeData, ProbeOptions
    from bench.reports.tables.probes import ProbedRun

_WHERE = "bench probe"


@bench_command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...", shell_complete=completion.method)
@seeds_option("1")
@strict_option("--probes", "names", default="all", panel=Panel.MAIN, help="Names from `bench list probes`.")
@strict_option(
    "--on",
    "suite",
    shell_complete=completion.suite,
    panel=Panel.MAIN,
    help="Suite whose sentences are probed; default: the dev set.",
)
@strict_option(
    "--strict",
    is_flag=True,
    panel=Panel.EVALUATION,
    rare=True,
    help="Alignment over pairs with gold scores above 4, instead of at least 4.",
)
@strict_option(
    "--groups",
    type=click.Choice(["width", "quantiles"]),
    default="width",
    panel=Panel.EVALUATION,
    rare=True,
    help="Gold groups of the density: intervals of width 1, or quintiles.",
)
@strict_option(
    "--per-head", is_flag=True, panel=Panel.EVALUATION, rare=True, help="Also attention mass by head (json)."
)
@strict_option(
    "--sentence",
    panel=Panel.EVALUATION,
    rare=True,
    help="Sentence of the attention maps; default: JTCSE's Fig. 9.",
)
@strict_option(
    "--heatmaps", type=PATH, panel=Panel.OUTPUT, help="Write attention maps by layer (SVG) into this folder."
)
@strict_option(
    "--along",
    is_flag=True,
    panel=Panel.TRAINING,
    help="Train each METHOD's own stages in a temporary folder, and probe them at every dev evaluation.",
)
@strict_option(
    "--out",
    type=PATH,
    panel=Panel.OUTPUT,
    help="File of --along, written after every training; an existing file is resumed.",
)
@format_option("text", "json")
@spec_options
def probe_command(
    methods: tuple[str, ...], names: str, form: str, heatmaps: Path | None, **options: Any
) -> None:
    """Measure properties of encoders besides their scores.

    Trains each METHOD unless its training stages are finished. Without METHOD, print the probes in the
    records of --campaign (from `bench run --probes all`), and their correlation with the score over methods.
    """
    along, out = options.pop("along"), options.pop("out")
    if out is not None and not along:
        raise InputError("only --along writes a file", where=f"--out {out}")
    if not methods:
        if along:
            raise InputError("no METHOD to train", where="--along")
        _print_records(options["results"], options["campaign"], options["data_dir"], form)
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
    sentence = _check_sentence(options["sentence"], maps=heatmaps is not None or form == "json")
    flags = {name: options[name] for name in ("strict", "groups", "per_head")}
    runs = _measure_methods(methods, wanted, ProbeOptions(**flags, sentence=sentence), options)
    if heatmaps is not None:
        _draw_maps(runs, heatmaps)
    if form == "json":
        print_json(list(map(asdict, runs)))
    else:
        click.echo(format_grids(probe_grids(runs)), nl=False)


def _check_sentence(given: str | None, *, maps: bool) -> str | None:
    """Return the sentence of the attention maps; raises InputError for an unusable one."""
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
    methods: tuple[str, ...], names: tuple[str, ...], settings: ProbeOptions, options: dict[str, Any]
) -> list[ProbedRun]:
    from bench.config import profiles
    from bench.data.data_source import DataSource
    from bench.execution.record_probes import load_probe_data
    from bench.nn.device import torch_threads
    from bench.plan.plan import make_plan

    rows = (choose_trained_row(method, options) for method in methods)
    plan = make_plan(make_spec({**options, "methods": ",".join(rows)}))
    print_plan_notes(plan)
    spec = plan.spec
    check_device(spec.device)
    suite = options["suite"] or spec.dev or profiles.load_profile(spec.profile).dev
    data = load_probe_data(suite, DataSource.of_run(spec))
    cells = {(job.cell.method, job.cell.seed): job.cell for job in plan.jobs}
    with torch_threads(spec.threads, needs_torch=True):
        return [_measure_cell(plan, cell, data, names, settings) for cell in cells.values()]


def _measure_cell(
    plan: Plan, cell: Cell, data: ProbeData, names: tuple[str, ...], settings: ProbeOptions
) -> ProbedRun:
    """Measure one cell's encoder; the average comes from its record on the plan's first suite."""
    from bench.execution.encoder_builder import EncoderBuilder
    from bench.execution.record_probes import add_cost_efficiency, find_finished_record
    from bench.execution.stage_cache import StageCache
    from bench.probes.measurement import measure_probes
    from bench.reports.tables.probes import ProbedRun

    cache = StageCache(plan.spec.results / ".stages")
    missing = [stage.spec.role for stage in cell.all_stages if cache.find(stage) is None]
    if missing:
        stages = ", ".join(missing)
        print_stderr(f"{cell.describe()} is trained first, stage {stages}: not in {cache.root}")
    encoder = EncoderBuilder(cell, plan.spec.device, plan.training, cache).encoder()
    with progress_bar(cell.describe(), len(data.sentences)) as advance:
        measured = measure_probes(encoder, data, names, settings, advance)
    job = next(job for job in plan.jobs if job.cell == cell)
    record = find_finished_record(plan, job)
    probes = add_cost_efficiency(measured.probes, record) if record else measured.probes
    average = record.score("avg") if record else None
    return ProbedRun(cell.profile, cell.method, cell.seed, job.suite, average, probes, measured.timing)


def _draw_maps(runs: list[ProbedRun], folder: Path) -> None:
    from bench.records.record import safe_name
    from bench.render.figure_files import draw_heatmaps

    for run in runs:
        name = run.method if run.seed is None else f"{run.method} seed {run.seed}"
        probe = run.probes["attention_sink"]
        maps = probe.get("maps")
        if maps is None:
            print_stderr(f"no heatmap of {name}: {probe['missing']}")
            continue
        for number, tower in enumerate(maps, start=1):
            title = name if len(maps) == 1 else f"{name}, tower {number}"
            path = folder / f"{safe_name(title.replace(' ', '-').replace(',', ''))}.svg"
            draw_heatmaps(tower["tokens"], tower["layers"], title, path)
            print_stderr(f"heatmap: {path}")


def _print_records(results: Path, campaign: str, data: Path | None, form: str) -> None:
    from bench.cli.terminal import format_grids, progress_bar
    from bench.eval.recomputation import require_sound_scores
    from bench.records.record import NOT_RECOMPUTED
    from bench.records.store import ResultStore
    from bench.reports.campaign import make_campaign
    from bench.reports.tables.probe_correlations import all_relations, mechanism_grids
    from bench.reports.tables.probes import probe_grids, probed_runs

    store = ResultStore(results, campaign)
    stored = store.records()
    with progress_bar("scores", len(stored)) as advance:
        source = make_campaign(store, require_sound_scores(store, stored, data, advance))
    runs = probed_runs(source.records)
    notes = dict.fromkeys(note for record in source.records for note in record.notes)
    doubts = tuple(note for note in notes if note.startswith(NOT_RECOMPUTED))
    if not runs:
        where, hint = f"{_WHERE}, campaign {campaign}", "bench run --probes all adds them"
        expected = "METHOD, or records with probes"
        raise InputError("no record has probes", where=where, expected=expected, hint=hint)
    if form == "json":
        relations = all_relations(source)
        facts = {"probes": list(map(asdict, runs)), "mechanism": list(map(asdict, relations))}
        print_json({**facts, "notes": doubts})
    else:
        grids = [*probe_grids(runs), *mechanism_grids(source)]
        grids[-1] = replace(grids[-1], notes=(*grids[-1].notes, *doubts))
        click.echo(format_grids(grids), nl=False)
