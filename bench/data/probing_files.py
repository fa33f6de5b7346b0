"""SentEval's ten probing tasks: their files, how they are read, and what each file is."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bench.data import senteval
from bench.data.tasks import LabelledSplit, LabelledTask, normalise_spaces
from bench.errors import DataError

REPOSITORY = "facebookresearch/SentEval"
REVISION = "5d6dc117d1ac30357ddaeb7347fb5684e9b87015"  # head of main since 2020-09-25
FILES = {
    "Length": "sentence_length.txt",
    "WordContent": "word_content.txt",
    "Depth": "tree_depth.txt",
    "TopConstituents": "top_constituents.txt",
    "BigramShift": "bigram_shift.txt",
    "Tense": "past_present.txt",
    "SubjNumber": "subj_number.txt",
    "ObjNumber": "obj_number.txt",
    "OddManOut": "odd_man_out.txt",
    "CoordinationInversion": "coordination_inversion.txt",
}
"""File of each task."""
BLOBS = {
    "sentence_length.txt": "9799e50a7579b5b60294b708cedc063aea16f0be",
    "word_content.txt": "596d6fc7c624a989342f5aef2fa035d0d84f65b7",
    "tree_depth.txt": "91567ad524de360c38105afc39d29fb7ef6b5eb8",
    "top_constituents.txt": "1d00fe9b16f71303af7f0471fa028077f742d8b0",
    "bigram_shift.txt": "1226c0467bd342c92132dd2fd26e54b7bd066bd7",
    "past_present.txt": "d11394b28383bb1a8148670e33d39e5fcd326b16",
    "subj_number.txt": "dee5770953ad194ceafc68106bd9c071986c6d2a",
    "obj_number.txt": "c5a6f758f2293d0ed0774de327ff8199322d12ee",
    "odd_man_out.txt": "ca1ec154df17e366330c542b48bdca5cfa65bf1c",
    "coordination_inversion.txt": "281888217fd1ed7faef2c63c5350d2ff1b8e64ce",
}
"""Git's name of each file's content at the pinned revision."""
_PLACES = ("probing", "senteval/probing", "data/probing", "SentEval/data/probing", "../probing", ".")
_SPLITS = {"tr": "train", "va": "dev", "te": "test"}


def find_probing_folder(data: Path) -> Path:
    """Return the folder of the probing files at, below or beside ``data``.

    Raises:
        DataError: none of the files is there.
    """
    for place in _PLACES:
        if any((data / place / file).is_file() for file in BLOBS):
            return data / place
    raise DataError(
        "no probing data here",
        where=str(data),
        expected=f"probing/{FILES['Length']} or another of its files below it",
        hint=_fetch_hint(data),
    )


def choose_probing_folder(data: Path) -> Path:
    """Return where the probing files belong: where some are, else beside ``downstream``."""
    try:
        return find_probing_folder(data)
    except DataError:
        pass
    try:
        root = senteval.find_root(data)
    except DataError:
        return data / "senteval" / "probing"
    return (data if root == data else root.parent) / "probing"


def read_probing_task(name: str, folder: Path) -> LabelledTask:
    """Read a probing task: split (tr, va, te), label and sentence, separated by tabs.

    Args:
        name: A task of :data:`FILES`.
        folder: The folder with its file.

    Raises:
        DataError: a missing file, or (file and line) a line that is not an item.
    """
    file = FILES[name]
    parts: dict[str, list[tuple[str, str]]] = {split: [] for split in _SPLITS}
    for number, row in enumerate(senteval.read_lines(folder, file, hint=_fetch_hint(folder.parent)), start=1):
        split, *columns = row.rstrip().split("\t")
        if len(columns) < 2 or split not in parts:
            raise DataError(
                "this line isn't split, label and sentence",
                where=f"{folder / file}:{number}",
                expected="tr, va or te first",
            )
        parts[split].append((columns[0], normalise_spaces(columns[-1])))
    splits = []
    for split, rows in parts.items():
        labels, sentences = tuple(zip(*rows, strict=True)) or ((), ())
        splits.append(LabelledSplit(_SPLITS[split], sentences, (), labels, file))
    return LabelledTask(name, tuple(splits))


def git_blob_hash(path: Path) -> str:
    """Return git's name of a file's content, a SHA-1 over its length and its bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def check_probing_file(file: str, folder: Path) -> str:
    """Return the content's name of a file that is as SentEval has it.

    Args:
        file: A file of :data:`BLOBS`.
        folder: Its folder.

    Raises:
        DataError: a missing file, or another one.
    """
    path = folder / file
    if not path.is_file():
        raise DataError("this data file is missing", where=str(path), hint=_fetch_hint(folder.parent))
    found = git_blob_hash(path)
    if found != BLOBS[file]:
        raise DataError(
            f"the text differs from {REPOSITORY}'s (git blob {found[:12]})",
            where=str(path),
            expected=f"git blob {BLOBS[file][:12]}",
            hint="delete it and fetch it again with bench data fetch probing",
        )
    return found


def _fetch_hint(data: Path) -> str:
    return f"bench data fetch probing --data {data} gets them"
