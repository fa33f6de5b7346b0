"""Names of folders that every file system holds: which are refused when new, and that old ones go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import InputError
from bench.records import filesystem
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
    "a[lr=1e-05,b=False]",
)
RESERVED = (
    *("CON", "con", "Prn", "aux", "NUL", "nul.tar.gz", "COM0", "com9", "lpt9.txt", "COM¹", "LPT³"),
    *("CONIN$", "conout$", "aux.txt", "CON .x"),
)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *((name, f"Windows reserves the name '{name}'") for name in RESERVED),
        ("simcse.", "the dot at the end of 'simcse.'"),
        ("simcse ", "the blank"),
        *((f"a{char}b", f"character {char!a}") for char in '<>:"/\\|?*\x00\x1f\x7f'),
        ("é" * 128, "256 bytes, and a file system takes at most 255"),
    ],
)
def test_names_that_some_file_system_cannot_hold(name: str, part: str, tmp_path: Path) -> None:
    assert part in (filesystem.find_name_fault(name) or "")
    with pytest.raises(InputError) as caught:
        filesystem.check_new_name(tmp_path, name, where="--campaign", hint="type X")
    assert (caught.value.where, caught.value.hint) == ("--campaign", "type X")


@pytest.mark.parametrize("name", PORTABLE)
def test_portable_names(name: str, tmp_path: Path) -> None:
    assert filesystem.find_name_fault(name) is None
    filesystem.check_new_name(tmp_path / "nowhere", name, where="--campaign", hint="")


@given(st.text(max_size=300))
def test_a_folder_name_has_no_character_that_windows_refuses(text: str) -> None:
    name = filesystem.safe_name(text)
    assert not set(name) & set('<>:"/\\|?*')
    assert name.isascii()
    assert len(name) <= 89


def test_names_that_are_one_where_case_is() -> None:
    assert filesystem.find_namesake("SimCSE", ["tncse", "simcse"]) == "simcse"
    assert filesystem.find_namesake("e\N{COMBINING ACUTE ACCENT}", ["É"]) == "É"
    assert filesystem.find_namesake("straße", ["STRASSE"]) == "STRASSE"
    assert filesystem.find_namesake("simcse", ["simcse", "simcse-1"]) is None


def test_what_is_there_goes_on(tmp_path: Path) -> None:
    for name in ("CON", "simcse.", "SimCSE", "simcse"):
        (tmp_path / name).mkdir()
    for name in ("CON", "simcse.", "SimCSE", "simcse"):
        filesystem.check_new_name(tmp_path, name, where="", hint="")
        ResultStore(tmp_path, name).prepare()
    for name in ("con", "SIMCSE", "Simcse."):
        with pytest.raises(InputError):
            filesystem.check_new_name(tmp_path, name, where="", hint="")
    with pytest.raises(InputError, match=r"'B' .* case from 'b'"):
        filesystem.check_new_name(tmp_path, "B", where="", hint="", others=["b", "B"])


@pytest.mark.parametrize("campaign", ["CON", "aux.txt", "mini.", "Mini"])
def test_a_new_campaign(campaign: str, tmp_path: Path) -> None:
    (tmp_path / "mini").mkdir()
    with pytest.raises(InputError) as caught:
        ResultStore(tmp_path, campaign).prepare()
    assert str(caught.value).startswith("--campaign: ")
    assert [path.name for path in tmp_path.iterdir()] == ["mini"]
    name = str(caught.value).rpartition(" ")[2]
    filesystem.check_new_campaign(tmp_path, name)  # what the error says to type works
    ResultStore(tmp_path, campaign)  # and reading never refuses
