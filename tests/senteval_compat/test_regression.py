"""The original's supervised relatedness, against the procedure written down a second time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from bench import senteval_compat
from bench.errors import BenchError
from bench.senteval_compat import facebookresearch
from bench.senteval_compat.tools.relatedness import RelatednessPytorch, defined_correlation, encode_labels
from tests.support.senteval_original import pair_features, regression, soft_labels
from tests.support.senteval_toy import Hashed, engine

FILES = {
    "STSBenchmark": ("STS/STSBenchmark", ("sts-train.csv", "sts-dev.csv", "sts-test.csv"), (5, 6, 4), 0),
    "SICKRelatedness": (
        "SICK", ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"), (1, 2, 3), 1,
    ),
}  # fmt: skip


def read(folder: Path, name: str) -> list[tuple[Any, list[float]]]:
    """Features and scores of a task's splits, by the words of both sentences, then by the score."""
    place, files, columns, header = FILES[name]
    found = []
    for file in files:
        lines = (folder / "downstream" / place / file).read_text().splitlines()[header:]
        rows = [[line.split("\t")[column] for column in columns] for line in lines]
        rows.sort(key=lambda row: (len(row[0].split()), len(row[1].split()), float(row[2])))
        u, v = (Hashed().encode([row[side] for row in rows]) for side in (0, 1))
        found.append((pair_features(u, v).astype(np.float64), [float(row[2]) for row in rows]))
    return found


def test_soft_labels() -> None:
    scores = [0, 0.25, 1, 1.6, 4.9, 5]
    assert np.allclose(encode_labels(scores), soft_labels(scores), atol=1e-7)
    assert encode_labels([0, 0.25]).sum(1).tolist() == [0, 0.25]  # the first grade is the lowest
    assert defined_correlation(pearsonr, np.ones(3), [1.0, 2.0, 3.0]) == 0


@pytest.mark.parametrize(("score", "shown"), [(-1, "-1"), (5.5, "5.5"), (float("nan"), "nan")])
def test_a_score_outside_the_grades_is_refused(score: float, shown: str) -> None:
    with pytest.raises(BenchError, match=f"score {shown}") as caught:
        encode_labels([1, score])
    assert (caught.value.where, caught.value.expected) == ("encode_labels", "0 to 5")


@pytest.mark.parametrize("correlation", [pearsonr, spearmanr])
def test_the_regression_is_sentevals(correlation: Any) -> None:
    rng = np.random.default_rng(0)
    x, bent = rng.normal(size=(230, 6)), rng.normal(size=6)
    gold = np.clip(3 + x @ bent / 2 + rng.normal(size=230), 0, 5)
    parts = [slice(0, 150), slice(150, 190), slice(190, 230)]
    train, valid, test = (dict[str, Any](X=x[part], y=encode_labels(gold[part])) for part in parts)
    config = {"seed": 7, "nclasses": 5}
    best, found = RelatednessPytorch(train, valid, test, gold[parts[1]], config, correlation).run()
    labels = soft_labels(gold[:150])
    dev = (x[parts[1]], gold[parts[1]])
    wanted = regression((x[:150], labels), dev, x[190:], lambda a, b: correlation(a, b)[0], seed=7)
    assert best == pytest.approx(wanted[0], abs=1e-4)
    assert np.allclose(found, wanted[1], atol=1e-3)


@pytest.mark.parametrize(
    ("seen", "best", "calls"),
    [
        ([0.5, 0.1, 0.1, 0.6, 0.1, 0.1, 0.9], 0.6, 6),  # the fourth that isn't better is the last
        ([float("nan"), *np.arange(1, 40) / 40], 0.5, 21),  # none is 0; 1,000 passes are the most
    ],
)
def test_the_regression_stops(seen: list[float], best: float, calls: int) -> None:
    left = iter(seen)
    part = {"X": np.ones((2, 3)), "y": np.ones((2, 5))}
    config = {"seed": 1, "nclasses": 5}
    model = RelatednessPytorch(part, part, part, [1.0, 2.0], config, lambda found, gold: (next(left),))
    assert model.run()[0] == best
    assert len(list(left)) == len(seen) - calls


@pytest.mark.parametrize(
    ("fork", "name", "key"),
    [
        ("facebookresearch", "STSBenchmark", "devpearson"),
        ("facebookresearch", "SICKRelatedness", "devpearson"),
        ("simcse", "STSBenchmark-finetune", "devspearman"),
        ("simcse", "SICKRelatedness-finetune", "devspearman"),
    ],
)
def test_the_supervised_tasks(task_path: Path, fork: str, name: str, key: str) -> None:
    found = engine(task_path, fork=fork).eval(name)
    assert set(found) == {key, "pearson", "spearman", "mse", "yhat", "ndev", "ntest"}
    train, valid, (test, gold) = read(task_path, name.removesuffix("-finetune"))
    kind: Any = pearsonr if key == "devpearson" else spearmanr
    labels = soft_labels(train[1])
    best, yhat = regression((train[0], labels), valid, test, lambda a, b: float(kind(a, b)[0]))
    assert found[key] == pytest.approx(best, abs=1e-4)
    assert np.allclose(found["yhat"], yhat, atol=1e-3)
    assert found["pearson"] == pytest.approx(pearsonr(yhat, gold)[0], abs=1e-3)
    assert found["spearman"] == pytest.approx(spearmanr(found["yhat"], gold)[0], abs=1e-12)
    assert found["mse"] == pytest.approx(np.mean((yhat - gold) ** 2), abs=1e-3)
    assert (found["ndev"], found["ntest"]) == (len(valid[1]), len(gold))


def test_the_originals_import_line_takes_its_forms(task_path: Path) -> None:
    params = {"task_path": str(task_path)}
    se = facebookresearch.engine.SE(params, Hashed())
    results = se.eval(["STS12", "SICKRelatedness"])
    assert set(results["STS12"]["all"]["spearman"]) == {"mean", "wmean"}
    assert "devpearson" in results["SICKRelatedness"]
    assert "STSBenchmark-fix" not in se.list_tasks
    simcse = senteval_compat.engine.SE(params, Hashed()).eval("STS12")
    for kind in ("pearson", "spearman"):
        both = simcse["all"][kind]
        assert results["STS12"]["all"][kind] == {name: both[name] for name in ("mean", "wmean")}
    assert set(simcse["all"]["spearman"]) == {"all", "mean", "wmean"}


def test_a_corrected_benchmark_has_its_own_folder(task_path: Path, tmp_path: Path) -> None:
    (tmp_path / "downstream").symlink_to(task_path / "downstream")
    root = tmp_path / "fixed" / "downstream" / "STS"
    root.mkdir(parents=True)
    (root / "STSBenchmark-fix").symlink_to(task_path / "downstream" / "STS" / "STSBenchmark")
    assert engine(root.parents[1]).eval("STSBenchmark-fix") == engine(tmp_path).eval("STSBenchmark")
