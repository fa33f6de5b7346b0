"""``bench pack``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bench.cli import completion
from bench.cli.options import PATH, NumberRange, make_spec, seeds_option, spec_options
from bench.cli.strict_option import strict_option
from bench.errors import BenchError, InputError

_OWN = {"out", "weights", "limit"}
_FILES = {"backbone", "data_dir", "corpus", "pairs", "copies", "plugins", "results"}
"""Options that name files, which have other places in the folder."""


@click.command()
@strict_option(
    "--methods",
    required=True,
    shell_complete=completion.methods_or_all,
    help="As for bench run, but for those that bring a model.",
)
@seeds_option("1-5")
@spec_options
@strict_option("--probes", metavar="all|NAME,...", help="Probes that the run adds.")
@strict_option("--out", type=PATH, required=True, metavar="FOLDER", help="The folder: a new one.")
@strict_option(
    "--weights",
    type=click.Choice(["fp16", "same"]),
    default="fp16",
    help="Models with float16 weights, whose hash then differs and stands in the records, or as they are.",
)
@strict_option(
    "--limit",
    type=NumberRange(0, min_open=True),
    metavar="MB",
    help="Exit code 1 where the folder is larger.",
)
def pack_command(out: Path, weights: str, limit: float | None, **options: Any) -> None:
    """Make one FOLDER that runs on a machine without network or pip, but with Python and torch.

    It holds the code, the data of the named suites, the training text, the models, and run.sh with the
    command. Records that it makes name the commit it was made from.
    """
    from bench.exchange.offline_package import pack_run as write
    from bench.plan.plan import check_folder_names, make_plan

    if str(options["profile"]).endswith(".toml"):
        raise InputError(
            "a profile of your own is not packed",
            where=f"--profile {options['profile']}",
            expected="one that comes with bench, and --set for what yours changes",
        )
    plan = make_plan(make_spec(options))
    check_folder_names(plan)
    found = write(plan, ["run", *_collect_arguments()], out, half=weights == "fp16")
    for line in found.models:
        click.echo(line)
    size = found.bytes / 1e6
    click.echo(f"{out}: {size:,.1f} MB in {found.files:,} files; run it with: sh {out / 'run.sh'}")
    if limit is not None and size > limit:
        raise BenchError(f"{size:,.1f} MB", where=str(out), expected=f"at most {limit:g} MB")


def _collect_arguments() -> list[str]:
    """What was given on the command line for the run, without what names files."""
    context = click.get_current_context()
    words: list[str] = []
    for option in context.command.params:
        name = str(option.name)
        if name in _OWN | _FILES or not isinstance(option, click.Option):
            continue
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            values = context.params[name] if option.multiple else [context.params[name]]
            for value in values:
                words += [option.opts[0]] if option.is_flag else [option.opts[0], str(value)]
    return words
