"""``bench run --config FILE``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Cli, refusal
from tests.support.conformance import RIGHT
from tests.support.messages import missing_facts, numbers_in

RUN = 'methods = ["noise"]\nseeds = [1, 2]\nsuite = "toy"\nset = ["noise.scale=2"]\ncampaign = "c"\n'


def test_a_file_gives_options_and_the_command_line_wins(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN + "dry-run = true\nthreads = 1\n")
    code, out, err = cli("run", "--config", "run.toml")
    assert (code, err) == (0, "")
    assert [line.split()[:3] for line in out.splitlines()[:2]] == [
        ["noise[scale=2.0]", "seed", "1"], ["noise[scale=2.0]", "seed", "2"]
    ]  # fmt: skip
    out = cli("run", "--seeds", "7", "--config", "run.toml", "--set", "noise.scale=3")[1]
    assert [line.split()[:3] for line in out.splitlines()[:1]] == [["noise[scale=3.0]", "seed", "7"]]
    assert numbers_in(out.splitlines()[1])[:2] == [1, 1]
    assert not (tmp_path / "results").exists()


def test_repeated_options_join_the_file_s_list(cli: Cli, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(RIGHT.replace('name="mine"', f'name="{name}"'))
    (tmp_path / "run.toml").write_text(
        'methods = ["noise", "simcse", "a"]\nsuite = "toy"\ndry-run = true\nplugin = ["a.py"]\n'
        'set = ["noise.scale=2", "simcse.steps=60", "simcse.eval_every=30"]\n'
    )
    file = ("run", "--config", "run.toml", "--seeds", "1")

    def rows(*words: str) -> list[str]:
        code, out, err = cli(*file, *words)
        assert code == 0, err
        return [line.split()[0] for line in out.splitlines() if " toy " in line]

    simcse = "simcse[eval_every=30,steps=60]"
    assert rows() == ["noise[scale=2.0]", simcse, "a"]
    assert rows("--set", "simcse.lr=7e-5")[1] == "simcse[eval_every=30,lr=7e-05,steps=60]"
    assert rows("--set", "noise . scale = 3") == ["noise[scale=3.0]", simcse, "a"]  # that entry alone
    assert rows("--methods", "a,b,noise,simcse", "--plugin", "b.py", "--plugin", "a.py")[:2] == ["a", "b"]


def test_a_byte_order_mark_is_no_statement(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN + "dry-run = true\n", encoding="utf-8-sig")
    code, out, err = cli("run", "--config", "run.toml")
    assert (code, out.split()[0], err) == (0, "noise[scale=2.0]", "")


def test_the_sweep_takes_one_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text('seeds = "3"\ndry-run = true\n')
    code, out, _ = cli("sweep", "caels", "--config", "sweep.toml")
    assert (code, "seeds 3:" in out) == (0, True)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ('method = "x"', ("'method'", "'methods'?", "accept-data")),
        ('config = "run.toml"', ("'config'",)),
        ("workers = true", ("True", "'workers'", "a whole number")),
        ('workers = "2"', ("'2'", "'workers'", "a whole number")),
        ("workers = 1.5", ("1.5", "'workers'", "a whole number")),
        ('force = "yes"', ("'yes'", "'force'", "true or false")),
        ('set = "a.b=1"', ("'a.b=1'", "'set'", "array of texts")),
        ("set = [1]", ("[1]", "'set'", "array of texts")),
        ("[set]\na = 1", ("a table", "'set'", "array of texts")),
        ("seeds = true", ("True", "'seeds'", "a text", "array", "numbers")),
        ("methods = []", ("[]", "'methods'")),
        ("profile = 3", ("3", "'profile'", "text in quotes")),
        ('deadline = "1"', ("'1'", "'deadline'", "a number")),
        ('"\\u001b[31m" = 1', ("'\\x1b[31m'",)),
        ("methods = [", ("--config run.toml", "not TOML")),
        ('methods = "noise"\ndeadline = 0', ("'--deadline'", "0.0")),
        ('seeds = "1"', ("'--methods'",)),
    ],
)
def test_a_wrong_file_is_one_line(cli: Cli, tmp_path: Path, text: str, facts: tuple[str, ...]) -> None:
    (tmp_path / "run.toml").write_text(text)
    assert missing_facts(refusal(cli, "run", "--config", "run.toml"), *facts) == []


def test_a_file_that_cant_be_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xff")
    for file, *facts in (("run.toml", "TOML", "utf-8"), ("no.toml", "No such file"), (".", "directory")):
        assert missing_facts(refusal(cli, "run", "--config", file), "--config", *facts) == []
