"""Names of suites whose results were made elsewhere: ``imported:NAME``."""

from __future__ import annotations

from pathlib import Path

from bench.errors import InputError
from bench.records.look_alikes import find_look_alike

IMPORTED = "imported:"
"""Prefix of a suite whose results were made elsewhere."""
LONGEST_NAME = 100
"""Most characters of a name in a source of results."""


def is_imported_suite(suite: str) -> bool:
    """Check whether the results of a suite were made elsewhere."""
    return suite.startswith(IMPORTED)


def name_imported_suite(name: str, file: Path) -> str:
    """Return ``imported:NAME``; the default name is the file's, without folder and ending.

    Raises InputError for a name that can't stand in ``--suite``.

    >>> name_imported_suite("", Path("tables/simcse.csv")), name_imported_suite("imported:sts", Path("a.csv"))
    ('imported:simcse', 'imported:sts')
    """
    given = name.removeprefix(IMPORTED)
    short = given or file.stem
    fault = find_name_fault(short)
    if not fault and "," in short:
        fault = f"'{short}' has a comma, which stands between suites"
    if fault:
        where = "--suite" if given else str(file)
        raise InputError(fault, where=where, expected="a name such as sts7", hint="type --suite NAME")
    return f"{IMPORTED}{short}"


def find_name_fault(name: str) -> str:
    """Return the fault of a name that tables are going to print, or ""."""
    if not name.strip():
        return "the name is empty"
    if not name.isprintable():
        return f"'{name}' has a control character"
    if len(name) > LONGEST_NAME:
        return f"'{name[:20]}...' has {len(name):,} characters, more than {LONGEST_NAME}"
    return find_look_alike(name)
