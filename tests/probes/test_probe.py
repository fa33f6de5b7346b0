"""A probe is one object in one file."""

from __future__ import annotations

import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertConfig, BertModel

import bench.probes
from bench.data.toy import make_toy_task
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.probes import PROBES, parse_probes
from bench.probes.interface import VECTORS, Probe, ProbeColumn, ProbeData, ProbeInputs
from bench.probes.measurement import drop_curves, measure_probes
from bench.reports.tables.probes import ProbedRun, probe_grids
from tests.support.cli import Cli
from tests.support.messages import missing_facts

DATA = ProbeData("toy", (make_toy_task(),))


@pytest.fixture(scope="module")
def encoder(tiny_bert: Path) -> TransformerEncoder:
    """One that every probe can measure: it takes 64 tokens."""
    tokenizer = load_backbone(tiny_bert)[1]
    shape: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return TransformerEncoder((BertModel(BertConfig(vocab_size=len(tokenizer), **shape)), tokenizer))


def test_every_file_with_a_probe_is_in_the_list() -> None:
    folder = Path(bench.probes.__path__[0])
    assert {path.stem for path in folder.glob("*.py") if "\nPROBE = " in path.read_text()} == set(PROBES)
    assert [probe.name for probe in PROBES.values()] == list(PROBES)


def test_each_column_finds_its_number(encoder: TransformerEncoder) -> None:
    found = measure_probes(encoder, DATA, tuple(PROBES))
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


def test_one_more_probe_is_one_object(
    encoder: TransformerEncoder, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def longest(inputs: ProbeInputs) -> dict[str, Any]:
        norms = np.linalg.norm(inputs.vectors, axis=1)
        return {"most": float(norms.max()), "all": norms.tolist(), "convention": "of all sentences"}

    columns = (ProbeColumn("longest", ("most",), ".1f", scale=10.0),)
    more = Probe("length", "longest vector", "vectors", longest, VECTORS, columns, drawn=("all",))
    monkeypatch.setitem(PROBES, "length", more)
    assert parse_probes("length,cost") == ("cost", "length")
    assert "length          longest vector" in cli("list", "probes")[1]
    probes = drop_curves(measure_probes(encoder, DATA, ("length",)).probes)
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
    with pytest.raises(InputError) as refused:
        parse_probes("isotropy,cost")
    assert not missing_facts(refused.value, "--probes: probe cost", "pip install thop setuptools")
    assert parse_probes("isotropy") == ("isotropy",)
