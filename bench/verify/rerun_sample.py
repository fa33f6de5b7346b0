"""Train some of the records' cells again, chosen at random, and compare every digit."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.config.plugins import load_plugin
from bench.config.run_spec import Plugin
from bench.errors import BenchError, printable
from bench.execution.repetition import RerunDifference, rerun_record
from bench.records.environment import plugin_file_hashes
from bench.records.fingerprint import machine_warnings
from bench.records.integrity import HARDWARE_TOLERANCE
from bench.records.record import AVERAGE, RunRecord
from bench.render.grid import SCALE
from bench.verify.findings import REPORT_BUG, Verification
from bench.verify.repeatability import (
    ScoreShift,
    explain_untestable_shift,
    find_mean_shifts,
)

UNTRAINED_BOUND, COARSE_BOUND, TRAINED_BOUND = 0.001, 0.05, 0.5
"""Largest differences of a score on other versions or hardware.

Training may end as with another seed, so only its average has a bound. Otherwise a correlation has the
narrowest; counts, lower precision and a recreated backbone have more. Between a CPU and a GPU at most 0.00002
was seen without training.
"""
_HINT = "repeat it with the versions and on the hardware that the record names"


def repeat_sample(
    verified: Verification,
    sound: Sequence[tuple[str, RunRecord]],
    count: int,
    data: Path | None,
    say: Callable[[str], None],
    seed: int | None = None,
) -> None:
    """Add the findings of ``count`` repeated cells (at most all) of sound records.

    A cell whose repetition shows nothing here is counted with its reason. ``say`` receives a printable line
    before and after each; ``seed`` makes the choice repeatable.
    """
    chooser = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311 - no secret
    drawn = chooser.sample(list(sound), min(count, len(sound)))
    verified.drawn += len(drawn)
    shifts: list[ScoreShift] = []
    for where, record in drawn:
        say(printable(f"{where}: {'training' if record.training.get('stages') else 'computing'} it again"))
        outcome = _repeat_record(where, record, data, verified, shifts)
        say(printable(f"{where}: {outcome}"))  # it quotes records
    for where, what in find_mean_shifts(shifts):
        verified.add(where, [("shift", what, _HINT)])
    for where in verified.repeated:  # whatever was expected of its versions and hardware
        if verified.unrepeatable.pop(where, None):
            verified.repeatable.append(where)


def _repeat_record(
    where: str, record: RunRecord, data: Path | None, verified: Verification, shifts: list[ScoreShift]
) -> str:
    """Repeat a record, add its finding or its shift, and return the outcome."""
    try:
        differences, now = rerun_record(record, data=data)
    except BenchError as error:
        verified.unrepeated[where] = error.what
        return f"not repeatable here: {error.what}"
    except Exception as error:  # an unforeseen one of one record stops no other's repetition
        what = f"repeating it failed, {type(error).__name__}: {error}"
        verified.add(where, [("rerun", what, REPORT_BUG)])
        return what
    if not differences:
        if machine_warnings([record], [now]) and not explain_untestable_shift(record, now):
            _measure_shift(where, record, now, shifts)  # of 0, which counts
        verified.repeated.append(where)
        return "equal to the last digit"
    what = _describe_differences(differences)
    machines = machine_warnings([record], [now])
    if not machines:
        what += ", on equal versions and CPU"
        verified.add(where, [("rerun", what, "")])
        return what
    if excess := _excess_difference(differences, record, now):
        what = f"{excess} ({what}, on other versions or hardware: {'; '.join(machines)})"
        verified.add(where, [("rerun", what, _HINT)])
        return what
    why = explain_untestable_shift(record, now) or _measure_shift(where, record, now, shifts)
    if why:
        verified.unrepeated[where] = f"{why}; {what}"
        return f"not repeatable here: {why}; {what}"
    verified.repeated.append(where)
    return f"its average is within {HARDWARE_TOLERANCE * SCALE:.2g} points on another CPU; {what}"


def _measure_shift(where: str, then: RunRecord, now: RunRecord, shifts: list[ScoreShift]) -> str:
    """Add the shift of an average, and return what is too large for two CPUs, or ""."""
    old, new = then.score(AVERAGE), now.score(AVERAGE)
    if old is None or new is None:
        return "shift not testable: it has no average"
    shifts.append(ScoreShift(where, (then.profile, then.method, then.suite), then.seed, old - new))
    if abs(old - new) <= HARDWARE_TOLERANCE:
        return _excess_task(then, now)
    side = "above" if old > new else "below"
    what = f"its average is {abs(old - new) * SCALE:.2g} points {side} its repetition's"
    return f"{what}, and CPUs of equal versions differ by up to {HARDWARE_TOLERANCE * SCALE:.2g}"


def _excess_task(then: RunRecord, now: RunRecord) -> str:
    """Return a task whose score differs by more than the average's bound times the number of tasks, or ""."""
    bound = HARDWARE_TOLERANCE * max(1, len(then.tasks))
    for task in then.tasks:
        old, new = then.score(task), now.score(task)
        if old is not None and new is not None and abs(old - new) > bound:
            what = f"{task} is {abs(old - new) * SCALE:.2g} points {'above' if old > new else 'below'}"
            return f"{what} its repetition's, and {bound * SCALE:.2g} is the bound of a task"
    return ""


def _excess_difference(differences: Sequence[RerunDifference], then: RunRecord, now: RunRecord) -> str:
    """The score whose difference exceeds that of other versions or hardware, or ""."""
    scores = [difference for difference in differences if difference.of == "scores"]
    for difference in scores:
        if None in (difference.then, difference.now):
            side = "repetition" if difference.then is None else "record"
            return f"{difference.name} is in the {side} alone"
    trained = bool(now.training.get("stages") or now.provenance.get("plugins"))  # a plug-in may train too
    hashes = {(record.backbone or {}).get("sha256") for record in (then, now)}  # differ if recreated
    coarse = now.evaluation.get("precision", "fp32") != "fp32" or len(hashes) > 1
    for difference in sorted(scores, key=_absolute_difference, reverse=True):
        correlation = difference.name.rpartition(" ")[2].startswith("spearman")
        bound = UNTRAINED_BOUND if correlation and not coarse else COARSE_BOUND
        bound = TRAINED_BOUND if trained else bound
        size = _absolute_difference(difference)
        if size > bound and (difference.name.startswith(f"{AVERAGE} ") or not trained):
            excuse = f"other versions or hardware excuse {bound}"
            return f"{difference.name} differs by {size:.2g}, and {excuse}"
    return ""


def _absolute_difference(difference: RerunDifference) -> float:
    return abs(float(difference.then) - float(difference.now))


def _describe_differences(differences: Sequence[RerunDifference]) -> str:
    """Numbers of differing and of unmatched scores, the largest difference, and other differing facts."""
    sizes, unmatched, others = [], 0, []
    for difference in differences:
        if difference.of != "scores":
            others.append(difference.name)
        elif None in (difference.then, difference.now):
            unmatched += 1
        else:
            sizes.append(_absolute_difference(difference))
    parts = [f"{len(sizes)} scores differ, by up to {max(sizes):.2g}"] if sizes else []
    if unmatched:
        parts.append(f"{unmatched} scores are on one side alone")
    if others:
        parts.append(f"{', '.join(others)} differ")
    return "; ".join(parts)


def repeat_bundle_cells(
    verified: Verification,
    sound: Sequence[tuple[str, RunRecord]],
    sources: Mapping[str, bytes],
    count: int,
    data: Path | None,
    say: Callable[[str], None],
    seed: int | None = None,
) -> None:
    """Repeat cells of a bundle as :func:`repeat_sample`, after every other check, as this may run its code.

    ``sources`` are the plug-in files of ``--run-plugin``; raises InputError for one that fails to load.
    """
    with tempfile.TemporaryDirectory(prefix="bench-plugin-") as folder:  # writable only by this user
        for name, source in sources.items():
            path = Path(folder, name)
            path.write_bytes(source)
            load_plugin(Plugin(name, str(path), source))
        runnable = []
        for where, record in sound:
            methods = plugin_file_hashes(record.provenance)
            files = {str(record.provenance["plugins"][method]["file"]) for method in methods}
            if missing := ", ".join(sorted(files - sources.keys())):
                verified.unchecked[f"repetition of cells of {missing}: --run-plugin names what may run"] += 1
                verified.unrepeated[where] = f"it needs the code of {missing}, which --run-plugin names"
            else:
                runnable.append((where, record))
        repeat_sample(verified, runnable, count, data, say, seed)
        verified.drawn = min(count, len(sound))  # not to end well with fewer cells than were asked for
