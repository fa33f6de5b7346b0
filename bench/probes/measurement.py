"""All probes of an encoder from one traced pass over the sentences of a suite."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bench.encoder import Encoder, PairScorer, Progress
from bench.errors import BenchError, InputError
from bench.eval.embeddings import Embeddings, compare_pairs, embed_sentences
from bench.nn.hooks import find_towers, watch_towers
from bench.nn.observer import Observer, UntraceableError
from bench.nn.sum_encoder import SumEncoder
from bench.probes import PROBES
from bench.probes.interface import VERSION, Need, Probe, ProbeData, ProbeInputs, ProbeOptions
from bench.training.sentence_encoder import RecordingEncoder


@dataclass(frozen=True)
class Measurement:
    """The facts of probes."""

    probes: dict[str, Any]  # by probe, and "version", "data"; {"missing": why} for an impossible one
    timing: dict[str, Any] = field(default_factory=dict)  # seconds, and the probes' own timing


def measure_probes(
    encoder: Encoder | PairScorer,
    data: ProbeData,
    names: Sequence[str],
    options: ProbeOptions | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Measure the named probes of an encoder; raises BenchError for NaN or infinite vectors."""
    blas = importlib.import_module("threadpoolctl")
    with blas.threadpool_limits(torch.get_num_threads(), user_api="blas"):  # numpy takes all cores otherwise
        wall, cpu = time.perf_counter(), time.process_time()
        wanted = [PROBES[name] for name in names]
        inputs = _encode_inputs(encoder, data, wanted, options or ProbeOptions(), progress)
        timing: dict[str, Any] = {}
        for probe in wanted:
            if probe.clock:
                timing |= probe.clock(inputs)
        facts = {probe.name: _measure_facts(probe, inputs) for probe in wanted}
        timing["wall_seconds"] = round(time.perf_counter() - wall, 3)
        timing["cpu_seconds"] = round(time.process_time() - cpu, 3)
    return Measurement({"version": VERSION, "data": data.facts, **facts}, timing)


def drop_curves(probes: dict[str, Any]) -> dict[str, Any]:
    """Return the probes of a record, which leaves out the facts for figures."""
    kept = dict(probes)
    for name, probe in PROBES.items():
        if isinstance(kept.get(name), dict):
            kept[name] = {key: part for key, part in kept[name].items() if key not in probe.drawn}
    return kept


def _measure_facts(probe: Probe, inputs: ProbeInputs) -> dict[str, Any]:
    """Measure a probe, or return why it is impossible; bad input stays an error."""
    if probe.needs in inputs.missing:
        return {"missing": inputs.missing[probe.needs]}
    try:
        return probe.measure(inputs)
    except InputError:
        raise
    except BenchError as error:
        return {"missing": str(error)}


def _encode_inputs(
    encoder: Encoder | PairScorer,
    data: ProbeData,
    wanted: Sequence[Probe],
    options: ProbeOptions,
    progress: Progress | None,
) -> ProbeInputs:
    """Encode the sentences once, and watch the transformers meanwhile if a probe needs that."""
    missing: dict[Need, str] = {}
    if isinstance(encoder, PairScorer):
        scorer = encoder
        why = "it compares two sentences directly: it has no vectors"
        missing |= {"vectors": why, "towers": why, "trace": why}
        none = Embeddings({}, np.empty((0, 0), np.float32))
        return ProbeInputs(data, options, missing, lambda: compare_pairs(scorer, *data.sides), None, none)
    towers = find_towers(encoder)
    if not towers:
        missing |= dict.fromkeys(("towers", "trace"), "it has no transformer")
    whole, recorders = encoder, list[RecordingEncoder]()
    if isinstance(encoder, SumEncoder):
        recorders = [RecordingEncoder(part) for part in encoder.parts]
        whole = SumEncoder(recorders, encoder.weights)
    observers: list[Observer] = []
    try:
        if towers:
            observers = [probe.observer(towers) for probe in wanted if probe.observer]
        with watch_towers(towers if observers else (), observers) as rows:
            embeddings = embed_sentences(whole, data.sentences, progress=progress)
        if any(not count or count % len(data.sentences) for count in rows):
            seen = f"{' and '.join(map(str, rows))} of {len(data.sentences)} sentences were seen to pass"
            raise UntraceableError(f"its transformers can't be watched: {seen} through them")
    except UntraceableError as error:
        missing["trace"] = str(error)
        embeddings = embed_sentences(whole, data.sentences, progress=progress)
    parts = [Embeddings(embeddings.rows, recorder.seen[-1]) for recorder in recorders]
    return ProbeInputs(
        data,
        options,
        missing,
        lambda: embeddings.cosine(*data.sides),
        encoder,
        embeddings,
        parts,
        towers,
        observers,
    )
