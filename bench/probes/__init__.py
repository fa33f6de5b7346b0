"""Probes: what a score doesn't say about an encoder, and about a training text against test sets.

A probe is one :class:`~bench.probes.interface.Probe`, the ``PROBE`` of a file that has its name.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

from bench.errors import InputError, unknown_name
from bench.probes.interface import Probe

_NAMES = (  # in the order of the tables' columns
    "alignment",
    "uniformity",
    "density",
    "isotropy",
    "modulus",
    "cls_energy",
    "attention_sink",
    "cost",
)
PROBES: dict[str, Probe] = {name: importlib.import_module(f"bench.probes.{name}").PROBE for name in _NAMES}
"""What ``bench probe`` measures of an encoder, by name."""


def parse_probes(text: str, say: Callable[[str], None] = lambda _: None) -> tuple[str, ...]:
    """Parse ``--probes``: ``all``, or names separated by commas.

    Args:
        text: The option's value.
        say: Gets a line for each probe that ``all`` leaves out, as a package that it needs isn't installed.

    Returns:
        The names in the order of :data:`PROBES`.

    Raises:
        InputError: an unknown name, one that is given twice, or one whose package isn't installed.
    """
    names = [name.strip() for name in text.split(",")]
    if names == ["all"]:
        lacking = {name: missing for name, probe in PROBES.items() if (missing := _missing_packages(probe))}
        for name, missing in lacking.items():
            say(f"probe {name} is left out: {_describe_missing(missing)}")
        return tuple(name for name in PROBES if name not in lacking)
    for name in names:
        if name not in PROBES:
            raise unknown_name("probe", name, ("all", *PROBES), where="--probes")
        if missing := _missing_packages(PROBES[name]):
            raise InputError(
                f"probe {name} can't be measured", where="--probes", hint=_describe_missing(missing)
            )
    if len(set(names)) < len(names):
        raise InputError(f"'{text}' names a probe twice", where="--probes")
    return tuple(name for name in PROBES if name in names)


def _missing_packages(probe: Probe) -> list[str]:
    """Packages that a probe needs and that aren't here, as pip calls them."""
    return [name for module, name in probe.packages if importlib.util.find_spec(module) is None]


def _describe_missing(names: list[str]) -> str:
    are = "is" if len(names) == 1 else "are"
    return f"{' and '.join(names)} {are} not installed (pip install {' '.join(names)})"
