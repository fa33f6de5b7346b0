"""Which methods can train on which architecture: a table of the page, from the tests' tiny checkpoints."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from bench.execution.model_folder_report import find_first_lack
from bench.nn.backbone import load_backbone
from bench.nn.dropout import find_dropout_classes
from bench.nn.folder_facts import read_folder_facts
from bench.registry import own_methods
from bench.stages import TrainedMethod

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.zoo import ZOO, make

_SIGNS = {True: "yes", False: "-"}


def table() -> str:
    """A row for methods that train on the same architectures, a column an architecture with its like."""
    names = [
        name
        for name, method in sorted(own_methods().items())
        if isinstance(method, TrainedMethod) and method.card.needs_backbone and method.card.stands_alone
    ]
    columns: dict[tuple[bool, ...], list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ZOO:
            folder = make(kind, Path(scratch, kind))
            drops = bool(find_dropout_classes(load_backbone(folder)[0]))
            lacking = (find_first_lack(name, read_folder_facts(folder), drops=drops) for name in names)
            columns[tuple(lack is None for lack in lacking)].append(kind)
    rows: dict[tuple[bool, ...], list[str]] = defaultdict(list)
    for number, name in enumerate(names):
        rows[tuple(able[number] for able in columns)].append(f"`{name}`")
    header = ["methods", *(", ".join(kinds) for kinds in columns.values())]
    lines = [header, ["---"] * len(header)]
    lines += [[", ".join(found), *(_SIGNS[able] for able in ables)] for ables, found in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
