"""What a run does with classes of a session: keep texts, and run those without source in this process."""

from __future__ import annotations

from bench.config.plugins import check_other_process
from bench.errors import InputError
from bench.plan.plan import Plan
from bench.records.filesystem import write_atomically

FOLDER = "plugins"
"""Folder below a campaign with the texts of classes of a session; bench reads none of them."""


def check_sourceless_classes(plan: Plan) -> None:
    """Raise InputError for a class without source where other processes would have to run it."""
    spec = plan.spec
    if (spec.executor, spec.workers, spec.ranks) != ("local", 1, 1):
        cells = [job.cell for job in plan.jobs]
        check_other_process({name for cell in cells for name in (cell.card.name, *cell.member_names)})


def keep_session_texts(plan: Plan) -> None:
    """Write the plug-ins that came from classes of a session below the campaign, to read and to copy.

    No file that is there is replaced: a name holds the hash of its text.
    """
    folder = plan.store.root / FOLDER
    for plugin in plan.spec.plugins:
        path = folder / plugin.name
        if not plugin.session or path.exists():
            continue
        if folder.is_symlink() or path.is_symlink():
            raise InputError("this is a link", where=str(folder), hint="delete it")
        folder.mkdir(exist_ok=True)
        write_atomically(path, plugin.source)
