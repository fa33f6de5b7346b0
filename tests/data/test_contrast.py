"""Minimal pairs: rules and word lists, a user's text, the mini world's items."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from bench.baselines.word_overlap import WordOverlapScorer, split_words
from bench.data.contrast_items import (
    PHENOMENA,
    ContrastTask,
    make_contrast_tasks,
    make_triple,
    read_contrast_text,
)
from bench.data.contrast_rules import (
    RULES,
    Sentence,
    change_number,
    insert_negation,
    is_plain,
    load_word_lists,
    replace_antonym,
    replace_synonym,
    swap_places,
    swap_roles,
)
from bench.data.data_source import World
from bench.data.mini.generator import draw_customs
from bench.data.mini.mini_suites import CONTRAST_SUITE
from bench.data.mini.minimal_pairs import count_changes, draw_contrast_task
from bench.data.mini.world_text import training_text
from bench.data.suites import SUITES, load_contrast, load_suite
from bench.errors import DataError, InputError
from tests.support.messages import check_error

WORDS = "89b0a19cbf260e5f06bc8d4681451936c1e9f2a7bbeb67f2349eb3e8750eaf77"
FROZEN = "d534ad9249a2985477f97c246f8edd21cd62e053cb3c118f986463a51827fdd1"
TEXT = (
    "A tall man is peeling a pear with a spoon.",
    "Two cats are asleep on the sofa.",
    "The large ship is sailing under a bridge.",
    "A gray dog is running through the kitchen.",
)


CHANGED: tuple[tuple[Callable[[Sentence], object], str], ...] = (
    (insert_negation, """
        A painter is mixing colours. > A painter is not mixing colours.
        The bakers were late . > The bakers were not late .
        You can swim here. > You can not swim here."""),
    (swap_roles, """
        A tall cook is slicing an onion. > An onion is slicing a tall cook.
        The cook is chasing a hen in the yard. > A hen is chasing the cook in the yard.
        The cooks are chasing the hens . > The hens are chasing the cooks .
        A cook slicing an onion > An onion slicing a cook
        A hen is being chased by the cook. > The cook is being chased by a hen."""),
    (swap_places, """
        A gray hen is running through the kitchen. > The kitchen is running through a gray hen.
        A hen sleeping on a roof near the barn > A roof sleeping on a hen near the barn
        A hen is peeling a pear under the tree. > The tree is peeling a pear under a hen."""),
    (change_number, """
        Two hens and a duck swim. > Four hens and a duck swim.
        We saw twelve hens there. > We saw ten hens there.
        We saw 8 hens there. > We saw 5 hens there.
        We saw 96 hens there. > We saw 99 hens there.
        We saw 98 hens there. > We saw 95 hens there."""),
    (replace_antonym, """
        The large hen sleeps here. > The small hen sleeps here. 1
        Large hens sleep here. > Small hens sleep here. 0
        The hen went up there. > The hen went down there. 3
        The hen left after lunch. > The hen left before lunch. 3
        We met the old man there. > We met the young man there. 3
        A more than full bucket stands here. > A less than full bucket stands here. 1"""),
    (replace_synonym, """
        A man sleeps there. > A guy sleeps there.
        Man and hen sleep there. > Guy and hen sleep there.
        We saw the huge barn there. > We saw the enormous barn there.
        They were sitting there quietly. > They were seated there quietly."""),
)  # fmt: skip
KEPT: tuple[tuple[Callable[[Sentence], object], str], ...] = (
    (insert_negation, """
        A painter is not mixing colours. | A painter isn't mixing colours. | Nobody in town is mixing colours.
        All painters are mixing colours.  # "not all" or "none"?
        A painter is mixing colours because it was cheap. | A painter that is mixing colours is old.
        A painter mixes bright colours.  # no auxiliary
        A painter has mixed bright colours.  # "has" may be a main verb
        The painter may mix bright colours.  # "may not" is no denial
        A painter opened the can slowly.  # a noun
        Is a painter mixing colours | The oldest painter there is"""),
    (swap_roles, """
        A cook is meeting a baker.  # means the same
        A cook is slicing the onions. | A cook are slicing an onion.  # "the onions is"
        A hen is being chased near the cook. | A cook is slicing an onion and a leek.
        A cook is slicing a bag of onions. | A cook is slicing a slowly rotting onion.
        A cook is sleeping the whole day. | A cook is slicing a cook.
        A cook slices an onion.  # "slices" may be a noun
        Yesterday a cook was slicing an onion. | A cook, as ever, is slicing an onion."""),
    (swap_places, """
        A hen is standing near the barn.  # it may say the same
        A hen is running through the rooms. | A hen reels in a fish.  # "the rooms is"; "reels" may be a noun
        A hen is sitting on a pile of straw. | A hen is not running through the kitchen.
        A hen is running through London. | A hen is running, through the kitchen."""),
    (change_number, """
        We saw 1 hen there. | We saw one hen there.  # a plural follows all others
        We saw two hens and three ducks. | We saw two hens and one duck.  # which?
        We saw 120 hens there. | We saw 1.5 hens there. | We saw a 9-day-old hen. | We saw 07 hens there."""),
    (replace_antonym, """
        The hen looks after ducks. | The hen looked up there. | The hen eats more grain.  # no time
        The black and white hen sleeps.  # it has both
        The Black hen sleeps here. | A hen in New Harbour sleeps. | They live in new york now.  # names
        We saw an old barn there. | We met an old man there.  # "a young"
        The hen is not large at all."""),
    (replace_synonym, """
        A man and a guy sleep there.  # "a guy and a guy"
        The Man Inn is nearby.  # a name
        We saw a huge barn there.  # "an enormous"
        Hot dog stands are everywhere. | We saw them sitting there. | They begin a hen house."""),
)  # fmt: skip


@pytest.mark.parametrize(("change", "texts"), CHANGED)
def test_changed_sentences(change: Callable[[Sentence], object], texts: str) -> None:
    for line in texts.strip().splitlines():
        before, after = line.split(" > ")
        changed = change(Sentence(before.strip()))
        assert (" ".join(map(str, changed)) if isinstance(changed, tuple) else changed) == after


@pytest.mark.parametrize(("change", "texts"), KEPT)
def test_sentences_without_a_change(change: Callable[[Sentence], object], texts: str) -> None:
    for line in texts.strip().splitlines():
        for text in line.split("  #")[0].split("|"):
            assert change(Sentence(text.strip())) is None, text


def test_a_paraphrase_takes_the_given_place_or_any() -> None:
    assert replace_synonym(Sentence("The large dog chased a man."), 1) == "The big dog chased a man."
    changed = set()
    for verb in ("chased", "saw", "met", "fed", "bit"):
        item = make_triple("antonym", f"The large dog {verb} a man.")
        assert item == tuple(f"The {size} dog {verb} a man." for size in ("large", "big", "small"))
        text = replace_synonym(Sentence(f"The large dog {verb} a man.")) or ""
        changed.add((" large " in text, " dog " in text, " man" in text))
    assert len(changed) > 1


@pytest.mark.parametrize(
    "text", ["Two dogs sleep", "Do two dogs sleep there?", 'Two dogs "sleep" there.', "two " * 41]
)
def test_other_sentences_are_left_alone(text: str) -> None:
    assert not is_plain(Sentence(text.strip()))
    assert make_triple("number", text) is None


def test_the_lists_hold_together() -> None:
    lists = load_word_lists()
    for name, entries in (("synonyms", lists.synonyms), ("antonyms", lists.antonyms)):
        assert len(entries) > 150, name
        for old, words in entries.items():
            assert old.islower() or not old.isalpha()
            assert old not in {word.new for word in words}
            assert len({word.new for word in words}) == len(words), old
    for old, words in lists.antonyms.items():
        assert not {word.new for word in words} & {word.new for word in lists.synonyms.get(old, ())}, old
    text = resources.files("bench.data").joinpath("contrast.toml").read_bytes()
    assert (RULES, hashlib.sha256(text).hexdigest()) == (1, WORDS)


def test_items_of_a_text() -> None:
    tasks = {task.id: task for task in make_contrast_tasks([*TEXT, TEXT[0]], "x")}
    assert tuple(tasks) == PHENOMENA
    assert {name: task.items for name, task in tasks.items()} == {
        "negation": 4, "swap": 1, "number": 1, "antonym": 3, "order": 2,
    }  # fmt: skip
    assert tasks["antonym"].triples[2] == (
        "The large ship is sailing under a bridge.",
        "The big ship is sailing under a bridge.",  # the word of which there is an antonym
        "The small ship is sailing under a bridge.",
    )
    assert tasks["swap"].text[:2] == ("rules", 4)


def test_rules_text_and_items_enter_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {task.sha256 for task in make_contrast_tasks(TEXT, "x")}
    other = {task.sha256 for task in make_contrast_tasks([*TEXT, "Nothing comes of this."], "x")}
    assert len(one | other) == 10
    monkeypatch.setattr("bench.data.contrast_items.RULES", 2)
    assert not one & {task.sha256 for task in make_contrast_tasks(TEXT, "x")}


def test_a_text_that_lacks_a_phenomenon_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_text("\n".join((*TEXT[1:], "", "  Two  hens sleep here. ")))
    assert read_contrast_text(file)[3] == "Two hens sleep here."
    load = partial(load_contrast, f"contrast:{file}")
    check_error(load, "4 distinct sentences", "swap", kind=DataError)
    file.write_bytes(b"Two hens sleep.\n\xff\n")
    check_error(load, "own.txt:2: ", "utf-8", kind=DataError)
    for name in ("none.txt", "own.csv"):
        check_error(partial(load_contrast, f"contrast:{tmp_path / name}"), "expected a .txt", kind=InputError)


def test_it_is_no_suite_of_pairs() -> None:
    for name in ("contrast", "mini-contrast", "contrast:own.txt", "evalrank", "mini-evalrank"):
        check_error(partial(load_suite, name), f"'{name}'", "sentence-pair task", kind=InputError)


@pytest.fixture(scope="module")
def mini() -> dict[str, ContrastTask]:
    return {name: draw_contrast_task(name, 1) for name in CONTRAST_SUITE.tasks}


@pytest.mark.slow
def test_the_worlds_items_are_frozen(mini: dict[str, ContrastTask]) -> None:
    """A change of these raises GENERATOR."""
    assert CONTRAST_SUITE.tasks == SUITES.get("contrast").tasks == PHENOMENA
    assert hashlib.sha256(" ".join(t.sha256 for t in mini.values()).encode()).hexdigest() == FROZEN
    assert draw_contrast_task("swap", 2).sha256 != mini["swap"].sha256


def test_the_worlds_items_change_what_they_say(mini: dict[str, ContrastTask]) -> None:
    lexicon = draw_customs(1).lexicon
    synonyms = {
        frozenset(concept.words)
        for topic in lexicon.topics
        for concept in (*topic.agents, *(frame.verb for frame in topic.frames),
                        *(noun for frame in topic.frames for noun in frame.objects))
    }  # fmt: skip
    forms = (str, lexicon.plural, lexicon.third, lexicon.gerund, lexicon.preterite, lexicon.participle)
    known = {frozenset(form(word) for word in concept) for concept in synonyms for form in forms}
    expected = {"negation": (0, 1), "swap": (0, 0), "number": (1, 1), "antonym": (1, 1), "order": (0, 0)}
    opposites = [lexicon.qualities[i].words for i in range(4)]
    for name, task in mini.items():
        assert task.items == len({item[0] for item in task.triples}) == 200
        for text, same, changed in task.triples:
            assert count_changes(text, same) == (1, 1)
            assert count_changes(text, changed) == expected[name]
            assert text != changed
            (old,), (new,) = differing_words(text, same)
            assert any({old, new} <= forms_of for forms_of in known), (old, new)
            lost, gained = differing_words(text, changed)
            if name == "negation":
                assert gained == ["not"]
            if name == "antonym":
                pair = {i for i, words in enumerate(opposites) if {lost[0], gained[0]} & {*words}}
                assert pair in ({0, 1}, {2, 3})


def test_the_worlds_items_are_not_of_the_training_text(mini: dict[str, ContrastTask]) -> None:
    trained = set(training_text(World()).sentences)
    for task in mini.values():
        assert not trained & {sentence for item in task.triples for sentence in item}


def test_word_overlap_never_explains_a_score_above_chance(mini: dict[str, ContrastTask]) -> None:
    scorer = WordOverlapScorer()
    for task in (*mini.values(), *make_contrast_tasks(TEXT, "x")):
        anchors, same, changed = (list(side) for side in zip(*task.triples, strict=True))
        better = scorer.score_pairs(anchors, same) > scorer.score_pairs(anchors, changed) + 1e-6
        repeated = np.array([len(split_words(text)) < len(text.split()) for text in anchors])  # words twice
        assert not (better & ~repeated).any(), task.id
        assert better.mean() < 0.05


def differing_words(one: str, other: str) -> tuple[list[str], list[str]]:
    first, second = (Counter(text.lower().rstrip(".").split()) for text in (one, other))
    return list((first - second).elements()), list((second - first).elements())
