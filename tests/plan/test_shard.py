"""Shares of a plan: nothing lost, nothing twice, what trains together stays together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config.method_ids import parse_methods
from bench.config.spec import RunSpec
from bench.plan.plan import Plan, make_plan, split_plan
from tests.support.cli import Cli, refusal, stable_bytes
from tests.support.forge import forge
from tests.support.messages import missing_facts, numbers_in

SHARED = "simcse,untrained,tncse[rtt=none],jtcse[rtt=none],word_overlap,ensemble:simcse+untrained"


def planned(results: Path, methods: str = SHARED, seeds: Sequence[int] = (1, 2, 3)) -> Plan:
    spec = RunSpec(parse_methods(methods), tuple(seeds), "mini", suites=("toy", "mini"), results=results)
    return make_plan(spec)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_every_cell_is_in_one_share_and_no_stage_in_two(tmp_path: Path, count: int) -> None:
    plan = planned(tmp_path)
    dealt = split_plan(plan, count)
    assert len(dealt) == count
    names = [(job.place, index) for index, jobs in enumerate(dealt) for job in jobs]
    assert sorted(map(str, (place for place, _ in names))) == sorted(str(job.place) for job in plan.jobs)
    owners: dict[object, set[int]] = {}
    for index, jobs in enumerate(dealt):
        for job in jobs:
            for part in (job.cell.describe(), *(stage.key for stage in job.cell.all_stages)):
                owners.setdefault(part, set()).add(index)
    assert len(owners) > 9 + len({job.cell.describe() for job in plan.jobs})
    assert all(len(shares) == 1 for shares in owners.values())
    assert sum(map(bool, dealt)) == min(count, 3 + 3 + 2)  # simcse with its ensemble; tncse with jtcse; two


def test_a_share_keeps_the_plans_order_and_its_work_is_like_the_others(tmp_path: Path) -> None:
    plan = planned(tmp_path, "simcse", range(1, 9))
    dealt = split_plan(plan, 4)
    order = {job.place: index for index, job in enumerate(plan.jobs)}
    for jobs in dealt:
        assert [order[job.place] for job in jobs] == sorted(order[job.place] for job in jobs)
        assert len({job.cell.seed for job in jobs}) == 2


def test_what_is_done_moves_no_cell(cli: Cli, tmp_path: Path) -> None:
    plan = planned(tmp_path / "results", "noise,word_overlap,untrained")
    before = [[job.place for job in jobs] for jobs in split_plan(plan, 3)]
    assert cli("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy")[0] == 0
    again = planned(tmp_path / "results", "noise,word_overlap,untrained")
    assert {again.status(job) for job in again.jobs} == {"done", "to do"}
    assert [[job.place for job in jobs] for jobs in split_plan(again, 3)] == before


def test_cells_tied_by_a_third_go_together(tmp_path: Path) -> None:
    plan = planned(tmp_path, "simcse", (1, 2, 3))
    first, second, third = (job for job in plan.jobs if job.suite == "toy")
    both = replace(third.cell, stages=(*first.cell.stages, *second.cell.stages))
    tied = replace(plan, jobs=(first, second, replace(third, cell=both)))
    assert [len(jobs) for jobs in split_plan(tied, 2)] == [3, 0]


@pytest.mark.parametrize("folders", ["{}", "{}/local"])
def test_shards_merge_to_what_one_run_makes(cli: Cli, tmp_path: Path, folders: str) -> None:
    run = ("run", "--methods", "noise,word_overlap", "--seeds", "1-3", "--suite", "toy")
    assert cli(*run)[0] == 0
    for number in ("1", "2", "3"):
        code, _, err = cli(*run, "--shard", f"{number}/3", "--results", number)
        assert code == 0
        assert err.startswith(f"shard {number}/3: ")
    parts = [folders.format(number) for number in ("1", "2", "3")]
    code, out, _ = cli("merge", *parts, "--into", "merged/results")
    assert (code, out.count("merged/results/local: ")) == (0, 3)
    assert stable_bytes(tmp_path / "merged") == stable_bytes(tmp_path)
    code, out, _ = cli("merge", *parts, "--into", "merged/results")
    assert (code, out.count(": 0 records")) == (0, 3)
    assert cli("run", *run[1:], "--results", "merged/results")[2].startswith("4 of 4 cells")


def test_shards_of_one_campaign_do_not_meet(cli: Cli, tmp_path: Path) -> None:
    run = ("run", "--methods", "noise,word_overlap", "--seeds", "1-3", "--suite", "toy")
    assert cli(*run, "--results", "whole/results")[0] == 0
    for number in ("2", "1"):
        assert cli(*run, "--shard", f"{number}/2")[0] == 0
    assert stable_bytes(tmp_path) == stable_bytes(tmp_path / "whole")


def test_an_empty_share_is_no_error(cli: Cli) -> None:
    run = ("run", "--methods", "noise", "--seeds", "1", "--suite", "toy", "--shard", "4/9")
    for extra in ((), ("--dry-run",)):
        code, _, err = cli(*run, *extra)
        assert (code, numbers_in(err.partition(": ")[2])) == (0, [0, 1, 1, 9])


def test_a_failed_cell_of_a_shard_stays_out_and_is_named(cli: Cli, tmp_path: Path) -> None:
    run = ("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy")
    assert cli(*run)[0] == 0
    path = next((tmp_path / "results").rglob("seed-2/toy.json"))
    failed = {"status": "failed", "predictions": None, "reason": "planted"}
    forge(path, lambda record: record.update(failed, scores=[]))
    code, out, _ = cli("merge", "results", "--into", "merged")
    assert (code, missing_facts(out, "1 failed cells", "mini/noise/seed-2/toy.json")) == (0, [])
    assert out.splitlines()[-1].startswith("merged/local: 1 records")


def test_two_campaigns_in_a_folder_are_refused(cli: Cli) -> None:
    for campaign in ("a", "b"):
        run = ("run", "--methods", "word_overlap", "--suite", "toy", "--campaign", campaign)
        assert cli(*run)[0] == 0
    error = refusal(cli, "merge", "results", "--into", "merged")
    assert not missing_facts(error, "results: 2 campaigns", "a, b")
