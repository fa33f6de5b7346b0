"""The BibTeX entries of the methods' sources, and what the cards cite."""

from __future__ import annotations

import re
import unicodedata
from importlib import resources

import pytest

from bench.data.bibliography import find_entries, read_sources
from bench.errors import InputError
from bench.registry import own_methods

FIELD = re.compile(r"  (\w+) = \{(.*)\},")
WANTED = {"inproceedings": {"title", "author", "booktitle", "year"}, "misc": {"title", "author", "year"}}


def fields_of(entry: str) -> dict[str, str]:
    """Return the fields of an entry, one a line; the lines between the first and the last are all fields."""
    found = [FIELD.fullmatch(line) for line in entry.splitlines()[1:-1]]
    assert None not in found, entry
    names = [field[1] for field in found if field]
    assert len(set(names)) == len(names), entry
    return {field[1]: field[2] for field in found if field}


def open_braces(text: str) -> list[int]:
    """Return how many braces are open after each character."""
    depths, depth = [], 0
    for char in text:
        depth += (char == "{") - (char == "}")
        depths.append(depth)
    return depths


def test_the_file_holds_these_entries_and_nothing_else() -> None:
    text = resources.files("bench.data").joinpath("sources.bib").read_text(encoding="utf-8")
    sources = read_sources()
    assert len(sources) == text.count("\n@") > 55  # equal keys would leave fewer
    assert list(sources) == sorted(sources)
    comments = [line for line in text.splitlines() if line.startswith("%")]
    assert text == "\n".join(comments) + "\n\n" + "\n\n".join(sources.values()) + "\n"
    assert text.isascii()


@pytest.mark.parametrize("key", sorted(read_sources()))
def test_an_entry_is_complete_and_closed(key: str) -> None:
    entry = read_sources()[key]
    depths = open_braces(entry)
    assert (min(depths), depths[-1]) == (0, 0)
    assert depths.index(0, entry.index("{")) == len(entry) - 1  # nothing behind its last brace
    kind, fields = entry[1 : entry.index("{")], fields_of(entry)
    assert WANTED[kind] <= fields.keys()
    assert re.fullmatch(r"20[012]\d", fields["year"])
    assert f"-{fields['year']}-" in key
    assert re.fullmatch(r"\d+(--\d+)?", fields.get("pages", "1"))
    for author in fields["author"].split(" and "):
        assert re.fullmatch(r"[^,]+, [^,]+", author), author
    first = fields["author"].partition(",")[0]
    plain = re.sub(r"\\[\"'^~vucH=.`]|[{}]", "", first).lower().replace(" ", "-")
    assert key.startswith((plain, "cagatan")), (key, plain)
    assert ("-etal-" in key) == (fields["author"].count(" and ") > 1)


def test_every_card_with_a_paper_cites_it_first() -> None:
    for name, method in own_methods().items():
        card = method.card
        assert bool(card.cites) == bool(card.paper), name
        assert len(find_entries(card.cites, name)) == len(card.cites) == len(set(card.cites))
        for key in card.cites[:1]:
            paper = unicodedata.normalize("NFD", card.paper).lower()
            assert key.partition("-")[0] in paper.replace("\u0301", ""), name


def test_an_unknown_key_is_refused_and_an_entry_is_taken_as_it_is() -> None:
    own = "@misc{mine,\n  title = {Mine},\n}"
    assert find_entries((own,), "here") == [own]
    with pytest.raises(InputError, match="here: unknown source 'gao-etal-2021'"):
        find_entries(("gao-etal-2021",), "here")
