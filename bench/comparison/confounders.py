"""What else differs between two groups of runs, so that a comparison can't tell what made the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from bench.comparison.selection import Group, format_seeds, group_by
from bench.errors import printable
from bench.records.fingerprint import NONE, SPECIFICATION, UNSET, compute_record_key, find_fact_differences
from bench.records.machines import machine_differences
from bench.records.record import RunRecord, count_training_sentences, find_dev_tasks, is_supervised

_MOST = 6  # differing options that a sentence names


def read_data_orders(record: RunRecord) -> frozenset[tuple[str, int]]:
    """Return (training text's sha256, batch size) of a run's stages, which with the seed order its sentences.

    Empty for a run that doesn't train, and where stages have several batch sizes.
    """
    sizes = {size for name, size in record.options.items() if name.split(".")[-1] == "batch_size"}
    if len(sizes) != 1 or "corpus" not in record.training:
        return frozenset()
    corpus = record.training["corpus"]
    texts = {stage.get("text", corpus).get("sha256") for stage in record.training.get("stages", {}).values()}
    return frozenset((text, size) for text in texts for size in sizes)


def describe_pairing(a: Group, b: Group) -> str | None:
    """Say what makes the runs of a seed a pair: stages, a data order or all in common; None if nothing.

    Each needs the same seeds on both sides. A stage that runs of several seeds have alike makes no pairs, as
    nothing of it varies with the seed. No score is read.
    """
    if not a.seeds or a.seeds != b.seeds:
        return None
    others = {run.record.seed: run.record for run in b.runs}
    pairs = [(run.record, others[run.record.seed]) for run in a.runs]
    if all(x.options == y.options and not find_fact_differences(x, y, SPECIFICATION) for x, y in pairs):
        return "have one specification"
    of_seeds = [read_stage_keys(x) & read_stage_keys(y) for x, y in pairs]
    seen = Counter(key for keys in of_seeds for key in keys)
    stages = [{key for key in keys if seen[key] == 1} for keys in of_seeds]
    if all(stages):
        least = min(map(len, stages))
        return f"have {least} trained stage{'s' * (least > 1)} in common"
    orders = {read_data_orders(run.record) for group in (a, b) for run in group.runs}
    if len(orders) == 1 and orders != {frozenset()}:
        return "see the same sentences in the same order"
    return None


def describe_confounders(a: Group, b: Group) -> list[str]:
    """Say in sentences which runs failed, and what else differs between the sides."""
    sentences = [
        *_describe_failed_runs(a, b),
        *_describe_supervision(a, b),
        *_describe_checkpoint_choice(a, b),
        *_describe_specification(a, b),
        *_describe_difference("profile", a, b, lambda record: record.profile),
    ]
    sentences += _describe_difference("training sentences seen by a run", a, b, _format_sentences_seen)
    sides = ([run.record for run in group.runs] for group in (a, b))
    if machines := machine_differences(*sides):
        listed = (
            f"{name} {' and '.join(one)} against {' and '.join(other)}" for name, one, other in machines
        )
        sentences.append(f"Different software and hardware: {printable(', '.join(listed))}.")
    return sentences


def _describe_failed_runs(a: Group, b: Group) -> list[str]:
    """One sentence if runs of either side have no score: those that have one may be the lucky ones."""
    said = [
        f"{format_seeds([run.record.seed for run in runs if run.record.seed is not None])} of {group.label} "
        f"({printable(str(reason))})"
        for group in (a, b)
        for reason, runs in group_by(group.failed, lambda run: run.record.reason).items()
    ]
    return [f"Failed, so not compared: {'; '.join(said)}."] if said else []


def _describe_supervision(a: Group, b: Group) -> list[str]:
    """One sentence if either side learned from labels."""
    sides = [[is_supervised(run.record) for run in group.runs] for group in (a, b)]
    if not any(map(any, sides)):
        return []
    names = [printable(group.runs[0].record.method) for group in (a, b)]
    if all(map(any, sides)):
        return [f"Both are supervised, {names[0]} and {names[1]}: they learned from labels."]
    one, other = names if any(sides[0]) else reversed(names)
    return [f"{one} is supervised, it learned from labels, and {other} is not: no ranking of like with like."]


def _describe_checkpoint_choice(a: Group, b: Group) -> list[str]:
    """One sentence if a checkpoint of either side was chosen on the data that it is evaluated on."""
    sides = [{task for run in group.runs for task in find_dev_tasks(run.record)} for group in (a, b)]
    named = [
        f"{group.label} on {', '.join(sorted(side))}"
        for group, side in zip((a, b), sides, strict=True)
        if side
    ]
    if not named:
        return []
    return [
        f"Checkpoints were chosen on what is evaluated, which flatters them: {printable(', '.join(named))}."
    ]


def _describe_specification(a: Group, b: Group) -> list[str]:
    one, other = a.runs[0].record, b.runs[0].record
    found = find_fact_differences(one, other, SPECIFICATION)
    if not found:
        first = {compute_record_key(run.record): run.record.scores for run in a.runs}
        again = [
            run.record.scores == first[key]
            for run in b.runs
            if (key := compute_record_key(run.record)) in first
        ]
        repeats = f"; {len(again)} runs are on both sides, {sum(again)} of them equal to the last digit"
        return [f"Both sides have one specification{repeats if again else ''}."]
    if one.name != other.name:
        said = [f"The methods differ: {printable(one.name)} and {printable(other.name)}."]
        both_train = one.training.get("stages") and other.training.get("stages")
        own = _OF_A_METHOD | (set() if both_train else _OF_TRAINING)
        found = tuple(each for each in found if each.fact not in own and not {each.then, each.now} & _NOTHING)
        return said + [printable(f"Different {each.name}: {each.then} against {each.now}.") for each in found]
    names = [printable(f"{each.name} {each.then} against {each.now}") for each in found]
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return [f"The specifications differ in {', '.join(names[:_MOST])}{more}."]


_OF_A_METHOD = {"method", "method version", "option", "plug-in file", "auxiliary model", "member"} | {
    "training text of stage",
    "version of stage",
}
_OF_TRAINING = {fact.name for fact in SPECIFICATION if fact.in_stage}
_NOTHING = {NONE, UNSET, "0"}


def _describe_difference(what: str, a: Group, b: Group, read: Callable[[RunRecord], str]) -> list[str]:
    """One sentence if something isn't the same on both sides; nothing where a side has none."""
    one, other = ({found for run in group.runs if (found := read(run.record))} for group in (a, b))
    if one == other or not one or not other:
        return []
    first, second = (", ".join(sorted(map(printable, facts))) for facts in (one, other))
    return [f"Different {what}: {first} against {second}."]


def read_stage_keys(record: RunRecord) -> set[str]:
    """Return the keys of the stages that a run trained, its members' too."""
    return {str(stage["key"]) for stage in record.training.get("stages", {}).values() if stage.get("key")}


def _format_sentences_seen(record: RunRecord) -> str:
    return f"{count_training_sentences(record):,}" if record.training.get("stages") else ""
