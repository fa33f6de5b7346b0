"""Options that may be given once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Once(click.Option):
    """An option with one value: given twice it is refused, where click would keep the last in silence."""

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
        return super().handle_parse_result(ctx, {**opts, self.name or "": given[0]} if given else opts, args)

    @property
    def has_one_value(self) -> bool:
        """False for a flag, and for an option that may be repeated."""
        return not (self.is_flag or self.multiple or self.count)


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return ``click.option`` whose value is refused where it is given twice, unless it is ``multiple``."""
    return click.option(*names, cls=Once, **settings)
