"""``bench show METHOD --profile NAME``: what would run, and where each value comes from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.method_card import format_value
from bench.plan.plan import make_plan
from tests.conftest import Bench
from tests.support.cli import Cli, refusal, show
from tests.support.messages import missing_facts, numbers_in

BUDGET = "  (budget of profile"


def test_it_says_what_the_plan_says(cli: Cli) -> None:
    shown = show(cli, "tncse[sub1.steps=7]", "--profile", "mini", "--set", "tncse.lr=2e-5")
    spec = RunSpec(parse_methods("tncse[sub1.steps=7,lr=2e-5]"), (1,), "mini")
    cell = make_plan(spec).jobs[0].cell
    assert shown["method"] == [f"{cell.method} in profile mini"]
    said = [line.partition("  (")[0] for line in shown["option"]]
    assert sorted(said) == sorted(f"{name}={format_value(value)}" for name, value in cell.options)
    assert [line.partition(":")[0] for line in shown["stage"]] == [name for name, *_ in cell.named_stages]
    assert not missing_facts(shown["stage"][0], "sub1:", "text a;", "7 steps of 64", "448")
    assert (shown["backbone"], shown["dev set"], shown["suites"]) == (["mini-bert"], ["mini-dev"], ["mini"])
    assert shown["training text"] == ["mini-1.txt, 24,000 sentences"]
    assert not missing_facts(shown["budget"], "own table", "profile mini")
    sources = dict(line.split("  (") for line in shown["option"])
    assert (sources["sub1.steps=7"], sources["lr=2e-05"]) == ("given)", "given)")
    assert (sources["sub2.steps=30"], sources["tau=0.05"]) == ("profile mini)", "card)")


def test_sources_of_a_method_without_a_table(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    load = profiles.load_profile
    profile = replace(load("mini"), methods={"simcse": load("mini").methods["simcse"]})
    monkeypatch.setattr(profiles, "load_profile", lambda name: profile)
    shown = show(cli, "distill:simcse", "--profile", "mini", "--set", "distill.batch_size=32")
    assert numbers_in(shown["budget"][0]) == [9600, 1600]
    assert f"steps=300{BUDGET} mini)" in shown["option"]
    assert not missing_facts(shown["stage"][1], "distill: 300 steps of", "32 = 9,600", "dev evaluation")
    shown = show(cli, "distill:simcse", "--profile", "mini", "--set", "distill.epochs=1")
    assert "steps=0  (epochs given)" in shown["option"]
    monkeypatch.undo()
    shown = show(cli, "simcse[match=tncse]", "--profile", "mini")
    assert {"steps=70  (match=tncse)", "eval_every=11  (match=tncse)"} <= set(shown["option"])
    shown = show(cli, "simcse[match=tncse,eval_every=5]", "--profile", "mini")
    assert {"steps=70  (match=tncse)", "eval_every=5  (given)"} <= set(shown["option"])
    assert not missing_facts(shown["stage"][0], "every 5 steps", "14 in all")
    shown = show(cli, "simcse[match=,steps=5]", "--profile", "mini")  # no method: nothing is matched
    assert "steps=5  (given)" in shown["option"]


@pytest.mark.parametrize(
    ("match", "of", "most"),
    [
        ("tncse_d", "tncse_d", ()),
        ("tncse_uc_d", "tncse_uc_d", ()),
        ("tncse_d", "tncse_d", ("--set", "tncse.steps=40")),
        ("tncse_uc", "tncse_uc", ()),
        # stages that they share count once
        ("ensemble", "tncse_d", ("--set", "ensemble.of=tncse+tncse_d")),
    ],
)
def test_match_counts_the_stages_of_members(cli: Cli, match: str, of: str, most: tuple[str, ...]) -> None:
    stages = show(cli, of, "--profile", "mini", *(most if match == of else ()))["stage"]
    theirs = [int(line.split(" = ")[1].split(" ")[0].replace(",", "")) for line in stages]
    assert len(theirs) >= 3
    shown = show(cli, f"simcse[match={match}]", "--profile", "mini", *most)
    assert f"steps={sum(theirs) // 64}  (match={match})" in shown["option"]


@pytest.mark.parametrize("profile", ["mini-equal", "minilm-lm"])
def test_equal_terms_are_the_budget_s_also_beside_a_table(cli: Cli, profile: str) -> None:
    loaded = profiles.load_profile(profile)
    assert loaded.budget is not None
    steps = loaded.budget.sentences // 64
    of_budget = f"{BUDGET} {profile})"
    simcse = show(cli, "simcse[lr=1e-3]", "--profile", profile)["option"]
    terms = (f"steps={steps}", f"eval_every={loaded.budget.evaluate_every // 64}", "batch_size=64")
    assert {f"{term}{of_budget}" for term in (*terms, "max_length=32")} <= set(simcse)
    assert "lr=0.001  (given)" in simcse
    tncse = show(cli, "tncse", "--profile", profile, "--set", "tncse.steps=7")["option"]
    assert {f"sub1.steps={steps}{of_budget}", f"sub2.max_length=32{of_budget}"} <= set(tncse)
    assert "steps=7  (given)" in tncse
    single = show(cli, "tncse_single", "--profile", profile)["option"]
    assert f"text=train{of_budget}" in single  # its card says train+sick
    assert f"sub1.lr={loaded.methods['tncse']['sub1']['lr']}  (profile {profile})" in tncse


def test_what_one_row_is_given_holds_against_what_all_of_its_method_are(cli: Cli) -> None:
    for order in (("simcse.steps=4", "a.steps=5"), ("a.steps=5", "simcse.steps=4")):
        sets = [word for setting in order for word in ("--set", setting)]
        assert "steps=5  (given)" in show(cli, "a=simcse", "--profile", "mini", *sets)["option"]


def test_a_table_beside_equal_terms_overrules_them(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    load = profiles.load_profile
    methods = {"simcse": {"max_length": 16}}
    monkeypatch.setattr(profiles, "load_profile", lambda name: replace(load(name), methods=methods))
    options = show(cli, "simcse", "--profile", "mini-equal")["option"]
    assert "max_length=16  (profile mini-equal)" in options
    assert f"batch_size=64{BUDGET} mini-equal)" in options


def test_a_profile_with_missing_model_and_text(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    shown = show(cli, "tncse_uc_d", "--profile", "bert-base")
    assert shown["training text"][0].startswith("corpus/wiki1m_for_simcse.txt, ")
    assert not missing_facts(shown["stage"][3], "teacher/uc/infocse:", "2 epochs", "64")
    assert show(cli, "word_overlap", "--profile", "mini").keys() == {"method", "suites"}


@pytest.mark.parametrize(
    ("method", "override", "facts"),
    [
        ("simcse[lr=1e-4]", "simcse.lr=2e-5", ("'simcse[lr=1e-4]'", "lr is 0.0001")),
        ("fast=simcse[lr=1e-4]", "fast.lr=2e-5", ("'fast=simcse[lr=1e-4]'", "lr is 0.0001")),
        ("untrained:avg", "untrained.pooling=cls", ("'untrained:avg'", "pooling is avg")),
        ("tncse[sub1.lr=1e-5]", "tncse.sub1.lr=2e-5", ("'tncse[sub1.lr=1e-5]'", "sub1.lr is 1e-05")),
        ("ensemble:simcse[lr=1e-6]+tncse", "simcse.lr=7e-5", ("'simcse[lr=1e-6]'", "lr is 1e-06")),
        ("distill[of=simcse[tau=0.1]]", "simcse.tau=0.2", ("'simcse[tau=0.1]'", "tau is 0.1")),
        ("distill:ensemble:simcse+tncse[icnce=false]", "tncse.icnce=true", ("icnce is false",)),
        ("tncse_d[sick=true]", "tncse.sick=false", ("'tncse[sick=true]'", "sick is true")),
    ],
)
def test_no_override_contradicts_a_row(cli: Cli, method: str, override: str, facts: tuple[str, ...]) -> None:
    where = ("--profile", "mini")
    error = refusal(cli, "show", method, *where, "--set", override)
    assert not missing_facts(error, f"--set {override}:", *facts, "one value", "brackets")
    run = ("run", "--dry-run", "--methods", f"word_overlap,{method}", *where)
    assert refusal(cli, *run, "--set", override) == error


def test_an_equal_override_and_one_of_another_option_are_taken(cli: Cli) -> None:
    asked = ("ensemble:simcse[lr=1e-6]+tncse", "--profile", "mini")
    alone = show(cli, *asked)
    assert show(cli, *asked, "--set", "simcse.lr=0.000001") == alone
    changed = show(cli, *asked, "--set", "simcse.steps=7")
    assert changed["method"] == alone["method"]
    assert "1/simcse: 7 steps" in changed["stage"][0]


def test_it_loads_no_torch(bench: Bench) -> None:
    done = bench("show", "tncse", "--profile", "mini", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "bench.plan.method_explanation" in loaded
    assert not loaded & {"torch", "scipy", "pandas", "transformers"}
