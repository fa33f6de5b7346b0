"""The reference of the command line, made from the commands themselves: each with its options by panel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click
from rows import markdown_table

from bench.cli.commands import HelpPanels
from bench.cli.help_panels import group_options, show_all
from bench.cli.main import cli as root

PAGE = "commands.md"
LEAD = (
    "# Commands\n\nEvery command with all of its options, by the panels of its help. `bench COMMAND --help` "
    "prints those of daily use, `bench COMMAND --help-all` all of them.\n"
)


def command_page() -> str:
    """The page: a section a group, a subsection a command."""
    parts = [LEAD]
    for title, commands in root.list_sections().items():
        parts.append(f"## {title}\n")
        for command in commands:
            parts += _describe(command, f"bench {command.name}")
    return "\n".join(parts)


def _describe(command: click.Command, path: str) -> Iterator[str]:
    """Yield the parts of a command, and of those below a group."""
    context = click.Context(command, info_name=path, show_default=True)
    show_all(context)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"### {path}\n\n```text\n{usage}\n```\n\n{_format_help(command.help or '')}\n"
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from _describe(below, f"{path} {below.name}")
        return
    panels = group_options(command, context)
    for title, options in panels.items():
        rows = [record for option in options if (record := _describe_option(option, context))]
        if rows:
            yield markdown_table((title if len(panels) > 1 else "option", "what it does"), rows)
    if isinstance(command, HelpPanels) and command.examples:
        yield "```sh\n" + "\n".join(command.examples) + "\n```\n"


def _describe_option(option: click.Option, context: click.Context) -> tuple[str, str] | None:
    record = option.get_help_record(context)
    if record is None or option.opts[-1] in ("--help", "--help-all"):
        return None
    name, text = record
    return f"`{name}`".replace("|", "\\|"), _escape(text)


def _format_help(text: str) -> str:
    """The paragraphs of a command's help."""
    return "\n\n".join(_escape(" ".join(part.split())) for part in text.split("\n\n"))


_SIGNS: Mapping[int, str] = {ord(sign): f"&#{ord(sign)};" for sign in "*_{}[]<>#|"}


def _escape(text: str) -> str:
    """Text whose only markup is code in backticks."""
    parts = text.split("`")
    return "`".join(
        part.replace("|", "\\|") if number % 2 else part.translate(_SIGNS)
        for number, part in enumerate(parts)
    )
