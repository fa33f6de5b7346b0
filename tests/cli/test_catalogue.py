"""Lists of methods by family, what a card begins with, and its sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli.card_sections import format_card
from bench.data.bibliography import find_entries
from bench.errors import InputError
from bench.method_card import FAMILIES, MethodCard
from bench.registry import METHODS, add_method, discover, own_methods
from tests.support.cli import Cli
from tests.support.messages import missing_facts

OF_FAMILY = {
    "untrained": {"untrained", "word_overlap", "whitening", "bert_flow"},
    "contrastive": {"simcse", "gsinfonce", "esimcse", "tncse", "jtcse", "diffcse", "infonce"},
    "non-contrastive": {"bsl", "unsee_byol", "m_mhe", "barlow"},
    "denoising": {"denosent", "infocse"},
    "prompts": {"promptbert", "sncse"},
    "ensembles": {"ensemble", "edfse", "tncse_uc", "jtcse_uc"},
    "distilled": {"distill", "distilcse", "static", "model2vec", "edfse_d", "jtcse_uc_d", "tncse_d"},
    "decoders": {"prompteol", "echo", "metaeol", "token_prepending"},
    "supervised": {"sup_simcse", "angle"},
    "any-encoder": {"hf", "st", "exported", "released", "compressed", "vectors"},
}
OWN = """
from bench.method_card import MethodCard
from bench.registry import add_method

@add_method
class Own:
    card = MethodCard("own_one", "method", "mine", 1, needs_backbone=False, FIELDS)
    def build(self, context):
        raise NotImplementedError
"""


def groups_of(out: str) -> dict[str, list[str]]:
    """Return the names below each heading of ``bench list methods``."""
    groups: dict[str, list[str]] = {}
    for line in filter(None, out.splitlines()):
        if line.startswith("# "):
            groups[line[2:].partition(":")[0]] = names = []
        else:
            names.append(line.split()[0])
    return groups


def write_plugin(folder: Path, fields: str) -> str:
    """Write a plug-in whose card has these fields."""
    file = folder / "own_one.py"
    file.write_text(OWN.replace("FIELDS", fields), encoding="utf-8")
    return str(file)


def test_methods_are_listed_by_family(cli: Cli) -> None:
    code, out, err = cli("list", "methods")
    groups = groups_of(out)
    assert (code, err) == (0, "")
    assert [family for family in groups if family in FAMILIES] == list(FAMILIES)
    for family, names in groups.items():
        assert names == sorted(names)
        assert OF_FAMILY.get(family, set()) <= set(names), family
    own = {name for name in own_methods()}
    known = {other for method in own_methods().values() for other, _ in method.card.known_as}
    listed = [name for family in FAMILIES for name in groups[family]]
    assert sorted(listed) == sorted(own | known)
    assert {"noise", "broken"} <= set(groups["yours"])  # plug-ins without a family


def test_one_family_is_listed_without_a_heading(cli: Cli) -> None:
    code, out, _ = cli("list", "methods", "--family", "prompts")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, ["promptbert", "sncse"])
    code, _, err = cli("list", "methods", "--family", "promts")
    assert (code, missing_facts(err, "--family", "'promts'", "'prompts'", "any-encoder")) == (2, [])
    code, _, err = cli("list", "suites", "--family", "prompts")
    assert (code, missing_facts(err, "--family", "suites")) == (2, [])


def test_families_are_listed_with_their_meaning(cli: Cli) -> None:
    code, out, err = cli("list", "families")
    rows = [tuple(line.split(maxsplit=1)) for line in out.splitlines()]
    assert (code, err, rows) == (0, "", list(FAMILIES.items()))


def test_a_plugins_family_is_checked(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("list", "methods", "--plugin", write_plugin(tmp_path, 'family="denoising"'))
    assert (code, groups_of(out)) == (0, {"denoising": ["own_one"]}), err
    code, _, err = cli("list", "methods", "--plugin", write_plugin(tmp_path, 'family="denoise"'))
    assert (code, missing_facts(err, "Own", "'denoise'", "did you mean 'denoising'?")) == (2, [])


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"family": "ensemble"}, ("'ensemble'", "'ensembles'")),
        ({"adds": "a", "instead": "b"}, ("adds", "instead")),
        ({"cites": "key"}, ("cites",)),
        ({"adds": None}, ("adds",)),
    ],
)
def test_a_wrong_field_is_refused_in_one_line(fields: dict[str, object], facts: tuple[str, ...]) -> None:
    class Wrong:
        card = MethodCard("wrong_one", "test", "s", 1, **fields)  # type: ignore[arg-type]

        def build(self, context: object) -> None:
            raise NotImplementedError

    with pytest.raises(InputError) as caught:
        add_method(Wrong)  # type: ignore[arg-type]
    assert missing_facts(str(caught.value), "Wrong", *facts) == []
    assert "\n" not in str(caught.value)
    assert "wrong_one" not in METHODS.names()


def test_every_own_card_has_a_family_and_a_comparison() -> None:
    for name, method in own_methods().items():
        card = method.card
        assert card.family in FAMILIES, name
        assert bool(card.adds) + bool(card.instead) == (name != "simcse"), name
        text = card.adds + card.instead
        assert len(text) <= 100, name
        assert not text.endswith("."), name
        if card.family in ("untrained", "decoders", "any-encoder"):
            assert text.startswith(("no training", "no network")) == (card.instead == text), name


def test_a_card_begins_with_the_comparison_and_says_nothing_twice() -> None:
    cards = {name: method.card for name, method in discover()}
    dclr, hf, simcse = (list(format_card(cards[name])) for name in ("dclr", "hf", "simcse"))
    assert dclr[0] == f"dclr (baseline, version 1) adds to SimCSE: {cards['dclr'].adds}"
    assert not any(cards["dclr"].summary in line for line in dclr)
    assert hf[0] == f"hf (external, version 1), in place of SimCSE: {cards['hf'].instead}"
    assert hf[3].split(maxsplit=1) == ["summary", cards["hf"].summary]
    assert simcse[0].endswith(f": {cards['simcse'].summary}")


def test_sources_are_printed_ready_to_paste(cli: Cli, tmp_path: Path) -> None:
    card = discover().get("distill").card
    code, out, err = cli("show", "distill", "--bibtex")
    assert (code, err) == (0, "")
    assert out == "\n\n".join(find_entries(card.cites, "")) + "\n"
    assert missing_facts(out, "TNCSE", "DistilCSE") == []
    code, out, _ = cli("show", "prompteol:/nowhere", "--bibtex")  # no model is read
    assert (code, out.count("@")) == (0, 1)
    plugin = write_plugin(tmp_path, r'cites=("@misc{mine,\n\ttitle = {\x1b[2J},\n}", "gao-etal-2021-simcse")')
    code, out, _ = cli("show", "own_one", "--bibtex", "--plugin", plugin)
    assert (code, out.splitlines()[:2]) == (0, ["@misc{mine,", r"        title = {\x1b[2J},"])
    assert out.count("\n\n@") == 1


def test_sources_of_a_composed_row_are_its_members_too_each_once(cli: Cli) -> None:
    cards = {name: method.card for name, method in discover()}
    for row, names in {
        "ensemble:ct+scd": ("ensemble", "ct", "scd"),
        "ensemble:ct_batch[scale=2]+distill:ct": ("ensemble", "ct_batch", "distill", "ct"),
        "distill:ct": ("distill", "ct"),
        "simcse[steps=2]": ("simcse",),
    }.items():
        cites = dict.fromkeys(cited for name in names for cited in cards[name].cites)
        code, out, err = cli("show", row, "--bibtex")
        assert (code, err, out) == (0, "", "\n\n".join(find_entries(cites, "")) + "\n"), row


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("hf",), ("--bibtex", "hf")),
        (("simcse", "--profile", "mini"), ("--bibtex", "--profile")),
        (("simcse", "--set", "simcse.steps=2"), ("--bibtex", "--set")),
        (("ensemble:hf:/nowhere+nothing",), ("'nothing'",)),
    ],
)
def test_no_source_is_an_error(cli: Cli, words: tuple[str, ...], facts: tuple[str, ...]) -> None:
    code, out, err = cli("show", *words, "--bibtex")
    assert (code, out, missing_facts(err, *facts)) == (2, "", [])
    assert err.count("\n") == 1
