"""What every change keeps: a run of committed cells finds them done, by the keys that a plan gives them."""

from __future__ import annotations

import re

import pytest

from tests.support.cli import Cli
from tests.support.house import ROOT

RESULTS = ROOT / "results"


@pytest.mark.parametrize("campaign", ["mini", "mini-equal"])
def test_a_run_of_committed_cells_is_done_already(cli: Cli, campaign: str) -> None:
    (profile,) = (path.name for path in (RESULTS / campaign).iterdir() if path.name.startswith("mini"))
    methods = sorted(path.name for path in (RESULTS / campaign / profile).iterdir() if path.is_dir())
    assert len(methods) > 8
    asked = ("--profile", profile, "--methods", ",".join(methods), "--seeds", "1", "--campaign", campaign)
    code, out, err = cli("run", *asked, "--results", str(RESULTS), "--dry-run", as_is=True)
    assert code == 0, err
    assert re.search(rf"^0 of {len(methods)} cells to run", out, re.M), out
