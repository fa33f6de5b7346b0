"""Draws of items: computed once, kept under the campaign, never trusted unseen; and `bench stats` on them."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.comparison import item_bootstrap as draws
from bench.comparison.item_bootstrap import CampaignRun, draw_items, draws_path
from bench.data.suites import load_suite
from bench.errors import BenchError, NotComparableError
from bench.eval.pair_suite import PairSuite
from bench.eval.sts import score_suite
from bench.records.integrity import seal_record
from bench.records.record import parse_record, record_to_json
from bench.records.store import ResultStore
from bench.stats.argument_checks import make_generator
from bench.stats.resampling import spearman_draws
from tests.support.campaigns import make_record
from tests.support.cli import Cli
from tests.support.messages import missing_facts

FEW = ("--draws", "100")
METHODS = "noise,word_overlap"


@pytest.fixture
def runs(cli: Cli, tmp_path: Path) -> list[CampaignRun]:
    """Three seeds of noise and word_overlap on the suite mini-dev."""
    cli("run", "--methods", METHODS, "--seeds", "1-3", "--suite", "mini-dev")
    store = ResultStore(tmp_path / "results", "local")
    return [CampaignRun(store, record) for record in store.records()]


def kept(folder: Path, campaign: str = "local") -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (folder / "results" / campaign / "stats").iterdir()}


def as_json(cli: Cli, *arguments: str) -> Any:
    code, out, err = cli("stats", "--format", "json", *FEW, *arguments)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_every_record_gets_its_items_interval_and_every_method_that_of_its_seeds(
    cli: Cli, runs: list[CampaignRun], tmp_path: Path
) -> None:
    found = as_json(cli, "--level", "0.9")
    gold = np.array(load_suite("mini-dev")[1][0].subsets[0].gold)
    for run, one in zip(runs, found["records"], strict=True):
        assert (one["method"], one["seed"]) == (run.record.method, run.record.seed)
        predictions = run.store.predictions(run.record)["MINI-dev"]
        values = spearman_draws(predictions, gold, make_generator(1, "items/MINI-dev"), 100)
        expected = np.quantile(values, [0.05, 0.95])
        assert one["intervals"]["MINI-dev"] == pytest.approx(list(expected), abs=1e-6)
        assert one["intervals"]["avg"] == pytest.approx(list(expected), abs=1e-6)
        assert one["scores"]["avg"] == run.record.score("avg")
    scores = [run.record.score("avg") or 0 for run in runs if run.record.seed]
    interval = stats.ttest_1samp(scores, 0).confidence_interval(0.9)
    (noise,) = (one for one in found["methods"] if one["method"] == "noise")
    assert (noise["seeds"], noise["mean"], noise["sd"]) == ([1, 2, 3], fmean(scores), stdev(scores))
    assert noise["interval"] == pytest.approx([interval.low, interval.high])
    (overlap,) = (one for one in found["methods"] if one["method"] == "word_overlap")
    assert (overlap["seeds"], overlap["sd"], overlap["interval"]) == ([], None, None)
    assert found["methods"][0]["mean"] > found["methods"][1]["mean"]
    code, out, err = cli("stats", *FEW)
    assert (code, err) == (0, "")
    average = f"{100 * overlap['mean']:.2f}"
    assert f"{average} - -" in " ".join(out.split())
    code, out, err = cli("stats", *FEW, "--details")
    assert f"{average} - - {average}" in " ".join(out.split())
    assert missing_facts(out, "percentile interval", "(100 draws)") == []


def test_it_says_which_methods_are_pairs(cli: Cli, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "local")

    def add(size: int, *methods: str) -> None:
        for method, seed in product(methods, (1, 2)):
            record = make_record(method, seed, {"T": 0.5 + seed / 100}, options={"batch_size": size})
            store.write(record.place, record, {"T": np.linspace(0, seed, 10, dtype=np.float32)})

    add(64, "a", "b")
    add(32, "c")
    (pair,) = json.loads(cli("stats", "--format", "json", *FEW)[1])["pairs"]
    shared = pair.pop("shared")
    assert pair == {"profile": "mini", "suite": "sts7", "first": "a", "second": "b"}
    facts = ("bench compare A B", "--table significance", f"a and b, which {shared}")
    assert missing_facts(cli("stats", *FEW)[1], *facts) == []
    add(64, "0", "1", "2")
    assert "10 pairs of methods" in " ".join(cli("stats", *FEW)[1].split())


def test_draws_are_computed_once_and_equal_in_any_company(
    cli: Cli, runs: list[CampaignRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = as_json(cli)
    before = kept(tmp_path)
    assert sorted(before) == sorted(draws_path(run, 100).name for run in runs)
    root = tmp_path / "results"
    (root / "one").mkdir()
    shutil.copytree(root / "local" / "mini" / "noise", root / "one" / "mini" / "noise")
    cli("compare", "noise#3", "noise#1", "--campaign", "one", *FEW)
    alone = kept(tmp_path, "one")
    assert len(alone) == 2
    assert alone.items() <= before.items()
    monkeypatch.setattr(PairSuite, "item_statistics", None)  # no draw is computed any more
    assert as_json(cli) == first
    code, out, err = cli("compare", "noise", "word_overlap", "--format", "json", *FEW)
    assert (code, err) == (0, "")
    assert json.loads(out)[0]["item_level"]["components"] is not None


def test_a_suite_of_one_cluster_keeps_its_seeds(cli: Cli, tmp_path: Path) -> None:
    """Sentences link all pairs of suite toy, so its items give no interval."""
    assert cli("run", "--methods", METHODS, "--seeds", "1-3", "--suite", "toy")[0] == 0
    code, out, err = cli("stats", *FEW)
    assert (code, err.count("\n")) == (0, 1)
    assert missing_facts(err, "suite toy", "180 items of TOY", "1.0 clusters", "at least 10") == []
    assert missing_facts(out, "seeds 1-3", "smoke test") == []
    assert not (tmp_path / "results/local/stats").exists()
    one = json.loads(cli("stats", "--format", "json", *FEW)[1])
    assert [record["intervals"] for record in one["records"]] == [None] * 4
    (noise,) = (method for method in one["methods"] if method["method"] == "noise")
    assert noise["interval"] is not None
    code, out, err = cli("compare", "noise", "word_overlap", *FEW)
    assert (code, err) == (0, "")
    (line,) = (line for line in out.splitlines() if "Items: left out: " in line)
    assert missing_facts(line, "suite toy", "180 items of TOY", "1.0 clusters", "at least 10") == []


def test_chunks_and_other_settings(runs: list[CampaignRun], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    whole = list(draw_items(runs, draws=100, progress=done.append))
    assert sum(done) == len(runs)
    for run in runs:
        draws_path(run, 100).unlink()
    monkeypatch.setattr(draws, "_CHUNK", 300)
    for one, other in zip(whole, draw_items(runs, draws=100), strict=True):
        assert one.values.dtype == np.float32
        assert one.values.shape == (100, 1)
        np.testing.assert_array_equal(one.values, other.values)
    (other_seed,) = draw_items(runs[:1], draws=100, seed=2)
    assert not np.array_equal(whole[0].values, other_seed.values)
    another = replace(runs[0], record=replace(runs[0].record, key="another"))
    names = {draws_path(*of) for of in product((runs[0], another), (100, 200), (1, 2))}
    assert len(names) == 8


def changed(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[bytes], bytes]:
    def write(payload: bytes) -> bytes:
        with np.load(io.BytesIO(payload)) as archive:
            arrays = change({name: archive[name] for name in archive.files})
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        return buffer.getvalue()

    return write


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda payload: payload[:-50], "draws are damaged"),
        (lambda payload: payload[:400] + b"\x00\xff" + payload[402:], "computed again"),
        (lambda payload: b"", "draws are damaged"),
        (changed(lambda a: a | {"facts": np.array([{}], dtype=object)}), "ValueError"),
        (changed(lambda a: {"draws": a["draws"]}), "KeyError"),
        (changed(lambda a: a | {"draws": a["draws"] * 0}), "not the draws"),
        (changed(lambda a: a | {"draws": a["draws"][:50]}), "not the draws"),
        (changed(lambda a: a | {"draws": np.zeros((90_000, 1))}), "ValueError"),
        ("other", "not the draws"),
    ],
)
def test_damaged_and_foreign_draws_are_never_trusted(
    cli: Cli, runs: list[CampaignRun], tmp_path: Path, damage: Any, message: str
) -> None:
    expected, before = as_json(cli), kept(tmp_path)
    path, other = draws_path(runs[0], 100), draws_path(runs[1], 100)
    path.write_bytes(other.read_bytes() if damage == "other" else damage(path.read_bytes()))
    code, out, err = cli("stats", "--format", "json", *FEW)
    assert (code, json.loads(out)) == (0, expected)
    assert missing_facts(err, f"results/local/stats/{path.name}", message) == []
    assert err.count("\n") == 1
    assert kept(tmp_path) == before


def test_draws_that_cannot_be_kept_cost_only_time(cli: Cli, runs: list[CampaignRun], tmp_path: Path) -> None:
    (tmp_path / "results/local/stats").write_text("in the way")
    code, out, err = cli("stats", "--format", "json", *FEW)
    assert (code, err.count("can't be kept")) == (0, len(runs))
    assert len(runs) == 4
    assert all(one["intervals"] for one in json.loads(out)["records"])
    for arguments, message in (
        (["--campaign", "none"], "no campaign 'none'; expected one of local"),
        (["--suite", "sts7"], "no finished record matches"),
        (["--draws", "99"], "99 is not in the range"),
        (["--level", "1"], "1.0 is not in the range"),
    ):
        code, out, err = cli("stats", *arguments)
        assert (code, out, message in err) == (2, "", True)


def test_what_has_no_items_says_so_and_keeps_its_seeds(
    cli: Cli, runs: list[CampaignRun], tmp_path: Path
) -> None:
    runs[0].path.with_suffix(".npz").unlink()
    code, out, err = cli("stats", "--format", "json", *FEW)
    assert code == 0
    missing = [one for one in json.loads(out)["records"] if one["intervals"] is None]
    assert [(one["method"], one["seed"]) for one in missing] == [("noise", 1)]
    assert missing_facts(err, "noise/seed-1/mini-dev.json: ", "predictions are missing") == []
    for run in runs:
        tasks = {"MINI-dev": {**run.record.tasks["MINI-dev"], "sha256": "0" * 64}}
        run.path.write_text(
            record_to_json(seal_record(replace(parse_record(run.path.read_text(), ""), tasks=tasks)))
        )
    code, out, err = cli("stats", *FEW)
    assert (code, missing_facts(err, "left out", "suite mini-dev", "MINI-dev differs")) == (0, [])
    assert missing_facts(out, "noise", "seeds 1-3") == []
    store = runs[1].store
    others = [CampaignRun(store, record) for record in store.records()]
    with pytest.raises(NotComparableError, match=r"MINI-dev differs .* noise"):
        list(draw_items(others, draws=100))


def test_an_undefined_correlation_is_one_line(runs: list[CampaignRun]) -> None:
    (task,) = load_suite("mini-dev")[1]
    predictions = {"MINI-dev": np.eye(1, 900, dtype=np.float32)[0]}
    scores = score_suite([task], predictions)
    runs[0].store.write(runs[0].record.place, replace(runs[0].record, scores=scores), predictions)
    run = CampaignRun(runs[0].store, runs[0].store.records()[0])
    with pytest.raises(BenchError, match=r"suite mini-dev: no draws of MINI-dev: .* equal"):
        list(draw_items([run], draws=100))


@pytest.mark.long
def test_a_phenomenon_has_wilsons_interval_where_all_items_are_wrong_too(cli: Cli) -> None:
    assert cli("run", "--methods", "word_overlap", "--suite", "mini-contrast")[0] == 0
    code, out, err = cli("stats", "--tasks", *FEW, "--format", "json")
    assert code == 0, err
    (record,) = json.loads(out)["records"]
    for task, share in record["scores"].items():
        if task != "avg":
            expected = stats.binomtest(round(2 * 200 * share), 400).proportion_ci(0.95, "wilson")
            low, high = record["intervals"][task]
            assert low <= share <= high
            assert high - low > expected.high - expected.low  # ties count half, of 200 items, not 400
    assert record["scores"]["swap"] == 0
    exact = stats.binomtest(0, 200).proportion_ci(0.95, "wilson")
    assert record["intervals"]["swap"] == pytest.approx([exact.low, exact.high], abs=1e-12)
    _, out, _ = cli("stats", "--tasks", *FEW)
    (line,) = (line.split() for line in out.splitlines() if " swap " in line)
    assert line[-4:] == ["swap", "0.00", "[0.00,", "1.88]"]
