"""The one list of views: what --table, the help and the page make of it."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config.sweep_manifest import Manifest
from bench.errors import InputError
from bench.records.store import ResultStore
from bench.render.grid import Grid
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import suite_figures
from bench.reports.figures.sweep_plots import sweep_figures
from bench.reports.report import all_figures, render_report
from bench.reports.sections import SECTIONS, TABLES, table_grids
from tests.support.campaigns import make_record
from tests.support.cli import Cli

NAMES = [section.name for section in SECTIONS]


@pytest.fixture(scope="module")
def whole(campaign: Campaign) -> str:
    return render_report(campaign, "html")


def parts(page: str) -> dict[str, str]:
    """The page's sections by their id."""
    return dict(re.findall(r'<section id="([^"]+)"(.*?)</section>', page, re.DOTALL))


def small(tmp_path: Path, profile: str = "mini", *sweeps: Manifest) -> Campaign:
    record = make_record("mine", 1, {"TOY": 0.7}, suite="toy", corpus=None, profile=profile)
    return make_campaign(ResultStore(tmp_path, "camp"), [record], sweeps)


def test_the_page_has_the_sections_of_the_list_in_its_order(whole: str) -> None:
    assert list(parts(whole)) == NAMES
    assert len(set(NAMES)) == len(NAMES)
    assert "<h2>Not here</h2>" not in whole


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made(name: str, campaign: Campaign) -> None:
    grids = table_grids(campaign, name.replace("SWEEP", "caels"))
    assert grids == TABLES[name].grids(campaign)
    assert all(isinstance(grid, Grid) and grid.rows for grid in grids)
    assert all(len(row) == len(grid.header) for grid in grids for row in grid.rows)


def test_every_figure_is_in_its_section(campaign: Campaign, whole: str) -> None:
    drawn = all_figures(campaign)
    assert len({figure.name for figure in drawn}) == len(drawn) > 20
    sections = "seeds efficiency probes attention cosines curves gains sweeps leaderboard significance"
    assert {figure.section for figure in drawn} == {*sections.split(), "along", "gradient", "order"}
    assert {figure.section for figure in sweep_figures(campaign)} == {"sweeps"}
    assert "sweeps" not in {figure.section for figure in suite_figures(campaign)}
    shown = {name: re.findall(r'<figure id="figure-([^"]+)"', text) for name, text in parts(whole).items()}
    for name in NAMES:
        assert shown[name] == [figure.name for figure in drawn if figure.section == name]
    assert [name for name in shown["gradient"] if name.endswith("-density")]


def test_a_profile_may_be_called_as_a_sweep_or_a_figure(tmp_path: Path) -> None:
    """Figures say where they belong: nothing is read from their names."""
    for profile in ("x-caels", "x-gradient-gains"):
        sweep = Manifest("caels", "other", ("sts7",), (1,), (("1", "jtcse", "jtcse"),))
        source = small(tmp_path, profile, sweep)
        assert [(figure.name, figure.section) for figure in all_figures(source)] == [
            (f"{profile}-toy-seeds", "seeds")
        ]
        assert "seeds" in parts(render_report(source, "html"))


def test_what_is_missing_is_said_with_what_makes_it(tmp_path: Path) -> None:
    page = render_report(small(tmp_path), "html")
    there = parts(page)
    assert list(there) == ["leaderboard", "seeds", "efficiency", "methods"]
    missing = html.unescape(page[page.index("Not here") :])
    for section in SECTIONS:
        said = f"<li>{section.title}: {section.missing} ("
        assert (said in missing) is (section.name not in there)


def test_a_report_prints_what_the_list_says(campaign: Campaign) -> None:
    text = render_report(campaign, "text")
    for section in SECTIONS:
        titles = [grid.title for grid in section.grids(campaign)]
        assert section.printed is bool(titles and all(f"\n{title}\n" in f"\n{text}" for title in titles))
    sweeps = render_report(replace(campaign, sweeps=()), "text")
    assert "Sweep caels" in text
    assert "Sweep caels" not in sweeps


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
