"""What ``bench verify`` finds in a campaign of tests, and where its records are."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cli import Cli

CAMPAIGN = Path("results", "local", "mini")
NOISE = CAMPAIGN / "noise"
ONE = NOISE / "seed-1" / "toy.json"
WORDS = CAMPAIGN / "word_overlap" / "no-seed" / "toy.json"


def found_by_verify(cli: Cli, *arguments: str) -> dict[str, set[str]]:
    """Checks that fail, by file."""
    code, out, err = cli("verify", *arguments, "--format", "json")
    assert err == ""
    found: dict[str, set[str]] = {}
    for finding in json.loads(out)["findings"]:
        found.setdefault(finding["where"], set()).add(finding["check"])
    assert code == bool(found)
    return found


def where(path: Path) -> str:
    """A file as findings name it."""
    return path.relative_to("results").as_posix()
