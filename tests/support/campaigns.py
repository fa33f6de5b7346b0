"""Synthetic campaigns for tests of reports: records that no method made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.records.record import RunRecord, Score
from bench.records.store import ResultStore

TASKS = {"STS12": 40, "STSB": 30}
HOSTILE = (
    "<script>document.title='owned'</script>",
    "a & 50% _b_ \\input{x} $y$ #1 ~^{z}",
    "\"quoted\" 'name' <img src=x onerror=alert(1)>",
    "é ñ 中文 \N{GRINNING FACE} ±†",
    "long[" + ",".join(f"option{i}=value{i}" for i in range(60)) + "]",
    "word" * 80,
)


def make_record(
    method: str,
    seed: int | None,
    scores: dict[str, float],
    *,
    name: str = "",
    suite: str = "sts7",
    metric: str = "spearman",
    options: dict[str, object] | None = None,
    backbone: str = "bert-base-uncased",
    corpus: tuple[str, int] | None = ("wiki1m_for_simcse.txt", 1_000_000),
    parts: int = 1,
    probes: dict[str, object] | None = None,
    profile: str = "mini",
) -> RunRecord:
    """A finished record; ``avg`` is the mean of the scores, ``corpus`` None for a method without training."""
    average = sum(scores.values()) / len(scores)
    found = [Score(task, "all", metric, value, 10) for task, value in scores.items()]
    training, timing = {}, {}
    if corpus is not None:
        stage = {
            "key": f"{method} {seed}",
            "sentences_seen": 640,
            "dev_curve": [[10, 0.5], [20, 0.6]],
            "collapse_curve": [[10, 4.0, 0.4, 0.7], [20, 3.5, 0.5, 0.6]],
        }
        training = {
            "corpus": {"name": corpus[0], "sentences": corpus[1], "sha256": "c" * 64},
            "stages": {"simcse": stage},
        }
        timing = {"training_cpu_seconds": {"simcse": 12.5}}
    return RunRecord(
        profile,
        method,
        name or method.split("[")[0],
        1,
        dict(options or {}),
        {"name": backbone, "sha256": "b" * 64},
        seed,
        suite,
        {task: {"sha256": task, "reference": True, "pairs": 10} for task in scores},
        f"key {method} {seed}",
        "ok",
        (*found, Score("avg", "all", metric, average, len(scores))),
        training=training,
        timing=timing,
        probes=dict(probes or {}),
        provenance={
            "encoder": {"parts": parts},
            "device": "cpu",
            "git": {"commit": "0" * 40, "dirty": False},
        },
    )


def with_last(record: RunRecord, shift: float) -> RunRecord:
    """The record with scores of the last checkpoint too, each less by ``shift`` than the selected one's."""
    last = (replace(s, metric=f"{s.metric}_last", value=s.value - shift) for s in record.scores)
    return replace(record, scores=(*record.scores, *last))


def kinds_record(
    method: str,
    seed: int,
    kinds: dict[str, str] | None = None,
    metrics: tuple[str, ...] = ("ndcg@10", "map@1", "map@10", "recall@1"),
    *,
    suite: str = "varied",
    profile: str = "mini",
    corpus: tuple[str, int] | None = ("wiki1m_for_simcse.txt", 1_000_000),
) -> RunRecord:
    """A record of a suite of several kinds of task; those of retrieval have metrics at ranks."""
    kinds = kinds or {"R1": "Retrieval", "R2": "Retrieval", "C": "Classification"}
    values = {task: 0.1 * (place + 1) + 0.01 * seed for place, task in enumerate(kinds)}
    record = make_record(
        method, seed, values, suite=suite, metric="main_score", profile=profile, corpus=corpus
    )
    scores = list(record.scores)
    for task, kind in kinds.items():
        record.tasks[task]["type"] = kind
        if kind == "Retrieval":
            scores += [
                Score(task, "all", name, values[task] + 0.1 * place, 10) for place, name in enumerate(metrics)
            ]
    for kind in dict.fromkeys(kinds.values()):
        of_kind = [values[task] for task in kinds if kinds[task] == kind]
        scores.append(Score(kind, "mean", record.metric, sum(of_kind) / len(of_kind), len(of_kind)))
    return replace(record, scores=tuple(scores))


def probes_of(number: int) -> dict[str, object]:
    """Probes as a record holds them, other ones for every number."""
    layers = [[0.1 * layer, 0.2, 0.05, 0.6] for layer in range(1, 4)]
    return {
        "version": 1,
        "data": {"tasks": {"STSB-dev": {"sha256": "d"}}, "sentences": 100},
        "alignment": {"value": 0.2 + 0.01 * number, "convention": "as it is"},
        "uniformity": {"value": -2.0 - 0.1 * number, "convention": "as it is"},
        "cls_energy": {"value": 0.3 + 0.02 * number, "pooling": "cls", "convention": "as it is"},
        "attention_sink": {"value": 0.4, "layers": layers, "convention": "as it is"},
        "cost": {"gmac": 1.5, "parameters": 2_000_000, "convention": "as it is"},
    }


def hostile_campaign(root: Path) -> ResultStore:
    """A campaign ``camp`` below ``root`` of five seeds of simcse and two of methods with hostile names."""
    store, rng = ResultStore(root, "camp"), np.random.default_rng(1)
    for number, method in enumerate(("simcse", *HOSTILE)):
        for seed in range(1, 6 if method == "simcse" else 3):
            scores = {task: 0.5 + 0.03 * number + 0.001 * float(rng.normal()) for task in TASKS}
            record = make_record(
                method, seed, scores, name=method, probes=probes_of(number), parts=1 + number % 2
            )
            for task, n in TASKS.items():
                record.tasks[task]["pairs"] = n
            predictions = {task: rng.uniform(-1, 1, n).astype(np.float32) for task, n in TASKS.items()}
            store.write(record.place, record, predictions)
    return store
