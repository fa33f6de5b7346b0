"""The store of records, and the file of predictions."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from bench import errors
from bench.errors import BenchError, DataError, InputError
from bench.records.filesystem import temporary_path
from bench.records.record import RecordPlace, RunRecord, Score, parse_record, record_to_json, safe_name
from bench.records.store import ResultStore, parse_predictions, predictions_to_npz
from tests.support.messages import missing_facts
from tests.support.unreadable import unreadable

PLACE = RecordPlace("mini", "noise", 1, "toy")
TASKS = {"TOY": {"pairs": 2, "sha256": "0", "reference": True}}
SCORES = (Score("TOY", "all", "spearman", 0.1 + 0.2, 2),)
RECORD = RunRecord("mini", "noise", "noise", 1, {"scale": 1.0}, None, 1, "toy", TASKS, "k", "ok", SCORES)
RECORD = replace(RECORD, timing={"wall_seconds": 1.0})
TEXT = record_to_json(RECORD)
PREDICTIONS = {"TOY": np.array([0.25, 0.5], dtype=np.float32)}


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path, "camp")
    store.prepare()
    return store


def test_json_round_trip_keeps_every_digit() -> None:
    again = parse_record(record_to_json(RECORD), "x")
    assert again == RECORD
    assert again.score("TOY") == 0.1 + 0.2
    assert again.score("STS12") is None
    assert "timing" not in json.loads(record_to_json(RECORD, timing=False))


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "[]",
        "{}",
        TEXT[:-40],
        TEXT.replace('"status": "ok"', '"status": "fine"'),
        TEXT.replace("0.30000000000000004", "NaN"),
        TEXT.replace('"seed": 1,', '"seed": "1",'),
        TEXT.replace('"method": "noise"', '"method": 7'),
        TEXT.replace('"predictions": null', '"predictions": {}'),
        TEXT.replace('"backbone": null', '"backbone": "x"'),
        TEXT.replace('"training": {}', '"training": {"stages": {"a": 1}}'),
        "[" * 100_000,
    ],
)
def test_damaged_records_are_refused_with_their_place(damage: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_record(damage, "a/b.json")
    assert (caught.value.where, caught.value.hint) == ("a/b.json", None)  # it may be any file


def test_nan_never_enters_a_record() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        record_to_json(replace(RECORD, scores=(Score("TOY", "all", "spearman", float("nan"), 2),)))


def test_write_and_read(store: ResultStore) -> None:
    written = store.write(PLACE, RECORD, PREDICTIONS)
    assert store.path(PLACE) == store.root / "mini" / "noise" / "seed-1" / "toy.json"
    assert store.read(PLACE) == written
    assert store.is_whole(PLACE, written)
    np.testing.assert_array_equal(store.predictions(written)["TOY"], PREDICTIONS["TOY"])
    assert store.records() == [written]
    assert store.read(RecordPlace("mini", "noise", 2, "toy")) is None
    assert {p.name for p in store.path(PLACE).parent.iterdir()} == {"toy.json", "toy.npz"}


def test_equal_input_gives_equal_bytes(store: ResultStore, tmp_path: Path) -> None:
    other = ResultStore(tmp_path, "other")
    other.prepare()
    for each in (store, other):
        each.write(PLACE, RECORD, PREDICTIONS)
    for suffix in (".json", ".npz"):
        first, second = (each.path(PLACE).with_suffix(suffix).read_bytes() for each in (store, other))
        assert first == second


def test_predictions_of_another_record_are_found_out(store: ResultStore) -> None:
    written = store.write(PLACE, RECORD, PREDICTIONS)
    store.write(PLACE, RECORD, {"TOY": PREDICTIONS["TOY"] * 2})
    assert not store.is_whole(PLACE, written)
    with pytest.raises(DataError, match="don't belong to their record"):
        store.predictions(written)
    store.path(PLACE).with_suffix(".npz").unlink()
    assert not store.is_whole(PLACE, written)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_what_cannot_be_read_is_not_taken_for_damaged(store: ResultStore, suffix: str, number: int) -> None:
    written = store.write(PLACE, RECORD, PREDICTIONS)
    file = store.path(PLACE).with_suffix(suffix)
    looks: list[Callable[[], object]] = [lambda: store.is_whole(PLACE, written)]
    looks += [lambda: store.predictions(written)]
    if suffix == ".json":
        looks = [lambda: store.seeds(PLACE), store.records]
    for look in (lambda: store.finished(PLACE), *looks):
        with unreadable(file, number=number), pytest.raises(errors.UnreadableRecordError) as caught:
            look()
        assert (caught.value.where, missing_facts(caught.value, os.strerror(number))) == (str(file), [])
    assert store.finished(PLACE) == written


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("place", ["/dev/null", "."])
def test_what_is_no_file_is_not_read(store: ResultStore, suffix: str, place: str) -> None:
    store.write(PLACE, RECORD, PREDICTIONS)
    file = store.path(PLACE).with_suffix(suffix)
    file.unlink()
    file.symlink_to(place)
    with pytest.raises(errors.UnreadableRecordError, match="no regular file") as caught:
        store.finished(PLACE)
    assert caught.value.where == str(file)


def test_other_line_ends_change_no_record(store: ResultStore) -> None:
    written = store.write(PLACE, RECORD, PREDICTIONS)
    path = store.path(PLACE)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert store.finished(PLACE) == written


def test_what_is_gone_meanwhile_is_no_record(store: ResultStore) -> None:
    written = store.write(PLACE, RECORD, PREDICTIONS)
    with unreadable(store.path(PLACE), number=errno.ENOENT):
        assert (store.finished(PLACE), store.seeds(PLACE)) == (None, ({}, {}))
    with unreadable(store.path(PLACE).with_suffix(".npz"), number=errno.ENOENT):
        assert not store.is_whole(PLACE, written)


def test_a_failing_write_leaves_the_old_record(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written = store.write(PLACE, RECORD, PREDICTIONS)
    before = {p.name: p.read_bytes() for p in store.path(PLACE).parent.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BenchError, match="can't be written: No space"):
        store.write(PLACE, replace(RECORD, key="new"), {"TOY": PREDICTIONS["TOY"] * 2})
    assert {p.name: p.read_bytes() for p in store.path(PLACE).parent.iterdir()} == before
    assert store.is_whole(PLACE, written)


def test_leftovers_of_a_killed_process_are_cleared(store: ResultStore) -> None:
    store.write(PLACE, RECORD, PREDICTIONS)
    leftover, others = temporary_path(store.path(PLACE)), store.path(PLACE).with_name(".draft.tmp")
    others.write_text("somebody's own")
    for clear in (False, True):
        leftover.write_text("half")
        assert len(store.records()) == 1
        with store.claim(PLACE, wait=False):
            assert not leftover.exists()
            leftover.write_text("being written")
            ResultStore(store.root.parent, "camp").clear_leftovers()
            assert leftover.exists()
        if clear:
            store.clear_leftovers()
            assert not leftover.exists()
    assert others.read_text() == "somebody's own"


@pytest.mark.parametrize("part", ["mini", "mini/noise", "mini/noise/seed-1"])
def test_nothing_is_written_or_removed_through_a_link(store: ResultStore, tmp_path: Path, part: str) -> None:
    store.write(PLACE, RECORD, PREDICTIONS)
    outside = tmp_path / "outside"
    (store.root / part).rename(outside)
    (store.root / part).symlink_to(outside)
    temporary_path(store.path(PLACE)).write_text("half")
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    store.clear_leftovers()
    with pytest.raises(errors.StorageError, match="is a link"):
        store.write(PLACE, replace(RECORD, key="new"), PREDICTIONS)
    with pytest.raises(errors.StorageError, match="is a link"), store.claim(PLACE, wait=False):
        pass
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before
    assert store.read(PLACE) is not None


def test_a_campaign_that_is_a_link_as_a_whole_is_written(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "camp").symlink_to(tmp_path / "disk")
    store = ResultStore(tmp_path, "camp")
    store.prepare()
    with store.claim(PLACE, wait=False):
        assert store.write(PLACE, RECORD, PREDICTIONS) == store.read(PLACE)


def test_claims_exclude_each_other_and_leave_nothing_behind(store: ResultStore) -> None:
    seen: list[bool] = []

    def contend() -> None:
        with ResultStore(store.root.parent, "camp").claim(PLACE, wait=False) as mine:
            seen.append(mine)

    with store.claim(PLACE, wait=False) as mine:
        assert mine
        thread = threading.Thread(target=contend)
        thread.start()
        thread.join()
    contend()
    assert seen == [False, True]


@pytest.mark.parametrize(
    "name", ["../x", "a/b", ".hidden", "a b", "x" * 200, "ü", "a[b=/etc]", "..", "", "a\nb"]
)
def test_unsafe_names_become_one_safe_folder(name: str) -> None:
    folder = safe_name(name)
    assert folder not in (name, safe_name(name + "2"))
    assert "/" not in folder
    assert not folder.startswith(".")
    assert len(folder) < 100
    for plain in ("untrained", "untrained[pooling=avg]", "minilm@0123abcd", "model-c006c948"):
        assert safe_name(plain) == plain


@pytest.mark.parametrize("campaign", ["..", "../x", "a/b", "", ".x", "a b", "x" * 101])
def test_campaigns_are_plain_folder_names(campaign: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a campaign name"):
        ResultStore(tmp_path, campaign)


def test_a_missing_campaign_names_those_there_are(store: ResultStore) -> None:
    with pytest.raises(InputError) as caught:
        ResultStore(store.root.parent, "cmap").records()
    assert not missing_facts(caught.value, "no campaign 'cmap'", "camp")


def test_a_copied_record_is_not_a_second_seed(store: ResultStore) -> None:
    store.write(PLACE, RECORD, PREDICTIONS)
    copied = store.path(PLACE).parent.with_name("seed-1-backup")
    shutil.copytree(store.path(PLACE).parent, copied)
    with pytest.raises(errors.MisplacedRecordError, match="record of noise"):
        store.records()
    second = replace(PLACE, seed=2)
    copied.rename(store.path(second).parent)
    for look in (store.read, store.finished):
        with pytest.raises(errors.MisplacedRecordError, match="record of noise"):
            look(second)
    found, damaged = store.seeds(PLACE)
    assert (list(found), list(damaged)) == ([PLACE], [store.path(second)])
    shutil.rmtree(store.path(second).parent)
    store.path(PLACE).write_bytes(b"\xff")
    with pytest.raises(DataError, match="can't be read"):
        store.records()
    store.path(PLACE).unlink()
    store.path(PLACE).mkdir()
    with pytest.raises(DataError, match="can't be read"):
        store.records()


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


def test_they_are_read_as_they_were_written() -> None:
    found = parse_predictions(FILE, WRITTEN)
    assert list(found) == ["B", "A"]
    assert all(np.array_equal(found[name], VALUES[name]) for name in VALUES)
    assert archive(lambda made: None) == WRITTEN


def test_the_form_is_that_of_every_record_there_is() -> None:
    assert len(WRITTEN) == 510
    digest = hashlib.sha256(WRITTEN).hexdigest()
    assert digest == "8a12fc4b693d0d9978f4946579c7abf63e620ff6bcfbd938123e2d54227ca196"


@pytest.mark.parametrize(
    "content",
    [
        WRITTEN[:-2] + b"\x1a\0A man is playing a guitar.",  # a comment of 26 bytes
        archive(lambda made: made.writestr("C", "A man is playing a guitar.")),
        archive(lambda made: made.writestr("dir/", "")),
        b"A man is playing a guitar." + WRITTEN,
        WRITTEN + b"A man is playing a guitar.",
        WRITTEN.replace(b"\x00\x00\x21\x00", b"\x01\x00\x21\x00"),  # the time of its entries
        WRITTEN.replace(b"}   ", b"}\n  "),
        WRITTEN.replace(b"PK\3\4\x2d", b"PK\3\4\x14"),  # the version and the sizes of Python 3.11.2
        WRITTEN.replace(b"\xff" * 8, b"\x8c\0\0\0" * 2),
        WRITTEN.replace(b"PK\1\2\x2d\3", b"PK\1\2\x2d\0"),  # the system Windows
    ],
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
        (b"text", "these are no predictions: ValueError"),
    ],
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
    np.savez(buffer := io.BytesIO(), **VALUES)  # type: ignore[arg-type]
    assert buffer.getvalue() == WRITTEN


OF_2_1 = {"allow_pickle": np.array(False), **VALUES}


def test_a_file_of_numpy_2_1_is_named() -> None:
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
        predictions_to_npz({"allow_pickle": np.array(False), "A": cast(Any, np.zeros(2))}),
        predictions_to_npz(OF_2_1) + b"more",
    ],
)
def test_other_damage_is_not_said_to_be_of_numpy_2_1(content: bytes) -> None:
    with pytest.raises(DataError) as caught:
        parse_predictions(FILE, content)
    assert "numpy 2.1" not in caught.value.what
