"""Options that save memory in training, checked in the plan against what they don't go with."""

from __future__ import annotations

from collections.abc import Iterable

from bench.errors import InputError
from bench.method_card import format_value
from bench.plan.cell import Cell
from bench.registry import METHODS


def check_memory_options(cells: Iterable[Cell]) -> None:
    """Raise InputError for chunk or checkpoint_layers with compiled steps, or chunk with what it can't split.

    A method names the latter in ``whole_batch``: options by which it encodes the whole batch at once, with
    the value that leaves that out.
    """
    for part in dict.fromkeys(part for cell in cells for part in cell.walk()):
        options = dict(part.options)
        asked = [name for name in ("chunk", "checkpoint_layers") if options.get(name)]
        if asked and part.compiled != "none":
            what = f"{part.describe()} sets {' and '.join(asked)}, and a compiled step is one graph"
            expected = f"--compile none, or {asked[0]} left out"
            raise InputError(what, where=f"--compile {part.compiled}", expected=expected)
        if not options.get("chunk"):
            continue
        for name, harmless in getattr(METHODS.get(part.card.name), "whole_batch", {}).items():
            if options[name] != harmless:
                given = f"{name}={format_value(options[name])}"
                what = f"{part.describe()} encodes the whole batch at once for {given}"
                where, expected = f"{part.card.name}.chunk", f"chunk=0, or {name}={harmless:g} with it"
                raise InputError(what, where=where, expected=expected)
