"""From a suite's name to its measure: the only place that looks at the name."""

from __future__ import annotations

from typing import Any

from bench.data.contrast_items import ContrastTask
from bench.data.imported_names import is_imported_suite
from bench.data.mteb_names import is_mteb
from bench.data.rank_task import RankTask
from bench.data.suites import RANK_SUITES, TRANSFER_SUITES, is_contrast
from bench.data.tasks import LabelledTask, PairTask
from bench.eval.contrast_suite import ContrastSuite
from bench.eval.imported_suite import ImportedSuite, ImportedTask
from bench.eval.measure import Measure
from bench.eval.mteb_suite import MtebSuite
from bench.eval.mteb_tasks import MtebTask
from bench.eval.pair_suite import PairSuite
from bench.eval.rank_suite import RankSuite
from bench.eval.transfer_suite import TransferSuite

SuiteTask = PairTask | LabelledTask | MtebTask | ContrastTask | RankTask | ImportedTask


def measure_of(name: str) -> Measure[Any]:
    """Return the measure of a suite named as in ``--suite``; loading its tasks refuses an unknown name."""
    if is_imported_suite(name):
        return ImportedSuite(name)
    if is_mteb(name):
        return MtebSuite(name)
    if is_contrast(name):
        return ContrastSuite(name)
    if name in RANK_SUITES:
        return RankSuite(name)
    return TransferSuite(name) if name in TRANSFER_SUITES else PairSuite(name)
