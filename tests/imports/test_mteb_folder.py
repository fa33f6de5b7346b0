"""Reading folders of mteb's results: rows, what is left out and why, and mteb's own figures."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.errors import InputError
from bench.eval.mteb_setup import import_mteb
from bench.eval.mteb_tasks import load_mteb_suite
from bench.imports.mteb_choice import MtebChoice
from bench.imports.mteb_files import select_models
from bench.imports.mteb_folder import read_mteb_folder
from bench.imports.published import PublishedResults
from tests.support.messages import missing_facts
from tests.support.mteb_results import (
    FIRST,
    SECOND,
    STS12_REVISION,
    result,
    write_result,
    write_scores,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("mteb")]
Read = Callable[..., PublishedResults]
TWO = "mteb:STS12,STS13"
BOTH = {"STS12": 0.7, "STS13": 0.8}


@pytest.fixture(scope="module")
def mteb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """mteb with another cache folder than the user's."""
    pytest.importorskip("mteb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        yield import_mteb()


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(benchmark: str = TWO, **options: Any) -> PublishedResults:
        return read_mteb_folder(tmp_path, MtebChoice(benchmark, **options))

    return read


def averages(results: PublishedResults) -> dict[str, float]:
    return {run.method: run.scores[-1].value for run in results.runs}


def test_rows_and_their_identity(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    write_scores(tmp_path, "org/b", {"STS12": 0.5, "STS13": -0.1})
    results = read()
    assert averages(results) == pytest.approx({"org/a": 0.75, "org/b": 0.2})
    own = load_mteb_suite(TWO)
    run = results.runs[0]
    assert run.tasks["STS12"] == {"sha256": own[0].sha256, "reference": False, **own[0].facts}
    assert run.tasks["STS13"]["sha256"] != own[1].sha256  # the files state STS12's data revision
    scores = [(score.task, score.subset, score.metric, score.value, score.n) for score in run.scores]
    assert scores == [
        ("STS12", "all", "spearman", 0.7, 0),
        ("STS13", "all", "spearman", 0.8, 0),
        ("avg", "all", "spearman", pytest.approx(0.75), 2),
    ]
    assert (run.seed, run.predictions, results.suite) == (None, None, TWO)


def test_other_data_have_another_identity(tmp_path: Path, read: Read) -> None:
    for name in "abc":
        write_scores(tmp_path, f"org/{name}", BOTH)
    write_scores(tmp_path, "org/d", BOTH, data="9" * 40)
    write_scores(tmp_path, "org/e", BOTH, data=None)
    results = read()
    assert set(averages(results)) == {"org/a", "org/b", "org/c"}
    assert results.left_out["org/d"].startswith("other data in 2 of 2 tasks (STS12 99999999 and not a0d554a6")
    assert results.left_out["org/e"].startswith("the data revision of 2 of 2 tasks isn't stated")
    assert any("3 of 5 complete rows" in note for note in results.notes)
    assert "rows with all 2 tasks: 5; left out for missing tasks: 0" in results.notes
    assert results.table_notes == ("3 of 5 models of the source: 2 stand on other data revisions.",)
    every = read(data_revisions="any")
    assert len(every.runs) == 5
    assert len({run.tasks["STS12"]["sha256"] for run in every.runs}) == 1
    assert every.runs[0].tasks["STS12"]["dataset"]["revision"] == "any"
    assert every.runs[3].facts["data_revisions"] == {"STS12": "9" * 40, "STS13": "9" * 40}
    assert "STS12: rows by data revision: a0d554a6 3, 99999999 1, not stated 1" in every.notes
    assert every.table_notes == ("Rows stand on several data revisions in 2 of 2 tasks (STS12, STS13).",)
    assert every.runs[0].tasks["STS12"]["sha256"] != results.runs[0].tasks["STS12"]["sha256"]


def test_of_equally_common_data_mteb_s_present_ones_count(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH, data="9" * 40)
    write_scores(tmp_path, "org/b", BOTH)
    assert set(averages(read("mteb:STS12"))) == {"org/b"}


def test_incomplete_models_are_left_out(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    write_scores(tmp_path, "org/b", {"STS12": 0.7})
    write_scores(tmp_path, "org/c", {"STS12": 0.7, "STS13": 71.3})
    write_scores(tmp_path, "org/d", BOTH)
    write_result(tmp_path, "org/d", FIRST, "{", "STS12")
    write_scores(tmp_path, "org/e", BOTH, revision="external")
    results = read()
    named = read(models=("org/a", "b"))
    assert named.table_notes == ("1 of 2 named models: 1 lacks tasks.",)
    left_out = results.left_out
    assert "rows with all 2 tasks: 1; left out for missing tasks: 4" in results.notes
    assert results.table_notes == ("1 of 5 models of the source: 4 lack tasks.",)
    assert left_out["org/b"] == "lacks 1 of 2 tasks (STS13)"
    place = f"results/org__c/{FIRST}/STS13.json"
    problem = "main_score of test/default is 71.3, not from -1 to 1"
    assert left_out["org/c"] == f"lacks 1 of 2 tasks (STS13); {place}: {problem}"
    assert "it isn't valid JSON" in left_out["org/d"]
    assert left_out["org/e"] == "it has only a model card's scores (--external reads them)"


@pytest.mark.parametrize(
    ("first", "second", "newest"),
    [
        ({"date": 2e9, "version": "1.0.0"}, {"date": 1e9, "version": "2.0.0"}, FIRST),
        ({"version": "2.10.0"}, {"version": "2.9.1"}, FIRST),
        ({"version": "2.10.0.dev1"}, {"version": "2.10.0"}, SECOND),
        ({"version": "2.9.0-2.12.0"}, {"version": "2.10.0"}, FIRST),
        ({"date": 2e9, "version": "2.10.0"}, {"version": "2.11.0"}, SECOND),
        ({"version": None}, {"version": "0.0.2"}, SECOND),
    ],
)
def test_the_newest_revision(
    tmp_path: Path, read: Read, first: dict[str, Any], second: dict[str, Any], newest: str
) -> None:
    write_scores(tmp_path, "org/a", BOTH, FIRST, **first)
    write_scores(tmp_path, "org/a", BOTH, SECOND, **second)
    write_scores(tmp_path, "org/a", {"STS12": 0.1}, "3" * 40, version="9.0", date=3e9)  # incomplete
    results = read()
    assert [run.facts["revision"] for run in results.runs] == [newest]
    assert any("models with several complete revisions: 1" in note for note in results.notes)
    assert not any("newest revision is unknown" in note for note in results.notes)


def test_revisions_of_one_age(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH, FIRST)
    write_scores(tmp_path, "org/a", BOTH, SECOND)
    results = read()
    assert results.runs[0].facts["revision"] == SECOND
    assert any("newest revision is unknown: 1 (org/a)" in note for note in results.notes)


def test_every_revision(tmp_path: Path, read: Read) -> None:
    for revision in (FIRST, SECOND, SECOND[:-1] + "3", "main"):
        write_scores(tmp_path, "org/a", BOTH, revision)
    names = [run.method for run in read(revisions="all").runs]
    assert names == ["org/a@11111111", f"org/a@{SECOND}", f"org/a@{SECOND[:-1]}3", "org/a@main"]


def test_joined_revisions(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", {"STS12": 0.1}, FIRST, version="1.0.0")
    write_scores(tmp_path, "org/a", {"STS12": 0.5, "STS13": 0.7}, SECOND, version="2.0.0")
    write_scores(tmp_path, "org/b", {"STS12": 0.1}, FIRST)
    write_scores(tmp_path, "org/b", {"STS13": 0.3}, SECOND)
    newest = read()
    assert newest.left_out["org/b"].endswith("complete over its revisions: --revisions joined")
    joined = read(revisions="joined")
    assert averages(joined) == pytest.approx({"org/a": 0.6, "org/b": 0.2})
    assert joined.runs[0].facts["revision"] == SECOND
    assert joined.runs[1].facts["revision"] == "joined"
    assert joined.runs[1].facts["revisions"] == {"STS12": FIRST, "STS13": SECOND}


def test_scores_of_model_cards(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    write_scores(tmp_path, "org/a", {"STS12": 0.9, "STS13": 0.9}, "external", version=None)
    write_scores(tmp_path, "org/b", {"STS12": 0.1})
    write_scores(tmp_path, "org/b", {"STS12": 0.9, "STS13": 0.3}, "external", version=None)
    plain = read()
    assert averages(plain) == pytest.approx({"org/a": 0.75})
    assert any("a model card has the missing tasks" in note and ": 1 (" in note for note in plain.notes)
    cards = read(external=True)
    assert averages(cards) == pytest.approx({"org/a": 0.75, "org/a@external": 0.9, "org/b@external": 0.6})
    assert [run.facts["is_external"] for run in cards.runs] == [False, True, True]
    assert [run.facts.get("external_tasks") for run in cards.runs] == [None, 2, 2]
    assert [run.notes for run in cards.runs] == [(), (), ()]
    joined = read(external=True, revisions="joined")
    assert averages(joined) == pytest.approx({"org/a": 0.75, "org/b@external": 0.2})
    assert joined.runs[1].facts["external_tasks"] == 1
    assert joined.table_notes == ("1 row joins scores over revisions of the model.",)


def test_a_task_of_another_version_is_another_task(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", {"STSBenchmark": 0.7})
    write_scores(tmp_path, "org/b", {"STSBenchmark.v2": 0.7})
    results = read("mteb:STSBenchmark")
    assert set(averages(results)) == {"org/a"}
    assert results.left_out["org/b"] == "lacks 1 of 1 tasks (STSBenchmark)"
    assert "models that lack STSBenchmark and have STSBenchmark.v2, another task: 1" in results.notes


def test_subsets_and_splits(tmp_path: Path, read: Read) -> None:
    content = result("STS17", 0.9, subset="en-en", data="faeb762787bd10488a50c8b5be4a3b82e411949c")
    write_result(tmp_path, "org/a", FIRST, content)
    results = read("mteb:STS17[en-en]@test")
    (own,) = load_mteb_suite("mteb:STS17[en-en]@test")
    assert results.runs[0].tasks[own.id]["sha256"] == own.sha256
    with pytest.raises(InputError, match=r"lacks 10 of 11 parts: test/ko-ko, test/ar-ar"):
        read("mteb:STS17")


def test_a_benchmark_of_mteb(tmp_path: Path, read: Read, mteb: Any) -> None:
    benchmark = mteb.get_benchmark("MTEB(Scandinavian, v1)")
    names = []
    for task in benchmark.tasks:
        about = task.metadata
        entry = {"main_score": 0.25, "languages": ["dan-Latn"]}
        scores = {
            split: [entry | {"hf_subset": subset} for subset in task.hf_subsets] for split in task.eval_splits
        }
        content = result(about.name, 0, data=about.dataset["revision"]) | {"scores": scores}
        write_result(tmp_path, "org/a", FIRST, content)
        names.append(about.name)
    (run,) = read("MTEB(Scandinavian, v1)").runs
    assert list(run.tasks) == names
    assert next(score.value for score in run.scores if score.task == "avg") == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"benchmark": "MTEB(eng, v3)"}, "mteb has no benchmark 'MTEB(eng, v3)'"),
        ({"benchmark": "mteb:STS99"}, "mteb has no task 'STS99'"),
        ({"benchmark": "local:a.toml"}, "mteb has no results on 'local:a.toml'"),
        ({"models": ("org/aa",)}, "unknown model 'org/aa' (did you mean 'org/a'?)"),
        ({"revisions": "first"}, "unknown value 'first'"),
        ({"data_revisions": "all"}, "unknown value 'all'"),
        ({"metric": "spearmann"}, "spearmann of test/default is missing"),
        ({"benchmark": "mteb:STS14"}, "none of 1 models has all scores (org/a: lacks 1 of 1 tasks (STS14))"),
    ],
)
def test_requests_that_cannot_be_met(
    tmp_path: Path, read: Read, options: dict[str, Any], message: str
) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    with pytest.raises(InputError) as caught:
        read(**options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_without_results(tmp_path: Path, read: Read) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InputError, match="no results of mteb"):
        read()
    with pytest.raises(InputError, match="no such folder"):
        read_mteb_folder(tmp_path / "missing", MtebChoice(TWO))


def test_a_main_score_of_another_metric(tmp_path: Path, read: Read) -> None:
    """It is named where a file shows it; a file without the metric shows nothing."""
    for name, metrics in (("a", {"map": 0.7}), ("b", {"mrr": 0.7}), ("c", {})):
        content = result("STS12", 0.7)
        entry = content["scores"]["test"][0]
        del entry["cosine_spearman"]
        write_result(tmp_path, f"org/{name}", FIRST, content | {"scores": {"test": [entry | metrics]}})
    results = read("mteb:STS12")
    (note,) = [note for note in results.notes if "main score" in note]
    assert note.startswith("STS12: the main score is map or mrr, not cosine_spearman, in 2 of 3 rows (")
    (sentence,) = results.table_notes
    assert missing_facts(sentence, "some rows", "1 task ", "STS12: map or mrr") == []


def test_folders_that_have_no_results(tmp_path: Path, read: Read) -> None:
    """Hidden folders are passed over; others, such as records of bench, are named and are no models."""
    write_scores(tmp_path, "org/a", BOTH)
    write_scores(tmp_path, "org/other", {"STS99": 0.5})
    root = tmp_path / "results"
    (root / "org__other" / FIRST / "model_meta.json").unlink()
    for place in (
        ".locks/x",
        "org__a/.cache",
        "org__a/empty",
        "board/imported/org__a/no-seed",
        "plain/no-seed",
    ):
        (root / place).mkdir(parents=True)
        (root / place / "imported.json").write_text('{"suite": "x", "scores": []}')
    results = read()
    assert [run.method for run in results.runs] == ["org/a"]
    assert results.left_out == {"org/other": "lacks 2 of 2 tasks (STS12, STS13)"}
    (remark,) = [note for note in results.notes if "without results" in note]
    assert remark.endswith("aren't read: 2 (results/board, results/plain)")
    assert results.table_notes == ("1 of 2 models of the source: 1 lacks tasks.",)
    with pytest.raises(InputError, match="no results of mteb"):
        read_mteb_folder(root / "board", MtebChoice(TWO))


@pytest.mark.parametrize("spelling", ["org/a", "org__a", "a", "A"])
def test_named_models(tmp_path: Path, read: Read, spelling: str) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    write_scores(tmp_path, "org/b", BOTH)
    assert set(averages(read(models=(spelling,)))) == {"org/a"}


@pytest.mark.parametrize(
    ("spelling", "facts"),
    [
        ("mini-L6", ("2 models are called 'mini-L6'", "one of 'lab/mini-L6' or 'org/mini-L6'")),
        ("sentence/mini-L6", ("unknown model", "did you mean 'lab/mini-L6' or 'org/mini-L6'?")),
        ("lab/Mini-L66", ("unknown model", "did you mean 'lab/mini-L6' or 'org/mini-L6'?")),
        ("mini-L12x", ("unknown model", "did you mean 'other/mini-L12'?")),
        ("nothing", ("unknown model", "one of lab/mini-L6, org/mini-L6, other/mini-L12")),
    ],
)
def test_names_of_no_one_model(spelling: str, facts: tuple[str, ...]) -> None:
    known = ["lab__mini-L6", "org__mini-L6", "other__mini-L12"]
    with pytest.raises(InputError) as caught:
        select_models(known, [spelling])
    assert missing_facts(str(caught.value), *facts) == []
    assert select_models(known, ["mini-l12", "other/mini-L12"]) == ["other__mini-L12"]


def test_layouts(tmp_path: Path) -> None:
    """The folder of models itself, and a cache with a clone; in both, the same row."""
    write_scores(tmp_path, "org/a", BOTH)
    write_scores(tmp_path / "remote", "org/a", BOTH)
    write_scores(tmp_path / "remote", "org/b", BOTH)
    whole, inner = (read_mteb_folder(folder, MtebChoice(TWO)) for folder in (tmp_path, tmp_path / "results"))
    assert [run.method for run in whole.runs] == ["org/a", "org/b"]
    assert [run.method for run in inner.runs] == ["org/a"]
    write_scores(tmp_path / "remote", "org/a", {"STS12": 0.6})
    reason = read_mteb_folder(tmp_path, MtebChoice(TWO)).left_out["org/a"]
    assert reason.endswith(f"remote/results/org__a/{FIRST}/STS12.json has other scores")


def test_odd_files(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    place = tmp_path / "results" / "org__a" / FIRST
    (place / "sts12.json").write_text("{}")
    (place / "experiments" / "x").mkdir(parents=True)
    (place / "STS14.json").mkdir()
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    write_scores(outside, "org/b", BOTH)
    os.symlink(outside / "results" / "org__b", tmp_path / "results" / "org__b")
    os.symlink(place, tmp_path / "results" / "org__a" / SECOND)
    write_scores(tmp_path, "org/pipe", {"STS12": 0.7})
    os.mkfifo(tmp_path / "results" / "org__pipe" / FIRST / "STS13.json")
    write_scores(tmp_path, "org/\x1b[31mred", BOTH)
    (tmp_path / "results" / "org__a" / ".DS_Store").write_text("")
    results = read()
    assert [run.method for run in results.runs] == ["org/\\x1b[31mred", "org/a"]
    assert results.left_out == {"org/pipe": "lacks 1 of 2 tasks (STS13)"}
    assert all(note.isprintable() for note in results.notes)
    text = " ".join(results.notes)
    assert "links out of the folder that aren't followed: 1 (results/org__b)" in text
    assert "files with a task's name in another case" in text
    assert "folders of experiments, with other settings" in text


def test_equal_rows_and_names_are_kept_with_a_note(tmp_path: Path, read: Read) -> None:
    for name in ("BAAI/bge", "baai/BGE", "org/c"):
        write_scores(tmp_path, name, BOTH)
    results = read()
    assert len(results.runs) == 3
    assert "3 rows have equal scores: BAAI/bge, baai/BGE, org/c" in results.notes
    assert "models differ only in case: BAAI/bge, baai/BGE" in results.notes


def test_facts_of_a_model(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH, date="2026-07-30T17:45:15Z")
    meta = {
        "name": "org/a",
        "n_parameters": 10**6,
        "embed_dim": 384.0,
        "max_tokens": float("inf"),
        "open_weights": "yes",
        "release_date": "2026-13-01",
        "license": "mit\x07",
    }
    (tmp_path / "results" / "org__a" / FIRST / "model_meta.json").write_text(json.dumps(meta))
    (run,) = read().runs
    assert run.facts == {
        "revision": FIRST,
        "n_parameters": 10**6,
        "embed_dim": 384,
        "licence": "mit\\x07",
        "mteb_versions": ["2.10.0"],
        "is_external": False,
        "date": "2026-07-30T17:45:15+00:00",
    }


@pytest.mark.parametrize("meta", ["{", "[]", '{"name": 3}', '{"name": "other/name"}', "[" * 100_000])
def test_damaged_facts_of_a_model(tmp_path: Path, read: Read, meta: str) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    (tmp_path / "results" / "org__a" / FIRST / "model_meta.json").write_text(meta)
    assert set(averages(read())) == {"org/a"}


def test_the_source(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH, date="2026-07-30T17:45:15Z")
    (tmp_path / "LICENSE").write_text("Creative Commons Legal Code\n\nCC0 1.0 Universal\n")
    plain = read().source
    assert (plain["kind"], plain["label"]) == ("mteb", tmp_path.name)
    assert (plain["licence"], plain["date"]) == ("CC0-1.0", "2026-07-30")
    assert "commit" not in plain
    git = shutil.which("git") or pytest.skip("no git")
    address = "https://user:secret@example.org/owner/name.git?token=1"
    for command in (
        "init -q -b main",
        "add .",
        "-c user.name=a -c user.email=a@b commit -qm a",
        "pack-refs --all",
        f"remote add origin {address}",
    ):
        subprocess.run([git, *command.split()], cwd=tmp_path, check=True, capture_output=True)
    head = subprocess.run([git, "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True)
    source = read().source
    assert source["commit"] == head.stdout.decode().strip()
    assert source["repository"] == "https://example.org/owner/name"
    assert source["sha256"] == plain["sha256"]
    write_scores(tmp_path, "org/b", {"STS12": 0.7})  # no row
    assert read().source["sha256"] == plain["sha256"]
    write_scores(tmp_path, "org/a", BOTH, date="2026-07-30T17:45:16Z")
    assert read().source["sha256"] != plain["sha256"]


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("MIT License\n\nCopyright", "MIT"),
        ("\n        Apache License\n   Version 2.0", "Apache-2.0"),
        ("All rights reserved.", None),
        ("\n" * 20 + "MIT License", None),
        ("\xff", None),
    ],
)
def test_licences(tmp_path: Path, read: Read, text: str, licence: str | None) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    (tmp_path / "LICENSE").write_text(text, encoding="latin-1")
    assert read().source.get("licence") == licence


@pytest.mark.parametrize("head", ["ref: refs/heads/../../../secret", "ref: refs/heads/main", "secret", ""])
def test_a_checkout_that_leads_elsewhere(tmp_path: Path, read: Read, head: str) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    (outside / "refs" / "heads").mkdir(parents=True)
    (outside / "HEAD").write_text(head)
    (outside / "refs" / "heads" / "main").write_text("a" * 40)
    (tmp_path.parent / "secret").write_text("b" * 40)
    os.symlink(outside, tmp_path / ".git")
    assert "commit" not in read().source
    (tmp_path / ".git").unlink()
    shutil.copytree(outside, tmp_path / ".git")
    assert read().source.get("commit") == ("a" * 40 if head.endswith("main") else None)


def test_two_rows_of_one_id(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    write_scores(tmp_path, "org/a", {"STS12": 0.1, "STS13": 0.1}, "external")
    write_scores(tmp_path, "org/a@external", BOTH)
    results = read(external=True)
    assert averages(results) == pytest.approx({"org/a": 0.75, "org/a@external": 0.1})
    assert any("models that are called org/a@external too" in note for note in results.notes)


def test_progress(tmp_path: Path) -> None:
    for name in "ab":
        write_scores(tmp_path, f"org/{name}", BOTH)
    counts: list[int] = []
    read_mteb_folder(tmp_path, MtebChoice(TWO), counts.append)
    assert counts == [3, 6]


OLD = {"mteb_dataset_name": "STS12", "dataset_revision": STS12_REVISION, "mteb_version": "1.0.2"}


def test_mteb_reads_the_same(tmp_path: Path, read: Read, mteb: Any) -> None:
    """Task scores and means of mteb's own tables, for files of several forms over several revisions."""
    write_scores(tmp_path, "org/a", BOTH)
    write_result(tmp_path, "org/b", FIRST, OLD | {"test": {"cos_sim": {"spearman": 0.31}}}, "STS12")
    write_scores(tmp_path, "org/b", {"STS12": 0.2, "STS13": 0.4}, SECOND, version="1.20.0")
    write_scores(tmp_path, "org/c", {"STS12": 0.2}, SECOND, version="2.12.16-2.15.4")
    write_scores(tmp_path, "org/c", {"STS12": 0.6, "STS13": 0.4}, FIRST, version="1.30.0")
    write_scores(tmp_path, "org/d", {"STS12": 0.6}, FIRST)
    write_scores(tmp_path, "org/d", {"STS12": 0.9, "STS13": 0.3}, "external", version=None)
    ours = read(revisions="joined", data_revisions="any", external=True)
    cache = mteb.ResultCache(tmp_path)
    tasks = mteb.get_tasks(tasks=["STS12", "STS13"])
    joined = cache.load_results(tasks=list(tasks)).select_tasks(tasks).join_revisions()
    table = joined.to_dataframe().set_index("task_name")
    assert len(ours.runs) == 4
    for run in ours.runs:
        name = run.method.removesuffix("@external")
        values = {score.task: score.value for score in run.scores}
        theirs = {task: float(table.loc[task, name]) for task in ("STS12", "STS13")}
        assert {task: values[task] for task in theirs} == pytest.approx(theirs, abs=1e-12)
        assert values["avg"] == pytest.approx(table[name].mean(), abs=1e-12)


@pytest.mark.parametrize("date", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"])
def test_dates_beyond_the_calendar_are_none(tmp_path: Path, read: Read, date: str) -> None:
    for task, score in BOTH.items():
        write_result(tmp_path, "org/a", FIRST, {**result(task, score), "date": date})
    (run,) = read().runs
    assert "date" not in run.facts


def test_a_name_that_stands_twice_in_a_file(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    file = tmp_path / "results" / "org__a" / FIRST / "STS12.json"
    file.write_text(file.read_text().replace('"main_score"', '"main_score": 0.9, "main_score"', 1))
    write_scores(tmp_path, "org/b", BOTH)
    results = read()
    assert [run.method for run in results.runs] == ["org/b"]
    assert "a name is given twice in one block" in results.left_out["org/a"]


def test_a_look_alike_is_left_out_by_name(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH)
    alike = "org/\N{CYRILLIC SMALL LETTER A}bc"
    write_scores(tmp_path, alike, BOTH)
    results = read()
    assert [run.method for run in results.runs] == ["org/a"]
    assert "U+0430" in results.left_out[alike]


def test_claims_in_a_folder_of_another_case_are_claims(tmp_path: Path, read: Read) -> None:
    write_scores(tmp_path, "org/a", BOTH, revision="External")
    write_scores(tmp_path, "org/b", BOTH)
    results = read()
    assert [run.method for run in results.runs] == ["org/b"]
    assert "model card" in results.left_out["org/a"]
