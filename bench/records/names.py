"""Names of folders and files of records: how they are made, and which ones some file system can't hold."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from bench.errors import InputError

LONGEST = 255
"""Bytes of a name on most file systems."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=,\[\]@-]+")
_FORBIDDEN = '<>:"/\\|?*'
_PORTS = [f"{port}{digit}" for port in ("COM", "LPT") for digit in "0123456789¹²³"]
_DEVICES = frozenset(("CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", *_PORTS))
_IN_LISTS = re.compile(r"[,\[\]]+")


def safe_name(text: str) -> str:
    """Return ``text`` as one folder name: as it is if it can be one, else cleaned and with its hash."""
    cleaned = _UNSAFE.sub("_", text).lstrip(".")[:80]
    if cleaned and cleaned == text:
        return text
    return f"{cleaned}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def model_stem(name: str, sha256: str) -> str:
    """Return what rows call a model from a folder or file: its last name, and 8 digits of its hash.

    A comma or bracket becomes a ``_``, as they have a meaning in lists of methods.

    >>> model_stem("my,folder[v=2]", "0123456789abcdef")
    'my_folder_v=2_-01234567'
    """
    return f"{_IN_LISTS.sub('_', name.split('/')[-1])}-{sha256[:8]}"


def name_fault(name: str) -> str | None:
    """Return why Windows or another file system can't hold a name, None where all can.

    >>> name_fault("aux.txt"), name_fault("simcse.")
    ("Windows reserves the name 'aux.txt'", "Windows drops the dot at the end of 'simcse.'")
    >>> name_fault("simcse[lr=1e-05]")
    """
    if name.split(".")[0].rstrip(" ").upper() in _DEVICES:
        return f"Windows reserves the name '{name}'"
    if name.endswith((".", " ")):
        return f"Windows drops the {'dot' if name.endswith('.') else 'blank'} at the end of '{name}'"
    if odd := [char for char in name if char in _FORBIDDEN or ord(char) < 32 or char == "\x7f"]:
        return f"Windows refuses the character {odd[0]!a} in '{name}'"
    if (size := len(name.encode("utf-8", "surrogateescape"))) > LONGEST:
        return f"'{name[:20]}...' has {size} bytes, and a file system takes at most {LONGEST}"
    return None


def namesake(name: str, others: Iterable[str]) -> str | None:
    """Return the first other name that is the same where upper and lower case are one, None if there is none.

    Forms of one accented letter are one too, as on macOS.

    >>> namesake("SimCSE", ["tncse", "simcse"]), namesake("simcse", ["simcse"])
    ('simcse', None)
    """
    return next((each for each in others if each != name and _folded(each) == _folded(name)), None)


def check_new(folder: Path, name: str, *, where: str, hint: str, others: Iterable[str] = ()) -> None:
    """Refuse a new name of a folder that a case-insensitive file system or Windows can't hold.

    A name that is in the folder already, spelled like this, is never refused.

    Args:
        folder: Where it is to stand; it need not exist.
        name: The name.
        where: For the error: the option that gives it.
        hint: For the error: what to type.
        others: Names that are new in the same folder.

    Raises:
        InputError: a reserved name, a character or an ending that Windows refuses, more than 255 bytes, or a
            name that differs only by case from one in the folder or another new one.

    >>> check_new(Path("nowhere"), "simcse", where="--campaign", hint="type X")
    >>> check_new(Path("nowhere"), "CON", where="--campaign", hint="type X")
    Traceback (most recent call last):
        ...
    bench.errors.InputError: --campaign: Windows reserves the name 'CON'; expected a portable name; type X
    """
    there = _listed(folder)
    if name in there:
        return
    fault = name_fault(name)
    if fault is None and (other := namesake(name, [*there, *others])) is not None:
        fault = f"'{name}' differs only by case from '{other}': macOS and Windows take both for one"
    if fault is not None:
        raise InputError(fault, where=where, expected="a portable name", hint=hint)


def check_new_campaign(results: Path, campaign: str, *, where: str = "--campaign") -> None:
    """Refuse a new campaign that not every file system can hold; see :func:`check_new`."""
    other = f"{campaign.rstrip('.').replace('.', '-')}-1"
    check_new(results, campaign, where=where, hint=f"type {where} {other}")


def _listed(folder: Path) -> list[str]:
    """Names in a folder as they are spelled; none where it isn't there or can't be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
