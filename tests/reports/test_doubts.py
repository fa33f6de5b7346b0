"""Records that can't be read, and predictions that are missing: every report says so, of the others too."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from bench.cli.main import main
from tests.support.cli import Cli, refusal
from tests.support.forge import forge
from tests.support.messages import missing_facts

FORMS = ("text", "markdown", "csv", "json", "latex", "html")
NOISE = Path("results/local/mini/noise")
ONE = NOISE / "seed-1" / "toy.json"
CHANGED = "this record was changed"
UNREADABLE = f"Unreadable: noise seed 1: {CHANGED}"
LACKING = "Predictions that are missing, or not those of the record: "


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a method without torch, and a deterministic one."""
    folder = tmp_path_factory.mktemp("made")
    run = ("run", "--methods", "noise,word_overlap", "--seeds", "1-3", "--suite", "toy", "--workers", "1")
    with pytest.raises(SystemExit) as stopped:
        main([*run, "--results", str(folder / "results")])
    assert not stopped.value.code
    return folder / "results"


@pytest.fixture
def results(made: Path, cli: Cli, tmp_path: Path) -> Cli:
    """A copy of it where commands look."""
    shutil.copytree(made, tmp_path / "results")
    return cli


def change(path: Path) -> None:
    forge(path, lambda record: record["scores"][0].update(value=0.99), "kept")


def plain(out: str) -> str:
    """What a report says, without the escapes of its format."""
    return html.unescape(re.sub(r"\\([_\[\]#])|\{([\[\]])\}|<wbr>", r"\1\2", out))


@pytest.mark.parametrize("form", FORMS)
def test_one_record_that_cannot_be_read_is_a_row_with_its_reason(results: Cli, form: str) -> None:
    change(ONE)
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
    change(ONE)
    (NOISE / "seed-2" / "toy.npz").unlink()
    for table, form in product(("leaderboard", "efficiency", "significance"), FORMS):
        code, out, _ = results("report", "--format", form, "--table", table)
        missing = missing_facts(plain(out), UNREADABLE, f"{LACKING}noise seed 2.")
        assert (code, missing) == (1, []), (table, form)
    out = results("report", "--format", "html")[1]
    header = plain(out).partition("</header>")[0]
    warnings = re.findall(r'<p class="warning">(.*?)</p>', header)
    assert any(not missing_facts(warning, "toy, profile mini:", UNREADABLE) for warning in warnings)
    assert f"{LACKING}noise seed 2." in warnings
    assert "of 3 records" in header


def test_a_method_of_which_nothing_can_be_read_is_a_row(results: Cli) -> None:
    path = Path("results/local/mini/word_overlap/no-seed/toy.json")
    path.write_bytes(b"\xff{")
    out = results("report")[1]
    (row,) = (line.split() for line in out.splitlines() if line.startswith(" word_overlap"))
    assert row == ["word_overlap", "0", "of", "1", "-", "-", "-"]
    assert not missing_facts(out, "Unreadable: word_overlap:", "can't be read:")


def test_a_campaign_of_which_nothing_can_be_read_is_a_report(results: Cli) -> None:
    for path in Path("results").glob("local/*/*/*/toy.json"):
        change(path)
    code, out, err = results("report")
    assert (code, out.count("Unreadable: "), err.count(CHANGED)) == (1, 4, 4)
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
    copy = NOISE / "seed-4"
    shutil.copytree(ONE.parent, copy)
    forge(copy / "toy.json", lambda record: record.update(seed=4))
    change(NOISE / "seed-2" / "toy.json")
    for form in FORMS:
        assert "copy" in refusal(results, "report", "--format", form)


BREAK: dict[str, Callable[[Path], object]] = {
    "no mapping": lambda path: path.write_text("[]"),
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
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
    (NOISE / "seed-1" / "toy.npz").unlink()
    shutil.copy(NOISE / "seed-3" / "toy.npz", NOISE / "seed-2" / "toy.npz")
    code, out, err = results("report", "--format", form)
    assert (code, err) == (0, "")
    assert plain(out).partition(LACKING)[2].startswith("noise seed 1, noise seed 2.")
    assert "noise seed 3" not in plain(out).partition(LACKING)[2].split("\n")[0]
    if form == "csv":
        noted = {(r["method"], r["seed"]) for r in csv.DictReader(io.StringIO(out)) if LACKING in r["note"]}
        assert noted == {("noise", "1"), ("noise", "2")}
