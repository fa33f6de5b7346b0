"""The list of views, and leaderboards by hand in every format."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config.sweep_manifest import Manifest
from bench.errors import InputError, NotComparableError, printable
from bench.records.record import RunRecord, Score
from bench.records.store import ResultStore
from bench.render.formats import FORMATS, markdown_escape
from bench.render.grid import Grid
from bench.render.latex import escape_latex
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import suite_figures, sweep_figures
from bench.reports.record_groups import LONG_COLUMNS
from bench.reports.report import all_figures, page_figures, render_report
from bench.reports.sections import SECTIONS, TABLES, TABS, table_grids
from bench.reports.tables.leaderboard import all_leaderboards
from tests.support.campaigns import make_record
from tests.support.cli import Cli
from tests.support.messages import missing_facts

NOWHERE = ResultStore(Path("nowhere"), "camp")
NAMES = [section.name for section in SECTIONS if section.tab]


@pytest.fixture(scope="module")
def whole(campaign: Campaign) -> str:
    return render_report(campaign, "html")


def parts(page: str) -> dict[str, str]:
    """The page's sections by their id."""
    sections = dict(re.findall(r'<section id="([^"]+)"(.*?)</section>', page, re.DOTALL))
    return {name: text for name, text in sections.items() if name != "notes"}


def small(tmp_path: Path, profile: str = "mini", *sweeps: Manifest) -> Campaign:
    record = make_record("mine", 1, {"TOY": 0.7}, suite="toy", corpus=None, profile=profile)
    return make_campaign(ResultStore(tmp_path, "camp"), [record], sweeps)


def test_the_page_and_the_report_have_the_sections_of_the_list(whole: str, campaign: Campaign) -> None:
    assert sorted(parts(whole)) == sorted(NAMES)
    tabs = re.findall(r'<section class="tab[^"]*" id="tab-([^"]+)"', whole)
    assert tabs == list(TABS)
    assert {section.tab for section in SECTIONS} - {""} < set(TABS)
    assert len(set(NAMES)) == len(NAMES)
    assert "<h2>Not here</h2>" not in whole
    text = render_report(campaign, "text")
    for section in SECTIONS:
        titles = [grid.title for grid in section.grids(campaign)]
        assert section.printed is bool(titles and all(f"\n{title}\n" in f"\n{text}" for title in titles))
    sweeps = render_report(replace(campaign, sweeps=()), "text")
    assert "Sweep caels" in text
    assert "Sweep caels" not in sweeps


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made(name: str, campaign: Campaign) -> None:
    grids = table_grids(campaign, name.replace("SWEEP", "caels"))
    assert grids == TABLES[name].grids(campaign)
    assert all(isinstance(grid, Grid) and grid.rows for grid in grids)
    assert all(len(row) == len(grid.header) for grid in grids for row in grid.rows)


def test_every_figure_is_in_its_section(campaign: Campaign, whole: str) -> None:
    drawn = page_figures(campaign)
    assert len({figure.name for figure in drawn}) == len(drawn) > 20
    sections = "ranks efficiency probes attention cosines curves gains sweeps significance"
    assert {figure.section for figure in drawn} == {*sections.split(), "along", "gradient", "order"}
    assert {figure.section for figure in sweep_figures(campaign)} == {"sweeps"}
    assert "sweeps" not in {figure.section for figure in suite_figures(campaign)}
    shown = {name: re.findall(r'<figure id="figure-([^"]+)"', text) for name, text in parts(whole).items()}
    for name in NAMES:
        assert shown[name] == [figure.name for figure in drawn if figure.section == name]
    assert [name for name in shown["gradient"] if name.endswith("-density")]


def test_sections_of_small_campaigns(tmp_path: Path) -> None:
    for profile in ("x-caels", "x-gradient-gains"):
        sweep = Manifest("caels", "other", ("sts7",), (1,), (("1", "jtcse", "jtcse"),))
        source = small(tmp_path, profile, sweep)
        assert [(figure.name, figure.section) for figure in all_figures(source)] == [
            (f"{profile}-toy-seeds", "seeds")
        ]
        assert "seeds" in parts(render_report(source, "html"))
    page = render_report(small(tmp_path), "html")
    there = parts(page)
    assert set(there) == {"leaderboard", "seeds", "efficiency", "methods"}
    missing = html.unescape(page[page.index("Not here") :])
    for section in (section for section in SECTIONS if section.tab):
        said = f"<li>{section.title}: {section.missing} ("
        assert (said in missing) is (section.name not in there)


def test_the_help_names_every_table(cli: Cli) -> None:
    code, out, _ = cli("report", "--help")
    assert code == 0
    words = re.findall(r"[\w:]+", out)
    assert set(TABLES) <= set(words)


@pytest.mark.parametrize("name", ["ablation", "seeds", "sts7:caels", "leaderbord", ""])
def test_only_tables_of_the_list(campaign: Campaign, name: str) -> None:
    hint = "did you mean 'leaderboard'" if name == "leaderbord" else ""
    with pytest.raises(InputError, match=rf"--table: unknown table '{name}'.*{hint}"):
        table_grids(campaign, name)


HOSTILE = 'a|b & 50% <script>alert("x")</script> \\input{x} _$#^~[x]\n\x07'


def record(method: str, seed: int | None, one: float, two: float, **changes: object) -> RunRecord:
    scores = (
        Score("STS12", "all", "spearman", one, 10),
        Score("STS12", "mean", "spearman", one / 2, 10),
        Score("SICKR", "all", "spearman", two, 20),
        Score("avg", "all", "spearman", (one + two) / 2, 2),
    )
    data = {"STS12": {"sha256": "a", "reference": True}, "SICKR": {"sha256": "b", "reference": True}}
    made = RunRecord("mini", method, method, 1, {}, None, seed, "sts7", data, "k", "ok", scores)
    return replace(made, **changes)  # type: ignore[arg-type]


def failed(method: str, seed: int, reason: str) -> RunRecord:
    return record(method, seed, 0, 0, status="failed", scores=(), reason=reason, traceback=("x",))


def render(records: Sequence[RunRecord], form: str) -> str:
    return render_report(make_campaign(NOWHERE, records), form)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_leaderboard_by_hand() -> None:
    records = [record("x", 1, 0.5, 0.7), record("x", 2, 0.7, 0.7), record("y", None, 0.9, 0.9)]
    (table,) = all_leaderboards(make_campaign(NOWHERE, records))
    assert table.tasks == ("STS12", "SICKR", "avg")  # the suite's order, not the alphabet's
    assert [row.method for row in table.rows] == ["y", "x"]
    cell = table.rows[1].cells["STS12"]
    assert cell.mean == pytest.approx(0.6)
    assert cell.n == 2
    assert cell.sd == pytest.approx(0.1 * 2**0.5)
    assert table.rows[0].cells["STS12"].sd is None
    text = render(records, "text")
    assert not missing_facts(text.splitlines()[0], "sts7", "profile mini", "campaign camp")
    cells = [line.split() for line in text.splitlines()]
    assert ["y", "-", "90.00", "90.00", "90.00", "-", "1-2"] in cells
    assert ["x", "2", "60.00±14.14", "70.00±0.00", "65.00", "7.07", "1-2"] in cells
    assert "over 2 seeds." in text


def test_csv_is_long_and_at_full_precision() -> None:
    text = render([record("x", 1, 0.1 + 0.2, 0.7), failed("x", 2, "no, luck")], "csv")
    rows = rows_of(text)
    assert tuple(rows[0]) == LONG_COLUMNS
    assert list(rows[0].values()) == [
        *("camp", "mini", "", "x", "1", "sts7", "STS12", "all", "spearman"),
        *("0.30000000000000004", "10", "ok", "", ""),
    ]
    assert (len(rows), rows[1]["subset"]) == (5, "mean")
    failure = [rows[4][name] for name in ("status", "value", "reason", "seed")]
    assert failure == ["failed", "", "no, luck", "2"]


def test_a_failed_cell_is_no_number_in_any_format() -> None:
    records = [record("x", 1, 0.511, 0.711), failed("x", 2, "no luck"), failed("z", 1, "none")]
    for form in FORMATS:
        text = render(records, form)
        assert ("0.00" in text.replace("0.005", ""), "no luck" in text) == (False, True)
    table = all_leaderboards(make_campaign(NOWHERE, records))[0]
    assert [(row.method, row.failed, row.cells["avg"].n) for row in table.rows] == [("x", 1, 1), ("z", 1, 0)]
    (row,) = (
        line.split(" | ") for line in render(records, "markdown").splitlines() if line.startswith("| z")
    )
    assert row[1:5] == ["0 of 1", "-", "-", "-"]
    assert not missing_facts(render([failed("z", 1, "none")], "text"), "Failed: z seed", "1: none")


def test_different_data_profiles_and_suites_are_not_put_side_by_side() -> None:
    other = record("y", 1, 0.5, 0.5, tasks={"STS12": {"sha256": "c", "reference": False}})
    with pytest.raises(NotComparableError, match="2 versions"):
        render([record("x", 1, 0.5, 0.7), other], "text")
    with pytest.raises(NotComparableError, match=r"the seeds of x .* different specifications"):
        render([record("x", 1, 0.5, 0.7), record("x", 2, 0.5, 0.7, options={"lr": 1e-5})], "text")
    assert "reference data: STS12." in render([other], "text")
    plain = record("x", 1, 0.5, 0.7)
    tables = all_leaderboards(
        make_campaign(NOWHERE, [plain, replace(plain, profile="big"), replace(plain, suite="b")])
    )
    assert [(t.profile, t.suite) for t in tables] == [("big", "sts7"), ("mini", "b"), ("mini", "sts7")]


def test_latex_is_booktabs_and_hostile_text_is_inert() -> None:
    text = render([record("x_1", 1, 0.5, 0.7), record("x_1", 2, 0.7, 0.7)], "latex")
    (row,) = (line.split(" & ") for line in text.splitlines() if line.startswith("x"))
    assert row == [r"x\_1", "2", "60.00", "70.00", "65.00", r"7.07 \\"]
    assert r"\begin{tabular}{@{}lrrrrr@{}}" in text
    for line in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(line) == 1
    escaped = escape_latex(HOSTILE)
    assert escaped.isprintable()
    assert not missing_facts(escaped, r"\textbackslash{}input\{x\}", r"50\%")
    assert markdown_escape(HOSTILE).startswith("a\\|b &amp; 50% ")
    assert "\n" not in markdown_escape(HOSTILE)
    text = render([failed(HOSTILE, 1, HOSTILE)], "text")
    assert "[x]" in text  # no markup is interpreted
    (cells,) = rows_of(render([failed(HOSTILE, 1, HOSTILE)], "csv"))
    assert (cells["method"], cells["reason"]) == (printable(HOSTILE), printable(HOSTILE))


def test_a_method_that_saw_the_grammars_paraphrases_as_pairs_stands_below_the_ranked() -> None:
    stage = {"sentences_seen": 8, "text": {"name": "x", "sha256": "y", "paired": True}}
    trained = {"training": {"stages": {"s": stage}}, "timing": {"training_cpu_seconds": {"s": 1.0}}}
    records = [
        record("informed", 1, 0.9, 0.9, world={"seed": 1}, **trained),
        record("elsewhere", 1, 0.8, 0.8, **trained),  # real translations tell nothing of the test pairs
        record("plain", 1, 0.5, 0.5, world={"seed": 1}),
    ]
    (table,) = all_leaderboards(make_campaign(NOWHERE, records))
    assert [(row.method, row.ranked) for row in table.rows] == [
        ("elsewhere", True),
        ("plain", True),
        ("informed", False),
    ]
