"""Records of results that were made elsewhere: scores as published, which nobody here has checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench.records.record import RunRecord

IMPORTED = "imported"
"""Profile of imported records, block of their provenance, and how their registered name begins."""


ABOUT = "about"
"""Block of that block: what the source says of the row, such as the number of parameters."""


MARK = " (imported)"
"""End of an imported row's printed name in tables with other rows."""
_AS_PUBLISHED = "scores as published, which nobody here has checked"
_RECOMPUTED = "their scores are recomputed from published predictions"


def is_imported(record: RunRecord) -> bool:
    """Return whether a record's scores were made elsewhere."""
    return record.name.startswith(f"{IMPORTED}:")


def is_published(record: RunRecord) -> bool:
    """Return whether a record has only published scores, and describes no items to compute them from."""
    items = any("items_sha256" in facts for facts in record.tasks.values())
    return is_imported(record) and record.predictions is None and not items


def lacks_seed(records: Iterable[RunRecord]) -> bool:
    """Return whether a row is one imported result whose seed nobody knows, which is no fixed score."""
    return all(is_imported(record) and record.seed is None for record in records)


def import_facts(record: RunRecord) -> Mapping[str, Any]:
    """Return what the source of an imported record says of its row; empty for others."""
    facts: Mapping[str, Any] = (
        record.provenance.get(IMPORTED, {}).get(ABOUT, {}) if is_imported(record) else {}
    )
    return facts


def describe_source(record: RunRecord) -> str:
    """Return in words where an imported record comes from, such as "mteb:results, commit 0123abc, CC0"."""
    facts = record.provenance.get(IMPORTED, {})
    parts = [f"{facts.get('kind')}:{facts.get('label')}"]
    if commit := facts.get("commit"):
        parts.append(f"commit {str(commit)[:10]}")
    parts += [str(facts[name]) for name in ("date", "licence") if facts.get(name)]
    return ", ".join(parts)


def describe_import(record: RunRecord) -> str:
    """Return a note on an imported record's scores, with their source; "" for others."""
    if not is_imported(record):
        return ""
    how = _AS_PUBLISHED if record.predictions is None else _RECOMPUTED
    return f"Imported ({describe_source(record)}): {how}."


def describe_imports(records: Iterable[RunRecord]) -> str:
    """Return a note on the imported rows among records, or ""."""
    records = list(records)
    imported = [record for record in records if is_imported(record)]
    if not imported:
        return ""
    sources = "; ".join(dict.fromkeys(map(describe_source, imported)))
    recomputed = [record for record in imported if record.predictions is not None]
    rows = "All rows are" if len(imported) == len(records) else f"{len(imported)} of {len(records)} runs are"
    how = _RECOMPUTED if len(recomputed) == len(imported) else _AS_PUBLISHED
    note = f"{rows} imported ({sources}): {how}."
    claimed = sum(map(_has_claims, imported))
    if claimed:
        verb = "row holds" if claimed == 1 else "rows hold"
        note += f" {claimed} {verb} scores of model cards, which mteb didn't measure (@external)."
    return note


def _has_claims(record: RunRecord) -> bool:
    """Return True for scores that a model card claims."""
    facts = import_facts(record)
    return bool(facts.get("external_tasks") or facts.get("is_external"))
