"""Scores that contradict predictions: no command prints, ranks, compares or skips such a record."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.errors import InputError
from bench.eval import recomputation, rescoring, score_memory
from bench.eval.recomputation import NO_DATA, recompute_scores
from bench.records.record import NOT_RECOMPUTED, parse_record
from bench.records.store import ResultStore
from tests.support.cli import Cli
from tests.support.forge import add_points, forge, forge_predictions
from tests.support.messages import missing_facts
from tests.support.site import make_site
from tests.support.verified import NOISE, ONE

FORMS = ("text", "markdown", "csv", "json", "latex", "html")
GIVE = "its predictions give"
STORE = ResultStore(Path("results"), "local")
UNCHECKED = f"{NOT_RECOMPUTED}{NO_DATA}"


def read_scores() -> list[str]:
    """The forged averages, as tables print them."""
    values = [s["value"] for s in json.loads(ONE.read_text())["scores"] if s["task"] == "avg"]
    return [f"{100 * value:.2f}" for value in values]


def hide_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the suite one that needs data, which aren't there."""

    def missing(*_: object) -> None:
        raise InputError("suite 'toy' needs evaluation data")

    monkeypatch.setattr(rescoring, "_load_suite", missing)


@pytest.mark.parametrize("form", FORMS)
def test_no_report_ranks_a_forged_score(results: Cli, form: str) -> None:
    before = results("report", "--format", form)[1]
    forge(ONE, add_points)
    code, out, err = results("report", "--format", form)
    assert (code, missing_facts(err, ONE, GIVE)) == (1, [])
    assert GIVE in out
    assert GIVE not in before
    assert not [score for score in read_scores() if score in out]
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [row["seed"] for row in rows if row["status"] == "unreadable"] == ["1"]


@pytest.mark.parametrize("table", ["leaderboard", "efficiency", "significance"])
@pytest.mark.parametrize("form", FORMS)
def test_every_table_says_which_record_is_refused(results: Cli, table: str, form: str) -> None:
    forge(ONE, add_points)
    code, out, _ = results("report", "--format", form, "--table", table)
    assert (code, "noise seed 1" in out, GIVE in out) == (1, True, True)


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "noise", "word_overlap", "--seeds-only"),
        ("compare", "noise#1", "word_overlap"),
        ("stats",),
        ("probe",),
        ("compare", "--show-items", "noise", "word_overlap"),
        ("data", "overlap", "text.txt", "--suite", "toy", "--campaign", "local"),
    ],
)
def test_a_forged_score_wins_no_comparison(results: Cli, words: tuple[str, ...]) -> None:
    Path("text.txt").write_text("A sentence of nobody's test.\n")
    forge(ONE, add_points)
    code, out, err = results(*words)
    assert (code, out, missing_facts(err, ONE, GIVE)) == (2, "", [])


def test_a_run_makes_a_forged_cell_again(results: Cli) -> None:
    honest = ONE.read_text()
    wanted = ("run", "--methods", "noise", "--seeds", "1-3", "--suite", "toy")
    assert "done" in results(*wanted, "--dry-run")[1]
    forge(ONE, add_points)
    code, out, _ = results(*wanted, "--dry-run")
    assert (code, out.count(" done"), missing_facts(out, "to do", GIVE)) == (0, 3, [])
    code, _, err = results(*wanted)
    assert (code, missing_facts(err, f"replaces {ONE}", GIVE, "2 of 3 cells are done")) == (0, [])
    scores = [json.loads(text)["scores"] for text in (honest, ONE.read_text())]
    assert scores[0] == scores[1]


def test_a_forged_cell_that_fails_again_is_shown_as_failed(
    results: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge(ONE, add_points)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("bench.execution.cell_run.measure_job", fail)
    code, out, _ = results("run", "--methods", "noise", "--seeds", "1-3", "--suite", "toy")
    assert (code, "noise seed 1" in out, GIVE in out) == (1, True, True)
    assert not [score for score in read_scores() if score in out]


def test_the_planned_seeds_are_not_those_of_forged_records(results: Cli) -> None:
    wanted = ("run", "--methods", "noise,word_overlap", "--seeds", "1-4", "--suite", "toy", "--dry-run")
    assert "seeds of local" in results(*wanted, "--detect", "1")[1]
    forge(ONE, add_points)
    code, out, _ = results(*wanted, "--detect", "1")
    assert (code, "seeds of local" in out, missing_facts(out, GIVE, "--spread")) == (0, False, [])


def test_the_site_shows_a_forged_record_without_its_score(results: Cli, tmp_path: Path) -> None:
    forge(ONE, add_points)
    code, _, err = make_site(tmp_path / "results", tmp_path / "site")
    page = (tmp_path / "site/campaigns/local/index.html").read_text()
    table = (tmp_path / "site/campaigns/local/tables/leaderboard.json").read_text()
    assert (code, "in doubt: campaign local" in err, GIVE in page) == (1, True, True)
    assert "noise seed 1" in table
    assert not [score for score in read_scores() if score in page + table]


def test_a_bundle_and_a_merge_refuse_it(results: Cli) -> None:
    forge(ONE, add_points)
    code, out, _ = results("bundle", "local", "--out", "local.zip")
    assert (code, GIVE in out, Path("local.zip").exists()) == (1, True, False)
    code, out, _ = results("merge", "results/local", "--into", "other")
    assert (code, GIVE in out, Path("other/local").exists()) == (1, True, False)


@pytest.mark.parametrize("form", FORMS)
def test_without_data_every_format_says_it(results: Cli, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NO_DATA not in results("report", "--format", form)[1]
    hide_data(monkeypatch)
    for words in ((), ("--table", "leaderboard"), ("--table", "efficiency"), ("--table", "significance")):
        code, out, _ = results("report", "--format", form, *words)
        assert (code, UNCHECKED in out) == (0, True), words


@pytest.mark.parametrize("style", ["booktabs", "acl"])
def test_a_table_for_a_paper_says_it(results: Cli, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_data(monkeypatch)
    assert UNCHECKED in results("report", "--style", style)[1]


def test_figures_say_it(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_data(monkeypatch)
    assert results("report", "--figures", "drawn")[0] == 0
    drawn = list(Path("drawn").glob("*.svg"))
    assert drawn
    said = UNCHECKED.removeprefix("Scores ")
    assert not [path.name for path in drawn if said not in path.read_text()]


def test_without_data_comparisons_say_it(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_data(monkeypatch)
    for words in (("compare", "noise", "word_overlap", "--seeds-only"), ("stats",)):
        for form in ("text", "json"):
            code, out, _ = results(*words, "--format", form)
            assert (code, UNCHECKED in out) == (0, True), (words, form)


def test_verify_finds_nothing_wrong_only_where_it_recomputed(
    results: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert results("verify")[1].rstrip().endswith("nothing wrong")
    assert results("run", "--methods", "noise", "--seeds", "1", "--suite", "mini-dev")[0] == 0
    load = rescoring._load_suite

    def only_mini(name: str, source: Any) -> Any:
        if name == "toy":
            raise InputError("suite 'toy' needs evaluation data")
        return load(name, source)

    monkeypatch.setattr(rescoring, "_load_suite", only_mini)
    code, out, _ = results("verify", "--junit", "junit.xml")
    assert (code, out.rstrip().endswith(f"nothing wrong in 1 record; not recomputed: {NO_DATA} (4)")) == (
        0,
        True,
    )
    assert Path("junit.xml").read_text().count(f'<skipped message="not recomputed: {NO_DATA}"') == 4
    hide_data(monkeypatch)
    code, out, _ = results("verify")
    assert (code, "nothing wrong" in out, f"not recomputed: {NO_DATA} (5)" in out) == (0, False, True)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The records whose scores are computed again."""
    calls: list[str] = []
    rescore = rescoring.rescore_record

    def count(record: Any, *rest: Any) -> Any:
        calls.append(f"{record.method} {record.seed}")
        return rescore(record, *rest)

    monkeypatch.setattr(recomputation, "rescore_record", count)
    return calls


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A memory of this test alone."""
    monkeypatch.setattr(score_memory, "user_cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "scores"


def test_what_agreed_is_remembered_and_what_changed_is_not(
    results: Cli, memory: Path, counted: list[str]
) -> None:
    results("report")
    assert len(counted) == 4
    assert memory.stat().st_mode & 0o777 == 0o700
    results("report")
    assert len(counted) == 4
    forge(ONE, add_points)
    for _ in range(2):  # a contradiction is computed each time
        counted.clear()
        assert results("report")[0] == 1
        assert counted == ["noise 1"]
    forge_predictions(NOISE / "seed-2" / "toy.json", lambda values: values[::-1])
    counted.clear()
    results("report")
    assert counted == ["noise 1", "noise 2"]
    assert not list(Path("results").rglob("scores"))


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def change_seal(path: Path) -> None:
    data = json.loads(path.read_text())
    data["entries"] |= {"0" * 64: []}
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"\0" * 100),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text('{"sha256": "", "entries": {"\\ud800": []}}'),
        lambda path: path.write_text('{"sha256": "0", "entries": {"a": 1}}'),
        lambda path: path.write_text("7"),
        lambda path: path.unlink(),
        lambda path: path.chmod(0o666),
        lambda path: path.parent.chmod(0o777),
        lambda path: (path.rename("elsewhere"), path.symlink_to(Path("elsewhere").resolve())),
        make_pipe,
        lambda path: (path.unlink(), path.mkdir()),
        change_seal,
    ],
)
def test_a_damaged_memory_is_none(results: Cli, memory: Path, counted: list[str], damage: Any) -> None:
    results("report")
    (file,) = memory.glob("suite-*.json")
    damage(file)
    counted.clear()
    code, _, err = results("report")
    assert (code, err, len(counted)) == (0, "", 4)
    memory.chmod(0o700)


def test_a_memory_below_the_results_is_none(
    results: Cli, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_memory, "user_cache_folder", lambda: Path("results/local"))
    for _ in range(2):
        counted.clear()
        assert results("report")[0] == 0
        assert len(counted) == 4
    assert not Path("results/local/scores").exists()


def test_no_memory_without_a_home_or_in_a_folder_that_is_closed(
    results: Cli, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Path:
        raise RuntimeError("no home")

    Path("file").write_text("")
    for folder in (fail, lambda: Path("file")):
        monkeypatch.setattr(score_memory, "user_cache_folder", folder)
        counted.clear()
        assert results("report")[0] == 0
        assert len(counted) == 4


def test_other_data_are_not_those_that_were_remembered(
    results: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results("report")
    load = rescoring._load_suite

    def change(name: str, source: Any) -> Any:
        tasks = load(name, source)
        return {key: Changed(task) for key, task in tasks.items()}

    class Changed:
        def __init__(self, task: Any) -> None:
            self.task, self.sha256 = task, "0" * 64

    monkeypatch.setattr(rescoring, "_load_suite", change)
    assert f"{NOT_RECOMPUTED}other evaluation data" in results("report")[1]


def test_a_hostile_record_ends_no_command_with_a_traceback(
    results: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(recomputation, "rescore_record", fail)
    store = ResultStore(Path("results"), "local")
    outcomes = recompute_scores(store, store.records(), None)
    assert [str(outcome.error).count("ValueError: odd") for outcome in outcomes.values()] == [1] * 4


def test_missing_predictions_are_said(results: Cli) -> None:
    ONE.with_suffix(".npz").unlink()
    out = results("compare", "noise", "word_overlap", "--seeds-only")[1]
    assert f"{NOT_RECOMPUTED}no predictions (noise seed 1)." in out
    assert np.isfinite([score["value"] for score in json.loads(ONE.read_text())["scores"]]).all()


def test_a_record_that_names_no_predictions_is_marked_in_every_format(results: Cli) -> None:
    def forget(record: dict[str, Any]) -> None:
        add_points(record)
        record["predictions"] = None

    forge(ONE, forget)
    ONE.with_suffix(".npz").unlink()
    for form in FORMS:
        code, out, _ = results("report", "--format", form)
        assert (code, "Predictions that are missing" in out) == (0, True), form
    assert results("verify")[0] == 1


def test_predictions_of_a_local_task_cannot_be_emptied(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("".join(f"The {i} cats,{i} dogs,{i % 5}\n" for i in range(30)))
    (tmp_path / "mine.toml").write_text(
        '[[task]]\nname = "Mine"\ntype = "sts"\nfile = "mine.csv"\n'
        'columns = ["sentence1", "sentence2", "score"]\n'
    )
    code, _, err = cli("run", "--methods", "untrained", "--suite", f"local:{tmp_path / 'mine.toml'}")
    assert code == 0, err
    (path,) = Path("results/local").rglob("local*.json")
    where = ("--data", str(tmp_path))
    assert cli("verify", *where)[0] == 0
    record = parse_record(path.read_text(), str(path))
    STORE.write(record.place, record, {"Mine": np.zeros(0, dtype=np.float32)})
    code, out, _ = cli("verify", *where)
    assert (code, "Mine has no predictions" in out) == (1, True), out
    assert cli("report", *where)[0] == 1
