"""Contrast suites: the credit of an item, and records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.baselines.word_overlap import WordOverlapScorer
from bench.data.contrast_items import ContrastTask
from bench.errors import BenchError
from bench.eval.contrast_suite import ContrastSuite, credit_items
from bench.eval.measure import MeasureContext
from bench.stats.inputs import make_generator
from tests.support.cli import Cli, records
from tests.support.encoders import FunctionEncoder
from tests.support.forge import forge
from tests.support.messages import missing_facts

ABC = "a b c"
TRIPLES = ((ABC, "a b d", "a x y"), (ABC, "a y z", "a b d"), (ABC, "a b d", "a b e"), ("q r", "q r", "s"))
TASK = ContrastTask("number", TRIPLES, ("rules", 4, "0" * 64))
NAMES = {"negation", "swap", "number", "antonym", "order"}
SETTING, SUITE = MeasureContext("exact", "m", "i", Path()), ContrastSuite("contrast")
SENTENCES = """A tall man is peeling a pear with a spoon.
Two cats are asleep on the sofa.
The large ship is sailing under a bridge.
A gray dog is running through the kitchen.
Seven people are painting a small boat."""
ANGLES = {"a b c": 0, "a b d": 10, "a x y": 20, "a y z": -20, "a b e": -10, "q r": 0, "s": 90}


def place_on_circle(sentences: Any) -> Any:
    radians = np.deg2rad([ANGLES[sentence] for sentence in sentences])
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def test_by_hand() -> None:
    """Nearer to the paraphrase, to the distractor, as near to both, equal to the paraphrase."""
    encoder = FunctionEncoder(place_on_circle)
    found = SUITE.measure(encoder, [TASK], SETTING)
    expected = np.cos(np.deg2rad([[10, 20], [20, 10], [10, 10], [0, 90]])) @ [1, -1]
    assert found.predictions is not None
    assert np.allclose(found.predictions["number"], expected, atol=1e-6)
    assert [(s.task, s.metric, s.value, s.n) for s in found.scores] == [
        ("number", "accuracy", 0.625, 4),
        ("avg", "accuracy", 0.625, 1),
    ]
    assert found.facts["contrast"]["number"]["ties"] == 1
    assert [len(call) for call in encoder.asked] == [len(set(sum(TASK.triples, ())))]  # each once


def test_a_method_without_vectors_compares_by_its_own_similarity() -> None:
    found = SUITE.measure(WordOverlapScorer(), [TASK], SETTING)
    assert found.predictions is not None
    assert np.allclose(found.predictions["number"], [1 / 3, -1 / 3, 0, 1])
    assert found.scores[0].value == 0.625


def test_credit_of_items() -> None:
    credit = credit_items(TASK, np.array([[1, -1, 1e-7, -1e-7]], dtype=np.float32))
    assert credit.tolist() == [[1, 0, 0.5, 0.5]]
    for margins, fact in (([0, 0, 0], "3 predictions for 4"), ([1, np.nan, 0, 0], "not finite")):
        with pytest.raises(BenchError, match=fact):
            credit_items(TASK, np.array(margins, dtype=np.float32))


def test_draws_are_of_items() -> None:
    rows = np.array([[1, 1, -1, 0], [-1, -1, -1, -1]], dtype=np.float32)
    drawn = SUITE.draws(TASK, rows, None, make_generator(1, "x"), 400)  # type: ignore[arg-type]
    assert drawn.shape == (400, 2)
    assert not drawn[:, 1].any()
    assert set((drawn[:, 0] * 8).tolist()) <= set(range(9))
    assert abs(drawn[:, 0].mean() - 0.625) < 0.05


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "texts" / "own.txt"
    file.parent.mkdir()
    file.write_text(SENTENCES)
    monkeypatch.chdir(tmp_path)
    return file


def test_records_of_a_users_text(cli: Cli, text: Path, tmp_path: Path) -> None:
    options = ("--methods", "noise,word_overlap", "--seeds", "1-2", "--suite", f"contrast:{text}")
    code, out, err = cli("run", *options)
    assert code == 0, err
    assert not missing_facts(out, "Chance is 50", *NAMES, "word_overlap")
    found = records(tmp_path)
    (record,) = (r for r in found.values() if r.method == "word_overlap")
    assert (record.suite, record.metric, set(record.tasks)) == ("contrast:own", "accuracy", NAMES)
    assert record.tasks["number"]["items"] == 2
    assert record.provenance["contrast"]["swap"]["sentences"] == 5


def better(record: dict[str, Any]) -> None:
    for score in record["scores"]:
        score["value"] += {"swap": 0.1, "avg": 0.02}.get(score["task"], 0)


def test_a_users_text_is_verified_where_it_may_be_read(cli: Cli, text: Path, tmp_path: Path) -> None:
    assert cli("run", "--methods", "noise", "--seeds", "1-2", "--suite", f"contrast:{text}")[0] == 0
    data = ("--data", str(text.parent))
    code, out, _ = cli("compare", "noise#1", "noise#2", *data)
    assert (code, "McNemar" in out) == (0, True)
    first, _ = json.loads(cli("stats", *data, "--format", "json")[1])["records"]
    assert set(first["intervals"]) == {*NAMES, "avg"}
    code, out, err = cli("verify", *data)
    assert code == 0, out + err
    (path,) = Path("results").glob("*/*/noise/seed-1/*.json")
    forge(path, better)
    code, out, _ = cli("verify", *data)
    assert (code, "swap all accuracy" in out) == (1, True)
