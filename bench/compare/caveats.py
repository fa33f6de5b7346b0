"""In what two groups of runs differ beside their scores: what a comparison of them can't tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bench.compare.select import Group
from bench.errors import printable
from bench.records.record import RunRecord

_MOST = 6  # differing options that a sentence names
_HARDWARE = ("device", "threads", "precision", "platform")


def data_orders(record: RunRecord) -> frozenset[tuple[str, int]]:
    """Return (training text's sha256, batch size) of a run's stages, which with the seed order its sentences.

    Empty for a run that doesn't train, and where stages have several batch sizes.
    """
    sizes = {size for name, size in record.options.items() if name.split(".")[-1] == "batch_size"}
    if len(sizes) != 1 or "corpus" not in record.training:
        return frozenset()
    corpus = record.training["corpus"]
    texts = {stage.get("text", corpus).get("sha256") for stage in record.training.get("stages", {}).values()}
    return frozenset((text, size) for text in texts for size in sizes)


def pairing(a: Group, b: Group) -> str | None:
    """Say what makes the runs of a seed a pair: trained stages in common, or one data order; None if nothing.

    Either needs the same seeds on both sides.
    """
    if not a.seeds or a.seeds != b.seeds:
        return None
    others = {run.record.seed: run.record for run in b.runs}
    stages = [_stage_keys(run.record) & _stage_keys(others[run.record.seed]) for run in a.runs]
    if all(stages):
        return f"have {min(map(len, stages))} trained stage(s) in common"
    orders = {data_orders(run.record) for group in (a, b) for run in group.runs}
    if len(orders) == 1 and orders != {frozenset()}:
        return "see the same sentences in the same order"
    return None


def limits(a: Group, b: Group) -> list[str]:
    """Say in sentences what else differs: specification, training, data order, versions and hardware."""
    sentences = [_specification(a, b)]
    for what, read in (("profile", _profile), ("backbone", _backbone), ("training text", _corpus)):
        sentences += _differs(a, b, what, read)
    sentences += _differs(a, b, "training sentences seen by a run", _sentences)
    if not (a.is_checkpoint or b.is_checkpoint) and (shared := pairing(a, b)):
        sentences.append(f"Runs of one seed {shared}, which Welch's interval and the permutation don't use.")
    sentences += _differs(a, b, "software and hardware", _machine)
    return sentences


def _specification(a: Group, b: Group) -> str:
    one, other = a.runs[0].record, b.runs[0].record
    if one.family == other.family:
        first = {run.record.key: run.record.scores for run in a.runs}
        again = [run.record.scores == first[run.record.key] for run in b.runs if run.record.key in first]
        repeats = f"; {len(again)} runs are on both sides, {sum(again)} of them equal to the last digit"
        return f"Both sides have one specification{repeats if again else ''}."
    if one.name != other.name:
        return f"The methods differ: {printable(one.name)} and {printable(other.name)}."
    names = {**one.options, **other.options}
    pairs = {name: (one.options.get(name), other.options.get(name)) for name in names}
    pairs["numerics"] = one.numerics, other.numerics
    pairs["training precision"] = one.train_precision, other.train_precision
    differing = [
        f"{name} {mine} against {theirs}" for name, (mine, theirs) in pairs.items() if mine != theirs
    ]
    if not differing:
        return (
            "The options are the same, but the specifications differ (code version, text, backbone or world)."
        )
    shown = map(printable, differing[:_MOST])
    more = f" and {len(differing) - _MOST} more" if len(differing) > _MOST else ""
    return f"The specifications differ in {', '.join(shown)}{more}."


def _differs(a: Group, b: Group, what: str, read: Callable[[RunRecord], Iterable[str]]) -> list[str]:
    """One sentence if a fact isn't the same on both sides; nothing where a side has none."""
    one, other = ({fact for run in group.runs for fact in read(run.record)} for group in (a, b))
    if one == other or not one or not other:
        return []
    first, second = (", ".join(sorted(map(printable, facts))) for facts in (one - other, other - one))
    return [f"Different {what}: {first or 'the same less one'} against {second or 'the same less one'}."]


def _stage_keys(record: RunRecord) -> set[str]:
    return {str(stage.get("key")) for stage in record.training.get("stages", {}).values()}


def _profile(record: RunRecord) -> list[str]:
    return [record.profile]


def _backbone(record: RunRecord) -> list[str]:
    return [f"{record.backbone['name']} {record.backbone['sha256'][:8]}"] if record.backbone else []


def _corpus(record: RunRecord) -> list[str]:
    corpus: dict[str, Any] = record.training.get("corpus", {})
    return [f"{corpus.get('name')} {str(corpus.get('sha256'))[:8]}"] if corpus else []


def _sentences(record: RunRecord) -> list[str]:
    stages = record.training.get("stages", {}).values()
    return [f"{sum(stage['sentences_seen'] for stage in stages):,}"] if stages else []


def _machine(record: RunRecord) -> list[str]:
    facts = record.provenance
    versions = [f"{name} {version}" for name, version in facts.get("versions", {}).items()]
    return versions + [f"{name} {facts[name]}" for name in _HARDWARE if name in facts]
