"""What else runs on a device: probes, evaluations, encoding, export, pretraining, the gradient probe."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from bench.baselines.whitening import TargetWhitening
from bench.data.corpus import make_corpus
from bench.data.data_source import DataSource
from bench.data.suites import load_transfer
from bench.data.toy_suite import make_toy_task
from bench.encoder import Encoder
from bench.eval.embeddings import stream_embeddings
from bench.eval.logistic_regression import LogisticSolver
from bench.eval.sgd_classifier import ClassifierSettings
from bench.eval.sts import predict_similarities, score_suite
from bench.eval.transfer import Protocol
from bench.eval.transfer_suite import evaluate_transfer
from bench.eval.vector_storage import VectorFile
from bench.gradient.held_out import watch_training
from bench.gradient.real_embeddings import dropout_views, embedding_figures
from bench.nn import backbone, encoder_folder
from bench.nn import tokens as batches
from bench.nn.backbone import TransformerEncoder
from bench.nn.denoising import DenoisedEncoder
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.nn.half_precision import cast_encoder
from bench.nn.model_folder import resolve_folder
from bench.nn.sum_encoder import SumEncoder
from bench.probes import PROBES, cost
from bench.probes.interface import ProbeData, ProbeOptions
from bench.probes.measurement import measure_probes
from bench.training import masked_lm_training
from bench.training.masked_lm_training import MlmSettings
from bench.training.mixed_precision import train_at_precision
from bench.training.pretraining import PretrainSettings, pretrain, train_mlm_head
from bench.training.randomness import own_random_state
from tests.support.standin.device import TALLY
from tests.support.standin.methods import Case, Material, cases, context_of, uncounted
from tests.support.standin.patches import device
from tests.support.standin.tally import ENCODING
from tests.support.standin.target import played
from tests.support.training import toy_sentences

BUDGET = 256
"""Padded tokens of a batch on both sides, so that the sentences make several."""
TOGETHER = 2
"""Batches that the host reads together there."""
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
    yield Work("probe/denoised", _probe_denoised)
    for pooling in ("cls", "avg", "avg_first_last", "avg_last_two", "pooler", "mask"):
        yield Work(f"encode/{pooling}", partial(_encode, pooling, "fp32"))
    yield Work("encode/bf16", partial(_encode, "cls", "bf16"))
    yield Work("encode/denoised", _encode_denoised)
    yield Work("encode/sum", _encode_sum)
    yield Work("encode/file", _encode_file)
    yield Work("pairs", _pairs)
    yield Work("pairs/whitening", _whitened)
    yield Work("fits/two classes", partial(_fits, 2))
    yield Work("fits/three classes", partial(_fits, 3))
    yield Work("transfer/exact", partial(_transfer, "exact", {"SST2"}))
    yield Work("transfer/sgd", partial(_transfer, "sgd", {"CR", "MRPC", "TREC"}))
    yield Work("export", _export)
    for precision in ("fp32", "bf16"):
        yield Work(f"pretrain/{precision}", _pretrain, precision)
        yield Work(f"add_head/{precision}", _add_head, precision)
    yield Work("gradient", _gradient)
    yield Work("random state", _random_state)


def compared(work: Work, material: Material) -> dict[str, Any]:
    """What a work gives on both sides; for the device what it waited for, in all and for each step."""
    found: dict[str, Any] = {"name": work.name, "cpu": run(work, material, "cpu")}
    with device():
        found["device"] = run(work, material, played())
    return found


def run(work: Work, material: Material, where: str) -> dict[str, Any]:
    """Do a work.

    Returns:
        "result" or "error"; "steps", what the host waited for (after each, and at the end), and how often
        encoding may read the device: once for TOGETHER batches of a call.
    """
    TALLY.lap()
    laps: list[Any] = []
    found: dict[str, Any] = {"steps": laps}
    try:
        with train_at_precision(work.precision), _small_batches():
            found["result"] = work.call(material, where, lambda _: laps.append(TALLY.lap()))
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    laps.append(TALLY.lap())
    return found


@contextmanager
def _small_batches() -> Iterator[None]:
    """Let several batches be encoded, on both sides the same, and count them."""
    cut = batches.length_sorted_batches

    def counted(lengths: Any, budget: int, *, equal: bool = False) -> Iterator[list[int]]:
        for number, batch in enumerate(cut(lengths, budget, equal=equal)):
            if number % TOGETHER == 0:
                TALLY.note(ENCODING, "batches")
            yield batch

    with (
        patch.object(backbone, "_TOGETHER", TOGETHER),
        patch.object(batches, "CUDA_BATCH_TOKENS", BUDGET),
        patch.object(batches, "MPS_BATCH_TOKENS", BUDGET),
        patch.object(batches, "CPU_BATCH_TOKENS", BUDGET),
        patch("bench.nn.backbone.length_sorted_batches", counted),
    ):
        yield


def _encoder(material: Material, where: str, pooling: str = "cls") -> TransformerEncoder:
    template = {"template": 'This sentence : "{sentence}" means {mask}.'} if pooling == "mask" else {}
    made = TransformerEncoder(material.bert, pooling, device=where, **template)
    TALLY.lap()  # what goes there when a model is loaded is no part of the work
    return made


def _denoised(material: Material, where: str) -> TransformerEncoder:
    made = DenoisedEncoder(material.bert, device=where)
    TALLY.lap()
    return made


def _summed(material: Material, where: str) -> Encoder:
    return SumEncoder([_encoder(material, where), _encoder(material, where, "avg")], [1.0, 0.5])


def _probed(encoder: Encoder, names: list[str]) -> Any:
    options = ProbeOptions(per_head=True, sentence="The doctor is reading a book.")
    with patch.object(cost.count_gmacs, "__defaults__", (20,)):  # the tiny model has no place for 64 tokens
        found = measure_probes(encoder, ProbeData("toy", (make_toy_task(),)), names, options)
    assert not any("missing" in found.probes[name] for name in names), found.probes
    return {name: found.probes[name] for name in names}


def _probe(name: str, material: Material, where: str, _: Callable[[int], None]) -> Any:
    return _probed(_encoder(material, where), [name])


def _probe_sum(material: Material, where: str, _: Callable[[int], None]) -> Any:
    return _probed(_summed(material, where), list(PROBES))


def _probe_denoised(material: Material, where: str, _: Callable[[int], None]) -> Any:
    return _probed(_denoised(material, where), ["cls_energy"])


def _encode(pooling: str, precision: str, material: Material, where: str, _: Callable[[int], None]) -> Any:
    encoder = cast_encoder(_encoder(material, where, pooling), precision)
    return encoder.encode(toy_sentences()).tolist()


def _encode_denoised(material: Material, where: str, _: Callable[[int], None]) -> Any:
    return _denoised(material, where).encode(toy_sentences()).tolist()


def _encode_sum(material: Material, where: str, _: Callable[[int], None]) -> Any:
    return _summed(material, where).encode(toy_sentences()).tolist()


def _encode_file(material: Material, where: str, _: Callable[[int], None]) -> Any:
    encoder = _summed(material, where)
    path = Path(tempfile.mkdtemp(dir=material.out)) / "vectors.npy"
    with VectorFile(path, encoder.dim) as file:
        for vectors in stream_embeddings(encoder, toy_sentences(), block=20):
            file.append(vectors)
    return np.load(path).tolist()


def _pairs(material: Material, where: str, _: Callable[[int], None]) -> Any:
    predictions = predict_similarities(_encoder(material, where), [make_toy_task()])
    scores = {score.subset: score.value for score in score_suite([make_toy_task()], predictions)}
    return {"scores": scores, "predictions": predictions["TOY"].tolist()}


def _whitened(material: Material, where: str, _: Callable[[int], None]) -> Any:
    scorer = TargetWhitening(_encoder(material, where, "avg"), 4)
    return scorer.score_pairs(*ProbeData("toy", (make_toy_task(),)).sides).tolist()


def _fits(classes: int, _: Material, where: str, __: Callable[[int], None]) -> Any:
    draws = np.random.default_rng(0)
    features, labels = draws.normal(size=(300, 20)), draws.integers(classes, size=300)
    features[:, 0] += labels
    rows = [np.flatnonzero(draws.random(300) < 0.9) for _ in range(8)]
    solution = LogisticSolver(features, labels, classes, where).fit(rows, [1e-3, 1e-2] * 4)
    return solution.weights.tolist()


def _transfer(solver: str, wanted: set[str], material: Material, where: str, _: Callable[[int], None]) -> Any:
    tasks = [
        task
        for task in load_transfer("transfer7", DataSource(material.transfer, accept_changed=True))
        if task.id in wanted
    ]
    assert len(tasks) == len(wanted)
    short = Protocol(solver, kfold=2, classifier=ClassifierSettings(epoch_size=1, max_epoch=2, tenacity=1))
    encoder = _summed(material, where) if solver == "exact" else _encoder(material, where)
    found = evaluate_transfer(encoder, tasks, short)
    assert found.predictions is not None
    predictions = {task: rows.tolist() for task, rows in found.predictions.items()}
    scores = {f"{score.task}/{score.subset}/{score.metric}": score.value for score in found.scores}
    return {"scores": scores, "predictions": predictions}


def _export(material: Material, where: str, _: Callable[[int], None]) -> Any:
    found = {}
    load = uncounted(encoder_folder._load_transformer)
    for name, encoder in (("one", _encoder(material, where)), ("sum", _summed(material, where))):
        folder = Path(tempfile.mkdtemp(dir=material.out)) / name
        with patch.object(encoder_folder, "_load_transformer", load):
            export_encoder(encoder, folder, "# A card\n")  # it looks whether what it wrote gives the same
            found[name] = load_encoder(folder, where).encode(toy_sentences()[:9]).tolist()
    return found


def _unrounded() -> AbstractContextManager[object]:
    """Curves of losses with all their digits."""
    return patch.object(
        masked_lm_training, "round", lambda value, digits=0: value if digits else round(value), create=True
    )


def _pretrain(material: Material, where: str, progress: Callable[[int], None]) -> Any:
    sizes = {"layers": 2, "hidden": 16, "heads": 2, "vocabulary": 120}
    settings = PretrainSettings(**asdict(_MLM), **sizes)
    out = Path(tempfile.mkdtemp(dir=material.out)) / "new"
    corpus = make_corpus("toy.txt", toy_sentences())
    with _unrounded():
        facts = pretrain(corpus, settings, seed=1, out=out, command="c", device=where, progress=progress)
    return facts["loss_curve"]


def _add_head(material: Material, where: str, progress: Callable[[int], None]) -> Any:
    out = Path(tempfile.mkdtemp(dir=material.out)) / "head"
    corpus, model = make_corpus("toy.txt", toy_sentences()), resolve_folder(str(material.bert), where="bert")
    given: dict[str, Any] = {"seed": 1, "out": out, "command": "c", "device": where, "progress": progress}
    with _unrounded():
        facts = train_mlm_head(model, corpus, _MLM, **given)
    return [facts["loss_curve"], facts["masked_accuracy"]]


def _random_state(_: Material, where: str, __: Callable[[int], None]) -> Any:
    """Whether a stream gives the same draws again, not another's, and leaves the state outside as it was."""

    def drawn(stream: str) -> Any:
        with own_random_state(1, stream, where):
            return torch.rand(3, device=where).tolist()

    with own_random_state(2, "outside", where):
        alone = [torch.rand(3, device=where).tolist() for _ in range(2)]
    with own_random_state(2, "outside", where):
        first = torch.rand(3, device=where).tolist()
        one, again, other = drawn("one"), drawn("one"), drawn("other")
        mixed = [first, torch.rand(3, device=where).tolist()]
    return [one == again, one == other, alone == mixed]


def _gradient(material: Material, where: str, _: Callable[[int], None]) -> Any:
    known = cases(rest=True)
    (stage,) = {case.stage.kind: case.stage for case in known if case.methods == ("infonce",)}.values()
    out = Path(tempfile.mkdtemp(dir=material.out))
    context = context_of(Case(("infonce",), stage, "fp32"), material, out, where, lambda _: None)
    _facts, held, shots = watch_training(stage.train, context, share=0.5, batch=8)
    encoder = _encoder(material, where)
    for module in encoder.model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    views = dropout_views(encoder, held, 1)
    return {"shots": [asdict(shot) for shot in shots], "figures": embedding_figures(*views, batch=8)}
