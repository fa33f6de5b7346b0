"""SentEval's ten probing tasks: their pinned files and reader."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from bench.data import senteval
from bench.data.tasks import LabelledSplit, LabelledTask, normalise_spaces
from bench.errors import DataError

REPOSITORY = "facebookresearch/SentEval"
REVISION = "5d6dc117d1ac30357ddaeb7347fb5684e9b87015"  # head of main since 2020-09-25
_PINNED = (
    ("Length", "sentence_length.txt", "9799e50a7579b5b60294b708cedc063aea16f0be"),
    ("WordContent", "word_content.txt", "596d6fc7c624a989342f5aef2fa035d0d84f65b7"),
    ("Depth", "tree_depth.txt", "91567ad524de360c38105afc39d29fb7ef6b5eb8"),
    ("TopConstituents", "top_constituents.txt", "1d00fe9b16f71303af7f0471fa028077f742d8b0"),
    ("BigramShift", "bigram_shift.txt", "1226c0467bd342c92132dd2fd26e54b7bd066bd7"),
    ("Tense", "past_present.txt", "d11394b28383bb1a8148670e33d39e5fcd326b16"),
    ("SubjNumber", "subj_number.txt", "dee5770953ad194ceafc68106bd9c071986c6d2a"),
    ("ObjNumber", "obj_number.txt", "c5a6f758f2293d0ed0774de327ff8199322d12ee"),
    ("OddManOut", "odd_man_out.txt", "ca1ec154df17e366330c542b48bdca5cfa65bf1c"),
    ("CoordinationInversion", "coordination_inversion.txt", "281888217fd1ed7faef2c63c5350d2ff1b8e64ce"),
)
FILES = {task: file for task, file, _ in _PINNED}
BLOBS = {file: blob for _, file, blob in _PINNED}
"""Git's hash of each file's content at the pinned revision."""
_PLACES = ("probing", "senteval/probing", "data/probing", "SentEval/data/probing", "../probing", ".")
_SPLITS = {"tr": "train", "va": "dev", "te": "test"}


def find_probing_folder(data: Path) -> Path:
    """Return the folder of the probing files at, below or next to ``data``; raises DataError."""
    for place in _PLACES:
        if any((data / place / file).is_file() for file in BLOBS):
            return data / place
    expected = f"probing/{FILES['Length']} or another of its files below it"
    raise DataError("no probing data here", where=str(data), expected=expected, hint=_fetch_hint(data))


def choose_probing_folder(data: Path) -> Path:
    """Return the folder for the probing files: where some are, otherwise next to ``downstream``."""
    with suppress(DataError):
        return find_probing_folder(data)
    try:
        root = senteval.find_root(data)
    except DataError:
        return data / "senteval" / "probing"
    return (data if root == data else root.parent) / "probing"


def read_probing_task(name: str, folder: Path) -> LabelledTask:
    """Read a task of :data:`FILES`: split (tr, va, te), label and sentence, with tabs; raises DataError."""
    file = FILES[name]
    parts: dict[str, list[tuple[str, str]]] = {split: [] for split in _SPLITS}
    for number, row in enumerate(senteval.read_lines(folder, file, hint=_fetch_hint(folder.parent)), start=1):
        split, *columns = row.rstrip().split("\t")
        if len(columns) < 2 or split not in parts:
            what, where = "this line isn't split, label and sentence", f"{folder / file}:{number}"
            raise DataError(what, where=where, expected="tr, va or te first")
        parts[split].append((columns[0], normalise_spaces(columns[-1])))
    splits = []
    for split, rows in parts.items():
        labels, sentences = tuple(zip(*rows, strict=True)) or ((), ())
        splits.append(LabelledSplit(_SPLITS[split], sentences, (), labels, file))
    return LabelledTask(name, tuple(splits))


def git_blob_hash(path: Path) -> str:
    """Return git's hash of a file's content, a SHA-1 over its length and its bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def check_probing_file(file: str, folder: Path) -> str:
    """Return the blob hash of a pinned file; raises DataError for a missing or different file."""
    path = folder / file
    if not path.is_file():
        raise DataError("this data file is missing", where=str(path), hint=_fetch_hint(folder.parent))
    blob = git_blob_hash(path)
    if blob != BLOBS[file]:
        what = f"the text differs from {REPOSITORY}'s (git blob {blob[:12]})"
        hint = "delete it and fetch it again with bench data fetch probing"
        raise DataError(what, where=str(path), expected=f"git blob {BLOBS[file][:12]}", hint=hint)
    return blob


def _fetch_hint(data: Path) -> str:
    return f"bench data fetch probing --data {data} gets them"
