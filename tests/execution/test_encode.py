"""Vectors of a text of any length, and the model-index of exported folders."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from huggingface_hub import EvalResult, ModelCard, metadata_load
from huggingface_hub.repocard_data import model_index_to_eval_results

from bench.config import profiles
from bench.data.mteb_names import MtebName
from bench.data.text_lines import read_sentences
from bench.data.toy_suite import make_toy_task
from bench.encoder import FloatArray
from bench.errors import BenchError, DataError, InputError
from bench.eval.embeddings import BLOCK, stream_embeddings
from bench.eval.mteb_tasks import MtebTask
from bench.eval.vector_storage import VectorFile
from bench.exchange.export_command import export_command as command
from bench.execution.model_card import build_model_index
from bench.nn.model_metadata import format_front_matter, read_model_card
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.records.record import RunRecord, Score
from tests.support.cli import Cli
from tests.support.messages import missing_facts, numbers_in

TEXT = ["The doctor is reading a book.", "a", "", "Two children are singing a song on the hill.", "a"]
TEXT += ["The doctor is reading a book on the hill.", "The doctor is reading a book."]


class Lengths:
    """An encoder whose vectors are lengths; "bad" has none."""

    dim = 1

    def __init__(self) -> None:
        self.facts: dict[str, str | int] = {}
        self.calls: list[list[str]] = []

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Any = None
    ) -> FloatArray:
        self.calls.append(list(sentences))
        for _ in sentences:
            progress and progress(1)
        rows = [[np.nan if sentence == "bad" else len(sentence)] for sentence in sentences]
        return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_the_streams_rows_are_those_of_encode(block: int) -> None:
    from bench.nn.backbone import TransformerEncoder

    encoder = TransformerEncoder(Path(profiles.backbone_reference(profiles.load_profile("mini"))), "avg")
    blocks = list(stream_embeddings(encoder, iter(TEXT), block=block))
    assert [len(rows) for rows in blocks[:-1]] == [block] * (len(blocks) - 1)
    assert {rows.dtype for rows in blocks} == {np.dtype(np.float32)}
    whole = encoder.encode(TEXT)
    np.testing.assert_allclose(np.concatenate(blocks), whole, rtol=1e-6, atol=1e-6)


def test_the_stream_draws_one_block_ahead_at_most() -> None:
    drawn: list[str] = []

    def endless() -> Iterator[str]:
        while True:
            drawn.append("a" * len(drawn))
            yield drawn[-1]

    encoder = Lengths()
    blocks = stream_embeddings(encoder, endless(), block=4)
    assert drawn == []
    for number in range(1, 4):
        assert next(blocks)[:, 0].tolist() == [4 * number - 4, 4 * number - 3, 4 * number - 2, 4 * number - 1]
        assert len(drawn) == 4 * number


def test_the_stream_encodes_equal_sentences_of_a_block_once_and_counts_each() -> None:
    encoder, counted = Lengths(), list[int]()
    rows = np.concatenate(list(stream_embeddings(encoder, TEXT, block=5, progress=counted.append)))
    assert rows[:, 0].tolist() == [len(sentence) for sentence in TEXT]
    assert encoder.calls == [[TEXT[0], "a", "", TEXT[3]], TEXT[5:]]
    assert sum(counted) == len(TEXT)
    assert list(stream_embeddings(encoder, [])) == []


def test_the_stream_names_the_block_whose_vectors_are_none() -> None:
    blocks = stream_embeddings(Lengths(), ["a"] * 2000 + ["a", "bad"], block=1000)
    next(blocks), next(blocks)
    with pytest.raises(BenchError) as raised:
        next(blocks)
    assert numbers_in(str(raised.value)) == [2001, 2002, 1, 2, 2]


@pytest.mark.parametrize("sizes", [(), (3,), (4, 4, 1)])
def test_the_file_grows_by_rows(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    path = tmp_path / "out.npy"
    parts = [np.random.default_rng(n).normal(size=(n, 5)).astype(np.float32)[::-1] for n in sizes]
    with VectorFile(path, 5) as file:
        for part in parts:
            file.append(part)
            assert not path.exists()
    assert file.rows == sum(sizes)
    rows = np.load(path, mmap_mode="r" if sizes else None, allow_pickle=False)
    assert (rows.dtype, isinstance(rows, np.memmap)) == (np.float32, bool(sizes))
    assert np.array_equal(rows, np.concatenate([np.empty((0, 5)), *parts]))
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with VectorFile(tmp_path / "out.npy", 1) as file:
            file.append(np.ones((1, 1), dtype=np.float32))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out.npy").write_text("mine")
    with pytest.raises(InputError, match=r"out\.npy: .* exists"):
        VectorFile(tmp_path / "out.npy", 1)
    with pytest.raises(InputError, match=r"out\.npy: .* folder"):
        VectorFile(tmp_path / "none" / "out.npy", 1)
    assert (tmp_path / "out.npy").read_text() == "mine"


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def fill() -> None:
        with VectorFile(tmp_path / "out.npy", 1) as file:
            file.append(np.ones((1, 1), dtype=np.float32))
            monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)

    with pytest.raises(BenchError, match=r"out\.npy: .*: No space left"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_lines_are_sentences() -> None:
    lines = ["\ufeffone  two\r\n".encode(), b" three\tfour \n", b"five"]
    assert list(read_sentences(lines, "text")) == ["one two", "three four", "five"]


@pytest.mark.parametrize(
    ("content", "where", "fact"),
    [
        (b"", "text", "empty"),
        (b"a\n\nb\n", "text:2", "empty"),
        (b"a\n \t\n", "text:2", "empty"),
        (b"a\nb\n\xff\n", "text:3", "utf-8"),
    ],
)
def test_lines_that_are_none(content: bytes, where: str, fact: str) -> None:
    with pytest.raises(DataError, match=fact) as raised:
        list(read_sentences(io.BytesIO(content), "text"))
    assert raised.value.where == where


@pytest.mark.parametrize("piped", [False, True])
def test_encode(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piped: bool) -> None:
    text = ["one", "two words", "one", "three of them", "last"]
    content = "\n".join(text).encode()
    (tmp_path / "text.txt").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    source = "-" if piped else "text.txt"
    given = ("--seed", "3", "--vectors", source, "--out", "v.npy", "--block", "2")
    code, out, err = cli("export", "noise", *given)
    assert (code, err) == (0, "")
    assert not missing_facts(out, "v.npy: noise seed 3", "5 sentences", "8 dimensions")
    from bench_test_methods import Noise  # type: ignore[import-not-found]

    assert np.array_equal(np.load(tmp_path / "v.npy"), Noise(3).encode(text))


def test_a_transformer_at_lower_precision(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    (tmp_path / "text.txt").write_text("The doctor is reading a book.\nTwo children are singing.\n")
    for precision in ("fp32", "bf16"):
        given = ("--vectors", "text.txt", "--out", f"{precision}.npy", "--precision", precision)
        assert cli("export", f"hf:{tiny_bert}:avg", *given)[0] == 0
    whole, lowered = (np.load(tmp_path / f"{name}.npy") for name in ("fp32", "bf16"))
    assert not np.array_equal(whole, lowered)
    np.testing.assert_allclose(whole, lowered, atol=0.1)


def test_the_default_block_is_the_streams() -> None:
    assert [option.default for option in command.params if option.name == "block"] == [BLOCK]


BERT = "the tiny one"


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("noise",), ("bench export --vectors: 'noise'", "--seed N")),
        (("ensemble:noise+untrained", "--backbone", BERT), ("'ensemble:noise+untrained'", "--seed N")),
        (
            ("ensemble:untrained+untrained:avg", "--seed", "3", "--backbone", BERT),
            ("'ensemble:untrained+untrained:avg'", "deterministic"),
        ),
        (("noise,broken",), ("'noise,broken'", "2 methods")),
        (("noise", "--seed", "1", "--vectors", "bad.txt"), ("bad.txt:2:", "empty")),
        (("noise", "--seed", "1", "--vectors", "none"), ("--vectors none:", "No such")),
        (("noise", "--seed", "1", "--out", "text.txt"), ("--out text.txt:", "exists")),
        (("noise", "--seed", "1", "--out", "v.txt"), ("--out v.txt:", "NumPy's")),
        (("untrained", "--seed", "1"), ("'untrained'", "deterministic", "leave out")),
        (("word_overlap",), ("'word_overlap' compares",)),
    ],
)
def test_what_cant_be_encoded(
    cli: Cli, tmp_path: Path, tiny_bert: Path, arguments: tuple[str, ...], facts: tuple[str, ...]
) -> None:
    (tmp_path / "text.txt").write_bytes(b"a\n")
    (tmp_path / "bad.txt").write_bytes(b"a\n\n")
    given = [str(tiny_bert) if word == BERT else word for word in arguments]
    code, out, err = cli("export", "--vectors", "text.txt", "--out", "v.npy", *given)
    assert (code, out, missing_facts(err, *facts)) == (2, "", [])
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "bad.txt"}


SUITES = "toy,mini-contrast,mini-transfer,mini-evalrank"


def results(folder: Path) -> tuple[str, list[EvalResult]]:
    metadata = metadata_load(folder / "README.md")
    assert metadata is not None
    name, entries = model_index_to_eval_results(metadata["model-index"])
    assert ModelCard.load(folder / "README.md").data.eval_results == entries
    return name, entries


def record_of(results: Path, suite: str) -> dict[str, Any]:
    (path,) = results.rglob(f"{suite}.json")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


@pytest.mark.long
def test_an_export_carries_the_scores_of_its_records(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    base = ("--suite", SUITES, "--backbone", str(tiny_bert))
    assert cli("run", "--methods", "untrained:avg", *base)[0] == 0
    assert cli("export", "untrained:avg", *base, "--out", "out")[0] == 0
    name, entries = results(tmp_path / "out")
    assert name == "untrained[pooling=avg]"
    wanted: list[tuple[str | None, str, float]] = []
    for suite in SUITES.split(","):
        record = record_of(tmp_path / "results" / "local", suite)
        (metric,) = {score["metric"] for score in record["scores"] if score["task"] == "avg"}
        for score in record["scores"]:
            if (score["subset"], score["metric"]) != ("all", metric):
                continue
            if score["task"] != "avg":
                wanted.append((suite, score["task"], score["value"]))
            elif score["n"] > 1:
                wanted.append((None, suite, score["value"]))
    shown = [(entry.dataset_config, entry.dataset_type, entry.metric_value) for entry in entries]
    assert sorted(map(str, shown)) == sorted(map(str, wanted))
    assert len(shown) == 12
    assert all("synthetic data)" in entry.dataset_name for entry in entries)
    kinds = {(e.dataset_config, e.task_type, e.metric_type, e.metric_name) for e in entries}
    assert {kind for kind in kinds if kind[0] is not None} == {
        ("toy", "sentence-similarity", "spearman_cosine", "Spearman Cosine"),
        ("mini-contrast", "sentence-similarity", "accuracy", "Accuracy"),
        ("mini-transfer", "text-classification", "accuracy", "Accuracy"),
        ("mini-evalrank", "text-retrieval", "mrr", "MRR"),
    }
    assert read_model_card(tmp_path / "out") == {"training_datasets": []}


def test_an_export_without_a_record_has_no_model_index(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    assert cli("export", f"hf:{tiny_bert}:avg", "--suite", "toy", "--out", "out")[0] == 0
    metadata = metadata_load(tmp_path / "out" / "README.md")
    assert metadata is not None
    assert metadata["pipeline_tag"] == "sentence-similarity"
    assert "model-index" not in metadata


def test_a_last_checkpoint_has_its_own_scores(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    pairs = list(make_toy_task().all_pairs())[:20]
    (tmp_path / "text.txt").write_text("".join(f"{sentence}\n" for sentence, _ in pairs))
    sets = ("steps=3", "eval_every=2", "batch_size=4", "lr=1e-3")
    given = [word for setting in sets for word in ("--set", f"simcse.{setting}")]
    base = ("--suite", "toy", "--dev", "toy", "--corpus", "text.txt", "--backbone", str(tiny_bert), *given)
    assert cli("run", "--methods", "simcse", "--seeds", "3", *base)[0] == 0
    record = record_of(tmp_path / "results" / "local", "toy")
    scores = (score for score in record["scores"] if (score["task"], score["subset"]) == ("TOY", "all"))
    values = {score["metric"]: score["value"] for score in scores}
    assert len(set(values.values())) == 2
    for checkpoint, metric in (("selected", "spearman"), ("last", "spearman_last")):
        options = ("--seed", "3", "--checkpoint", checkpoint, "--out", checkpoint)
        assert cli("export", "simcse", *options, *base)[0] == 0
        name, (result,) = results(tmp_path / checkpoint)
        assert name.startswith("simcse[")
        assert (name.endswith(" seed 3"), result.metric_type) == (True, "spearman_cosine")
        assert result.metric_value == values[metric]


RECORD = RunRecord(
    profile="mini", method="m", name="m", version=1, options={}, backbone=None, seed=None, suite="s",
    tasks={"T": {"pairs": 3, "sha256": "", "reference": True}}, key="", status="ok",
    scores=(Score("T", "all", "spearman", 0.5, 3), Score("avg", "all", "spearman", 0.5, 1)),
)  # fmt: skip


def index(record: RunRecord, *tasks: Any, name: str = "name", stages: str = "", last: bool = False) -> str:
    plan = cast(Plan, SimpleNamespace(suites={record.suite: tasks}))
    job = cast(Job, SimpleNamespace(suite=record.suite, cell=SimpleNamespace(stages=stages)))
    return build_model_index(name, plan, [(job, record)], "last" if last else "selected")


def parsed(yaml: str) -> tuple[str, list[EvalResult]]:
    card = ModelCard(f"---\nlicense: mit\n{format_front_matter({'model_index': yaml})}---\n\n# Body\n")
    assert card.text.strip() == "# Body"
    metadata = cast(Any, card.data).to_dict()
    assert set(metadata) == {"license", "model-index"}
    assert metadata["license"] == "mit"
    return model_index_to_eval_results(metadata["model-index"])


def task(name: str = "T") -> Any:
    return SimpleNamespace(id=name)


NASTY = [
    *("a: b # c", "---", "x\n---\nlicense: apache", "- [1, {2: 3}] & *a !!python/object:x %tag @`"),
    *("'\"\\ \u202e\x1b[2J \u2028 tail", "yes", "1e3", "null", "word " * 60, "\U0001f600 \u00e9"),
]


@pytest.mark.parametrize("text", NASTY)
def test_names_are_inert(text: str) -> None:
    scores = tuple(Score(name, "all", text, 0.25, 2) for name in (text, "other", "avg"))
    record = replace(RECORD, suite=text, tasks={text: {}, "other": {}}, scores=scores)
    shown = "".join(char for char in text if char.isprintable())
    name, entries = parsed(index(record, task(text), task("other"), name=text))
    assert name == shown
    assert [entry.dataset_config for entry in entries] == [shown, shown, None]
    assert [entry.dataset_type for entry in entries] == [shown, "other", shown]
    assert [entry.metric_type for entry in entries] == [shown] * 3
    assert entries[2].dataset_name == f"{shown} (average of 2 tasks)"


@pytest.mark.parametrize("value", [1e-7, -1e-5, 0.0, 1.0, 0.1 + 0.2, 1 / 3])
def test_a_value_keeps_every_digit_and_stays_a_number(value: float) -> None:
    record = replace(RECORD, scores=(Score("T", "all", "spearman", value, 3),))
    _, (result,) = parsed(index(record, task()))
    assert type(result.metric_value) is float
    assert result.metric_value == value


def test_data_of_ones_own_are_named_so() -> None:
    tasks = {"T": {"reference": False}, "U": {"reference": True}}
    scores = tuple(Score(name, "all", "spearman", 0.5, 2) for name in ("T", "U", "avg"))
    _, entries = parsed(index(replace(RECORD, tasks=tasks, scores=scores), task(), task("U")))
    names = [entry.dataset_name for entry in entries]
    assert names == ["T (other data)", "U", "s (average of 2 tasks, other data)"]


def test_a_record_without_the_checkpoints_scores_gives_nothing() -> None:
    assert index(replace(RECORD, scores=()), task()) == ""
    subset = replace(RECORD, scores=(Score("T", "part", "spearman", 0.5, 3),))
    assert index(subset, task()) == ""
    assert index(RECORD, task(), stages="one", last=True) == ""
    assert index(RECORD, task(), stages="one") != ""


def test_a_task_of_mteb_has_its_data_set_and_its_own_metric() -> None:
    def of_mteb(name: str, kind: str, score: str) -> MtebTask:
        return MtebTask(MtebName(name, name), kind, score, (f"mteb/{name.lower()}", "0123abc"), ("test",))

    tasks = of_mteb("Sts", "STS", "cosine_spearman"), of_mteb("Find", "Retrieval", "ndcg_at_10")
    values = [("Sts", "main_score", 0.5), ("Find", "main_score", 0.7), ("Sts", "spearman", 0.5)]
    values += [("Find", "ndcg@10", 0.7), ("avg", "main_score", 0.6)]
    scores = tuple(Score(name, "all", metric, value, 9) for name, metric, value in values)
    record = replace(RECORD, suite="mteb:Sts,Find", tasks={"Sts": {}, "Find": {}}, scores=scores)
    _, (sts, find, average) = parsed(index(record, *tasks))
    assert (sts.task_type, sts.metric_type) == ("sentence-similarity", "spearman_cosine")
    assert sts.metric_value == 0.5
    assert (find.task_type, find.task_name, find.metric_type) == ("text-retrieval", "Retrieval", "ndcg@10")
    assert (find.dataset_type, find.dataset_revision, find.dataset_name) == ("mteb/find", "0123abc", "Find")
    assert (average.task_type, average.metric_name) == ("feature-extraction", "Main Score")
    assert (average.metric_value, average.dataset_revision) == (0.6, None)
