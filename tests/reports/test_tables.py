from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.comparison import item_bootstrap as item_draws
from bench.config.sweep_manifest import Manifest
from bench.data.published_tables import NO_TEXT, SICK, WIKI, ablation_figures, load_figures, published_rows
from bench.errors import DataError, InputError
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.render.formats import render_grids
from bench.render.grid import Grid, Quoted, ScoreCell, mark_best, plain_text
from bench.render.latex import escape_latex, latex_tables
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.record_groups import round_averages
from bench.reports.report import render_report
from bench.reports.sections import TABLES, table_grids
from bench.reports.tables.differences import EXACT
from bench.reports.tables.leaderboard import OVER_SEEDS
from bench.reports.tables.leaderboard_page import page_boards
from bench.reports.tables.pairwise_tests import ABOVE
from bench.reports.tables.published_figures import paper_text, plausible_run, published_names
from bench.reports.tables.suite_tables import GROUPS
from bench.stats.seeds import one_sample
from tests.reports.conftest import OVERLAP
from tests.support.campaigns import make_record, probes_of
from tests.support.cli import Cli
from tests.support.item_draws import keep_run_draws
from tests.support.messages import missing_facts, numbers_in
from tests.support.standings import campaign, seeds

SIMCSE = {
    **{"STS12": 0.6840, "STS13": 0.8241, "STS14": 0.7438, "STS15": 0.8091, "STS16": 0.7856},
    **{"STSB": 0.7685, "SICKR": 0.7223},
}
WITH_SICK = f"{WIKI}+{SICK}"
RELEASED = make_record("x", None, SIMCSE, name="released", options={"name": "tncse_d_bert"})


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ({"a": 0.8, "b": 0.7, "c": 0.6}, {"a": "best", "b": "second", "c": ""}),
        ({"a": 0.80001, "b": 0.80004, "c": 0.6}, {"a": "second", "b": "second", "c": ""}),
        ({"a": 0.8, "b": 0.7, "c": 0.70001}, {"a": "best", "b": "second", "c": "second"}),
        ({"a": 0.99825, "b": 0.9983}, {"a": "second", "b": "second"}),  # both 99.83
        ({"a": 0.8, "b": None}, {"a": "", "b": ""}),
        ({"a": 0.8, "b": 0.8}, {"a": "second", "b": "second"}),
        ({}, {}),
    ],
)
def test_a_tie_as_printed_is_never_a_win(values: dict[str, float | None], marks: dict[str, str]) -> None:
    assert mark_best(values) == marks


def test_rounded_averages_are_simcses() -> None:
    scores = {"STS12": 0.700064, "STSB": 0.700164}
    record = make_record("x", 1, scores)
    (rounded,) = round_averages([record])
    assert rounded.score("avg") == pytest.approx((0.7001 + 0.7002) / 2, abs=1e-12)
    assert rounded.score("STS12") == 0.700064
    assert record.score("avg") == pytest.approx(0.700114, abs=1e-12)


def test_the_papers_layout_groups_by_backbone_and_kind(tmp_path: Path) -> None:
    source = campaign(
        tmp_path,
        make_record("untrained", None, {"STSB": 0.4}, corpus=None),
        *(make_record("simcse", seed, {"STSB": 0.7 + seed / 1000}) for seed in (1, 2)),
        make_record("tncse", 1, {"STSB": 0.8}, parts=2),
        make_record("tncse_d", 1, {"STSB": 0.79}),
        make_record("simcse", 1, {"STSB": 0.75}, profile="roberta", backbone="roberta-base"),
    )
    (grid,) = table_grids(source, "sts7")
    assert grid.header == ("method", "STS-B", "Avg.")
    kinds = [GROUPS[place] for place in (0, 2, 3, 4)]
    blocks = [*(f"bert-base (mini): {kind}" for kind in kinds), f"roberta-base (roberta): {GROUPS[2]}"]
    assert [name for _, name in grid.groups] == blocks
    marks = {str(row[0]): row[1].mark for row in grid.rows[:4] if isinstance(row[1], ScoreCell)}
    assert marks == {"untrained": "", "simcse": "best", "tncse": "", "tncse_d": ""}
    for start in ("profile mini: One seed", "profile mini: One run"):
        assert any(note.startswith(start) and "tncse, tncse_d" in note for note in grid.notes)


def test_notes_say_of_which_profile_they_are(tmp_path: Path) -> None:
    def block(profile: str, *scores: float) -> list[RunRecord]:
        return [
            make_record(method, seed, {"STSB": value + seed / 100}, profile=profile)
            for method, value in zip("abc", scores, strict=False)
            for seed in (1, 2, 3)
        ]

    noted = [replace(one, notes=("Made up.",)) for one in block("y", 0.4, 0.6)]
    records = [*block("x", 0.5, 0.7, 0.2), *noted, make_record("once", 1, {"STSB": 0.5}, profile="y")]
    (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "c"), records), "sts7")
    assert grid.notes[0].startswith("Spearman x 100")
    captions = [note for note in grid.notes if note.startswith("Bold:")]
    assert len(captions) == 1
    assert "profile y: Made up." in grid.notes
    assert any(note.startswith("profile y: One run") and "once" in note for note in grid.notes)
    (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "c"), noted), "sts7")
    assert "Made up." in grid.notes
    assert not any("profile" in note for note in grid.notes)


def test_doubts_are_said_once_and_a_missing_value_is_a_dash(tmp_path: Path) -> None:
    line = "Predictions that are missing, or not those of the record: a seed 1."
    noted = replace(make_record("a", 1, {"STSB": 0.5}, profile="y"), notes=(line,))
    source = make_campaign(ResultStore(tmp_path, "c"), [make_record("a", 1, {"STSB": 0.5}), noted])
    text = render_report(source, "markdown", "sts7")
    assert (text.count("a seed 1"), f"profile y: {line}" in text) == (1, True)
    whole = make_record("x", 1, {"STS12": 0.5, "STSB": 0.6})
    part = replace(make_record("y", 1, {"STS12": 0.5}), tasks=whole.tasks)
    (grid,) = table_grids(campaign(tmp_path, whole, part), "leaderboard")
    assert any(note.startswith("y has no") and "STSB" in note for note in grid.notes)
    assert list(map(plain_text, grid.rows[1][:4])) == ["y", "1", "50.00", "-"]


@pytest.mark.parametrize(
    ("changes", "match", "difference"),
    [
        ({}, True, "+0.10"),
        ({"backbone": "all-MiniLM-L6-v2"}, False, ""),
        ({"corpus": ("wiki.txt", 29_686)}, False, ""),
        ({"options": {"text": "train+sick"}}, False, ""),
    ],
)
def test_a_difference_only_where_all_is_the_same(
    tmp_path: Path, changes: dict[str, object], match: bool, difference: str
) -> None:
    records = [
        make_record("simcse", seed, {task: value + shift for task, value in SIMCSE.items()}, **changes)  # type: ignore[arg-type]
        for seed, shift in ((1, 0.0), (2, 0.002))
    ]
    (grid,) = table_grids(campaign(tmp_path, *records), "published")
    rows = {str(row[0]): row for row in grid.rows}
    quoted = rows["TNCSE, Table 1; JTCSE, Table I"][2]
    assert quoted == Quoted("68.40", grey=not match)
    assert ("ours - published" in rows) is match
    assert not missing_facts(grid.notes[1], "95% interval", "Student's")
    if match:
        assert rows["ours - published"][2] == difference
        assert grid.rows[-1][2] == "yes"
    text = render_grids([grid], "text")
    assert ("(68.40)" in text) is not match


def test_published_tables_are_whole_with_footnotes_on_misprints(tmp_path: Path) -> None:
    record = make_record("tncse_d", 1, SIMCSE)
    (grid,) = table_grids(campaign(tmp_path, record), "published")
    row = next(row for row in grid.rows if row[0] == "TNCSE, Table 1")
    touched = {grid.header[i] for i, cell in enumerate(row) if isinstance(cell, Quoted) and cell.sign}
    assert touched == {"STS15", "avg"}
    assert any("74.92" in note for note in grid.notes)
    assert len(load_figures()) == 3910
    rows = {(line.first.paper, line.first.method): line for line in reversed(published_rows("sts7"))}
    printed = {
        task: round(float(figure.text) / 100, 4) for task, figure in rows["tncse", "simcse"].figures.items()
    }
    assert printed.items() >= SIMCSE.items()
    assert len(ablation_figures("loss_terms")) == 16
    assert ablation_figures("caels")["0", "jtcse"][0].text == "79.58"
    assert ablation_figures("modified_steps")["mhs", "+ R"][0].text == "78.27"
    assert ablation_figures("unsee_mlp") == {}
    assert published_rows("toy") == ()
    m_barlow = next(line for line in published_rows("sts7") if line.first.method == "m_barlow")
    assert any(not missing_facts(what, "Barlow Twins", "VICReg") for what in m_barlow.misprints)


def untrained(suffix: str, pooling: str) -> RunRecord:
    options: dict[str, object] = {"pooling": pooling}
    return make_record(f"untrained{suffix}", None, SIMCSE, name="untrained", corpus=None, options=options)


@pytest.mark.parametrize(
    ("record", "names", "text"),
    [
        (make_record("simcse", 1, SIMCSE), ("simcse",), "wiki1m"),
        (make_record("tncse[sick=True]", 1, SIMCSE, options={"sick": True}), ("tncse",), WITH_SICK),
        (make_record("tncse[rtt=none]", 1, SIMCSE, options={"rtt": "none"}), ("tncse",), None),
        (make_record("simcse[match=tncse]", 1, SIMCSE), (), "wiki1m"),
        (untrained("[pooling=avg_first_last]", "avg_first_last"), ("bert_base",), NO_TEXT),
        (untrained("", "cls"), (), NO_TEXT),
        (
            make_record("x", None, SIMCSE, name="released", options={"name": "tncse_d_bert"}),
            ("tncse_d",),
            WITH_SICK,
        ),
    ],
)
def test_under_which_name_and_text_a_method_is_published(
    record: RunRecord, names: tuple[str, ...], text: str | None
) -> None:
    assert published_names(record) == names
    assert paper_text(record) == text


def test_a_figure_that_a_run_of_ours_could_have() -> None:
    assert plausible_run([0.70, 0.72], 0.71) == "yes"
    assert plausible_run([0.70, 0.701, 0.702], 0.75) == "no"
    assert plausible_run([0.70], 0.70) == "-"
    # one of eleven runs of one method, and with ten of them known the interval of the mean leaves it out
    runs = [0.70, 0.71, 0.72, 0.69, 0.70, 0.71, 0.70, 0.72, 0.69, 0.71]
    assert not one_sample(runs, 0.72).low <= 0 <= one_sample(runs, 0.72).high
    assert plausible_run(runs, 0.72) == "yes"


def test_tables_of_cost_probes_sweeps_and_gains(tmp_path: Path) -> None:
    source = campaign(
        tmp_path,
        make_record("simcse", 1, {"STSB": 0.75}, probes=probes_of(1)),
        make_record("jtcse", 1, {"STSB": 0.60}),
    )
    (grid,) = table_grids(source, "efficiency")
    row = next(row for row in grid.rows if row[0] == "simcse")
    assert row[2:8] == ("1.500", "50.00", "2.0", "-", "640", "12")
    assert not missing_facts(grid.notes, "No GMAC for jtcse", "--probes cost")
    vectors, _ = table_grids(source, "probes")
    assert vectors.rows[0][:4] == ("simcse", "1", "0.210", "-2.100")
    points = (("1", "jtcse", "jtcse[caels=1]"), ("2", "jtcse", "jtcse"))
    manifest = Manifest("caels", "mini", ("sts7",), (1,), points)
    source = campaign(tmp_path, *seeds("jtcse", 0.6), *seeds("jtcse[caels=1]", 0.5), sweeps=(manifest,))
    (grid,) = table_grids(source, "ablation:caels")
    assert grid.header == ("cross-attention layers", "jtcse", "published jtcse")
    assert [row[2] for row in grid.rows] == [Quoted("79.23"), Quoted("78.74")]
    with pytest.raises(InputError, match=r"no sweep 'pooling' ran here.*expected one of caels"):
        table_grids(source, "ablation:pooling")
    source = campaign(tmp_path, *seeds("mhe", 0.60, 0.62), *seeds("m_mhe", 0.70, 0.72), *seeds("mhs", 0.5))
    (grid,) = table_grids(source, "gains")
    assert grid.rows[0][:4] == ("m_mhe - mhe", "+10.00", "+10.00", "+10.00*")
    assert grid.rows[0][4] == "0.0194"  # Welch: t = 0.1 / (0.01 sqrt 2), 2 degrees of freedom
    assert not missing_facts(grid.notes[1], "*:", "p <= 0.05", "Welch's")
    assert not missing_facts(grid.notes[2], "p corrected:", "bench compare")
    assert grid.rows[1][:2] == ("published, bert-base", Quoted("+18.2"))


def test_significance_matrix_and_pairs(tmp_path: Path) -> None:
    source = campaign(
        tmp_path, *seeds("a", 0.70, 0.701, 0.702), *seeds("b", 0.60, 0.601, 0.602), *seeds("c", 0.5)
    )
    (matrix,) = table_grids(source, "significance")
    assert table_grids(replace(source, pairs=True), "significance")[0] == matrix
    pairs = table_grids(replace(source, pairs=True), "significance")[1]
    assert [tuple(map(str, row[1:])) for row in matrix.rows] == [
        ("", "+10.00*", "+20.10?"),
        ("-10.00*", "", "+10.10?"),
        ("-20.10?", "-10.10?", ""),
    ]
    assert not missing_facts(matrix.notes[1], "Welch's (1)", "Holm over 1 ")
    first = dict(zip(pairs.header, map(str, pairs.rows[0]), strict=True))
    assert (first[EXACT], first["test"], first["verdict"]) == ("0.1000 (0.1000)", "Welch", "differs")
    assert first["interval"] == "[+9.77, +10.23] (95%)"  # 10 -+ t(4) sqrt(2 / 3) x 0.1
    assert pairs.rows[1][-3:-1] == ("-", "-")
    assert not missing_facts(pairs.rows[1][-1], "c has", "one seed")


def keep_draws(source: Campaign, centre: float) -> None:
    """Keep 10,000 draws a record that lie evenly about a centre, 0.01 to either side."""
    (source.stores[0].root / "stats").mkdir(parents=True, exist_ok=True)
    for record in source.records:
        spread = np.linspace(-0.01, 0.01, item_draws.DRAWS)[:, None]
        drawn = (centre + spread + np.zeros((1, 2))).astype(np.float32)
        keep_run_draws(item_draws.CampaignRun(source.stores[0], record), drawn)


def test_kept_draws_of_the_items_give_intervals(tmp_path: Path) -> None:
    high, low = campaign(tmp_path, *seeds("a", 0.70, 0.71)), campaign(tmp_path, *seeds("b", 0.60, 0.61))
    keep_draws(high, 0.7)
    keep_draws(low, 0.6)
    records = (*high.records, *low.records, *seeds("c", 0.5, 0.52))
    (board,) = page_boards(campaign(tmp_path, *records))
    found = {line.row.method: line.item_interval for line in board.lines}
    assert found["a"] == pytest.approx((0.6905, 0.7095), abs=1e-5)
    assert found["b"] == pytest.approx((0.5905, 0.6095), abs=1e-5)
    assert found["c"] is None
    assert not any("items (variance" in note for note in board.notes)  # c has no draws
    (next((high.stores[0].root / "stats").iterdir())).write_bytes(b"damaged")
    (board,) = page_boards(campaign(tmp_path, *records))
    assert sum(line.item_interval is not None for line in board.lines) == 1


def test_overlap_is_read_from_beside_the_records(tmp_path: Path) -> None:
    source = campaign(tmp_path, *seeds("a", 0.7))
    with pytest.raises(InputError, match=r"no file overlap\*.csv in the campaign's folder"):
        table_grids(source, "overlap")
    (tmp_path / "camp").mkdir()
    path = tmp_path / "camp" / "overlap.csv"
    path.write_text(OVERLAP)
    (grid,) = table_grids(source, "overlap")
    assert grid.rows == (("STSB", "key", "10", "2", "5", "4"),)
    path.write_text(OVERLAP.replace("touched", "x"))
    with pytest.raises(DataError, match="lacks touched"):
        table_grids(source, "overlap")


@pytest.mark.parametrize(
    "name", [n for n in TABLES if n not in ("leaderboard", "efficiency", "ablation:SWEEP", "methods")]
)
def test_nothing_to_show_is_one_clear_line(tmp_path: Path, name: str) -> None:
    source = campaign(tmp_path, make_record("mine", 1, {"TOY": 0.7}, suite="toy"))
    with pytest.raises(InputError, match=f"--table {name}, campaign camp: .*no "):
        table_grids(source, name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & $50%", r"a\_b \& $\mathdollar$50\%"),
        ("é\N{DAGGER}", r"\'{e}$\dagger$"),
        ("中", r"{\footnotesize U+4E2D}"),
        ("\N{GREEK SMALL LETTER TAU}-Größe", r"$\tau$-Gr\"{o}\ss{}e"),
        ("αβλΩ", r"$\alpha$$\beta$$\lambda$$\Omega$"),
        ("\N{GREEK CAPITAL LETTER RHO}", r"$\mathrm{P}$"),
        ("ŁøæŒı", r"\L{}\o{}\ae{}\OE{}\i{}"),
        ("šçåőăāż", r"\v{s}\c{c}\r{a}\H{o}\u{a}\={a}\.{z}"),
        ("“a” → b… — ²½", r"\textquotedblleft{}a\textquotedblright{} $\to$ b\dots{} --- $^2$$\frac{1}{2}$"),
        ("a\nb\x07", "a b"),
        ('"', r"\textquotedblright{}"),
    ],
)
def test_latex_escapes(text: str, expected: str) -> None:
    assert escape_latex(text) == expected


def test_latex_cells_groups_parts_and_long_names() -> None:
    rows: list[tuple[ScoreCell | Quoted | str, ...]] = [
        ("a_1", ScoreCell(0.7, 0.01, 2, "best", ABOVE), Quoted("70.1")),
        ("b", ScoreCell(-0.05, None, 1, "second"), "-"),
    ]
    grid = Grid("t", ("method", "x", "published"), tuple(rows), ("note",), ((0, "g"),))
    text = latex_tables([grid])
    assert r"\multicolumn{4}{l}{\textit{g}} \\" in text
    cells = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if " & " in line]
    assert cells[1:] == [
        [r"a\_1", r"\textbf{70.00}", r"{\scriptsize$\pm$1.00}$^{\dagger}$", r"\textcolor{gray}{70.1}"],
        ["b", r"\underline{$-$5.00}", "", r"\multicolumn{1}{c}{--}"],
    ]
    many = tuple((str(i), "1") for i in range(90))
    long = Grid("t", ("m", "x"), many, ("the note",))
    parts = latex_tables([long], standalone=True)
    assert parts.count(r"\begin{table}") == 3
    assert parts.count("the note") == 1
    assert "(rows 77-90)" in parts
    grid = Grid("t", ("m", "x"), many, (), ((0, "one"), (20, "more"), (76, "last")))
    first, second, third = latex_tables([grid]).split(r"\begin{table}")[1:]
    headings = [re.findall(r"textit\{(.*?)\}", part) for part in (first, second, third)]
    assert headings == [["one", "more"], ["more (continued)"], ["last"]]
    assert r"\midrule" + "\n" + r"\multicolumn{2}{l}{\textit{more (continued)}} \\" + "\n38 & 1" in second
    bare = latex_tables([Grid("t", ("m", "x"), many, (), ((50, "late"),))])
    assert re.findall(r"textit\{(.*?)\}", bare) == ["late", "late (continued)"]
    name = "long[" + "option=value," * 20 + "x" * 90 + "]"
    text = latex_tables([Grid("t", ("m", "x"), ((name, "1"),), ())])
    found = text[text.index("@{}l@{}}") + 8 : text.index(r"\end{tabular} & 1")]
    assert found.replace(r" \\ ", "").replace("{[}", "[").replace("{]}", "]") == name
    assert max(map(len, found.split(r" \\ "))) < 45


@pytest.mark.parametrize("count", [1, 2])
def test_efficiency_says_what_the_leaderboard_says(count: int) -> None:
    noted = [replace(r, notes=("Once.",)) for r in seeds("simcse", *[0.5, 0.6][:count])]
    source = make_campaign(ResultStore(Path("nowhere"), "camp"), noted)
    (board,), (cost,) = (table_grids(source, name) for name in ("leaderboard", "efficiency"))
    assert "Once." in cost.notes
    assert {note for note in board.notes if not note.startswith(OVER_SEEDS)} <= set(cost.notes)
    assert not any(note.startswith(OVER_SEEDS) for note in cost.notes)


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "local")
    for record in (*seeds("simcse", 0.7, 0.71), *seeds("other", 0.6, 0.61)):
        drawn = np.random.default_rng([record.seed or 0, len(record.method)]).uniform(-1, 1, 10)
        store.write(record.place, record, dict.fromkeys(record.tasks, drawn.astype(np.float32)))
    code, out, err = cli("report", "--table", "sts7", "--format", "csv")
    assert (code, err) == (0, "")
    first = list(csv.reader(io.StringIO(out)))[1]
    assert first[1:] == [
        *("bert-base (mini): one encoder", "1", "simcse", "STS12"),
        *("0.705", "0.007071067811865481", "2", "best", ""),
    ]
    code, out, err = cli("report", "--table", "significance", "--format", "json")
    assert [len(grid["rows"]) for grid in json.loads(out)] == [2, 1]
    assert "Against other:" in cli("report", "--baseline", "other")[1]
    plain = cli("report", "--details")[1]
    assert not missing_facts(plain, "Holm over 1 ", "Against simcse:", "Against SimCSE:")
    every = cli("report", "--family", "all", "--baseline", "other")[1]
    assert not missing_facts(every, "\N{DOUBLE DAGGER} below other")
    assert "Against" not in every
    assert numbers_in(cli("report", "--margin", "20")[1].partition("Against")[2])[:4] == [0, 0, 20, 1]
    assert "SimCSE averages" in cli("report", "--senteval-rounding", "--details")[1]
    assert cli("report", "--format", "latex", "--standalone")[1].startswith(r"\documentclass")
    assert not missing_facts(cli("report", "--baseline", "nobody")[2], "--baseline", "'nobody'")
    assert not missing_facts(cli("report", "--standalone")[2], "--standalone", "LaTeX")
    code, out, err = cli("report", "--format", "html", "--table", "leaderboard")
    assert (code, missing_facts(out, "<!DOCTYPE html>", "local")) == (0, [])
