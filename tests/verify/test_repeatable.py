"""Which records a repetition can show here: small lifts on every seed, and records that escape repetition."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cli.main import main
from bench.data.toy_suite import make_toy_task
from bench.errors import InputError
from bench.execution.repetition import RerunDifference
from bench.records.integrity import HARDWARE_TOLERANCE
from bench.records.record import RunRecord, Score, parse_record
from bench.verify import repeatability, rerun_sample
from bench.verify.findings import Verification
from bench.verify.repeatability import (
    FALSE_ALARMS,
    ScoreShift,
    find_mean_shifts,
    mean_shift_p,
)
from bench.verify.stage_checks import plan_rerun
from tests.support.cli import Cli
from tests.support.forge import Edit, forge, forge_predictions
from tests.support.messages import missing_facts
from tests.support.verified import found_by_verify

ROW = "simcse[batch_size=8,eval_every=2,steps=2]"
COMMITTED = Path(__file__).parents[2] / "results"
SIMCSE = Path("results/local/mini", ROW)
SEEDS = (1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of five trainings of two steps, and of a method that trains nothing."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["run", "--methods", f"{ROW},word_overlap", "--seeds", "1-5", "--suite", "toy", "--dev", "toy"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.raises(SystemExit) as stopped:
            main(words)
    assert not stopped.value.code
    return folder / "results"


@pytest.fixture
def results(trained: Path, cli: Cli) -> Cli:
    """The command line in a copy of that folder."""
    shutil.copytree(trained, "results")
    return cli


def at(seed: int) -> Path:
    """The record of a seed."""
    return SIMCSE / f"seed-{seed}" / "toy.json"


def elsewhere(path: Path) -> None:
    """Let a record say that it was made on another CPU, which is part of no key."""
    forge(path, lambda record: record["timing"].update(processor="Xeon"))


def lift(path: Path, amount: float = 0.0002) -> float:
    """Make predictions a little better than they are, with all that follows from them; return the gain."""
    gold = np.asarray(make_toy_task().subsets[0].gold, dtype=np.float32)
    before = parse_record(path.read_text(), str(path))
    lifted = {
        s.metric: s.value for s in forge_predictions(path, lambda values: values + amount * gold).scores
    }

    def add_last_scores(record: dict[str, Any]) -> None:
        record["scores"] = [
            {**vars(score), "value": lifted[score.metric.removesuffix("_last")]} for score in before.scores
        ]

    forge(path, add_last_scores)
    return lifted["spearman"] - (before.score("avg") or 0.0)


def test_honest_cells_are_verified_and_repeatable(results: Cli) -> None:
    code, out, err = results("verify", "--rerun", "9")
    facts = (
        "verified: 6 of 6 records",
        "repeatable here: 6 of 6 records",
        "6 of 6 cells repeated: nothing",
    )
    assert (code, missing_facts(out, *facts), "not repeatable" in out + err) == (0, [], False)
    recorded = "as recorded: what trainings gave", "as recorded: costs of runs"
    assert missing_facts(out, *recorded) == []


def test_a_lift_of_every_seed_is_found(results: Cli) -> None:
    for seed in SEEDS:
        assert 0.002 < lift(at(seed)) < 0.008
        elsewhere(at(seed))
    assert found_by_verify(results) == {}
    code, out, err = results("verify", "--rerun", "9")
    assert (code, out.count(": shift: "), ": rerun: " in out) == (1, 1, False), out
    facts = "5 repeated cells of simcse[", "above those of their repetitions", "0.006"
    assert missing_facts(out, *facts) == []
    assert out.count("not repeatable here: local/mini/simcse[") == 5
    assert missing_facts(err, "its average is", "CPUs of equal versions differ by up to 0.006") == []


OPT_OUTS: dict[str, Edit] = {
    "arithmetic 1": lambda record: record["training"].update(arithmetic=1),
    "nowhere": lambda record: record.update(profile="nowhere"),
    "weights": lambda record: record["backbone"].update(sha256="0" * 64, recipe="1" * 64),
    "training text": lambda record: record["training"]["corpus"].update(sha256="0" * 64),
    "method version": lambda record: record.update(version=0),
    "dev set": lambda record: record["training"]["dev"].update(task="MYDEV", sha256="0" * 64),
    "unknown here": lambda record: record.update(name="nonesuch", method="nonesuch"),
}


@pytest.mark.parametrize("reason", OPT_OUTS)
def test_who_escapes_repetition_is_counted_and_named(results: Cli, reason: str) -> None:
    for seed in SEEDS:
        forge(at(seed), OPT_OUTS[reason])
        record = json.loads(at(seed).read_text())
        place = Path("results/local", record["profile"], record["method"], f"seed-{seed}")
        if place != at(seed).parent:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(at(seed).parent, place)
    code, out, err = results("verify")
    facts = "verified: 6 of 6 records", "repeatable here: 1 of 6 records"
    assert (code, missing_facts(out, *facts)) == (0, []), out
    (line,) = (line for line in out.splitlines() if line.startswith("not repeatable here: "))
    assert (reason in line, line.endswith("(5)"), "forge" in out + err) == (True, True, False), line
    code, out, err = results("verify", "--rerun", "12")
    assert (code, missing_facts(out, "1 of 6 cells repeated", "5 cells not repeatable here")) == (3, []), out
    assert out.splitlines()[-1].endswith("nothing found wrong")
    assert out.count("not repeatable here: local/") == 5


def test_other_versions_leave_a_lift_open_and_equal_digits_confirm(results: Cli) -> None:
    for seed in SEEDS:
        forge(at(seed), lambda record: record["provenance"]["versions"].update(torch="1.0"))
    code, out, _ = results("verify", "--rerun", "9")
    reason = "not repeatable here: other versions: torch then 1.0, now "
    assert missing_facts(results("verify")[1], reason, "(5)", "repeatable here: 1 of 6") == []
    facts = "repeatable here: 6 of 6", "6 of 6 cells repeated: nothing wrong"  # as they were just repeated
    assert (code, missing_facts(out, *facts), reason in out) == (0, [], False), out
    for seed in SEEDS:
        lift(at(seed))
    assert found_by_verify(results) == {}
    code, out, err = results("verify", "--rerun", "9")
    assert (code, missing_facts(out, "1 of 6 cells repeated", "5 cells not repeatable here")) == (3, []), out
    assert err.count(reason) == 5
    assert "forge" not in out + err


@pytest.mark.long
def test_what_a_merge_repeats_is_repeatable(results: Cli) -> None:
    for seed in SEEDS:
        forge(at(seed), lambda record: record["provenance"]["versions"].update(torch="1.0"))
    merge = "merge", "results/local", "--into", "target", "--require", "repeatable"
    assert (results(*merge)[0], results(*merge, "--rerun", "9")[0]) == (3, 0)


def test_one_lifted_cell_is_not_repeatable(results: Cli) -> None:
    lift(at(1))
    elsewhere(at(1))
    code, out, err = results("verify", "--rerun", "9")
    assert (code, missing_facts(out, "5 of 6 cells repeated", "above its repetition's")) == (3, []), out
    assert "forge" not in out + err


def test_equal_cells_count_in_the_shift(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ScoreShift] = []

    def keep(shifts: list[ScoreShift]) -> list[tuple[str, str]]:
        seen.extend(shifts)
        return []

    monkeypatch.setattr(rerun_sample, "find_mean_shifts", keep)
    for seed in (1, 2):
        elsewhere(at(seed))
    lift(at(1))
    assert results("verify", "--rerun", "9")[0] == 3
    assert [shift.value > 0 for shift in sorted(seen, key=lambda shift: shift.seed or 0)] == [True, False]


def test_the_level_that_a_merge_and_a_site_require(results: Cli) -> None:
    into = ("merge", "results/local", "--into", "target")
    code, out, _ = results(*into, "--require", "repeatable")
    assert (code, "6 records added" in out) == (0, True)
    shutil.rmtree("target")
    for seed in SEEDS:
        forge(at(seed), OPT_OUTS["method version"])
    code, out, err = results(*into, "--require", "repeatable")
    assert (code, Path("target").exists(), err.count("\n")) == (3, False, 1), err
    assert missing_facts(err, "5 of 6 records are not repeatable here", "method version", "nothing was") == []
    assert results(*into, "--require", "good")[0] == 2
    code, out, _ = results(*into)
    assert (code, missing_facts(out, "verified: 6 of 6", "repeatable here: 1 of 6", "6 records added")) == (
        0,
        [],
    )
    code, _, err = results("site", "--out", "site")
    check = json.loads(Path("site/campaigns/local/campaign.json").read_text())["check"]
    assert (code, check["status"], check["shortfall"]) == (0, "verified", "")
    assert not any(line.startswith(("repeatable", "not repeatable")) for line in check["said"])
    code, _, err = results("site", "--out", "site", "--require", "repeatable")
    check = json.loads(Path("site/campaigns/local/campaign.json").read_text())["check"]
    assert (code, check["status"]) == (1, "verified")
    assert missing_facts(err, "less than --require repeatable: campaign local: 5 of 6 records are not") == []
    assert "in doubt" not in err
    assert any(line.startswith("not repeatable here: ") for line in check["said"])


def test_the_level_without_evaluation_data(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_data(*asked: object) -> None:
        raise InputError("suite 'toy' needs evaluation data")

    monkeypatch.setattr("bench.eval.rescoring._load_suite", no_data)
    assert "verified: 0 of 6 records" in results("verify")[1]
    code, _, err = results("site", "--out", "site")
    check = json.loads(Path("site/campaigns/local/campaign.json").read_text())["check"]
    assert (code, check["status"]) == (1, "in part")
    assert missing_facts(err, "6 of 6 records are not recomputed", "suite 'toy' needs evaluation data") == []


def test_a_gpus_record_is_repeatable_where_that_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(device: str, where: str) -> None:
        raise InputError("torch sees no CUDA device", where=where)

    here = {"python": "3", "device": "cuda H100", "processor": "EPYC"}
    record = RunRecord("mini", "untrained", "untrained", 1, {}, None, None, "toy", {}, "", "ok")
    record = replace(record, provenance={"device": "cuda H100", "python": "3"}, timing={"processor": "EPYC"})
    planned = replace(record, provenance={"device": "cuda"}, timing={})
    repeatability._environment_here.cache_clear()
    monkeypatch.setattr(repeatability, "check_available", absent)
    assert (
        repeatability.explain_unrepeatable(record, planned) == "made on cuda H100: torch sees no CUDA device"
    )
    repeatability._environment_here.cache_clear()
    monkeypatch.setattr(repeatability, "check_available", lambda *asked: None)
    monkeypatch.setattr(repeatability, "collect_training_environment", lambda device: here)
    assert repeatability.explain_unrepeatable(record, planned) == ""
    other = replace(record, timing={"processor": "Xeon"})
    assert "shift not testable" in repeatability.explain_unrepeatable(other, planned)
    repeatability._environment_here.cache_clear()


def test_a_task_that_another_cpu_does_not_explain_is_not_repeated(
    results: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = parse_record(at(1).read_text(), str(at(1)))
    tasks = {name: now.tasks["TOY"] for name in ("A", "B")}
    scores = [Score(name, "all", "spearman", 0.5, 9) for name in ("A", "B", "avg")]
    now = replace(now, tasks=tasks, scores=tuple(scores))
    then = replace(now, timing={**now.timing, "processor": "Xeon"})

    def repeat(moved: float) -> Verification:
        swapped = [replace(scores[0], value=0.5 + moved), replace(scores[1], value=0.5 - moved), scores[2]]
        differences = [RerunDifference("scores", "A all spearman", 0.5 + moved, 0.5)]
        monkeypatch.setattr(rerun_sample, "rerun_record", lambda *_, **__: (differences, now))
        verified = Verification(records=["x"])
        record = replace(then, scores=tuple(swapped))
        rerun_sample.repeat_sample(verified, [("x", record)], 1, None, lambda _: None)
        return verified

    assert repeat(1.9 * HARDWARE_TOLERANCE).repeated == ["x"]
    verified = repeat(0.12)
    assert (verified.repeated, verified.exit_code) == ([], 3)
    assert missing_facts(verified.unrepeated["x"], "A is 12 points above its repetition's", "a task") == []


def row(name: str, *values: float) -> list[ScoreShift]:
    """Shifts of a row's seeds."""
    return [
        ScoreShift(f"{name}-{seed}", ("mini", name, "toy"), seed, value) for seed, value in enumerate(values)
    ]


def test_the_shift_of_a_row_and_of_all_rows() -> None:
    honest = row("b", 0.00001, -0.00005, 0.00006)
    assert list(find_mean_shifts(honest)) == list(find_mean_shifts(row("a", 0.3))) == []
    (file, what), *_ = find_mean_shifts([*row("a", -0.0045, -0.0044, -0.0045), *honest])
    assert (file, missing_facts(what, "3 repeated cells of a (", "0.45 points below", "0.006")) == ("a-0", [])
    values = [0.004, 0.005, 0.006, 0.0045, 0.0055]  # one seed a row: none is testable alone
    one_each = [replace(row(name, 0.0)[0], seed=i, value=values[i]) for i, name in enumerate("abcde")]
    ((_, what),) = find_mean_shifts(one_each)
    assert missing_facts(what, "5 repeated cells of all rows", "0.5 points above") == []
    same_seed = [replace(shift, seed=1) for shift in one_each]
    assert list(find_mean_shifts(same_seed)) == []  # runs of one seed may share a stage


@pytest.mark.parametrize("spread", [HARDWARE_TOLERANCE / 2, 0.0005, 0.005])
@pytest.mark.parametrize("seeds", [2, 5])
def test_honest_shifts_are_seldom_a_finding(spread: float, seeds: int) -> None:
    chooser = random.Random(7)  # noqa: S311 - no secret
    trials, found = 1000, 0
    for _ in range(trials):
        shifts = [s for name in "abc" for s in row(name, *(chooser.gauss(0, spread) for _ in range(seeds)))]
        found += bool(list(find_mean_shifts(shifts)))
    assert found <= 2 * FALSE_ALARMS * trials


def test_p_of_a_mean_shift() -> None:
    # by hand: mean 0.002, error 0.001 / sqrt(3), t = (0.002 - 0.00006) / error = 3.36, 2 degrees of freedom
    assert mean_shift_p([0.001, 0.002, 0.003]) == pytest.approx(2 * 0.039153, rel=1e-4)
    assert mean_shift_p([-0.001, -0.002, -0.003]) == mean_shift_p([0.001, 0.002, 0.003])
    assert (mean_shift_p([0.004, 0.004]), mean_shift_p([HARDWARE_TOLERANCE / 2] * 4)) == (0.0, 1.0)


def test_what_no_check_confirms_is_marked_as_recorded(results: Cli) -> None:
    for table, what in (("checkpoints", "scores of the last checkpoint"), ("efficiency", "costs, sizes")):
        code, out, err = results("report", "--table", table, "--details")
        assert (code, f"As recorded: {what}" in out) == (0, True), out + err


def test_members_keys_take_the_weights_that_a_recipe_made_elsewhere(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path))  # nothing was made here
    path = COMMITTED / "minilm-lm" / "minilm-lm" / "jtcse_uc_d" / "seed-1" / "sts7.json"
    record = parse_record(path.read_text(), str(path))
    run = plan_rerun(record, data_dir)
    assert list(run.wrong(record)) == []
    changed = json.loads(path.read_text())
    stage = changed["training"]["members"]["teacher"]["members"]["uc"]
    stage["auxiliaries"]["mlm_head"]["sha256"] = "0" * 64
    forged = parse_record(json.dumps(changed), str(path))
    assert [check for check, *_ in plan_rerun(forged, data_dir).wrong(forged)] == ["stages"]
