"""`bench run --dry-run --detect`: what a plan's seeds can show, from earlier records or a given spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.plan.plan import Plan, make_plan
from bench.plan.seed_power import Detection, PlannedPair, plan_detection
from bench.records.record import Score
from bench.stats.seed_planning import welch_power
from tests.support.cli import Cli
from tests.support.messages import missing_facts, numbers_in
from tests.support.unreadable import unreadable

TWINS = {"tncse": (70.1, 72.0, 71.2), "jtcse": (70.4, 72.2, 71.7)}  # differences -0.3, -0.2, -0.5
SIMCSE = (69.0, 70.5, 72.0)


def planned(folder: Path, methods: str, seeds: Sequence[int] = range(1, 6), campaign: str = "next") -> Plan:
    spec = RunSpec(parse_methods(methods), tuple(seeds), "mini", suites=("toy",), campaign=campaign)
    return make_plan(replace(spec, results=folder))


def finish(plan: Plan, averages: Mapping[str, Sequence[float]]) -> None:
    for job in plan.jobs:
        average = averages[job.place.method][(job.place.seed or 1) - 1] / 100
        scores = tuple(Score(task, "all", "spearman", average, 180) for task in (*job.record.tasks, "avg"))
        stages = job.record.training.get("stages", {})
        for stage in stages.values():
            stage.update(sentences_seen=640, dev_curve=[[10, 0.5]])
        timing = {"wall_seconds": 1.0, "training_cpu_seconds": dict.fromkeys(stages, 1.0)}
        record = replace(job.record, status="ok", scores=scores, timing=timing)
        plan.store.write(job.place, record, None)  # so that no predictions contradict these scores


def one(detection: Detection) -> PlannedPair:
    (pair,) = detection.pairs
    return pair


def by_loops(points: float, sd: float, level: float = 0.95) -> int:
    """Pairs with a power of 0.8 for this difference, by trying."""
    for n in range(2, 1000):
        critical, shift = stats.t.ppf((1 + level) / 2, n - 1), points / sd * n**0.5
        below = np.nan_to_num(stats.nct.cdf(-critical, n - 1, shift))  # nan where it is 0
        if stats.nct.sf(critical, n - 1, shift) + below >= 0.8:
            return n
    raise AssertionError("more than 1000")


def test_methods_that_share_stages_are_planned_in_pairs_from_earlier_records(tmp_path: Path) -> None:
    finish(planned(tmp_path, "tncse,jtcse", (1, 2, 3), "pilot"), TWINS)
    pair = one(plan_detection(planned(tmp_path, "tncse,jtcse"), 0.5))
    assert (pair.first, pair.second, pair.suite) == ("tncse", "jtcse", "toy")
    assert (pair.seeds, pair.source, missing_facts(pair.shared, "2 trained stage")) == (5, "pilot", [])
    (outlook,) = pair.outlooks
    sd = float(np.std([-0.3, -0.2, -0.5], ddof=1))
    assert (outlook.spread.design, outlook.spread.pilot, outlook.spread.df) == ("pairs", 3, 2)
    assert outlook.spread.a == pytest.approx(sd)
    assert outlook.needed.seeds == by_loops(0.5, sd)
    ends = [sd * (2 / stats.chi2.ppf(share, 2)) ** 0.5 for share in (0.95, 0.05)]
    assert [outlook.needed.low, outlook.needed.high] == [by_loops(0.5, end) for end in ends]
    assert outlook.shows is not None
    shows = outlook.shows
    for difference, spread in zip((shows.low, shows.value, shows.high), (ends[0], sd, ends[1]), strict=True):
        assert by_loops(difference * 1.001, spread) == 5
        assert by_loops(difference * 0.999, spread) == 6


def test_a_campaign_with_a_record_that_cannot_be_read_is_no_pilot(tmp_path: Path) -> None:
    for campaign in ("other", "pilot"):
        finish(planned(tmp_path, "tncse,jtcse", (1, 2, 3), campaign), TWINS)
    with unreadable(*(tmp_path / "other").glob("*/tncse/seed-2/toy.json")):
        pair = one(plan_detection(planned(tmp_path, "tncse,jtcse"), 0.5))
    assert pair.source == "pilot"


def test_methods_that_share_nothing_are_planned_apart_against_the_baseline(tmp_path: Path) -> None:
    methods = "tncse,simcse,word_overlap"
    averages = {"tncse": TWINS["tncse"], "simcse": SIMCSE, "word_overlap": (50.0,)}
    finish(planned(tmp_path, methods, (1, 2, 3), "pilot"), averages)
    detection = plan_detection(planned(tmp_path, methods), 1.0)
    assert (detection.family, detection.power, detection.baseline) == (2, 0.8, "simcse")
    assert detection.level == pytest.approx(1 - 0.05 / 2)
    apart, fixed = detection.pairs
    assert [(pair.first, pair.second) for pair in detection.pairs] == [
        ("tncse", "simcse"), ("word_overlap", "simcse"),
    ]  # fmt: skip
    assert {pair.shared for pair in detection.pairs} == {None}
    one_sd, other_sd = (float(np.std(side, ddof=1)) for side in (TWINS["tncse"], SIMCSE))
    (outlook,) = apart.outlooks
    assert outlook.spread.design == "sides"
    assert outlook.spread.a == pytest.approx(one_sd)
    assert outlook.spread.b == pytest.approx(other_sd)

    def power(difference: float, seeds: int) -> float:
        return welch_power(difference, one_sd, other_sd, seeds, seeds, 0.05 / 2)

    assert outlook.shows is not None
    assert power(outlook.shows.value, 5) == pytest.approx(0.8, abs=1e-4)
    needed = outlook.needed.seeds
    assert needed is not None
    assert power(1.0, needed - 1) < 0.8 <= power(1.0, needed)
    (outlook,) = fixed.outlooks
    assert outlook.spread.design == "one side"
    assert outlook.needed.seeds == by_loops(1.0, other_sd, detection.level)


def test_the_largest_pilot_counts_and_only_of_this_specification(tmp_path: Path) -> None:
    wanted = planned(tmp_path, "tncse,jtcse")
    finish(planned(tmp_path, "tncse,jtcse", (1, 2), "a"), TWINS)
    other = planned(tmp_path, "tncse,jtcse", (1, 2, 3), "b")
    records = [replace(job.record, options={**job.record.options, "lr": 9.0}) for job in other.jobs]
    changed = map(lambda job, record: replace(job, record=record), other.jobs, records)
    finish(replace(other, jobs=tuple(changed)), TWINS)
    assert one(plan_detection(wanted, 0.5)).source == "a"
    finish(planned(tmp_path, "tncse,jtcse", (1, 2, 3), "c"), TWINS)
    assert one(plan_detection(wanted, 0.5)).source == "c"
    # of one method alone there are no pairs
    assert one(plan_detection(planned(tmp_path / "new", "tncse,jtcse"), 0.5)).outlooks == ()


@pytest.mark.parametrize(
    ("averages", "facts"),
    [
        ({"tncse": (70.0,), "jtcse": (70.5,)}, ("no earlier records", "both have", "--spread")),
        ({"tncse": (70.0,), "simcse": (70.5,)}, ("no earlier records", "seeds of each", "--spread")),
        ({"untrained": (), "word_overlap": ()}, ("neither has seeds", "bench compare")),
        ({"tncse": (70.0,) * 2, "jtcse": (70.5,) * 2}, ("pairs", "pilot", "--spread")),
        ({"tncse": (70.0, 70.5), "simcse": (70.5,) * 2}, ("one side", "pilot", "--spread")),
    ],
)
def test_no_plan(tmp_path: Path, averages: dict[str, Sequence[float]], facts: tuple[str, ...]) -> None:
    methods, (count, *_) = ",".join(averages), map(len, averages.values())
    if count:
        finish(planned(tmp_path, methods, range(1, count + 1), "pilot"), averages)
    pair = one(plan_detection(planned(tmp_path, methods), 0.5))
    assert (pair.outlooks, missing_facts(pair.reason, *facts)) == ((), [])


def test_a_given_spread_is_shown_for_several_correlations_of_pairs(tmp_path: Path) -> None:
    pair = one(plan_detection(planned(tmp_path, "tncse,jtcse"), 0.5, 0.8))
    assert [outlook.correlation for outlook in pair.outlooks] == [0.0, 0.9, 0.99]
    for outlook in pair.outlooks:
        assert outlook.correlation is not None
        sd = 0.8 * (2 * (1 - outlook.correlation)) ** 0.5
        assert (outlook.needed.seeds, outlook.needed.low) == (by_loops(0.5, sd), by_loops(0.5, sd))
    (outlook,) = one(plan_detection(planned(tmp_path, "tncse,simcse"), 0.5, 0.8)).outlooks
    assert (outlook.spread.design, outlook.spread.a, outlook.spread.b) == ("sides", 0.8, 0.8)
    (outlook,) = one(plan_detection(planned(tmp_path, "tncse,word_overlap", (1,)), 0.5, 0.8)).outlooks
    assert (outlook.spread.design, outlook.shows) == ("one side", None)  # a single seed shows nothing


def test_of_many_methods_the_first_is_planned_against_each(tmp_path: Path) -> None:
    first, *others = ["diffcse", "tncse", "jtcse", "esimcse", "untrained", "word_overlap"]
    detection = plan_detection(planned(tmp_path, ",".join([first, *others])), 0.5, 1.0)
    assert (detection.first, detection.family, detection.baseline) == (first, 15, None)
    assert [(pair.first, pair.second) for pair in detection.pairs] == [(first, other) for other in others]


def test_variants_are_outside_the_planned_family(tmp_path: Path) -> None:
    methods = "simcse,tncse,jtcse,simcse[steps=7]"
    detection = plan_detection(planned(tmp_path, methods), 0.5, 1.0)
    assert (detection.family, detection.aside) == (2, ("simcse[steps=7]",))
    detection = plan_detection(planned(tmp_path, "simcse,simcse[steps=7]"), 0.5, 1.0)
    assert (detection.family, detection.aside) == (1, ())


def test_the_dry_run_prints_the_table(cli: Cli, tmp_path: Path) -> None:
    finish(planned(tmp_path / "results", "tncse,jtcse", (1, 2, 3), "pilot"), TWINS)
    base = ("run", "--methods", "tncse,jtcse", "--suite", "toy", "--dry-run", "--detect", "0.5")
    code, out, err = cli(*base)
    assert (code, err) == (0, "")
    (row,) = (line for line in out.splitlines() if " pilot " in line)
    assert numbers_in(row) == [0.15, 3, 3, 3, 17, 5, 0.26, 0.15, 1.13]
    assert not missing_facts(out, "0.5 points", "80%", "95% confidence", "5 to 95%", "2 trained stage")
    code, out, _ = cli(*base, "--spread", "0.8")
    (row,) = (line for line in out.splitlines() if "r = 0.9 " in line)
    assert (code, numbers_in(row)) == (0, [0.9, 0.36, 7, 5, 0.60])
    out = cli(*base, "--results", "empty")[1]
    assert not missing_facts(out.splitlines()[-1], "tncse and jtcse", "no earlier records", "--spread")
    out = cli("run", "--methods", "noise", "--suite", "toy", "--dry-run", "--detect", "0.5")[1]
    assert out.splitlines()[-1].startswith("nothing to detect")
