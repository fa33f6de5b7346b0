"""Upkeep: campaigns are renamed, copied and removed, rows removed, and ``bench verify`` stays content."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from bench.cli.main import main
from bench.execution import campaign_upkeep
from bench.records.filesystem import temporary_path
from tests.support.cli import Cli, records, refusal

SHORT = "noise[scale=2.0]"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of a campaign with a sealed plan, three rows and a report."""
    results = tmp_path_factory.mktemp("planned")
    wanted = ("--methods", "noise,noise[scale=2],word_overlap", "--seeds", "1-2", "--suite", "mini-dev")
    with pytest.raises(SystemExit) as stopped:
        main(["run", *wanted, "--plan", "--baseline", "noise", "--results", str(results)])
    assert not stopped.value.code
    (results / "local" / "report.md").write_text("campaign local", encoding="utf-8")
    return results


@pytest.fixture
def results(planned: Path, tmp_path: Path) -> Path:
    """A copy of it, where ``cli`` works."""
    shutil.copytree(planned, tmp_path / "results")
    return tmp_path / "results"


def contents(campaign: Path) -> dict[str, bytes]:
    """Every visible file of a campaign."""
    found = {}
    for path in campaign.rglob("*"):
        name = path.relative_to(campaign).as_posix()
        if path.is_file() and not name.startswith("."):
            found[name] = path.read_bytes()
    return found


def test_a_renamed_and_a_copied_campaign_have_the_same_bytes_and_verify(cli: Cli, results: Path) -> None:
    before = contents(results / "local")
    assert cli("campaign", "copy", "local", "second", "--dry-run")[0] == 0
    assert cli("campaign", "rename", "local", "second", "--dry-run")[0] == 0
    assert [path.name for path in results.iterdir()] == ["local"]
    code, out, err = cli("campaign", "copy", "local", "second")
    assert (code, f"{len(before)} files" in out, "report.md" in err) == (0, True, True)
    assert cli("campaign", "rename", "local", "third")[0] == 0
    assert sorted(path.name for path in results.iterdir()) == ["second", "third"]
    assert contents(results / "second") == contents(results / "third") == before
    assert not (results / "second" / ".locks").exists()
    code, out, _ = cli("verify", "results")
    assert (code, out.count("plan of second, third: Planned")) == (0, 1), out
    assert cli("report", "--campaign", "second,third")[0] == 0
    assert (
        cli("run", "--methods", "noise", "--seeds", "1-2", "--suite", "mini-dev", "--campaign", "third")[
            1
        ].count("seed 1")
        == 0
    )  # it is done there


def test_a_plain_move_is_understood(cli: Cli, results: Path) -> None:
    (results / "local").rename(results / "moved")
    assert cli("verify", "results")[0] == 0
    shutil.rmtree(results / "moved" / "mini" / SHORT)
    code, out, _ = cli("verify", "results")
    assert (code, "Planned, but missing: noise[scale=2.0] seeds 1,2" in out) == (0, True)
    (results / "moved" / "plan.json").unlink()  # records name it, so this is a finding
    assert cli("verify", "results")[0] == 1


def test_removed_rows_of_a_plan_are_said_and_listed(cli: Cli, results: Path) -> None:
    before = contents(results / "local")
    asked = ("campaign", "remove", "local", "--methods", "noise[scale=2],noise")
    code, out, err = cli(*asked, "--dry-run")
    assert (code, out.count("2 records to remove"), "4 of these runs" in err) == (0, 2, True)
    assert "noise is the plan's baseline" in err
    assert contents(results / "local") == before
    assert cli(*asked)[0] == 0
    assert {record.method for record in records(results.parent).values()} == {"word_overlap"}
    kept = {name: content for name, content in before.items() if "/noise" not in name}
    assert contents(results / "local") == kept
    code, out, _ = cli("verify", "results")
    assert (code, "Planned, but missing: noise" in out) == (0, True)
    assert "Planned, but missing: noise" in cli("report")[1]
    assert "all rows" in refusal(cli, "campaign", "remove", "local", "--methods", "word_overlap")
    assert [path.name for path in results.iterdir()] == ["local"]  # nothing is left beside it


def test_a_row_is_found_by_its_only_method_and_a_profile_narrows(cli: Cli, results: Path) -> None:
    error = refusal(cli, "campaign", "remove", "local", "--methods", "nois")
    assert "unknown method 'nois' (did you mean 'noise'?)" in error
    assert "one of mini" in refusal(
        cli, "campaign", "remove", "local", "--methods", "noise", "--profile", "x"
    )
    assert "--methods as well" in refusal(cli, "campaign", "remove", "local", "--profile", "mini")
    assert cli("campaign", "remove", "local", "--methods", "Word Overlap", "--profile", "mini")[0] == 0
    assert {record.method for record in records(results.parent).values()} == {"noise", SHORT}


def test_a_damaged_row_can_be_removed(cli: Cli, results: Path) -> None:
    (results / "local" / "mini" / SHORT / "seed-1" / "mini-dev.json").write_text("{", encoding="utf-8")
    assert cli("verify", "results")[0] == 1
    assert cli("campaign", "remove", "local", "--methods", SHORT)[0] == 0
    assert cli("verify", "results")[0] == 0


def test_a_removed_campaign_is_gone(cli: Cli, results: Path) -> None:
    assert "files to remove" in cli("campaign", "remove", "local", "--dry-run")[1]
    assert (results / "local").is_dir()
    assert cli("campaign", "remove", "local")[0] == 0
    assert list(results.iterdir()) == []


def test_names_out_of_the_folder_taken_and_unportable_ones_are_refused(cli: Cli, results: Path) -> None:
    (results / "taken").mkdir()
    for new in ("../x", "/x", "a/b", "..", ".x", "taken", "con", "local"):
        for action in ("copy", "rename"):
            assert "NEW: " in refusal(cli, "campaign", action, "local", new)
    for words in (("copy", "no", "x"), ("rename", "no", "x"), ("remove", "no"), ("remove", "taken")):
        assert "no campaign" in refusal(cli, "campaign", *words)
    assert "type local" in refusal(cli, "campaign", "remove", "results/local")
    (results / "link").symlink_to(results / "local")
    assert "a link" in refusal(cli, "campaign", "remove", "link")
    assert (results / "local" / "plan.json").is_file()


def test_nothing_changes_while_a_run_holds_a_cell(cli: Cli, results: Path) -> None:
    lock = FileLock(results / "local" / ".locks" / "0123456789abcdef0123.lock")
    before = contents(results / "local")
    with lock:
        for action in (
            ("rename", "local", "x"),
            ("copy", "local", "x"),
            ("remove", "local"),
            ("remove", "local", "--methods", "noise"),
        ):
            error = refusal(cli, "campaign", *action, code=1)
            assert "a run computes cells of campaign 'local'" in error
    assert contents(results / "local") == before
    assert cli("campaign", "rename", "local", "x")[0] == 0


def test_an_interrupted_copy_leaves_nothing(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(source: Path, target: Path, **_: object) -> None:
        (target / "mini").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copytree", interrupt)
    with pytest.raises(KeyboardInterrupt):
        campaign_upkeep.copy_campaign(results, "local", "second")
    assert [path.name for path in results.iterdir()] == ["local"]


def test_a_copy_refuses_links(cli: Cli, results: Path) -> None:
    (results / "local" / "extra").symlink_to(results)
    assert "link" in refusal(cli, "campaign", "copy", "local", "second")
    assert not (results / "second").exists()


def test_what_a_killed_removal_left_goes_with_the_next_command(cli: Cli, results: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    ours = temporary_path(results / "gone")
    dead = ours.with_name(ours.name.replace(f".{os.getpid()}.", f".{done.pid}."))
    for folder in (dead, ours):
        (folder / "mini").mkdir(parents=True)
        (folder / "mini" / "file").write_text("x")
    assert cli("campaign", "copy", "local", "other")[0] == 0
    assert (dead.exists(), ours.exists()) == (False, True)
