"""What else runs on a device: probes, evaluations, encoding, export, pretraining, the gradient probe."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.data.corpus import make_corpus
from bench.data.suites import load_transfer
from bench.data.toy import toy_task
from bench.encoder import Encoder
from bench.eval.embed import stream
from bench.eval.sgd import Classifier
from bench.eval.sts import predict, score_suite
from bench.eval.transfer import Protocol
from bench.eval.transfer_suite import evaluate_transfer
from bench.eval.vector_file import VectorFile
from bench.gradient.training import watch_training
from bench.gradient.views import dropout_views, embedding_figures
from bench.nn import batches
from bench.nn.backbone import TransformerEncoder
from bench.nn.export import export_encoder, load_encoder
from bench.nn.folder import resolve
from bench.nn.precision import at_precision
from bench.nn.sum_encoder import SumEncoder
from bench.probes import PROBES
from bench.probes.data import ProbeData
from bench.probes.measure import measure
from bench.probes.probe import ProbeOptions
from bench.train.mlm import MlmSettings
from bench.train.precision import training_at
from bench.train.pretrain import PretrainSettings, add_head, pretrain
from tests.support.standin.device import TALLY
from tests.support.standin.methods import Case, Material, cases, context_of
from tests.support.standin.patches import device
from tests.support.training import toy_sentences

BUDGET = 256
"""Padded tokens of a batch on both sides, so that the sentences make several."""
_MLM = MlmSettings(
    max_length=20, steps=4, batch_size=8, lr=1e-3, warmup=0.25, mask=0.3, weight_decay=0.01
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """Something to do on the CPU and on the device.

    Args:
        name: Its name.
        call: From the material, where, and what is called after each step, to numbers in lists and dicts.
        precision: Of a training in it.
    """

    name: str
    call: Callable[[Material, str, Callable[[int], None]], Any]
    precision: str = "fp32"


def works() -> Iterator[Work]:
    """All of them."""
    for name in PROBES:
        yield Work(f"probe/{name}", partial(_probe, name))
    yield Work("probe/sum", _probe_sum)
    for pooling in ("cls", "avg", "avg_first_last", "avg_last_two", "pooler", "mask"):
        yield Work(f"encode/{pooling}", partial(_encode, pooling, "fp32"))
    yield Work("encode/bf16", partial(_encode, "cls", "bf16"))
    yield Work("encode/file", _encode_file)
    yield Work("pairs", _pairs)
    for solver in ("exact", "sgd"):
        yield Work(f"transfer/{solver}", partial(_transfer, solver))
    yield Work("export", _export)
    for precision in ("fp32", "bf16"):
        yield Work(f"pretrain/{precision}", _pretrain, precision)
        yield Work(f"add_head/{precision}", _add_head, precision)
    yield Work("gradient", _gradient)


def compared(work: Work, material: Material) -> dict[str, Any]:
    """What a work gives on both sides; for the device what it waited for, in all and for each step."""
    found: dict[str, Any] = {"name": work.name, "cpu": run(work, material, "cpu")}
    with device():
        found["device"] = run(work, material, "cuda")
    return found


def run(work: Work, material: Material, where: str) -> dict[str, Any]:
    """Do a work: "result" or "error"; "steps" (after each, and at the end); "batches" that were encoded."""
    TALLY.lap()
    laps: list[Any] = []
    found: dict[str, Any] = {"steps": laps}
    try:
        with training_at(work.precision), _small_batches(found):
            found["result"] = work.call(material, where, lambda _: laps.append(TALLY.lap()))
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    laps.append(TALLY.lap())
    return found


@contextmanager
def _small_batches(found: dict[str, Any]) -> Iterator[None]:
    """Let several batches be encoded, on both sides the same, and count them."""
    cut = batches.length_sorted_batches
    found["batches"] = 0

    def counted(lengths: Any, budget: int) -> Iterator[list[int]]:
        for batch in cut(lengths, budget):
            found["batches"] += 1
            yield batch

    with (
        patch.object(batches, "CUDA_BATCH_TOKENS", BUDGET),
        patch.object(batches, "CPU_BATCH_TOKENS", BUDGET),
        patch("bench.nn.backbone.length_sorted_batches", counted),
    ):
        yield


def _encoder(material: Material, where: str, pooling: str = "cls") -> TransformerEncoder:
    template = {"template": 'This sentence : "{sentence}" means {mask}.'} if pooling == "mask" else {}
    made = TransformerEncoder(material.bert, pooling, device=where, **template)
    TALLY.lap()  # what goes there when a model is loaded is no part of the work
    return made


def _summed(material: Material, where: str) -> Encoder:
    return SumEncoder([_encoder(material, where), _encoder(material, where, "avg")], [1.0, 0.5])


def _probed(encoder: Encoder, names: list[str]) -> Any:
    options = ProbeOptions(per_head=True, sentence="The doctor is reading a book.")
    found = measure(encoder, ProbeData("toy", (toy_task(),)), names, options)
    assert not any("missing" in found.probes[name] for name in names), found.probes
    return {name: found.probes[name] for name in names}


def _probe(name: str, material: Material, where: str, _: Callable[[int], None]) -> Any:
    return _probed(_encoder(material, where), [name])


def _probe_sum(material: Material, where: str, _: Callable[[int], None]) -> Any:
    return _probed(_summed(material, where), list(PROBES))


def _encode(pooling: str, precision: str, material: Material, where: str, _: Callable[[int], None]) -> Any:
    encoder = at_precision(_encoder(material, where, pooling), precision)
    return encoder.encode(toy_sentences()).tolist()


def _encode_file(material: Material, where: str, _: Callable[[int], None]) -> Any:
    encoder = _summed(material, where)
    path = Path(tempfile.mkdtemp(dir=material.out)) / "vectors.npy"
    with VectorFile(path, encoder.dim) as file:
        for vectors in stream(encoder, toy_sentences(), block=20):
            file.append(vectors)
    return np.load(path).tolist()


def _pairs(material: Material, where: str, _: Callable[[int], None]) -> Any:
    predictions = predict(_encoder(material, where), [toy_task()])
    scores = {score.subset: score.value for score in score_suite([toy_task()], predictions)}
    return {"scores": scores, "predictions": predictions["TOY"].tolist()}


def _transfer(solver: str, material: Material, where: str, _: Callable[[int], None]) -> Any:
    wanted = {"CR", "SST2", "MRPC", "TREC"}  # folded, with a dev split, of pairs, of several classes
    wanted -= {"TREC"} if solver == "exact" else set()  # hundreds of iterations at this size
    tasks = [
        task for task in load_transfer("transfer7", material.transfer, accept_data=True) if task.id in wanted
    ]
    assert len(tasks) == len(wanted)
    short = Protocol(solver, kfold=2, classifier=Classifier(epoch_size=1, max_epoch=2, tenacity=1))
    found = evaluate_transfer(_encoder(material, where), tasks, short)
    assert found.predictions is not None
    predictions = {task: rows.tolist() for task, rows in found.predictions.items()}
    scores = {f"{score.task}/{score.subset}/{score.metric}": score.value for score in found.scores}
    return {"scores": scores, "predictions": predictions}


def _export(material: Material, where: str, _: Callable[[int], None]) -> Any:
    found = {}
    for name, encoder in (("one", _encoder(material, where)), ("sum", _summed(material, where))):
        folder = Path(tempfile.mkdtemp(dir=material.out)) / name
        export_encoder(encoder, folder, "# A card\n")
        found[name] = load_encoder(folder, where).encode(toy_sentences()[:9]).tolist()
    return found


def _pretrain(material: Material, where: str, progress: Callable[[int], None]) -> Any:
    sizes = {"layers": 2, "hidden": 16, "heads": 2, "vocabulary": 120}
    settings = PretrainSettings(**asdict(_MLM), **sizes)
    out = Path(tempfile.mkdtemp(dir=material.out)) / "new"
    corpus = make_corpus("toy.txt", toy_sentences())
    facts = pretrain(corpus, settings, seed=1, out=out, command="c", device=where, progress=progress)
    return facts["loss_curve"]


def _add_head(material: Material, where: str, progress: Callable[[int], None]) -> Any:
    out = Path(tempfile.mkdtemp(dir=material.out)) / "head"
    corpus, backbone = make_corpus("toy.txt", toy_sentences()), resolve(str(material.bert), where="bert")
    facts = add_head(backbone, corpus, _MLM, seed=1, out=out, command="c", device=where, progress=progress)
    return [facts["loss_curve"], facts["masked_accuracy"]]


def _gradient(material: Material, where: str, _: Callable[[int], None]) -> Any:
    (stage,) = {case.stage.kind: case.stage for case in cases() if case.method == "infonce"}.values()
    out = Path(tempfile.mkdtemp(dir=material.out))
    context = context_of(Case("infonce", stage, "fp32"), material, out, where, lambda _: None)
    _, held, shots = watch_training(stage.train, context, share=0.5, batch=8)
    encoder = _encoder(material, where)
    for module in encoder.model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    views = dropout_views(encoder, held, 1)
    return {"shots": [asdict(shot) for shot in shots], "figures": embedding_figures(*views, batch=8)}
