"""Faults as scripts: their options, their scratch folder, what they print, file systems of their own."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from tests.faults.checks import NotSurvivedError

Parts = Iterator[tuple[str, Counter[str]]]
"""Names of a script's parts, and what was counted in each."""


def own_mounts(module: str) -> bool:
    """Go on in a namespace where this script may mount file systems; returns False if none is permitted."""
    if "BENCH_FAULT_MOUNTS" not in os.environ:
        inside = ["unshare", "-Urm"]
        try:
            tried = subprocess.run([*inside, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
        except FileNotFoundError:
            return False
        if tried.returncode:
            return False
        os.environ["BENCH_FAULT_MOUNTS"] = "1"
        os.execvp(inside[0], [*inside, sys.executable, "-m", module, *sys.argv[1:]])  # noqa: S606
    return True


def script(about: str | None, survive: Callable[[Path, dict[str, int]], Parts], **options: int) -> NoReturn:
    """Run a fault as a script: exit with its counts on one line and 0, or with what differed and 1."""
    parser = argparse.ArgumentParser(description=about)
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--keep", type=Path, help="folder to work in, kept; default a temporary one")
    given = vars(parser.parse_args())
    keep, counts = given.pop("keep"), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for part, found in survive(folder, given):
                print(f"{part}: {dict(found)}", flush=True)
                counts += found
        except NotSurvivedError as failure:
            print(f"FAILED: {failure}")
            sys.exit(1)
    print("survived: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    sys.exit()
