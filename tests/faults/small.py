"""What makes slow commands small, so that a fault can hit them by the hundred: a model, data, a hub."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from bench.config import profiles
from bench.data import downloads as fetching
from bench.data import senteval
from bench.data.corpus import make_corpus
from bench.data.mini import world_text
from bench.data.suites import GROUPS, reference_fingerprints
from bench.data.toy_suite import make_toy_task
from bench.training import checkpoint
from tests.support.hub import Hub, small_sts_files, tar_of

_HUB = ".hub"
_OFTEN = ".often"
_LINES = 40
_CHUNK = 20_000  # bytes of a download that are written at a time
_PRETRAIN = {"layers": 1, "hidden": 16, "heads": 2, "vocabulary": 150, "steps": 2, "batch_size": 4}


def toy_sentences() -> list[str]:
    return sorted({sentence for pair in make_toy_task().all_pairs() for sentence in pair})[:_LINES]


def use_hub(folder: Path) -> None:
    """Let ``bench data fetch`` in this folder ask a hub of this process, whose files are its reference."""
    (folder / _HUB).write_text(json.dumps(_hub()))


def keep_often(folder: Path) -> None:
    """Let trainings in this folder keep a checkpoint after every step; an undisturbed run makes none."""
    if folder.name != "undisturbed":
        (folder / _OFTEN).touch()


class _QuietHub(Hub):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that was killed."""


@cache
def _hub() -> dict[str, Any]:
    files, fingerprints = small_sts_files(), {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, content in files.items():
            file = Path(scratch) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        for name in GROUPS["sts7"]:
            task = senteval.SOURCES[name].read(Path(scratch))
            fingerprints[name] = {"items": task.items, "sha256": task.sha256, "parts": task.counts}
    server = _QuietHub()
    server.files[fetching.ARCHIVE] = tar_of(files)
    server.files[fetching.CORPUS] = b"".join(b"%d %s\n" % (n, b"word " * 500) for n in range(_LINES))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return {"address": f"http://127.0.0.1:{server.server_port}", "fingerprints": fingerprints}


def begin(folder: Path) -> None:
    """In a forked process, before its command line is read: make small what it may pretrain or fetch."""
    import huggingface_hub.constants

    load, corpus = profiles.load_profile, make_corpus("toy.txt", toy_sentences())
    profiles.load_profile = lambda name: replace(load(name), pretrain=load(name).pretrain | _PRETRAIN)
    world_text.pretraining_text = lambda world: corpus
    if (folder / _OFTEN).exists():
        checkpoint.EVERY = 0.0
    if (folder / _HUB).exists():
        given = json.loads((folder / _HUB).read_text())
        reference_fingerprints().update(given["fingerprints"])
        fetching.CORPUS_LINES = (_LINES, _LINES + 1)
        huggingface_hub.constants.HF_HUB_OFFLINE = False
        huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = _CHUNK
        os.environ["HF_ENDPOINT"] = given["address"]
