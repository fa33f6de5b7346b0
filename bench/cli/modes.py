"""Modes of a command: options that change what it does, and the options that each mode takes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click
from click.core import ParameterSource

from bench.errors import InputError

_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)  # not by the environment


def given_parameters(context: click.Context) -> list[click.Parameter]:
    """Return the parameters that the command line or ``--config`` gave."""
    parameters = context.command.params
    return [each for each in parameters if context.get_parameter_source(str(each.name)) in _GIVEN]


def check_mode(
    mode: str, own: Collection[str], shared: Collection[str] | None = None, *, active: bool
) -> None:
    """Raise InputError for a given option that the command doesn't take in this mode.

    Args:
        mode: Option that starts the mode, such as "--show-items".
        own: Parameters of the mode alone.
        shared: Parameters of both, in the mode all others are refused; None for all others.
        active: Whether the mode was asked for.
    """
    context = click.get_current_context()
    for parameter in given_parameters(context):
        name = str(parameter.name)
        label = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
        where = f"{context.command_path}, {label}"
        if active and shared is not None and name not in own and name not in shared:
            raise InputError(f"it is not for {mode}", where=where, hint="leave it out")
        if not active and name in own:
            raise InputError(f"it is for {mode}", where=where, expected=f"{mode} as well")


def require_parameter(name: str, hint: str) -> Any:
    """Return a parameter's value; raises click's error for a missing one, which ``hint`` names."""
    context = click.get_current_context()
    if (value := context.params[name]) in (None, ()):
        parameter = next(each for each in context.command.params if each.name == name)
        raise click.MissingParameter(ctx=context, param=parameter, param_hint=hint)
    return value
