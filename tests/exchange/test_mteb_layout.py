"""``bench export --layout mteb``: what mteb reads is what the records say, and nothing else is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.data.data_source import DataSource
from bench.data.suites import load_suite
from bench.errors import InputError
from bench.exchange import mteb_layout
from bench.exchange.mteb_facts import MODEL_META, NO_REVISION, SENTEVAL, read_registry_task
from bench.exchange.mteb_layout import Models, collect_models, name_model, write_models
from bench.exchange.record_choice import ChosenRecords, LeftOut
from bench.records.record import AVERAGE, RunRecord, Score, parse_record
from bench.records.store import ResultStore
from tests.support.campaigns import make_record, with_last
from tests.support.cli import Cli, refusal
from tests.support.house import ROOT
from tests.support.messages import missing_facts

RESULTS = ROOT / "results"
MINILM = RESULTS / "minilm" / "minilm"
OPTIONS = ("export", "--layout", "mteb", "--results", str(RESULTS))
SUBSETS = {"en-en": 0.71, "es-es": 0.62}


def read(path: Path) -> RunRecord:
    return parse_record(path.read_text(encoding="utf-8"), str(path))


def choose(records: Sequence[RunRecord], folder: Path) -> ChosenRecords:
    return ChosenRecords(ResultStore(folder, "local"), tuple(records), LeftOut())


def collect(*records: RunRecord) -> tuple[Models, list[str]]:
    chosen = choose(records, Path())
    return collect_models(chosen, None), chosen.left_out.lines()


def measured(
    task: str,
    scores: dict[tuple[str, str], float],
    *,
    subsets: Sequence[str] = (),
    splits: Sequence[str] = ("test",),
    score: str = "cosine_spearman",
    suite: str = "mteb:tasks",
    revision: str = "1" * 40,
) -> RunRecord:
    """A record of one task that mteb measured; ``scores`` are by subset and metric."""
    record = make_record("simcse", 1, {task: 0.5}, suite=suite)
    facts = {"name": task, "type": "STS", "score": score, "subsets": list(subsets), "splits": list(splits)}
    mteb = {"version": "2.26.24", "tasks": {task: {**facts, "dataset": {"path": "p", "revision": revision}}}}
    values = [Score(task, subset, metric, value, 10) for (subset, metric), value in scores.items()]
    return replace(record, scores=tuple(values), provenance={**record.provenance, "mteb": mteb})


def imported(method: str, revision: str, facts: dict[str, Any] | None = None) -> RunRecord:
    record = measured("STS12", {("all", "spearman"): 0.7})
    tasks = {name: {**record.tasks[name], **f} for name, f in record.provenance["mteb"]["tasks"].items()}
    given = {"revision": revision, "mteb_versions": ["1.12.75"], "n_parameters": 33, **(facts or {})}
    provenance = {"imported": {"kind": "mteb", "label": "results", "sha256": "0" * 64, "about": given}}
    return replace(
        record, method=method, name=f"imported:{method}", seed=None, tasks=tasks, provenance=provenance
    )


def entries(models: Models) -> dict[tuple[str, str, str], float]:
    return {
        (name, split, subset): entry["main_score"]
        for model in models.values()
        for name, file in model.files.items()
        for (split, subset), entry in file.entries.items()
    }


@pytest.mark.slow
def test_mteb_reads_the_scores_of_records_exactly(cli: Cli, tmp_path: Path, mteb: Any) -> None:
    code, out, err = cli(*OPTIONS, "--campaign", "reproduce", "--out", "mteb")
    assert (code, "88 results of 11 models" in out) == (0, True)
    assert "left out: mini MINI: it is no task of mteb's (84 runs)" in err.splitlines()
    records = [read(path) for path in (RESULTS / "reproduce").glob("*/*/*/mini-mteb.json")]
    expected = {
        (name_model(record, task), task): record.score(task) for record in records for task in record.tasks
    }
    loaded = mteb.ResultCache(tmp_path / "mteb").load_results()
    frame = loaded.to_dataframe(format="long", include_model_revision=True)
    rows = zip(frame.model_name, frame.model_revision, frame.task_name, frame.score, strict=True)
    assert {((name, revision), task): score for name, revision, task, score in rows} == expected
    # also without revisions no seed is lost
    assert len(loaded.to_dataframe(format="long")) == len(expected) == 88
    for model in loaded.model_results:
        assert {result.mteb_version for result in model.task_results} == {"2.26.24"}
        assert {result.languages[0] for result in model.task_results} == {"eng"}
    for path in (tmp_path / "mteb").rglob(f"{MODEL_META}.json"):
        mteb.models.ModelMeta.model_validate_json_resolved(path.read_text())
    revisions = {result.task_name: result.dataset_revision for result in loaded.model_results[0].task_results}
    facts = records[0].provenance["mteb"]["tasks"]
    assert revisions == {name: task["dataset"]["revision"] for name, task in facts.items()}


def test_of_senteval_those_tasks_leave_whose_pairs_are_mtebs(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli(*OPTIONS, "--campaign", "minilm", "--methods", "simcse", "--out", "mteb")
    assert (code, "25 results of 5 models" in out) == (0, True)
    left_out = [line for line in err.splitlines() if line.startswith("left out: ")]
    assert [line.split(":")[1] for line in left_out] == [" sts7 SICKR", " sts7 STSB"]
    assert missing_facts(left_out[0], "9,927", "4,927", "5 runs") == []
    (folder,) = (tmp_path / "mteb" / "results" / "bench__minilm-simcse-seed-2").iterdir()
    record = read(MINILM / "simcse" / "seed-2" / "sts7.json")
    files = {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}
    assert files.keys() == {*SENTEVAL, MODEL_META}
    meta = files.pop(MODEL_META)
    assert (meta["name"], meta["revision"]) == ("bench/minilm-simcse-seed-2", folder.name)
    assert (len(folder.name), meta["embed_dim"]) == (40, 384)
    for name, file in files.items():
        (entry,) = file["scores"]["test"]
        assert entry["main_score"] == record.score(name)
        assert (entry["hf_subset"], entry["languages"]) == ("default", ["eng-Latn"])
        assert (file["dataset_revision"], file["mteb_version"], file["evaluation_time"]) == (
            *(NO_REVISION, None, None),
        )


@pytest.mark.data
def test_the_pairs_of_senteval_are_those_that_mteb_describes(data_dir: Path, mteb: Any) -> None:
    """By mteb's own statistics of its data: gold, texts and their length; STS14 has one more blank there."""
    folder = Path(mteb.__file__).parent / "descriptive_stats" / "STS"
    names = {**dict(zip(SENTEVAL, SENTEVAL, strict=True)), "STSB": "STSBenchmark", "SICKR": "SICK-R"}
    equal = []
    for task in load_suite("sts7", DataSource(data_dir))[1]:
        stated = json.loads((folder / f"{names[task.id]}.json").read_text())["test"]
        gold = [value for subset in task.subsets for value in subset.gold]
        sides = list(zip(*task.all_pairs(), strict=True))
        lengths = [sum(map(len, side)) for side in sides]
        texts = [stated[f"text{side}_statistics"] for side in (1, 2)]
        same = [
            len(gold) == stated["num_samples"],
            sum(gold) / len(gold) == stated["label_statistics"]["avg_score"],
            [len(set(side)) for side in sides] == [text["unique_texts"] for text in texts],
            all(abs(n - text["total_text_length"]) <= 1 for n, text in zip(lengths, texts, strict=True)),
        ]
        equal += [task.id] * all(same)
    assert equal == list(SENTEVAL)


def test_scores_of_last_checkpoints_and_failed_cells_stay_out(cli: Cli, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "local")
    tasks = {"STS12": read(MINILM / "simcse" / "seed-1" / "sts7.json").tasks["STS12"]}
    for seed in (1, 2):
        record = replace(with_last(make_record("simcse", seed, {"STS12": 0.5}), 0.25), tasks=tasks)
        store.write(record.place, record, None)
    failed = replace(record, seed=3, status="failed", reason="no memory", scores=(), predictions=None)
    store.write(failed.place, failed, None)
    code, out, err = cli("export", "--layout", "mteb", "--out", "mteb")
    assert (code, "2 results of 2 models" in out) == (0, True), err
    assert "left out: mini simcse seed 3 on sts7: failed: no memory" in err
    for path in (tmp_path / "mteb").rglob("STS12.json"):
        assert "last" not in path.read_text()
        assert "0.25" not in path.read_text()


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (make_record("simcse", 1, {"STS12": 0.5}), "sts7 STS12: its pairs differ from the reference"),
        (make_record("simcse", 1, {"MR": 0.5}, suite="transfer7"), "transfer7 MR: it is no task of mteb's"),
        (make_record("simcse", 1, {"../x": 0.5}), "sts7 ../x: it is no task of mteb's"),
        (measured("../x", {("all", "spearman"): 0.5}), "it is no task of mteb's"),
        (measured(MODEL_META, {("all", "spearman"): 0.5}), "it is no task of mteb's"),
    ],
)
def test_what_is_no_task_of_mteb_is_listed(record: RunRecord, reason: str) -> None:
    models, left_out = collect(record)
    assert models == {}
    assert [reason in line for line in left_out] == [True]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (measured("STS0", {("all", "spearman"): 0.5}), "has no task STS0"),
        (
            measured("STS12", {("all", "pearson"): 0.5}, score="pearson"),
            "the record has pearson, and mteb's main score is cosine_spearman",
        ),
        (measured("STS12", {("all", "pearson"): 0.5}), "the record has no spearman"),
        (
            measured("STS17", {("all", "spearman"): 0.5}),
            "the record has the mean over its subsets, without theirs",
        ),
        (measured("STS12", {("all", "spearman"): 0.5}, subsets=("xx",)), "no languages of subset xx"),
        (
            measured("STS12", {("a", "spearman"): 0.5, ("b", "spearman"): 0.5}, splits=("a", "b")),
            "names no split of a",
        ),
    ],
)
def test_what_the_record_lacks_is_listed(record: RunRecord, reason: str, mteb: Any) -> None:
    models, left_out = collect(record)
    assert models == {}
    assert [reason in line for line in left_out] == [True]


def test_subsets_and_splits_have_their_own_entries(tmp_path: Path, mteb: Any) -> None:
    one = {("all", "spearman"): 0.665} | {(name, "spearman"): value for name, value in SUBSETS.items()}
    other = {("all", "spearman"): 0.2, ("all", "map@5"): 0.3}
    records = (
        measured("STS17", one, subsets=tuple(SUBSETS)),
        measured("STS17", {("all", "spearman"): 0.4}, subsets=("ar-ar",), suite="mteb:STS17[ar-ar]"),
        measured("STS12", other, suite="mteb:STS12"),
    )
    models, left_out = collect(*records)
    assert left_out == []
    assert entries(models) == {
        **{("STS17", "test", name): value for name, value in {**SUBSETS, "ar-ar": 0.4}.items()},
        ("STS12", "test", "default"): 0.2,
    }
    assert write_models(models, tmp_path / "out") == 2
    (model,) = mteb.ResultCache(tmp_path / "out").load_results().model_results
    sts17 = next(result for result in model.task_results if result.task_name == "STS17")
    assert sts17.get_score(languages=["spa"]) == 0.62
    (file,) = (file for each in models.values() for name, file in each.files.items() if name == "STS12")
    assert file.entries["test", "default"]["map_at_5"] == 0.3


def test_two_results_of_a_model_on_a_task_clash(mteb: Any) -> None:
    first = measured("STS12", {("all", "spearman"): 0.5})
    same = replace(first, suite="mteb:STS12,STS13")
    assert entries(collect(first, same)[0]) == {("STS12", "test", "default"): 0.5}
    for other in (
        measured("STS12", {("all", "spearman"): 0.6}, suite="mteb:STS12,STS13"),
        measured("STS12", {("all", "spearman"): 0.5}, suite="mteb:STS12,STS13", revision="2" * 40),
    ):
        with pytest.raises(InputError) as raised:
            collect(first, other)
        facts = ("bench/mini-simcse-seed-1", "STS12", "mteb:tasks", "mteb:STS12,STS13", "--suite")
        assert missing_facts(str(raised.value), *facts) == []


def test_what_mteb_measured_is_preferred_to_the_same_pairs_here(mteb: Any) -> None:
    reference = read(MINILM / "simcse" / "seed-1" / "sts7.json").tasks["STS12"]
    here = replace(make_record("simcse", 1, {"STS12": 0.25}), tasks={"STS12": reference})
    models, left_out = collect(here, measured("STS12", {("all", "spearman"): 0.5}))
    assert entries(models) == {("STS12", "test", "default"): 0.5}
    assert left_out == ["left out: sts7 STS12: suite mteb:tasks has it from mteb"]


def test_seeds_and_profiles_are_models_of_their_own() -> None:
    reference = read(MINILM / "simcse" / "seed-1" / "sts7.json").tasks["STS12"]
    records = [
        replace(make_record("simcse", seed, {"STS12": 0.25}, profile=profile), tasks={"STS12": reference})
        for seed in (1, 2)
        for profile in ("mini", "minilm")
    ]
    models, _ = collect(*records)
    assert len({revision for _, revision in models}) == 2  # a profile's name isn't a fact of the encoder
    assert sorted(name for name, _ in models) == [
        f"bench/{profile}-simcse-seed-{seed}" for profile in ("mini", "minilm") for seed in (1, 2)
    ]


def test_imported_results_keep_the_names_of_their_source(tmp_path: Path, mteb: Any) -> None:
    data = {"data_revisions": {"STS12": "e" * 40}}
    joined = imported("org/b@external", "joined", {"revisions": {"STS12": "external"}, **data})
    any_data = replace(
        joined,
        tasks={"STS12": {**joined.tasks["STS12"], "dataset": {"path": "p", "revision": "any"}}},
    )
    models, left_out = collect(imported("org/a", "abc"), any_data, imported("org/c", "../x"))
    assert left_out == []
    (a, b, c) = models
    assert (a, b, c[0]) == (("org/a", "abc"), ("org/b", "external"), "org/c")
    assert len(c[1]) == 40
    files = [models[key].files["STS12"].as_json() for key in models]
    assert [file["dataset_revision"] for file in files] == ["1" * 40, "e" * 40, "1" * 40]
    assert {file["mteb_version"] for file in files} == {"1.12.75"}
    assert models[a].meta["n_parameters"] == 33
    entry = files[0]["scores"]["test"][0]
    assert entry == {"main_score": 0.7, "hf_subset": "default", "languages": ["eng-Latn"]}
    # "a__b/c" and "a/b__c" are one folder of mteb's
    models, _ = collect(imported("a__b/c", "x"), imported("a/b__c", "x"))
    with pytest.raises(InputError, match="one folder"):
        write_models(models, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_rows_of_a_table_have_no_known_pairs() -> None:
    """Even one with the hash of bench's own pairs: a table names its tasks, and no more."""
    reference = read(MINILM / "simcse" / "seed-1" / "sts7.json").tasks["STS12"]
    for facts in (reference, {"sha256": "0" * 64, "reference": False}):
        record = make_record("paper", 1, {"STS12": 0.5}, suite="imported:paper")
        models, (line,) = collect(replace(record, name="imported:paper", tasks={"STS12": facts}))
        assert models == {}
        assert missing_facts(line, "imported:paper STS12", "imported", "unknown") == []
        assert "differ" not in line


def test_revisions_are_no_models(cli: Cli, tmp_path: Path, mteb: Any) -> None:
    store = ResultStore(tmp_path / "results", "local")
    for record in (imported("org/a", "abc"), imported("org/b@def", "def"), imported("org/b@fed", "fed")):
        store.write(record.place, record, None)
    code, out, err = cli("export", "--layout", "mteb", "--out", "mteb")
    assert (code, "3 results of 2 models in 3 revisions" in out) == (0, True), err
    code, out, _ = cli("export", "--layout", "mteb", "--methods", "org/a", "--out", "one")
    assert (code, out.endswith("1 result of 1 model\n")) == (0, True)


def test_a_folder_is_written_whole_or_not_at_all(cli: Cli, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    base = (*OPTIONS, "--campaign", "minilm", "--methods", "simcse", "--out")
    assert "not empty" in refusal(cli, *base, "full")
    assert list((tmp_path / "full").iterdir()) == [tmp_path / "full" / "file"]

    def fail(path: Path, content: dict[str, Any]) -> None:
        if path.stem == "STS14":
            raise OSError(28, "No space left on device", str(path))
        write(path, content)

    write = mteb_layout._write_json
    monkeypatch.setattr(mteb_layout, "_write_json", fail)
    code, _, err = cli(*base, "mteb")
    assert (code, "No space left on device" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    code, _, err = cli(
        "export", "--layout", "mteb", "--results", str(RESULTS), "--campaign", "mini", "--out", "x"
    )
    assert (code, "no task of these records is one of mteb's" in err, (tmp_path / "x").exists()) == (
        *(2, True, False),
    )


def test_the_languages_of_a_task_from_files_need_its_data(tmp_path: Path) -> None:
    record = measured("Local-pairs", {("all", "spearman"): 0.5}, suite="local:tasks")
    chosen = choose([record], tmp_path)
    assert collect_models(chosen, tmp_path) == {}
    (line,) = chosen.left_out.lines()
    assert missing_facts(line, "local:tasks Local-pairs", "data", "language") == []


def test_mtebs_registry_has_the_facts_of_a_task(mteb: Any) -> None:
    about = read_registry_task("STS17")
    assert (about.main_score, about.languages["en-de"]) == ("cosine_spearman", ("eng-Latn", "deu-Latn"))


def test_only_vectors_have_a_cosine() -> None:
    for method, named in (("whitening", True), ("word_overlap", False)):
        record = read(MINILM / method / "no-seed" / "sts7.json")
        models, _ = collect(record)
        (model,) = models.values()
        assert AVERAGE not in model.files
        for name, file in model.files.items():
            entry = file.entries["test", "default"]
            assert entry["main_score"] == record.score(name)
            assert ("cosine_spearman" in entry) is named
