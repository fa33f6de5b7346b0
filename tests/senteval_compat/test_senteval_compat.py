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
from bench.encoder import FloatArray
from bench.errors import BenchError, DataError, InputError
from bench.eval.embeddings import embed_sentences
from bench.eval.sgd import ClassifierSettings
from bench.eval.sts import predict_similarities, score_task
from bench.eval.transfer import Protocol, run_transfer_task
from bench.eval.transfer_suite import labelled_sentences
from bench.nn.backbone import TransformerEncoder
from tests.support.senteval_toy import FULL, Hashed, engine

FAST = {"nhid": 0, "optim": "rmsprop", "batch_size": 128, "tenacity": 3, "epoch_size": 2}


def read(folder: Path, name: str) -> Any:
    return SOURCES[name].read(folder / "downstream")


def test_years_have_every_subset_and_three_averages(task_path: Path) -> None:
    results = engine(task_path).eval("STS12")
    task = read(task_path, "STS12")
    main = {s.subset: s.value for s in score_task(task, predict_similarities(Hashed(), [task])["STS12"])}
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
    predictions = predict_similarities(Hashed(), tasks)
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
    protocol = Protocol(solver, kfold=3, classifier=ClassifierSettings("rmsprop", 128, 3, 2))
    main = run_transfer_task(task, embed_sentences(Hashed(), labelled_sentences(task)), protocol)
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
    main = score_task(task, predict_similarities(encoder, [task])["STSB"])[0].value
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
        ({}, "SNLI", "downloads SNLI"),
        ({}, "ImageCaptionRetrieval", "image vectors are pickles, which could run code"),
        ({"fork": "facebookresearch"}, "STSBenchmark-finetune", "unknown task 'STSBenchmark-finetune'"),
        ({"fork": "google"}, "MR", "params: fork 'google'; expected one of simcse, facebookresearch"),
        ({}, "STSBenchmark-fix", "STSBenchmark-fix: this folder is missing; .*data fetch"),
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
        ({"kfold": 1}, "MR", r"^MR: params\['kfold'\] is 1; expected a whole number of at least 2$"),
        ({"kfold": 1}, "MRPC", r"^MRPC: params\['kfold'\] is 1; expected a whole number of at least 2$"),
        ({"kfold": "many"}, "STS12", r"^params: params\['kfold'\] is 'many'; expected a whole number of at"),
        ({"batch_size": 0.5}, "STS12", r"^params: params\['batch_size'\] is 0.5; expected a whole number of"),
        ({"seed": "x"}, "STS12", r"^params: params\['seed'\] is 'x'; expected a whole number of at least 0$"),
        ({"classifier": "mlp"}, "MR", r"^params: params\['classifier'\] is 'mlp'; expected a dictionary$"),
        ({"classifier": {"nhid": "no"}}, "MR", r"^params: classifier\['nhid'\] is 'no'; expected a whole"),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_said(
    task_path: Path, params: dict[str, Any], name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        engine(task_path, **params).eval(name)


class Buffered:
    """A batcher that writes all its batches into one buffer."""

    def __init__(self) -> None:
        self.buffer = np.zeros((500, Hashed.dim), dtype=np.float32)

    def __call__(self, params: Any, batch: list[list[str]]) -> FloatArray:
        self.buffer[: len(batch)] = Hashed()(params, batch)
        return self.buffer[: len(batch)]


@pytest.mark.parametrize(
    "name", ["STS12", "STSBenchmark-finetune", "MR", "TREC", "MRPC", "SICKEntailment", "Tense"]
)
def test_a_batcher_may_reuse_its_buffer(task_path: Path, name: str) -> None:
    params = {"task_path": str(task_path), "batch_size": 7, "kfold": 3}
    own, reused = (senteval.engine.SE(params, batcher).eval(name) for batcher in (Hashed(), Buffered()))
    np.testing.assert_equal(reused, own)


def as_bfloat16(rows: FloatArray) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "given",
    [
        as_bfloat16,
        lambda rows: as_bfloat16(rows).requires_grad_(),
        lambda rows: list(as_bfloat16(rows).double().requires_grad_()),
        lambda rows: tuple(as_bfloat16(rows)),
        lambda rows: as_bfloat16(rows).double().tolist(),
        lambda rows: as_bfloat16(rows).to_sparse(),
        lambda rows: list(as_bfloat16(rows).half().numpy()),
        lambda rows: as_bfloat16(rows).double().numpy().astype(object),
    ],
)
def test_numbers_of_every_type_are_converted(task_path: Path, given: Any) -> None:
    params = {"task_path": str(task_path)}
    expected = senteval.engine.SE(params, lambda _, batch: as_bfloat16(Hashed()(_, batch)).float().numpy())
    found = senteval.engine.SE(params, lambda _, batch: given(Hashed()(_, batch)))
    np.testing.assert_equal(found.eval("STS12"), expected.eval("STS12"))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda batch: np.ones((len(batch) + 1, 2)), r" returned the shape \(8, 2\); expected \(7, dim\)"),
        (lambda batch: np.ones(len(batch)), r" returned the shape \(7,\); expected \(7, dim\)"),
        (lambda batch: np.ones((len(batch), 0)), r" returned the shape \(7, 0\); expected \(7, dim\)"),
        (
            lambda batch: np.full((len(batch), 2), np.nan),
            r"'s vectors are not finite \(7 of the 7 of a batch, the first of '.+'\)",
        ),
        (
            lambda batch: {"name": np.ones((len(batch), 2))},
            r" returned a dict with the keys 'name'; expected numbers of the shape \(7, dim\); ret",
        ),
        (lambda batch: None, r" returned None; expected numbers of the shape \(7, dim\)"),
        (
            lambda batch: [[1.0] * (1 + place % 2) for place in range(len(batch))],
            r" returned a list of 7 \(list\) that is no matrix; expected numbers",
        ),
        (
            lambda batch: [torch.ones(1 + place % 2) for place in range(len(batch))],
            r" returned a list of 7 \(Tensor\) that is no matrix; expected numbers",
        ),
        (lambda batch: [["1", "2"]] * len(batch), r" returned a list of 7 \(list\) that is no matrix"),
        (lambda batch: torch.ones(len(batch), 2) * 1j, r" returned values of the type torch.complex64; exp"),
        (lambda batch: np.ones((len(batch), 2)) * 1e300, r"'s vectors overflow in float32 \(7 of"),
        (lambda batch: torch.full((len(batch), 2), 1e300, dtype=torch.double), r"'s vectors overflow"),
        (lambda batch: torch.ones(len(batch), 2, device="meta"), r" returned tensors on the device meta, wh"),
        (lambda batch: [torch.ones(2, device="meta")] * len(batch), r" returned tensors on the devi"),
    ],
)  # fmt: skip
def test_a_bad_batcher_is_named(task_path: Path, returned: Any, message: str) -> None:
    params = {"task_path": str(task_path), "batch_size": 7, "kfold": 3}
    for name in ("STS12", "MR", "STSBenchmark-finetune"):
        se = senteval.engine.SE(params, lambda params, batch: returned(batch))
        with pytest.raises(BenchError, match=f"^{name}: the batcher{message}") as caught:
            se.eval(name)
        assert "\n" not in str(caught.value)


def test_batches_of_different_widths_are_refused(task_path: Path) -> None:
    widths = iter((2, 3))
    params = {"task_path": str(task_path), "batch_size": 7}
    se = senteval.engine.SE(params, lambda params, batch: np.ones((len(batch), next(widths))))
    message = r"^STS12: the batcher returned 3 columns, after 2 in the batches before; expected \(7, 2\)$"
    with pytest.raises(BenchError, match=message):
        se.eval("STS12")


def test_a_bad_similarity_is_named(task_path: Path) -> None:
    for similarity, message in (
        (lambda a, b: a * b, r"params\['similarity'\] returned a ndarray; expected a number"),
        (lambda a, b: float("nan"), r"params\['similarity'\] returned nan for pair 1; expected a finite"),
    ):
        with pytest.raises(BenchError, match=f"^STS12, .+: {message}"):
            engine(task_path, similarity=similarity).eval("STS12")


def test_an_undefined_correlation_has_one_line(
    task_path: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    se = senteval.engine.SE({"task_path": str(task_path)}, lambda _, batch: np.ones((len(batch), 2)))
    found = se.eval("STS12")
    name = next(iter(found))
    assert np.isnan(found[name]["spearman"][0])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(found) - 1
    assert lines[0].startswith(f"STS12, {name}: all ")
    assert lines[0].endswith(" similarities are equal, so the correlation is undefined (nan)")
    assert not recwarn.list
