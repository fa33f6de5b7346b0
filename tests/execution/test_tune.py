from __future__ import annotations

import shlex
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.config import profiles
from bench.config.method_ids import parse_methods, parse_override
from bench.config.profiles import Budget, Profile
from bench.config.run_spec import RunSpec
from bench.eval.sts import dev_spearman
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.stage_cache import StageCache
from bench.execution.tuning import REPORTED_SEEDS
from bench.nn.sum_encoder import SumEncoder
from bench.plan.plan import Plan, make_plan
from tests.support.cli import Cli, records, refusal
from tests.support.messages import missing_facts
from tests.support.training import PLUGIN, arguments, the_record


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Plans of the values, whose training is replaced by a dev score of 0.5."""
    asked: list[Plan] = []

    def trained(task: tuple[int, Plan]) -> tuple[int, float | str]:
        asked.append(task[1])
        return task[0], 0.5

    monkeypatch.setattr("bench.execution.tuning._measure_dev_score", trained)
    return asked


def tune(tiny_bert: Path, *extra: str) -> tuple[str, ...]:
    return (
        "tune", "simcse", "--profile", "quick", "--set", "simcse.steps=4", "--set", "simcse.batch_size=8",
        "--set", "simcse.eval_every=2", *extra,
    )  # fmt: skip


@pytest.fixture
def quick(tmp_path: Path, tiny_bert: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile ``quick``: the tiny backbone, a text of 60 sentences, dev suite toy."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    backbone = {"name": "tiny-bert", "hub": str(tiny_bert)}
    text = {"file": corpus.name}
    profile = Profile("quick", "quick", ("toy",), backbone, text, "toy", "", {}, {}, ())
    known = profiles.load_profile
    monkeypatch.setattr(profiles, "load_profile", lambda name: profile if name == "quick" else known(name))


@pytest.mark.usefixtures("quick")
def test_tune_chooses_by_dev_and_prints_a_table(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    code, out, err = cli(*tune(tiny_bert, "--values", "1e-2,1e-4,0"))
    assert code == 0
    made = tomllib.loads(out)
    (grid,) = made["tuning"]
    assert (grid["method"], grid["option"], grid["seed"]) == ("simcse", "lr", 100)
    scores = dict(map(tuple, grid["dev"]))
    assert list(scores) == [1e-2, 1e-4, 0.0]
    assert made["methods"]["simcse"]["lr"] == max(scores, key=lambda value: scores[value])
    assert len(set(scores.values())) == 3
    for value, score in scores.items():
        assert f"lr={value:g}: dev {100 * score:.2f}" in err
    assert not (tmp_path / "results" / "local").exists()  # no record, no test score


@pytest.mark.usefixtures("quick")
def test_the_best_s_neighbours_are_tried(cli: Cli, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dev = {1e-5: 0.1, 1e-4: 0.2, 1e-3: 0.5, 1e-2: 0.4, 1e-1: 0.9}
    tried: list[float] = []

    def trained(task: tuple[int, Plan]) -> tuple[int, float | str]:
        index, plan = task
        value = float(str(dict(plan.jobs[0].cell.options)["lr"]))
        tried.append(value)
        return index, "the loss is nan" if plan.jobs[0].cell.method.startswith("twice") else dev[value]

    monkeypatch.setattr("bench.execution.tuning._measure_dev_score", trained)
    grid = ("--values", "1e-1,1e-2,1e-3,1e-4,1e-5", "--first", "1e-5,1e-4")
    code, out, err = cli(*tune(tiny_bert, *grid))
    assert (code, tried) == (0, [1e-4, 1e-5, 1e-3, 1e-2])  # 1e-1 isn't beside the best
    made = tomllib.loads(out)
    assert made["methods"]["simcse"]["lr"] == 1e-3
    assert sorted(value for value, _ in made["tuning"][0]["dev"]) == [1e-5, 1e-4, 1e-3, 1e-2]
    assert not missing_facts(
        out, "--values 0.1,0.01,0.001,0.0001,1e-05", "--first 1e-05,0.0001", "--seed 100"
    )
    tried.clear()
    several = ("tune", "twice=simcse[tau=0.1],simcse[tau=0.2]", *tune(tiny_bert, *grid)[2:])
    code, out, err = cli(*several)
    assert (code, tried) == (1, [1e-4, 1e-5, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-3, 1e-2])
    assert not missing_facts(err, "twice=simcse[tau=0.1], lr=1e-05: FAILED")
    assert "simcse:" in err.splitlines()[-1]
    assert [grid["method"] for grid in tomllib.loads(out)["tuning"]] == ["simcse[tau=0.2]"]
    assert not missing_facts(out, "bench tune 'simcse[tau=0.2]'", "--profile quick", "--values 0.1,")
    error = refusal(cli, *tune(tiny_bert, "--values", "1e-4", "--first", "1e-4,1e-2"))
    assert not missing_facts(error, "--first:", "0.01", "--values")


@pytest.mark.usefixtures("quick")
def test_other_texts_and_models(cli: Cli, tmp_path: Path, tiny_bert: Path, plans: list[Plan]) -> None:
    shutil.copytree(tiny_bert, tmp_path / "own")
    (tmp_path / "own.txt").write_text("\n".join(f"sentence number {number}" for number in range(40)))
    given = ("--backbone", "own", "--corpus", "own.txt", "--dev", "toy", "--train-precision", "bf16")
    code, out, err = cli(*tune(tiny_bert, "--values", "1e-4", *given, "--threads", "2"))
    assert code == 0, err
    (plan,) = plans
    (job,) = plan.jobs
    assert job.cell.model is not None
    assert plan.training is not None
    assert job.cell.model.path.resolve() == (tmp_path / "own").resolve()
    assert len(plan.training.corpus.sentences) == 40
    assert (job.cell.train_precision, plan.spec.threads) == ("bf16", 2)
    (line,) = [line for line in out.splitlines() if line.startswith("[[tuning]] # ")]
    command = shlex.split(line.removeprefix("[[tuning]] # bench "))
    assert {"--backbone", "--corpus", "--dev", "--train-precision"} < set(command)
    assert not {"--device", "--ranks", "--pairs", "--threads"} & set(command)
    code, again, err = cli(*command)  # the same choice
    assert (code, again) == (0, out), err


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("method", "option", "given"),
    [
        ("simcse", "lr", ("batch_size=8",)),
        ("simcse", "lr", ("batch_size=8", "epochs=2")),
        ("simcse[tau=0.1]", "lr", ("batch_size=8", "dropout=0.2")),
        ("tncse", "sub1.lr", ("rtt=none", "batch_size=8", "sub1.batch_size=8", "sub2.batch_size=8")),
    ],
)
def test_the_lines_train_what_was_tuned(
    cli: Cli, method: str, option: str, given: Any, plans: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = replace(profiles.load_profile("quick"), budget=Budget(16, sentences=64))
    monkeypatch.setattr(profiles, "load_profile", lambda _: profile)
    name = method.partition("[")[0]
    sets = [word for setting in given for word in ("--set", f"{name}.{setting}")]
    code, out, err = cli("tune", method, "--profile", "quick", "--option", option, "--values", "1e-4", *sets)
    assert code == 0, err
    with_table = replace(profile, methods=tomllib.loads(out)["methods"])
    monkeypatch.setattr(profiles, "load_profile", lambda _: with_table)
    spec = RunSpec(parse_methods(name), (100,), "quick", suites=("toy",))
    options = dict(make_plan(spec).jobs[0].cell.options)
    assert options == dict(plans[0].jobs[0].cell.options)
    steps = 0 if "epochs=2" in given else 64 // 8
    assert {value for key, value in options.items() if key.endswith("steps")} == {steps}


@pytest.mark.usefixtures("quick")
def test_whole_numbers_stay_whole(cli: Cli, tiny_bert: Path) -> None:
    code, out, err = cli(*tune(tiny_bert, "--option", "max_length", "--values", "4,8"))
    assert code == 0, err
    made = tomllib.loads(out)
    chosen = made["methods"]["simcse"]["max_length"]
    assert (type(chosen), sorted(value for value, _ in made["tuning"][0]["dev"])) == (int, [4, 8])
    assert f"max_length = {chosen}\n" in out  # as --set takes it: 8.0 is refused there


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_value_that_diverges_is_left_out(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    plugin = ("--plugin", str(tmp_path / "mine.py"))
    code, out, err = cli(*tune(tiny_bert, "--values", "1e30,1e-4", "--set", "simcse.clip=0", *plugin))
    assert code == 0, err
    assert tomllib.loads(out)["methods"]["simcse"]["lr"] == 1e-4
    assert f" --set simcse.clip=0 --plugin {tmp_path / 'mine.py'}\n" in out  # the command whole
    assert out.endswith("# failed: 1e+30\n\n")
    grid = ("--values", "1e30,1.23456789e-4", "--first", "1e30")
    code, out, _ = cli(*tune(tiny_bert, *grid, "--set", "simcse.clip=0"))
    assert (code, "--values 1e+30,0.000123456789" in out) == (0, True)  # the others are tried
    code, out, err = cli(*tune(tiny_bert, "--values", "1e30", "--set", "simcse.clip=0"))
    assert (code, out) == (1, "")
    assert not missing_facts(err, "lr=1e+30: FAILED", "loss is nan", "every value failed")
    code, _, err = cli(*tune(tiny_bert, "--values", "1e-4", "--set", "simcse.eval_every=9"))
    assert (code, missing_facts(err, "lr=0.0001: FAILED", "no dev evaluation")) == (1, [])


@pytest.mark.usefixtures("quick")
def test_encoders_that_train_apart_are_tuned_by_the_dev_score_of_their_sum(cli: Cli, tmp_path: Path) -> None:
    plain = "tncse[nce=false,icnce=false,ictn=false,rtt=none,sub2.lr=1e-3]"
    sets = [f"tncse.{role}.{setting}" for role in ("sub1", "sub2") for setting in ("steps=2", "eval_every=2")]
    sets += ["tncse.sub1.batch_size=8", "tncse.sub2.batch_size=8"]
    given = [word for setting in sets for word in ("--set", setting)]
    code, out, err = cli(
        "tune", plain, "--profile", "quick", "--option", "sub1.lr", "--values", "1e-2,1e-4", *given
    )
    assert code == 0, err
    dev = dict(map(tuple, tomllib.loads(out)["tuning"][0]["dev"]))
    assert dev[1e-2] != dev[1e-4]  # the rate of the tower that isn't the last
    spec = RunSpec(
        parse_methods(plain.replace("]", ",sub1.lr=1e-2]")), (100,), "quick", suites=("toy",),
        results=tmp_path / "results", overrides=tuple(map(parse_override, given[1::2])),
    )  # fmt: skip
    plan = make_plan(spec)
    assert plan.training is not None
    builder = EncoderBuilder(plan.jobs[0].cell, "cpu", plan.training, StageCache(spec.results / ".stages"))
    encoder = builder.encoder()
    assert isinstance(encoder, SumEncoder)
    assert dev[1e-2] == round(dev_spearman(encoder, plan.training.dev), 4)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (("--values", "1,2,3,4,5,6,7"), ("--values: 7 values", "at most 6")),
        (("--values", "1e-3,0.001"), ("--values: 2 values", "each once")),
        (("--values", "1,x"), ("--values: 'x'", "number")),
        (("--values", "1", "--seed", "10"), ("--seed: seed 10", "reported")),
        (("--values", "1", "--seed", "-5"), ("'--seed'", "-5")),
        (("--values", "1", "--set", "simcse.lr=2"), ("--set simcse.lr=2:", "option to choose")),
        (("--values", "1", "--option", "lrr"), ("mean 'lr'?",)),
        (("--values", "1", "--option", "sub1.lr"), ("no option 'sub1.lr'",)),
    ],
)
@pytest.mark.usefixtures("quick")
def test_bad_requests(cli: Cli, tiny_bert: Path, change: tuple[str, ...], facts: tuple[str, ...]) -> None:
    code, _, err = cli(*tune(tiny_bert, *change))
    assert (code, missing_facts(err, *facts)) == (2, []), err


@pytest.mark.parametrize("name", profiles.profile_names())
def test_every_tuned_value_is_the_best_of_its_grid(name: str) -> None:
    profile = profiles.load_profile(name)
    for grid in profile.tuning:
        assert 1 <= len(grid["dev"]) <= 6
        assert grid["seed"] not in REPORTED_SEEDS
        stage, _, option = grid["option"].rpartition(".")
        if "[" in grid["method"]:
            continue  # a variant, whose options stand in its name: see the test of its records
        table = profile.methods[grid["method"]]
        chosen = (table[stage] if stage else table)[option]
        scores = dict(grid["dev"])  # four digits, so that two may look equal
        assert scores[chosen] == max(scores.values()), grid["method"]


def test_match_gives_simcse_as_many_texts(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    methods = "simcse[steps=5],short=simcse[match=pair],often=simcse[match=pair,eval_every=2]"
    usual, other = arguments(tiny_bert, corpus), ("--set", "pair.steps=6", "--set", "pair.batch_size=4")
    short = (*usual[: usual.index("--set")], "--set", "simcse.batch_size=8")  # and the steps are open
    code, _, err = cli(*short, "--seeds", "1", *other, "--methods", methods)
    assert code == 0, err
    by_method = {record.method: record for record in records(tmp_path).values()}
    stage = by_method["short"].training["stages"]["simcse"]
    assert (by_method["short"].options["steps"], by_method["short"].options["eval_every"]) == (6, 1)
    assert stage["sentences_seen"] == 2 * 6 * 4  # the test method has two stages
    assert [step for step, _ in stage["dev_curve"]] == [1, 2, 3, 4, 5, 6]  # as many as in the profile
    stage = by_method["often"].training["stages"]["simcse"]
    assert [step for step, _ in stage["dev_curve"]] == [2, 4, 6]  # what the user says
    assert the_record(tmp_path, 1).key


def test_a_method_that_set_matches_may_be_set_itself(cli: Cli) -> None:
    for row in (("simcse[match=tncse]",), ("simcse", "--set", "simcse.match=tncse")):
        code, out, err = cli("show", *row, "--profile", "mini", "--set", "tncse.sub1.steps=4")
        assert (code, "44 steps of 64" in out) == (0, True), err
