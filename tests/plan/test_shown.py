"""``bench show METHOD --profile NAME``: what would run, and where each value comes from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.spec import RunSpec
from bench.plan.plan import make_plan
from tests.conftest import Bench
from tests.support.cli import Cli, refusal


def shown(cli: Cli, *arguments: str) -> dict[str, list[str]]:
    code, out, err = cli("show", *arguments)
    assert (code, err) == (0, "")
    found: dict[str, list[str]] = {}
    for line in out.splitlines():
        found.setdefault(line[:14].strip(), []).append(line[14:])
    return found


def test_it_says_what_the_plan_says(cli: Cli) -> None:
    found = shown(cli, "tncse[sub1.steps=7]", "--profile", "mini", "--set", "tncse.lr=2e-5")
    spec = RunSpec(parse_methods("tncse[sub1.steps=7,lr=2e-5]"), (1,), "mini")
    cell = make_plan(spec).jobs[0].cell
    assert found["method"] == [f"{cell.method} in profile mini"]
    assert [line.partition("  (")[0] for line in found["option"]] == [f"{n}={v}" for n, v in cell.options]
    assert [line.partition(":")[0] for line in found["stage"]] == [name for name, *_ in cell.named_stages]
    assert found["stage"][0].startswith("sub1: training text a; 7 steps of 64 = 448 sentences; ")
    assert (found["backbone"], found["dev set"], found["suites"]) == (["mini-bert"], ["mini-dev"], ["mini"])
    assert found["training text"] == ["mini-1.txt, 24,000 sentences"]
    assert found["budget"] == ["its own table in profile mini"]
    sources = dict(line.split("  (") for line in found["option"])
    assert (sources["sub1.steps=7"], sources["lr=2e-05"]) == ("given)", "given)")
    assert (sources["sub2.steps=30"], sources["tau=0.05"]) == ("profile mini)", "card)")


def test_sources_of_a_method_without_a_table(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    load = profiles.load_profile
    monkeypatch.setattr(
        profiles,
        "load_profile",
        lambda name: replace(load(name), methods={"simcse": load(name).methods["simcse"]}),
    )
    found = shown(cli, "distill:simcse", "--profile", "mini", "--set", "distill.batch_size=32")
    assert found["budget"] == ["9,600 sentences a training stage, a dev evaluation every 1,600"]
    assert "steps=300  (budget of profile mini)" in found["option"]
    assert found["stage"][1].startswith("distill: 300 steps of 32 = 9,600 sentences; a dev evaluation every")
    found = shown(cli, "distill:simcse", "--profile", "mini", "--set", "distill.epochs=1")
    assert "steps=0  (epochs given)" in found["option"]
    monkeypatch.undo()
    found = shown(cli, "simcse[match=tncse]", "--profile", "mini")
    assert {"steps=70  (match=tncse)", "eval_every=11  (match=tncse)"} <= set(found["option"])
    found = shown(cli, "simcse[match=tncse,eval_every=5]", "--profile", "mini")
    assert {"steps=70  (match=tncse)", "eval_every=5  (given)"} <= set(found["option"])
    assert "a dev evaluation every 5 steps, 14 in all" in found["stage"][0]
    found = shown(cli, "simcse[match=,steps=5]", "--profile", "mini")  # no method: nothing is matched
    assert "steps=5  (given)" in found["option"]


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
def test_match_counts_the_stages_of_a_method_s_members(
    cli: Cli, match: str, of: str, most: tuple[str, ...]
) -> None:
    stages = shown(cli, of, "--profile", "mini", *(most if match == of else ()))["stage"]
    theirs = [int(line.split(" = ")[1].split(" ")[0].replace(",", "")) for line in stages]
    assert len(theirs) >= 3
    found = shown(cli, f"simcse[match={match}]", "--profile", "mini", *most)
    assert f"steps={sum(theirs) // 64}  (match={match})" in found["option"]


@pytest.mark.parametrize("profile", ["mini-equal", "minilm-lm"])
def test_equal_terms_are_the_budget_s_also_beside_a_table(cli: Cli, profile: str) -> None:
    loaded = profiles.load_profile(profile)
    assert loaded.budget is not None
    steps = loaded.budget.sentences // 64
    of_budget = f"  (budget of profile {profile})"
    simcse = shown(cli, "simcse[lr=1e-3]", "--profile", profile)["option"]
    terms = (f"steps={steps}", f"eval_every={loaded.budget.evaluate_every // 64}", "batch_size=64")
    assert {f"{term}{of_budget}" for term in (*terms, "max_length=32")} <= set(simcse)
    assert "lr=0.001  (given)" in simcse
    tncse = shown(cli, "tncse", "--profile", profile, "--set", "tncse.steps=7")["option"]
    assert {f"sub1.steps={steps}{of_budget}", f"sub2.max_length=32{of_budget}", "steps=7  (given)"} <= set(
        tncse
    )
    single = shown(cli, "tncse_single", "--profile", profile)["option"]
    assert f"text=train{of_budget}" in single  # its card says train+sick
    assert f"sub1.lr={loaded.methods['tncse']['sub1']['lr']}  (profile {profile})" in tncse


def test_what_one_row_is_given_holds_against_what_all_of_its_method_are(cli: Cli) -> None:
    for order in (("simcse.steps=4", "a.steps=5"), ("a.steps=5", "simcse.steps=4")):
        sets = [word for one in order for word in ("--set", one)]
        assert "steps=5  (given)" in shown(cli, "a=simcse", "--profile", "mini", *sets)["option"]


def test_a_table_beside_equal_terms_overrules_them(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    load = profiles.load_profile
    monkeypatch.setattr(
        profiles, "load_profile", lambda name: replace(load(name), methods={"simcse": {"max_length": 16}})
    )
    options = shown(cli, "simcse", "--profile", "mini-equal")["option"]
    assert "max_length=16  (profile mini-equal)" in options
    assert "batch_size=64  (budget of profile mini-equal)" in options


def test_a_profile_whose_model_and_text_are_elsewhere_is_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    found = shown(cli, "tncse_uc_d", "--profile", "bert-base")
    assert found["training text"] == ["corpus/wiki1m_for_simcse.txt, not at hand"]
    assert found["stage"][3].startswith("teacher/uc/infocse: 2 epochs in steps of 64; ")
    assert shown(cli, "word_overlap", "--profile", "mini").keys() == {"method", "suites"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simcse[lr=1]",), "settings belong to a profile; expected --profile NAME too"),
        (("simcse", "--set", "simcse.lr=1"), "settings belong to a profile"),
        (("simcse,tncse", "--profile", "mini"), "'simcse,tncse' names 2 methods; expected one"),
        (("simsce", "--profile", "mini"), "unknown method 'simsce' (did you mean 'simcse'?)"),
        (("simcse", "--profile", "mimi"), "unknown profile 'mimi' (did you mean 'mini'?)"),
        (("simcse", "--profile", "mini", "--set", "simce.lr=1"), "no method 'simce' in --methods"),
        (("simcse[x=1]", "--profile", "mini"), "simcse has no option 'x'"),
        (("simcse", "--profile", "mini", "--corpus", "no.txt"), "no.txt"),
    ],
)
def test_what_cant_be_shown_is_one_line(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal(cli, "show", *arguments)


@pytest.mark.parametrize(
    ("method", "override", "said"),
    [
        ("simcse[lr=1e-4]", "simcse.lr=2e-5", "'simcse[lr=1e-4]' says that its lr is 0.0001"),
        ("fast=simcse[lr=1e-4]", "fast.lr=2e-5", "'fast=simcse[lr=1e-4]' says that its lr is 0.0001"),
        ("untrained:avg", "untrained.pooling=cls", "'untrained:avg' says that its pooling is avg"),
        ("tncse[sub1.lr=1e-5]", "tncse.sub1.lr=2e-5", "'tncse[sub1.lr=1e-5]' says that its sub1.lr is 1e-05"),
        ("ensemble:simcse[lr=1e-6]+tncse", "simcse.lr=7e-5", "'simcse[lr=1e-6]' says that its lr is 1e-06"),
        ("distill[of=simcse[tau=0.1]]", "simcse.tau=0.2", "'simcse[tau=0.1]' says that its tau is 0.1"),
        ("distill:ensemble:simcse+tncse[icnce=false]", "tncse.icnce=true", "says that its icnce is False"),
        ("tncse_d[sick=true]", "tncse.sick=false", "'tncse[sick=true]' says that its sick is True"),
    ],
)
def test_no_override_contradicts_what_a_row_says(cli: Cli, method: str, override: str, said: str) -> None:
    where = ("--profile", "mini")
    error = refusal(cli, "show", method, *where, "--set", override)
    assert f"--set {override}: " in error
    assert f"{said}; expected one value; give " in error
    assert "by --set only, or in brackets only" in error
    run = ("run", "--dry-run", "--methods", f"word_overlap,{method}", *where)
    assert refusal(cli, *run, "--set", override) == error


def test_an_equal_override_and_one_of_another_option_are_taken(cli: Cli) -> None:
    asked = ("ensemble:simcse[lr=1e-6]+tncse", "--profile", "mini")
    alone = shown(cli, *asked)
    assert shown(cli, *asked, "--set", "simcse.lr=0.000001") == alone
    more = shown(cli, *asked, "--set", "simcse.steps=7")
    assert more["method"] == alone["method"]
    assert more["stage"][0].startswith("1/simcse: 7 steps of ")


def test_it_loads_no_torch(bench: Bench) -> None:
    done = bench("show", "tncse", "--profile", "mini", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "bench.plan.explain" in loaded
    assert not loaded & {"torch", "scipy", "pandas", "transformers"}
