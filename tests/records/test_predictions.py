"""The file of predictions: finite float32 numbers, a list a task, to the byte as bench writes them."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.errors import DataError
from bench.records.store import parse_predictions, predictions_to_npz

VALUES = {"B": np.array([0.25, -0.5, 1.0], dtype=np.float32), "A": np.zeros(2, dtype=np.float32)}
WRITTEN = predictions_to_npz(VALUES)
FILE = Path("toy.npz")


def archive(change: Callable[[zipfile.ZipFile], object], entries: dict[str, bytes] | None = None) -> bytes:
    """A zip of the same entries, or of others, with what a change makes of it."""
    with zipfile.ZipFile(io.BytesIO(WRITTEN)) as whole:
        entries = {name: whole.read(name) for name in whole.namelist()} if entries is None else entries
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, content in entries.items():
            with made.open(zipfile.ZipInfo(name), "w", force_zip64=True) as stream:  # as numpy does
                stream.write(content)
        change(made)
    return buffer.getvalue()


def comment(made: zipfile.ZipFile) -> None:
    made.comment = b"A man is playing a guitar."


def saved(**values: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **values)  # type: ignore[arg-type]
    return buffer.getvalue()


def test_they_are_read_as_they_were_written() -> None:
    found = parse_predictions(FILE, WRITTEN)
    assert list(found) == ["B", "A"]
    assert all(np.array_equal(found[name], VALUES[name]) for name in VALUES)
    assert archive(lambda made: None) == WRITTEN


def test_the_form_is_that_of_every_record_there_is() -> None:
    """Records keep the file's hash: another numpy or Python that writes other bytes must not go unnoticed."""
    assert len(WRITTEN) == 510
    assert (
        hashlib.sha256(WRITTEN).hexdigest()
        == "8a12fc4b693d0d9978f4946579c7abf63e620ff6bcfbd938123e2d54227ca196"
    )


@pytest.mark.parametrize(
    "content",
    [
        archive(comment),
        archive(lambda made: made.writestr("C", "A man is playing a guitar.")),
        archive(lambda made: made.writestr("dir/", "")),
        b"A man is playing a guitar." + WRITTEN,
        WRITTEN + b"A man is playing a guitar.",
        WRITTEN.replace(b"\x00\x00\x21\x00", b"\x01\x00\x21\x00"),  # the time of its entries
        WRITTEN.replace(b"}   ", b"}\n  "),
    ],
    ids=["a comment", "an entry", "a folder", "bytes before", "bytes after", "a time", "a blank"],
)
def test_the_same_predictions_in_another_form_are_refused(content: bytes) -> None:
    assert content != WRITTEN
    with pytest.raises(DataError) as caught:
        parse_predictions(FILE, content)
    assert str(caught.value).startswith("toy.npz: ")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (archive(lambda made: None, {"B": b"text"}), "the predictions of B are damaged"),
        (archive(lambda made: None, {"B.npy": b"text"}), "the predictions of B are damaged"),
        (saved(B=np.zeros(2)), "the predictions of B are damaged"),
        (saved(B=np.zeros((1, 2), dtype=np.float32)), "the predictions of B are damaged"),
        (saved(B=np.array([np.nan], dtype=np.float32)), "the predictions of B are damaged"),
        (b"text", "these are no predictions: ValueError"),
    ],
    ids=["a text", "a text called an array", "doubles", "a table", "no number", "no archive"],
)
def test_what_is_no_prediction_is_refused(content: bytes, what: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_predictions(FILE, content)
    assert caught.value.what == what


@pytest.mark.parametrize("name", ["file", "allow_pickle", "naïve/§"])
def test_a_task_of_any_name_is_read_as_it_was_written(name: str) -> None:
    values = {name: np.array([0.5, -1.0], dtype=np.float32)}
    assert np.array_equal(parse_predictions(FILE, predictions_to_npz(values))[name], values[name])
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values[name])
    assert archive(lambda made: None, {f"{name}.npy": buffer.getvalue()}) == predictions_to_npz(values)


def test_the_form_is_that_of_savez() -> None:
    assert saved(**VALUES) == predictions_to_npz(VALUES)


@pytest.mark.parametrize("change", ["version", "sizes", "system"])
def test_headers_of_other_pythons_and_systems_are_not_ours(change: str) -> None:
    """Python 3.11.2 writes another version and sizes, Windows another system."""
    old = {"version": (b"PK\3\4\x2d", b"PK\3\4\x14"), "sizes": (b"\xff" * 8, b"\x8c\0\0\0" * 2)}
    system = (b"PK\1\2\x2d\3", b"PK\1\2\x2d\0")
    content = WRITTEN.replace(*old.get(change, system))
    assert content != WRITTEN
    with pytest.raises(DataError):
        parse_predictions(FILE, content)


DOUBLES: Any = np.zeros(2)
OF_2_1 = {"allow_pickle": np.array(False), **VALUES}


def test_a_file_of_numpy_2_1_is_named() -> None:
    """There savez takes no allow_pickle, so it stores the argument as an array of that name."""
    with pytest.raises(DataError) as caught:
        parse_predictions(FILE, predictions_to_npz(OF_2_1))
    assert (caught.value.where, caught.value.expected) == ("toy.npz", "numpy 2.2 or newer")
    assert "numpy 2.1" in caught.value.what


@pytest.mark.parametrize(
    "content",
    [
        predictions_to_npz({**VALUES, "allow_pickle": np.array(False)}),
        predictions_to_npz({"allow_pickle": np.array(True), **VALUES}),
        predictions_to_npz({"allow_pickle": np.array([False]), **VALUES}),
        predictions_to_npz({"allow_pickle": np.array(False), "A": DOUBLES}),
        predictions_to_npz(OF_2_1) + b"more",
    ],
    ids=["last", "true", "a list", "doubles", "bytes behind"],
)
def test_other_damage_is_not_said_to_be_of_numpy_2_1(content: bytes) -> None:
    with pytest.raises(DataError) as caught:
        parse_predictions(FILE, content)
    assert "numpy 2.1" not in caught.value.what
