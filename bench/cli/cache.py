"""``bench cache``: list and clear what can be made again."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli.commands import bench_group
from bench.cli.modes import require_parameter
from bench.cli.options import print_stderr, results_option
from bench.cli.strict_options import strict_option
from bench.errors import InputError, printable

_KINDS = ("stages", "checkpoints", "vectors", "backbones")
kinds_argument = click.argument("kinds", nargs=-1, type=click.Choice(_KINDS), metavar="[KIND]...")


@bench_group()
def cache_command() -> None:
    """List and clear what bench keeps to save work."""


@cache_command.command("list")
@kinds_argument
@results_option
def list_cache_command(kinds: tuple[str, ...], results: Path) -> None:
    """Show the number and size of each KIND; with KINDs every entry of these.

    KIND is stages, checkpoints, vectors (below --results) or backbones (in BENCH_CACHE or the user's cache).
    """
    from bench.execution.cache_contents import find_cache_entries

    entries = [entry for entry in find_cache_entries(results) if not kinds or entry.kind in kinds]
    for entry in entries if kinds else ():
        click.echo(printable(f"{entry.kind:12} {_format_size(entry.size):>12}  {entry.path}"))
    for kind in () if kinds else _KINDS:
        found = [entry for entry in entries if entry.kind == kind]
        places = sorted({str(entry.path.parent) for entry in found})
        size = _format_size(sum(entry.size for entry in found))
        click.echo(printable(f"{kind:12} {len(found):6,} {size:>12}  {', '.join(places)}".rstrip()))
    click.echo(f"total {_format_size(sum(entry.size for entry in entries))}")


@cache_command.command("clear")
@kinds_argument
@strict_option("--all", "everything", is_flag=True, help="All four kinds.")
@strict_option("--dry-run", is_flag=True, help="Only show what would be removed.")
@results_option
def clear_cache_command(kinds: tuple[str, ...], everything: bool, dry_run: bool, results: Path) -> None:
    """Remove every entry of each KIND; records and their predictions stay.

    KIND is stages, checkpoints, vectors or backbones. What a process is making stays. A removed stage or
    backbone is trained again when it is needed.
    """
    from bench.execution.cache_contents import check_no_run, find_cache_entries, remove_cache_entry
    from bench.records.filesystem import is_locked

    if everything and kinds:
        what, expected = "kinds and --all", f"some of {', '.join(_KINDS)}, or --all"
        raise InputError(what, where="bench cache clear", expected=expected)
    if not everything:
        require_parameter("kinds", "KIND or --all")
    chosen = kinds or _KINDS
    check_no_run(results)
    entries = [entry for entry in find_cache_entries(results) if entry.kind in chosen]
    for kind in _KINDS:
        if kind not in chosen:
            continue
        removed, size = 0, 0
        for entry in (entry for entry in entries if entry.kind == kind):
            bytes_of_entry = entry.size
            if is_locked(entry.lock) or not (dry_run or remove_cache_entry(entry)):
                print_stderr(printable(f"{entry.path} stays: a process is making it"))
            else:
                removed, size = removed + 1, size + bytes_of_entry
        done = "to remove" if dry_run else "removed"
        click.echo(f"{kind}: {removed:,} {done}, {_format_size(size)}")


def _format_size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
