"""Scripts written for SentEval, with only the import line changed."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import senteval_compat as senteval
from bench.data.senteval import SOURCES
from bench.errors import DataError, InputError
from bench.eval.sts import predict_similarities, score_task
from bench.nn.backbone import TransformerEncoder
from bench.senteval_compat import task_base
from tests.support.senteval_toy import Hashed, engine

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
