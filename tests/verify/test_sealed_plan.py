"""A plan sealed before the results: cherry-picked seeds, later looks, other tests, edits of the plan."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.records.sealed_plan import SealedPlan, load_plan, parse_plan, plan_to_json, review_plan
from bench.records.store import ResultStore
from bench.reports.planned_runs import EARLY, NO_PLAN
from tests.support.cli import Cli, refusal
from tests.support.forge import forge
from tests.support.messages import missing_facts

RUN = ("run", "--methods", "noise,broken,word_overlap", "--suite", "toy", "--seeds", "1-4")
TEST = ("--plan", "--baseline", "noise", "--margin", "1")
ROOT = Path("results/local")
PLAN = ROOT / "plan.json"
NOISE = ROOT / "mini" / "noise"
PUBLISH = "publish it now"


@pytest.fixture
def planned(cli: Cli) -> Cli:
    """Four seeds under a plan; even seeds of broken fail."""
    code, _, err = cli(*RUN, *TEST)
    assert code == 1
    assert not missing_facts(err, "plan.json: Planned", "margin 1", "against noise", PUBLISH)
    return cli


def drop_seeds(*seeds: int) -> None:
    for seed in seeds:
        shutil.rmtree(NOISE / f"seed-{seed}")


def said(cli: Cli, *arguments: str) -> str:
    """What a command prints, with all notes of a report, whatever its exit code."""
    is_text = arguments[0] == "report" and "--format" not in arguments
    _, out, err = cli(*arguments, *["--details"] * is_text)
    return out + err


def edit_plan(edit: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(PLAN.read_text())
    edit(data)
    PLAN.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


def sealed() -> SealedPlan:
    plan = load_plan(ROOT)
    assert plan is not None
    return plan


def test_picked_seeds_are_missing_and_later_ones_beside_the_plan(planned: Cli, tmp_path: Path) -> None:
    """Seeds 1 and 2 are dropped for others: report, page, csv, json, verify, bundle and site say so."""
    assert planned("run", "--methods", "noise", "--suite", "toy", "--seeds", "5-6")[0] == 0
    drop_seeds(1, 2)
    shutil.rmtree(ROOT / "mini" / "broken")
    missing = (
        "Planned, but missing: noise seeds 1,2; broken seeds 1-4.",
        "Beside the plan: noise seeds 5,6.",
    )
    for form in ("text", "markdown", "html", "json", "latex"):
        assert not missing_facts(said(planned, "report", "--format", form), *missing), form
    rows = list(csv.DictReader(io.StringIO(planned("report", "--format", "csv")[1])))
    states = {(row["method"], row["seed"], row["status"], row["planned"]) for row in rows}
    assert {("noise", "1", "missing", "True"), ("noise", "5", "ok", "False")} <= states
    assert ("noise", "3", "ok", "True") in states
    assert not missing_facts(said(planned, "verify"), *missing)
    found = json.loads(planned("verify", "--format", "json")[1])
    assert set(missing) <= set(found["plans"]["local"])
    assert not missing_facts(said(planned, "bundle", "local", "--out", "b.zip"), *missing)
    said(planned, "site", "--out", "site")
    page = Path("site/campaigns/local/index.html").read_text()
    entry = json.loads(Path("site/campaigns/local/campaign.json").read_text())
    assert not missing_facts(page, *missing)
    assert set(missing) <= set(entry["plan"])


def test_without_a_plan_every_view_says_so(cli: Cli) -> None:
    assert cli("run", "--methods", "noise", "--suite", "toy", "--seeds", "1-2")[0] == 0
    for form in ("text", "markdown", "html", "json", "latex"):
        assert NO_PLAN in said(cli, "report", "--format", form), form
    assert f"plan of local: {NO_PLAN}" in said(cli, "verify")
    assert NO_PLAN in said(cli, "bundle", "local", "--out", "b.zip")
    said(cli, "site", "--out", "site")
    assert NO_PLAN in Path("site/campaigns/local/index.html").read_text()
    assert "planned" not in said(cli, "report", "--format", "csv")


def test_all_planned_runs_are_there(cli: Cli) -> None:
    run = ("run", "--methods", "noise,word_overlap", "--suite", "toy", "--seeds", "1-2", "--plan")
    assert cli(*run)[0] == 0
    facts = ("No planned run is missing.", "No run is beside the plan.", "tests all pairs, margin 0.5")
    assert not missing_facts(said(cli, "report"), *facts)
    code, _, err = cli(*run)
    assert (code, PUBLISH in err, "cells are done already" in err) == (0, False, True)
    review = review_plan(sealed(), ResultStore(Path("results"), "local").records())
    assert (review.missing, review.beside, review.changed, review.early) == ((), (), (), ())


def test_a_report_tests_what_was_planned(planned: Cli) -> None:
    assert "equal within 1 points" in said(planned, "report")
    out = said(planned, "report", "--margin", "2", "--methods", "noise,word_overlap", "--senteval-rounding")
    facts = ("Not the planned analysis", "margin 2", "rounded scores", "methods chosen by --methods")
    assert not missing_facts(out, "equal within 2 points", *facts)
    assert "broken" not in out.partition("Planned, but missing")[2].partition("\n")[0]
    assert "tests all pairs" in said(planned, "report", "--family", "all")
    assert "baseline word_overlap" in said(planned, "report", "--baseline", "word_overlap")


def test_a_planned_baseline_without_seeds_stops_no_report(planned: Cli) -> None:
    drop_seeds(2, 3, 4)
    code, out, _ = planned("report")
    assert (code, missing_facts(out, "noise can't be the baseline", "noise seeds 2-4")) == (0, [])
    drop_seeds(1)
    assert planned("report")[0] == 0


def test_a_plan_comes_before_results(cli: Cli) -> None:
    assert cli(*RUN)[0] == 1
    error = refusal(cli, *RUN, "--plan")
    assert not missing_facts(error, "9 records are here already", "before results", "another --campaign")
    assert not PLAN.exists()


def test_another_plan_is_refused_with_what_differs(planned: Cli) -> None:
    before = PLAN.read_bytes()
    code, _, err = planned("run", "--methods", "noise", "--suite", "toy", "--seeds", "1-5", "--plan")
    facts = ("noise seeds 5 on toy only here", "word_overlap on toy", "margin 1 there, 0.5 here")
    assert (code, missing_facts(err.replace("seed 5", "seeds 5"), *facts, "another --campaign")) == (3, [])
    code, _, err = planned(*RUN, "--plan", "--dry-run")
    assert (code, missing_facts(err, "baseline noise there, none here")) == (3, [])
    assert PLAN.read_bytes() == before


def test_a_dry_run_seals_nothing(cli: Cli) -> None:
    code, out, err = cli(*RUN, *TEST, "--dry-run")
    assert (code, missing_facts(err, "to be sealed: Planned", "seeds 1-4", "margin 1")) == (0, [])
    assert "9 of 9 cells to run" in out
    assert not ROOT.exists()


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (("--margin", "1"), ("--margin", "--plan as well")),
        (("--baseline", "noise"), ("--baseline", "--plan as well")),
        (("--family", "all"), ("--family", "--plan as well")),
        (("--plan", "--baseline", "simcse"), ("unknown method 'simcse'", "--baseline", "noise")),
        (("--plan", "--family", "baseline"), ("no baseline is planned", "--baseline METHOD")),
        (("--plan", "--margin", "0"), ("--margin",)),
    ],
)
def test_wrong_options_are_refused_and_seal_nothing(
    cli: Cli, options: tuple[str, ...], facts: tuple[str, ...]
) -> None:
    assert not missing_facts(refusal(cli, *RUN, *options), *facts)
    assert not ROOT.exists()


def test_a_shard_seals_the_whole_plan(cli: Cli) -> None:
    cli(*RUN, *TEST, "--shard", "1/2", "--results", "a")
    cli(*RUN, *TEST, "--shard", "2/2", "--results", "b")
    one, other = (load_plan(Path(name, "local")) for name in "ab")
    assert one is not None
    assert other is not None
    assert (one.identity, len(one.cells)) == (other.identity, 9)
    for name in "ab":
        assert cli("merge", f"{name}/local", "--into", "all")[0] == 0
    assert "Planned, but missing: broken seeds 2,4." in said(cli, "report", "--results", "all")


def test_cells_beside_the_plan_are_named_before_they_run(planned: Cli) -> None:
    code, _, err = planned("run", "--methods", "noise", "--suite", "toy", "--seeds", "4-6")
    assert (code, "2 of 3 cells are beside the sealed plan" in err) == (0, True)


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "margin": lambda plan: plan.update(margin=0.02),
    "a seed": lambda plan: plan["cells"].pop(),
    "the date": lambda plan: plan.update(sealed="2020-01-01T00:00:00+00:00"),
    "an entry": lambda plan: plan.update(more=1),
    "no cell": lambda plan: plan.update(cells=[]),
    "a twin": lambda plan: plan["cells"].append(plan["cells"][0]),
    "a type": lambda plan: plan.update(margin="1"),
    "no date": lambda plan: plan.update(sealed="yesterday"),
    "newer": lambda plan: plan.update(schema=2),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_plan_is_refused_everywhere(planned: Cli, edit: str) -> None:
    edit_plan(EDITS[edit])
    for command in (("report",), RUN, (*RUN, *TEST)):
        assert not missing_facts(refusal(planned, *command), "plan.json", "this plan can't be used")
    code, out, _ = planned("verify")
    assert (code, missing_facts(out, "plan.json: plan: this plan can't be used")) == (1, [])


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{}", b'{"schema": true}', b"[" * 100_000])
def test_a_file_that_is_no_plan(planned: Cli, content: bytes) -> None:
    PLAN.write_bytes(content)
    assert not missing_facts(refusal(planned, "report"), "plan.json", "this plan can't be used")


def test_a_link_and_a_folder_are_no_plan(planned: Cli) -> None:
    moved = PLAN.rename("elsewhere.json")
    PLAN.symlink_to(moved.resolve())
    assert "it is a link" in refusal(planned, "report")
    PLAN.unlink()
    PLAN.mkdir()
    assert "this plan can't be used" in refusal(planned, "report")


def test_a_removed_plan_is_missed(planned: Cli) -> None:
    """Records name their plan: it can't be dropped or replaced without editing them too."""
    shutil.rmtree(ROOT / "mini" / "broken")
    PLAN.unlink()
    code, out, _ = planned("verify")
    assert (code, missing_facts(out, "seed-1/toy.json: plan: its plan is not here")) == (1, [])
    assert "Made under another plan, which is not here: noise seeds 1-4" in said(planned, "report")
    shutil.rmtree(NOISE / "seed-1")
    kept = Path("kept")
    ROOT.rename(kept)
    assert planned("run", "--methods", "noise", "--suite", "toy", "--seeds", "2-4", "--plan")[0] == 0
    shutil.rmtree(NOISE)
    (kept / "mini" / "noise").rename(NOISE)
    code, out, _ = planned("verify")
    assert (code, missing_facts(out, "seed-2/toy.json: plan: it was made under another plan")) == (1, [])
    assert f"{EARLY} noise seeds 2-4." in said(planned, "report")


def test_a_plan_made_after_its_results_is_dated(planned: Cli) -> None:
    """Somebody who seals a plan again names it in every record; its date is after theirs."""
    drop_seeds(4)
    shutil.rmtree(ROOT / "mini" / "broken")
    plan = sealed()
    cells = tuple(cell for cell in plan.cells if cell.method == "noise" and cell.seed != 4)
    later = replace(plan, cells=cells, sealed="2099-01-01T00:00:00+00:00")
    PLAN.write_text(plan_to_json(later))
    for path in NOISE.glob("*/toy.json"):
        forge(path, lambda record: record["timing"].update(plan=later.identity))
    assert f"{EARLY} noise seeds 1-3." in said(planned, "report")


def test_another_specification_is_not_the_planned_one(planned: Cli) -> None:
    plan = sealed()
    cells = tuple(replace(cell, key="0" * 64) if cell.seed == 2 else cell for cell in plan.cells)
    records = ResultStore(Path("results"), "local").records()
    changed = review_plan(plan, records, cells).changed
    assert {(record.method, record.seed) for record in changed} == {("noise", 2)}
    PLAN.write_text(plan_to_json(replace(plan, cells=cells)))
    assert "Not as planned, by their keys: noise seed 2." in said(planned, "report")


def test_a_bundle_keeps_the_plan(planned: Cli) -> None:
    shutil.rmtree(ROOT / "mini" / "broken")
    assert planned("bundle", "local", "--out", "b.zip")[0] == 0
    assert planned("bundle", "--extract", "b.zip", "--into", "unpacked")[0] == 0
    assert Path("unpacked/results/local/plan.json").read_bytes() == PLAN.read_bytes()
    assert planned("merge", "b.zip", "--into", "merged")[0] == 0
    assert planned("merge", "b.zip", "--into", "merged")[0] == 0
    assert Path("merged/local/plan.json").read_bytes() == PLAN.read_bytes()
    other = ("run", "--methods", "noise", "--suite", "toy", "--results", "unplanned", "--seeds")
    assert planned(*other, "7")[0] == 0
    code, _, err = planned("merge", "b.zip", "--into", "unplanned")
    assert (code, missing_facts(err, "without the plan", "--campaign NAME")) == (3, [])
    assert planned(*other, "7", "--campaign", "c", "--plan")[0] == 0
    code, _, err = planned("merge", "b.zip", "--into", "unplanned", "--campaign", "c")
    assert (code, missing_facts(err, "another plan is sealed there")) == (3, [])
    assert not list(Path("unplanned").glob("*/mini/noise/seed-1"))


def test_a_plan_is_written_once(planned: Cli) -> None:
    plan = sealed()
    assert parse_plan(plan_to_json(plan).encode()) == plan
    assert parse_plan(plan_to_json(plan).replace("\n", "\r\n").encode()) == plan  # git may change line ends
    assert replace(plan, sealed="2020-01-01T00:00:00+00:00", bench="0").identity == plan.identity
    assert replace(plan, margin=0.02).identity != plan.identity


def test_a_planned_suite_without_a_record_is_missing(cli: Cli) -> None:
    assert cli("run", "--methods", "noise", "--suite", "toy,mini-sts", "--seeds", "1-2", "--plan")[0] == 0
    for path in NOISE.glob("*/mini-sts.*"):
        path.unlink()
    missing = "Planned, but missing: all of mini-sts, noise seeds 1,2."
    assert missing in said(cli, "report")
    assert missing not in said(cli, "report", "--suite", "toy")
    found = [list(read_csv(cli, *words)) for words in ((), ("--suite", "toy"))]
    assert [sum(row["status"] == "missing" for row in rows) for rows in found] == [2, 0]


def read_csv(cli: Cli, *words: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(cli("report", "--format", "csv", *words)[1])))


def test_a_planned_run_that_was_made_without_the_plan_is_not_as_planned(cli: Cli) -> None:
    run = ("run", "--methods", "noise", "--suite", "toy", "--seeds", "1-2")
    assert cli(*run)[0] == 0
    NOISE.rename(ROOT.parent / "early")
    assert cli(*run, "--plan", "--force")[0] == 0
    shutil.rmtree(NOISE / "seed-1")
    shutil.move(ROOT.parent / "early" / "seed-1", NOISE / "seed-1")
    assert {(row["seed"], row["planned"]) for row in read_csv(cli)} == {("1", "False"), ("2", "True")}
    out = said(cli, "report")
    assert not missing_facts(out, f"{EARLY} noise seed 1.")
    assert "No planned run is missing" not in out


def test_tests_with_runs_beside_the_plan_are_not_the_planned_analysis(planned: Cli) -> None:
    assert "Not the planned analysis" not in said(planned, "report")
    assert planned("run", "--methods", "noise", "--suite", "toy", "--seeds", "5")[0] == 0
    assert "Not the planned analysis: with runs beside the plan." in said(planned, "report")


def test_every_table_and_junit_have_the_plan(planned: Cli, tmp_path: Path) -> None:
    for table in ("significance", "leaderboard"):
        assert "No run is beside the plan." in said(planned, "report", "--table", table)
    planned("verify", "--junit", "v.xml")
    assert "No run is beside the plan." in Path("v.xml").read_text()


def test_a_baseline_may_be_named_without_its_options(cli: Cli) -> None:
    run = ("run", "--methods", "noise[scale=2],word_overlap", "--suite", "toy", "--seeds", "1-2")
    assert cli(*run, "--plan", "--baseline", "noise")[0] == 0
    assert sealed().baseline == "noise[scale=2.0]"


def test_before_the_first_run_a_sealed_plan_is_said(planned: Cli) -> None:
    shutil.rmtree(ROOT / "mini")
    assert "no run of the sealed plan is done yet" in refusal(planned, "report")
    assert not missing_facts(
        refusal(planned, "verify", str(ROOT)), "no records here yet", "the plan is sealed"
    )


@pytest.mark.parametrize("year", ["0001", "2099", "9999"])
def test_a_plan_is_sealed_in_the_time_of_bench(planned: Cli, year: str) -> None:
    PLAN.write_text(plan_to_json(replace(sealed(), sealed=f"{year}-12-31T00:00:00+00:00")))
    code, out, _ = planned("verify")
    assert (code, f"plan: it says that it was sealed on {year}-12-31" in out) == (1, True), out


def test_a_plan_that_is_damaged_in_mid_run_costs_no_cell(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.execution import cell_run

    def measure_and_damage(*given: Any) -> Any:
        measured = measure(*given)
        PLAN.write_text("{")
        return measured

    measure = cell_run.measure_job
    monkeypatch.setattr(cell_run, "measure_job", measure_and_damage)
    code, _, err = cli("run", "--methods", "noise", "--suite", "toy", "--seeds", "1-2", "--plan")
    assert (code, missing_facts(err, "plan.json", "this plan can't be used")) == (2, []), err
    kept = json.loads((NOISE / "seed-1" / "toy.json").read_text())
    assert (kept["status"], "plan" in kept["timing"]) == ("ok", True)
    assert not (NOISE / "seed-2" / "toy.json").exists()
