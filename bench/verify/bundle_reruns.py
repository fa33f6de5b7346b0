"""Repeat some cells of a bundle: of methods that are here, and of plug-ins that were named to be run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.config.plugins import load_plugin
from bench.config.spec import Plugin
from bench.records.environment import plugin_file_hashes
from bench.records.record import RunRecord
from bench.verify.findings import Verification
from bench.verify.rerun_sample import repeat_sample


def repeat_bundle_cells(
    verified: Verification,
    sound: Sequence[tuple[str, RunRecord]],
    sources: Mapping[str, bytes],
    count: int,
    data: Path | None,
    say: Callable[[str], None],
    seed: int | None = None,
) -> None:
    """Repeat cells chosen at random, after every other check, as this may run code that came in the bundle.

    Args:
        verified: Gets the findings, and what couldn't be repeated.
        sound: Finished records without a finding, with their files' names.
        sources: The plug-in files that were named to be run.
        count: How many cells.
        data: Evaluation data.
        say: Gets a line before and after each repetition.
        seed: Of the choice.

    Raises:
        InputError: a plug-in that can't be loaded.
    """
    with tempfile.TemporaryDirectory(prefix="bench-plugin-") as folder:  # nobody else can write to it
        for name, source in sources.items():
            path = Path(folder, name)
            path.write_bytes(source)
            load_plugin(Plugin(name, str(path), source))
        here = []
        for where, record in sound:
            files = {
                str(record.provenance["plugins"][m]["file"]) for m in plugin_file_hashes(record.provenance)
            }
            if files <= sources.keys():
                here.append((where, record))
            else:
                name = ", ".join(sorted(files - sources.keys()))
                verified.unchecked[f"repetition of cells of {name}: --run-plugin names what may run"] += 1
        repeat_sample(verified, here, count, data, say, seed)
