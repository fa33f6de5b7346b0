"""Facts that no key has, and what a row's name says of options."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.records.record import RunRecord, parse_record
from bench.records.store import ResultStore
from bench.registry import METHODS, discover
from bench.verify.card_checks import check_method_id
from bench.verify.findings import Verification
from bench.verify.stage_checks import plan_rerun, replace_stage_keys
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.messages import missing_facts
from tests.support.verified import found_by_verify

Record = dict[str, Any]
Edit = Callable[[Record], object]
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def take(tmp_path: Path) -> Callable[..., list[Path]]:
    """Copy committed records to campaign local: "campaign/profile/method", seeds."""

    def take(row: str, *seeds: int) -> list[Path]:
        campaign, profile, method = row.split("/")
        found = []
        for seed in seeds:
            to = tmp_path / "results" / "local" / profile / method / f"seed-{seed}"
            to.mkdir(parents=True)
            for suffix in ("json", "npz"):
                name = f"mini.{suffix}"
                shutil.copy(RESULTS / campaign / profile / method / f"seed-{seed}" / name, to / name)
            found.append(to / "mini.json")
        return found

    return take


def stages(record: Record) -> list[Record]:
    return list(record["training"]["stages"].values())


def paired(record: Record) -> None:
    for stage in stages(record):
        del stage["text"]["paired"]


def paraphrased(record: Record) -> None:
    for stage in stages(record):
        if "text" in stage:
            stage["text"].update(paired=True)


def of_a_recipe(record: Record) -> None:
    record["backbone"].update(recipe=record["backbone"]["sha256"], sha256="f" * 64)


SIMCSE, EDFSE, JTCSE = "mini/mini/simcse", "mini-equal/mini-equal/edfse", "mini-equal/mini-equal/jtcse"
CONTRADICTIONS: list[tuple[str, Edit, tuple[str, ...]]] = [
    (SIMCSE, lambda r: r["backbone"].update(name="bert-x"), ("name bert-x", "mini-bert")),
    (SIMCSE, of_a_recipe, ("recipe 576e90c1",)),
    (SIMCSE, lambda r: r["training"]["corpus"].update(sentences=1_000_000), ("sentences 1000000", "24000")),
    (SIMCSE, lambda r: r["training"]["dev"].update(task="X-dev"), ("task X-dev", "MINI-dev")),
    (EDFSE, paired, ("doesn't say", "sub1", "paraphrases")),
    (JTCSE, paraphrased, ("it says", "sub1, sub2", "paraphrases")),
    (SIMCSE, lambda r: r.update(world=None), ("which world", "suite mini")),
    (SIMCSE, lambda r: r["training"].update(arithmetic=99), ("arithmetic 99", "has 2")),
    (SIMCSE, lambda r: r["provenance"].update(mteb="2.0"), ("mteb",)),
]


@pytest.mark.campaigns
@pytest.mark.parametrize(("row", "edit", "facts"), CONTRADICTIONS)
def test_what_contradicts_the_data_at_hand_or_takes_a_record_out_of_the_checks_is_found(
    cli: Cli, take: Callable[..., list[Path]], row: str, edit: Edit, facts: tuple[str, ...]
) -> None:
    (path,) = take(row, 1)
    assert found_by_verify(cli) == {}
    forge(path, edit)
    code, out, _ = cli("verify")
    assert (code, missing_facts(out, *facts)) == (1, []), out


def test_another_name_of_the_same_text_and_files_beside_the_records_are_said(
    cli: Cli, take: Callable[..., list[Path]]
) -> None:
    (path,) = take("mini/mini/simcse", 1)
    (path.parents[3] / "overlap.csv").write_text("")
    (path.parents[3] / "gradient").mkdir()
    (path.parents[3] / "gradient" / "gradient-grid.csv").write_text("")
    forge(path, lambda record: record["training"]["corpus"].update(name="wiki1m_for_simcse.txt"))
    code, out, _ = cli("verify")
    facts = "not checked: name", "wiki1m_for_simcse.txt", "mini-1.txt"
    files = "not checked: files", ": overlap.csv", ": gradient/gradient-grid.csv"
    assert (code, missing_facts(out, *facts, *files)) == (0, []), out


def test_a_length_that_the_name_says_is_compared(cli: Cli, take: Callable[..., list[Path]]) -> None:
    take("mini/mini/simcse[match=tncse]", 1)
    assert "match=tncse" not in cli("verify")[1]
    (path,) = take("mini/mini/simcse", 2)
    renamed = path.parents[2] / "simcse[match=tncse]" / "seed-2"
    shutil.move(path.parent, renamed)
    forge(renamed / "mini.json", lambda record: record.update(method="simcse[match=tncse]"))
    facts = "not checked: name", "simcse[match=tncse]", "70 steps", "has 150"
    assert missing_facts(cli("verify")[1], *facts) == []


def as_seed(path: Path, seed: int, edit: Edit) -> Path:
    """A record's copy under another seed, with the keys of its stages and its seal made again."""
    to = path.parents[1] / f"seed-{seed}" / path.name
    shutil.copytree(path.parent, to.parent)

    def change(record: Record) -> None:
        record["seed"] = seed
        edit(record)

    forge(to, change)
    record = parse_record(to.read_text(), str(to))
    predictions = ResultStore(path.parents[4], path.parents[3].name).predictions(record)
    whole = replace_stage_keys(record, plan_rerun(record, None).keys)
    ResultStore(path.parents[4], path.parents[3].name).write(record.place, whole, predictions)
    return to


COPIED: dict[str, Edit] = {
    "as it is": lambda record: None,
    "another loss": lambda record: stages(record)[0]["loss_curve"][0].__setitem__(1, 9.0),
    "no steps": lambda record: stages(record)[0].pop("steps"),
}


@pytest.mark.parametrize("name", COPIED)
def test_predictions_of_another_seed_are_a_copy_whatever_the_training_is_said_to_be(
    cli: Cli, take: Callable[..., list[Path]], name: str
) -> None:
    (path,) = take("mini/mini/simcse", 1)
    if name == "no steps":
        forge(path, COPIED[name])
    as_seed(path, 4, COPIED[name] if name != "no steps" else lambda record: None)
    assert "copy" in {check for checks in found_by_verify(cli).values() for check in checks}
    assert cli("report", "--campaign", "local")[0] != 0


@pytest.mark.campaigns
def test_the_last_checkpoint_is_the_chosen_one_where_the_record_says_so(
    cli: Cli, take: Callable[..., list[Path]]
) -> None:
    paths = take("mini-equal/mini-equal/simcse", *range(1, 11))
    chosen = [stages(json.loads(path.read_text()))[0] for path in paths]
    path = next(p for p, s in zip(paths, chosen, strict=True) if s["selected_step"] == s["steps"])
    assert found_by_verify(cli) == {}

    def raised(record: Record) -> None:
        for score in record["scores"]:
            if score["metric"] == "spearman_last":
                score["value"] = 0.95

    forge(path, raised)
    code, out, _ = cli("verify")
    assert (code, missing_facts(out, "spearman_last is 0.95", "last step")) == (1, []), out


def test_a_sum_without_its_members_and_a_name_that_is_anothers_but_for_case(
    cli: Cli, take: Callable[..., list[Path]]
) -> None:
    (path,) = take("mini/mini/simcse", 1)
    options = {"options": {"methods": "sup_simcse+untrained"}, "version": 1, "training": {}}
    moved = path.parents[2] / "Tncse" / "seed-1"
    shutil.move(path.parent, moved)
    forge(moved / "mini.json", lambda r: r.update(name="ensemble", method="Tncse", **options))
    out = cli("verify")[1]
    assert missing_facts(out, "names none", "itself Tncse", "of tncse", "ensemble made it") == []
    code, _, err = cli("run", "--methods", "SimCSE=untrained", "--dry-run")
    assert (code, missing_facts(err, "alias 'SimCSE'")) == (2, [])
    assert cli("run", "--methods", "SimCSE=simcse", "--dry-run", "--campaign", "new")[0] == 0


SHA = "0123abcd" + 56 * "0"


def wrong(method: str, name: str, **options: Any) -> list[str]:
    """What is wrong of a row's name; its options are the card's and these."""
    card = discover().get(name).card
    options = {option.name: option.default for option in card.options if option.name != "match"} | options
    backbone = {"name": "org/My Model", "sha256": SHA}
    record = RunRecord("nowhere", method, name, card.version, options, backbone, None, "toy", {}, "", "ok")
    return [what for _, what, _ in check_method_id(record, Verification())]


@pytest.mark.parametrize(
    ("method", "name", "options"),
    [
        ("untrained", "untrained", {}),
        ("mine", "untrained", {"pooling": "avg"}),
        ("untrained[pooling=avg]", "untrained", {"pooling": "avg"}),
        ("simcse[match=tncse]", "simcse", {"steps": 3}),
        ("simcse[lr=1e-05,match=tncse]", "simcse", {"lr": 1e-5, "steps": 3}),
        ("simcse[lr=1.0]", "simcse", {"lr": 1.0}),
        ("tncse[icnce=False]", "tncse", {"icnce": False}),
        ("static", "static", {}),
        ("static:esimcse", "static", {"of": "esimcse"}),
        ("static[of=esimcse]", "static", {"of": "esimcse"}),
        ("ensemble:simcse[lr=1e-05]+untrained", "ensemble", {"of": "simcse[lr=1e-05]+untrained"}),
        ("My Model-0123abcd", "hf", {}),
        ("My Model-0123abcd[pooling=avg]", "hf", {"pooling": "avg"}),
        ("prompteol-My Model-0123abcd", "prompteol", {}),
    ],
)
def test_names_that_runs_give(method: str, name: str, options: dict[str, Any]) -> None:
    assert wrong(method, name, **options) == []


@pytest.mark.parametrize(
    ("method", "name", "options", "facts"),
    [
        ("untrained[pooling=avg]", "untrained", {}, ("says pooling=avg", "with pooling=cls")),
        ("simcse[lr=0.00001]", "simcse", {"lr": 1e-5}, ("says lr=0.00001", "with lr=1e-05")),
        ("simcse[x=0.05]", "simcse", {}, ("says x=0.05", "no such option")),
        ("tncse[tau=0.05]", "simcse", {}, ("itself tncse[tau=0.05]", "of simcse")),
        ("untrained:avg", "untrained", {}, ("itself untrained:avg", "of untrained")),
        ("untrained[x]", "untrained", {}, ("itself untrained[x]", "of untrained")),
        (
            "untrained[pooling=avg],simcse",
            "untrained",
            {"pooling": "avg"},
            ("itself untrained[pooling=avg],simcse", "of untrained"),
        ),
        ("static:esimcse", "static", {}, ("itself static:esimcse", "of static")),
        ("Other Model-0123abcd", "hf", {}, ("Other Model-0123abcd", "of hf")),
    ],
)
def test_names_that_say_something_else(
    method: str, name: str, options: dict[str, Any], facts: tuple[str, ...]
) -> None:
    assert [missing_facts(what, *facts) for what in wrong(method, name, **options)] == [[]]


def test_two_rows_that_change_places(cli: Cli) -> None:
    methods = "noise,noise[scale=2.0],noise[scale=3.0]"
    assert cli("run", "--methods", methods, "--seeds", "1", "--suite", "toy")[0] == 0
    assert found_by_verify(cli) == {}
    rows = Path("results", "local", "mini")
    two, three = rows / "noise[scale=2.0]", rows / "noise[scale=3.0]"
    for old, new in ((two, rows / "x"), (three, two), (rows / "x", three)):
        shutil.move(old, new)
    for row in (two, three):
        forge(row / "seed-1" / "toy.json", partial(dict.update, method=row.name))
    names = [f"local/mini/{row.name}/seed-1/toy.json" for row in (two, three)]
    assert found_by_verify(cli) == {name: {"method"} for name in names}
    assert missing_facts(cli("verify")[1], f"{names[0]}: method: ", "scale=2.0", "scale=3.0") == []


def test_what_a_name_does_not_say_is_not_checked(cli: Cli) -> None:
    assert cli("run", "--methods", "noise,mine=noise[scale=2.0]", "--seeds", "1", "--suite", "toy")[0] == 0
    rows = Path("results", "local", "mini")
    assert "not checked" not in cli("verify")[1]
    shutil.rmtree(rows / "noise")
    shutil.move(rows / "mine", rows / "noise")
    forge(rows / "noise" / "seed-1" / "toy.json", partial(dict.update, method="noise"))
    code, out, _ = cli("verify")
    facts = "not checked: name", "row noise", "say scale", "profile mini"
    assert (code, missing_facts(out, *facts)) == (0, []), out
    assert METHODS.get("noise").card.option("scale", "").default == 1.0
