"""Train some of the records' cells again, chosen at random, and compare every digit."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.errors import BenchError, printable
from bench.execution.repetition import RerunDifference, rerun_record
from bench.records.fingerprint import machine_warnings
from bench.records.record import AVERAGE, RunRecord
from bench.verify.findings import REPORT_BUG, Verification

UNTRAINED_BOUND, COARSE_BOUND, TRAINED_BOUND = 0.001, 0.05, 0.5
"""By how much a score may differ on other versions or hardware.

What is trained may come out as of another seed, so that its average alone is held to a bound. Else a
correlation has the narrowest; counts, lower precision and a backbone that was made anew have more. Between
two CPUs, or a CPU and a GPU, at most 0.00002 was seen of what isn't trained and 0.2 of what is; between two
seeds 0.35.
"""
_BY_ITSELF = "repeat one by itself: bench rerun takes the model and the texts that it needs"
_HINT = "repeat it with the versions and on the hardware that the record names"


def repeat_sample(
    verified: Verification,
    sound: Sequence[tuple[str, RunRecord]],
    count: int,
    data: Path | None,
    say: Callable[[str], None],
    seed: int | None = None,
) -> None:
    """Add what the repetition of some cells found.

    Args:
        verified: Gets the findings, and what couldn't be repeated.
        sound: Finished records without a finding, with their files' names.
        count: How many; all of them if there are fewer.
        data: Evaluation data.
        say: Gets a line before and after each repetition, without a character that steers a terminal.
        seed: Of the choice; None for another one each time, so that nobody can know it beforehand.
    """

    def tell(line: str) -> None:  # it quotes records
        say(printable(line))

    chooser = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311 - no secret
    drawn = chooser.sample(list(sound), min(count, len(sound)))
    verified.drawn += len(drawn)
    for where, record in drawn:
        tell(f"{where}: {'training' if record.training.get('stages') else 'computing'} it again")
        try:
            differences, now = rerun_record(record, data=data)
        except BenchError as error:
            verified.unchecked[f"repetition of {where}: {error.what}"] += 1
            tell(f"{where}: can't be repeated here: {error.what}")
            continue
        except Exception as error:  # what nobody foresaw of one record stops no other's repetition
            what = f"repeating it failed, {type(error).__name__}: {error}"
            verified.add(where, [("rerun", what, REPORT_BUG)])
            tell(f"{where}: {what}")
            continue
        verified.repeated.append(where)
        if not differences:
            tell(f"{where}: equal to the last digit")
            continue
        what = _describe_differences(differences)
        if other := machine_warnings([record], [now]):
            what += f", on other versions or hardware: {'; '.join(other)}"
            if beyond := _excess_difference(differences, record, now):
                what = f"{beyond} ({what})"
                verified.add(where, [("rerun", what, _HINT)])
            else:
                verified.unchecked[f"digits of {where}: {what}"] += 1
        else:
            what += ", on equal versions and CPU"
            verified.add(where, [("rerun", what, "")])
        tell(f"{where}: {what}")
    if drawn and not (verified.repeated or verified.findings):
        verified.add(
            drawn[-1][0], [("rerun", f"of the cells drawn none could run here ({len(drawn)})", _BY_ITSELF)]
        )


def _excess_difference(differences: Sequence[RerunDifference], then: RunRecord, now: RunRecord) -> str:
    """Say which score differs by more than other versions or hardware excuse, "" where none does."""
    scores = [each for each in differences if each.of == "scores"]
    if alone := [each for each in scores if None in (each.then, each.now)]:
        return f"{alone[0].name} is in the {'repetition' if alone[0].then is None else 'record'} alone"
    trained = bool(now.training.get("stages") or now.provenance.get("plugins"))  # a plug-in may do so unsaid
    coarse = now.evaluation.get("precision", "fp32") != "fp32" or _backbone_hash(then) != _backbone_hash(now)
    for each in sorted(scores, key=_absolute_difference, reverse=True):
        correlation = each.name.rpartition(" ")[2].startswith("spearman")
        bound = TRAINED_BOUND if trained else UNTRAINED_BOUND if correlation and not coarse else COARSE_BOUND
        if _absolute_difference(each) > bound and (each.name.startswith(f"{AVERAGE} ") or not trained):
            size = f"{_absolute_difference(each):.2g}"
            return f"{each.name} differs by {size}, and other versions or hardware excuse {bound}"
    return ""


def _backbone_hash(record: RunRecord) -> str | None:
    """The bytes of its backbone: one that is made on first use has others on another machine."""
    return (record.backbone or {}).get("sha256")


def _absolute_difference(difference: RerunDifference) -> float:
    return abs(float(difference.then) - float(difference.now))


def _describe_differences(differences: Sequence[RerunDifference]) -> str:
    """Say how many scores differ and by how much, how many one side lacks, and what else differs."""
    scores = [each for each in differences if each.of == "scores"]
    both = [each for each in scores if None not in (each.then, each.now)]
    others = [each.name for each in differences if each.of != "scores"]
    said = [f"{len(both)} scores differ, by up to {max(map(_absolute_difference, both)):.2g}"] if both else []
    said += [f"{len(scores) - len(both)} scores are on one side alone"] if len(both) < len(scores) else []
    return "; ".join([*said, f"{', '.join(others)} differ"] if others else said)
