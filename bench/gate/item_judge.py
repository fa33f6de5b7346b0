"""An encoder against its reference across new weights: paired items decide, suite by suite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from bench.errors import DataError
from bench.gate.divergence import CLOSE, REPEATS, have_same_versions
from bench.gate.judge import correct_drops
from bench.gate.verdict import (
    AVERAGE,
    POWER,
    CellVerdict,
    Drop,
    Gate,
    Key,
    Question,
    Status,
    cell_name,
)
from bench.records.fingerprint import BREAKING, GATED, find_fact_differences, machine_facts, machine_warnings
from bench.records.record import ALL, RunRecord
from bench.stats.pair_test import ITEMS, pair_test

COMPARED = tuple(fact for fact in GATED if fact.name != "weights")
"""What has to be equal for two encoders to be compared: all that breaks a comparison but the weights."""
Draws = NDArray[np.float64]


@dataclass(frozen=True)
class ItemPair:
    """The reference's record of a suite and the new one.

    Args:
        then: The reference's, finished.
        now: The new one; None if there is none.
        draws: (draws, tasks) scores of both in common draws of items, the tasks in the record's order; None
            where they can't be drawn.
        why: Why they can't be.
        moved: How far the similarity that moved most did; None where they aren't kept.
    """

    then: RunRecord
    now: RunRecord | None
    draws: tuple[ArrayLike, ArrayLike] | None = None
    why: str = ""
    moved: float | None = None

    @property
    def key(self) -> Key:
        """Profile, method, suite."""
        return (self.then.profile, self.then.method, self.then.suite)


def judge_items(
    pairs: Sequence[ItemPair], *, tolerance: float = 0.005, level: float = 0.95, strict: bool = False
) -> Gate:
    """Judge an encoder on the items of each suite.

    A suite regresses where its average falls by more than the tolerance and the interval of the drop, from
    draws of items that both encoders share, lies above 0; it improves where the same holds of a rise. The
    verdict is about this encoder and the one in the reference, on further items like these; what another
    training run would give it doesn't say. Where the items can't be drawn the tolerance alone decides.

    Args:
        pairs: The suites.
        tolerance: In the metric's unit.
        level: Confidence level of all intervals together (Bonferroni over the suites that changed).
        strict: Where the weights are the reference's and equal numbers were due, others fail.

    Returns:
        The gate; scores of both sides stand in every verdict of a suite with two comparable results.

    Raises:
        DataError: a finished record that lacks a score.
    """
    done = {pair.key: verdict for pair in pairs if (verdict := _judge_without_statistics(pair)) is not None}
    tested = [pair for pair in pairs if pair.key not in done]
    each = 1 - (1 - level) / max(1, sum(pair.draws is not None for pair in tested))
    spare = 1 - (1 - level) / (1 + sum(pair.draws is not None for pair in tested))
    for pair in pairs:
        if pair.key in done and done[pair.key].status is Status.EQUAL:  # if it changed, it would be one more
            done[pair.key] = replace(
                done[pair.key], sees=smallest_detectable_item_drop(pair, spare, tolerance)
            )
    found = {pair.key: _test_drops(pair, each) for pair in tested}
    correct_drops(found, sum(pair.draws is not None for pair in tested))
    for pair in tested:
        done[pair.key] = _decide_verdict(pair, found[pair.key], each, tolerance, strict)
    finished = [pair for pair in pairs if pair.now is not None and pair.now.status == "ok"]
    warnings = machine_warnings([p.then for p in finished], [p.now for p in finished if p.now is not None])
    counted = sum(pair.draws is not None for pair in tested)
    cells = tuple(done[key] for key in sorted(done))
    return Gate(cells, tolerance, level, counted, warnings=warnings, strict=strict)


def smallest_detectable_item_drop(
    pair: ItemPair, level: float, tolerance: float, power: float = POWER
) -> float:
    """Return the smallest true drop over items like these that fails the gate with a chance of ``power``.

    max(tolerance, z(level) e) + z(power) e, with the standard error e of the paired difference. Where both
    give equal scores in every draw the difference has no error, and that of the next weights isn't known:
    then e is the reference's own, times the root of 2, as if the next encoder shared nothing with it. That is
    an upper bound, as encoders agree on which items are hard.

    Args:
        pair: The suite.
        level: Confidence level of its interval, corrected for the number of suites.
        tolerance: In the metric's unit.
        power: The chance, in (0, 1).

    Returns:
        The drop in the metric's unit; the tolerance where the items can't be drawn, as it decides alone.
    """
    if pair.draws is None:
        return tolerance
    then, now = (average.mean(axis=1) for average in _check_draws(pair.draws))
    error = float(np.std(then - now, ddof=1)) or math.sqrt(2) * float(np.std(then, ddof=1))
    return max(tolerance, float(ndtri((1 + level) / 2)) * error) + float(ndtri(power)) * error


def _check_draws(draws: tuple[ArrayLike, ArrayLike]) -> tuple[Draws, Draws]:
    then, now = (np.asarray(side, dtype=np.float64) for side in draws)
    if then.shape != now.shape or then.ndim != 2 or len(then) < 2:
        raise ValueError(f"draws have shapes {then.shape} and {now.shape}; expected (draws, tasks), equal")
    return then, now


def _judge_without_statistics(pair: ItemPair) -> CellVerdict | None:
    """Return the verdict where it takes no statistics, else None."""
    then, now = pair.then, pair.now
    if now is None:
        return _build_verdict(pair, Status.MISSING, reasons=("there is no record of it",))
    if now.status != "ok":
        return _build_verdict(pair, Status.FAILED, reasons=(f"the run: {now.reason}",))
    if lines := [str(each) for each in find_fact_differences(then, now, COMPARED)]:
        return _build_verdict(pair, Status.DIFFERENT, reasons=tuple(dict.fromkeys(lines)))
    elsewhere = _same_weights(then, now) and not _same_machine(then, now)
    if _same_bytes(then, now) or (elsewhere and _is_close(pair)):
        drops = {task: Drop(*_read_scores(pair, task)) for task in _list_tasks(then)}
        own = _same_weights(then, now)
        why = "the weights are the reference's own" if own else "other weights, equal similarities"
        return _build_verdict(pair, Status.EQUAL, drops=drops, reasons=(why,))
    return None


def _build_verdict(
    pair: ItemPair, status: Status, *, drops: Mapping[str, Drop] | None = None, reasons: tuple[str, ...] = ()
) -> CellVerdict:
    new = () if pair.now is None or pair.now.status != "ok" else (pair.now.seed,)
    return CellVerdict(
        pair.key, status, (pair.then.seed,), new, drops or {}, reasons=reasons, question=Question.ITEMS
    )


def _decide_verdict(
    pair: ItemPair, found: Mapping[str, Drop], level: float, tolerance: float, strict: bool
) -> CellVerdict:
    average, reasons = found[AVERAGE], list(_explain_verdict(pair))
    low, high = (None, None) if pair.draws is None else (average.low, average.high)
    if average.fell(tolerance):
        status = Status.REGRESSION if low is None or low > 0 else Status.UNCLEAR
    else:
        shown = average.rose(tolerance) and (high is None or high < 0)
        status = Status.IMPROVED if shown else Status.OK
    if status is Status.UNCLEAR:
        reasons.append("not shown to be more than noise: the interval holds 0")
    stage = _find_changed_stage(pair)
    if stage is not None and strict and status is not Status.REGRESSION:
        status = Status.CHANGED
    return replace(
        _build_verdict(pair, status, drops=found, reasons=tuple(reasons)),
        test=None if pair.draws is None else ITEMS,
        stage=stage,
        sees=smallest_detectable_item_drop(pair, level, tolerance),
    )


def _explain_verdict(pair: ItemPair) -> Iterator[str]:
    then, now = pair.then, pair.now
    if pair.draws is None:
        yield f"no interval, the tolerance alone decides: {pair.why or 'the items were not drawn'}"
    if now is None or not _same_weights(then, now):
        return
    yield "the weights are the reference's own"
    if _same_machine(then, now):
        yield "numbers changed on equal versions and CPU"
    else:
        yield "versions or hardware differ too and may be the cause"


def _find_changed_stage(pair: ItemPair) -> str | None:
    """The first stage whose numbers differ where the weights are the reference's, and equal ones were due."""
    then, now = pair.then, pair.now
    if now is None or not _same_weights(then, now):
        return None
    if not _same_machine(then, now) and (not have_same_versions(then, now) or _is_close(pair)):
        return None
    if then.predictions == now.predictions:
        return "scores"
    return "similarities" if then.metric == "spearman" else "predictions"


def _test_drops(pair: ItemPair, level: float) -> dict[str, Drop]:
    """Drops by task, tested where items can be drawn; of the average, the last, with its interval."""
    names = _list_tasks(pair.then)
    found = {task: Drop(*_read_scores(pair, task)) for task in names}
    if pair.draws is None:
        return found
    then, now = _check_draws(pair.draws)
    if then.shape[1] != len(names) - 1:
        raise ValueError(f"draws of {then.shape[1]} tasks; expected {len(names) - 1}")
    by_task = dict(zip(names, [*(then - now).T, (then - now).mean(axis=1)], strict=True))
    for task, drop in found.items():
        both = (True, True)
        items = by_task[task]
        test = pair_test([drop.reference], [drop.new], deterministic=both, items=items, level=level)
        low, high = test.interval if task == AVERAGE and test.interval else (None, None)
        found[task] = replace(drop, low=low, high=high, p=test.p)
    return found


def _list_tasks(record: RunRecord) -> list[str]:
    """Tasks with a score over all items, in the record's order, the average last."""
    metric = record.metric
    found = [s.task for s in record.scores if (s.subset, s.metric) == (ALL, metric)]
    return [*(task for task in found if task != AVERAGE), AVERAGE]


def _read_scores(pair: ItemPair, task: str) -> tuple[float, float]:
    values = [None if side is None else side.score(task) for side in (pair.then, pair.now)]
    if values[0] is None or values[1] is None:
        whose = "the reference" if values[0] is None else "the new record"
        raise DataError(f"{whose} of {cell_name(pair.key)} has no score of {task}", hint="run the cell again")
    return values[0], values[1]


def _same_weights(then: RunRecord, now: RunRecord) -> bool:
    return not find_fact_differences(then, now, BREAKING)


def _same_bytes(then: RunRecord, now: RunRecord) -> bool:
    return (then.scores, then.predictions) == (now.scores, now.predictions)


def _same_machine(then: RunRecord, now: RunRecord) -> bool:
    return machine_facts(then) == machine_facts(now)


def _is_close(pair: ItemPair) -> bool:
    """Whether both results are as close as two machines come."""
    then, now = _read_scores(pair, AVERAGE)
    return (pair.moved is None or pair.moved <= CLOSE) and abs(then - now) <= REPEATS
