"""Verify the files of other commands beside a campaign's records, by the campaign's manifest."""

from __future__ import annotations

from pathlib import Path

from bench.errors import DataError
from bench.records.campaign_manifest import (
    FILE,
    find_file_fault,
    read_campaign_manifest,
    seal_campaign_files,
)
from bench.reports.campaign import RESEAL, list_side_files, list_unsealed_files
from bench.verify.findings import Verification
from bench.verify.record_paths import describe_non_file

SIDE_FILES = "files of other commands beside the records:"


def verify_side_files(root: Path, base: Path, verified: Verification, *, seal: bool) -> None:
    """Add findings on a campaign's manifest and the files that it names; seal the others if asked to.

    Sealed files are unchanged. Nothing computes their numbers again, so all are listed as unchecked.
    """
    prefix = root.relative_to(base).as_posix()
    prefix = "" if prefix == "." else f"{prefix}/"
    try:
        if odd := describe_non_file(root / FILE):
            raise DataError(odd, hint=f"put the file itself there, or delete {FILE}")
        sealed = read_campaign_manifest(root) or {}
    except DataError as error:
        verified.add(f"{prefix}{FILE}", [("manifest", error.what, error.hint or "")])
        return
    for name in sorted(sealed):
        if fault := find_file_fault(root, name, sealed):
            verified.add(f"{prefix}{name}", [("manifest", fault, RESEAL)])
    unsealed = list_unsealed_files(root, sealed)
    regular = [name for name in unsealed if not describe_non_file(root / name)]
    if seal and regular:
        verified.sealed += [f"{prefix}{name}" for name in seal_campaign_files(root, regular)]
        unsealed = [name for name in unsealed if name not in regular]
    for name in list_side_files(root):
        state = "under no seal" if name in unsealed else "sealed, and not computed again"
        verified.unchecked[f"{SIDE_FILES} {name}, {state}"] += 1
