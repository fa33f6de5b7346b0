"""Plans: what is read and found once, keys, shares for several machines, records of other specifications."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from bench.cli.run import read_plan_records
from bench.config.method_ids import parse_methods, parse_override
from bench.config.run_spec import RunSpec
from bench.config.sweeps import SWEEPS, SweepPoint
from bench.data.corpus import Corpus, read_corpus
from bench.errors import UnreadableRecordError
from bench.execution.cell_run import Outcome
from bench.execution.runner import find_pending_jobs, run_plan
from bench.nn.model_files import hash_files
from bench.plan.plan import Plan, PlanInputs, make_plan, split_plan
from bench.records import store
from bench.records.fingerprint import ENCODER_FACTS, IN_STAGE, compute_record_key, fact_values
from bench.records.record import RunRecord
from tests.support.cli import Cli, records, refusal, stable_bytes
from tests.support.forge import forge
from tests.support.messages import missing_facts, numbers_in
from tests.support.unreadable import unreadable

SHORT = ("steps=2", "eval_every=2", "batch_size=8")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    counted: Counter[Path] = Counter()
    read = store._parse_valid_record

    def counting(path: Path, content: bytes) -> RunRecord:
        counted[path] += 1
        return read(path, content)

    monkeypatch.setattr(store, "_parse_valid_record", counting)
    return counted


def test_ten_finished_cells_are_read_at_most_twice(cli: Cli, reads: Counter[Path]) -> None:
    command = ("run", "--methods", "noise", "--seeds", "1-10", "--suite", "toy", "--workers", "1")
    assert cli(*command)[0] == 0
    reads.clear()
    code, _, err = cli(*command)
    assert (code, "10 of 10 cells" in err) == (0, True)
    assert len(reads) == 10
    assert max(reads.values()) <= 2
    reads.clear()
    assert cli(*command, "--dry-run")[0] == 0
    assert set(reads.values()) == {1}


def test_the_state_of_every_job_is_found_once(cli: Cli, tmp_path: Path, reads: Counter[Path]) -> None:
    cli("run", "--methods", "noise,broken", "--seeds", "1-2", "--suite", "toy", "--workers", "1")
    methods = parse_methods("noise,broken")
    plan = make_plan(RunSpec(methods, (1, 2, 3), "mini", suites=("toy",), results=tmp_path / "results"))
    reads.clear()
    states: dict[str, list[str]] = {}
    for job in plan.jobs:  # seed by seed
        states.setdefault(job.cell.method, []).append(plan.status(job))
    assert states == {"noise": ["done", "done", "to do"], "broken": ["done", "failed", "to do"]}
    pending = ["broken seed 2", "noise seed 3", "broken seed 3"]
    assert [job.cell.describe() for job in plan.pending()] == pending
    assert find_pending_jobs(plan) == plan.pending()
    assert set(reads.values()) == {1}


def trained(tmp_path: Path, methods: str, backbone: Path, corpus: Path, **changes: object) -> Plan:
    names = ("simcse", "tncse", "tncse.sub1", "tncse.sub2", "distill")
    overrides = tuple(parse_override(f"{name}.{text}") for name in names for text in SHORT)
    used = tuple(override for override in overrides if override.method in methods)
    spec = RunSpec(
        parse_methods(methods), (1,), "mini", ("toy",), str(backbone), used, corpus=corpus, dev="toy"
    )
    return make_plan(replace(spec, results=tmp_path / "results", **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("methods", ["simcse", "distill:ensemble:simcse+untrained", "ensemble:simcse+simcse"])
def test_records_match_their_plan(methods: str, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    plan = trained(tmp_path, methods, tiny_bert, corpus)
    (job,) = plan.jobs
    (outcome,) = run_plan(plan, on_outcome=lambda _: None)
    record = outcome.record
    assert record is not None
    assert record.status == "ok", record.reason
    assert record.key == job.key == compute_record_key(record)
    assert make_plan(plan.spec).status(job) == "done"


def test_facts_outside_a_stages_key_share_training(tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    def stage_and_key(**changes: object) -> tuple[str, str]:
        (job,) = trained(tmp_path, "simcse", tiny_bert, corpus, **changes).jobs
        return job.cell.stages[0].key, job.key

    stage, key = stage_and_key()
    assert stage_and_key() == (stage, key)
    lowered = stage_and_key(precision="bf16")
    assert (lowered[0] == stage, lowered[1] == key) == (True, False)
    for change in ({"threads": 2}, {"train_precision": "bf16"}, {"ranks": 2}, {"device": "cuda"}):
        other = stage_and_key(**change)
        assert (other[0] == stage, other[1] == key) == (False, False)
    assert stage_and_key(workers=2, force=True, keep_vectors=True) == (stage, key)


def test_the_facts_of_a_stage_are_facts_of_its_cell(tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    (job,) = trained(tmp_path, "simcse", tiny_bert, corpus).jobs
    assert {fact.name for fact in IN_STAGE} <= {fact.name for fact in ENCODER_FACTS}
    said = fact_values(job.record, IN_STAGE)
    assert said["arithmetic of training"] == 2
    assert said["weights"] == job.cell.model.sha256  # type: ignore[union-attr]


@pytest.fixture
def text_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    counted: Counter[Path] = Counter()

    def counting(path: Path, exclude: tuple[int, int] | None = None, column: str | None = None) -> Corpus:
        counted[path] += 1
        return read_corpus(path, exclude, column)

    monkeypatch.setattr("bench.data.training_data.read_corpus", counting)
    return counted


def text_in(spec: RunSpec, inputs: PlanInputs | None = None) -> str:
    corpus = make_plan(spec, inputs).jobs[0].record.training["corpus"]
    return str(corpus["sha256"])


def test_a_text_is_read_once_for_shared_plans(tmp_path: Path, text_reads: Counter[Path]) -> None:
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    one.write_text("A line of text.\nAnd more.\n" * 64)
    other.write_text("Another line.\nAnd more.\n" * 64)
    specs = [
        RunSpec(parse_methods(methods), (seed,), "mini", corpus=file)
        for methods, seed, file in product(("simcse", "arccon"), (1, 2), (one, other))
    ]
    inputs = PlanInputs()
    shared = [text_in(spec, inputs) for spec in specs]
    assert dict(text_reads) == {one: 1, other: 1}
    assert shared == [text_in(spec) for spec in specs]
    assert len(set(shared)) == 2


def test_a_backbone_is_hashed_once_for_shared_plans(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []

    def counting(path: Path) -> str:
        hashed.append(path)
        return hash_files(path)

    monkeypatch.setattr("bench.nn.model_folder.hash_files", counting)
    own = RunSpec(parse_methods("simcse"), (1,), "mini")
    given = replace(own, backbone=str(tiny_bert))
    inputs = PlanInputs()
    records = [
        make_plan(spec, inputs).jobs[0].record for spec in (own, given, replace(own, seeds=(2,)), given)
    ]
    assert len(hashed) == len(set(hashed)) == 2
    assert [record.backbone == records[0].backbone for record in records] == [True, False, True, False]
    make_plan(own)
    assert len(hashed) == 3


def test_a_plan_of_its_own_sees_what_was_changed(tmp_path: Path) -> None:
    text, inputs = tmp_path / "text.txt", PlanInputs()
    text.write_text("A line of text.\nAnd more.\n" * 64)
    spec = RunSpec(parse_methods("simcse"), (1,), "mini", corpus=text)
    before = text_in(spec, inputs)
    text.write_text("Another line.\nAnd more.\n" * 64)
    assert text_in(spec, inputs) == before
    assert text_in(spec) != before


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
    assert out.splitlines()[-1].startswith("merged/local: 1 record ")


def test_two_campaigns_in_a_folder_are_refused(cli: Cli) -> None:
    for campaign in ("a", "b"):
        run = ("run", "--methods", "word_overlap", "--suite", "toy", "--campaign", campaign)
        assert cli(*run)[0] == 0
    error = refusal(cli, "merge", "results", "--into", "merged")
    assert not missing_facts(error, "results: 2 campaigns", "a, b")


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
    (line,) = refusals
    assert not missing_facts(line, "x seeds 1-3 on toy", FIRST, WHY, "--campaign", "--seeds 1-3 --force")
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
