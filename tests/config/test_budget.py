"""What a profile gives to methods that it doesn't know, and profiles of the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.card import MethodCard, Option, OptionValue
from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.profiles import Budget
from bench.config.spec import RunSpec
from bench.errors import InputError
from bench.plan.cells import make_cells, profile_options
from bench.registry import METHODS
from bench.training.recipe import training_options
from tests.support.cli import Cli
from tests.support.conformance import RIGHT

NEW = MethodCard("new", "method", "one loss", 1, options=training_options(), needs_backbone=False)
TOWERS = replace(
    NEW, options=(*NEW.options, *(Option(f"sub1.{o.name}", o.default, o.help) for o in NEW.options))
)


class New:
    """A method that no profile knows."""

    card = NEW


@pytest.fixture(autouse=True)
def registered(own_methods: None) -> None:
    METHODS.register("new", New(), "elsewhere")  # type: ignore[arg-type]


def planned(text: str, profile: str) -> tuple[str, dict[str, OptionValue]]:
    (request,) = parse_methods(text)
    (cell,) = make_cells(
        request, NEW, RunSpec((request,), (1,), profile), profiles.load_profile(profile), profile, None, 0
    )
    return cell.method, {name: value for name, value in cell.options if name in ("steps", "epochs")}


@pytest.mark.parametrize("profile", ["mini", "minilm", "bert-base", "roberta-base"])
def test_a_new_method_gets_simcses_budget(profile: str) -> None:
    found = profiles.load_profile(profile)
    simcse = profile_options(METHODS.get("simcse").card, found)
    size: dict[str, OptionValue] = {"batch_size": simcse["batch_size"]}
    options = profile_options(NEW, found, size) | size
    for name in ("steps", "epochs", "eval_every", "batch_size"):
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
    for encoding in ("utf-8", "utf-8-sig"):  # an editor's byte order mark is no statement
        (tmp_path / "mine.toml").write_text(PROFILE, encoding=encoding)
        assert profiles.load_profile(str(tmp_path / "mine.toml")) == replace(
            profiles.load_profile("mini"), name="mine"
        )


@pytest.mark.parametrize(
    "command",
    [
        ("show", "simcse"),
        ("run", "--methods", "word_overlap", "--suite", "toy", "--dry-run"),
    ],
)
def test_a_table_of_no_method_is_named(cli: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "mine.toml").write_text(PROFILE + "\n[methods.simsce]\nlr = 1e-3\n[methods.mine]\nt = 1\n")
    (tmp_path / "mine.py").write_text(RIGHT)
    said = (
        "profile mine.toml: [methods.simsce] does nothing, no method is called so (did you mean 'simcse'?)\n"
    )
    code, _, err = cli(*command, "--profile", "mine.toml", "--plugin", "mine.py")
    assert (code, err) == (0, said)  # a plug-in's table is one of a method
    assert cli(*command, "--profile", "mini")[2] == ""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mini.toml", PROFILE, "'mini' is the name of a profile of bench's own; expected a file of another"),
        ("a b.toml", PROFILE, "'a b' can't name a profile; expected a file of another name"),
        ("x.toml", "suites = [", "not a profile: "),
        ("x.toml", PROFILE.replace("suites = ", "sweets = "), "is missing, unknown or of another type"),
        (
            "x.toml",
            PROFILE.replace("sentences = 9600", "sentences = 0"),
            "'budget.sentences' is missing",
        ),
        (
            "x.toml",
            PROFILE.replace("sentences = 9600", "epochs = 1\nsentences = 1"),
            "'budget.epochs' is",
        ),
        ("x.toml", PROFILE.replace("evaluate_every = 1600", ""), "'budget.evaluate_every' is missing"),
    ],
)
def test_a_file_that_is_no_profile_is_one_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        profiles.load_profile(str(tmp_path / name))
    assert said in str(caught.value)


def test_a_file_that_isnt_there_has_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(PROFILE)
    with pytest.raises(InputError) as caught:
        profiles.load_profile(str(tmp_path / "mien.toml"))
    assert "it can't be read: No such file or directory; did you mean 'mine.toml'?" in str(caught.value)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ({"batch_size": 0}, "equal terms: batch_size: 0 is too small"),
        ({"text": "wiki"}, "equal terms: text: 'wiki' is not a value"),
    ],
)
def test_equal_terms_that_an_option_cannot_have_are_an_error(term: dict[str, OptionValue], text: str) -> None:
    budget = Budget(evaluate_every=1600, sentences=9600, equal=term)
    with pytest.raises(InputError) as error:
        budget.terms(METHODS.get("simcse").card)
    assert text in str(error.value)
