"""Methods that share a module: what CI tries of them all, and what of one."""

from __future__ import annotations

from bench.registry import discover

ALIKE = frozenset(
    {
        *(
            "arccse",
            "consert",
            "crop",
            "dclr",
            "iscse",
            "mirror_bert",
            "mixcse",
            "vascl",
        ),  # SimCSE's training with another loss or views
        *(
            "ct",
            "denosent",
            "edfse",
            "esimcse",
            "infocse",
            "pcl",
            "tsdae",
            "scd",
            "whitenedcse",
        ),  # parts that others of CI have too
    }
)
"""Methods whose training is of a kind that another one has."""


def left_out() -> frozenset[str]:
    """What CI leaves to the long suite where a check takes a whole training of each method."""
    return same_module() | ALIKE


def same_module() -> frozenset[str]:
    """Methods of bench's own whose module has another before them by name: losses of one training."""
    registry, modules = discover(), set[str]()
    later = set[str]()
    for name in registry.names():
        origin = registry.origin(name)
        if origin in modules:
            later.add(name)
        modules.add(origin)
    return frozenset(later)
