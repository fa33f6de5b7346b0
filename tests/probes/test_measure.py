"""All probes from one pass: every kind of encoder, each figure against its own probe."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import bench.probes
from bench.baselines.word_overlap import WordOverlapScorer
from bench.data.tasks import PairTask
from bench.data.toy_suite import make_toy_task
from bench.errors import BenchError, InputError
from bench.eval.embeddings import embed_sentences
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.nn.sum_encoder import SumEncoder
from bench.probes import PROBES, cost, parse_probes
from bench.probes.alignment import alignment, positive_pairs
from bench.probes.attention_sink import PAPER_SENTENCE
from bench.probes.density import compare_densities
from bench.probes.interface import VECTORS, Probe, ProbeColumn, ProbeData, ProbeInputs, ProbeOptions
from bench.probes.isotropy import isotropy
from bench.probes.measurement import drop_curves, measure_probes
from bench.probes.uniformity import uniformity
from bench.reports.tables.probes import ProbedRun, probe_grids
from tests.support.cli import Cli
from tests.support.encoders import FunctionEncoder
from tests.support.folders import sentence_transformers_folder
from tests.support.messages import check_error, missing_facts

DATA = ProbeData("toy", (make_toy_task(),))
NAMES = tuple(PROBES)


def hash_vectors(sentences: Sequence[str]) -> list[Any]:
    """Equal sentences get equal vectors."""
    return [np.random.default_rng(list(text.encode())).normal(size=6) for text in sentences]


@pytest.fixture(scope="module")
def encoder(tiny_bert: Path) -> TransformerEncoder:
    return TransformerEncoder(tiny_bert, "avg")


@pytest.fixture(scope="module")
def longer(tiny_bert: Path) -> TransformerEncoder:
    """An encoder of 64 tokens: every probe can measure it."""
    tokenizer = load_backbone(tiny_bert)[1]
    shape: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return TransformerEncoder((BertModel(BertConfig(vocab_size=len(tokenizer), **shape)), tokenizer))


@pytest.fixture(scope="module")
def whole(encoder: TransformerEncoder) -> dict[str, Any]:
    """All probes of the encoder."""
    return measure_probes(encoder, DATA, NAMES).probes


def test_probes_are_named_as_on_the_command_line() -> None:
    assert parse_probes("all") == NAMES
    assert parse_probes("cost, alignment") == ("alignment", "cost")
    facts = ("'attention_sinks'", "did you mean 'attention_sink'", "alignment")
    check_error(lambda: parse_probes("cost,attention_sinks"), *facts, kind=InputError)
    with pytest.raises(InputError, match="--probes: 'cost,cost'"):
        parse_probes("cost,cost")


def test_every_probe_of_a_transformer(encoder: TransformerEncoder) -> None:
    seen: list[int] = []
    found = measure_probes(encoder, DATA, NAMES, progress=seen.append)
    probes = found.probes
    assert set(probes) == {"version", "data", *NAMES}
    vectors = embed_sentences(encoder, DATA.sentences)
    assert sum(seen) == len(DATA.sentences)
    first, second = positive_pairs([make_toy_task()])
    rows = [[vectors.rows[s] for s in side] for side in (first, second)]
    assert probes["alignment"]["value"] == alignment(vectors.vectors[rows[0]], vectors.vectors[rows[1]])
    assert (probes["alignment"]["pairs"], probes["alignment"]["gold"]) == (60, "at least 4")
    assert probes["uniformity"]["value"] == uniformity(vectors.vectors)
    assert probes["uniformity"]["pairs"] == len(DATA.sentences) * (len(DATA.sentences) - 1) / 2
    gold = np.asarray(make_toy_task().subsets[0].gold)
    assert probes["density"] == compare_densities(vectors.cosine(*DATA.sides), gold)
    assert probes["isotropy"] == isotropy(vectors.vectors)
    assert probes["cls_energy"]["pooling"] == "avg"
    assert len(probes["cls_energy"]["layers"]) == len(probes["attention_sink"]["layers"]) == 3
    assert probes["modulus"]["towers"][0]["pooler"]["max"] <= 4  # tanh of 16 numbers
    assert not missing_facts(probes["cost"]["missing"], "40 tokens", 64)
    assert all("convention" in probes[name] for name in NAMES if name != "cost")
    assert found.timing["sentences"] == 32
    assert {"wall_seconds", "cpu_seconds", "sentences_per_second"} <= found.timing.keys()
    tasks = {"TOY": {"pairs": 180, "sha256": make_toy_task().sha256, "reference": True}}
    assert probes["data"] == {"suite": "toy", "tasks": tasks, "sentences": len(DATA.sentences)}


def test_one_probe_is_as_among_all_without_text(encoder: TransformerEncoder, whole: dict[str, Any]) -> None:
    for name in NAMES:
        assert measure_probes(encoder, DATA, (name,)).probes[name] == whole[name]
    text = json.dumps(whole, allow_nan=False)
    assert not any(sentence in text for sentence in DATA.sentences)


def test_options(encoder: TransformerEncoder) -> None:
    how = ProbeOptions(strict=True, groups="quantiles", per_head=True, sentence=PAPER_SENTENCE)
    probes = measure_probes(encoder, DATA, NAMES, how).probes
    assert (probes["alignment"]["pairs"], probes["alignment"]["gold"]) == (30, "above 4")
    assert "like size" in probes["density"]["convention"]
    assert np.shape(probes["attention_sink"]["towers"][0]["heads"]) == (3, 2, 4)
    assert probes["attention_sink"]["maps"][0]["tokens"][0] == "[CLS]"
    bare = drop_curves(probes)
    dropped = {(name, fact) for name in NAMES for fact in probes[name].keys() - bare[name].keys()}
    assert dropped == {("attention_sink", "maps"), ("isotropy", "spectrum"), ("density", "curves")}
    assert bare["version"] == probes["version"]
    assert bare["alignment"] == probes["alignment"]


def test_a_twin_and_its_towers(tiny_bert: Path, encoder: TransformerEncoder, whole: dict[str, Any]) -> None:
    other = TransformerEncoder(tiny_bert)
    twin = measure_probes(SumEncoder([encoder, other], [1.0, 0.5]), DATA, NAMES).probes
    one, two = whole, measure_probes(other, DATA, NAMES).probes
    for name in ("alignment", "uniformity"):
        assert twin[name]["towers"] == [one[name]["value"], two[name]["value"]]
        assert twin[name]["value"] not in twin[name]["towers"]
    for name in ("cls_energy", "attention_sink", "modulus"):
        assert twin[name]["towers"] == [*one[name]["towers"], *two[name]["towers"]]
    assert twin["cls_energy"]["pooling"] == "avg+cls"
    summed = embed_sentences(SumEncoder([encoder, other], [1.0, 0.5]), DATA.sentences).vectors
    assert twin["uniformity"]["value"] == uniformity(summed)
    same = measure_probes(SumEncoder([encoder, encoder]), DATA, ("cls_energy",)).probes["cls_energy"]
    assert same["value"] == whole["cls_energy"]["value"]


def test_cost_of_a_model_that_takes_64_tokens(longer: TransformerEncoder) -> None:
    found = measure_probes(longer, DATA, ("cost",)).probes["cost"]
    assert found["gmac"] == cost.count_gmacs(longer.model)
    assert found["parameters"] == sum(p.numel() for p in longer.model.parameters())


def test_an_encoder_without_a_transformer() -> None:
    probes = measure_probes(FunctionEncoder(hash_vectors, dim=6), DATA, NAMES).probes
    traced = ("cls_energy", "attention_sink", "modulus", "cost")
    assert all("no transformer" in probes[name]["missing"] for name in traced)
    assert all("missing" not in probes[name] for name in NAMES if name not in traced)


class PaddedLeft(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, attention_mask: torch.Tensor, **batch: Any) -> Any:
        return self.inner(attention_mask=attention_mask.flip(1), **batch)


def test_a_transformer_that_cannot_be_watched_still_has_vectors(encoder: TransformerEncoder) -> None:
    left = TransformerEncoder((encoder.model, encoder.tokenizer), "avg")
    left.model = PaddedLeft(encoder.model)
    probes = measure_probes(left, DATA, NAMES).probes
    assert not missing_facts(probes["cls_energy"]["missing"], "BertModel", "left")
    assert probes["modulus"] == probes["cls_energy"]
    assert probes["uniformity"]["value"] == uniformity(embed_sentences(left, DATA.sentences).vectors)


def test_a_transformer_that_computes_nothing_is_named(encoder: TransformerEncoder) -> None:
    idle: Any = FunctionEncoder(hash_vectors, dim=6)
    idle.model, idle.tokenizer = encoder.model, encoder.tokenizer
    probes = measure_probes(idle, DATA, NAMES).probes
    assert f"0 of {len(DATA.sentences)} sentences" in probes["modulus"]["missing"]
    assert "missing" not in probes["uniformity"]


def test_the_probes_of_a_sentence_transformers_folder(tiny_bert: Path, tmp_path: Path) -> None:
    folder = sentence_transformers_folder(tiny_bert, tmp_path / "st", mean=True)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    probes = measure_probes(SentenceTransformerEncoder(folder), DATA, NAMES).probes
    own = measure_probes(TransformerEncoder(folder, "avg"), DATA, ("cls_energy",)).probes["cls_energy"]
    missing = [name for name in NAMES if "missing" in probes[name]]
    assert missing == ["cost"]  # the model takes fewer tokens than the cost is counted for
    assert probes["cls_energy"]["value"] == pytest.approx(own["value"], abs=1e-4)


def test_a_scorer_of_pairs_has_a_density_alone() -> None:
    probes = measure_probes(WordOverlapScorer(), DATA, NAMES).probes
    similarities = WordOverlapScorer().score_pairs(*DATA.sides).astype(np.float64)
    assert probes["density"] == compare_densities(similarities, np.asarray(DATA.gold))
    (reason,) = {probes[name]["missing"] for name in NAMES if name != "density"}
    assert "no vectors" in reason


def test_a_missing_probe_has_a_reason_and_the_rest_is_there(encoder: TransformerEncoder) -> None:
    subset = make_toy_task().subsets[0]
    low = replace(subset, gold=tuple(min(score, 3.0) for score in subset.gold))
    probes = measure_probes(encoder, ProbeData("toy", (PairTask("LOW", (low,)),)), NAMES).probes
    assert "no pair" in probes["alignment"]["missing"]
    assert probes["data"]["tasks"]["LOW"]["reference"] is False
    assert "missing" not in probes["uniformity"]


def test_bad_vectors_are_an_error(encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = FunctionEncoder(lambda texts: np.full((len(texts), 2), np.nan))
    with pytest.raises(BenchError, match="are not finite"):
        measure_probes(broken, DATA, NAMES)
    monkeypatch.setattr("bench.probes.uniformity.MOST", 3)
    with pytest.raises(InputError, match="expected at most 3"):
        measure_probes(encoder, DATA, ("uniformity",))


def test_every_file_with_a_probe_is_in_the_list() -> None:
    folder = Path(bench.probes.__path__[0])
    assert {path.stem for path in folder.glob("*.py") if "\nPROBE = " in path.read_text()} == set(PROBES)
    assert [probe.name for probe in PROBES.values()] == list(PROBES)


def test_each_column_finds_its_number(longer: TransformerEncoder) -> None:
    found = measure_probes(longer, DATA, tuple(PROBES))
    for probe in PROBES.values():
        for column in probe.columns:
            if column.heading == "eta":  # comes with a record's average
                continue
            block = found.timing if column.timing else drop_curves(found.probes)[probe.name]
            value: Any = reduce(lambda part, step: part[step], column.path, block)
            assert isinstance(value, int | float), (probe.name, column.heading)
        assert all(fact in found.probes[probe.name] for fact in probe.drawn if fact != "maps")
    headings = [column.heading for probe in PROBES.values() for column in probe.columns]
    assert len(set(headings)) == len(headings)


def test_a_probe_is_one_object(longer: TransformerEncoder, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def longest(inputs: ProbeInputs) -> dict[str, Any]:
        norms = np.linalg.norm(inputs.vectors, axis=1)
        return {"most": float(norms.max()), "all": norms.tolist(), "convention": "of all sentences"}

    columns = (ProbeColumn("longest", ("most",), ".1f", scale=10.0),)
    more = Probe("length", "longest vector", "vectors", longest, VECTORS, columns, drawn=("all",))
    monkeypatch.setitem(PROBES, "length", more)
    assert parse_probes("length,cost") == ("cost", "length")
    assert "length          longest vector" in cli("list", "probes")[1]
    probes = drop_curves(measure_probes(longer, DATA, ("length",)).probes)
    assert probes["length"].keys() == {"most", "convention"}
    vectors = probe_grids([ProbedRun("p", "m", 1, "s", None, probes, {})])[0]
    assert (vectors.header[-1], vectors.rows[0][-1]) == ("longest", f"{10 * probes['length']['most']:.1f}")
    assert vectors.notes[-1] == "length: of all sentences"


def test_the_list_of_probes_needs_neither_torch_nor_scipy() -> None:
    code = """import sys
from bench.probes import PROBES
heavy = {'torch', 'transformers', 'thop', 'scipy', 'pandas'} & set(sys.modules)
print(len(PROBES), sorted(heavy))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"{len(PROBES)} []\n", done.stderr


def test_all_probes_are_those_whose_packages_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list[str]()
    assert parse_probes("all", lines.append) == tuple(PROBES)
    assert lines == []
    monkeypatch.setitem(sys.modules, "thop", None)
    found = parse_probes("all", lines.append)
    assert found == tuple(name for name in PROBES if name != "cost")
    (line,) = lines
    assert not missing_facts(line, "probe cost", "pip install thop")
    monkeypatch.setitem(sys.modules, "distutils", None)
    check_error(lambda: parse_probes("isotropy,cost"), "probe cost", "thop setuptools", kind=InputError)
    assert parse_probes("isotropy") == ("isotropy",)
