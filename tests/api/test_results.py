"""`bench.results`: the tables, comparisons and plots are the reports' own numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import bench
from bench.api import notebook_tables
from bench.render.grid import Grid
from tests.support.campaigns import hostile_campaign
from tests.support.house import ROOT

MINI = ROOT / "results" / "mini"


@pytest.fixture(scope="module")
def mini() -> Any:
    return bench.results(MINI)


def test_the_long_frame_has_every_score(mini: Any) -> None:
    frame = mini.to_dataframe()
    record = next(r for r in mini.records if r.method == "tncse" and r.seed == 2)
    rows = frame[(frame.method == "tncse") & (frame.seed == 2)].set_index("task").score
    assert rows["avg"] == pytest.approx(100 * record.score("avg"), abs=0)
    assert len(frame) == sum(
        1 for r in mini.records for s in r.scores if s.subset == "all" and s.metric == r.metric
    )
    wide = mini.to_dataframe(wide=True)
    assert len(wide) == len(mini.records)
    assert wide.avg.tolist() == [100 * r.score("avg") for r in mini.records]


def test_the_leaderboard_has_the_numbers_of_the_command(mini: Any, cli: Any) -> None:
    arguments = ("--campaign", "mini", "--results", str(ROOT / "results"), "--baseline", "untrained")
    printed = json.loads(cli("report", *arguments, "--format", "json", "--table", "leaderboard")[1])
    frame = mini.leaderboard("untrained", all_rows=True).to_dataframe().set_index("method")
    (table,) = printed
    rows = [dict(zip(table["header"], row, strict=True)) for row in table["rows"]]
    assert {row["method"] for row in rows} == set(frame.index)
    for row in rows:
        own = frame.loc[row["method"]]
        assert (own.avg, own.answer) == (100 * row["avg"]["mean"], row["answer"])
        assert row["low"] == "-" or own.low == 100 * row["low"]["value"]


def test_a_comparison_has_the_numbers_of_the_command(mini: Any, cli: Any) -> None:
    arguments = ("--campaign", "mini", "--results", str(ROOT / "results"), "--format", "json")
    (printed,) = json.loads(cli("compare", "tncse", "jtcse", *arguments)[1])
    answer = mini.compare("tncse", "jtcse")
    assert answer.estimate == pytest.approx(100 * printed["difference"])
    assert answer.interval == pytest.approx([100 * end for end in printed["interval"]])
    assert answer.p == printed["p"]
    assert answer.verdict == f"{printed['verdict']}."
    assert answer.seeds == (1, 2, 3, 4, 5)
    assert "TNCSE - JTCSE" in repr(answer)


def test_a_filter_holds_for_all_that_follows(mini: Any) -> None:
    part = mini.filter(["tncse", "jtcse"], seeds="1-3")
    assert part.compare("tncse", "jtcse", seeds_only=True).seeds == (1, 2, 3)
    assert set(part.leaderboard("tncse").to_dataframe().method) == {"tncse", "jtcse"}
    assert set(part.to_dataframe().seed) == {1, 2, 3}
    with pytest.raises(bench.InputError, match="simcse"):
        part.compare("tncse", "simcse")
    with pytest.raises(bench.InputError, match="tncse"):
        mini.filter("tnsce")
    with pytest.raises(bench.InputError, match="mini"):
        mini.filter(suite="sts7")


def test_options_of_compare_reach_the_test(mini: Any) -> None:
    welch = mini.compare("tncse", "jtcse", test="welch", for_="seeds")
    assert welch.found.headline.test == "welch"
    assert welch.found.headline.speaks_for == "seeds"
    with pytest.raises(bench.InputError, match="test"):
        mini.compare("tncse", "jtcse", tset="welch")


def test_plots_are_svg_and_files(mini: Any, tmp_path: Path) -> None:
    forest = mini.plot.forest("simcse")
    names = " ".join(ElementTree.fromstring(forest.svg).itertext())  # noqa: S314 - our own drawing
    assert "TNCSE" in names
    assert forest.save(tmp_path / "forest.svg").read_text() == forest.svg
    assert forest.save(tmp_path / "forest.pdf").read_bytes()[:5] == b"%PDF-"
    assert mini.plot.seeds().save(str(tmp_path / "seeds.png")).read_bytes()[1:4] == b"PNG"
    with pytest.raises(bench.InputError, match="pdf"):
        forest.save(tmp_path / "forest.jpg")
    assert "<svg" not in forest._repr_html_()  # an image keeps its styles to itself


def test_without_a_baseline_there_is_no_forest(mini: Any) -> None:
    with pytest.raises(bench.InputError):
        mini.filter("untrained").plot.forest()


def test_texts_from_outside_are_escaped(tmp_path: Path) -> None:
    store = hostile_campaign(tmp_path)
    results = bench.results(store.root)
    pages = [results._repr_html_(), results.leaderboard()._repr_html_()]
    for page in pages:
        assert "<script" not in page
        assert "<img" not in page
    grid = Grid("<b>", ("<i>",), (("a\x1b[31m",),), ())
    assert notebook_tables.render_html([grid], ["<u>"]).count("&lt;") == 3
    assert "\x1b" not in notebook_tables.render_html([grid])


def test_a_missing_folder_names_what_is_near(tmp_path: Path) -> None:
    with pytest.raises(bench.InputError, match="'mini'"):
        bench.results(ROOT / "results" / "miny")
    with pytest.raises(bench.InputError, match="minilm-lm"):
        bench.results(ROOT / "results")
    (tmp_path / "empty").mkdir()
    with pytest.raises(bench.InputError, match="no record"):
        bench.results(tmp_path / "empty")


def test_a_record_against_its_predictions_has_no_score(tmp_path: Path) -> None:
    results = bench.run("word_overlap", results=tmp_path, campaign="forged")
    store, (record,) = results.store, results.records
    scores = tuple(replace(score, value=min(1.0, score.value + 0.05)) for score in record.scores)
    store.write(record.place, replace(record, scores=scores), store.predictions(record))
    forged = bench.results(tmp_path / "forged")
    assert forged.missing == 1
    assert "avg" not in set(forged.to_dataframe().task)
    assert len(forged.failures) == 1


def test_the_text_says_what_is_there(mini: Any) -> None:
    lines = repr(mini).splitlines()
    assert lines[0].startswith("36 records")
    assert sum("tncse" in line for line in lines) >= 3


def test_names_are_those_of_these_results(tmp_path: Path) -> None:
    given: dict[str, Any] = {"suite": "toy", "results": tmp_path, "seeds": "1-3"}
    first = bench.run(["noise[scale=2]", "word_overlap"], **given)
    bench.run(["noise[scale=3]"], **given)
    answer = first.compare("noise", "word_overlap", seeds_only=True)
    assert answer.found.first == "noise[scale=2.0]"
    everything = bench.results(tmp_path / "local")
    with pytest.raises(bench.InputError, match="2 rows"):
        everything.compare("noise", "word_overlap", seeds_only=True)


def test_a_blocked_run_is_missing_with_its_reason(tmp_path: Path) -> None:
    given: dict[str, Any] = {"suite": "toy", "results": tmp_path, "seeds": "1-2"}
    bench.run("row=noise", **given)
    blocked = bench.run(["row=noise[scale=3]", "word_overlap"], **given)
    assert blocked.missing == 2
    assert blocked.failures.seed.tolist() == [1, 2]
    assert all("another specification" in reason for reason in blocked.failures.reason)
    assert "another specification" in repr(blocked)
    with pytest.raises(bench.BenchError, match="another specification"):
        blocked.require_complete()


def test_a_failed_run_has_its_traceback_and_a_row(tmp_path: Path) -> None:
    results = bench.run("broken", seeds="1-2", suite="toy", results=tmp_path)
    assert "no luck" in results.failures.traceback.item()
    wide = results.to_dataframe(wide=True)
    assert wide.seed.tolist() == [1, 2]
    assert wide.avg.isna().tolist() == [False, True]


def test_seeds_of_several_specifications_have_no_average(tmp_path: Path) -> None:
    for seed, scale in ((1, 2.0), (2, 3.0)):
        place = {"results": tmp_path / str(seed), "suite": "toy", "seeds": seed}
        bench.run(f"row=noise[scale={scale}]", **place)  # type: ignore[arg-type]
    one, two = (tmp_path / str(seed) / "local/mini/row" for seed in (1, 2))
    (two / "seed-2").rename(one / "seed-2")
    mixed = bench.results(tmp_path / "1" / "local")
    assert "several specifications" in repr(mixed)
    with pytest.raises(bench.BenchError, match="specification"):
        mixed.leaderboard().to_dataframe()


@pytest.mark.parametrize(
    "call",
    [
        lambda r: r.filter(methods=3),
        lambda r: r.filter(methods=[None]),
        lambda r: r.filter(suite=["mini"]),
        lambda r: r.filter(seeds=b"1"),
        lambda r: r.compare(None, "tncse"),
        lambda r: r.compare("tncse", ["jtcse"]),
        lambda r: r.compare("tncse", "jtcse", campaign="other"),
        lambda r: r.leaderboard(margin=-1),
        lambda r: r.leaderboard(margin=float("nan")),
        lambda r: r.leaderboard(baseline=["tncse"]),
        lambda r: r.leaderboard("tncse").to_latex(sd="nope"),
        lambda r: r.plot.seeds().save(3),
        lambda r: r.plot.seeds().save("x\0.svg"),
        lambda r: bench.results(3),  # type: ignore[arg-type]
        lambda r: bench.results("x" * 5000),
        lambda r: bench.load(None),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_one_error(mini: Any, call: Any) -> None:
    with pytest.raises(bench.InputError):
        call(mini)


def test_a_leaderboard_of_a_notebook_says_what_a_reader_must_know(mini: Any) -> None:
    page = mini.leaderboard("simcse")._repr_html_()
    assert "not a benchmark" in page
    assert "<details>" in page
    assert ">untrained<" in page
