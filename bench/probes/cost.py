"""Cost of an encoder: multiply-accumulates, parameters, sentences a second, memory (JTCSE, Table VII)."""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.nn.observer import ObservedTower
from bench.probes.interface import TOWERS, Probe, ProbeColumn, ProbeInputs

if TYPE_CHECKING:
    from torch import nn

LENGTH = 64
CONVENTION = (
    "GMAC of one sentence of 64 tokens by thop 0.1.1, all towers: without Q K^T and the weighting of the "
    "values, 4 an element of a LayerNorm; parameters of all towers, embeddings in; eta: the suite's average "
    "x 100 a GMAC"
)
TABLE = "; a table of token vectors: no multiply-accumulates, as thop counts no lookup and no mean"
_CLEAR_PEAK = "5"  # proc(5): resets the peak of the resident set


def count_gmacs(model: Any, length: int = LENGTH) -> float:
    """Multiply-accumulates of one sentence by thop on copied modules, / 1e9; BERT-base at 64 tokens 5.44.

    Another thop than the papers' raises InputError, a model for fewer tokens BenchError.

    >>> from transformers import BertConfig, BertModel
    >>> shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    >>> round(1e9 * count_gmacs(BertModel(BertConfig(vocab_size=30, **shape))))
    38976
    """
    import torch

    from bench.nn.backbone import silence_libraries

    thop = importlib.import_module("thop")
    if "stride" in inspect.signature(thop.profile).parameters:
        what = "the module thop is ultralytics-thop, which counts differently"
        raise InputError(what, hint="pip uninstall ultralytics-thop thop && pip install thop")
    most = getattr(model.config, "max_position_embeddings", length)
    if length > most:
        raise BenchError(f"the model takes {most} tokens at most, not {length}")
    # thop leaves buffers in the modules that it counts; the weights themselves are shared
    weights: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, weights).eval()
    twin.register_forward_pre_hook(lambda _, given, __: ((), {"input_ids": given[0]}), with_kwargs=True)
    ids = torch.zeros((1, length), dtype=torch.long, device=model.device)
    with torch.inference_mode(), silence_libraries():
        operations, _ = thop.profile(twin, inputs=(ids,), verbose=False)
    return float(operations) / 1e9


def count_parameters(models: Sequence[nn.Module]) -> int:
    """Count the parameters of all models, shared ones once."""
    return sum({id(p): p.numel() for model in models for p in model.parameters()}.values())


def table_parameters(encoder: object) -> int:
    """Count the numbers in the tables of token vectors of an encoder and its parts."""
    table = int(getattr(encoder, "table_parameters", 0))
    return table + sum(map(table_parameters, getattr(encoder, "parts", ())))


def encoder_cost(towers: Sequence[ObservedTower], table: int = 0) -> dict[str, Any]:
    """Return the cost of towers, and of the ``table`` parameters of token vectors; errors as count_gmacs."""
    models = [tower.model for tower in towers]
    gmacs = [count_gmacs(model) for model in models]
    return {
        "gmac": sum(gmacs, 0.0),
        "towers": gmacs,
        "parameters": count_parameters(models) + table,
        "length": LENGTH,
        "convention": CONVENTION + (TABLE if table else ""),
    }


def measure_speed(
    encoder: Encoder, sentences: Sequence[str], clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Encode the sentences again; return sentences a second (wall clock) and the peak of memory.

    ``peak_of`` is "cuda tensors" or the "resident set" during encoding, otherwise the "process so far"; the
    peak is None if the system has no figure.
    """
    encoder.encode(sentences[:8])  # a first call costs more
    read_peak, peak_of = _peak_meter()
    begin = clock()
    encoder.encode(sentences)
    seconds = clock() - begin
    peak = read_peak()
    return {
        "sentences": len(sentences),
        "sentences_per_second": len(sentences) / seconds,
        "peak_memory_mb": None if peak is None else peak / 2**20,
        "peak_of": peak_of,
    }


def _peak_meter() -> tuple[Callable[[], float | None], str]:
    """Start watching memory; return a reader of its peak in bytes, and a name of the memory."""
    import torch

    if torch.cuda.is_available() and torch.cuda.memory_allocated():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated, "cuda tensors"
    try:
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)
    except OSError:
        return _process_peak, "process so far"
    return _resident_peak, "resident set"


def _resident_peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _process_peak() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)


def _measure_cost(inputs: ProbeInputs) -> dict[str, Any]:
    table = table_parameters(inputs.encoder)
    if not inputs.towers and not table:
        raise BenchError(inputs.missing["towers"])
    return encoder_cost(inputs.towers, table)


def _measure_timing(inputs: ProbeInputs) -> dict[str, Any]:
    """Measure a tenth of the sentences, every k-th, from 32 to 512."""
    if inputs.encoder is None:
        return {}
    sentences = inputs.data.sentences
    count = min(max(len(sentences) // 10, 32), 512)
    return measure_speed(inputs.encoder, sentences[:: max(1, len(sentences) // count)][:count])


PROBE = Probe(
    "cost",
    "multiply-accumulates at 64 tokens, parameters, sentences a second, peak memory",
    needs="vectors",
    measure=_measure_cost,
    table=TOWERS,
    columns=(
        ProbeColumn("GMAC", ("gmac",)),
        ProbeColumn("M params", ("parameters",), ".1f", scale=1e-6),
        ProbeColumn("eta", ("eta",), ".2f"),
        ProbeColumn("sentences/s", ("sentences_per_second",), ".0f", timing=True),
        ProbeColumn("peak MB", ("peak_memory_mb",), ".0f", timing=True),
    ),
    clock=_measure_timing,
    packages=(("thop", "thop"), ("distutils", "setuptools")),  # thop imports distutils
)
