"""Commands other than ``bench run`` that faults hit."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.faults.checks import MADE, expect
from tests.faults.runs import PLAIN, Work, run, undisturbed
from tests.faults.small import use_hub


def _given_records(folder: Path) -> None:
    """Copy the records of PLAIN into a folder; they are made once, beside it."""
    source = folder.parent / "records"
    if not source.exists():
        undisturbed(PLAIN, source, "--workers", "1")
    if not (folder / "results").exists():
        shutil.copytree(source / "results", folder / "results")


def _given_bundle(folder: Path) -> None:
    """Copy a bundle of SWEEP's records into a folder; it is made once, beside it."""
    source = folder.parent / "bundled"
    if not source.exists():
        undisturbed(SWEEP, source)
        done = run(source, ["bundle", "local", "--out", "bundle.zip"])
        expect(done.code == 0, f"no bundle: {done.out}{done.error}")
    shutil.copy(source / "bundle.zip", folder)


SWEEP = Work(
    "sweep", ("--seeds", "1-2", "--dev", "toy", "--workers", "1"), ("sweep", "fault", "--suite", "toy")
)
PRETRAIN = Work("pretrain", ("--out", f"{MADE}/bert"), ("pretrain",))
FETCH = Work("fetch sts7", ("sts7", "--data", f"{MADE}/data"), ("data", "fetch"), use_hub)
TEXT = Work("fetch wiki1m", ("wiki1m", "--data", f"{MADE}/data"), ("data", "fetch"), use_hub)
REPORT = Work("report", ("--figures", f"{MADE}/figures"), ("report",), _given_records)
BUNDLE = Work("bundle", ("local", "--out", f"{MADE}/bundle.zip"), ("bundle",), _given_records)
MERGE = Work("merge", ("bundle.zip", "--into", "results"), ("merge",), _given_bundle)
