"""Groups of made-up runs: one committed record with other seeds, scores and stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from bench.comparison.comparison import Comparison
from bench.comparison.evidence import SeedLevel
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group
from bench.comparison.wording import describe_comparison
from bench.records.record import AVERAGE, RunRecord, Score, parse_record
from bench.records.store import ResultStore

RESULTS = Path(__file__).parents[2] / "results"
STORE = ResultStore(RESULTS, "mini")
Keys = Callable[[int], Sequence[str]]


@cache
def _template() -> RunRecord:
    path = RESULTS / "mini/mini/tncse/seed-1/mini.json"
    return parse_record(path.read_text(), str(path))


def side(
    name: str,
    scores: Mapping[int | None, float | Sequence[float]] | Sequence[float],
    keys: Keys = lambda _: (),
    text: str | None = None,
) -> Group:
    """A method's runs: scores by seed (None: deterministic) or of seeds 1, 2, ...; several are tasks T0, ...

    ``keys`` are those of a seed's trained stages; ``text`` is the training text, default the method's own.
    """
    by_seed = scores if isinstance(scores, Mapping) else dict(enumerate(scores, start=1))
    records = [_record(name, seed, score, keys, text) for seed, score in by_seed.items()]
    return Group(name, tuple(CampaignRun(STORE, record) for record in records))


def _record(
    name: str, seed: int | None, score: float | Sequence[float], keys: Keys, text: str | None
) -> RunRecord:
    record = _template()
    each = [score] if isinstance(score, int | float) else list(score)
    named = {f"T{i}": value for i, value in enumerate(each)}
    found = [*named.items(), (AVERAGE, sum(each) / len(each))]
    stages = {f"s{i}": {"key": key, "sentences_seen": 10} for i, key in enumerate(keys(seed or 0))}
    return replace(
        record,
        method=name,
        name=name,
        seed=seed,
        options={"batch_size": 64, "of": name},
        tasks={task: next(iter(record.tasks.values())) for task in named},
        scores=tuple(Score(task, "all", "spearman", value, 1800) for task, value in found),
        training={"corpus": {"name": text or name, "sha256": text or name}, "stages": stages},
        notes=(),
    )


def shared(seed: int) -> tuple[str, ...]:
    """Keys of a stage that every method trains alike."""
    return (f"shared {seed}",)


def sentence(comparison: Comparison, start: str) -> str:
    """Return the only sentence of a comparison that starts so."""
    (line,) = (line for line in describe_comparison(comparison) if line.startswith(start))
    return line


def level_of(comparison: Comparison) -> SeedLevel:
    assert comparison.seed_level is not None
    return comparison.seed_level
