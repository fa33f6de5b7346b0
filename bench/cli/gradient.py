"""``bench gradient``: the gradient paradigm's figures, by sampled angles and on held-out sentences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.config import option_once
from bench.cli.options import PATH, check_device, make_spec, spec_options
from bench.cli.terminal import progress_bar
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.plan.plan import Plan


@click.command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...", shell_complete=completion.method)
@option_once("--out", type=PATH, required=True, help="Folder to write.")
@option_once("--seed", type=click.IntRange(0), default=1)
@option_once(
    "--most",
    type=click.IntRange(128),
    default=2560,
    help="Measure this many of the held-out sentences at most.",
)
@option_once("--figures", type=PATH, help="Then draw all that lies in --out into DIR: PDF, PNG and SVG.")
@spec_options
def gradient(
    methods: tuple[str, ...], out: Path, seed: int, most: int, figures: Path | None, **options: Any
) -> None:
    """Write what the gradient paradigm's figures draw.

    Without METHOD those of sampled angles (2, 3, 4 and 10), as CSV. Each METHOD, one that trains one
    transformer and evaluates its [CLS], is trained on nine tenths of the text and measured on the rest,
    before, at every dev evaluation and in the selected checkpoint (5, 7, 8 and 9), as JSON. Runs of one
    folder have figures together.
    """
    from bench.gradient.run import folder_of, measure, write_sampled

    if len(set(methods)) < len(methods):
        raise InputError("a method is named twice", where="bench gradient")
    try:
        plans = [_plan(method, out, seed, options) for method in methods]  # all checked before one trains
        out.mkdir(parents=True, exist_ok=True)
        for plan in plans:
            click.echo(measure(plan, folder_of(plan, out), most, progress_bar))
        for path in write_sampled(out, seed) if not methods else ():
            click.echo(path)
    except OSError as error:
        raise InputError(f"the figures can't be written: {error.strerror}", where=f"--out {out}") from error
    if figures is not None:
        from bench.render.draw import draw
        from bench.reports.figures.of_files import gradient_figures

        for path in draw(gradient_figures(out), figures):
            click.echo(f"figure: {path}", err=True)


def _plan(method: str, out: Path, seed: int, options: dict[str, Any]) -> Plan:
    """The plan of one method's training; raises InputError where it can't be watched."""
    from bench.gradient.run import check_watched, folder_of
    from bench.plan.plan import make_plan

    plan = make_plan(make_spec({**options, "methods": method, "seeds": str(seed)}))
    check_device(plan.spec.device)
    check_watched(plan)
    if (folder := folder_of(plan, out)).exists():
        raise InputError("the folder already exists", where=str(folder), expected="a new one")
    return plan
