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
from bench.probes.interface import Need, Probe, ProbeInputs, ProbeOptions
from bench.probes.probe_data import VERSION, ProbeData
from bench.training.sentence_encoder import RecordingEncoder


@dataclass(frozen=True)
class Measurement:
    """What the probes found.

    Args:
        probes: By probe, and "version" and "data"; a probe that this encoder can't have is {"missing": why}.
        timing: Seconds that it took, and what probes measured by the clock.
    """

    probes: dict[str, Any]
    timing: dict[str, Any] = field(default_factory=dict)


def measure_probes(
    encoder: Encoder | PairScorer,
    data: ProbeData,
    names: Sequence[str],
    options: ProbeOptions | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Measure the named probes of an encoder.

    Args:
        encoder: The encoder, or a scorer of pairs.
        data: The sentences.
        names: Of :data:`bench.probes.PROBES`.
        options: How.
        progress: Called with finished sentences.

    Raises:
        BenchError: embeddings that aren't finite.
    """
    blas = importlib.import_module("threadpoolctl")
    with blas.threadpool_limits(torch.get_num_threads(), user_api="blas"):  # numpy takes all cores otherwise
        wall, cpu = time.perf_counter(), time.process_time()
        wanted = [PROBES[name] for name in names]
        inputs = _encode_inputs(encoder, data, wanted, options or ProbeOptions(), progress)
        timing: dict[str, Any] = {}
        for probe in wanted:
            if probe.clock:
                timing |= probe.clock(inputs)
        found = {probe.name: _measure_facts(probe, inputs) for probe in wanted}
        timing["wall_seconds"] = round(time.perf_counter() - wall, 3)
        timing["cpu_seconds"] = round(time.process_time() - cpu, 3)
    return Measurement({"version": VERSION, "data": data.facts, **found}, timing)


def drop_curves(probes: dict[str, Any]) -> dict[str, Any]:
    """Return the probes as a record holds them: without what is only drawn."""
    drawn = {name: probe.drawn for name, probe in PROBES.items()}
    return {
        name: {key: part for key, part in block.items() if key not in drawn.get(name, ())}
        if isinstance(block, dict)
        else block
        for name, block in probes.items()
    }


def _measure_facts(probe: Probe, inputs: ProbeInputs) -> dict[str, Any]:
    """What a probe finds, or why it can't; bad input stays an error."""
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
    """Encode the sentences once, and watch the transformers meanwhile where a probe wants that."""
    missing: dict[Need, str] = {}
    if isinstance(encoder, PairScorer):
        scorer = encoder
        why = "it compares two sentences directly: it has no vectors"
        missing |= {"vectors": why, "towers": why, "trace": why}
        none = Embeddings({}, np.empty((0, 0), np.float32))
        return ProbeInputs(data, options, missing, lambda: compare_pairs(scorer, *data.sides), None, none)
    watched = find_towers(encoder)
    if not watched:
        missing |= dict.fromkeys(("towers", "trace"), "it has no transformer")
    kept = [RecordingEncoder(part) for part in encoder.parts] if isinstance(encoder, SumEncoder) else []
    whole = SumEncoder(kept, encoder.weights) if isinstance(encoder, SumEncoder) else encoder
    observers: list[Observer] = []
    try:
        if watched:
            observers = [probe.observer(watched) for probe in wanted if probe.observer]
        with watch_towers(watched if observers else (), observers) as rows:
            embeddings = embed_sentences(whole, data.sentences, progress=progress)
        if any(not count or count % len(data.sentences) for count in rows):
            seen = f"{' and '.join(map(str, rows))} of {len(data.sentences)} sentences were seen to pass"
            raise UntraceableError(f"its transformers can't be watched: {seen} through them")
    except UntraceableError as error:
        missing["trace"] = str(error)
        embeddings = embed_sentences(whole, data.sentences, progress=progress)
    return ProbeInputs(
        data,
        options,
        missing,
        lambda: embeddings.cosine(*data.sides),
        encoder,
        embeddings,
        [Embeddings(embeddings.rows, part.seen[-1]) for part in kept],
        watched,
        observers,
    )
