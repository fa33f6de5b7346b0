"""Suites as objects, contrast suites, EvalRank against its released protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.baselines.word_overlap import WordOverlapScorer
from bench.config.run_spec import RunSpec
from bench.data.contrast_items import ContrastTask
from bench.data.data_source import DataSource
from bench.data.mteb_names import MtebName
from bench.data.rank_task import RankTask, make_rank_task
from bench.data.suites import load_rank
from bench.data.tasks import PairSubset, PairTask
from bench.data.toy_suite import make_toy_task
from bench.errors import BenchError, InputError
from bench.eval.contrast_suite import ContrastSuite, credit_items
from bench.eval.embeddings import Embeddings
from bench.eval.measure import MeasureContext
from bench.eval.mteb_suite import MtebSuite
from bench.eval.mteb_tasks import MtebTask
from bench.eval.pair_suite import PairSuite
from bench.eval.rank_suite import RankSuite, partner_ranks, task_ranks
from bench.eval.suite_measures import measure_of
from bench.eval.transfer_suite import TransferSuite
from bench.execution.cell_run import measure_job
from bench.stats.argument_checks import make_generator
from tests.support.cli import Cli, records
from tests.support.encoders import FunctionEncoder
from tests.support.forge import forge
from tests.support.item_draws import draw_parts
from tests.support.messages import missing_facts

KINDS = {
    PairSuite: ("sts7", "mini-dev"),
    TransferSuite: ("transfer7", "transfer8", "mini-transfer"),
    MtebSuite: ("unsee", "mteb:STS17", "local:mine", "stsb-multi", "mini-bitext"),
    ContrastSuite: ("contrast", "contrast:own.txt", "mini-contrast"),
    RankSuite: ("evalrank", "mini-evalrank"),
}


@pytest.mark.parametrize(("kind", "names"), KINDS.items())
def test_a_name_gives_a_suite(kind: type, names: tuple[str, ...]) -> None:
    assert [measure_of(name) for name in names] == [kind(name) for name in names]


def test_facts_of_the_key() -> None:
    suites = [measure_of(name) for name in ("sts7", "transfer7", "unsee")]
    assert [suite.version for suite in suites] == [1, 1, 1]
    assert [suite.settings("sgd") for suite in suites] == [{}, {"solver": "sgd"}, {}]


def test_notes() -> None:
    assert measure_of("sts7").notes == ()
    (average,) = measure_of("mteb:STS17").notes
    assert not missing_facts(average, "mteb", "mean over", "subsets and splits")
    (note,) = measure_of("mini").notes
    assert "made up" in note
    first, second = measure_of("jtcse-bitext").notes
    assert first == average
    assert not missing_facts(second, "JTCSE", "mteb 1.28.6")
    for name in ("contrast", "contrast:own.txt", "mini-contrast"):
        assert "Chance is 50" in measure_of(name).notes[-1]


def test_an_unknown_suite_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(InputError, match="sts8"):
        measure_of("sts8").load(DataSource())


def test_a_suites_sentences_and_items(data: Path) -> None:
    (toy,) = measure_of("toy").load(DataSource())
    assert toy.items == 180
    assert measure_of("toy").is_reference(toy)
    assert set(measure_of("toy").sentences([toy])) == set(sum(make_toy_task().all_pairs(), ()))
    suite = measure_of("transfer7")
    tasks = suite.load(DataSource(data, accept_changed=True))
    assert not any(map(suite.is_reference, tasks))
    mrpc = next(task for task in tasks if task.id == "MRPC")
    assert len(list(suite.sentences([mrpc]))) == 2 * mrpc.items > 0
    task = MtebTask(MtebName("STS17", "STS17"), "STS", "cosine_spearman", ("x", "1"), ("test",))
    assert (task.items, list(MtebSuite("unsee").sentences([task]))) == (0, [])
    assert MtebSuite("unsee").is_reference(task)


def test_no_suite_loads_torch_or_mteb_before_it_measures() -> None:
    code = """import sys
from bench.data.data_source import DataSource
from bench.eval.suite_measures import measure_of
suites = [measure_of(name) for name in ('toy', 'transfer7', 'unsee')]
suites[0].load(DataSource())
print(*sorted({'torch', 'mteb', 'scipy'} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_mteb_measures_in_one_precision() -> None:
    job: Any = SimpleNamespace(suite="mteb:STS17")
    builder: Any = None  # nothing is built or trained first
    spec = RunSpec((), (), "mini", precision="bf16")
    with pytest.raises(BenchError, match=r"mteb:STS17 .*fp32 only.*--precision"):
        measure_job(builder, [], job, spec, None)


ABC = "a b c"
TRIPLES = ((ABC, "a b d", "a x y"), (ABC, "a y z", "a b d"), (ABC, "a b d", "a b e"), ("q r", "q r", "s"))
TASK = ContrastTask("number", TRIPLES, ("rules", 4, "0" * 64))
NAMES = {"negation", "swap", "number", "antonym", "order"}
SETTING, CONTRAST = MeasureContext("exact", "m", "i", Path()), ContrastSuite("contrast")
SENTENCES = """A tall man is peeling a pear with a spoon.
Two cats are asleep on the sofa.
The large ship is sailing under a bridge.
A gray dog is running through the kitchen.
Seven people are painting a small boat."""
ANGLES = {"a b c": 0, "a b d": 10, "a x y": 20, "a y z": -20, "a b e": -10, "q r": 0, "s": 90}


def place_on_circle(sentences: Any) -> Any:
    radians = np.deg2rad([ANGLES[sentence] for sentence in sentences])
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def test_contrast_by_hand() -> None:
    """Nearer to the paraphrase, to the distractor, as near to both, equal to the paraphrase."""
    encoder = FunctionEncoder(place_on_circle)
    found: Any = CONTRAST.measure(encoder, [TASK], SETTING)
    expected = np.cos(np.deg2rad([[10, 20], [20, 10], [10, 10], [0, 90]])) @ [1, -1]
    assert np.allclose(found.predictions["number"], expected, atol=1e-6)
    scores = [(s.task, s.metric, s.value, s.n) for s in found.scores]
    assert scores == [("number", "accuracy", 0.625, 4), ("avg", "accuracy", 0.625, 1)]
    assert found.facts["contrast"]["number"]["ties"] == 1
    assert [len(call) for call in encoder.asked] == [len(set(sum(TASK.triples, ())))]  # each once


def test_a_method_without_vectors_compares_by_its_own_similarity() -> None:
    found: Any = CONTRAST.measure(WordOverlapScorer(), [TASK], SETTING)
    assert np.allclose(found.predictions["number"], [1 / 3, -1 / 3, 0, 1])
    assert found.scores[0].value == 0.625


def test_credit_of_items() -> None:
    credit = credit_items(TASK, np.array([[1, -1, 1e-7, -1e-7]], dtype=np.float32))
    assert credit.tolist() == [[1, 0, 0.5, 0.5]]
    for margins, fact in (([0, 0, 0], "3 predictions for 4"), ([1, np.nan, 0, 0], "not finite")):
        with pytest.raises(BenchError, match=fact):
            credit_items(TASK, np.array(margins, dtype=np.float32))


def test_draws_of_contrast_items() -> None:
    rows = np.array([[1, 1, -1, 0], [-1, -1, -1, -1]], dtype=np.float32)
    statistics = CONTRAST.item_statistics(TASK, rows, None)  # type: ignore[arg-type]
    drawn = draw_parts(statistics, [4], make_generator(1, "x"), 400)
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
    places = (
        "barn",
        "beach",
        "door",
        "farm",
        "hill",
        "house",
        "lake",
        "park",
        "river",
        "road",
        "sea",
        "tree",
    )
    own = SENTENCES.removesuffix(".").split(".\n")
    text.write_text("".join(f"{sentence} near the {place}.\n" for place in places for sentence in own))
    assert cli("run", "--methods", "noise", "--seeds", "1-2", "--suite", f"contrast:{text}")[0] == 0
    data = ("--data", str(text.parent))
    code, out, _ = cli("compare", "noise#1", "noise#2", *data, "--details")
    assert (code, "McNemar" in out) == (0, True)
    first, _ = json.loads(cli("stats", *data, "--format", "json")[1])["records"]
    assert set(first["intervals"]) == {*NAMES, "avg"}
    code, out, err = cli("verify", *data)
    assert code == 0, out + err
    (path,) = Path("results").glob("*/*/noise/seed-1/*.json")
    forge(path, better)
    code, out, _ = cli("verify", *data)
    assert (code, "swap all accuracy" in out) == (1, True)


def test_a_task_of_few_of_the_sentences_gives_no_items(cli: Cli, text: Path) -> None:
    """All tasks have the same sentences; some draws of five of them have none with a swap."""
    assert cli("run", "--methods", "noise", "--seeds", "1-2", "--suite", f"contrast:{text}")[0] == 0
    code, out, err = cli("stats", "--data", str(text.parent))
    assert (code, "noise" in out) == (0, True)
    assert not missing_facts(err, "contrast:own", "4.7 clusters", "expected at least 10")


RANK = RankSuite("evalrank")


def given(vectors: dict[str, Any]) -> FunctionEncoder:
    """An encoder of vectors by hand."""
    dim = len(next(iter(vectors.values())))
    return FunctionEncoder(lambda texts: [vectors[text] for text in texts], dim)


def released(task: RankTask, vectors: dict[str, NDArray[np.float64]], metric: str) -> list[int]:
    """Ranks as in the released program: sort all scores, find the partner's place."""
    sentences = list(task.background)
    mean = sum(vectors.values()) / len(vectors)
    centred = {s: v - mean for s, v in vectors.items()}
    if metric == "cos":
        centred = {s: v / np.sqrt((v**2).sum()) for s, v in centred.items()}
    ranks = []
    for one, two in [pair for a, b in task.pairs for pair in ((a, b), (b, a))]:

        def score(a: str, b: str) -> float:
            if metric == "cos":
                return round(float((centred[a] * centred[b]).sum()), 9)
            return round(1 / (float(np.sqrt(((centred[a] - centred[b]) ** 2).sum())) + 1), 9)

        ascending = sorted(score(one, other) for other in sentences)
        wanted, place = score(one, two), 0
        while place < len(ascending) and ascending[place] <= wanted:
            place += 1
        ranks.append(max(1, len(ascending) - place))
    return ranks


def made_up(seed: int) -> tuple[RankTask, dict[str, NDArray[np.float64]]]:
    """A task of 40 pairs, of which one joins a sentence to itself and two sentences have one vector."""
    rng = np.random.default_rng(seed)
    first, second = ([f"{side}{i}" for i in range(40)] for side in "ab")
    second[3] = first[3]
    subset = PairSubset("p", tuple(first), tuple(second), tuple(rng.random(40)))
    task = make_rank_task("t", [PairTask("t", (subset,))])
    vectors = {s: rng.normal(1, 1, 6).astype(np.float32).astype(np.float64) for s in task.background}
    one, other = task.pairs[0]
    vectors[other] = vectors[one]
    return task, vectors


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ranks_are_those_of_the_released_protocol(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.eval.rank_suite._BLOCK", 7)
    task, vectors = made_up(seed)
    rows = {sentence: row for row, sentence in enumerate(vectors)}
    found = Embeddings(rows, np.stack(list(vectors.values())).astype(np.float32))
    cosine, distance = task_ranks(task, found)
    assert cosine.tolist() == released(task, vectors, "cos")
    assert distance.tolist() == released(task, vectors, "l2")
    assert cosine.tolist() != distance.tolist()
    assert len(set(cosine.tolist())) > 5


def test_ranks_by_hand() -> None:
    """Mean zero, so that centring changes nothing; on a line of angles and of lengths."""
    vectors: dict[str, list[float]] = {"a": [3.0, 0], "b": [1, 1], "c": [0, 2], "d": [-4, -3]}
    task = RankTask("t", (("a", "c"), ("b", "c")), ("a", "b", "c", "d"))
    found: Any = RANK.measure(given(vectors), [task], SETTING)
    # cosine: a looks for c: a, b before it; c for a: c, b; b for c: b, and a as near as c; c for b: c
    # distance: a: b at 2.2, c at 3.6; c: b at 1.4, a at 3.6; b: c at 1.4, a at 2.2
    assert found.predictions["t"].tolist() == [2, 2, 1, 1, 2, 2, 1, 1]
    scores = {(s.task, s.subset, s.metric): s.value for s in found.scores}
    assert scores["t", "all", "mrr"] == scores["avg", "all", "mrr"] == scores["t", "l2", "mrr"] == 0.75
    assert scores["t", "all", "hits@1"] == 0.5
    assert scores["t", "all", "hits@3"] == 1


def test_centring_is_part_of_the_cosine() -> None:
    task, vectors = made_up(1)
    given = np.stack([vectors[sentence] for sentence in task.background])
    rows = {sentence: row for row, sentence in enumerate(task.background)}
    unit = given / np.linalg.norm(given, axis=1, keepdims=True)
    plain = partner_ranks(unit, np.array([[rows[one], rows[other]] for one, other in task.queries]))
    found = Embeddings(rows, given.astype(np.float32))
    assert (task_ranks(task, found)[0] != plain).mean() > 0.2


@pytest.mark.parametrize("vector", [1.0, 0.0, 1e-9])
def test_a_collapsed_encoder_has_no_rank(vector: float) -> None:
    task, vectors = made_up(1)
    same = {s: np.full(6, vector) * (1 + 1e-8 * v) for s, v in vectors.items()}
    with pytest.raises(BenchError, match=r"vectors are equal.*collapsed"):
        RANK.measure(given(same), [task], SETTING)


def test_ranks_do_not_depend_on_the_scale_of_small_vectors() -> None:
    task, vectors = made_up(1)
    tiny = RANK.measure(given({s: v * 2.0**-26 for s, v in vectors.items()}), [task], SETTING)
    assert tiny.scores == RANK.measure(given(vectors), [task], SETTING).scores


def test_positives_are_the_best_quarter_and_the_background_everything() -> None:
    one = PairTask("x", (PairSubset("p", ("a", "b", "c"), ("d", "e", "a"), (4.0, 5.0, 4.0)),))
    two = PairTask("y", (PairSubset("q", tuple("fghij"), tuple("klmno"), (0.0, 4.0, 1.0, 2.0, 3.0)),))
    task = make_rank_task("t", [one, two])
    assert task.pairs == (("b", "e"), ("a", "d"))  # the first of three of equal score
    assert task.background == tuple("adbec" + "fkglhminjo")
    assert task.items == 4
    assert make_rank_task("t", [two, one]).sha256 != task.sha256


def test_every_sentence_is_encoded_once() -> None:
    task, vectors = made_up(1)
    encoder = given(vectors)
    RANK.measure(encoder, [task], SETTING)
    assert [sorted(sentences) for sentences in encoder.asked] == [sorted(task.background)]
    with pytest.raises(BenchError, match="no vectors"):
        RANK.measure(WordOverlapScorer(), [task], SETTING)


def test_draws_are_of_pairs_with_both_directions() -> None:
    task = RankTask("t", (("a", "b"), ("c", "d")), tuple("abcd"))
    rows = np.array([[1, 2, 1, 4, 1, 1, 1, 1]], dtype=np.float32)
    statistics = RANK.item_statistics(task, rows, None)  # type: ignore[arg-type]
    drawn = draw_parts(statistics, [2], make_generator(1, "x"), 300)
    assert set(drawn[:, 0].round(4).tolist()) == {0.75, 0.6875, 0.625}


@pytest.mark.parametrize("kept", [[1, 2, 3], [1, 0, 1, 1], [1, 9, 1, 1], [1, 1.5, 1, 1], [1, np.nan, 1, 1]])
def test_impossible_ranks_are_refused(kept: list[float]) -> None:
    task = RankTask("t", (("a", "b"),), tuple("abcd"))
    with pytest.raises(BenchError, match=r"3 ranks for 2|is not a rank"):
        RANK.rescore([task], {"t": np.array(kept, dtype=np.float32)}, None)  # type: ignore[arg-type]


def test_records_of_the_embedded_world(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli(
        "run", "--methods", "noise", "--seeds", "1-2", "--suite", "mini-evalrank", "--details"
    )
    assert (code, "Mrr x 100" in out) == (0, True), err
    (task,) = load_rank("mini-evalrank")
    assert task.sha256 != load_rank("mini-evalrank", DataSource(world_seed=2))[0].sha256
    assert (len(task.pairs), task.items) == (450, 900)
    record = next(iter(records(tmp_path).values()))
    assert (record.metric, record.tasks["EvalRank"]["items"]) == ("mrr", 900)
    assert cli("verify")[0] == 0
    code, out, _ = cli("compare", "--show-items", "noise#1", "noise#2", "--suite", "mini-evalrank")
    assert (code, "reciprocal rank" in out) == (0, True)
    code, _, err = cli("run", "--methods", "word_overlap", "--suite", "mini-evalrank")
    assert (code, "word_overlap" in err) == (2, True)
