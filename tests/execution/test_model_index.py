"""The ``model-index`` of exported folders: read by Hugging Face's own parser, equal to the record, inert."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from huggingface_hub import EvalResult, ModelCard, metadata_load
from huggingface_hub.repocard_data import model_index_to_eval_results

from bench.data.mteb_names import MtebName
from bench.data.toy import make_toy_task
from bench.eval.mteb_tasks import MtebTask
from bench.execution.model_card import build_model_index
from bench.nn.model_metadata import format_front_matter, read_model_card
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.records.record import RunRecord, Score
from tests.support.cli import Cli

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
