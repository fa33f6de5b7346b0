"""Choose what identifies a plug-in's method in a row: its code, or the whole file as in earlier records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.config.run_spec import RunSpec
from bench.plan.cell import Cell, collect_cell_plugins
from bench.records.environment import whole_file_methods
from bench.records.record import RecordPlace
from bench.records.store import ResultStore


def choose_plugin_forms(
    cells: Sequence[Cell], suites: Sequence[str], spec: RunSpec, store: ResultStore
) -> dict[str, RunSpec]:
    """Return the specification of each row, by its id, with the plug-in methods whose whole file counts.

    A row with finished records of that earlier form goes on in it, so that their keys stay equal for an
    unchanged file. Records that ``--force`` replaces are left out of account.
    """
    replaced: set[RecordPlace] = set()
    if spec.force:
        replaced = {cell.place(suite) for cell in cells for suite in suites}
    forms: dict[str, RunSpec] = {}
    for cell in cells:
        if cell.method in forms:
            continue
        whole = set(spec.whole_files)
        coded = {name for name, facts in collect_cell_plugins(cell).items() if "code" in facts}
        for record in store.row_records(cell.place(suites[0])) if coded - whole else ():
            if record.status == "ok" and record.place not in replaced:
                whole |= coded & whole_file_methods(record.provenance)
        forms[cell.method] = replace(spec, whole_files=tuple(sorted(whole)))
    return forms
