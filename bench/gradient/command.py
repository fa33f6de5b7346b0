"""``bench gradient``: the gradient paradigm's figures, by sampled angles and on held-out sentences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.options import PATH, check_device, make_spec, spec_options
from bench.cli.plan_notes import print_plan_notes
from bench.cli.strict_options import Panel, strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.plan.plan import Plan


@bench_command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...", shell_complete=completion.method)
@strict_option("--out", type=PATH, required=True, panel=Panel.MAIN, help="Folder to write.")
@strict_option("--seed", type=click.IntRange(0), default=1, panel=Panel.MAIN, help="Random seed.")
@strict_option(
    "--most",
    type=click.IntRange(128),
    default=2560,
    panel=Panel.EVALUATION,
    help="Measure at most this many of the held-out sentences.",
)
@strict_option(
    "--figures",
    type=PATH,
    panel=Panel.MAIN,
    help="Then draw the figures of --out into DIR: PDF, PNG and SVG.",
)
@spec_options
def gradient_command(
    methods: tuple[str, ...], out: Path, seed: int, most: int, figures: Path | None, **options: Any
) -> None:
    """Write the figures of the gradient paradigm.

    Without METHOD those of sampled angles (2, 3, 4 and 10), as CSV. Each METHOD must train one transformer
    and evaluate its [CLS]. It is trained on nine tenths of the text and measured on the rest, as JSON:
    before, at every dev evaluation and in the selected checkpoint (5, 7, 8 and 9). Runs of one folder share
    figures.
    """
    from bench.gradient.run import measure_training, measurement_folder, write_sampled

    if len(set(methods)) < len(methods):
        raise InputError("a method is named twice", where="bench gradient")
    try:
        # all are checked before one trains
        plans = [_make_training_plan(method, out, seed, options) for method in methods]
        out.mkdir(parents=True, exist_ok=True)
        for plan in plans:
            click.echo(measure_training(plan, measurement_folder(plan, out), most, progress_bar))
        if not methods:
            click.echo("\n".join(map(str, write_sampled(out, seed))))
    except OSError as error:
        raise InputError(f"the figures can't be written: {error.strerror}", where=f"--out {out}") from error
    if figures is not None:
        from bench.gradient.figures import gradient_figures
        from bench.render.figure_files import draw_figures

        for path in draw_figures(gradient_figures(out), figures):
            click.echo(f"figure: {path}", err=True)


def _make_training_plan(method: str, out: Path, seed: int, options: dict[str, Any]) -> Plan:
    """Plan one method's training; InputError: it can't be measured, or is already."""
    from bench.gradient.run import check_watched_plan, measurement_folder
    from bench.plan.plan import make_plan

    plan = make_plan(make_spec({**options, "methods": method, "seeds": str(seed)}))
    print_plan_notes(plan)
    check_device(plan.spec.device)
    check_watched_plan(plan)
    if (folder := measurement_folder(plan, out)).exists():
        raise InputError("the folder already exists", where=str(folder), expected="a new one")
    return plan
