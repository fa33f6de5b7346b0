"""Judgement of an encoder against its reference across new weights, by paired items of each suite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from bench.comparison.item_bootstrap import list_task_names
from bench.errors import DataError
from bench.gate.divergence import CLOSE, REPEATS
from bench.gate.drops import cell_key
from bench.gate.judge import correct_drops
from bench.gate.verdict import AVERAGE, POWER, CellVerdict, Drop, Gate, Key, Question, Status, cell_name
from bench.records.fingerprint import BREAKING, GATED, find_fact_differences, machine_facts, machine_warnings
from bench.records.record import RunRecord
from bench.stats.difference_test import ITEMS, pair_test
from bench.stats.item_statistics import expand_share
from bench.stats.item_units import UnitSummary

COMPARED = tuple(fact for fact in GATED if fact.name != "weights")
"""Facts that two compared encoders share: all that break a comparison but the weights."""
Draws = NDArray[np.float64]


@dataclass(frozen=True)
class ItemPair:
    """The reference's finished record of a suite and the new one, if any.

    ``draws`` are (draws, tasks) scores of both in common draws of items, or ``why`` names the obstacle.
    ``moved`` is the largest difference of a stored similarity; ``units`` are the clusters that were drawn.
    """

    then: RunRecord
    now: RunRecord | None
    draws: tuple[ArrayLike, ArrayLike] | None = None
    why: str = ""
    moved: float | None = None
    units: UnitSummary | None = None

    @property
    def key(self) -> Key:
        """Profile, method, suite."""
        return cell_key(self.then)

    @property
    def same_weights(self) -> bool:
        """True if the new record has the reference's weights."""
        return self.now is not None and not find_fact_differences(self.then, self.now, BREAKING)

    @property
    def same_machine(self) -> bool:
        """True if both records have equal versions and hardware."""
        return self.now is not None and machine_facts(self.then) == machine_facts(self.now)

    @property
    def is_close(self) -> bool:
        """True if both results are as close as those of two machines."""
        then, now = self.read_scores(AVERAGE)
        return (self.moved is None or self.moved <= CLOSE) and abs(then - now) <= REPEATS

    def read_scores(self, task: str) -> tuple[float, float]:
        """Return the scores of both; raise DataError for a missing one."""
        then, now = self.then.score(task), None if self.now is None else self.now.score(task)
        if then is None or now is None:
            what = f"{'the reference' if then is None else 'the new record'} of {cell_name(self.key)}"
            raise DataError(f"{what} has no score of {task}", hint="run the cell again")
        return then, now


def judge_items(
    pairs: Sequence[ItemPair], *, tolerance: float = 0.005, level: float = 0.95, strict: bool = False
) -> Gate:
    """Judge an encoder on the items of each suite, with intervals of a common level (Bonferroni).

    A suite regresses if its average falls by more than the tolerance and the interval of the drop, from
    common draws of items, is above 0; a rise likewise improves it. Without draws the tolerance decides.
    """
    done = {pair.key: verdict for pair in pairs if (verdict := _judge_without_statistics(pair)) is not None}
    tested = [pair for pair in pairs if pair.key not in done]
    counted = sum(pair.draws is not None for pair in tested)
    each = 1 - (1 - level) / max(1, counted)
    spare = 1 - (1 - level) / (1 + counted)
    for pair in pairs:
        if pair.key in done and done[pair.key].status is Status.EQUAL:  # a change would be one more
            sees = smallest_detectable_item_drop(pair, spare, tolerance)
            done[pair.key] = replace(done[pair.key], sees=sees)
    drops = {pair.key: _test_drops(pair, each) for pair in tested}
    correct_drops(drops, counted)
    for pair in tested:
        done[pair.key] = _decide_verdict(pair, drops[pair.key], each, tolerance, strict)
    finished = [(pair.then, pair.now) for pair in pairs if pair.now is not None and pair.now.status == "ok"]
    then = [pair[0] for pair in finished]
    now = [pair[1] for pair in finished]
    warnings = machine_warnings(then, now)
    cells = tuple(done[key] for key in sorted(done))
    return Gate(cells, tolerance, level, counted, warnings=warnings, strict=strict)


def smallest_detectable_item_drop(
    pair: ItemPair, level: float, tolerance: float, power: float = POWER
) -> float:
    """Return the smallest true drop over such items that fails the gate with a chance of ``power``.

    max(tolerance, q(level) e) + z(power) e, with q the quantile of the interval and e the standard error of
    the paired difference. If both have equal scores in every draw, e is the reference's own times the root
    of 2, an upper bound.
    """
    if pair.draws is None:
        return tolerance
    then, now = (average.mean(axis=1) for average in _check_draws(pair.draws))
    error = float(np.std(then - now, ddof=1)) or math.sqrt(2) * float(np.std(then, ddof=1))
    effective, tail = None, (1 - level) / 2
    if pair.units is not None:
        effective = pair.units.effective_clusters(AVERAGE, AVERAGE)
    quantile = -float(ndtri(tail if effective is None else expand_share(tail, effective)))
    return max(tolerance, quantile * error) + float(ndtri(power)) * error


def _check_draws(draws: tuple[ArrayLike, ArrayLike]) -> tuple[Draws, Draws]:
    then, now = (np.asarray(side, dtype=np.float64) for side in draws)
    if then.shape != now.shape or then.ndim != 2 or len(then) < 2:
        raise ValueError(f"draws have shapes {then.shape} and {now.shape}; expected (draws, tasks), equal")
    return then, now


def _judge_without_statistics(pair: ItemPair) -> CellVerdict | None:
    """Return a verdict that precedes statistics, if any."""
    then, now = pair.then, pair.now
    if now is None:
        return _build_verdict(pair, Status.MISSING, reasons=("there is no record of it",))
    if now.status != "ok":
        return _build_verdict(pair, Status.FAILED, reasons=(f"the run: {now.reason}",))
    if differences := find_fact_differences(then, now, COMPARED):
        reasons = tuple(dict.fromkeys(map(str, differences)))
        return _build_verdict(pair, Status.DIFFERENT, reasons=reasons)
    has_same_bytes = (then.scores, then.predictions) == (now.scores, now.predictions)
    if not (has_same_bytes or (pair.same_weights and not pair.same_machine and pair.is_close)):
        return None
    drops = {task: Drop(*pair.read_scores(task)) for task in (*list_task_names(then), AVERAGE)}
    why = "the weights are the reference's own" if pair.same_weights else "other weights, equal similarities"
    return _build_verdict(pair, Status.EQUAL, drops=drops, reasons=(why,))


def _build_verdict(
    pair: ItemPair, status: Status, *, drops: Mapping[str, Drop] | None = None, reasons: tuple[str, ...] = ()
) -> CellVerdict:
    new = () if pair.now is None or pair.now.status != "ok" else (pair.now.seed,)
    return CellVerdict(
        pair.key, status, (pair.then.seed,), new, drops or {}, reasons=reasons, question=Question.ITEMS
    )


def _decide_verdict(
    pair: ItemPair, drops: Mapping[str, Drop], level: float, tolerance: float, strict: bool
) -> CellVerdict:
    average, status, reasons = drops[AVERAGE], Status.OK, list(_explain_verdict(pair))
    low, high = (None, None) if pair.draws is None else (average.low, average.high)
    if average.fell(tolerance):
        status = Status.REGRESSION if low is None or low > 0 else Status.UNCLEAR
    elif average.rose(tolerance) and (high is None or high < 0):
        status = Status.IMPROVED
    if status is Status.UNCLEAR:
        reasons.append("not shown to be more than noise: the interval holds 0")
    stage = _find_changed_stage(pair)
    if stage is not None and strict and status is not Status.REGRESSION:
        status = Status.CHANGED
    return replace(
        _build_verdict(pair, status, drops=drops, reasons=tuple(reasons)),
        test=None if pair.draws is None else ITEMS,
        stage=stage,
        sees=smallest_detectable_item_drop(pair, level, tolerance),
    )


def _explain_verdict(pair: ItemPair) -> Iterator[str]:
    if pair.draws is None:
        yield f"no interval, the tolerance alone decides: {pair.why or 'the items were not drawn'}"
    elif pair.units is not None and not pair.units.known:
        yield "texts are missing: items count as independent, though some may share sentences"
    if not pair.same_weights:
        return
    yield "the weights are the reference's own"
    if pair.same_machine:
        yield "numbers changed on equal versions and CPU"
    else:
        yield "versions or hardware differ too and may be the cause"


def _find_changed_stage(pair: ItemPair) -> str | None:
    """Return the first stage whose numbers differ although the weights are the reference's, if any."""
    then, now = pair.then, pair.now
    if now is None or not pair.same_weights:
        return None
    if not pair.same_machine and pair.is_close:
        return None
    if then.predictions == now.predictions:
        return "scores"
    return "similarities" if then.metric == "spearman" else "predictions"


def _test_drops(pair: ItemPair, level: float) -> dict[str, Drop]:
    """Return drops by task, tested if there are draws, the last of the average with its interval."""
    names = (*list_task_names(pair.then), AVERAGE)
    drops = {task: Drop(*pair.read_scores(task)) for task in names}
    if pair.draws is None:
        return drops
    then, now = _check_draws(pair.draws)
    if then.shape[1] != len(names) - 1:
        raise ValueError(f"draws of {then.shape[1]} tasks; expected {len(names) - 1}")
    differences = [*(then - now).T, (then - now).mean(axis=1)]
    for (task, drop), items in zip(drops.items(), differences, strict=True):
        both = (True, True)
        effective = None if pair.units is None else pair.units.effective_clusters(task, AVERAGE)
        sides = [drop.reference], [drop.new]
        test = pair_test(*sides, deterministic=both, items=items, effective=effective, level=level)
        low, high = test.interval if task == AVERAGE and test.interval else (None, None)
        drops[task] = replace(drop, low=low, high=high, p=test.p)
    return drops
