"""How long will it take? A short measurement of every method, for ``bench run --dry-run``."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.builder import Builder
from bench.cells import Cell
from bench.data.tasks import LabelledTask, PairTask
from bench.encoder import Encoder, PairScorer
from bench.jobs import Job
from bench.plan import Plan
from bench.runner import torch_threads
from bench.stages import Stage, StageCache, planned_steps

_SAMPLE = 192  # sentences to encode, stratified by length
_TRAINED = 128  # sentences to train on, but at least two steps


def estimate_seconds(plan: Plan, jobs: list[Job]) -> float:
    """Estimate the CPU time of jobs on one worker; dev evaluations and start-up are not in it."""
    cache = StageCache(plan.spec.results / ".stages")
    trained_seconds: dict[str, float] = {}
    sentence_seconds: dict[str, float] = {}
    counted: set[str] = set()
    total = 0.0
    for job in jobs:
        cell = job.cell
        sentences = _sentences(plan, job.suite)
        if cell.method not in sentence_seconds:
            trained_seconds[cell.method], sentence_seconds[cell.method] = _measure(plan, job, sentences)
        for stage in cell.all_stages:
            if stage.key not in counted and cache.find(stage) is None:
                counted.add(stage.key)
                total += trained_seconds[cell.method] * _trained(stage, plan)
        total += sentence_seconds[cell.method] * len(sentences) * (2 if cell.trains else 1)
    return total


def _measure(plan: Plan, job: Job, sentences: list[str]) -> tuple[float, float]:
    """Return seconds a sentence in training (0 for a method that doesn't train) and in evaluation."""
    cell = _shortened_cell(job.cell)
    stride = max(1, len(sentences) // _SAMPLE)
    sample = sentences[stride // 2 :: stride]
    with (
        tempfile.TemporaryDirectory() as scratch,
        torch_threads(plan.spec.threads, needs_torch=cell.model is not None),
    ):
        builder = Builder(cell, plan.spec.device, plan.training, StageCache(Path(scratch)))
        begin = time.perf_counter()
        encoder = builder.encoder()
        elapsed = time.perf_counter() - begin
        trained = sum(_trained(stage, plan) for stage in cell.all_stages)
        _encode(encoder, sample[:8])  # the first call is slower than the rest
        begin = time.perf_counter()
        _encode(encoder, sample)
        return elapsed / trained if trained else 0.0, (time.perf_counter() - begin) / len(sample)


def _sentences(plan: Plan, suite: str) -> list[str]:
    """Distinct sentences of a suite by length."""
    found: set[str] = set()
    for task in plan.suites[suite]:
        if isinstance(task, PairTask):
            found.update(sentence for pair in task.all_pairs() for sentence in pair)
        elif isinstance(task, LabelledTask):
            found.update(sentence for split in task.splits for sentence in (*split.first, *split.second))
    return sorted(found, key=lambda text: (len(text), text))


def _encode(encoder: Encoder | PairScorer, sentences: list[str]) -> None:
    if isinstance(encoder, PairScorer):
        encoder.score_pairs(sentences, sentences)
    else:
        encoder.encode(sentences)


def _shortened_cell(cell: Cell) -> Cell:
    members = tuple((role, _shortened_cell(member)) for role, member in cell.members)
    return replace(cell, stages=tuple(map(_shortened, cell.stages)), members=members)


def _shortened(stage: Stage) -> Stage:
    config = dict(stage.spec.config)
    steps = max(2, _TRAINED // int(config["batch_size"]))
    config |= {"steps": steps, "eval_every": steps + 1}
    return replace(stage, spec=replace(stage.spec, config=tuple(config.items())))


def _trained(stage: Stage, plan: Plan) -> int:
    """Sentences that a stage trains on."""
    config, corpus = dict(stage.spec.config), plan.training.corpus.sentences if plan.training else ()
    return planned_steps(config, len(corpus)) * int(config["batch_size"])
