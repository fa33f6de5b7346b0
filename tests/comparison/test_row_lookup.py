"""A row is found by its id, by its method's name where that is clear, and by what tables print."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.comparison.row_lookup import find_row, search_rows
from bench.errors import InputError
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from tests.support.campaigns import make_record
from tests.support.cli import Cli, refusal
from tests.support.standings import seeds

LONG = "simcse[eval_every=10,steps=20]"
ROWS = (LONG, "tncse", "tncse[nce=False]", "jtcse[caels=1]", "jtcse[caels=2]", "mine", "tncse_uc[lr=1e-05]")


def recorded() -> list[RunRecord]:
    """A record of each row; the one with an alias is of DiffCSE."""
    methods = {row: "diffcse" if row == "mine" else row.partition("[")[0] for row in ROWS}
    return [make_record(row, 1, {"STSB": 0.5}, name=name) for row, name in methods.items()]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        *((row, row) for row in ROWS),
        ("simcse", LONG),
        ("SimCSE", LONG),
        ("simcse[steps=20]", LONG),
        ("SimCSE, steps=20", LONG),
        ("simcse[steps=20,eval_every=10]", LONG),
        ("TNCSE", "tncse"),
        ("tncse[nce=false]", "tncse[nce=False]"),
        ("TNCSE + UC", "tncse_uc[lr=1e-05]"),
        ("tncse_uc[lr=0.00001]", "tncse_uc[lr=1e-05]"),
        ("jtcse[caels=2]", "jtcse[caels=2]"),
        ("diffcse", "mine"),
        ("Mine", "mine"),
    ],
)
def test_what_a_text_names(text: str, row: str) -> None:
    assert find_row(text, ROWS, recorded(), where="test") == row


@pytest.mark.parametrize(
    "text", ["hcl", "simcse[steps=30]", "simcse[lr=1]", "", "jtcse[caels=3]", "simcs", "["]
)
def test_other_texts_name_nothing(text: str) -> None:
    assert search_rows(text, ROWS, recorded()) == []
    with pytest.raises(InputError, match="unknown method"):
        find_row(text, ROWS, recorded(), where="test")


def test_several_candidates_are_one_line_that_a_shell_takes() -> None:
    with pytest.raises(InputError) as refused:
        find_row("JTCSE", ROWS, recorded(), where="--methods")
    line = str(refused.value)
    assert line.count("\n") == 0
    listed = line.partition("one of ")[2].split(", ")
    assert [shlex.split(entry) for entry in listed] == [["jtcse[caels=1]"], ["jtcse[caels=2]"]]


@pytest.fixture
def stored(tmp_path: Path) -> ResultStore:
    """Two profiles: SimCSE has one row in each; JTCSE two rows in one."""
    store = ResultStore(tmp_path / "results", "local")
    values = (0.7, 0.72)  # of all, as they have one key
    runs = [record for row in (LONG, "jtcse[caels=1]", "jtcse[caels=2]") for record in seeds(row, *values)]
    for row in ("simcse[lr=1.0]", "jtcse[caels=2]"):
        runs += [replace(record, profile="other") for record in seeds(row, *values)]
    for record in runs:
        store.write(record.place, record, {"STSB": np.full(10, record.seed, dtype=np.float32)})
    return store


def test_every_command_finds_the_only_row_in_its_profile(cli: Cli, stored: ResultStore) -> None:
    quick = ("--seeds-only", "--format", "json")
    error = refusal(cli, "compare", "simcse", "jtcse[caels=2]", *quick)
    assert error.count("simcse[") == 2
    code, out, err = cli("compare", "SimCSE", "jtcse", "--profile", "other", *quick)
    assert (code, "simcse[lr=1.0]" in out, "jtcse[caels=2]" in out) == (0, True, True), err
    assert "simcse[lr=1.0]#1 against jtcse" in refusal(
        cli, "compare", "SimCSE#1", "jtcse", "--profile", "other", *quick
    )
    for arguments in (
        ("report", "--methods", "simcse,jtcse", "--baseline", "JTCSE"),
        ("report", "--cite", "simcse=a,jtcse=b"),
    ):
        assert cli(*arguments, "--profile", "other")[0] == 0
        assert refusal(cli, *arguments, "--profile", "mini").count("'jtcse[caels=") == 2
    Path("names.toml").write_text('simcse = "Ours"\n', encoding="utf-8")
    assert (
        "Ours"
        in cli("report", "--names", "names.toml", "--methods", "simcse,jtcse[caels=1]", "--profile", "mini")[
            1
        ]
    )
