"""``bench sweep``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.options import check_device, make_spec, run_options, seeds_option
from bench.cli.plan_notes import print_plan_notes
from bench.cli.run import (
    estimate_option,
    execute_plan,
    exit_if_failed,
    print_estimate,
    print_plan,
    read_plan_records,
)
from bench.cli.strict_options import Panel, strict_option
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.config.run_spec import RunSpec
    from bench.config.sweeps import Backbone, Sweep


@bench_command()
@click.argument("name", shell_complete=completion.sweep)
@seeds_option("1-2")
@run_options
@strict_option(
    "--dry-run", is_flag=True, panel=Panel.PLANNING, help="Only print question, grid, seeds and cells."
)
@estimate_option
def sweep_command(name: str, dry_run: bool, estimate: bool, **options: Any) -> None:
    """Run a predefined grid of options and print its table.

    NAME is one of `bench list sweeps`. Cells are those of `bench run`; finished ones are skipped.
    """
    from bench.cli.terminal import format_grids
    from bench.config import profiles
    from bench.config.method_ids import parse_methods
    from bench.config.sweep_manifest import Manifest, add_earlier_runs, save_manifest
    from bench.config.sweeps import find_sweep
    from bench.plan.plan import check_folder_names, make_plan
    from bench.records.filesystem import check_new_campaign
    from bench.records.store import ResultStore
    from bench.reports.tables.sweep_tables import sweep_grids

    wanted = find_sweep(name)
    spec = make_spec({**options, "methods": "untrained"})
    check_new_campaign(spec.results, spec.campaign)
    if wanted.surface:
        manifest = Manifest(wanted.name, profiles.load_profile(spec.profile).name, ("formula",), (), ())
        store = ResultStore(spec.results, spec.campaign)
        if not (dry_run or estimate):
            store.prepare()
            save_manifest(manifest, store.root)
        click.echo(format_grids(sweep_grids([manifest], [], spec.campaign)), nl=False)
        return
    points = list(wanted.points(_read_backbone(spec, wanted)))
    methods = dict.fromkeys(point.method for point in points)
    plan = make_plan(replace(spec, methods=parse_methods(",".join(methods))))
    print_plan_notes(plan)
    check_folder_names(plan)
    if plan.spec.executor == "local":  # a cluster has its own devices
        check_device(plan.spec.device, plan.spec.ranks)
    cells = tuple((point.row, point.column, plan.ids[point.method]) for point in points)
    manifest = Manifest(wanted.name, plan.jobs[0].cell.profile, tuple(plan.suites), spec.seeds, cells)
    extended = add_earlier_runs(manifest, plan.store.root)
    if dry_run or estimate:
        click.echo(f"{wanted.name}: {wanted.question} ({wanted.source})")
        click.echo(f"{len(methods)} methods x seeds {options['seeds']}: {', '.join(methods)}")
        conflicts = print_plan(plan)
        if estimate:
            print_estimate(plan)
        exit_if_failed(conflicts)
        return
    plan.store.prepare()
    save_manifest(extended, plan.store.root)
    failed = execute_plan(plan)
    click.echo(format_grids(sweep_grids([manifest], read_plan_records(plan), plan.store.campaign)), nl=False)
    exit_if_failed(failed)


def _read_backbone(spec: RunSpec, wanted: Sweep) -> Backbone:
    """Return the backbone's shape; raises InputError for a decoder if another sweep is of decoders."""
    from bench.config import profiles
    from bench.config.sweeps import Backbone
    from bench.plan.backbones import backbone_shape, read_backbone_facts
    from bench.plan.plan import make_plan

    plain = replace(spec, overrides=(), corpus=None, text_column=None, pairs=None, dev=None, copies=())
    model = make_plan(plain).jobs[0].cell.model
    if model is None:
        raise InputError(f"profile '{spec.profile}' has no backbone", where="bench sweep")
    if wanted.of_decoders and model.sha256 and read_backbone_facts(model).causal:
        what = f"{model.name} is a causal decoder, whose poolings are others than an encoder's"
        where, hint = (
            f"bench sweep {wanted.name}",
            f"bench sweep {wanted.of_decoders} asks the same of decoders",
        )
        raise InputError(what, where=where, expected="a bidirectional encoder", hint=hint)
    return Backbone(*backbone_shape(profiles.load_profile(spec.profile), model))
