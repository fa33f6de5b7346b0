"""Probes in records and on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bench.errors import DataError, NewerRecordError, NotComparableError
from bench.execution import record_probes
from bench.execution.encoder_builder import EncoderBuilder
from bench.probes import PROBES
from bench.records.record import SCHEMA, RunRecord, Score, parse_record, record_to_json
from bench.reports.tables.probes import ProbedRun, probe_grids, probed_runs
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.messages import missing_facts

TRAIN = ("--dev", "toy", "--set", "simcse.steps=3", "--set", "simcse.eval_every=2",
         "--set", "simcse.batch_size=4", "--set", "simcse.lr=1e-3")  # fmt: skip
TOY = ("--suite", "toy")


@pytest.fixture(autouse=True)
def small_dev_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe the toy pairs, not the mini world's dev set."""
    monkeypatch.setattr(record_probes, "find_probe_suite", lambda _spec: "toy")
    monkeypatch.setattr("bench.execution.cell_run.find_probe_suite", lambda _spec: "toy")


def stored(folder: Path) -> dict[str, tuple[bytes, bytes]]:
    """JSON and similarities of each record."""
    return {
        path.parent.parent.name: (path.read_bytes(), path.with_suffix(".npz").read_bytes())
        for path in sorted((folder / "results" / "local").rglob("toy.json"))
    }


def bare(text: bytes) -> dict[str, Any]:
    """A record without its probes and its seal."""
    data: dict[str, Any] = json.loads(text)
    for block, name in ((data["timing"], "probes"), (data["timing"], "record_sha256"), (data, "probes")):
        block.pop(name, None)
    return {**data, "schema": None}


def probes_of(folder: Path) -> Any:
    return json.loads(stored(folder)["noise"][0]).get("probes")


@pytest.mark.slow
def test_added_probes(cli: Cli, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = ("--backbone", str(tiny_bert))
    run = ("run", "--methods", "noise,mine=simcse,word_overlap", "--seeds", "1", *TOY, *TRAIN, *backbone)
    code, table, err = cli(*run)
    assert code == 0, err
    before = stored(tmp_path)
    assert len(before) == 3
    assert all(b"probes" not in text for text, _ in before.values())
    monkeypatch.setattr(EncoderBuilder, "_train_stage", lambda *_: pytest.fail("trained again"))
    code, out, err = cli(*run, "--probes", "all", "--dry-run")
    assert code == 0, err
    assert all("probes to do" in line for line in out.splitlines()[:3])
    assert not missing_facts(out, "0 of 3", "3 to probe", "1 training stages", "1 done already")
    code, out, err = cli(*run, "--probes", "all")
    assert (code, out) == (0, table), err
    assert not missing_facts(err, "[3/3] mine", "probes in ")
    after = stored(tmp_path)
    for method, (text, similarities) in before.items():
        assert bare(after[method][0]) == bare(text)
        assert after[method][1] == similarities
        record = parse_record(after[method][0].decode(), method)
        assert set(record.probes) == {"version", "data", *PROBES}
        assert record.schema == SCHEMA
        assert record_to_json(record).encode() == after[method][0]
        assert {"wall_seconds", "cpu_seconds"} <= record.timing["probes"].keys()
    simcse = parse_record(after["mine"][0].decode(), "x").probes
    assert simcse["cls_energy"]["pooling"] == "cls"
    assert "40 tokens" in simcse["cost"]["missing"]
    code, out, err = cli(*run, "--probes", "all")
    assert (code, out, "3 of 3" in err) == (0, table, True)
    assert stored(tmp_path) == after
    code, out, err = cli("probe", "simcse", "--seeds", "1", *TRAIN, *backbone, "--probes", "uniformity")
    assert (code, "Vectors: TOY, " in out) == (0, True), err  # the dev set of its training


def test_a_new_cell_gets_its_probes_at_once_and_more_of_them_later(cli: Cli, tmp_path: Path) -> None:
    run = ("run", "--methods", "noise", "--seeds", "1-2", *TOY)
    assert cli(*run, "--probes", "alignment,isotropy")[0] == 0
    first = probes_of(tmp_path)
    assert set(first) == {"version", "data", "alignment", "isotropy"}
    assert cli(*run, "--probes", "alignment,density")[0] == 0
    second = probes_of(tmp_path)
    assert set(second) == {"version", "data", "alignment", "isotropy", "density"}
    assert second["isotropy"] == first["isotropy"]
    before = stored(tmp_path)
    assert cli(*run)[0] == 0
    assert stored(tmp_path) == before
    assert cli(*run, "--force")[0] == 0
    assert probes_of(tmp_path) is None


@pytest.mark.parametrize("option", ["--dry-run", "--estimate"])
def test_a_plan_counts_the_cells_that_only_lack_probes(cli: Cli, option: str) -> None:
    run = ("run", "--methods", "noise", *TOY, "--probes", "alignment")
    assert cli(*run, "--seeds", "1")[0] == 0
    assert cli(*run[:-2], "--seeds", "2-3")[0] == 0
    estimated = option == "--estimate"
    code, out, err = cli(*run, "--seeds", "1-3", option)
    assert code == 0, err
    assert not missing_facts(out, "0 of 3", "2 to probe", "0 training stages")
    assert ("of 2 cell(s)" in out) == estimated
    code, out, err = cli(*run, "--seeds", "1-4", option)
    assert code == 0, err
    assert not missing_facts(out, "1 of 4", "2 to probe", "0 training stages")
    assert ("of 3 cell(s)\nnoise " in out) == estimated
    out = cli(*run, "--seeds", "1", option)[1]
    assert missing_facts(out, "0 of 1", "0 training stages", "probe") == ["probe"]


def test_old_probes_are_measured_again(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ("run", "--methods", "noise", "--seeds", "1", *TOY, "--probes")
    cli(*run, "alignment,isotropy")
    monkeypatch.setattr(record_probes, "VERSION", 2)
    monkeypatch.setattr("bench.probes.measurement.VERSION", 2)
    code, _, err = cli(*run, "alignment")
    assert (code, "probes in" in err) == (0, True)
    probes = probes_of(tmp_path)
    assert (probes["version"], set(probes)) == (2, {"version", "data", "alignment"})


def test_failed_probes_change_no_record(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ("run", "--methods", "noise", "--seeds", "1", *TOY)
    cli(*run)
    before = stored(tmp_path)

    broken = Mock(side_effect=RuntimeError("no luck"))
    with monkeypatch.context() as patch:
        patch.setattr("bench.probes.measurement.measure_probes", broken)
        code, _, err = cli(*run, "--probes", "all")
    assert code == 1
    assert not missing_facts(err, "noise seed 1", "FAILED", "RuntimeError: no luck")
    assert stored(tmp_path) == before
    assert cli(*run, "--probes", "all")[0] == 0
    assert stored(tmp_path) != before


@pytest.mark.slow
def test_a_stage_of_another_encoder_is_refused(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    run = ("run", "--methods", "simcse", "--seeds", "1", *TOY, *TRAIN, "--backbone", str(tiny_bert))
    assert cli(*run)[0] == 0
    (path,) = (tmp_path / "results" / "local").rglob("toy.json")

    def change(record: dict[str, Any]) -> None:
        record["training"]["stages"]["simcse"]["last_loss"] += 1e-9

    forge(path, change)  # else the record counts as damaged, and its cell runs again
    code, _, err = cli(*run, "--probes", "all")
    assert code == 1
    assert not missing_facts(err, "stage 'simcse'", "another encoder")


def test_a_bad_probe_is_refused_before_anything_runs(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli("run", "--methods", "noise", *TOY, "--probes", "alignment,energy")
    assert (code, "unknown probe 'energy'" in err) == (2, True)
    assert not (tmp_path / "results").exists()
    code, out, _ = cli("list", "probes")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [*PROBES, "overlap", "gradient"]


@pytest.mark.slow
def test_bench_probe_prints_tables_and_figures(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    base = ("untrained", "word_overlap", "--backbone", str(tiny_bert), "--on", "toy", *TOY)
    code, out, err = cli("probe", *base, "--heatmaps", "maps")
    assert code == 0, err
    assert not missing_facts(out, "Vectors: TOY, ", "no alignment, uniformity")
    assert (tmp_path / "maps" / "untrained.svg").read_text().startswith("<svg")
    assert "heatmap of word_overlap" in err
    names = "attention_sink,isotropy"
    code, out, _ = cli("probe", *base, "--format", "json", "--probes", names, "--per-head")
    untrained, overlap = json.loads(out)
    assert (untrained["method"], untrained["average"], overlap["seed"]) == ("untrained", None, None)
    assert len(untrained["probes"]["isotropy"]["spectrum"]) == 16
    assert len(untrained["probes"]["attention_sink"]["maps"][0]["layers"]) == 3
    assert len(untrained["probes"]["attention_sink"]["towers"][0]["heads"]) == 3
    maps = ("--heatmaps", "maps")
    for options, facts in (
        (("--sentence", "", *maps), ("--sentence: ", "empty")),
        (("--sentence", "a \udcff", *maps), ("--sentence: ", "not UTF-8")),
        (("--sentence", "a"), ("--sentence: ", "expected --heatmaps DIR")),
        (("--probes", "cost", *maps), ("--probes cost: ", "attention_sink")),
    ):
        code, _, err = cli("probe", "untrained", *options)
        assert (code, missing_facts(err, *facts)) == (2, []), err


def test_bench_probe_takes_eta_from_the_finished_record(cli: Cli) -> None:
    options = ("--profile", "mini", *TOY)
    assert cli("run", "--methods", "untrained", *options)[0] == 0
    form = ("--probes", "cost", "--format", "json")
    code, out, err = cli("probe", "untrained", *options, "--on", "toy", *form)
    assert code == 0, err
    (found,) = json.loads(out)
    cost = found["probes"]["cost"]
    assert cost["eta"] == pytest.approx(100 * found["average"] / cost["gmac"])
    assert cost["eta_suite"] == "toy"


def test_bench_probe_shows_the_probes_of_records(cli: Cli) -> None:
    code, _, err = cli("probe")
    assert (code, "no campaign 'local'" in err) == (2, True)
    run = ("run", "--methods", "noise,untrained", "--seeds", "1-2", *TOY)
    assert cli(*run)[0] == 0
    code, _, err = cli("probe")
    assert (code, "record has probes" in err) == (2, True)
    assert cli(*run, "--probes", "all")[0] == 0
    code, out, err = cli("probe")
    assert code == 0, err
    assert "±" in next(line for line in out.splitlines() if line.split()[:1] == ["noise"])
    assert not missing_facts(out, "TOY, 156 sentences", "E_CLS", "noise (it has no")
    found = json.loads(cli("probe", "--format", "json")[1])
    assert found.keys() == {"probes", "mechanism", "notes"}
    points = {relation["quantity"]: list(relation["points"]) for relation in found["mechanism"]}
    assert (points["E_CLS"], points["alignment"]) == (["untrained"], ["noise", "untrained"])


def probed(method: str, energy: float, average: float, seed: int = 1) -> ProbedRun:
    block = {"value": energy, "pooling": "cls", "convention": "c"}
    probes = {"version": 1, "data": {"tasks": {"T": {}}, "sentences": 3}, "cls_energy": block}
    return ProbedRun("p", method, seed, "s", average, probes, {})


def test_tables_show_means_over_seeds_and_refuse_other_sentences() -> None:
    vectors, attention = probe_grids([probed("a", 0.1, 0.5), probed("a", 0.2, 0.5, seed=2)])
    assert not missing_facts(attention.title, "T, 3 sentences", "s, profile p")
    row = dict(zip(attention.header, attention.rows[0], strict=True))
    assert (row["seeds"], row["E_CLS"], row["GMAC"]) == ("2", "0.1500±0.0707", "-")
    assert attention.notes == ("cls_energy: c",)
    assert vectors.notes == ()
    other = probed("b", 0.1, 0.5)
    other.probes["data"]["sentences"] = 4
    with pytest.raises(NotComparableError, match="different"):
        probe_grids([probed("a", 0.1, 0.5), other])


RECORD = RunRecord(
    "p", "m", "m", 1, {}, None, 1, "s", {"T": {"pairs": 2, "sha256": "x", "reference": True}}, "k", "ok",
    scores=(Score("avg", "all", "spearman", 0.5, 1),),
)  # fmt: skip
PROBES_BLOCK = {"version": 1, "data": {"suite": "s", "tasks": {}, "sentences": 3}, "cost": {"gmac": 0.5}}


def test_a_record_with_probes_reads_back_and_a_newer_one_is_refused() -> None:
    assert '"probes"' not in record_to_json(RECORD)
    assert parse_record(record_to_json(RECORD), "x") == RECORD
    assert probed_runs([RECORD, replace(RECORD, status="failed", scores=(), probes=PROBES_BLOCK)]) == []
    record = replace(RECORD, probes=PROBES_BLOCK)
    assert parse_record(record_to_json(record), "x") == record
    (found,) = probed_runs([record])
    assert (found.average, found.value("cost", "gmac"), found.value("cost", "x", 1)) == (0.5, 0.5, None)
    assert record_probes.add_cost_efficiency(record.probes, record)["cost"]["eta"] == 100
    with pytest.raises(NewerRecordError):
        parse_record(record_to_json(replace(record, schema=SCHEMA + 1)), "x")


@pytest.mark.parametrize(
    "probes",
    [
        {**PROBES_BLOCK, "cost": 3},
        {**PROBES_BLOCK, "data": {"tasks": {}}},
        {**PROBES_BLOCK, "data": {"tasks": [], "sentences": 3}},
        {"cost": {}},
        {**PROBES_BLOCK, "cost": {"gmac": "no number"}},
    ],
)
def test_damaged_probes_are_refused(probes: dict[str, Any]) -> None:
    text = record_to_json(replace(RECORD, probes=probes)).replace('"no number"', "NaN")
    with pytest.raises(DataError, match="not a run record"):
        parse_record(text, "x")
