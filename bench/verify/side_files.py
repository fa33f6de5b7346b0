"""Verify the files of other commands beside a campaign's records, by the campaign's manifest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bench.errors import DataError
from bench.records.campaign_manifest import (
    FILE,
    find_file_fault,
    read_campaign_manifest,
    seal_campaign_files,
)
from bench.reports.campaign import ALONG, RESEAL, list_side_files, list_unsealed_files
from bench.training_probes.evaluations import read_training_probes
from bench.verify.findings import Verification
from bench.verify.record_paths import describe_non_file

SIDE_FILES = "files of other commands beside the records:"


def verify_side_files(root: Path, base: Path, verified: Verification, *, seal: bool) -> None:
    """Add findings on a campaign's manifest and the files that it names; seal the others if asked to.

    Sealed files that changed are findings. With ``seal`` they are sealed anew, and those that are gone leave
    the manifest. Nothing computes their numbers again, so all are listed as unchecked.
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
    unsealed = list_unsealed_files(root, sealed)
    faults = _find_faults(root, sealed)
    if seal:  # changed files too: that is what the user asks for
        regular = [name for name in (*unsealed, *faults) if _is_own_file(root / name)]
        gone = [name for name in faults if not os.path.lexists(root / name)]
        if regular or gone:
            verified.sealed += [f"{prefix}{name}" for name in seal_campaign_files(root, regular, gone)]
        unsealed = [name for name in unsealed if name not in regular]
        faults = {name: fault for name, fault in faults.items() if name not in (*regular, *gone)}
    for name, fault in faults.items():
        verified.add(f"{prefix}{name}", [("manifest", fault, RESEAL)])
    faults |= _find_own_faults(root, prefix, verified)
    for name in list_side_files(root):
        state = "sealed, and not computed again"
        if name in unsealed:
            state = "under no seal"
        elif name in faults:
            state = "with a finding"
        verified.unchecked[f"{SIDE_FILES} {name}, {state}"] += 1


def _find_faults(root: Path, sealed: Mapping[str, str]) -> dict[str, str]:
    faults = {}
    for name in sorted(sealed):
        if fault := find_file_fault(root, name, sealed):
            faults[name] = fault
    return faults


def _find_own_faults(root: Path, prefix: str, verified: Verification) -> dict[str, str]:
    """Add findings on files that hold a hash of their own, and return them by file."""
    faults = {}
    for path in sorted(root.glob(ALONG)):
        try:
            read_training_probes(path)
        except DataError as error:
            verified.add(f"{prefix}{path.name}", [("manifest", error.what, error.hint or "")])
            faults[path.name] = error.what
    return faults


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
