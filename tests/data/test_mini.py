from __future__ import annotations

import hashlib
import lzma
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from bench.data.data_source import COPIES, World
from bench.data.mini.generate_shipped import FOLDER, generate_files
from bench.data.mini.generator import TRAINING_SENTENCES, draw_customs, event_split, sample_event, word_cosine
from bench.data.mini.grammar import ORDERS, Draw, Event, realise
from bench.data.mini.lexicon import load_lexicon
from bench.data.mini.world_text import graded_pairs, pretraining_text, training_copy, training_text

SEEDS = (1, 2, pytest.param(3, marks=pytest.mark.slow))  # the first one's text is shipped
FROZEN = {
    1: "77d5921aea9d7dc56e9f87eb4c2df657c8ada38ddc20da4181b328e8d6069366",
    2: "e51bedf534b8b11e21e7488b9817158efe8f60c6712b3afce3178a1e69f18844",
    3: "db30d02b1f96eb2f68acd1244eb88b2bd2886d93565e5e0c3cb974471f0055aa",
}


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def key(sentence: str) -> str:
    return "".join(char for char in sentence.lower() if char.isalnum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_world_is_frozen(seed: int) -> None:
    """A change of these raises GENERATOR or SPLIT."""
    world = World(seed)
    texts = (training_text(world), graded_pairs(world, "dev"), graded_pairs(world, "test"))
    hashes = " ".join(text.sha256 for text in texts)
    assert hashlib.sha256(hashes.encode()).hexdigest() == FROZEN[world.seed]


@pytest.mark.long
@pytest.mark.slow
def test_the_generator_makes_the_shipped_text_byte_for_byte() -> None:
    made = {f"{name}.xz": text.encode() for name, text in generate_files()}
    assert {path.name: lzma.decompress(path.read_bytes()) for path in FOLDER.iterdir()} == made


def test_a_plan_of_the_default_world_generates_nothing_and_loads_nothing_heavy(tmp_path: Path) -> None:
    code = """import atexit, sys; from bench.cli.main import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"""
    run = ["run", "--methods", "jtcse,tncse", "--seeds", "1-5", "--dry-run", "--results"]
    command = [sys.executable, "-c", code, *run, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "10 of 10 cells" in done.stdout, done.stderr
    modules = set(done.stderr.split())
    assert "bench.data.data_source" in modules
    assert not modules & {"torch", "transformers", "scipy", "pandas", "sklearn", "mteb", "jinja2"}
    assert not modules & {f"bench.data.mini.{name}" for name in ("generator", "grammar", "lexicon")}


def test_the_training_text_has_distinct_sentences_of_about_twelve_words(world: World) -> None:
    sentences = training_text(world).sentences
    assert len(set(sentences)) == len(sentences) == TRAINING_SENTENCES >= 20_000
    assert 10 <= np.mean([len(sentence.split()) for sentence in sentences]) <= 15


def test_copies_say_the_same_line_by_line_in_other_words(world: World) -> None:
    columns = [training_text(world).sentences, *(training_copy(world, copy).sentences for copy in COPIES)]
    assert len({len(column) for column in columns}) == 1
    for first, second in combinations(columns, 2):
        assert all(a != b for a, b in zip(first, second, strict=True))
        shuffled = [*second[1:], second[0]]
        same = np.mean([word_cosine(a, b) for a, b in zip(first, second, strict=True)])
        other = np.mean([word_cosine(a, b) for a, b in zip(first, shuffled, strict=True)])
        assert same > 1.4 * other
    text = pretraining_text(world).sentences
    assert text[0] == f"{columns[0][0]} {columns[1][0]}"
    assert text[-1] == columns[0][-1]
    assert len(text) == 4 * TRAINING_SENTENCES


def test_dev_test_and_training_share_no_sentence(world: World) -> None:
    dev, test = (
        {key(s) for pair in graded_pairs(world, split).all_pairs() for s in pair} for split in ("dev", "test")
    )
    assert not dev & test
    assert (dev | test).isdisjoint(map(key, pretraining_text(world).sentences))


@pytest.mark.parametrize("split", ["dev", "test"])
def test_pairs_are_graded_evenly_and_word_overlap_says_little(world: World, split: str) -> None:
    task = graded_pairs(world, split)
    gold = task.subsets[0].gold
    assert Counter(gold) == dict.fromkeys(map(float, range(6)), task.pairs // 6)
    values = [word_cosine(first, second) for first, second in task.all_pairs()]
    assert abs(spearmanr(values, gold)[0]) < 0.25


def test_unknown_split_and_copy_are_errors() -> None:
    with pytest.raises(KeyError):
        graded_pairs(World(), "train")
    with pytest.raises(ValueError, match="tuple"):
        training_copy(World(), "g")


def test_events_keep_their_split() -> None:
    world, draw = draw_customs(2), Draw("split")
    for split in ("train", "dev", "test"):
        assert all(event_split(world, sample_event(world, draw, split)) == split for _ in range(50))


MECHANIC = Event(
    topic=5, agent=2, agents=False, frame=0, object=1, number=1, quality=None, place=1, time=0, past=True,
    negated=False,
)  # fmt: skip


def wordings(event: Event, **options: Any) -> set[str]:
    return {realise(event, load_lexicon(), Draw(i), **options) for i in range(3000)}


def test_an_event_is_said_in_every_order() -> None:
    expected = {
        "active": "The mechanic repaired two bicycles in the garage on Monday.",
        "time first": "On Monday the mechanic mended two cycles in the garage.",
        "place first": "In the garage the repairman fixed 2 bikes on Monday.",
        "passive": "2 bikes were fixed by the repairman in the garage on Monday.",
        "progressive": "The mechanic was fixing two bikes at the workshop on Monday.",
        "cleft agent": "It was the mechanic who repaired a couple of bikes on Monday in the garage.",
        "cleft object": "It was two bikes that the mechanic mended in the garage on Monday.",
        "nominal": "The mending of 2 cycles by the repairman took place in the garage on Monday.",
    }
    assert tuple(expected) == ORDERS
    texts = {order: wordings(MECHANIC, form=(order, "")) for order in ORDERS}
    assert all(sentence in texts[order] for order, sentence in expected.items())
    for first, second in combinations(ORDERS, 2):
        assert not texts[first] & texts[second]
    opened = wordings(MECHANIC, form=("active", "to be short,"))
    assert "To be short, the mechanic repaired two bicycles in the garage on Monday." in opened


@pytest.mark.parametrize(
    ("changes", "order", "expected"),
    [
        ({"negated": True}, "active", "did not (repair|mend|fix)"),
        ({"negated": True, "past": False}, "active", "does not (repair|mend|fix)"),
        ({"negated": True, "past": False, "agents": True}, "active", "(mechanics|repairmen) do not (re|m|f)"),
        ({"negated": True}, "passive", "were not (repaired|mended|fixed) by"),
        ({"number": 0, "past": False}, "passive", "is (repaired|mended|fixed) by"),
        ({"negated": True}, "nominal", "did not take place"),
        ({"past": False, "agents": True}, "progressive", "are (repairing|mending|fixing)"),
        ({"past": False}, "cleft agent", "(I|i)t is the (mechanic|repairman) who (repairs|mends|fixes)"),
        ({}, "cleft object", "(I|i)t was .* that the (mechanic|repairman) (repaired|mended|fixed)"),
    ],
)
def test_tense_number_and_negation_agree(changes: dict[str, Any], order: str, expected: str) -> None:
    texts = wordings(replace(MECHANIC, **changes), form=(order, ""))
    assert all(re.search(expected, text) for text in texts), sorted(texts)[:3]


def test_more_general_words_replace_agent_and_object() -> None:
    texts = wordings(MECHANIC, general=1.0)
    assert all("technician" in text and re.search(r"vehicles?\b", text) for text in texts)


@pytest.mark.parametrize(
    ("form", "verb", "expected"),
    [
        ("third", "catch", "catches"), ("third", "carry", "carries"), ("third", "cut_up", "cuts up"),
        ("gerund", "chop", "chopping"), ("gerund", "dice", "dicing"), ("gerund", "tear_down", "tearing down"),
        ("preterite", "steal", "stole"), ("participle", "steal", "stolen"), ("preterite", "play", "played"),
        ("participle", "tear_down", "torn down"), ("preterite", "plan", "planned"),
        ("preterite", "classify", "classified"),
        ("plural", "thief", "thieves"), ("plural", "lorry", "lorries"), ("plural", "box", "boxes"),
        ("plural", "fisherman", "fishermen"), ("plural", "key", "keys"),
    ],
)  # fmt: skip
def test_word_forms(form: str, verb: str, expected: str) -> None:
    assert getattr(load_lexicon(), form)(verb) == expected


def test_every_word_belongs_to_one_concept_of_a_kind() -> None:
    lexicon = load_lexicon()
    agents = Counter(word for topic in lexicon.topics for agent in topic.agents for word in agent.words)
    assert max(agents.values()) == 1
    for topic in lexicon.topics:
        assert len(topic.agents) >= 5
        assert len(topic.frames) >= 5
        assert all(len(frame.objects) >= 1 for frame in topic.frames)


def test_prompts_quotes_negations_and_be_forms_are_in_the_text(world: World) -> None:
    text = training_text(world).sentences
    for start in ('This sentence of "', 'This sentence : "', "The sentence : '"):
        assert sum(sentence.startswith(start) and " means " in sentence for sentence in text) > 50
    words = Counter(word for sentence in text for word in re.findall(r"[a-z]+", sentence.lower()))
    for word in ("not", "do", "does", "did", "is", "are", "was", "were", "means", "this", "sentence", "of"):
        assert words[word] > 50, word
