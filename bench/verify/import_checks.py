"""Check what a record of results made elsewhere must say, and that no other record says it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.data.imported_names import is_imported_suite
from bench.data.mteb_names import MtebName, is_mteb
from bench.errors import BenchError
from bench.eval.imported_suite import identify_score_task
from bench.eval.mteb_tasks import MtebTask
from bench.records.imported import IMPORTED, is_imported, is_published
from bench.records.integrity import AGAIN
from bench.records.record import RunRecord
from bench.verify.findings import Problem

_AGAIN = "delete it and import its source again"


def check_import(record: RunRecord) -> Iterator[Problem]:
    """Yield contradictions of a record with its being, or not being, imported."""
    if not is_imported(record):
        if is_imported_suite(record.suite):
            yield "method", f"no run here measures suite {record.suite}, whose results are imported", AGAIN
        if IMPORTED in record.provenance:
            yield "method", "it has the source of an imported record, and doesn't say that it is one", AGAIN
        return
    source = record.provenance.get(IMPORTED)
    if not isinstance(source, Mapping) or not source.get("kind") or not source.get("label"):
        yield "method", "it says that it was imported, and names no source", _AGAIN
    if record.training.get("stages") or record.probes:
        yield "training", "it says that it was imported, and has a training or probes of bench", _AGAIN
    if not (is_imported_suite(record.suite) or is_mteb(record.suite) or _is_of_mteb(source)):
        yield "tasks", f"results of suite {record.suite} can't be imported", _AGAIN
    if is_published(record):
        yield from _check_identities(record, source)


def _is_of_mteb(source: object) -> bool:
    """Return whether a source is of mteb, which has benchmarks of any name."""
    return isinstance(source, Mapping) and source.get("kind") == "mteb"


def _check_identities(record: RunRecord, source: object) -> Iterator[Problem]:
    """Tasks whose sha256 is not that of what the record says of them."""
    for name, facts in record.tasks.items():
        try:
            expected = None
            if is_imported_suite(record.suite):
                expected = identify_score_task(record.suite, name, record.metric)
            elif _is_of_mteb(source):
                expected = _identify_mteb_task(name, facts)
        except (BenchError, KeyError, TypeError, ValueError, AttributeError):
            expected = ""
        if expected is not None and expected != facts["sha256"]:
            yield "tasks", f"the identity of {name} is not that of its data, split and metric", _AGAIN
            return


def _identify_mteb_task(name: str, facts: Mapping[str, Any]) -> str:
    """Return the sha256 that mteb's task of these facts has."""
    asked = MtebName(name, facts["name"], tuple(facts["subsets"]))
    dataset = facts["dataset"]["path"], facts["dataset"]["revision"]
    return MtebTask(asked, facts["type"], facts["score"], dataset, tuple(facts["splits"])).sha256
