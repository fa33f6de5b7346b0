"""Exported encoders: the same vectors from every loader, whole folders or none, nothing hostile believed."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

import bench
from bench.data.toy import make_toy_task
from bench.encoder import Encoder, FloatArray, PromptedEncoder
from bench.errors import BenchError, DataError, InputError
from bench.execution.model_card import escape_all_markdown
from bench.nn import encoder_folder as module
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.decoders import EchoEncoder, OneWordEncoder
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.nn.model_folder import hash_model
from bench.nn.prefix import PrefixedEncoder
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.nn.sum_encoder import SumEncoder
from bench.registry import discover
from tests.support.architectures import tiny
from tests.support.cli import Cli

SENTENCES = [
    "The doctor is reading a book.",
    "",
    "a",
    "Two children are singing a song on the hill.",
    "the doctor is reading a book on the hill " * 20,
]
CARD = "# A card\n"


@pytest.fixture(scope="module")
def second_bert(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny BERT with other weights and another vocabulary: ids behind the specials reversed."""
    model, tokenizer = load_backbone(tiny_bert)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)
    folder = tmp_path_factory.mktemp("second") / "bert"
    model.save_pretrained(folder)
    words = [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    order = words[:5] + words[:4:-1]
    vocabulary = {word: position for position, word in enumerate(order)}
    type(tokenizer)(vocab=vocabulary, do_lower_case=True, model_max_length=40).save_pretrained(folder)
    return folder


def twin(*folders: Path, weights: tuple[float, ...] | None = None) -> SumEncoder:
    return SumEncoder([TransformerEncoder(folder, "cls") for folder in folders], weights)


def check_equal(found: FloatArray, expected: FloatArray) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def front(folder: Path) -> list[str]:
    """Lines of the front matter; it must be the first thing in the file."""
    _, matter, _ = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    return matter.splitlines()


def known(encoder: Encoder) -> dict[str, Any]:
    """Its facts without its size: the pooler, which nothing reads, is not exported."""
    return {name: value for name, value in encoder.facts.items() if name != "parameters"}


# one transformer


@pytest.mark.parametrize("pooling", ["cls", "avg"])
def test_every_loader_gives_the_same_vectors(tiny_bert: Path, tmp_path: Path, pooling: str) -> None:
    encoder = TransformerEncoder(tiny_bert, pooling)
    expected = encoder.encode(SENTENCES)
    export_encoder(encoder, tmp_path / "out", CARD)
    loaded = bench.load(str(tmp_path / "out"))
    assert isinstance(loaded, Encoder)
    assert known(loaded) == {**known(encoder), "pooling_from": "bench.json"}
    check_equal(loaded.encode(SENTENCES), expected)

    other = SentenceTransformer(str(tmp_path / "out"), device="cpu", local_files_only=True)
    assert other.max_seq_length == 40
    alone = encoder.encode(SENTENCES, batch_tokens=1)  # padding moves the last digits
    check_equal(other.encode(SENTENCES, batch_size=1), alone)

    model = AutoModel.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = tokenizer(SENTENCES[0], truncation=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state[0]
    check_equal((states[0] if pooling == "cls" else states.mean(0)).numpy(), alone[0])
    assert len(tokenizer(SENTENCES[4], truncation=True)["input_ids"]) == 40


@pytest.mark.parametrize("pooling", ["avg_first_last", "avg_last_two", "pooler", "mask"])
def test_poolings_that_sentence_transformers_has_not(tiny_bert: Path, tmp_path: Path, pooling: str) -> None:
    encoder = TransformerEncoder(tiny_bert, pooling, first_layer="layer1")
    export_encoder(encoder, tmp_path / "out", CARD)
    assert not (tmp_path / "out" / "modules.json").exists()
    check_equal(load_encoder(tmp_path / "out").encode(SENTENCES), encoder.encode(SENTENCES))
    settings = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert (settings["pooling"], settings["first_layer"]) == (pooling, "layer1")
    assert "silently take the mean" in (tmp_path / "out" / "README.md").read_text()
    assert "library_name: transformers" in front(tmp_path / "out")


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize(("kind", "pooling"), [("gpt2", "last"), ("llama", "weighted_mean"), ("t5", "avg")])
def test_decoders_and_prompts_in_every_loader(
    tmp_path: Path, kind: str, pooling: str, prompted: bool
) -> None:
    """A tokenizer without padding gets one, one that pads on the left pads on the right."""
    encoder: Any = TransformerEncoder(tiny(kind, tmp_path / kind), pooling)
    if prompted:
        encoder = PrefixedEncoder(encoder, 'an "', "query: ", "")
    export_encoder(encoder, tmp_path / "out", CARD)
    loaded: Any = load_encoder(tmp_path / "out")
    other: Any = SentenceTransformerEncoder(tmp_path / "out")
    check_equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    np.testing.assert_allclose(other.encode(SENTENCES), encoder.encode(SENTENCES), rtol=1e-4, atol=1e-6)
    if not prompted:
        assert not isinstance(loaded, PromptedEncoder)
        return
    found: object = loaded
    assert isinstance(found, PromptedEncoder)
    assert loaded.facts == {**encoder.facts, "pooling_from": "bench.json", "prompt_from": "bench.json"}
    assert other.facts["prompt"] == encoder.facts["prompt"]
    for side in ("query", "document"):
        expected = encoder.encode_as(SENTENCES, side)
        assert np.abs(expected - encoder.encode(SENTENCES)).max() > 0.01
        check_equal(loaded.encode_as(SENTENCES, side), expected)
        np.testing.assert_allclose(other.encode_as(SENTENCES, side), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("made", [OneWordEncoder, EchoEncoder])
def test_templates_around_a_sentence_are_refused(tmp_path: Path, made: Any) -> None:
    encoder = made(tiny("gpt2", tmp_path / "gpt2"))
    with pytest.raises(InputError, match=r"can't keep the template '.*\{sentence\}.*' around a sentence"):
        export_encoder(encoder, tmp_path / "out", CARD)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("template", ["{mask} of {sentence}", "{sentence} means {mask}", "{sentence}{mask}."])
def test_a_template_of_ones_own(tiny_bert: Path, tmp_path: Path, template: str) -> None:
    encoder = TransformerEncoder(tiny_bert, "mask", template=template)
    export_encoder(encoder, tmp_path / "out", CARD)
    loaded = load_encoder(tmp_path / "out")
    assert isinstance(loaded, TransformerEncoder)
    assert loaded.token_ids(SENTENCES) == encoder.token_ids(SENTENCES)


def test_the_files(tiny_bert: Path, tmp_path: Path) -> None:
    encoder = TransformerEncoder(tiny_bert, "cls")
    export_encoder(encoder, tmp_path / "one", CARD)
    encoder.encode(SENTENCES)
    (tmp_path / "two").mkdir()  # an empty folder is taken
    export_encoder(encoder, tmp_path / "two", CARD)
    files = {p.relative_to(tmp_path / "one"): p for p in (tmp_path / "one").rglob("*") if p.is_file()}
    settings = ("1_Pooling/config", "bench", "config", "modules", "sentence_bert_config")
    others = ("README.md", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    assert {str(name) for name in files} == {*(f"{name}.json" for name in settings), *others}
    for name, path in files.items():
        assert path.read_bytes() == (tmp_path / "two" / name).read_bytes(), name
        assert str(tiny_bert.parent).encode() not in path.read_bytes(), name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "two"]
    assert len({path.stat().st_mode for path in files.values()}) == 1  # who may read one may read all
    assert (tmp_path / "one").stat().st_mode == (tmp_path / "one" / "1_Pooling").stat().st_mode
    assert json.loads((tmp_path / "one" / "bench.json").read_text()) == {
        "schema": 1,
        "kind": "transformer",
        "pooling": "cls",
        "first_layer": "embedding",
        "template": None,
        "max_length": 40,
        "dim": 16,
    }
    assert CARD in (tmp_path / "one" / "README.md").read_text()
    assert "library_name: sentence-transformers" in front(tmp_path / "one")


def test_an_unused_pooler_is_left_out(tiny_bert: Path, tmp_path: Path) -> None:
    export_encoder(TransformerEncoder(tiny_bert, "cls"), tmp_path / "cls", CARD)
    assert not any("pooler" in name for name in load_file(tmp_path / "cls" / "model.safetensors"))
    with pytest.raises(InputError, match="has no pooler weights"):
        TransformerEncoder(tmp_path / "cls", "pooler")


@pytest.mark.parametrize("pooling", ["avg", "mask"])
def test_roberta_keeps_its_longest_input(tiny_roberta: Path, tmp_path: Path, pooling: str) -> None:
    """Positions start behind the padding id, and the tokenizer knows no longest input."""
    folder = shutil.copytree(tiny_roberta, tmp_path / "roberta")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["model_max_length"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    encoder = TransformerEncoder(folder, pooling)
    export_encoder(encoder, tmp_path / "out", CARD)
    loaded = load_encoder(tmp_path / "out")
    assert loaded.facts["max_length"] == encoder.max_length == 40
    check_equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")("a " * 99, truncation=True)["input_ids"]) == 40
    if pooling == "avg":
        other = SentenceTransformer(str(tmp_path / "out"), device="cpu", local_files_only=True)
        assert other.max_seq_length == 40
        check_equal(other.encode([SENTENCES[4]])[0], encoder.encode([SENTENCES[4]])[0])


def test_a_shorter_longest_input_survives(tiny_bert: Path, tmp_path: Path) -> None:
    encoder = TransformerEncoder(tiny_bert, "avg")
    encoder.max_length = 12
    export_encoder(encoder, tmp_path / "out", CARD)
    check_equal(load_encoder(tmp_path / "out").encode(SENTENCES), encoder.encode(SENTENCES))
    other = SentenceTransformer(str(tmp_path / "out"), device="cpu", local_files_only=True)
    check_equal(other.encode([SENTENCES[4]])[0], encoder.encode([SENTENCES[4]])[0])


# sums


def test_a_sum_is_the_sum(tiny_bert: Path, second_bert: Path) -> None:
    one, two = TransformerEncoder(tiny_bert, "cls"), TransformerEncoder(second_bert, "avg")
    assert one.token_ids(SENTENCES) != two.token_ids(SENTENCES)  # each reads with its own tokenizer
    both = SumEncoder([one, two])
    assert isinstance(both, Encoder)
    a, b = one.encode(SENTENCES), two.encode(SENTENCES)
    np.testing.assert_array_equal(both.encode(SENTENCES), a + b)
    weighted = SumEncoder([one, two], [0.25, -2])
    np.testing.assert_array_equal(weighted.encode(SENTENCES), np.float32(0.25) * a - 2 * b)
    assert both.facts == {"parts": 2, **one.facts, "pooling": "cls+avg"}
    assert weighted.facts["weights"] == "0.25+-2"
    assert both.encode([]).shape == (0, 16)
    assert both.dim == 16


def test_sums_within_sums(tiny_bert: Path, second_bert: Path) -> None:
    one, two = TransformerEncoder(tiny_bert, "cls"), TransformerEncoder(second_bert, "cls")
    union = SumEncoder([SumEncoder([one, two]), one], [0.75, 0.25])
    assert union.parts == (one, two, one)
    assert union.weights == (0.75, 0.75, 0.25)
    expected = one.encode(SENTENCES) + np.float32(0.75) * two.encode(SENTENCES)
    np.testing.assert_allclose(union.encode(SENTENCES), expected, rtol=0, atol=1e-6)


def test_a_sums_progress_counts_every_sentence_once(tiny_bert: Path, second_bert: Path) -> None:
    for parts in (2, 3):
        folders = (tiny_bert, second_bert, tiny_bert)[:parts]
        told: list[int] = []
        twin(*folders).encode(SENTENCES, batch_tokens=1, progress=told.append)
        assert sum(told) == len(SENTENCES)
        assert all(count > 0 for count in told)
        assert len(told) > 1


def test_a_sum_refuses_what_cant_be_added(tiny_bert: Path) -> None:
    encoder = TransformerEncoder(tiny_bert, "cls")
    wider = TransformerEncoder(tiny_bert, "cls")
    wider.dim = 17
    with pytest.raises(InputError, match=r"embeddings of 16 and 17 dimensions can't be added"):
        SumEncoder([encoder, wider])
    with pytest.raises(InputError, match=r"a sum of 1 encoder\(s\); expected at least two"):
        SumEncoder([encoder])
    for weights in ([1.0], [1.0, 2.0, 3.0], [float("nan"), 1.0], [float("inf"), 1.0], [0.0, 0.0]):
        with pytest.raises(InputError, match=r"weights \[.*; expected 2 finite numbers"):
            SumEncoder([encoder, encoder], weights)


@pytest.mark.parametrize("weights", [None, (0.7, 0.3)])
def test_a_twin_comes_back(
    tiny_bert: Path, second_bert: Path, tmp_path: Path, weights: tuple[float, ...] | None
) -> None:
    encoder = twin(tiny_bert, second_bert, weights=weights)
    export_encoder(encoder, tmp_path / "out", CARD)
    loaded = bench.load(tmp_path / "out")
    assert isinstance(loaded, SumEncoder)
    assert loaded.weights == encoder.weights
    assert known(loaded) == {**known(encoder), "pooling_from": "bench.json"}
    check_equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["README.md", "part-1", "part-2", "twin.json"]
    text = (tmp_path / "out" / "README.md").read_text()
    assert ("1 x part-1 + 1 x part-2" if weights is None else "0.7 x part-1 + 0.3 x part-2") in text
    assert "library_name: cse-bench" in front(tmp_path / "out")
    part = SentenceTransformer(str(tmp_path / "out" / "part-2"), device="cpu", local_files_only=True)
    check_equal(part.encode(SENTENCES[:1]), encoder.parts[1].encode(SENTENCES[:1]))
    check_equal(
        load_encoder(tmp_path / "out" / "part-1").encode(SENTENCES), encoder.parts[0].encode(SENTENCES)
    )


# folders that are there, writes that fail, encoders that don't fit


def test_a_used_folder_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("text")
    (tmp_path / "file").write_text("text")
    for name in ("out", "file"):
        with pytest.raises(InputError, match=r"--out .*: the folder is not empty; expected a new folder"):
            export_encoder(TransformerEncoder(tiny_bert, "cls"), tmp_path / name, CARD)
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))
    assert left == ["file", "out", "out/precious"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["_write_json", "_write_sentence_transformers", "_check_reloaded"])
def test_a_failed_write_leaves_nothing(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(module, step, fail)
    expected = BenchError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        export_encoder(TransformerEncoder(tiny_bert, "cls"), tmp_path / "new" / "out", CARD)
    if isinstance(error, OSError):
        assert str(caught.value).endswith("out: the export can't be written: No space left on device")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_folder_that_cant_be_written_is_one_line(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchError, match="the export can't be written: "):
        export_encoder(TransformerEncoder(tiny_bert, "cls"), tmp_path / "file" / "out", CARD)


def test_an_encoder_that_its_files_dont_determine_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    changed = TransformerEncoder(tiny_bert, "cls")
    changed.model.encoder.layer[1].register_forward_hook(lambda _module, _args, output: output * 2)
    with pytest.raises(
        InputError, match=r"reloading it changes its vectors by .*; its files don't determine"
    ):
        export_encoder(changed, tmp_path / "out", CARD)
    without = TransformerEncoder(tiny_bert, "cls")
    without.model.encoder.layer[2].output.LayerNorm = torch.nn.Identity()
    with pytest.raises(InputError, match=r"can't be exported: 2 weight\(s\) are missing"):
        export_encoder(SumEncoder([without, without]), tmp_path / "out", CARD)
    assert list(tmp_path.iterdir()) == []


class Constant:
    dim = 16
    facts: dict[str, str | int] = {}  # noqa: RUF012

    def encode(self, sentences: Any, batch_tokens: int | None = None, progress: Any = None) -> FloatArray:
        return np.ones((len(sentences), 16), dtype=np.float32)


def test_other_kinds_of_encoders_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    for encoder in (Constant(), SumEncoder([TransformerEncoder(tiny_bert, "cls"), Constant()])):
        with pytest.raises(InputError, match="an encoder of the kind Constant can't be exported; expected a"):
            export_encoder(encoder, tmp_path / "out", CARD)
    assert list(tmp_path.iterdir()) == []


# damaged and hostile folders


@pytest.fixture(scope="module")
def exported(tiny_bert: Path, second_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    export_encoder(TransformerEncoder(tiny_bert, "cls"), folder / "one", CARD)
    export_encoder(twin(tiny_bert, second_bert), folder / "twin", CARD)
    return folder


BENCH_DAMAGES: list[tuple[dict[str, Any], str]] = [
    ({"schema": 2}, "schema 2; expected schema 1; another bench wrote it: upgrade cse-bench"),
    ({"schema": True}, "schema True; expected schema 1"),
    ({"schema": None}, "schema None; expected schema 1"),
    ({"kind": "sum"}, "kind 'sum'; expected kind 'transformer'"),
    ({"pooling": "max"}, "pooling 'max'; expected one of cls, avg"),
    ({"pooling": ["cls"]}, "pooling ['cls']; expected a value of its type"),
    ({"pooling": "mask"}, "template None; expected text for pooling 'mask'"),
    ({"template": "{sentence}{mask}"}, "template '{sentence}{mask}'; expected text for pooling 'mask'"),
    ({"pooling": "mask", "template": "\ud800"}, "template '\\ud800'; expected text"),
    ({"pooling": "mask", "template": "{sentence}"}, "the template '{sentence}' can't be used"),
    ({"pooling": "pooler"}, "the checkpoint has no pooler weights"),
    ({"first_layer": "layer9"}, "first_layer 'layer9'; expected one of embedding, layer1"),
    ({"max_length": 41}, "max_length 41; expected 40, as model and tokenizer say"),
    ({"max_length": "\x1b[2J"}, "max_length '\\x1b[2J'; expected a value of its type"),
    ({"dim": True}, "dim True; expected a value of its type"),
    ({"dim": 15}, "dim 15; expected 16, as model and tokenizer say"),
    ({"code": "x"}, "fields ['code', 'dim', "),
    ({"prompts": {"": "a"}}, "prompts {'': 'a'}; expected a text for each of '', 'query' and 'document'"),
    ({"prompts": {"": 1, "query": "", "document": ""}}, "expected a text for each of"),
    ({"prompts": None}, "prompts None; expected a value of its type"),
]
TWIN_DAMAGES: list[tuple[dict[str, Any], str]] = [
    ({"schema": "1"}, "schema '1'; expected schema 1"),
    ({"kind": "transformer"}, "kind 'transformer'; expected kind 'sum'"),
    ({"parts": ["part-1", "../one"]}, "parts ['part-1', '../one']; expected the names"),
    ({"parts": ["part-1", ".."]}, "parts ['part-1', '..']"),
    ({"parts": ["part-1", "."]}, "parts ['part-1', '.']"),
    ({"parts": ["part-1", "part-1/../../one"]}, "expected the names"),
    ({"parts": ["part-1", "/part-1"]}, "parts ['part-1', '/part-1']"),
    ({"parts": ["part-1", "part-2\n"]}, "expected the names"),
    ({"parts": ["part-1", ""]}, "parts ['part-1', '']"),
    ({"parts": ["part-1", 2]}, "parts ['part-1', 2]"),
    ({"parts": ["part-1", "link"]}, "part 'link' leads out of the folder"),
    ({"parts": ["part-1", "part-9"]}, "part-9/bench.json: it can't be read; expected JSON"),
    ({"parts": ["part-1"], "weights": [1.0]}, "parts ['part-1']"),
    ({"parts": "part-1"}, "parts 'part-1'; expected a value of its type"),
    ({"parts": ["x" * 5000, "y"]}, "..."),
    ({"weights": [1.0]}, "weights [1.0]; expected a finite number for each part"),
    ({"weights": [1.0, True]}, "weights [1.0, True]"),
    ({"weights": [1.0, float("nan")]}, "weights [1.0, nan]"),
    ({"weights": [1.0, 10**400]}, "weights [1.0, 1000"),
    ({"weights": [0, 0]}, "weights [0.0, 0.0]"),
    ({"trust_remote_code": True}, "fields ['kind', "),
]


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [*(("one", *case) for case in BENCH_DAMAGES), *(("twin", *case) for case in TWIN_DAMAGES)],
)
def test_damaged_settings(
    exported: Path, tmp_path: Path, name: str, damage: dict[str, Any], message: str
) -> None:
    shutil.copytree(exported, tmp_path / "copy")
    folder = tmp_path / "copy" / name
    (tmp_path / "copy" / "twin" / "link").symlink_to(tmp_path / "copy" / "one")
    file = folder / ("bench.json" if name == "one" else "twin.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    with pytest.raises(InputError) as caught:
        bench.load(folder)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null", b"9" * 9999])
@pytest.mark.parametrize("name", ["bench.json", "twin.json"])
def test_settings_that_are_no_json(exported: Path, tmp_path: Path, content: bytes, name: str) -> None:
    folder = shutil.copytree(exported / ("one" if name == "bench.json" else "twin"), tmp_path / "x")
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"x/{name}: it (can't be read|holds no fields); expected"):
        bench.load(folder)


def test_folders_that_are_no_export(exported: Path, tiny_bert: Path, tmp_path: Path) -> None:
    shutil.copytree(exported / "twin", tmp_path / "both")
    shutil.copy(exported / "one" / "bench.json", tmp_path / "both" / "bench.json")
    for folder in (tmp_path / "missing", tiny_bert, tmp_path / "both"):
        with pytest.raises(InputError, match=r"was not written by bench export; expected bench.json"):
            bench.load(folder)


def test_code_in_the_folder_is_not_run(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported / "one", tmp_path / "one")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('executed')")
    with pytest.raises(InputError, match="can't be loaded"):
        bench.load(folder)


# the command


@pytest.fixture
def run(cli: Cli, monkeypatch: pytest.MonkeyPatch, tiny_bert: Path) -> Cli:
    """bench export on suite toy: run(METHOD, option...) -> (exit code, stdout, stderr)."""
    monkeypatch.delenv("BENCH_DATA", raising=False)

    def command(method: str, *options: str) -> tuple[int, str, str]:
        start = () if method.startswith(("hf", "word", "noise", "st:")) else ("--backbone", str(tiny_bert))
        return cli("export", method, "--suite", "toy", *start, *options)

    return command


def test_export_of_a_deterministic_method(run: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    code, out, err = run("untrained:avg", "--out", "out")
    assert (code, out.startswith("out: untrained")) == (0, True)
    assert "no finished record of untrained" in err
    assert "campaign local: the card holds no scores" in err
    expected = TransformerEncoder(tiny_bert, "avg").encode(SENTENCES)
    check_equal(bench.load(tmp_path / "out").encode(SENTENCES), expected)
    text = (tmp_path / "out" / "README.md").read_text()
    card = discover().get("untrained").card
    for line in (card.summary, card.paper, card.code, *card.equations, *card.deviations):
        assert escape_all_markdown(line) in text
    assert "Option pooling: avg" in text
    assert f"tiny-bert, sha256 {hash_model(tiny_bert)}" in text
    assert "Seed" not in text
    assert "Scores" not in text
    assert str(tmp_path) not in text
    assert "whose licence holds for them: check it" in text
    assert 'SentenceTransformer("DIR")' in text
    assert run("untrained:avg", "--out", "out")[0] == 2
    assert run("untrained:pooler", "--out", "pooler")[0] == 0
    code, out, _ = run(f"hf:{tmp_path / 'out'}:avg", "--out", "again")
    assert (code, "16 dimensions" in out) == (0, True)
    check_equal(bench.load(tmp_path / "again").encode(SENTENCES), expected)


TRAIN = ("--dev", "toy", "--set", "simcse.steps=3", "--set", "simcse.eval_every=2",
         "--set", "simcse.batch_size=4", "--set", "simcse.lr=1e-3")  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    pairs = list(make_toy_task().all_pairs())[:20]
    (tmp_path / "text_of_[mine].txt").write_text("".join(f"{sentence}\n" for sentence, _ in pairs))
    return tmp_path / "text_of_[mine].txt"


def test_export_of_a_trained_method(
    run: Cli, cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path
) -> None:
    options = (*TRAIN, "--corpus", str(corpus))
    code, _, err = run("simcse", "--out", "out", *options)
    assert (code, err.endswith("bench export: 'simcse' has one encoder per seed; expected --seed N\n")) == (
        2,
        True,
    )
    code, out, err = run("simcse", "--seed", "3", "--out", "first", *options)
    assert (code, "seed 3, 16 dimensions" in out) == (0, True)
    assert "seed 3 is trained first: stage simcse is not in results/.stages" in err
    base = ("--suite", "toy", "--backbone", str(tiny_bert))
    assert cli("run", "--methods", "simcse", "--seeds", "3", *base, *options)[0] == 0
    for checkpoint, metric in (("selected", "spearman"), ("last", "spearman_last")):
        code, _, err = run("simcse", "--seed", "3", "--out", checkpoint, "--checkpoint", checkpoint, *options)
        assert (code, err) == (0, "")
        (stage,) = (p for p in (tmp_path / "results" / ".stages").iterdir() if not p.name.startswith("."))
        expected = TransformerEncoder(stage / checkpoint, "cls")  # step 2, and step 3 without a dev score
        check_equal(bench.load(tmp_path / checkpoint).encode(SENTENCES), expected.encode(SENTENCES))
        text = (tmp_path / checkpoint / "README.md").read_text()
        (path,) = (tmp_path / "results" / "local").rglob("toy.json")
        record = json.loads(path.read_text())
        (value,) = (
            s["value"]
            for s in record["scores"]
            if (s["task"], s["subset"], s["metric"]) == ("TOY", "all", metric)
        )
        assert f"- TOY: {100 * value:.2f}\n" in text
        facts = record["training"]["stages"]["simcse"]
        assert f"best at step {facts['selected_step']} with dev Spearman x 100 of " in text
        assert f"{100 * facts['selected_dev']:.2f}" in text
        for note in record["notes"]:
            assert f"- Note: {escape_all_markdown(note)}\n" in text
        assert record["training"]["corpus"]["sha256"] in text
        assert r"text\_of\_\[mine\].txt, 20 sentences" in text
        assert f"- Checkpoint: {checkpoint}\n" in text
        assert "- Seed: 3\n" in text


@pytest.mark.slow
def test_the_card_names_a_suites_own_metric(run: Cli, cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    base = ("--suite", "mini-contrast", "--backbone", str(tiny_bert))
    assert cli("run", "--methods", "untrained", *base)[0] == 0
    code, _, err = cli("export", "untrained", *base, "--out", "out")
    assert (code, err) == (0, "")
    (path,) = (tmp_path / "results" / "local").rglob("mini-contrast.json")
    scores = {s["task"]: s for s in json.loads(path.read_text())["scores"] if s["subset"] == "all"}
    text = (tmp_path / "out" / "README.md").read_text()
    assert "Accuracy x 100; record " in text
    assert f"- avg: {100 * scores['avg']['value']:.2f}\n" in text


def test_export_of_what_learns_from_pairs(run: Cli, tmp_path: Path) -> None:
    pairs = list(make_toy_task().all_pairs())[:20]
    (tmp_path / "own.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    sets = ("steps=2", "eval_every=2", "batch_size=4")
    given = [word for each in sets for word in ("--set", f"angle.{each}")]
    texts = ("--dev", "toy", "--pairs", str(tmp_path / "own.tsv"))
    code, _, err = run("angle", "--seed", "1", "--out", "out", *texts, *given)
    assert (code, "card holds no scores" in err) == (0, True), err
    text = (tmp_path / "out" / "README.md").read_text()
    assert "- Training text: own.tsv, 20 pairs, sha256 " in text
    assert "- Stage angle: 2 steps, " in text


def test_export_of_an_ensemble_that_nothing_trained(run: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    code, out, err = run("ensemble:untrained+untrained:avg", "--out", "out")
    assert (code, "16 dimensions" in out) == (0, True), err
    parts = [TransformerEncoder(tiny_bert, pooling).encode(SENTENCES) for pooling in ("cls", "avg")]
    check_equal(bench.load(tmp_path / "out").encode(SENTENCES), parts[0] + parts[1])
    text = (tmp_path / "out" / "README.md").read_text()
    assert "Training text" not in text
    assert "Checkpoint" not in text


def test_a_record_of_something_else_is_not_quoted(
    run: Cli, cli: Cli, tmp_path: Path, tiny_bert: Path
) -> None:
    base = ("--suite", "toy", "--backbone", str(tiny_bert))
    assert cli("run", "--methods", "untrained", *base, "--threads", "2")[0] == 0
    assert run("untrained", "--out", "one", "--threads", "2")[2] == ""
    assert "the card holds no scores" in run("untrained", "--out", "two")[2]
    (record,) = (tmp_path / "results" / "local").rglob("toy.json")
    record.write_text("{")
    assert "the card holds no scores" in run("untrained", "--out", "three", "--threads", "2")[2]
    assert "## Scores" in (tmp_path / "one" / "README.md").read_text()
    assert "## Scores" not in (tmp_path / "two" / "README.md").read_text()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("word_overlap", "bench export: 'word_overlap' compares two sentences directly: it has no vectors"),
        ("st:there", "bench export: 'st:there' is a sentence-transformers folder already; copy it"),
        ("untrained,simcse", "bench export: 'untrained,simcse' names 2 methods; expected one method"),
        ("untrainde", "bench export: unknown method 'untrainde'"),
        ("noise", "bench export: 'noise' has one encoder per seed; expected --seed N"),
    ],
)
def test_what_cant_be_exported(run: Cli, tmp_path: Path, method: str, message: str) -> None:
    code, out, err = run(method, "--out", "out")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_plug_ins_encoder_is_refused(run: Cli, tmp_path: Path) -> None:
    code, _, err = run("noise", "--seed", "1", "--out", "out")
    assert code == 2
    assert err.endswith("expected a transformer with a pooling, or a sum of such encoders\n")
    assert not (tmp_path / "out").exists()


def test_the_card_is_inert(
    run: Cli, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = discover().get("untrained")
    nasty = (
        "---\nlicense: mit\n# <script>alert(1)</script> [x](http://e) `a` *b* | ~~~ $x$ ![i](j) \u202e\x1b[2J"
    )
    card = replace(method.card, summary=nasty, paper=nasty, equations=(nasty, "a_b * c_d"))
    monkeypatch.setattr(type(method), "card", card)
    backbone = shutil.copytree(tiny_bert, tmp_path / "a](b) `<b>*")
    assert run("untrained", "--out", "out", "--backbone", str(backbone))[0] == 0
    assert "license: mit" not in front(tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "".join(text.split("\n")).isprintable()
    assert "<" not in text
    assert r"a\](b) \`&lt;b&gt;\*, sha256" in text
    assert r"- Computes: a\_b \* c\_d" in text
    body = text.split("---\n", 2)[2].split("## Loading")[0]
    assert not any(line.startswith(("---", "~~~", "<", " ")) for line in body.splitlines())
    assert "](" not in body.replace(r"\](", "")


def test_load_is_lazy() -> None:
    code = "import sys, bench; assert callable(bench.load); print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done
