"""``bench init``."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import click

from bench.cli.output_file import write_file
from bench.errors import InputError

_STARTER = "starter"
_ENDING = ".txt"
"""Of files in the package that are none of its own, such as a method's module."""


@click.command()
@click.argument("folder", default=".", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False))
def init_command(folder: Path) -> None:
    """Write what a method of your own begins with into DIR: a loss to change, a run, a profile, the commands.

    No file that is there is replaced.
    """
    files = read_starter_files()
    if there := [name for name in files if os.path.lexists(folder / name)]:
        raise InputError(
            f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} there already",
            where=f"bench init {folder}",
            expected="a folder without",
        )
    for name, text in files.items():
        write_file(folder / name, text, "bench init")
        click.echo(folder / name)
    click.echo(f"next: {folder / 'README.md'}", err=True)


def read_starter_files() -> dict[str, str]:
    """Text of every file by its name."""
    entries = sorted(resources.files(__package__).joinpath(_STARTER).iterdir(), key=lambda entry: entry.name)
    return {entry.name.removesuffix(_ENDING): entry.read_text(encoding="utf-8") for entry in entries}
