"""Tasks of any suite."""

from __future__ import annotations

from pathlib import Path

from bench.data.mteb_names import is_mteb
from bench.data.suites import TRANSFER_SUITES, load_suite, load_transfer
from bench.data.tasks import LabelledTask, PairTask
from bench.eval.mteb_tasks import MtebTask, load_mteb_suite

SuiteTask = PairTask | LabelledTask | MtebTask


EVALUATION = 1  # raised when the numbers of an evaluation change; part of every key


TRANSFER_EVALUATION = 1  # the same, part of the keys of transfer suites alone


def load_tasks(name: str, data: Path | None, *, accept_data: bool, world_seed: int) -> list[SuiteTask]:
    """Read the tasks of any suite, those that mteb measures too; see :func:`bench.data.suites.load_suite`."""
    if is_mteb(name):
        return list(load_mteb_suite(name, data))
    if name in TRANSFER_SUITES:
        return list(load_transfer(name, data, accept_data=accept_data))
    return list(load_suite(name, data, accept_data=accept_data, world_seed=world_seed)[1])
