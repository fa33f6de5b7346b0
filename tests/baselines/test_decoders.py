"""PromptEOL and echo embeddings, against transcriptions of the papers and of the released code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from bench.encoder import Encoder, FloatArray
from bench.errors import InputError
from bench.method_card import BuildContext, OptionValue
from bench.nn.decoders import EchoEncoder, OneWordEncoder
from bench.registry import discover
from tests.support.architectures import tiny
from tests.support.training import options_of

KINDS = ("gpt2", "llama", "opt")
SENTENCES = [
    "A dog runs",
    'She said "why?"',
    "Is it so?",
    "",
    "Two children are singing a song.",
    "a",
    'An "a"',
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("decoders")
    return {kind: tiny(kind, root / kind) for kind in KINDS}


def built(name: str, folder: Path, **changes: OptionValue) -> Encoder:
    encoder = discover().get(name).build(BuildContext(options_of(name, **changes), None, folder, "cpu"))
    assert isinstance(encoder, Encoder)
    return encoder


def one_word_by_loops(folder: Path, sentence: str, form: str) -> FloatArray:
    """Jiang et al.'s evaluation of one sentence: the causal model's own last hidden state, no batch."""
    s = sentence
    if form == "released":
        if len(s) > 0 and s[-1] not in ".?\"'":
            s += "."
        s = s.replace('"', "'")
        if len(s) > 0 and s[-1] == "?":
            s = s[:-1] + "."
    text = 'This sentence : "' + s + '" means in one word:"'
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer(text)["input_ids"]
    ids = ids[:-1] if ids[-1] == 1 else ids  # OPT's here ends with </s>, the prompt does not
    with torch.no_grad():
        states = model.eval()(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    return np.asarray(states[-1][0, -1].numpy())


@pytest.mark.parametrize("form", ["released", "paper"])
@pytest.mark.parametrize("kind", KINDS)
def test_prompteol_is_the_state_behind_the_prompt(folders: dict[str, Path], kind: str, form: str) -> None:
    vectors = built("prompteol", folders[kind], form=form).encode(SENTENCES)
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        expected = one_word_by_loops(folders[kind], sentence, form)
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=2e-5)


def echo_by_loops(folder: Path, sentence: str, pooling: str) -> FloatArray:
    """Springer et al.: pieces tokenised one by one, a mask on the second sentence, one row."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    ids = [] if "gpt2" in folder.name else [0]
    for text in ("Rewrite the sentence:", f" {sentence}", ", rewritten sentence:", f" {sentence}"):
        piece = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = ids + piece
    with torch.no_grad():
        states = model(input_ids=torch.tensor([ids])).last_hidden_state[0, len(ids) - len(piece) :]
    return np.asarray((states[-1] if pooling == "last" else states.mean(0)).numpy())


@pytest.mark.parametrize("pooling", ["avg", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_echo_is_of_the_second_time(folders: dict[str, Path], kind: str, pooling: str) -> None:
    vectors = built("echo", folders[kind], pooling=pooling).encode(short := SENTENCES[:4])
    for sentence, vector in zip(short, vectors, strict=True):
        expected = echo_by_loops(folders[kind], sentence, pooling)
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=2e-5)


def test_what_follows_the_second_time_is_not_pooled(folders: dict[str, Path]) -> None:
    template = "One: {sentence} Two: {sentence}"
    for pooling in ("avg", "last"):
        plain, more = (
            built("echo", folders["llama"], pooling=pooling, template=text).encode(SENTENCES[:4])
            for text in (template, f"{template} end")
        )
        np.testing.assert_allclose(more, plain, atol=2e-5)


def test_a_long_sentence_is_cut_and_the_prompt_is_not(folders: dict[str, Path]) -> None:
    long = "a " * 90 + "b"
    one, echo = OneWordEncoder(folders["llama"]), EchoEncoder(folders["llama"])
    for encoder in (one, echo):
        (row,) = encoder.token_ids([long])
        assert 62 <= len(row) <= encoder.max_length == 64
    text = one.tokenizer.decode(one.token_ids([long])[0])
    assert text.startswith('<s>This sentence : "a a')
    assert text.endswith('a" means in one word:"') or text.endswith('a " means in one word:"')
    assert one.tokenizer.decode(echo.token_ids([long])[0]).count("a a a") >= 2


def test_what_cant_be_used_is_one_clear_line(folders: dict[str, Path], tiny_bert: Path) -> None:
    for kind, good in ((OneWordEncoder, "{sentence}:"), (EchoEncoder, " {sentence} and {sentence}")):
        with pytest.raises(InputError, match="expected a causal decoder"):
            kind(tiny_bert)
        with pytest.raises(InputError, match=r"0 times; expected (once|twice)"):
            kind(folders["gpt2"], "nothing")
        with pytest.raises(InputError, match=r"takes \d+ tokens of 64; expected room for a sentence"):
            kind(folders["gpt2"], "x" * 70 + good)
    with pytest.raises(InputError, match="a blank before only one"):
        EchoEncoder(folders["gpt2"], "A: {sentence}, B:{sentence}")
