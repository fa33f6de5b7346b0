"""Exported encoders: the same vectors from every loader, whole folders or none."""

from __future__ import annotations

import errno
import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

import bench
from bench.data.toy_suite import make_toy_task
from bench.encoder import Encoder, FloatArray, PromptedEncoder
from bench.errors import BenchError, DataError, InputError
from bench.execution.model_card import escape_all_markdown
from bench.nn import encoder_folder as module
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.decoders import EchoEncoder, OneWordEncoder
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.nn.model_folder import hash_model
from bench.nn.prompt_prefix import PrefixedEncoder
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.nn.sum_encoder import SumEncoder
from bench.registry import discover
from tests.support.architectures import tiny
from tests.support.cli import Cli
from tests.support.forge import add_points, forge
from tests.support.messages import missing_facts

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
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    folder = tmp_path_factory.mktemp("second") / "bert"
    model.save_pretrained(folder)
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    vocabulary = {word: position for position, word in enumerate(words[:5] + words[:4:-1])}
    type(tokenizer)(vocab=vocabulary, do_lower_case=True, model_max_length=40).save_pretrained(folder)
    return folder


def twin(*folders: Path, weights: tuple[float, ...] | None = None) -> SumEncoder:
    return SumEncoder([TransformerEncoder(folder, "cls") for folder in folders], weights)


def sentence_transformer(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def readme(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


def check_equal(found: FloatArray, expected: FloatArray) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def front(folder: Path) -> list[str]:
    return readme(folder).split("---\n", 2)[1].splitlines()


def known(encoder: Encoder) -> dict[str, Any]:
    """Its facts without its size: the pooler is not exported."""
    return {name: value for name, value in encoder.facts.items() if name != "parameters"}


@pytest.mark.parametrize("pooling", ["cls", "avg"])
def test_every_loader_gives_the_same_vectors(tiny_bert: Path, tmp_path: Path, pooling: str) -> None:
    encoder = TransformerEncoder(tiny_bert, pooling)
    expected = encoder.encode(SENTENCES)
    export_encoder(encoder, tmp_path / "out", CARD)
    loaded = bench.load(str(tmp_path / "out"))
    assert isinstance(loaded, Encoder)
    assert known(loaded) == {**known(encoder), "pooling_from": "bench.json"}
    check_equal(loaded.encode(SENTENCES), expected)

    other = sentence_transformer(tmp_path / "out")
    assert other.max_seq_length == 40
    alone = encoder.encode(SENTENCES, batch_tokens=1)  # padding moves the last digits
    check_equal(other.encode(SENTENCES, batch_size=1), alone)

    model = AutoModel.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        states = model(**tokenizer(SENTENCES[0], return_tensors="pt")).last_hidden_state[0]
    check_equal((states[0] if pooling == "cls" else states.mean(0)).numpy(), alone[0])
    assert len(tokenizer(SENTENCES[4], truncation=True)["input_ids"]) == 40


@pytest.mark.parametrize(
    ("pooling", "template"),
    [
        *((pooling, "auto") for pooling in ("avg_first_last", "avg_last_two", "pooler", "mask")),
        *(
            ("mask", text)
            for text in ("{mask} of {sentence}", "{sentence} means {mask}", "{sentence}{mask}.")
        ),
    ],
)
def test_poolings_of_bench_alone(tiny_bert: Path, tmp_path: Path, pooling: str, template: str) -> None:
    encoder = TransformerEncoder(tiny_bert, pooling, first_layer="layer1", template=template)
    export_encoder(encoder, tmp_path / "out", CARD)
    assert not (tmp_path / "out" / "modules.json").exists()
    loaded: Any = load_encoder(tmp_path / "out")
    assert loaded.token_ids(SENTENCES) == encoder.token_ids(SENTENCES)
    check_equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    settings = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert (settings["pooling"], settings["first_layer"], settings["max_length"]) == (pooling, "layer1", 40)
    assert "silently" in readme(tmp_path / "out")
    assert "library_name: transformers" in front(tmp_path / "out")


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize(("kind", "pooling"), [("gpt2", "last"), ("llama", "weighted_mean"), ("t5", "avg")])
def test_decoders_and_prompts_in_all_loaders(tmp_path: Path, kind: str, pooling: str, prompted: bool) -> None:
    encoder: Any = TransformerEncoder(tiny(kind, tmp_path / kind), pooling)
    if prompted:
        encoder = PrefixedEncoder(encoder, 'an "', "query: ", "")
    export_encoder(encoder, tmp_path / "out", CARD)
    loaded: Any = load_encoder(tmp_path / "out")
    other: Any = SentenceTransformerEncoder(tmp_path / "out")
    check_equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    np.testing.assert_allclose(other.encode(SENTENCES), encoder.encode(SENTENCES), rtol=1e-4, atol=1e-6)
    assert isinstance(loaded, PromptedEncoder) is prompted
    if not prompted:
        return
    assert loaded.facts == {**encoder.facts, "pooling_from": "bench.json", "prompt_from": "bench.json"}
    assert other.facts["prompt"] == encoder.facts["prompt"]
    for side in ("query", "document"):
        expected = encoder.encode_as(SENTENCES, side)
        assert np.abs(expected - encoder.encode(SENTENCES)).max() > 0.01
        check_equal(loaded.encode_as(SENTENCES, side), expected)
        np.testing.assert_allclose(other.encode_as(SENTENCES, side), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", ["released", "paper"])
def test_a_one_word_prompt_is_kept(tmp_path: Path, form: str) -> None:
    template = 'So "{sentence}" is:"'
    encoder = OneWordEncoder(tiny("gpt2", tmp_path / "gpt2"), template, form=form, layer=-2)
    export_encoder(encoder, tmp_path / "out", CARD)
    loaded: Any = load_encoder(tmp_path / "out")
    assert loaded.token_ids(SENTENCES) == encoder.token_ids(SENTENCES)
    check_equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    assert loaded.facts == {**encoder.facts, "pooling_from": "bench.json"}
    assert not (tmp_path / "out" / "modules.json").exists()
    assert "can't put text behind a sentence" in readme(tmp_path / "out")
    file = tmp_path / "out" / "bench.json"
    for name, value in (("form", "other"), ("template", "none"), ("layer", -9), ("dim", 3), ("kind", "x")):
        file.write_text(json.dumps({**(kept := json.loads(file.read_text())), name: value}))
        with pytest.raises((DataError, InputError)):
            load_encoder(tmp_path / "out")
        file.write_text(json.dumps(kept))


def test_templates_with_a_sentence_twice_are_refused(tmp_path: Path) -> None:
    encoder = EchoEncoder(tiny("gpt2", tmp_path / "gpt2"))
    with pytest.raises(InputError, match=r"template '.*\{sentence\}.*'"):
        export_encoder(encoder, tmp_path / "out", CARD)
    assert not (tmp_path / "out").exists()


def test_the_files(tiny_bert: Path, tmp_path: Path) -> None:
    encoder, one, two = TransformerEncoder(tiny_bert, "cls"), tmp_path / "one", tmp_path / "two"
    export_encoder(encoder, one, CARD)
    encoder.encode(SENTENCES)
    two.mkdir()  # an empty folder is taken
    export_encoder(encoder, two, CARD)
    files = {p.relative_to(one): p for p in one.rglob("*") if p.is_file()}
    settings = ("1_Pooling/config", "bench", "config", "modules", "sentence_bert_config")
    others = ("README.md", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    assert {str(name) for name in files} == {*(f"{name}.json" for name in settings), *others}
    for name, path in files.items():
        assert path.read_bytes() == (two / name).read_bytes(), name
        assert str(tiny_bert.parent).encode() not in path.read_bytes(), name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "two"]
    assert len({path.stat().st_mode for path in files.values()}) == 1  # who may read one may read all
    assert one.stat().st_mode == (one / "1_Pooling").stat().st_mode
    kind = {"schema": 1, "kind": "transformer", "pooling": "cls", "first_layer": "embedding"}
    written = json.loads((one / "bench.json").read_text())
    assert written == {**kind, "template": None, "max_length": 40, "dim": 16}
    assert CARD in readme(one)
    assert "library_name: sentence-transformers" in front(one)
    assert not any("pooler" in name for name in load_file(one / "model.safetensors"))
    with pytest.raises(InputError, match="pooler"):
        TransformerEncoder(one, "pooler")


@pytest.mark.parametrize(("pooling", "longest"), [("avg", 40), ("mask", 40), ("avg", 12)])
def test_roberta_keeps_its_length(tiny_roberta: Path, tmp_path: Path, pooling: str, longest: int) -> None:
    folder, out = shutil.copytree(tiny_roberta, tmp_path / "roberta"), tmp_path / "out"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["model_max_length"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    encoder = TransformerEncoder(folder, pooling)
    assert encoder.max_length == 40
    encoder.max_length = longest
    export_encoder(encoder, out, CARD)
    loaded = load_encoder(out)
    assert loaded.facts["max_length"] == longest
    check_equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    assert len(AutoTokenizer.from_pretrained(out)("a " * 99, truncation=True)["input_ids"]) == longest
    if pooling == "avg":
        other = sentence_transformer(out)
        assert other.max_seq_length == longest
        check_equal(other.encode([SENTENCES[4]])[0], encoder.encode([SENTENCES[4]])[0])


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
    union = SumEncoder([SumEncoder([one, two]), one], [0.75, 0.25])
    assert union.parts == (one, two, one)
    assert union.weights == (0.75, 0.75, 0.25)
    assert np.allclose(union.encode(SENTENCES), a + np.float32(0.75) * b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("parts", [2, 3])
def test_a_sums_progress_counts_every_sentence_once(tiny_bert: Path, second_bert: Path, parts: int) -> None:
    told: list[int] = []
    folders = (tiny_bert, second_bert, tiny_bert)[:parts]
    twin(*folders).encode(SENTENCES, batch_tokens=1, progress=told.append)
    assert (sum(told), min(told) > 0, len(told) > 1) == (5, True, True)


def test_a_sum_refuses_what_cant_be_added(tiny_bert: Path) -> None:
    encoder, wider = TransformerEncoder(tiny_bert, "cls"), TransformerEncoder(tiny_bert, "cls")
    wider.dim = 17
    with pytest.raises(InputError, match="16 and 17"):
        SumEncoder([encoder, wider])
    with pytest.raises(InputError, match="at least two"):
        SumEncoder([encoder])
    for weights in ([1.0], [1.0, 2.0, 3.0], [float("nan"), 1.0], [float("inf"), 1.0], [0.0, 0.0]):
        with pytest.raises(InputError, match=r"weights \[.*2 finite numbers"):
            SumEncoder([encoder, encoder], weights)


@pytest.mark.parametrize(
    ("weights", "terms"), [(None, "1 x part-1 + 1 x part-2"), ((0.7, 0.3), "0.7 x part-1 + 0.3 x part-2")]
)
def test_a_twin_comes_back(
    tiny_bert: Path, second_bert: Path, tmp_path: Path, weights: tuple[float, ...] | None, terms: str
) -> None:
    encoder, out = twin(tiny_bert, second_bert, weights=weights), tmp_path / "out"
    export_encoder(encoder, out, CARD)
    loaded = bench.load(out)
    assert isinstance(loaded, SumEncoder)
    assert (loaded.weights, loaded.dim) == (weights or (1.0, 1.0), 16)
    assert known(loaded) == {**known(encoder), "pooling_from": "bench.json"}
    check_equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    assert sorted(p.name for p in out.iterdir()) == ["README.md", "part-1", "part-2", "twin.json"]
    assert terms in readme(out)
    assert "library_name: cse-bench" in front(out)
    part = sentence_transformer(out / "part-2")
    check_equal(part.encode(SENTENCES[:1]), encoder.parts[1].encode(SENTENCES[:1]))
    check_equal(load_encoder(out / "part-1").encode(SENTENCES), encoder.parts[0].encode(SENTENCES))


def test_a_used_folder_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("text")
    (tmp_path / "file").write_text("text")
    for name in ("out", "file"):
        with pytest.raises(InputError, match=r"--out .*not empty"):
            export_encoder(TransformerEncoder(tiny_bert, "cls"), tmp_path / name, CARD)
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))
    assert left == ["file", "out", "out/precious"]
    with pytest.raises(BenchError, match="can't be written"):
        export_encoder(TransformerEncoder(tiny_bert, "cls"), tmp_path / "file" / "out", CARD)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["_write_json", "_write_sentence_transformers", "_check_reloaded"])
def test_a_failed_write_leaves_nothing(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(module, step, fail)
    expected = BenchError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match="No space left" if isinstance(error, OSError) else None):
        export_encoder(TransformerEncoder(tiny_bert, "cls"), tmp_path / "new" / "out", CARD)
    assert list((tmp_path / "new").iterdir()) == []


def test_an_encoder_that_its_files_dont_determine_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    changed = TransformerEncoder(tiny_bert, "cls")
    changed.model.encoder.layer[1].register_forward_hook(lambda _module, _args, output: output * 2)
    without = TransformerEncoder(tiny_bert, "cls")
    without.model.encoder.layer[2].output.LayerNorm = torch.nn.Identity()
    other: Any = SimpleNamespace(dim=16, facts={})
    for encoder, message in (
        (changed, "changes its vectors"),
        (SumEncoder([without, without]), r"2 weight\(s\) are missing"),
        (other, "SimpleNamespace"),
        (SumEncoder([TransformerEncoder(tiny_bert, "cls"), other]), "SimpleNamespace"),
    ):
        with pytest.raises(InputError, match=message):
            export_encoder(encoder, tmp_path / "out", CARD)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def exported(tiny_bert: Path, second_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    export_encoder(TransformerEncoder(tiny_bert, "cls"), folder / "one", CARD)
    export_encoder(twin(tiny_bert, second_bert), folder / "twin", CARD)
    return folder


QUOTED: dict[str, dict[str, tuple[Any, ...]]] = {
    "one": {
        "schema": (True, None),
        "kind": ("sum",),
        "pooling": ("max", ["cls"]),
        "template": ("{sentence}{mask}",),
        "first_layer": ("layer9",),
        "max_length": ("\x1b[2J",),
        "dim": (True,),
        "prompts": ({"": "a"}, {"": 1, "query": "", "document": ""}, None),
    },
    "twin": {
        "schema": ("1",),
        "kind": ("transformer",),
        "weights": ([1.0], [1.0, True], [1.0, float("nan")]),
        "parts": (
            *(["part-1", part] for part in ("../one", "..", ".", "part-1/../../one", "/part-1")),
            *(["part-1", "part-2\n"], ["part-1", ""], ["part-1", 2], "part-1"),
        ),
    },
}
"""Values of a field that its refusal quotes."""
DAMAGES: list[tuple[str, dict[str, Any], str]] = [
    ("one", {"schema": 2}, "schema 2; expected schema 1; another bench"),
    ("one", {"pooling": "mask"}, "template None"),
    ("one", {"pooling": "mask", "template": "\ud800"}, "template '\\ud800'"),
    ("one", {"pooling": "mask", "template": "{sentence}"}, "template '{sentence}'"),
    ("one", {"pooling": "pooler"}, "pooler weights"),
    ("one", {"max_length": 41}, "max_length 41; expected 40"),
    ("one", {"dim": 15}, "dim 15; expected 16"),
    ("one", {"code": "x"}, "fields ['code', 'dim', "),
    ("twin", {"parts": ["part-1", "link"]}, "part 'link' leads out"),
    ("twin", {"parts": ["part-1", "part-9"]}, "part-9/bench.json"),
    ("twin", {"parts": ["part-1"], "weights": [1.0]}, "parts ['part-1']"),
    ("twin", {"parts": ["x" * 5000, "y"]}, "..."),
    ("twin", {"weights": [1.0, 10**400]}, "weights [1.0, 1000"),
    ("twin", {"weights": [0, 0]}, "weights [0.0, 0.0]"),
    ("twin", {"trust_remote_code": True}, "fields ['kind', "),
]
for _name, _fields in QUOTED.items():
    for _key, _values in _fields.items():
        DAMAGES += [(_name, {_key: value}, f"{_key} {value!r}; expected") for value in _values]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES)
def test_bad_settings(
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
        with pytest.raises(InputError, match=r"expected bench.json"):
            bench.load(folder)


def test_code_in_the_folder_is_not_run(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported / "one", tmp_path / "one")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('executed')")
    with pytest.raises(InputError, match="can't be loaded"):
        bench.load(folder)


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
    assert not missing_facts(err, "no finished record", "campaign local", "no scores")
    expected = TransformerEncoder(tiny_bert, "avg").encode(SENTENCES)
    check_equal(bench.load(tmp_path / "out").encode(SENTENCES), expected)
    text, card = readme(tmp_path / "out"), discover().get("untrained").card
    for line in (card.summary, card.paper, card.code, *card.equations, *card.deviations):
        assert escape_all_markdown(line) in text
    facts = ("Option pooling: avg", f"tiny-bert, sha256 {hash_model(tiny_bert)}", "licence")
    assert not missing_facts(text, *facts, 'SentenceTransformer("DIR")')
    absent = ["Seed", "Scores", "Training text", "Checkpoint", str(tmp_path)]
    assert missing_facts(text, *absent) == absent
    assert run("untrained:avg", "--out", "out")[0] == 2
    assert run("untrained:pooler", "--out", "pooler")[0] == 0
    code, out, _ = run(f"hf:{tmp_path / 'out'}:avg", "--out", "again")
    assert (code, "16 dimensions" in out) == (0, True)
    check_equal(bench.load(tmp_path / "again").encode(SENTENCES), expected)
    code, out, _ = run("ensemble:untrained+untrained:avg", "--out", "sum")
    assert (code, "16 dimensions" in out) == (0, True)
    expected += TransformerEncoder(tiny_bert, "cls").encode(SENTENCES)
    check_equal(bench.load(tmp_path / "sum").encode(SENTENCES), expected)


SHORT = ("steps=3", "eval_every=2", "batch_size=4", "lr=1e-3")
TRAIN = ("--dev", "toy", *(word for each in SHORT for word in ("--set", f"simcse.{each}")))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    pairs = list(make_toy_task().all_pairs())[:20]
    (tmp_path / "text_of_[mine].txt").write_text("".join(f"{sentence}\n" for sentence, _ in pairs))
    return tmp_path / "text_of_[mine].txt"


def test_export_of_trained_method(run: Cli, cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    options = (*TRAIN, "--corpus", str(corpus))
    code, _, err = run("simcse", "--out", "out", *options)
    assert (code, missing_facts(err, "'simcse'", "--seed N")) == (2, [])
    code, out, err = run("simcse", "--seed", "3", "--out", "first", *options)
    assert (code, "seed 3, 16 dimensions" in out) == (0, True)
    assert not missing_facts(err, "seed 3", "stage simcse", "results/.stages")
    base = ("--suite", "toy", "--backbone", str(tiny_bert))
    assert cli("run", "--methods", "simcse", "--seeds", "3", *base, *options)[0] == 0
    for checkpoint, metric in (("selected", "spearman"), ("last", "spearman_last")):
        code, _, err = run("simcse", "--seed", "3", "--out", checkpoint, "--checkpoint", checkpoint, *options)
        assert (code, err) == (0, "")
        (stage,) = (tmp_path / "results" / ".stages").glob("[!.]*")
        expected = TransformerEncoder(stage / checkpoint, "cls")  # step 2, and step 3 without a dev score
        check_equal(bench.load(tmp_path / checkpoint).encode(SENTENCES), expected.encode(SENTENCES))
        (path,) = (tmp_path / "results" / "local").rglob("toy.json")
        record = json.loads(path.read_text())
        scores = {(s["task"], s["subset"], s["metric"]): s["value"] for s in record["scores"]}
        facts = record["training"]["stages"]["simcse"]
        assert facts["selected_step"] == 2
        lines = [
            f"- TOY: {100 * scores['TOY', 'all', metric]:.2f}",
            "best at step 2 ",
            f"{100 * facts['selected_dev']:.2f}",
            *(f"- Note: {escape_all_markdown(note)}" for note in record["notes"]),
            record["training"]["corpus"]["sha256"],
            r"text\_of\_\[mine\].txt, 20 sentences",
            f"- Checkpoint: {checkpoint}",
            "- Seed: 3",
        ]
        assert not missing_facts(readme(tmp_path / checkpoint), *lines)


@pytest.mark.slow
def test_the_card_names_a_suites_own_metric(run: Cli, cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    base = ("--suite", "mini-contrast", "--backbone", str(tiny_bert))
    assert cli("run", "--methods", "untrained", *base)[0] == 0
    code, _, err = cli("export", "untrained", *base, "--out", "out")
    assert (code, err) == (0, "")
    (path,) = (tmp_path / "results" / "local").rglob("mini-contrast.json")
    scores = {s["task"]: s for s in json.loads(path.read_text())["scores"] if s["subset"] == "all"}
    average = f"- avg: {100 * scores['avg']['value']:.2f}"
    assert not missing_facts(readme(tmp_path / "out"), "Accuracy x 100", average)


def test_export_of_what_learns_from_pairs(run: Cli, tmp_path: Path) -> None:
    pairs = list(make_toy_task().all_pairs())[:20]
    (tmp_path / "own.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    short = ("angle.steps=2", "angle.eval_every=2", "angle.batch_size=4")
    given = [word for each in short for word in ("--set", each)]
    texts = ("--dev", "toy", "--pairs", str(tmp_path / "own.tsv"))
    code, _, err = run("angle", "--seed", "1", "--out", "out", *texts, *given)
    assert (code, "no scores" in err) == (0, True), err
    assert not missing_facts(readme(tmp_path / "out"), "own.tsv, 20 pairs, sha256", "Stage angle: 2 steps")


def test_a_record_of_another_cell_is_not_quoted(run: Cli, cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    base = ("--suite", "toy", "--backbone", str(tiny_bert))
    assert cli("run", "--methods", "untrained", *base, "--threads", "2")[0] == 0
    assert run("untrained", "--out", "one", "--threads", "2")[2] == ""
    assert "no scores" in run("untrained", "--out", "two")[2]
    (record,) = (tmp_path / "results" / "local").rglob("toy.json")
    record.write_text("{")
    assert "no scores" in run("untrained", "--out", "three", "--threads", "2")[2]
    assert "## Scores" in readme(tmp_path / "one")
    assert "## Scores" not in readme(tmp_path / "two")


def test_scores_that_contradict_their_predictions_are_on_no_card(
    run: Cli, cli: Cli, tmp_path: Path, tiny_bert: Path
) -> None:
    assert cli("run", "--methods", "untrained", "--suite", "toy", "--backbone", str(tiny_bert))[0] == 0
    (record,) = (tmp_path / "results" / "local").rglob("toy.json")
    forge(record, add_points)
    code, _, err = run("untrained", "--out", "out")
    assert (code, missing_facts(err, "toy.json", "its predictions give")) == (2, [])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("word_overlap", "'word_overlap' compares two sentences"),
        ("st:there", "'st:there'.*copy it"),
        ("untrained,simcse", "2 methods; expected one"),
        ("untrainde", "unknown method 'untrainde'"),
        ("noise", "'noise'.*--seed N"),
        ("noise --seed 1", "expected a transformer with a pooling"),
    ],
)
def test_what_cant_be_exported(run: Cli, tmp_path: Path, method: str, message: str) -> None:
    code, out, err = run(*method.split(), "--out", "out")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 + ("--seed" in method)  # its card holds no scores
    assert re.search(f"^error: .*{message}", err, re.M)
    assert not (tmp_path / "out").exists()


def test_an_inert_card(run: Cli, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = discover().get("untrained")
    nasty = (
        "---\nlicense: mit\n# <script>alert(1)</script> [x](http://e) `a` *b* | ~~~ $x$ ![i](j) \u202e\x1b[2J"
    )
    card = replace(method.card, summary=nasty, paper=nasty, equations=(nasty, "a_b * c_d"))
    monkeypatch.setattr(type(method), "card", card)
    backbone = shutil.copytree(tiny_bert, tmp_path / "a](b) `<b>*")
    assert run("untrained", "--out", "out", "--backbone", str(backbone))[0] == 0
    assert "license: mit" not in front(tmp_path / "out")
    text = readme(tmp_path / "out")
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("when", ["_check_reloaded", "rename"])
def test_a_signal_leaves_a_whole_folder_and_success_or_neither(
    run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, number: int
) -> None:
    """Before, a signal just after the writing left the whole folder, and the command said "interrupted"."""
    rename = Path.rename

    def interrupted(*arguments: Any) -> Any:
        result = rename(*arguments) if when == "rename" else None
        signal.raise_signal(number)
        return result

    monkeypatch.setattr(Path if when == "rename" else module, when, interrupted)
    usual: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {name: signal.signal(name, handler) for name, handler in usual.items()}
    try:
        code, out, err = run("untrained", "--out", str(tmp_path / "x" / "out"))
        restored = signal.getsignal(signal.SIGTERM)
    finally:
        for name, handler in before.items():
            signal.signal(name, handler or signal.SIG_DFL)
    names = [path.name for path in (tmp_path / "x").iterdir()]
    if when == "rename":
        assert (code, names, restored) == (0, ["out"], signal.SIG_IGN)
        assert "dimensions" in out
        bench.load(str(tmp_path / "x" / "out"))
    else:
        assert (code, names, out) == (143 if number == signal.SIGTERM else 130, [], "")
        assert "interrupted" in err
