"""Probes: what a score doesn't say about an encoder, and about a training text against test sets.

A probe is one :class:`~bench.probes.probe.Probe`, the ``PROBE`` of a file that has its name.
"""

from __future__ import annotations

import importlib

from bench.errors import InputError, unknown
from bench.probes.probe import Probe

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


def parse_probes(text: str) -> tuple[str, ...]:
    """Parse ``--probes``: ``all``, or names separated by commas.

    Returns:
        The names in the order of :data:`PROBES`.

    Raises:
        InputError: an unknown name, or one that is given twice.
    """
    names = [name.strip() for name in text.split(",")]
    if names == ["all"]:
        return tuple(PROBES)
    for name in names:
        if name not in PROBES:
            raise unknown("probe", name, ("all", *PROBES), where="--probes")
    if len(set(names)) < len(names):
        raise InputError(f"'{text}' names a probe twice", where="--probes")
    return tuple(name for name in PROBES if name in names)
