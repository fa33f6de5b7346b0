"""``bench run --config FILE``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Cli, refusal
from tests.support.conformance import RIGHT

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
    assert "1 of 1 cells to run" in out
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
    ("text", "said"),
    [
        ('method = "x"', "run has no option 'method' (did you mean 'methods'?); expected one of accept-data"),
        ('config = "run.toml"', "run has no option 'config'"),
        ("workers = true", "True is not a value for 'workers'; expected a whole number"),
        ('workers = "2"', "'2' is not a value for 'workers'; expected a whole number"),
        ("workers = 1.5", "1.5 is not a value for 'workers'; expected a whole number"),
        ('force = "yes"', "'yes' is not a value for 'force'; expected true or false"),
        ('set = "a.b=1"', "'a.b=1' is not a value for 'set'; expected an array of texts"),
        ("set = [1]", "[1] is not a value for 'set'; expected an array of texts"),
        ("[set]\na = 1", "a table is not a value for 'set'; expected an array of texts"),
        ("seeds = true", "True is not a value for 'seeds'; expected a text, or an array of texts or numbers"),
        ("methods = []", "[] is not a value for 'methods'"),
        ("profile = 3", "3 is not a value for 'profile'; expected a text in quotes"),
        ('deadline = "1"', "'1' is not a value for 'deadline'; expected a number"),
        ('"\\u001b[31m" = 1', "run has no option '\\x1b[31m'"),
        ("methods = [", "it is not TOML: "),
        ('methods = "noise"\ndeadline = 0', "Invalid value for '--deadline': 0.0 is not in the range"),
        ('seeds = "1"', "Missing option '--methods'"),
    ],
)
def test_a_wrong_file_is_one_line(cli: Cli, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    assert said in refusal(cli, "run", "--config", "run.toml")


def test_a_file_that_cant_be_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xff")
    assert "it is not TOML: 'utf-8' codec" in refusal(cli, "run", "--config", "run.toml")
    assert "--config no.toml: it can't be read: No such file" in refusal(cli, "run", "--config", "no.toml")
    assert "is a directory" in refusal(cli, "run", "--config", ".")
