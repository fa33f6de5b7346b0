"""Options that belong to one mode of a command are refused in the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli import item_differences
from bench.cli.main import cli as group
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts


@pytest.mark.parametrize(
    ("line", "option", "mode"),
    [
        ("compare a b --show-items --draws 100", "--draws", "not for --show-items"),
        ("compare a b --show-items --format json", "--format", "not for --show-items"),
        ("compare a b --show-items --against c", "--against", "not for --show-items"),
        ("compare a b --task STS12", "--task", "for --show-items"),
        ("compare a b -n 3", "-n", "for --show-items"),
        ("bundle --extract x.zip --into y --by me", "--by", "not for --extract"),
        ("bundle local --extract x.zip --into y", "CAMPAIGN", "not for --extract"),
        ("bundle local --out x.zip --into y", "--into", "for --extract"),
        ("verify x.json --rerun --seal", "--seal", "not for RECORD.json --rerun"),
        ("verify x.json --rerun --junit j.xml", "--junit", "not for RECORD.json --rerun"),
        ("verify results --model m", "--model", "for RECORD.json --rerun"),
        ("verify results --rerun 1 --pairs p", "--pairs", "for RECORD.json --rerun"),
        ("check --history v --strict", "--strict", "not for --history"),
        ("check --history v --details", "--details", "not for --history"),
        ("check --format csv", "--format", "csv is for --history"),
        ("export simcse --seed 1 --out o --block 8", "--block", "for --vectors"),
    ],
)
def test_an_option_of_another_mode_is_refused(
    cli: Cli, tmp_path: Path, line: str, option: str, mode: str
) -> None:
    words = line.split()
    said = refusal(cli, *words)
    assert missing_facts(said, f"bench {words[0]}", option, mode) == []
    assert list(tmp_path.iterdir()) == []


def test_the_environment_refuses_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")  # in every build
    assert "no folder" in refusal(cli, "check", "--history", "nowhere")


def test_a_folder_or_a_misplaced_file_of_rerun_has_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    facts = ("bench verify results --rerun", "many records", "--rerun N", "RECORD.json --rerun")
    assert missing_facts(refusal(cli, "verify", "results", "--rerun"), *facts) == []
    said = refusal(cli, "verify", "--rerun", "some.json")
    assert missing_facts(said, "--rerun", "'some.json'", "bench verify RECORD.json --rerun") == []
    assert "-2" in refusal(cli, "verify", "results", "--rerun", "-2")


def test_both_sides_are_needed(cli: Cli) -> None:
    assert missing_facts(refusal(cli, "compare", "a", "--show-items"), "B is missing", "A B") == []


def test_the_lists_of_a_mode_name_parameters() -> None:
    known = {parameter.name for parameter in group.commands["compare"].params}
    assert {*item_differences.OWN_OPTIONS, *item_differences.SHARED_OPTIONS} <= known
