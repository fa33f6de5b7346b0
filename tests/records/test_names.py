"""Names of folders that every file system holds: which are refused when new, and that old ones go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import InputError
from bench.records.filesystem import (
    check_new_campaign,
    check_new_name,
    find_name_fault,
    find_namesake,
    safe_name,
)
from bench.records.store import ResultStore

PORTABLE = (
    "simcse",
    "SimCSE",
    "con-1",
    "console",
    "aux-12ab34cd",
    "com",
    "com10",
    "lpt",
    "tncse[lr=1e-05,nce=False]",
)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *((name, "Windows reserves the name") for name in ("CON", "con", "Prn", "aux", "NUL", "nul.tar.gz")),
        *((name, "Windows reserves the name") for name in ("COM0", "com9", "lpt9.txt", "COM¹", "LPT³")),
        *((name, "Windows reserves the name") for name in ("CONIN$", "conout$", "aux.txt", "CON .x")),
        ("simcse.", "Windows drops the dot at the end of 'simcse.'"),
        ("simcse ", "Windows drops the blank"),
        *((f"a{char}b", f"Windows refuses the character {char!a}") for char in '<>:"/\\|?*\x00\x1f\x7f'),
        ("é" * 128, "has 256 bytes, and a file system takes at most 255"),
    ],
)
def test_names_that_some_file_system_cannot_hold(name: str, part: str, tmp_path: Path) -> None:
    assert part in (find_name_fault(name) or "")
    with pytest.raises(InputError, match="expected a portable name; type X"):
        check_new_name(tmp_path, name, where="--campaign", hint="type X")


@pytest.mark.parametrize("name", PORTABLE)
def test_portable_names(name: str, tmp_path: Path) -> None:
    assert find_name_fault(name) is None
    check_new_name(tmp_path / "nowhere", name, where="--campaign", hint="")


@given(st.text(max_size=300))
def test_a_folder_name_has_no_character_that_windows_refuses(text: str) -> None:
    name = safe_name(text)
    assert not set(name) & set('<>:"/\\|?*')
    assert name.isascii()
    assert len(name) <= 89


def test_names_that_are_one_where_case_is() -> None:
    assert find_namesake("SimCSE", ["simcse", "tncse"]) == "simcse"
    assert find_namesake("e\N{COMBINING ACUTE ACCENT}", ["É"]) == "É"
    assert find_namesake("straße", ["STRASSE"]) == "STRASSE"
    assert find_namesake("simcse", ["simcse", "simcse-1"]) is None


def test_what_is_there_goes_on(tmp_path: Path) -> None:
    for name in ("CON", "simcse.", "SimCSE", "simcse"):
        (tmp_path / name).mkdir()
    for name in ("CON", "simcse.", "SimCSE", "simcse"):
        check_new_name(tmp_path, name, where="", hint="")
        ResultStore(tmp_path, name).prepare()
    for name in ("con", "SIMCSE", "Simcse."):
        with pytest.raises(InputError):
            check_new_name(tmp_path, name, where="", hint="")
    with pytest.raises(InputError, match="'B' differs only by case from 'b'"):
        check_new_name(tmp_path, "B", where="", hint="", others=["b", "B"])


@pytest.mark.parametrize("campaign", ["CON", "aux.txt", "mini.", "Mini"])
def test_a_new_campaign(campaign: str, tmp_path: Path) -> None:
    (tmp_path / "mini").mkdir()
    with pytest.raises(InputError) as caught:
        ResultStore(tmp_path, campaign).prepare()
    assert str(caught.value).startswith("--campaign: ")
    assert [path.name for path in tmp_path.iterdir()] == ["mini"]
    name = str(caught.value).rpartition(" ")[2]
    check_new_campaign(tmp_path, name)  # what the error says to type works
    ResultStore(tmp_path, campaign)  # and reading never refuses
