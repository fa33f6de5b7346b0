"""``bench reproduce``: every item end to end on mini, its layout, what is there already."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.data.released import checkpoints
from bench.papers.items import items
from tests.support.cli import Cli, refusal
from tests.support.released import hub_folder
from tests.support.shortened import shortened

pytest_plugins: list[str] = []
MINI = ("--profile", "mini", "--seeds", "1")


def shown(cli: Cli, *arguments: str, code: int = 0) -> list[dict[str, object]]:
    """The tables that a call prints, as JSON."""
    found, out, err = cli("reproduce", *arguments, "--format", "json")
    assert found == code, err
    grids: list[dict[str, object]] = json.loads(out)
    return grids
