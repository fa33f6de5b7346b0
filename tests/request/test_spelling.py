"""What is typed for a row of a campaign, and which row it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.records.store import ResultStore
from bench.request.spelling import recorded
from tests.support.campaigns import make_record

NAMES = (
    *("untrained", "untrained[pooling=avg]", "tncse", "tncse[lr=1e-05,nce=False]", "tncse[nce=False]"),
    *("mine", "pair[a=x,b=x]", "distill:static[dim=2]", "a[of=b\\,c]", "a[x=1]", "a[x=1.0]"),
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("untrained:avg", "untrained[pooling=avg]"),
        ("untrained[ pooling=avg ]", "untrained[pooling=avg]"),
        ("tncse[nce=false]", "tncse[nce=False]"),
        ("tncse[nce=FALSE, lr=0.00001]", "tncse[lr=1e-05,nce=False]"),
        ("tncse[nce=False]", "tncse[nce=False]"),
        ("mine", "mine"),
        ("a[x=1]", "a[x=1]"),  # as it is written, though another reads alike
    ],
)
def test_other_spellings_of_a_row(text: str, name: str) -> None:
    assert recorded(text, NAMES) == name


@pytest.mark.parametrize(
    "text",
    [
        "untrained:cls",
        "untrained[pooling=AVG]",
        "tncse[nce=True]",
        "tncse[lr=1e-5]",
        "mine=tncse",
        "pair[b=x]",
        "pair:x",
        "a[x=1e0]",  # two rows read so
        "a,mine",
        "a[",
        "",
    ],
)
def test_what_is_no_row_stays_as_it_is(text: str) -> None:
    assert recorded(text, NAMES) == text


@given(st.text(st.sampled_from("a[]=,:x1e-.\\ \x00é"), max_size=12))
def test_any_text_means_a_row_or_itself(text: str) -> None:
    assert recorded(text, NAMES) in (text, *NAMES)


def test_commands_take_them(cli: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "local")
    for name, start in (("a[pooling=avg,tau=0.05]", 0.6), ("b", 0.5)):
        for seed in (1, 2, 3):
            record = replace(make_record(name, seed, {"STSB": start + seed / 100}), predictions=None)
            store.write(record.place, record, {})
    typed, name = "a[tau=5e-2,pooling=avg]", "a[pooling=avg,tau=0.05]"
    code, out, err = cli("report", "--methods", f"b,{typed}", "--baseline", typed)
    assert code == 0, err
    assert name in out
    code, out, err = cli("compare", typed, "b", "--seeds-only")
    assert code == 0, err
    assert f"{name} is ahead" in out
    code, out, err = cli("compare", f"{typed}#4", "b", "--seeds-only")
    assert code == 2
    assert f"{name} has no finished seed 4" in err
    code, out, err = cli("compare", "b", "--against", f"{name},{typed}", "--seeds-only")
    assert (code, "names a method twice" in err) == (2, True)
