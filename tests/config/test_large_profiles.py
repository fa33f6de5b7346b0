"""Profiles of further backbones: tiny stand-ins run in them, rates have a source or are called untuned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.config.profiles import load_profile
from bench.plan.cell_expansion import profile_options
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.registry import own_methods
from tests.support.cli import Cli, refusal, show
from tests.support.messages import missing_facts
from tests.support.released import hub_folder
from tests.support.stand_ins import DECODERS, KINDS, make_stand_in

RATES = {
    "bert-large": {
        "simcse": (64, 1e-5), "sup_simcse": (512, 1e-5), "iscse": (64, 1e-5), "sncse": (128, 5e-6),
        "infocse": (64, 7e-6),
    },
    "roberta-large": {
        "simcse": (512, 3e-5), "sup_simcse": (512, 1e-5), "iscse": (512, 3e-5), "sncse": (128, 5e-6),
    },
}  # fmt: skip
"""Batch and rate as printed: READMEs and scripts that the profiles name."""
UNTRAINED = ("prompteol", "echo", "metaeol", "pretended_cot", "knowledge_enhancement", "token_prepending")
"""Rows of decoders that bring their model."""
SHORT = ("steps=2", "eval_every=1", "batch_size=4", "max_length=12", "lora_rank=4")
ENCODER_SHORT = SHORT[:-1]


@pytest.mark.parametrize("profile", KINDS)
def test_every_rate_has_a_source_or_none(profile: str) -> None:
    loaded = load_profile(profile)
    assert loaded.rates is not None
    assert loaded.rates.keys() == RATES.get(profile, {}).keys()
    for method, (batch, rate) in RATES.get(profile, {}).items():
        options = profile_options(own_methods()[method].card, loaded)
        assert (options["batch_size"], options["lr"]) == (batch, rate), method
    assert loaded.budget is not None
    assert loaded.budget.epochs == 1


def test_show_names_source_memory_and_hours(cli: Cli) -> None:
    shown = show(cli, "simcse", "--profile", "roberta-large")
    assert shown["rate"] == [load_profile("roberta-large").rates["simcse"]]  # type: ignore[index]
    assert not missing_facts(shown["weights"][0], "355.4 M, 355.4 M trained")
    assert not missing_facts(shown["memory"][0], "10.7 GiB", "5.3 of weights", "5.4 of activations")
    assert not missing_facts(shown["hours"][0], "1.4 H200 hours", "30 TFLOP/s")
    for method in ("esimcse", "tncse"):
        assert not missing_facts(show(cli, method, "--profile", "roberta-large")["rate"][0], "untuned")
    assert show(cli, "esimcse[lr=1e-4]", "--profile", "roberta-large")["rate"] == ["given"]
    shown = show(cli, "simcse[lora_rank=8]", "--profile", "bert-large")
    assert not missing_facts(shown["weights"][0], "335.1 M, 3.5 M trained")
    for profile in ("mini", "bert-base"):  # they name no sources: their rates are the cards' papers'
        assert "rate" not in show(cli, "simcse", "--profile", profile)
    assert "memory" not in show(cli, "simcse", "--profile", "mini")


def test_the_list_of_profiles_has_sizes(cli: Cli) -> None:
    lines = cli("list", "profiles")[1].splitlines()
    (line,) = (line for line in lines if line.startswith("llama-3.2-1b "))
    assert not missing_facts(line, "1,236 M weights", "simcse 15 GiB", "3.5 H200 hours")
    (line,) = (line for line in lines if line.startswith("mini "))
    assert "weights" not in line


def test_a_gated_backbone_says_how_to_get_it(cli: Cli, hub: Path) -> None:
    err = refusal(cli, "run", "--methods", "untrained", "--profile", "llama-3.2-1b", "--suite", "toy")
    assert not missing_facts(err, "hf download meta-llama/Llama-3.2-1B", "licence", "hf auth login")


def run_stand_in(
    cli: Cli, profile: str, hub: Path, tmp_path: Path, corpus: Path, methods: str, *more: str
) -> list[RunRecord]:
    """Put a stand-in into the hub's cache, run methods in the profile; return the records."""
    if not (tmp_path / "made").exists():
        stand_in = make_stand_in(profile, tmp_path / "made")
        hub_folder(hub, load_profile(profile).backbone["hub"], 40 * "a", stand_in)
    short = SHORT if profile in DECODERS else ENCODER_SHORT
    rows = re.split(r"[,:\[]", methods)
    names = [name for name in ("simcse", "esimcse", "promptbert", "crop") if name in rows]
    sets = [word for name in names for value in short for word in ("--set", f"{name}.{value}")]
    where = ("--profile", profile, "--suite", "toy", "--dev", "toy", "--corpus", str(corpus))
    code, out, err = cli("run", "--methods", methods, "--seeds", "1", *where, *sets, *more, as_is=True)
    assert code == 0, err
    assert not missing_facts(err, f"untuned in profile {profile}:") or profile in RATES
    if "--dry-run" in more:
        assert not missing_facts(out, "by arithmetic, in float32", "H200 hours a seed of all rows")
        whole = "all weights are trained by ct: lora_rank=64"
        assert (whole in out) == (profile in DECODERS and "ct" in rows)
        return []
    records = ResultStore(Path("results"), "local").records()
    assert {record.status for record in records} == {"ok"}
    assert {record.profile for record in records} == {profile}
    return records


@pytest.mark.parametrize("profile", ["modernbert-base", "qwen3-0.6b"])
def test_a_stand_in_trains_in_the_profile(
    cli: Cli, profile: str, hub: Path, tmp_path: Path, corpus: Path
) -> None:
    (record,) = run_stand_in(cli, profile, hub, tmp_path, corpus, "simcse")
    assert record.seed == 1
    assert any("untuned" in note for note in record.notes)
    assert cli("report", "--format", "text")[1].count(f"profile {profile} are untuned") == 1


@pytest.mark.parametrize(("profile", "methods"), [("qwen3-0.6b", "simcse,ct"), ("modernbert-base", "ct")])
def test_a_dry_run_names_rows_that_train_all_weights_of_a_decoder(
    cli: Cli, profile: str, methods: str, hub: Path, tmp_path: Path, corpus: Path
) -> None:
    run_stand_in(cli, profile, hub, tmp_path, corpus, methods, "--dry-run")


@pytest.mark.long
@pytest.mark.parametrize("profile", KINDS)
def test_every_stand_in_runs_several_methods(
    cli: Cli, profile: str, hub: Path, tmp_path: Path, corpus: Path
) -> None:
    other = "promptbert[denoising=false]" if profile == "deberta-v3-base" else "esimcse"
    methods = f"simcse,{other},untrained:avg"
    if profile in DECODERS:
        name = load_profile(profile).backbone["hub"]
        methods = ",".join(["simcse,crop,untrained:last", *(f"{row}:{name}" for row in UNTRAINED)])
    run_stand_in(cli, profile, hub, tmp_path, corpus, methods, "--dry-run")
    records = run_stand_in(cli, profile, hub, tmp_path, corpus, methods)
    assert len(records) == len(methods.split(","))
    (simcse,) = (record for record in records if record.name == "simcse")
    stage = simcse.training["stages"]["simcse"]
    if profile in DECODERS:
        assert 0 < stage["trained_parameters"] < stage["parameters"]
    untuned = any("untuned" in note for note in simcse.notes)
    assert untuned == (profile not in RATES)
