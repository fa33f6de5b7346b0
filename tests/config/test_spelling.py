from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.config.method_ids import match_recorded_id
from bench.records.store import ResultStore
from tests.support.campaigns import make_record
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts

NAMES = (
    *("untrained", "untrained[pooling=avg]", "tncse", "tncse[lr=1e-05,nce=False]", "tncse[nce=False]"),
    *("mine", "pair[a=x,b=x]", "distill:static[dim=2]", "a[of=b\\,c]", "a[x=1]", "a[x=1.0]"),
)


def test_other_spellings_of_a_row_and_of_none() -> None:
    for text, name in (
        ("untrained:avg", "untrained[pooling=avg]"),
        ("untrained[ pooling=avg ]", "untrained[pooling=avg]"),
        ("tncse[nce=false]", "tncse[nce=False]"),
        ("tncse[nce=FALSE, lr=0.00001]", "tncse[lr=1e-05,nce=False]"),
        *((name, name) for name in NAMES),  # as it is written, though another reads alike
    ):
        assert match_recorded_id(text, NAMES) == name
    texts = "untrained:cls untrained[pooling=AVG] tncse[nce=True] tncse[lr=1e-5] mine=tncse pair[b=x] pair:x"
    for text in (*texts.split(), "a[x=1e0]", "a,mine", "a[", ""):  # two rows are a[x=1e0]
        assert match_recorded_id(text, NAMES) == text


@given(st.text(st.sampled_from("a[]=,:x1e-.\\ \x00é"), max_size=12))
def test_any_text_means_a_row_or_itself(text: str) -> None:
    assert match_recorded_id(text, NAMES) in (text, *NAMES)


HAD: dict[str, object] = {"steps": 4, "epochs": 1, "lr": 1e-4, "tau": 0.05}
ROWS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("untrained", "untrained", {"pooling": "cls"}),
    ("untrained[pooling=avg]", "untrained", {"pooling": "avg"}),
    ("simcse", "simcse", HAD),
    ("simcse[tau=0.1]", "simcse", HAD | {"tau": 0.1}),
    ("simcse[steps=0]", "simcse", HAD | {"steps": 0}),
    ("fast", "simcse", HAD | {"lr": 1e-3}),
    ("mine", "st", {"pooling": "own"}),
    ("theirs", "hf", {"pooling": "avg"}),
    ("distill:simcse[lr=1e-3]", "distill", {"of": "simcse", "lr": 1e-3}),
    ("ensemble:simcse+tncse", "ensemble", {"of": "simcse+tncse"}),
    ("two", "two", {"x": 1}),
    ("two", "two", {"x": 2}),
    ("simcse[", "simcse", HAD | {"lr": 7.0}),
    ("gone", "gone", {"x": 1}),
)
OTHERS = """untrained:avg_first_last simcse[lr=1e-3] simcse[lr=7] simcse[seed=1] fast=tncse gone:1
    fast=simcse[lr=1e-4] mine=hf:s1 theirs=hf:folder:cls distill:simcse two[x=1]"""
"""Spellings of another row, or of none."""
RECORDS = [make_record(row, 1, {"STSB": 0.5}, name=name, options=options) for row, name, options in ROWS]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("untrained:cls", "untrained"),
        ("untrained[pooling=cls]", "untrained"),
        ("simcse[lr=0.0001]", "simcse"),
        ("simcse[tau=1e-1,lr=1e-4]", "simcse[tau=0.1]"),
        ("simcse[epochs=1]", "simcse[steps=0]"),
        ("simcse[steps=4,epochs=1]", "simcse"),
        ("fast=simcse[lr=1e-3]", "fast"),
        ("mine=st:s1", "mine"),
        ("theirs=hf:folder:avg", "theirs"),
        ("theirs=hf:folder", "theirs"),
        ("ensemble[of=simcse+tncse]", "ensemble:simcse+tncse"),
        *((text, "") for text in OTHERS.split()),
    ],
)
def test_options_of_the_records_tell_a_row_too(text: str, name: str) -> None:
    names = {record.method for record in RECORDS}
    assert match_recorded_id(text, names, RECORDS) == (name or text)


def test_commands_take_them(cli: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "local")
    for name, start in (("a[pooling=avg,tau=0.05]", 0.6), ("b", 0.5)):
        for seed in (1, 2, 3):
            made = make_record(name, seed, {"STSB": start + seed / 100}, name=name[0], options={"lr": 1e-4})
            store.write(made.place, made, {"STSB": np.full(10, seed, dtype=np.float32)})
    typed, name = "a[tau=5e-2,pooling=avg]", "a[pooling=avg,tau=0.05]"
    for command, fact in (
        (("report", "--methods", f"b,{typed}", "--baseline", typed), "Against a: "),
        (("compare", typed, "b", "--seeds-only"), "a, pooling=avg, tau=0.05 is ahead"),
        (("compare", typed, "b[lr=0.0001]", "--seeds-only"), f"A = {name}"),
        (("report", "--methods", f"b[lr=1e-4],{typed}", "--baseline", "b[lr=1e-4]"), "Against b: "),
    ):
        code, out, err = cli(*command)
        assert (code, fact in out) == (0, True), err
    for refused, facts in (
        (("compare", f"{typed}#4", "b", "--seeds-only"), (name, "seed 4")),
        (("compare", "b", "--against", f"{name},{typed}", "--seeds-only"), ("twice",)),
        (("report", "--baseline", "c"), ("--baseline", "'c'", "one of a[")),
    ):
        assert not missing_facts(refusal(cli, *refused), *facts)


def test_a_folder_s_row_is_known_by_the_path_that_was_typed(cli: Cli, zoo: Callable[[str], Path]) -> None:
    rows = [f"hf:{zoo(name)}:avg" for name in ("bert", "distilbert")]
    code, _, err = cli("run", "--suite", "mini-dev", "--methods", ",".join(rows))
    assert code == 0, err
    code, out, err = cli("compare", *rows)
    assert (code, "bert-" in out) == (0, True), err
    code, out, _ = cli("report", "--methods", rows[1])
    assert (code, "distilbert-" in out, " bert-" in out) == (0, True, False)
    refusal(cli, "report", "--methods", rows[0].replace(":avg", ":cls"))
