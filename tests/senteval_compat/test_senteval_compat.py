"""SentEval's interface: dictionaries of SimCSE's fork, numbers of the main path, unchanged scripts."""

from __future__ import annotations

import importlib
import runpy
import sys
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
from bench.eval.sgd_classifier import ClassifierSettings
from bench.eval.sts import predict_similarities, score_task
from bench.eval.transfer import Protocol, run_transfer_task
from bench.eval.transfer_suite import labelled_sentences
from bench.nn.backbone import TransformerEncoder
from bench.senteval_compat import task_base
from tests.support.messages import check_error, missing_facts
from tests.support.senteval_toy import FULL, Hashed, engine

FAST = {"nhid": 0, "optim": "rmsprop", "batch_size": 128, "tenacity": 3, "epoch_size": 2}


def read(folder: Path, name: str) -> Any:
    return SOURCES[name].read(folder / "downstream")


def batched(folder: Path, batcher: Any, **params: Any) -> Any:
    return senteval.engine.SE({"task_path": str(folder), **params}, batcher)


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
    dev, test = (
        round(float(np.mean([round(100 * value, 2) for value in side])), 2) for side in (main.dev, main.test)
    )
    items = {"TREC": 72, "SST5": 120}.get(name, 48)
    assert (main.n_dev, len(main.gold)) == (items, items)
    expected = {"devacc": dev, "acc": test, "ndev": items, "ntest": items}
    expected |= {"f1": round(100 * main.f1, 2)} if name == "MRPC" else {}
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_live_batcher_gives_the_main_paths_numbers(tiny_bert: Path, task_path: Path) -> None:
    encoder, task = TransformerEncoder(tiny_bert, "avg"), read(task_path, "STSB")

    def embed(_: Any, batch: list[list[str]]) -> torch.Tensor:
        return encoder.embed(encoder.prepare([" ".join(words) for words in batch]))

    found = batched(task_path, embed, batch_size=5).eval("STSBenchmark")
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
    facts = ("odd_man_out.txt", "missing", f"fetch probing --data {task_path}")
    check_error(lambda: se.eval("OddManOut"), *facts, kind=DataError)


@pytest.mark.parametrize(
    ("params", "name", "facts"),
    [
        ({}, "STS11", ("'STS11'", "did you mean 'STS1", "expected one of CR, MR")),
        ({}, "SNLI", ("downloads SNLI",)),
        ({}, "ImageCaptionRetrieval", ("pickles", "run code")),
        ({"fork": "facebookresearch"}, "STSBenchmark-finetune", ("unknown task 'STSBenchmark-finetune'",)),
        ({"fork": "google"}, "MR", ("params: fork 'google'", "simcse, facebookresearch")),
        ({}, "STSBenchmark-fix", ("STSBenchmark-fix: ", "missing", "data fetch")),
        (
            {"transfer_solver": "exact", "classifier": {"nhid": 50}},
            "MR",
            ("params: transfer_solver 'exact'", "hidden layers", "expected 'sgd'"),
        ),
        ({"classifier": {"optim": "adm"}}, "MR", ("optim: ", "optimiser 'adm'", "did you mean 'adam'")),
        ({"classifier": {"optim": "sgd"}}, "MR", ("optim 'sgd'", "no learning rate", "'sgd,lr")),
        ({"classifier": {"optim": "adam,rate=1"}}, "MR", ("'adam,rate=1'", "'rate=1'", "NAME=NUMBER")),
        ({"transfer_solver": "lbfgs"}, "MR", ("transfer_solver 'lbfgs'", "exact, sgd")),
        ({"classifier": {"nhid": 0, "lr": 1}}, "MR", ("settings ['lr']", "expected nhid, optim")),
        ({"task_path": None}, "MR", ("MR: ", "no 'task_path'")),
        ({"kfold": 1}, "MR", ("MR: params['kfold'] is 1", "at least 2")),
        ({"kfold": 1}, "MRPC", ("MRPC: params['kfold'] is 1", "at least 2")),
        ({"kfold": "many"}, "STS12", ("params: params['kfold'] is 'many'", "at least 1")),
        ({"batch_size": 0.5}, "STS12", ("params: params['batch_size'] is 0.5", "at least 1")),
        ({"seed": "x"}, "STS12", ("params: params['seed'] is 'x'", "at least 0")),
        ({"classifier": "mlp"}, "MR", ("params: params['classifier'] is 'mlp'", "a dictionary")),
        ({"classifier": {"nhid": "no"}}, "MR", ("params: classifier['nhid'] is 'no'", "a whole")),
    ],
)  # fmt: skip
def test_bad_parameters(task_path: Path, params: dict[str, Any], name: str, facts: tuple[str, ...]) -> None:
    check_error(lambda: engine(task_path, **params).eval(name), *facts, kind=InputError)


@pytest.mark.parametrize(
    "name", ["STS12", "STSBenchmark-finetune", "MR", "TREC", "MRPC", "SICKEntailment", "Tense"]
)
def test_a_batcher_may_reuse_its_buffer(task_path: Path, name: str) -> None:
    buffer = np.zeros((500, Hashed.dim), dtype=np.float32)

    def buffered(params: Any, batch: list[list[str]]) -> FloatArray:
        buffer[: len(batch)] = Hashed()(params, batch)
        return buffer[: len(batch)]

    own, reused = (
        batched(task_path, batcher, batch_size=7, kfold=3).eval(name) for batcher in (Hashed(), buffered)
    )
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
    expected = batched(task_path, lambda _, batch: as_bfloat16(Hashed()(_, batch)).float().numpy())
    found = batched(task_path, lambda _, batch: given(Hashed()(_, batch)))
    np.testing.assert_equal(found.eval("STS12"), expected.eval("STS12"))


@pytest.mark.parametrize(
    ("returned", "facts"),
    [
        (lambda n: np.ones((n + 1, 2)), ("shape (8, 2)", "expected (7, dim)")),
        (lambda n: np.ones(n), ("shape (7,)", "expected (7, dim)")),
        (lambda n: np.ones((n, 0)), ("shape (7, 0)", "expected (7, dim)")),
        (lambda n: np.full((n, 2), np.nan), ("not finite", "7 of the 7", "first of '")),
        (lambda n: {"name": np.ones((n, 2))}, ("a dict", "keys 'name'", "expected numbers", "(7, dim)")),
        (lambda n: None, ("returned None", "expected numbers", "(7, dim)")),
        (lambda n: [[1.0] * (1 + place % 2) for place in range(n)], ("a list of 7 (list)", "no matrix")),
        (lambda n: [torch.ones(1 + place % 2) for place in range(n)], ("a list of 7 (Tensor)", "no matrix")),
        (lambda n: [["1", "2"]] * n, ("a list of 7 (list)", "no matrix")),
        (lambda n: torch.ones(n, 2) * 1j, ("type torch.complex64", "expected")),
        (lambda n: np.ones((n, 2)) * 1e300, ("overflow in float32", "7 of")),
        (lambda n: torch.full((n, 2), 1e300, dtype=torch.double), ("vectors overflow",)),
        (lambda n: torch.ones(n, 2, device="meta"), ("tensors", "device meta")),
        (lambda n: [torch.ones(2, device="meta")] * n, ("tensors", "device meta")),
    ],
)  # fmt: skip
def test_a_bad_batcher_is_named(task_path: Path, returned: Any, facts: tuple[str, ...]) -> None:
    for name in ("STS12", "MR", "STSBenchmark-finetune"):
        se = batched(task_path, lambda params, batch: returned(len(batch)), batch_size=7, kfold=3)
        with pytest.raises(BenchError) as caught:
            se.eval(name)
        assert caught.value.where == name
        assert not missing_facts(caught.value, "the batcher", *facts)
        assert "\n" not in str(caught.value)


def test_batches_of_different_widths_are_refused(task_path: Path) -> None:
    widths = iter((2, 3))
    se = batched(task_path, lambda params, batch: np.ones((len(batch), next(widths))), batch_size=7)
    with pytest.raises(BenchError, match="3 columns, after 2") as caught:
        se.eval("STS12")
    assert (caught.value.where, caught.value.expected) == ("STS12", "(7, 2)")


@pytest.mark.parametrize(
    ("similarity", "value", "expected"),
    [(lambda a, b: a * b, "a ndarray", "a number"), (lambda a, b: float("nan"), "nan", "a finite number")],
)
def test_a_bad_similarity_is_named(task_path: Path, similarity: Any, value: str, expected: str) -> None:
    with pytest.raises(BenchError) as caught:
        engine(task_path, similarity=similarity).eval("STS12")
    assert not missing_facts(caught.value, "STS12, ", "params['similarity']", value)
    assert caught.value.expected == expected


def test_an_undefined_correlation_has_one_line(
    task_path: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    found = batched(task_path, lambda _, batch: np.ones((len(batch), 2))).eval("STS12")
    name = next(iter(found))
    assert np.isnan(found[name]["spearman"][0])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(found) - 1
    assert not missing_facts(lines[0], f"STS12, {name}", "similarities are equal", "nan")
    assert not recwarn.list


# Arguments, parameters, batcher, engine per task and look-ups of SimCSE's evaluation.py.
SCRIPT = """
import argparse, sys
import torch
from transformers import AutoModel, AutoTokenizer

sys.path.insert(0, "./SentEval")
from bench import senteval_compat as senteval

TRANSFER = ["MR", "SST2", "TREC", "MRPC"]
parser = argparse.ArgumentParser()
parser.add_argument("--model_name_or_path")
parser.add_argument("--data")
parser.add_argument("--mode", choices=["dev", "test", "fasttest"], default="test")
args = parser.parse_args()
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = AutoModel.from_pretrained(args.model_name_or_path).to(device).eval()
words = AutoTokenizer.from_pretrained(args.model_name_or_path)
settings = {"task_path": args.data, "usepytorch": True, "kfold": 5}
settings["classifier"] = dict(nhid=0, optim="rmsprop", batch_size=128, tenacity=3, epoch_size=2)
if args.mode == "test":
    settings["kfold"] = 10
    settings["classifier"] = dict(nhid=0, optim="adam", batch_size=64, tenacity=5, epoch_size=4)

def prepare(params, samples):
    return None

def batcher(params, batch, max_length=None):
    if batch and batch[0] and isinstance(batch[0][0], bytes):
        batch = [[word.decode() for word in sentence] for sentence in batch]
    inputs = words([" ".join(sentence) for sentence in batch], return_tensors="pt", padding=True).to(device)
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True, return_dict=True).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    return ((states * mask).sum(1) / mask.sum(1)).cpu()

row, found = {}, {}
for task in ["STS12", "STSBenchmark", "SICKRelatedness", *TRANSFER]:
    found[task] = result = senteval.engine.SE(settings, batcher, prepare).eval(task)
    if args.mode == "dev" and task != "STS12":
        row[task] = result["devacc"] if task in TRANSFER else result["dev"]["spearman"][0] * 100
    elif args.mode != "dev" and task in TRANSFER:
        row[task] = result["acc"]
    elif args.mode != "dev":
        years = task.startswith("STS1")
        row[task] = 100 * (
            result["all"]["spearman"]["all"] if years else result["test"]["spearman"].correlation
        )
print(" ".join(f"{task}={value:.2f}" for task, value in row.items()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dev", "test", "fasttest"])
def test_simcses_evaluation_script_in_its_modes(
    tiny_bert: Path, task_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    script = tmp_path / "evaluation.py"
    script.write_text(SCRIPT)
    argv = ["evaluation.py", "--model_name_or_path", str(tiny_bert), "--data", str(task_path), "--mode", mode]
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    done = runpy.run_path(str(script), run_name="__main__")
    row, found = done["row"], done["found"]
    names = {"dev": ("STSB-dev", "SICKR-dev")}.get(mode, ("STSB", "SICKR"))
    tasks: Any = [SOURCES[name].read(task_path / "downstream") for name in names]
    scores = predict_similarities(TransformerEncoder(tiny_bert, "avg"), tasks)
    for task, name in zip(tasks, ("STSBenchmark", "SICKRelatedness"), strict=True):
        wanted = score_task(task, scores[task.id])[0].value
        assert row[name] == pytest.approx(100 * wanted, abs=1e-4)
    key = "devacc" if mode == "dev" else "acc"
    assert {name: row[name] for name in ("MR", "TREC")} == {name: found[name][key] for name in ("MR", "TREC")}
    assert set(found["MRPC"]) == {"devacc", "acc", "f1", "ndev", "ntest"}
    assert ("STS12" in row) == (mode != "dev")


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("utils", "create_dictionary cosine dotdict get_optimizer"),
        ("engine", "SE"),
        ("sts", "STSEval STS12Eval STS13Eval STS14Eval STS15Eval STS16Eval STSBenchmarkEval"),
        ("sts", "STSBenchmarkFinetune SICKRelatednessEval"),
        ("sick", "SICKEval SICKEntailmentEval"),
        ("binary", "CREval MREval MPQAEval SUBJEval"),
        ("mrpc", "MRPCEval"),
        ("sst", "SSTEval"),
        ("trec", "TRECEval"),
        ("probing", "PROBINGEval LengthEval WordContentEval DepthEval TopConstituentsEval BigramShiftEval"),
        ("probing", "TenseEval SubjNumberEval ObjNumberEval OddManOutEval CoordinationInversionEval"),
        ("snli", "SNLIEval"),
        ("rank", "ImageCaptionRetrievalEval"),
        ("tools.validation", "InnerKFoldClassifier KFoldClassifier SplitClassifier"),
        ("tools.classifier", "PyTorchClassifier MLP"),
        ("tools.relatedness", "RelatednessPytorch"),
        ("facebookresearch.engine", "SE"),
        ("facebookresearch.sts", "STSEval STS12Eval STSBenchmarkEval"),
        ("facebookresearch.sick", "SICKRelatednessEval SICKEntailmentEval"),
    ],
)  # fmt: skip
def test_submodules_have_sentevals_names(module: str, names: str) -> None:
    found = importlib.import_module(f"bench.senteval_compat.{module}")
    assert [name for name in names.split() if not hasattr(found, name)] == []
    if not module.startswith("facebook"):
        place: Any = senteval
        for part in module.split("."):
            place = getattr(place, part)  # without a further import, as scripts say senteval.utils.cosine
        assert place is found


def test_classes_of_tasks_run_alone(task_path: Path) -> None:
    params = senteval.utils.dotdict(
        {"batch_size": 16, "kfold": 3, "usepytorch": True, "classifier": {"nhid": 0}}
    )
    seen: list[list[str]] = []
    down = task_path / "downstream"
    for task_class, folder, name in (
        (senteval.sts.STS12Eval, "STS/STS12-en-test", "STS12"),
        (senteval.sts.SICKRelatednessEval, "SICK", "SICKRelatedness"),
        (senteval.binary.CREval, "CR", "CR"),
        (senteval.trec.TRECEval, "TREC", "TREC"),
        (senteval.sick.SICKEntailmentEval, "SICK", "SICKEntailment"),
    ):
        task = task_class(str(down / folder), seed=1111)
        task.do_prepare(params, lambda params, samples: seen.extend(samples))
        assert task.run(params, Hashed()) == engine(task_path).eval(name)
    assert all(isinstance(word, str) for words in seen for word in words)
    sst = senteval.sst.SSTEval(str(down / "SST" / "fine"), nclasses=5)
    assert sst.run(params, Hashed())["ntest"] == 120
    place = task_path / "probing"
    tense = engine(task_path).eval("Tense")
    assert senteval.probing.TenseEval(place).run(params, Hashed()) == tense
    whole = senteval.probing.PROBINGEval("Tense", str(place / "past_present.txt"))
    assert whole.run(params, Hashed()) == tense
    with pytest.raises(InputError, match=r"'Tens' .did you mean 'Tense'"):
        senteval.probing.PROBINGEval("Tens", place)
    with pytest.raises(InputError, match="are pickles"):
        senteval.rank.ImageCaptionRetrievalEval("COCO")
    with pytest.raises(InputError, match="SSTEval: nclasses 3"):
        senteval.sst.SSTEval(str(down / "SST" / "fine"), nclasses=3)
    with pytest.raises(DataError, match=r"MR: .*\.\.\./CR"):
        senteval.binary.CREval(str(down / "MR"))


def test_helpers() -> None:
    words, places = senteval.utils.create_dictionary([["b", "a", "b"], ["c", "a", "b"]])
    assert words == ["<s>", "</s>", "<p>", "b", "a", "c"]
    assert [places[word] for word in words] == list(range(6))
    assert senteval.utils.cosine(np.array([1.0, 0.0]), np.array([1.0, 1.0])) == pytest.approx(2**-0.5)
    params = senteval.utils.dotdict(task_path="x")
    params.word_vec = {"a": 1}
    del params.task_path
    assert (params, params.task_path, params.get("word_vec")) == ({"word_vec": {"a": 1}}, None, {"a": 1})
    assert task_base.fill_defaults({"batch_size": None}).batch_size == 128
