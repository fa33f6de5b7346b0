"""A record of another specification in one place: it stays, and the other cells run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.cli.run import read_plan_records
from bench.config.method_ids import parse_methods
from bench.config.spec import RunSpec
from bench.config.sweeps import SWEEPS, SweepPoint
from bench.errors import UnreadableRecordError
from bench.execution.cell_run import Outcome
from bench.execution.runner import run_plan
from bench.plan.plan import make_plan
from tests.support.cli import Cli, records, refusal, stable_bytes
from tests.support.messages import missing_facts
from tests.support.unreadable import unreadable

TOY = ("--suite", "toy", "--workers", "1")
FIRST = "results/local/mini/x/seed-1/toy.json: x seed 1 on toy"
WHY = "option scale then 1.0, now 2.0"
ENDS = "error: {} cell(s) failed or were not run; the lines above and their records say why"


@pytest.fixture
def first(cli: Cli, tmp_path: Path) -> dict[str, bytes]:
    assert cli("run", "--methods", "x=noise[scale=1]", "--seeds", "1", *TOY)[0] == 0
    return stable_bytes(tmp_path)


def kept(tmp_path: Path, before: dict[str, bytes]) -> bool:
    return stable_bytes(tmp_path).items() >= before.items()


def test_other_cells_run_beside_a_conflict(cli: Cli, tmp_path: Path, first: dict[str, bytes]) -> None:
    code, out, err = cli("run", "--methods", "x=noise[scale=2],word_overlap,noise", "--seeds", "1", *TOY)
    (line,) = (line for line in err.splitlines() if "not run" in line and "error" not in line)
    assert not missing_facts(line, "x seed 1 on toy", FIRST, WHY, "--campaign", "--force")
    assert (code, err.splitlines()[-1]) == (1, ENDS.format(1))
    assert kept(tmp_path, first)
    assert {record.method for record in records(tmp_path).values()} == {"x", "noise", "word_overlap"}
    shown = re.findall(r"(?m)^ (\w+) +[\d-]", out)
    assert sorted(shown) == ["noise", "word_overlap"]  # x is no result of this run
    code, _, err = cli("run", "--methods", "x=noise[scale=2],word_overlap,noise", "--seeds", "1", *TOY)
    assert (code, "2 of 3 cells" in err, err.splitlines()[-1]) == (1, True, ENDS.format(1))


def test_seeds_of_two_specifications_stay_apart(cli: Cli, tmp_path: Path, first: dict[str, bytes]) -> None:
    code, out, err = cli("run", "--methods", "x=noise[scale=2]", "--seeds", "1-3", *TOY)
    assert (code, out, err.splitlines()[-1]) == (1, "", ENDS.format(3))
    refusals = [line for line in err.splitlines() if ": not run, " in line]  # a line a reason
    for seeds, line in zip(("seed 1", "seeds 2,3"), refusals, strict=True):
        assert not missing_facts(line, f"x {seeds} on toy", FIRST, WHY)
    assert stable_bytes(tmp_path) == first
    code, _, err = cli("run", "--methods", "x=noise[scale=2],noise", "--seeds", "2", *TOY, "--force")
    assert (code, missing_facts(err, "x seed 2 on toy: not run", "noise seed 2 on toy: avg")) == (1, [])
    assert kept(tmp_path, first)  # --force replaces what was asked for, not what it is compared with
    assert [(r.method, r.seed) for r in records(tmp_path).values()] == [("noise", 2), ("x", 1)]


def test_a_conflict_stops_no_other_suite(cli: Cli, tmp_path: Path, first: dict[str, bytes]) -> None:
    code, out, _ = cli(
        "run", "--methods", "x=noise[scale=2]", "--seeds", "1", "--suite", "toy,mini", *TOY[2:]
    )
    assert (code, "mini, profile mini" in out, "toy, profile mini" in out) == (1, True, False)
    assert kept(tmp_path, first)
    assert len(records(tmp_path)) == 2


def test_a_dry_run_says_it_and_runs_nothing(cli: Cli, tmp_path: Path, first: dict[str, bytes]) -> None:
    code, out, err = cli("run", "--methods", "x=noise[scale=2],noise", "--seeds", "1", *TOY, "--dry-run")
    assert (code, err.splitlines()[-1], WHY in err) == (1, ENDS.format(1), True)
    assert [line.split()[-1] for line in out.splitlines()[:2]] == ["conflict", "do"]
    assert "1 of 2" in out
    code, out, _ = cli("run", "--methods", "x=noise[scale=2]", "--seeds", "1", *TOY, "--dry-run", "--force")
    assert (code, "run again" in out) == (0, True)
    assert stable_bytes(tmp_path) == first


def test_workers_skip_it_too(cli: Cli, tmp_path: Path, first: dict[str, bytes]) -> None:
    run = ("run", "--methods", "x=noise[scale=2],word_overlap", "--seeds", "1", "--suite", "toy")
    code, _, err = cli(*run, "--workers", "2")
    assert (code, missing_facts(err, WHY, "word_overlap on toy: avg")) == (1, [])
    assert kept(tmp_path, first)


def test_a_sweeps_table_has_no_number_of_another_specification(
    cli: Cli, tmp_path: Path, first: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = (SweepPoint("0", "a", "x=noise[scale=2]"), SweepPoint("1", "a", "word_overlap"))
    monkeypatch.setitem(SWEEPS, "caels", replace(SWEEPS["caels"], points=lambda _: points))
    code, out, err = cli("sweep", "caels", "--seeds", "1", *TOY)
    assert (code, missing_facts(err, "x seed 1 on toy: not run")) == (1, [])
    assert re.search(r"(?m)^ 0 +-$", out)
    assert re.search(r"(?m)^ 1 +86\.04$", out)
    assert kept(tmp_path, first)


def test_another_process_that_finishes_another_specification_meanwhile(tmp_path: Path) -> None:
    spec = RunSpec(parse_methods("noise,word_overlap"), (1,), "mini", suites=("toy",), results=tmp_path)
    plan = make_plan(spec)
    assert [plan.status(job) for job in plan.jobs] == ["to do", "to do"]
    other = make_plan(replace(spec, methods=parse_methods("noise"), threads=2))
    (was,) = run_plan(other, on_outcome=lambda _: None)
    outcomes: list[Outcome] = []
    run_plan(plan, on_outcome=outcomes.append)
    states = {outcome.job.cell.method: outcome.state for outcome in outcomes}
    assert states == {"noise": "conflict", "word_overlap": "ran"}
    (conflict,) = (outcome.conflict for outcome in outcomes if outcome.conflict is not None)
    assert not missing_facts(conflict, "another process", "noise seed 1 on toy", "another specification")
    assert plan.store.read(other.jobs[0].place) == was.record
    assert [record.method for record in read_plan_records(plan)] == ["word_overlap"]


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_record_in_anothers_place_is_a_conflict(cli: Cli, tmp_path: Path, force: tuple[str, ...]) -> None:
    assert cli("run", "--methods", "word_overlap,noise", "--seeds", "2", *TOY)[0] == 0
    folder = tmp_path / "results/local/mini"
    (folder / "word_overlap").rename(folder / "mine")
    (folder / "noise/seed-2").rename(folder / "noise/seed-7")
    before = stable_bytes(tmp_path)
    run = ("run", "--methods", "mine=word_overlap,noise", "--seeds", "1,7", *TOY, *force)
    for options in (("--dry-run",), ()):
        code, out, err = cli(*run, *options)
        assert (code, err.splitlines()[-1]) == (1, ENDS.format(2))
        for cell, file in (("mine", "mine/no-seed"), ("noise seed 7", "noise/seed-7")):
            assert f"{cell} on toy: not run, results/local/mini/{file}/toy.json: " in err
        assert kept(tmp_path, before)
    assert "another process" not in err
    assert re.findall(r"(?m)^ (\w+) +[\d-]", out) == ["noise"]  # by seed 1 alone
    assert len(records(tmp_path)) == 3


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_record_that_cannot_be_read_is_never_replaced(
    cli: Cli, tmp_path: Path, first: dict[str, bytes], suffix: str, force: tuple[str, ...]
) -> None:
    file = (tmp_path / "results/local/mini/x/seed-1/toy.json").with_suffix(suffix)
    run = ("run", "--methods", "x=noise[scale=2]", "--seeds", "1", *TOY, *force)
    with unreadable(file):
        err = refusal(cli, *run)
    assert not missing_facts(err, f"x/seed-1/toy{suffix}", "Permission denied")
    assert stable_bytes(tmp_path) == first


def test_a_record_that_cannot_be_read_any_more_when_its_cell_begins(tmp_path: Path) -> None:
    spec = RunSpec(parse_methods("noise"), (1,), "mini", suites=("toy",), results=tmp_path)
    plan = make_plan(spec)
    (job,) = plan.jobs
    assert plan.status(job) == "to do"
    (was,) = run_plan(make_plan(spec), on_outcome=lambda _: None)
    with unreadable(plan.store.path(job.place)), pytest.raises(UnreadableRecordError):
        run_plan(plan, on_outcome=lambda _: None)
    assert plan.store.read(job.place) == was.record
