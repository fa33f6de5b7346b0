from __future__ import annotations

from dataclasses import replace

import pytest

from bench.config import profiles
from bench.errors import BenchError, InputError
from bench.method_card import Option
from bench.plan.cell_expansion import profile_options
from bench.registry import METHODS, Registry, add_method, discover


def test_a_name_belongs_to_one_origin() -> None:
    registry: Registry[int] = Registry("thing")
    registry.register("a", 1, "here")
    registry.register("a", 1, "here")
    with pytest.raises(BenchError) as caught:
        registry.register("a", 2, "there")
    assert str(caught.value) == "thing 'a' is defined twice: in here and in there; rename one of them"
    assert registry.get("a") == 1


def test_unknown_names_get_a_suggestion_and_the_choice() -> None:
    with pytest.raises(InputError) as caught:
        discover().get("untraned", where="--methods")
    text = str(caught.value)
    start = "--methods: unknown method 'untraned' (did you mean 'untrained'?); expected one of "
    assert text.startswith(f"{start}{len(discover().names())} names")
    with pytest.raises(InputError, match="'zzzzzzzz'; expected one of angle, arccon, "):
        discover().get("zzzzzzzz")


def test_discovery_finds_packages_and_entry_points_and_can_be_repeated() -> None:
    assert {"untrained", "word_overlap", "hf", "st", "noise"} <= set(discover().names())
    assert discover() is METHODS


def test_cards_are_complete() -> None:
    for name, method in discover():
        card = method.card
        assert card.name == name
        assert card.summary
        assert card.version >= 1
        assert len({option.name for option in card.options}) == len(card.options)
        for option in card.options:
            assert option.help
            assert option.parse(option.default, "here") == option.default
        if card.short_option and not card.takes_methods:
            assert card.option(card.short_option, "here").choices
        if card.kind != "test":
            assert card.equations


def test_option_values_are_typed_and_checked() -> None:
    assert Option("a", 1.0, "h").parse("2", "w") == 2.0
    assert Option("a", 1, "h").parse("2", "w") == 2
    assert Option("a", True, "h").parse("False", "w") is False
    for option, text, expected in (
        (Option("a", 1, "h"), "x", "w: 'x' is not a value for it; expected a whole number"),
        (Option("a", 1, "h"), 2.5, "w: '2.5' is not a value for it; expected a whole number"),
        (Option("a", 1.0, "h"), "nan", "w: 'nan' is not a value for it; expected a number"),
        (Option("a", True, "h"), "1", "w: '1' is not a value for it; expected true or false"),
        (
            Option("a", "x", "h", ("cls", "avg")),
            "av",
            "w: 'av' is not a value for it (did you mean 'avg'?); expected one of cls, avg",
        ),
    ):
        with pytest.raises(InputError) as caught:
            option.parse(text, "w")
        assert str(caught.value) == expected


@pytest.mark.parametrize("name", profiles.profile_names())
def test_every_option_of_a_profile_is_one_of_its_methods(name: str) -> None:
    profile = profiles.load_profile(name)
    for method in profile.methods:
        assert profile_options(discover().get(method).card, profile)


def test_a_profiles_stage_table_sets_the_stages_options() -> None:
    options = profile_options(discover().get("tncse").card, profiles.load_profile("roberta-base"))
    assert (options["sub1.lr"], options["sub2.lr"], options["lr"]) == (1.5e-5, 1.25e-5, 1e-6)
    assert (options["batch_size"], options["sub2.batch_size"], options["dropout"]) == (256, 64, 0.0175)


def test_a_name_of_the_field_says_what_to_ask_for() -> None:
    with pytest.raises(InputError) as caught:
        discover().get("gsInfoNCE", where="--methods")
    assert str(caught.value) == (
        "--methods: no method is called 'gsInfoNCE'; expected simcse[noise_negatives=192]"
    )
    names = [name for _, method in discover() for name, _ in method.card.known_as]
    assert names
    assert not set(names) & set(discover().names())


def test_a_copied_card_does_not_take_its_originals_other_names() -> None:
    original = discover().get("simcse")
    kind = type("Copied", (type(original),), {"card": replace(original.card, name="aaa_copied")})
    add_method(kind)
    try:
        aliases = METHODS.list_aliases()
        assert aliases["simcse"] == list(original.card.known_as)
        assert aliases["aaa_copied"] == []
        with pytest.raises(InputError, match=r"expected simcse\[noise_negatives=192\]"):
            METHODS.get("gsinfonce")
    finally:
        METHODS.remove("aaa_copied")
