"""Probes of an encoder beyond its score, and of a training text against test sets.

A probe is one :class:`~bench.probes.interface.Probe`, the ``PROBE`` of a file that has its name.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

from bench.errors import InputError, unknown_name
from bench.probes.interface import Probe

_NAMES = (  # in the order of the tables' columns
    "alignment", "uniformity", "density", "isotropy", "modulus", "cls_energy", "attention_sink", "cost",
)  # fmt: skip
PROBES: dict[str, Probe] = {name: importlib.import_module(f"bench.probes.{name}").PROBE for name in _NAMES}
"""The probes of ``bench probe``, by name."""


def parse_probes(text: str, say: Callable[[str], None] = lambda _: None) -> tuple[str, ...]:
    """Parse ``--probes``, ``all`` or names separated by commas, into names in the order of :data:`PROBES`.

    ``say`` gets a line for each probe that ``all`` leaves out, since its package is missing. An unknown or
    repeated name, and one whose package is missing, raise InputError.
    """
    names = [name.strip() for name in text.split(",")]
    hints = {name: _install_hint(probe) for name, probe in PROBES.items()}
    if names == ["all"]:
        for name, hint in hints.items():
            if hint:
                say(f"probe {name} is left out: {hint}")
        return tuple(name for name, hint in hints.items() if not hint)
    for name in names:
        if name not in PROBES:
            raise unknown_name("probe", name, ("all", *PROBES), where="--probes")
        if hints[name]:
            raise InputError(f"probe {name} can't be measured", where="--probes", hint=hints[name])
    if len(set(names)) < len(names):
        raise InputError(f"'{text}' names a probe twice", where="--probes")
    return tuple(name for name in PROBES if name in names)


def _install_hint(probe: Probe) -> str:
    """Return how to install a probe's missing packages, "" if all are installed."""
    names = [name for module, name in probe.packages if importlib.util.find_spec(module) is None]
    if not names:
        return ""
    verb = "is" if len(names) == 1 else "are"
    return f"{' and '.join(names)} {verb} not installed (pip install {' '.join(names)})"
