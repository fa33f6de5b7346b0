"""A row's name says of options what its record does."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.records.record import RunRecord
from bench.registry import METHODS, discover
from bench.verify.card_checks import check_method_id
from bench.verify.findings import Verification
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.messages import missing_facts
from tests.support.verified import found_by_verify

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
    """The profile may have been another when the record was made."""
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
