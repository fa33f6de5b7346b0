"""The command line on the device: a method that trains, and what its record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.cli.main import main
from tests.support.cli import records
from tests.support.standin.patches import device
from tests.support.standin.target import played

_RUN = (
    "run", "--methods", "simcse", "--seeds", "1", "--suite", "toy",
    "--set", "simcse.steps=2", "--set", "simcse.eval_every=2", "--set", "simcse.batch_size=8",
)  # fmt: skip


def run_cells(folder: Path) -> dict[str, Any]:
    """Run a cell on the CPU and on the device, a campaign each; return what tells their records apart."""
    found = {}
    for where in ("cpu", played()):
        campaign = ("--results", str(folder / "results"), "--campaign", where, "--device", where)
        with device():
            _run(*_RUN, *campaign)
        (record,) = records(folder, where).values()
        found[where] = {"device": record.provenance["device"], "key": record.key, "reason": record.reason}
    return found


def _run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code
