"""Budgets of methods that no profile names, and profiles from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.profiles import Budget
from bench.config.run_spec import RunSpec
from bench.errors import InputError
from bench.method_card import MethodCard, Option, OptionValue
from bench.plan.cell_expansion import make_cells, profile_options
from bench.registry import METHODS
from bench.training.recipe import training_options
from tests.support.cli import Cli
from tests.support.conformance import RIGHT
from tests.support.messages import check_error, missing_facts

NEW = MethodCard("new", "method", "one loss", 1, options=training_options(), needs_backbone=False)
TOWERS = replace(NEW, options=(*NEW.options, *(replace(o, name=f"sub1.{o.name}") for o in NEW.options)))


@pytest.fixture(autouse=True)
def registered(own_methods: None) -> None:
    METHODS.register("new", SimpleNamespace(card=NEW), "elsewhere")


def planned(text: str, profile: str) -> tuple[str, dict[str, OptionValue]]:
    (request,) = parse_methods(text)
    spec, loaded = RunSpec((request,), (1,), profile), profiles.load_profile(profile)
    (cell,) = make_cells(request, NEW, spec, loaded, profile, None, 0)
    return cell.method, {name: value for name, value in cell.options if name in ("steps", "epochs")}


@pytest.mark.parametrize("profile", ["mini", "minilm", "bert-base", "roberta-base"])
def test_a_new_method_gets_simcses_budget(profile: str) -> None:
    loaded = profiles.load_profile(profile)
    simcse = profile_options(METHODS.get("simcse").card, loaded)
    options = profile_options(NEW, loaded, {"batch_size": simcse["batch_size"]})
    for name in ("steps", "epochs", "eval_every"):
        assert options[name] == simcse[name], name


@pytest.mark.parametrize(
    ("text", "identity", "steps", "epochs"),
    [
        ("new", "new", 150, 1),
        ("new[batch_size=48]", "new[batch_size=48]", 200, 1),
        ("new[batch_size=1000]", "new[batch_size=1000]", 10, 1),
        ("new[steps=7]", "new[steps=7]", 7, 1),
        ("new[steps=150]", "new", 150, 1),
        ("new[epochs=1]", "new[steps=0]", 0, 1),  # not the name of the first: it trains otherwise
        ("new[epochs=2]", "new[epochs=2,steps=0]", 0, 2),
        ("new[epochs=2,steps=9]", "new[epochs=2,steps=9]", 9, 2),
    ],
)
def test_what_the_user_gives_wins(text: str, identity: str, steps: int, epochs: int) -> None:
    assert planned(text, "mini") == (identity, {"steps": steps, "epochs": epochs})


def test_each_tower_gets_the_budget_at_its_own_batch_size() -> None:
    budget = Budget(evaluate_every=1600, sentences=9600)
    options = {option.name: option.default for option in TOWERS.options} | {"sub1.batch_size": 128}
    assert budget.options(TOWERS, options) == {
        "eval_every": 25, "steps": 150, "sub1.eval_every": 12, "sub1.steps": 75
    }  # fmt: skip


def test_a_method_whose_steps_nobody_can_count_keeps_its_own() -> None:
    budget = Budget(evaluate_every=1600, sentences=9600)
    for options in ((Option("steps", 5, "no batches"),), (Option("epochs", 3, "x"), NEW.options[1]), ()):
        card = replace(NEW, options=options)
        assert budget.options(card, {option.name: option.default for option in options}) == {}


def test_every_method_of_the_papers_has_a_table_in_their_profiles() -> None:
    for name in ("bert-base", "roberta-base"):
        profile = profiles.load_profile(name)
        assert {"simcse", "tncse", "infocse", "unsee_byol"} <= profile.methods.keys()
        assert profile_options(METHODS.get("infocse").card, profile)["epochs"] == 2


PROFILE = (Path(profiles.__file__).parent / "mini.toml").read_text(encoding="utf-8")


def test_a_file_is_a_profile(tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "mine.toml").write_text(PROFILE, encoding=encoding)
        loaded = profiles.load_profile(str(tmp_path / "mine.toml"))
        assert loaded == replace(profiles.load_profile("mini"), name="mine")


@pytest.mark.parametrize("command", ["show simcse", "run --methods word_overlap --suite toy --dry-run"])
def test_a_table_of_no_method_is_named(cli: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "mine.toml").write_text(PROFILE + "\n[methods.simsce]\nlr = 1e-3\n[methods.mine]\nt = 1\n")
    (tmp_path / "mine.py").write_text(RIGHT)
    code, _, err = cli(*command.split(), "--profile", "mine.toml", "--plugin", "mine.py")
    assert (code, missing_facts(err, "mine.toml", "[methods.simsce]", "'simcse'")) == (0, [])
    assert "methods.mine" not in err
    assert cli(*command.split(), "--profile", "mini")[2] == ""


@pytest.mark.parametrize(
    ("name", "old", "new", "fact"),
    [
        ("mini.toml", "", "", "'mini'"),
        ("a b.toml", "", "", "'a b'"),
        ("x.toml", PROFILE, "suites = [", "not a profile"),
        ("x.toml", "sentences = 9600", "epochs = 1\nsentences = 1", "'budget.epochs'"),
    ],
)
def test_a_file_that_is_no_profile(tmp_path: Path, name: str, old: str, new: str, fact: str) -> None:
    (tmp_path / name).write_text(PROFILE.replace(old, new) if old else PROFILE)
    path = str(tmp_path / name)
    check_error(lambda: profiles.load_profile(path), f"--profile {path}", fact, kind=InputError)


def test_a_missing_file_has_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(PROFILE)
    error = check_error(lambda: profiles.load_profile(str(tmp_path / "mien.toml")), kind=InputError)
    assert not missing_facts(error.hint, "'mine.toml'")


@pytest.mark.parametrize("term", [{"batch_size": 0}, {"text": "wiki"}])
def test_equal_terms_that_an_option_cannot_have_are_an_error(term: dict[str, OptionValue]) -> None:
    budget = Budget(evaluate_every=1600, sentences=9600, equal=term)
    ((name, value),) = term.items()
    card = METHODS.get("simcse").card
    check_error(lambda: budget.terms(card), f"equal terms: {name}", value, kind=InputError)
