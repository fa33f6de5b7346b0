"""SentEval's interface: dictionaries as SimCSE's fork has them, numbers as the main path gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

from bench import senteval_compat as senteval
from bench.data.senteval import SOURCES
from bench.errors import BenchError, DataError, InputError
from bench.eval.embed import embed
from bench.eval.sgd import Classifier
from bench.eval.sts import predict, score_task
from bench.eval.transfer import Protocol, run_task
from bench.eval.transfer_suite import sentences_of
from bench.nn.backbone import TransformerEncoder
from tests.support.senteval_toy import FULL, Hashed, engine

FAST = {"nhid": 0, "optim": "rmsprop", "batch_size": 128, "tenacity": 3, "epoch_size": 2}


def read(folder: Path, name: str) -> Any:
    return SOURCES[name].read(folder / "downstream")


def test_years_have_every_subset_and_three_averages(task_path: Path) -> None:
    results = engine(task_path).eval("STS12")
    task = read(task_path, "STS12")
    main = {s.subset: s.value for s in score_task(task, predict(Hashed(), [task])["STS12"])}
    assert list(results) == [*(subset.name for subset in task.subsets), "all"]
    for kind in ("all", "mean", "wmean"):
        assert results["all"]["spearman"][kind] == pytest.approx(main[kind], abs=1e-12)
    for subset in task.subsets:
        found = results[subset.name]
        assert found["nsamples"] == len(subset.gold)
        assert found["spearman"].correlation == pytest.approx(main[subset.name], abs=1e-12)
        a, b = (Hashed().encode(side).astype(np.float64) for side in (subset.first, subset.second))
        cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        assert found["pearson"][0] == pytest.approx(pearsonr(cosine, subset.gold)[0], abs=1e-6)
        assert found["spearman"][0] == pytest.approx(spearmanr(cosine, subset.gold)[0], abs=1e-6)


def test_simcses_script_finds_its_figures(task_path: Path) -> None:
    """The look-ups of SimCSE's evaluation.py, in its test and in its dev mode."""
    names = ["STS12", "STSBenchmark", "SICKRelatedness"]
    results = {name: engine(task_path).eval(name) for name in names}
    tasks = [read(task_path, name) for name in ("STSB", "STSB-dev", "SICKR", "SICKR-dev")]
    predictions = predict(Hashed(), tasks)
    main = {task.id: score_task(task, predictions[task.id])[0].value for task in tasks}
    assert isinstance(results["STS12"]["all"]["spearman"]["all"], float)
    for name, own in (("STSBenchmark", "STSB"), ("SICKRelatedness", "SICKR")):
        assert results[name]["test"]["spearman"].correlation == pytest.approx(main[own], abs=1e-12)
        assert results[name]["dev"]["spearman"][0] == pytest.approx(main[f"{own}-dev"], abs=1e-12)
        assert set(results[name]) == {"train", "dev", "test", "all"}


@pytest.mark.parametrize(
    ("name", "solver"),
    [("CR", "exact"), ("TREC", "exact"), ("SST2", "sgd"), ("MRPC", "exact"), ("SST5", "sgd")],
)
def test_transfer_is_the_main_paths_rounded(task_path: Path, name: str, solver: str) -> None:
    settings = FAST if solver == "sgd" else FULL
    found = engine(task_path, classifier=settings, transfer_solver=solver).eval(name)
    task = read(task_path, name)
    protocol = Protocol(solver, kfold=3, classifier=Classifier("rmsprop", 128, 3, 2))
    main = run_task(task, embed(Hashed(), sentences_of(task)), protocol)
    test = round(float(np.mean([round(100 * value, 2) for value in main.test])), 2)
    dev = round(float(np.mean([round(100 * value, 2) for value in main.dev])), 2)
    items = {"TREC": 72, "SST5": 120}.get(name, 48)
    assert (main.n_dev, len(main.gold)) == (items, items)
    expected = {"devacc": dev, "acc": test, "ndev": items, "ntest": items}
    expected |= {"f1": round(100 * main.f1, 2)} if name == "MRPC" else {}
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_live_batcher_gives_the_main_paths_numbers(tiny_bert: Path, task_path: Path) -> None:
    encoder = TransformerEncoder(tiny_bert, "avg")
    model, tokenizer = encoder.model, encoder.tokenizer

    def batcher(params: Any, batch: list[list[str]]) -> torch.Tensor:
        inputs = tokenizer([" ".join(words) for words in batch], return_tensors="pt", padding=True)
        with torch.no_grad():
            states = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1)
        pooled: torch.Tensor = (states * mask).sum(1) / mask.sum(1)
        return pooled

    params = {"task_path": str(task_path), "batch_size": 5}
    found = senteval.engine.SE(params, batcher).eval("STSBenchmark")
    task = read(task_path, "STSB")
    main = score_task(task, predict(encoder, [task])["STSB"])[0].value
    assert found["test"]["spearman"].correlation == pytest.approx(main, abs=1e-6)


def test_the_scripts_own_similarity_is_used(task_path: Path) -> None:
    found = engine(task_path, similarity=lambda a, b: -float(np.abs(a - b).sum())).eval("STS12")
    task = read(task_path, "STS12")
    subset = task.subsets[0]
    distance = -np.abs(Hashed().encode(subset.first) - Hashed().encode(subset.second)).sum(1)
    assert found[subset.name]["spearman"][0] == pytest.approx(spearmanr(distance, subset.gold)[0], abs=1e-12)


def test_entailment_and_probing(task_path: Path) -> None:
    seen: list[list[str]] = []
    params = {"task_path": str(task_path)}
    se = senteval.engine.SE(params, Hashed(), lambda params, samples: seen.extend(samples))
    results = se.eval(["SICKEntailment", "Tense"])
    assert results["SICKEntailment"].keys() == {"devacc", "acc", "ndev", "ntest"}
    assert (results["SICKEntailment"]["ndev"], results["Tense"]["ntest"]) == (36, 12)
    assert results == se.results
    assert len(seen) == 3 * 36 * 2 + 36
    assert all(isinstance(words, list) for words in seen)
    hint = (
        rf"odd_man_out.txt: this data file is missing; bench data fetch probing --data {task_path} gets them"
    )
    with pytest.raises(DataError, match=hint):
        se.eval("OddManOut")


@pytest.mark.parametrize(
    ("params", "name", "message"),
    [
        ({}, "STS11", "unknown task 'STS11' .did you mean 'STS1.*; expected one of CR, MR"),
        ({}, "SNLI", "bench data fetch doesn't get SNLI"),
        ({}, "ImageCaptionRetrieval", "vectors of images are pickles, which could run code"),
        ({"fork": "facebookresearch"}, "STSBenchmark-finetune", "unknown task 'STSBenchmark-finetune'"),
        ({"fork": "google"}, "MR", "params: fork 'google'; expected one of simcse, facebookresearch"),
        ({}, "STSBenchmark-fix", "STSBenchmark-fix: this folder is missing; .*data fetch doesn't get it"),
        (
            {"transfer_solver": "exact", "classifier": {"nhid": 50}},
            "MR",
            "params: transfer_solver 'exact' with hidden layers; expected 'sgd'",
        ),
        ({"classifier": {"optim": "adm"}}, "MR", "optim: unknown optimiser 'adm' .did you mean 'adam'"),
        ({"classifier": {"optim": "sgd"}}, "MR", "optim 'sgd': no learning rate; expected such as 'sgd,lr"),
        ({"classifier": {"optim": "adam,rate=1"}}, "MR", "'adam,rate=1': 'rate=1'; expected NAME=NUMBER"),
        ({"transfer_solver": "lbfgs"}, "MR", "transfer_solver 'lbfgs'; expected one of exact, sgd"),
        ({"classifier": {"nhid": 0, "lr": 1}}, "MR", r"classifier settings \['lr'\]; expected nhid, optim"),
        ({"task_path": None}, "MR", "MR: params has no 'task_path'"),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_said(
    task_path: Path, params: dict[str, Any], name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        engine(task_path, **params).eval(name)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda batch: np.ones((len(batch) + 1, 2)), r"STS12: the batcher returned the shape \(.*, 2\)"),
        (lambda batch: np.full((len(batch), 2), np.nan), "STS12: the batcher's vectors are not finite"),
    ],
)
def test_a_bad_batcher_is_named(task_path: Path, returned: Any, message: str) -> None:
    se = senteval.engine.SE({"task_path": str(task_path)}, lambda params, batch: returned(batch))
    with pytest.raises(BenchError, match=message):
        se.eval("STS12")
