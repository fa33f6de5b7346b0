"""Model2Vec's folders: as st:PATH, against its formula, and refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from bench.encoder import Encoder
from bench.errors import InputError
from bench.method_card import BuildContext
from bench.nn.encoder_folder import export_encoder
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.nn.static_encoder import StaticEncoder, is_model2vec
from bench.probes.cost import table_parameters
from bench.registry import discover
from tests.support.cli import Cli
from tests.support.training import toy_sentences

UNKNOWN = "[UNK]"
WORDS = ("[PAD]", UNKNOWN, "cat", "dog", "the", "runs")
TEXT = ["the cat runs", "", "the xyz dog", "xyz", "dog"]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(
        rows: int = 6, dtype: str = "float32", config: Any = None, words: Any = WORDS, **tensors: Any
    ) -> Path:
        folder = tmp_path / "model2vec"
        folder.mkdir(exist_ok=True)
        tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = Whitespace()
        tokenizer.enable_truncation(2)  # which Model2Vec's mean of whole sentences doesn't want
        tokenizer.save(str(folder / "tokenizer.json"))
        table = np.random.default_rng(1).normal(size=(rows, 4)) * 20
        save_file({"embeddings": table.astype(dtype), **tensors}, folder / "model.safetensors")
        said = {"normalize": True, "hidden_dim": 4} if config is None else config
        (folder / "config.json").write_text(json.dumps(said))
        return folder

    return made


def loaded(folder: Path) -> Encoder:
    encoder = discover().get("st").build(BuildContext({}, None, folder, "cpu"))
    assert isinstance(encoder, Encoder)
    return encoder


def by_loops(table: np.ndarray, normalize: bool) -> np.ndarray:
    rows = []
    for text in TEXT:
        known = [table[WORDS.index(word)] for word in text.split() if word in WORDS]
        mean = np.mean(known, axis=0) if known else np.zeros(4)
        rows.append(mean / (np.linalg.norm(mean) + 1e-32) if normalize else mean)
    return np.stack(rows)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("normalize", [True, False, None])
def test_a_plain_folder_is_read_as_by_model2vec(write: Write, dtype: str, normalize: bool | None) -> None:
    folder = write(dtype=dtype, config={} if normalize is None else {"normalize": normalize})
    table = (np.random.default_rng(1).normal(size=(6, 4)) * 20).astype(dtype).astype(np.float64)
    assert is_model2vec(folder)
    assert loaded(folder).dim == 4
    expected = by_loops(table, bool(normalize))
    np.testing.assert_allclose(loaded(folder).encode(TEXT), expected, rtol=0, atol=1e-5)


def test_a_quantised_vocabulary(write: Write) -> None:
    mapping, weights = np.array([0, 0, 2, 1, 2, 0]), np.array([1, 1, 0.5, 2, 0.1, 3])
    folder = write(3, mapping=mapping, weights=weights)
    small = np.random.default_rng(1).normal(size=(3, 4)) * 20
    expected = by_loops(small[mapping] * weights[:, None], normalize=True)
    assert table_parameters(loaded(folder)) == 24
    np.testing.assert_allclose(loaded(folder).encode(TEXT), expected, rtol=0, atol=1e-6)


def test_a_folder_with_modules_runs_as_sentence_transformers_runs_it(write: Write) -> None:
    folder = write()
    plain = loaded(folder).encode(["the cat runs"])
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for idx, (path, kind) in enumerate(((".", "StaticEmbedding"), ("1_Normalize", "Normalize")))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    encoder = loaded(folder)
    assert isinstance(encoder, SentenceTransformerEncoder)
    assert table_parameters(encoder) == 24
    assert encoder.encode(["the cat runs"]).shape == plain.shape == (1, 4)


OUTSIDE = "mapping .* out of the table"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": 4}, r"shape \(4, 4\); .* 6 or more"),
        *(({"mapping": np.array([0, 1, 2, 3, 4, last])}, OUTSIDE) for last in (6, -1, 0.5)),
        ({"weights": np.ones(5)}, "5 weights for 6 tokens"),
        ({"weights": np.array([1, 1, np.nan, 1, 1, 1])}, "not finite"),
        ({"config": {"normalize": "yes"}}, "normalize 'yes'; expected true or false"),
        ({"config": []}, "config.json is damaged"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(write: Write, given: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(InputError, match=f"model2vec.*{message}"):
        loaded(write(**given))


def test_damaged_files_and_a_run_of_one(write: Write, cli: Cli) -> None:
    words = dict.fromkeys((*WORDS, *(word for s in toy_sentences() for word in re.findall(r"\w+", s))))
    folder = write(len(words), config={"model_type": "model2vec"}, words=tuple(words))
    code, out, err = cli("run", "--methods", f"st:{folder}", "--suite", "toy")
    assert code == 0, err
    assert "model2vec-" in out
    with pytest.raises(InputError, match="copy its folder"):
        export_encoder(loaded(folder), folder.parent / "out", "")
    for file, content in (("tokenizer.json", b"{}"), ("model.safetensors", b"\x80\x04pickle")):
        (folder / file).write_bytes(content)
        with pytest.raises(InputError, match=rf"model2vec: {file} can't be"):
            loaded(folder)


def test_progress_and_batches_change_nothing() -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = Whitespace()
    encoder = StaticEncoder(tokenizer, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), normalize=False)
    seen: list[int] = []
    vectors = encoder.encode(["a b", "b"] * 700, 3, seen.append)
    assert seen == [1024, 376]
    assert vectors.tolist() == [[0.5, 0.5], [0.0, 1.0]] * 700
    assert encoder.encode([]).shape == (0, 2)
