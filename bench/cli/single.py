"""Options that may be given once, and lists that join those of ``--config``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Once(click.Option):
    """An option with one value: given twice it is refused, where click would keep the last in silence.

    A ``multiple`` one joins the list of ``--config``, where click would drop that list in silence.
    """

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser keep every value that is given."""
        if self.has_one_value:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append", nargs=self.nargs)
        else:
            super().add_to_parser(parser, ctx)

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Return the value; fails as click does."""
        given = opts.get(self.name or "", []) if self.has_one_value else []
        if len(given) > 1:
            raise click.BadOptionUsage(self.opts[0], f"{self.opts[0]} is given {len(given)} times", ctx)
        opts = {**opts, self.name or "": given[0]} if given else opts
        if self.multiple and (words := opts.get(self.name or "")):
            in_file = (ctx.default_map or {}).get(self.name or "", ())
            opts = {**opts, self.name or "": joined(in_file, words)}
        return super().handle_parse_result(ctx, opts, args)

    @property
    def has_one_value(self) -> bool:
        """False for a flag, and for an option that may be repeated."""
        return not (self.is_flag or self.multiple or self.count)


def joined(first: Sequence[str], winning: Sequence[str]) -> list[str]:
    """Return the entries of two lists; one of the second replaces those of the first with its NAME=.

    What is given twice within one list stays, for the command to refuse.

    >>> joined(["a.b=1", "a.c=1", "x.py"], ["a.b = 2", "x.py", "y.py"])
    ['a.c=1', 'a.b = 2', 'x.py', 'y.py']
    """
    replaced = set(map(_entry_name, winning))
    return [entry for entry in first if _entry_name(entry) not in replaced] + list(winning)


def _entry_name(entry: str) -> str:
    """What stands before "=", without the blanks that --set allows there; all of an entry without it."""
    return "".join(entry.partition("=")[0].split())


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return ``click.option`` whose value is refused where it is given twice, unless it is ``multiple``."""
    return click.option(*names, cls=Once, **settings)
