"""Train some of the records' cells again, chosen at random, and compare every digit."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.errors import BenchError
from bench.records.machines import machine_warnings
from bench.records.record import RunRecord
from bench.run.rerun import Difference, rerun
from bench.verify.findings import Verified


def repeat_some(
    verified: Verified,
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
        say: Gets a line before and after each repetition.
        seed: Of the choice; None for another one each time, so that nobody can know it beforehand.
    """
    chooser = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311 - no secret
    for where, record in chooser.sample(list(sound), min(count, len(sound))):
        say(f"{where}: {'training' if record.training.get('stages') else 'computing'} it again")
        try:
            differences, now = rerun(record, data=data)
        except BenchError as error:
            verified.unchecked[f"repetition of {where}: {error.what}"] += 1
            say(f"{where}: can't be repeated here: {error.what}")
            continue
        verified.repeated.append(where)
        if not differences:
            say(f"{where}: equal to the last digit")
            continue
        largest = max(map(_size, differences))
        what = f"{len(differences)} scores differ, by up to {largest:.2g}"
        if other := machine_warnings([record], [now]):
            what += f", on other versions or hardware: {'; '.join(other)}"
            verified.unchecked[f"digits of {where}: {what}"] += 1
        else:
            what += ", on equal versions and CPU"
            verified.add(where, [("rerun", what, "")])
        say(f"{where}: {what}")


def _size(difference: Difference) -> float:
    if difference.then is None or difference.now is None:
        return float("inf")
    return abs(difference.then - difference.now)
