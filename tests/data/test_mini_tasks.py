from __future__ import annotations

import hashlib
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.data.data_source import COPIES, DataSource, World
from bench.data.local_tasks import KINDS, LocalTask, read_local_suite
from bench.data.mini.mini_suites import MTEB_SUITES, TRANSFER_SUITE, draw_mteb_tasks, draw_transfer_tasks
from bench.data.mini.world_text import graded_pairs, training_copy, training_text
from bench.data.mteb_names import load_mteb_lists
from bench.data.suites import MINI_SUITES, SUITES, load_suite
from bench.errors import InputError
from bench.eval.suite_measures import measure_of
from bench.plan.plan import make_plan
from tests.support.cli import Cli, refusal
from tests.support.messages import check_error, missing_facts

FROZEN = "6eb73b57248299778ab75107efd41a16df3e4b0a468ba8405a3b738369e72e68"


def tasks_of(seed: int) -> dict[str, LocalTask]:
    return {task.name: task for name in MTEB_SUITES for task in draw_mteb_tasks(name, World(seed))}


def sentences(seed: int) -> set[str]:
    """Sentences of all tasks except the graded pairs."""
    encoded: set[str] = set()
    for task in tasks_of(seed).values():
        for name, rows in task.tables if task.type != "sts" else ():
            for place, column in enumerate(KINDS[task.type][name]):
                other = name == "qrels" or (task.type, column) == ("summarisation", "text")
                if not other and column not in ("id", "label", "relevant", "score"):
                    encoded |= {row[place] for row in rows}
    splits = [split for task in draw_transfer_tasks(World(seed)) for split in task.splits]
    return encoded.union(*(split.first + split.second for split in splits))


def test_the_tasks_are_frozen() -> None:
    """A change of these raises GENERATOR."""
    hashes = [task.sha256 for task in tasks_of(1).values()]
    hashes += [task.sha256 for task in draw_transfer_tasks(World())]
    assert hashlib.sha256(" ".join(hashes).encode()).hexdigest() == FROZEN


def test_every_task_is_one_of_local_files(tmp_path: Path) -> None:
    entries, tasks = [], tasks_of(1)
    for task in tasks.values():
        files = {}
        for name, rows in task.tables:
            files[name] = f"{task.name}-{name}.tsv"
            lines = [KINDS[task.type][name], *rows]
            (tmp_path / files[name]).write_text("".join("\t".join(line) + "\n" for line in lines))
        entry = {"name": task.name, "type": task.type, **files}
        entries.append("[[task]]\n" + "".join(f'{key} = "{value}"\n' for key, value in entry.items()))
    (tmp_path / "all.toml").write_text("".join(entries))
    read = {task.name: task.sha256 for task in read_local_suite(tmp_path / "all.toml")}
    assert read == {name: task.sha256 for name, task in tasks.items()}
    assert {task.type for task in tasks.values()} == KINDS.keys()


def test_no_sentence_is_one_of_training_or_of_the_dev_set() -> None:
    world, encoded = World(), sentences(1)
    texts = [training_text(world), *(training_copy(world, copy) for copy in COPIES)]
    assert not encoded & {s for text in texts for s in text.sentences}
    assert not encoded & {s for pair in graded_pairs(world, "dev").all_pairs() for s in pair}
    assert len(encoded) > 4000


def test_labels_are_balanced_and_true() -> None:
    tasks = tasks_of(1)
    for name, classes in (("Topic", 12), ("Action", 6), ("Negation", 2)):
        task = tasks[f"Mini{name}Classification"]
        for split in ("train", "test"):
            counts = Counter(label for _, label in task.table(split))
            assert len(counts) == classes
            assert len(set(counts.values())) == 1
    denied = {text: " not " in text for text, _ in tasks["MiniNegationClassification"].table("test")}
    assert denied == {t: label == "no" for t, label in tasks["MiniNegationClassification"].table("test")}
    pairs = tasks["MiniPairClassification"].table("file")
    assert Counter(label for *_, label in pairs) == {"0": 150, "1": 150}
    candidates = tasks["MiniParaphraseReranking"].table("file")
    assert set(Counter(query for query, _, yes in candidates if yes == "1").values()) == {2}
    topic, negation, same = draw_transfer_tasks(World())
    assert topic.counts == {"train": 240, "test": 180}
    assert negation.counts == {"yes": 100, "no": 100}
    assert same.counts == {"train": 300, "test": 200}


def test_the_thirds_of_the_pairs_share_few_some_and_many_words() -> None:
    shared = []
    for name in MTEB_SUITES["mini-sts"].tasks:
        rows = tasks_of(1)[name].table("file")
        assert set(Counter(score for *_, score in rows)) == set("012345")
        shared.append(sum(len({*a.split()} & {*b.split()}) for a, b, _ in rows) / len(rows))
    assert shared == sorted(shared)
    pairs = {row[:2] for row in tasks_of(1)["MiniSTS"].table("file")}
    assert pairs <= {*graded_pairs(World(), "test").all_pairs()}


def test_transfer_is_measured_from_the_world_asked_for() -> None:
    suite = measure_of("mini-transfer")
    one, two = (suite.load(DataSource(world_seed=seed)) for seed in (1, 2))
    assert [task.id for task in one] == list(TRANSFER_SUITE.tasks)
    assert not {task.sha256 for task in one} & {task.sha256 for task in two}
    assert all(map(suite.is_reference, one))
    check_error(lambda: load_suite("mini-transfer"), "'mini-transfer'", "sentence-pair task", kind=InputError)


def test_every_suite_of_the_world_says_that_it_is_made_up() -> None:
    for name in MINI_SUITES - {"mini-dev"}:
        assert not missing_facts(measure_of(name).notes[-1], f"suite {name}", "made up")
        assert SUITES.get(name).embedded
    assert "translated" in measure_of("mini-bitext").notes[-1]


def test_a_suite_stands_in_for_every_one_that_needs_data() -> None:
    stand_ins = profiles.load_profile("mini").stand_ins
    assert stand_ins.keys() == {name for name, suite in SUITES if not suite.embedded}
    assert set(stand_ins.values()) == MINI_SUITES
    for name, other in stand_ins.items():
        assert type(measure_of(other)) is type(measure_of(name)) or other == "mini-sts", name
    papers = load_mteb_lists()
    for name in stand_ins.keys() & papers.keys():
        assert MTEB_SUITES[stand_ins[name]].score == papers[name].score, name
    assert profiles.load_profile("bert-base").stand_ins == {}


def test_no_key_depends_on_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = RunSpec(parse_methods("simcse"), (1,), "mini", suites=("mini", "mini-bitext"), results=tmp_path)
    keys = [job.key for job in make_plan(spec).jobs]
    bare = replace(profiles.load_profile("mini"), stand_ins={})
    monkeypatch.setattr(profiles, "load_profile", lambda name: bare)
    assert [job.key for job in make_plan(spec).jobs] == keys
    assert len(set(keys)) == 2


def test_a_missing_mteb_is_named_before_anything_runs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mteb", None)
    err = refusal(cli, "run", "--methods", "noise", "--seeds", "1", "--suite", "mini-bitext")
    assert not missing_facts(err, "mteb", "can't be imported", "extra mteb")
