"""``bench init``."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import click

from bench.cli.commands import bench_command
from bench.cli.options import write_file
from bench.errors import InputError

_ENDING = ".txt"
"""Ending that hides starter files such as a method's module from imports."""


@bench_command()
@click.argument("folder", default=".", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False))
def init_command(folder: Path) -> None:
    """Write starter files for your own method into DIR.

    They hold a loss to change, a run, a profile and the commands. Existing files stay.
    """
    files = read_starter_files()
    existing = [name for name in files if os.path.lexists(folder / name)]
    if existing:
        what = f"these files exist already: {', '.join(existing)}"
        raise InputError(what, where=f"bench init {folder}", expected="another folder")
    for name, text in files.items():
        write_file(folder / name, text, "bench init")
        click.echo(folder / name)
    click.echo(f"next: {folder / 'README.md'}", err=True)


def read_starter_files() -> dict[str, str]:
    """Return the text of every starter file by its name."""
    entries = sorted(resources.files(__package__).joinpath("starter").iterdir(), key=lambda entry: entry.name)
    return {entry.name.removesuffix(_ENDING): entry.read_text(encoding="utf-8") for entry in entries}
