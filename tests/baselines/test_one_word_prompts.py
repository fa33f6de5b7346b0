"""Pretended CoT, Knowledge Enhancement, MetaEOL and Token Prepending, against transcriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from bench.encoder import Encoder, FloatArray, TensorEncoder
from bench.errors import InputError
from bench.method_card import BuildContext, OptionValue
from bench.nn.two_phase_encoding import embed_prepared, prepare_sentences
from bench.registry import discover
from tests.support.architectures import tiny
from tests.support.cli import Cli
from tests.support.training import options_of

SENTENCES = ["A dog runs", 'She said "why?"', "Is it so?", "", "Two children are singing a song.", "a"]
LENGTH = 1024  # the prompts are long


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("decoders")
    return {kind: tiny(kind, root / kind, length=LENGTH) for kind in ("llama", "gpt2")}


def built(name: str, folder: Path, seed: int | None = None, **changes: OptionValue) -> Encoder:
    context = BuildContext(options_of(name, **changes), seed, folder, "cpu")
    encoder = discover().get(name).build(context)
    assert isinstance(encoder, Encoder)
    return encoder


def released(sentence: str) -> str:
    s = sentence
    if len(s) > 0 and s[-1] not in ".?\"'":
        s += "."
    s = s.replace('"', "'")
    return s[:-1] + "." if len(s) > 0 and s[-1] == "?" else s


def state_by_loops(folder: Path, prompt: str, sentence: str, layer: int) -> FloatArray:
    """The released code's own call, of one prompt: hidden_states[layer][:, -1]."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer(prompt.replace("*sent 0*", released(sentence)).strip())["input_ids"]
    with torch.no_grad():
        states = model.eval()(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    return np.asarray(states[layer][0, -1].numpy())


LEAD_INS = {
    "pretended_cot": 'After thinking step by step , this sentence : "*sent 0*" means in one word:"',
    "knowledge_enhancement": "The essence of a sentence is often captured by its main subjects and actions, "
    "while descriptive terms provide additional but less central details. With this in mind , this sentence"
    ' : "*sent 0*" means in one word:"',
}


@pytest.mark.parametrize("name", LEAD_INS)
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_lead_ins_read_the_layer_before_the_last(folders: dict[str, Path], kind: str, name: str) -> None:
    for changes, layer in (({}, -2), ({"output_layer": -1}, -1)):
        vectors = built(name, folders[kind], **changes).encode(SENTENCES)
        for sentence, vector in zip(SENTENCES, vectors, strict=True):
            expected = state_by_loops(folders[kind], LEAD_INS[name], sentence, layer)
            np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=2e-5)


def test_an_inner_layer_may_be_wider(tmp_path: Path) -> None:
    """OPT-350m projects its last states to half the width."""
    folder, names = tiny("opt", tmp_path / "opt", length=LENGTH), ("pretended_cot", "metaeol")
    for layer, width in ((-1, 8), (-2, 16)):
        encoders = [built(name, folder, output_layer=layer) for name in names]
        encoders.append(built("token_prepending", folder, seed=1, start=0, output_layer=layer))
        for encoder in encoders:
            assert encoder.dim == encoder.facts["dim"] == encoder.encode(SENTENCES[:2]).shape[1] == width


def test_a_layer_is_one_of_the_models(folders: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=r"output_layer -9; expected -1 to -\d, the model's layers"):
        built("pretended_cot", folders["llama"], output_layer=-9)


TASKS = [
    "In this task, you're given a statement and you need to determine whether it's presenting an 'Opinion' "
    "or a 'Fact'. This distinction is vital for information verification, educational purposes, and content "
    'analysis. For this task, this sentence : "*sent 0*" discriminates between opinion and fact in one '
    'word:"',
    "In this task, you're examining a news article. Your task is to extract the most critical fact from the "
    'article. For this task, this sentence : "*sent 0*" encapsulates the key fact in one word:"',
]


def test_metaeol_is_the_mean_over_its_prompts(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.baselines import metaeol

    assert len(metaeol.PROMPTS) == 8
    prompts = [task.replace("*sent 0*", "{sentence}") for task in TASKS]
    assert set(prompts) < set(metaeol.PROMPTS)
    monkeypatch.setattr(metaeol, "PROMPTS", tuple(prompts))
    encoder = built("metaeol", folders["gpt2"])
    done: list[int] = []
    vectors = encoder.encode(SENTENCES, progress=done.append)
    assert sum(done) == len(SENTENCES)
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        states = [state_by_loops(folders["gpt2"], task, sentence, -1) for task in TASKS]
        np.testing.assert_allclose(vector, np.mean(states, axis=0), rtol=1e-4, atol=2e-5)
    assert isinstance(encoder, TensorEncoder)
    halves = embed_prepared(encoder, prepare_sentences(encoder, SENTENCES))
    np.testing.assert_allclose(halves.numpy(), vectors, rtol=1e-4, atol=2e-5)


def prepended_by_loops(
    folder: Path,
    sentence: str,
    start: int,
    end: int,
    layer: int,
    vector: torch.Tensor,
    prompt: str = 'This sentence : <PST> "*sent 0*" means in one word:"',
) -> FloatArray:
    """Fu et al.'s forward pass of one prompt, layer by layer, in a Llama."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<PST>"])
    mark = tokenizer.convert_tokens_to_ids("<PST>")
    model: Any = AutoModel.from_pretrained(folder).eval()
    model.resize_token_embeddings(len(tokenizer))
    with torch.no_grad():
        model.embed_tokens.weight[mark] = vector
        text = prompt.replace("*sent 0*", released(sentence))
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        place = int((ids[0] == mark).nonzero()[0])
        states = model.embed_tokens(ids)
        positions = torch.arange(ids.shape[1])[None]
        rotary = model.rotary_emb(states, positions)
        every = []
        for index, block in enumerate(model.layers):
            every.append(states)
            if start <= index < end:
                states = states.clone()
                states[:, place] = states[:, -1].clone()
            states = block(states, position_embeddings=rotary, position_ids=positions)
        every.append(model.norm(states))
    return np.asarray(every[layer][0, -1].numpy())


@pytest.mark.parametrize(("start", "end", "layer"), [(1, 7, -1), (0, 1, -1), (0, 2, -2), (1, 2, -1)])
def test_the_last_state_is_put_before_the_sentence(
    folders: dict[str, Path], start: int, end: int, layer: int
) -> None:
    encoder: Any = built(
        "token_prepending", folders["llama"], seed=3, start=start, end=end, output_layer=layer
    )
    vector = torch.randn(encoder.dim, generator=torch.Generator().manual_seed(3))
    vectors = encoder.encode(SENTENCES)
    for sentence, own in zip(SENTENCES, vectors, strict=True):
        expected = prepended_by_loops(folders["llama"], sentence, start, end, layer, vector)
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=2e-5)


PREPENDED = {
    "pretended_cot": ['After thinking step by step , this sentence : <PST> "*sent 0*" means in one word:"'],
    "knowledge_enhancement": [LEAD_INS["knowledge_enhancement"].replace('"*sent', '<PST> "*sent')],
    "metaeol": [task.replace('"*sent', '<PST> "*sent') for task in TASKS],
}
"""Of evaluate.py (cc41b58), plan tp: cot, ke, and two of metaeol's eight."""


@pytest.mark.parametrize("prompt", PREPENDED)
def test_the_prompts_of_token_prepending(
    folders: dict[str, Path], prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.baselines import token_prepending

    assert len(token_prepending._PROMPTS["metaeol"]) == 8
    plain = tuple(task.replace("*sent 0*", "{sentence}") for task in TASKS)
    assert set(plain) < set(token_prepending._PROMPTS["metaeol"])
    monkeypatch.setitem(token_prepending._PROMPTS, "metaeol", plain)
    encoder: Any = built("token_prepending", folders["llama"], seed=3, prompt=prompt, start=0, end=2)
    assert (encoder.facts.get("templates") == 2) is (prompt == "metaeol")
    vector = torch.randn(encoder.dim, generator=torch.Generator().manual_seed(3))
    vectors = encoder.encode(SENTENCES)
    for sentence, own in zip(SENTENCES, vectors, strict=True):
        states = [
            prepended_by_loops(folders["llama"], sentence, 0, 2, -2, vector, text)
            for text in PREPENDED[prompt]
        ]
        np.testing.assert_allclose(own, np.mean(states, axis=0), rtol=1e-4, atol=2e-5)


def test_the_seed_draws_the_placeholder(folders: dict[str, Path]) -> None:
    one, again, other = (
        built("token_prepending", folders["llama"], seed=seed, output_layer=-1).encode(SENTENCES)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one, again)
    assert not np.allclose(one, other)


def test_the_placeholder_in_a_sentence_changes_no_other_place(folders: dict[str, Path]) -> None:
    encoder = built("token_prepending", folders["llama"], seed=1, output_layer=-1)
    vectors = encoder.encode(["A <PST> dog", "A dog"])
    assert np.isfinite(vectors).all()
    assert not np.allclose(vectors[0], vectors[1])


def test_a_model_stays_as_it_was(folders: dict[str, Path]) -> None:
    from bench.nn.backbone import load_backbone
    from bench.nn.decoders import OneWordEncoder, PrependedEncoder

    loaded = load_backbone(folders["llama"])
    plain = OneWordEncoder(loaded)
    before = plain.encode(SENTENCES)
    template = 'This sentence : <PST> "{sentence}" means in one word:"'
    PrependedEncoder(loaded, [template], start=0, end=2, seed=1).encode(SENTENCES)
    assert np.array_equal(plain.encode(SENTENCES), before)
    with pytest.raises(InputError, match="no single <PST> before"):
        PrependedEncoder(loaded, [template, '"{sentence}" <PST>:'], start=0, end=2, seed=1)
    for start, layer, last in ((50, -1, 1), (2, -1, 1), (1, -2, 0)):
        with pytest.raises(InputError, match=rf"start {start}: the model has 2 layers.* expected .*{last}$"):
            PrependedEncoder(loaded, [template], start=start, end=60, seed=1, layer=layer)
    with pytest.raises(InputError, match="start 2 and end 2"):
        PrependedEncoder(loaded, [template], start=2, end=2, seed=1)


@pytest.mark.parametrize(
    ("method", "slow"),
    [
        ("metaeol:{}", True),
        ("token_prepending:{}[prompt=metaeol,output_layer=-1]", True),
        ("token_prepending:{}[output_layer=-1]", False),
        ("prompteol:{}", False),
    ],
)
def test_a_dry_run_says_that_eight_prompts_take_long(
    cli: Cli, folders: dict[str, Path], method: str, slow: bool
) -> None:
    rows = ("--methods", method.format(folders["llama"]), "--seeds", "1")
    code, out, err = cli("run", *rows, "--suite", "toy", "--dry-run", as_is=True)
    assert code == 0, err
    assert ("20 to 30 times" in out) == slow
