"""What makes a run fast, and that it changes nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.nn.backbone import TokenRows, load_backbone, tokenize_rows

ROOT = Path(__file__).parents[2]
TEXT = ["The doctor is reading a book.", "a", "", "Two children are singing a song on the hill."]


@pytest.mark.parametrize("max_length", [4, 40])
def test_token_rows_are_made_when_they_are_asked_for(tiny_bert: Path, max_length: int) -> None:
    _, tokenizer = load_backbone(tiny_bert)
    asked: list[str] = []

    def counting(sentences: list[str], **options: Any) -> Any:
        asked.extend(sentences)
        return tokenizer(sentences, **options)

    rows, numbered = (TokenRows(counting, TEXT, max_length, numbered=flag) for flag in (False, True))
    whole = tokenize_rows(tokenizer, TEXT, max_length)
    assert (len(rows), asked) == (4, [])
    assert rows[3] == whole[3]
    assert asked == [TEXT[3]]
    assert [rows[index] for index in range(4)] == whole
    assert [numbered[index] for index in range(4)] == list(enumerate(whole))


_FAULTS = """
import ctypes, resource
from bench.nn.device import keep_freed_memory

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
SIZE = 64 << 20

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = library.malloc(SIZE)
    ctypes.memset(block, 1, SIZE)
    library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
before = faults()
kept = keep_freed_memory()
faults()
print(int(kept), before, faults())
"""


def test_a_freed_block_is_found_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS], capture_output=True, text=True, timeout=60, check=True
    )
    kept, before, after = map(int, done.stdout.split())
    assert not kept or after < before / 10


def test_the_probes_dont_load_sentence_transformers() -> None:
    body = ast.parse((ROOT / "bench/nn/sentence_transformer.py").read_text()).body
    imported = {node.module for node in body if isinstance(node, ast.ImportFrom)}
    assert "bench.nn.st_modules" in imported
    assert "sentence_transformers" not in imported
