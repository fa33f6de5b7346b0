"""Train some of the records' cells again, chosen at random, and compare every digit."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.errors import BenchError, printable
from bench.records.machines import machine_warnings
from bench.records.record import RunRecord
from bench.run.rerun import Difference, rerun
from bench.verify.findings import UNFORESEEN, Verified


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
        except Exception as error:  # what nobody foresaw of one record stops no other's repetition
            what = f"repeating it failed, {type(error).__name__}: {error}"
            verified.add(where, [("rerun", what, UNFORESEEN)])
            say(printable(f"{where}: {what}"))
            continue
        verified.repeated.append(where)
        if not differences:
            say(f"{where}: equal to the last digit")
            continue
        what = _in_words(differences)
        if other := machine_warnings([record], [now]):
            what += f", on other versions or hardware: {'; '.join(other)}"
            verified.unchecked[f"digits of {where}: {what}"] += 1
        else:
            what += ", on equal versions and CPU"
            verified.add(where, [("rerun", what, "")])
        say(f"{where}: {what}")


def _in_words(differences: Sequence[Difference]) -> str:
    """Say how many scores differ and by how much, and what else does."""
    sizes = [
        float("inf") if each.then is None or each.now is None else abs(each.then - each.now)
        for each in differences
        if each.of == "scores"
    ]
    others = [each.name for each in differences if each.of != "scores"]
    said = [f"{len(sizes)} scores differ, by up to {max(sizes):.2g}"] if sizes else []
    return "; ".join([*said, f"{', '.join(others)} differ"] if others else said)
