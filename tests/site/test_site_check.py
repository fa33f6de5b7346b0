"""Which of verification's lines leave a campaign in doubt on a site: those on scores of its suites."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.records.store import ResultStore
from bench.site.command import _verify_campaign

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.campaigns
@pytest.mark.parametrize(
    ("record", "status", "line"),
    [
        (
            "reference/mini/esimcse_short/seed-1/mini.json",
            "verified",
            "mini all spearman_last (2)",
        ),
        (
            "reference/mini/tncse_short.kept/no-seed/mini.json",
            "verified",
            "not checked: notes of records: of profile mini, the record was made with the model 'encoder', "
            "which its profile doesn't name",
        ),
        ("mini-equal/mini-equal/simcse/seed-1/mini.json", "verified", "as recorded: what probes found"),
        ("mini-equal/mini-equal/simcse/seed-1/mini.json", "verified", "losses, dev scores, seconds"),
        ("reproduce/mini/untrained[pooling=avg]/no-seed/mini-mteb.json", "in part", "kept: all v_measure"),
    ],
)
def test_scores_beside_a_suites_own_leave_none_in_doubt(
    tmp_path: Path, record: str, status: str, line: str
) -> None:
    campaign, *folders, _ = Path(record).parts
    there = Path(*folders)
    shutil.copytree(RESULTS / campaign / there, tmp_path / "results" / "local" / there)
    found = _verify_campaign(ResultStore(tmp_path / "results", "local"), None)
    assert (found.status, any(line in said for said in found.said)) == (status, True), found.said
