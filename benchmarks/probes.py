"""All probes against encoding alone, in one run, on the same encoder and sentences.

A full pass is everything that ``bench run --probes all`` adds to a record: one traced forward pass over the
sentences, the figures of the vectors, multiply-accumulates, and a tenth of the sentences once more for
sentences a second. Both sides take turns, ``--rounds`` times each; the least CPU time of either counts. The
traced pass must give the same vectors to the bit.

    python benchmarks/probes.py [--profile minilm --data data] [--pairs 300] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from claim import add_json, bounded, show, timed

from bench.config import profiles
from bench.data.data_source import DataSource, data_folder
from bench.data.suites import load_suite
from bench.nn.backbone import TransformerEncoder
from bench.nn.hooks import find_towers, watch_towers
from bench.nn.model_folder import resolve_folder
from bench.nn.sum_encoder import SumEncoder
from bench.probes import PROBES
from bench.probes.interface import ProbeData
from bench.probes.measurement import measure_probes

LIMIT = 1.6


def sentences_of(profile: str, data: Path | None, pairs: int) -> ProbeData:
    """The first pairs of the profile's dev set."""
    suite = profiles.load_profile(profile).dev
    (task,) = load_suite(suite, DataSource(data))[1]
    (subset,) = task.subsets
    few = replace(subset, first=subset.first[:pairs], second=subset.second[:pairs], gold=subset.gold[:pairs])
    return ProbeData(suite, (replace(task, subsets=(few,)),))


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--profile", choices=("mini", "minilm"), default="minilm")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--twin", action="store_true", help="two towers")
    add_json(parser)
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(arguments.threads)
    folder = data_folder(arguments.data)
    if folder is None and arguments.profile != "mini":
        parser.error("evaluation data needed: --data DIR or BENCH_DATA, or --profile mini")
    data = sentences_of(arguments.profile, folder, arguments.pairs)
    reference = profiles.backbone_reference(profiles.load_profile(arguments.profile))
    backbone = resolve_folder(reference, where="--profile").path
    encoder: Any = TransformerEncoder(backbone)
    if arguments.twin:
        encoder = SumEncoder([encoder, TransformerEncoder(backbone)])
    watched = find_towers(encoder)

    def trace() -> None:
        observers = [probe.observer(watched) for probe in PROBES.values() if probe.observer]
        with watch_towers(watched, observers):
            assert np.array_equal(encoder.encode(data.sentences), plain)

    plain = encoder.encode(data.sentences)
    measure_probes(encoder, data, tuple(PROBES))  # a first call, so that no side pays for imports
    sides: dict[str, Callable[[], Any]] = {
        "encode": lambda: encoder.encode(data.sentences),
        "trace": trace,
        "probes": lambda: measure_probes(encoder, data, tuple(PROBES)),
    }
    rounds = [{name: timed(side)[2] for name, side in sides.items()} for _ in range(arguments.rounds)]
    least = {name: min(each[name] for each in rounds) for name in sides}
    ratio = least["probes"] / least["encode"]
    print(
        json.dumps(
            {
                "benchmark": "probes",
                "profile": arguments.profile,
                "towers": len(watched),
                "sentences": len(data.sentences),
                "threads": arguments.threads,
                "encode_cpu_seconds": round(least["encode"], 2),
                "traced_ratio": round(least["trace"] / least["encode"], 2),
                "ratio": round(ratio, 2),
                "limit": LIMIT,
            }
        )
    )
    what = f"all probes of {len(data.sentences)} sentences, {arguments.profile}: encoding them"
    claim = bounded("probes", what, ours=least["probes"], peer=least["encode"], goal=LIMIT)
    show(arguments.json, claim)
    assert arguments.json or ratio <= LIMIT, f"a full pass takes {ratio:.2f} times as long as encoding alone"


if __name__ == "__main__":
    main()
