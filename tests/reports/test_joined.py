"""Several campaigns in one report, records that can't be read, and predictions that are missing."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bench.cli.main import main
from bench.config.sweep_manifest import Manifest, save_manifest
from bench.errors import DataError, NotComparableError
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.merge_campaigns import CampaignRecord, merge_records, merge_sweeps
from tests.support.campaigns import make_record
from tests.support.cli import Cli, refusal
from tests.support.forge import forge, forge_predictions
from tests.support.messages import missing_facts

A, B = Path("results/a/mini"), Path("results/b/mini")
NOISE = Path("noise/seed-1/toy.json")
OVERLAP = "task,level,sentences,touched,pairs,clean_pairs\nSTSB,key,10,2,5,4\n"
POINTS = (("1", "jtcse", "jtcse[caels=1]"), ("2", "jtcse", "jtcse"))


def run_toy(results: Path, campaign: str, methods: str, seeds: str) -> None:
    run = ("run", "--methods", methods, "--seeds", seeds, "--suite", "toy", "--workers", "1")
    with pytest.raises(SystemExit) as stopped:
        main([*run, "--results", str(results), "--campaign", campaign])
    assert not stopped.value.code


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Campaign a with two seeds of a method, campaign b with a third and a deterministic method."""
    folder = tmp_path_factory.mktemp("made") / "results"
    run_toy(folder, "a", "noise", "1-2")
    run_toy(folder, "b", "noise,word_overlap", "3")
    return folder


@pytest.fixture
def both(made: Path, cli: Cli, tmp_path: Path) -> Cli:
    """A copy of them where commands look."""
    shutil.copytree(made, tmp_path / "results")
    return cli


def rows(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out)))


def ask(cli: Cli, *arguments: str, campaign: str = "a,b") -> str:
    code, out, err = cli("report", "--campaign", campaign, *arguments)
    assert (code, err) == (0, ""), err
    return out


def test_a_report_has_the_rows_of_all_campaigns(both: Cli) -> None:
    out = ask(both, "--details")
    assert not missing_facts(out, "campaign a,b", "over 3 seeds.")
    found = {(row["campaign"], row["method"], row["seed"]) for row in rows(ask(both, "--format", "csv"))}
    assert found == {("a", "noise", "1"), ("a", "noise", "2"), ("b", "noise", "3"), ("b", "word_overlap", "")}
    page = ask(both, "--format", "html")  # links for a page in the results folder
    for link in ("./a/mini/noise/seed-2/toy.json", "./b/mini/noise/seed-3/toy.json"):
        assert f'href="{link}"' in page
    assert "in the results folder" in page
    assert "in the campaign's folder" in ask(both, "--format", "html", campaign="a")


def test_a_baseline_may_be_in_the_other_campaign(both: Cli) -> None:
    shutil.rmtree(B / "noise")
    assert "word_overlap" in ask(both, "--baseline", "word_overlap")
    assert "'word_overlap'" in refusal(both, "report", "--campaign", "a", "--baseline", "word_overlap")


def test_every_figure_has_all_campaigns(both: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (Path("results") / name / "gradient").mkdir()
        grid = f"mu_pos,mu_neg,gd_infonce\n0.1,0.2,0.5\n0.1,0.4,{0.5 if name == 'a' else 0.6}\n"
        (Path("results") / name / "gradient" / "gradient-grid.csv").write_text(grid)
    monkeypatch.setattr("bench.render.figure_files.FORMATS", ("svg",))
    code, _, err = both("report", "--campaign", "a,b", "--figures", "drawn")
    assert code == 0
    assert sorted(err.split()[1::2]) == sorted(map(str, Path("drawn").glob("*")))
    found = {path.name for path in Path("drawn").glob("*.svg")}
    assert {"a-gradient-gd-infonce.svg", "b-gradient-gd-infonce.svg", "mini-toy-cosines.svg"} <= found
    drawn = Path("drawn/mini-toy-cosines.svg").read_text()
    assert "noise" in drawn
    assert "Word overlap" in drawn


def test_the_same_record_counts_once(both: Cli) -> None:
    alone = rows(ask(both, "--format", "csv", campaign="a"))
    shutil.copytree(A / "noise/seed-1", B / "noise/seed-1")
    shutil.rmtree(B / "noise/seed-3")
    shutil.rmtree(B / "word_overlap")
    assert rows(ask(both, "--format", "csv")) == alone
    (A / NOISE).with_suffix(".npz").unlink()  # then it is read where its predictions are
    first, *_ = rows(ask(both, "--format", "csv"))
    assert (first["seed"], first["campaign"]) == ("1", "b")
    assert "missing" not in first["note"]


def test_a_damaged_copy_is_told_and_changes_no_figure(both: Cli) -> None:
    shutil.copytree(A / "noise/seed-1", B / "noise/seed-1")
    whole = ask(both, "--columns", "avg,seeds", "--format", "markdown")
    forge(B / NOISE, lambda record: record["scores"][0].update(value=0.99), "kept")
    code, out, err = both("report", "--campaign", "a,b", "--columns", "avg,seeds", "--format", "markdown")
    assert (code, err.count("\n"), str(B / NOISE) in err) == (1, 1, True)
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert table == [line for line in whole.splitlines() if line.startswith("|")]
    assert not missing_facts(out, "noise seed 1", "of campaign a", "in b")
    forge(A / NOISE, lambda record: record["scores"][0].update(value=0.99), "kept")
    code, out, err = both("report", "--campaign", "a,b")
    assert (code, missing_facts(out, "Unreadable: noise seed", "2 of 3")) == (1, [])
    assert err.splitlines()[-1].startswith("error: 2 records")


def change_score(record: dict[str, Any]) -> None:
    for score in record["scores"]:
        score["value"] += 0.01


def fail(record: dict[str, Any]) -> None:
    record.update(status="failed", scores=[], predictions=None, reason="out of memory", traceback=[])


@pytest.mark.parametrize(
    ("edit", "facts"),
    [
        (fail, ("finished in a", "failed in b")),
        (lambda record: record.update(version=7), ("different specifications", "version 1 and 7")),
        (
            lambda record: record["provenance"].update(threads=2),
            ("different specifications", "threads 1 and 2"),
        ),
    ],
)
def test_two_results_of_one_run_are_refused(
    both: Cli, edit: Callable[[dict[str, Any]], None], facts: tuple[str, ...]
) -> None:
    shutil.copytree(A / "noise/seed-1", B / "noise/seed-1")
    forge(B / NOISE, edit)
    told = refusal(both, "report", "--campaign", "a,b", code=3)
    assert not missing_facts(told, "campaigns a and b", "noise seed 1", "toy, profile mini", *facts)
    assert "word_overlap" in ask(both, "--methods", "word_overlap")  # which it doesn't concern


def test_other_predictions_of_one_run_are_refused(both: Cli) -> None:
    shutil.copytree(A / "noise/seed-1", B / "noise/seed-1")
    forge_predictions(B / NOISE, lambda values: values[::-1])
    told = refusal(both, "report", "--campaign", "a,b", code=3)
    assert missing_facts(told, "campaigns a and b", "noise seed 1", "other scores: avg") == []


def test_scores_that_contradict_their_predictions_give_way_to_those_that_do_not(both: Cli) -> None:
    shutil.copytree(A / "noise/seed-1", B / "noise/seed-1")
    forge(B / NOISE, change_score)
    code, out, err = both("report", "--campaign", "a,b")
    assert (code, "its predictions give" in err) == (1, True)
    assert "noise seed 1 is of campaign a; in b it can't be read." in " ".join(out.split())


@pytest.mark.parametrize(
    ("campaigns", "fact"),
    [
        ("a,", "''"),
        (",", "twice"),
        ("a,a", "'a'"),
        ("a,../b", "'../b'"),
        ("a, b", "' b'"),
        ("a,c", "one of a, b"),
    ],
)
def test_names_of_campaigns(both: Cli, campaigns: str, fact: str) -> None:
    assert fact in refusal(both, "report", "--campaign", campaigns)


@pytest.mark.parametrize("command", ["report", "compare noise word_overlap", "stats", "watch", "run"])
def test_a_campaign_given_twice_is_refused(both: Cli, command: str) -> None:
    code, _, told = both(*command.split(), "--campaign", "a", "--campaign", "b", as_is=True)
    assert (code, missing_facts(told, "--campaign", "2 times")) == (2, [])


def test_other_commands_take_one_campaign_and_a_copy_is_refused(both: Cli) -> None:
    told = refusal(both, "compare", "noise", "word_overlap", "--campaign", "a,b")
    assert not missing_facts(told, "'a,b'", "bench report")
    shutil.copytree(A / "noise/seed-1", B / "noise/seed-5")
    forge(B / "noise/seed-5/toy.json", lambda record: record.update(seed=5))
    assert ask(both, campaign="b")
    told = refusal(both, "report", "--campaign", "a,b")
    assert not missing_facts(told, "noise/seed-1/toy.json", "copy")


def found(*campaigns: RunRecord) -> list[CampaignRecord]:
    stores = [ResultStore(Path("results"), name) for name in "ab"]
    return [CampaignRecord(record, store) for record, store in zip(campaigns, stores, strict=True)]


def change(record: RunRecord, **more: Any) -> RunRecord:
    training = {**record.training, "corpus": {**record.training["corpus"], **more.pop("corpus", {})}}
    return replace(record, training=training, **more)


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        ({"backbone": {"name": "other", "sha256": "d" * 64}}, ("weights", "bbbbbbbb in a", "dddddddd in b")),
        ({"corpus": {"name": "x.txt", "sha256": "e" * 64}}, ("training text", "cccccccc in a")),
        ({"evaluation": {"version": 2}}, ("the evaluation", "1 in a, 2 in b")),
        ({"evaluation": {"precision": "bf16"}}, ("precision", "fp32 in a, bf16 in b")),
        ({"world": {"seed": 3}}, ()),  # the other has none
    ],
)
def test_a_profile_that_is_another_in_each_is_refused(more: dict[str, Any], facts: tuple[str, ...]) -> None:
    one, other = (make_record(method, 1, {"STS12": 0.5}) for method in ("simcse", "tncse"))
    assert len(merge_records(found(one, other))) == 2
    records = found(one, change(other, **more))
    if not facts:
        assert len(merge_records(records)) == 2
        return
    with pytest.raises(NotComparableError) as refused:
        merge_records(records)
    assert not missing_facts(refused.value, "profile mini", "campaigns a and b:", *facts)
    changed = change(other, **more)
    for elsewhere in (replace(changed, profile="other"), replace(changed, suite="other")):
        assert len(merge_records(found(one, elsewhere))) == 2


def test_checkpoints_bring_weights_and_the_record_with_more_is_kept() -> None:
    one = make_record("simcse", 1, {"STS12": 0.5})
    other = make_record("st:x", None, {"STS12": 0.5}, name="st", corpus=None)
    own = replace(other, backbone={"name": "x", "sha256": "d" * 64})
    assert len(merge_records(found(one, own))) == 2
    more = replace(one, probes={"version": 1, "data": {}, "cost": {"gmac": 1.0}})
    (kept,) = merge_records(found(one, more))
    assert kept.home.campaign == "b"
    less = replace(one, probes={"version": 1, "data": {}, "cost": {"gmac": 2.0}})
    with pytest.raises(NotComparableError, match="probes differ: cost"):
        merge_records(found(more, less))


def manifest(seeds: tuple[int, ...], points: tuple[tuple[str, str, str], ...] = POINTS) -> Manifest:
    return Manifest("caels", "mini", ("mini",), seeds, points)


def test_a_sweep_of_both_is_one(tmp_path: Path) -> None:
    stores = [ResultStore(tmp_path, name) for name in "ab"]
    save_manifest(manifest((1, 2)), tmp_path / "a")
    assert merge_sweeps(stores, None) == [manifest((1, 2))]  # in one only
    save_manifest(manifest((2, 3)), tmp_path / "b")
    assert merge_sweeps(stores, "mini") == [manifest((1, 2, 3))]
    assert merge_sweeps(stores, "other") == []
    save_manifest(manifest((1, 2), POINTS[:1]), tmp_path / "b")
    with pytest.raises(NotComparableError, match=r"sweep caels .* a and b"):
        merge_sweeps(stores, None)
    damaged = json.dumps({**asdict(manifest((1,))), "seeds": 1})
    (tmp_path / "b" / "sweeps" / "mini-caels.json").write_text(damaged)
    with pytest.raises(DataError, match="damaged"):
        merge_sweeps(stores, None)


def test_files_of_one_content_are_one(both: Cli) -> None:
    for name in ("a", "b"):
        (Path("results") / name / "overlap.csv").write_text(OVERLAP)
    out = ask(both, "--table", "overlap")
    assert (out.count("Overlap with"), "a/overlap.csv" in out) == (1, True)
    (Path("results") / "b" / "overlap.csv").write_text(OVERLAP.replace("10", "20"))
    out = ask(both, "--table", "overlap")
    assert (out.count("Overlap with"), "b/overlap.csv" in out) == (2, True)
    (Path("results") / "b" / "overlap.csv").unlink()
    (Path("results") / "b" / "overlap.csv").mkdir()
    assert "b/overlap.csv" in refusal(both, "report", "--campaign", "a,b", "--table", "overlap")


FORMS = ("text", "markdown", "csv", "json", "latex", "html")
NOISE_FOLDER = Path("results/local/mini/noise")
ONE = NOISE_FOLDER / "seed-1" / "toy.json"
CHANGED = "this record was changed"
UNREADABLE = f"Unreadable: noise seed 1: {CHANGED}"
LACKING = "Predictions that are missing, or not those of the record: "


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a method without torch, and a deterministic one."""
    folder = tmp_path_factory.mktemp("made") / "results"
    run_toy(folder, "local", "noise,word_overlap", "1-3")
    return folder


@pytest.fixture
def results(whole: Path, cli: Cli, tmp_path: Path) -> Cli:
    """A copy of it where commands look."""
    shutil.copytree(whole, tmp_path / "results")
    return cli


def damage(path: Path) -> None:
    forge(path, lambda record: record["scores"][0].update(value=0.99), "kept")


def plain(out: str) -> str:
    """What a report says, without the escapes of its format."""
    return html.unescape(re.sub(r"\\([_\[\]#])|\{([\[\]])\}|<wbr>", r"\1\2", out))


@pytest.mark.parametrize("form", FORMS)
def test_one_record_that_cannot_be_read_is_a_row_with_its_reason(results: Cli, form: str) -> None:
    damage(ONE)
    code, out, err = results("report", "--format", form)
    assert (code, missing_facts(err, ONE, CHANGED, "delete the file"), err.count("\n")) == (1, [], 1)
    text = plain(out)
    assert CHANGED in text
    assert "86.04" in text or "0.86" in text  # the others are there
    assert "99.00" not in text
    assert "0.99" not in text
    if form == "csv":
        (row,) = (row for row in csv.DictReader(io.StringIO(out)) if row["status"] == "unreadable")
        place = {"profile": "mini", "method": "noise", "seed": "1", "suite": "toy"}
        assert row.items() >= {**place, "value": ""}.items()
        assert CHANGED in row["reason"]
    elif form == "json":
        (row,) = (row for row in json.loads(out)[0]["rows"] if row["method"] == "noise")
        assert (row["failed"], missing_facts(row["unreadable"], "noise seed 1", CHANGED)) == (1, [])
    else:
        assert UNREADABLE in text
        assert "2 of 3" in text  # the seeds that the mean is of


def test_every_table_says_it(results: Cli) -> None:
    damage(ONE)
    (NOISE_FOLDER / "seed-2" / "toy.npz").unlink()
    for table, form in product(("leaderboard", "efficiency", "significance"), FORMS):
        code, out, _ = results("report", "--format", form, "--table", table)
        missing = missing_facts(plain(out), UNREADABLE, f"{LACKING}noise seed 2.")
        assert (code, missing) == (1, []), (table, form)
    out = results("report", "--format", "html")[1]
    header = plain(out).partition("</header>")[0]
    warnings = re.findall(r'<p class="caveat">(.*?)</p>', header)
    assert any(not missing_facts(warning, "toy, profile mini:", UNREADABLE) for warning in warnings)
    assert f"<li>{LACKING}noise seed 2.</li>" in plain(out)
    assert "3 records, by bench" in plain(out)


def test_a_method_of_which_nothing_can_be_read_is_a_row(results: Cli) -> None:
    path = Path("results/local/mini/word_overlap/no-seed/toy.json")
    path.write_bytes(b"\xff{")
    out = results("report")[1]
    (row,) = (line.split() for line in out.splitlines() if line.startswith(" word_overlap"))
    assert row == ["word_overlap", "0", "of", "1", "-", "-", "-"]
    assert not missing_facts(out, "Unreadable: word_overlap:", "can't be read:")


def test_a_campaign_of_which_nothing_can_be_read_is_a_report(results: Cli) -> None:
    for path in Path("results").glob("local/*/*/*/toy.json"):
        damage(path)
    code, out, err = results("report")
    assert (code, out.count("Unreadable: "), out.count(CHANGED), err.count(CHANGED)) == (1, 1, 4, 4)
    assert "No finished run" in out
    assert err.splitlines()[-1].startswith("error: 4 records")
    code, out, err = results("report", "--table", "significance")
    assert (code, out, err.count(CHANGED)) == (2, "", 4)  # nothing to show, and what may be why
    assert not missing_facts(err.splitlines()[-1], "--table significance", "campaign local", "no two methods")


def test_what_was_not_asked_for_does_not_count(results: Cli) -> None:
    stray = Path("results/local/other/noise/seed-1")
    shutil.copytree(ONE.parent, stray)
    assert results("report", "--profile", "mini")[0] == 0
    assert results("report", "--suite", "toy")[0] == 1
    code, out, _ = results("report", "--profile", "other")
    assert (code, missing_facts(out, "profile other", "Unreadable: noise seed", "another's place")) == (1, [])


def test_a_copied_record_is_still_refused(results: Cli) -> None:
    copy = NOISE_FOLDER / "seed-4"
    shutil.copytree(ONE.parent, copy)
    forge(copy / "toy.json", lambda record: record.update(seed=4))
    damage(NOISE_FOLDER / "seed-2" / "toy.json")
    for form in FORMS:
        assert "copy" in refusal(results, "report", "--format", form)


BREAK: dict[str, Callable[[Path], object]] = {
    "no mapping": lambda path: path.write_text("[]"),
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: path.unlink() or path.mkdir(),  # type: ignore[func-returns-value]
    "a link to itself": lambda path: path.unlink() or path.symlink_to(path.name),  # type: ignore[func-returns-value]
    "deep": lambda path: path.write_text("[" * 100_000),
    "no seal": lambda path: forge(path, lambda record: record.update(seed=1), "stripped"),
}


@pytest.mark.parametrize("how", BREAK)
def test_whatever_is_wrong_with_it(results: Cli, tmp_path: Path, how: str) -> None:
    BREAK[how](ONE)
    folder = (tmp_path / "results").rename(tmp_path / "a folder")
    for form in FORMS:
        code, out, err = results("report", "--format", form, "--results", str(folder))
        assert (code, err.count("\n")) == (1, 1), (form, err)
        assert str(folder / ONE.relative_to("results")) in err
        assert "Traceback" not in out
        assert "a folder" not in plain(out)
        assert tmp_path.name not in plain(out)


HOSTILE = ("=1+1", "\x1b[2J", "\N{RIGHT-TO-LEFT OVERRIDE}x", "<b>", "a" * 200, os.fsdecode(b"\xff"))


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_place_is_text_that_nobody_obeys(results: Cli, name: str) -> None:
    for seed in ("seed-1", "seed-" + "9" * 40, "x"):
        folder = Path("results/local") / name / name / seed
        folder.mkdir(parents=True)
        (folder / f"{name}.json").write_text("{}")
    for form in FORMS:
        code, out, err = results("report", "--format", form)
        assert (code, err.count("\n")) == (1, 4)
        assert (out + err).replace("\n", "").isprintable(), form
        assert "<b>" not in out or form in ("csv", "json", "text")
        if form == "csv":
            rows = [row for row in csv.DictReader(io.StringIO(out)) if row["status"] == "unreadable"]
            assert [row["seed"] for row in rows] == ["1", "", ""]
            assert not any(row["method"].startswith("=") for row in rows)


@pytest.mark.parametrize("form", FORMS)
def test_missing_and_foreign_predictions_are_a_footnote_that_names_the_rows(results: Cli, form: str) -> None:
    assert LACKING not in plain(results("report", "--format", form)[1])
    (NOISE_FOLDER / "seed-1" / "toy.npz").unlink()
    shutil.copy(NOISE_FOLDER / "seed-3" / "toy.npz", NOISE_FOLDER / "seed-2" / "toy.npz")
    code, out, err = results("report", "--format", form)
    assert (code, err) == (0, "")
    assert plain(out).partition(LACKING)[2].startswith("noise seed 1, noise seed 2.")
    assert "noise seed 3" not in plain(out).partition(LACKING)[2].split("\n")[0]
    if form == "csv":
        noted = {(r["method"], r["seed"]) for r in csv.DictReader(io.StringIO(out)) if LACKING in r["note"]}
        assert noted == {("noise", "1"), ("noise", "2")}
