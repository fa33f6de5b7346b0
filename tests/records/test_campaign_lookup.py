"""``--results`` and ``--campaign`` at another level are answered with the right options."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.records.campaign_lookup import is_campaign_folder
from tests.support.cli import Cli, refusal

RUN = ("run", "--methods", "noise,word_overlap", "--seeds", "1", "--suite", "mini-dev")
COMMANDS = (
    ("report",),
    ("compare", "noise", "word_overlap"),
    ("stats",),
    ("export", "noise", "--seed", "1", "--out", "x"),
    (*RUN, "--dry-run"),
    RUN,
)
LISTS = (("list", "campaigns"), ("site", "--out", "x"), ("watch", "--once"))


@pytest.fixture
def made(cli: Cli, tmp_path: Path) -> Path:
    """A results folder of the campaign ``local``, in the folder of ``cli``."""
    assert cli(*RUN)[0] == 0
    return tmp_path / "results"


def test_a_campaign_in_place_of_its_folder_is_recognised(cli: Cli, made: Path) -> None:
    before = sorted(made.rglob("*"))
    for command in (*COMMANDS, *LISTS):
        assert refusal(cli, *command, "--results", "results/local").endswith("type --campaign local\n")
        error = refusal(cli, *command, "--results", str(made / "local"))
        assert f"type --results {made} --campaign local" in error
    error = refusal(cli, "report", "--results", "results/local", "--campaign", "mini")
    assert "type --campaign local" in error  # the profile's folder is no campaign
    assert sorted(made.rglob("*")) == before


def test_the_folder_above_is_recognised(cli: Cli, made: Path) -> None:
    for command in (("report",), ("compare", "noise", "word_overlap"), ("list", "campaigns"), LISTS[1]):
        assert refusal(cli, *command, "--results", ".").endswith("type --results results\n")
    made.rename("elsewhere")
    assert "type --results elsewhere" in refusal(cli, "report", "--results", ".")
    assert "no campaign 'other'" in refusal(cli, "report", "--results", ".", "--campaign", "other")


def test_the_path_of_a_campaign_is_recognised(cli: Cli, made: Path) -> None:
    for command in (*COMMANDS, ("watch", "--once")):
        assert refusal(cli, *command, "--campaign", "results/local").endswith("type --campaign local\n")
    shutil.copytree("results", "copies")
    error = refusal(cli, "report", "--campaign", "copies/local/")
    assert "type --results copies --campaign local" in error
    assert "is not a campaign name" in refusal(cli, "report", "--campaign", "copies/no")


def test_a_plan_alone_is_a_campaign_and_other_folders_are_none(tmp_path: Path) -> None:
    assert not is_campaign_folder(tmp_path / "missing")
    (tmp_path / "results" / "local" / "mini" / "noise").mkdir(parents=True)
    (tmp_path / "results" / "local" / "mini" / "noise" / "x.json").touch()
    assert not is_campaign_folder(tmp_path / "results")
    assert not is_campaign_folder(tmp_path / "results" / "local")
    (tmp_path / "results" / "local" / "plan.json").touch()
    assert is_campaign_folder(tmp_path / "results" / "local")
