"""``bench campaign``: rename, copy and remove campaigns, and rows of them."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli import completion
from bench.cli.commands import bench_group
from bench.cli.options import print_stderr, results_option
from bench.cli.strict_options import strict_option
from bench.errors import InputError, printable

_old_argument = click.argument("old", shell_complete=completion.campaign)
_dry_run_option = strict_option("--dry-run", is_flag=True, help="Only show what would be done.")


@bench_group()
def campaign_command() -> None:
    """Rename, copy and remove campaigns, and rows of them.

    Records keep their bytes. No command works while a run computes cells of the campaign.
    """


@campaign_command.command("rename")
@_old_argument
@click.argument("new")
@_dry_run_option
@results_option
def rename_command(old: str, new: str, dry_run: bool, results: Path) -> None:
    """Give the campaign OLD the name NEW."""
    from bench.execution.campaign_upkeep import rename_campaign

    files, reports = rename_campaign(results, old, new, dry_run=dry_run)
    click.echo(
        printable(f"{results / old} {'would be' if dry_run else 'is'} {results / new}: {files:,} files")
    )
    _warn_stale(reports, new)


@campaign_command.command("copy")
@_old_argument
@click.argument("new")
@_dry_run_option
@results_option
def copy_command(old: str, new: str, dry_run: bool, results: Path) -> None:
    """Copy the campaign OLD to NEW, which appears when it is complete."""
    from bench.execution.campaign_upkeep import copy_campaign

    files, reports = copy_campaign(results, old, new, dry_run=dry_run)
    done = "would be copied" if dry_run else "copied"
    click.echo(printable(f"{results / new}: {files:,} files of {results / old} {done}"))
    _warn_stale(reports, new)


@campaign_command.command("remove")
@click.argument("campaign", metavar="NAME", shell_complete=completion.campaign)
@strict_option(
    "--methods",
    metavar="IDS",
    shell_complete=completion.recorded_methods,
    help="Only these rows, comma-separated ids as in the report.",
)
@strict_option(
    "--profile", shell_complete=completion.recorded_profile, help="With --methods: only in this profile."
)
@_dry_run_option
@results_option
def remove_command(
    campaign: str, methods: str | None, profile: str | None, dry_run: bool, results: Path
) -> None:
    """Remove the campaign NAME, or rows of it.

    Nothing brings records back: --dry-run shows first what would go.
    """
    from bench.config.method_ids import split_outside_brackets
    from bench.execution.campaign_upkeep import plan_row_removal, remove_campaign, remove_rows

    done = "to remove" if dry_run else "removed"
    if methods is None:
        if profile is not None:
            raise InputError("a profile without methods", where="--profile", expected="--methods as well")
        files, size = remove_campaign(results, campaign, dry_run=dry_run)
        click.echo(printable(f"{results / campaign}: {files:,} files {done}, {_format_size(size)}"))
        return
    removal = plan_row_removal(results, campaign, split_outside_brackets(methods), profile)
    if not dry_run:
        remove_rows(results, campaign, removal)
    for row in removal.rows:
        records = f"{row.records:,} record{'s' * (row.records != 1)}"
        size_text = _format_size(row.size)
        click.echo(printable(f"{row.method}, profile {row.profile}: {records} {done}, {size_text}"))
    for note in removal.notes:
        print_stderr(printable(note))


def _warn_stale(reports: list[str], campaign: str) -> None:
    if reports:
        hint = f"make them again with bench report --campaign {campaign}"
        print_stderr(printable(f"{', '.join(reports)} may have the old name: {hint}"))


def _format_size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"
