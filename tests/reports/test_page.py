"""The page in a real browser, and every table through LaTeX."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.draw import draw
from bench.reports.formats.latex import document
from bench.reports.formats.picture import critical_difference
from bench.reports.report import all_figures, report
from bench.reports.sections import SECTIONS, TABLES
from tests.support.campaigns import HOSTILE
from tests.support.chromium import Page, chromium

Cli = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(campaign: Campaign, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page, loaded."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report(campaign, "html"), encoding="utf-8")
    with chromium() as opened:
        opened.show_as(1280, 900)
        opened.open(path)
        yield opened


METHODS = "[...document.querySelectorAll('#board-1 tbody')].filter(b => !b.hidden).map(b => b.dataset.method)"
AVERAGES = "[...document.querySelectorAll('#board-1 tbody')].map(b => Number(b.rows[0].cells[1].dataset.v))"


def heading(column: int) -> str:
    return f"document.querySelectorAll('#board-1 thead th')[{column}]"


def put(browser: Page, selector: str, event: str, value: str) -> None:
    """Set a control's value as a person would."""
    control = f"document.querySelector('#board-1 {selector}')"
    browser.run(f"{control}.value = {json.dumps(value)}; {control}.dispatchEvent(new Event('{event}'))")


def shown(browser: Page, selector: str) -> bool:
    return bool(browser.run(f"document.querySelector('#board-1 {selector}').checkVisibility()"))


def test_the_page_asks_for_nothing_and_complains_of_nothing(browser: Page) -> None:
    assert [address.split(":")[0] for address in browser.requests()] == ["file"]
    assert browser.complaints() == []
    assert browser.run("document.querySelectorAll('script').length") == 1
    assert browser.run("document.querySelectorAll('img, link, iframe, object, [src], [style]').length") == 0
    assert browser.run("document.title") == "bench report: camp"


def test_the_policy_forbids_what_the_page_does_not_do(browser: Page) -> None:
    blocked = (
        "new Promise(r => { addEventListener('securitypolicyviolation', e => r(e.effectiveDirective)); %s })"
    )
    image = "document.body.append(Object.assign(new Image(), {src: 'http://192.0.2.1/x.png'}))"
    make = "Object.assign(document.createElement('script'), {textContent: 'window.bad = 1'})"
    script = f"document.body.append({make})"
    assert browser.run(blocked % image) == "img-src"
    assert browser.run(blocked % script) == "script-src-elem"
    assert browser.run("window.bad") is None
    browser.run("document.querySelector('body > img').remove()")
    failed = [e["params"] for e in browser.events if e.get("method") == "Network.loadingFailed"]
    assert [event.get("blockedReason") for event in failed] == ["csp"]
    browser.events.clear()


def test_sorting_by_mouse_and_keyboard(browser: Page) -> None:
    start = browser.run(AVERAGES)
    assert start == sorted(start, reverse=True)
    browser.run(f"{heading(1)}.querySelector('button').click()")
    assert browser.run(f"{heading(1)}.getAttribute('aria-sort')") == "descending"
    browser.run(f"{heading(1)}.querySelector('button').focus()")
    browser.press("Enter", 13)
    assert browser.run(AVERAGES) == sorted(start)
    assert browser.run(f"{heading(1)}.getAttribute('aria-sort')") == "ascending"
    assert "ascending" in browser.run("document.getElementById('status').textContent")
    browser.run(f"{heading(0)}.querySelector('button').focus()")
    browser.press(" ", 32)
    assert browser.run("document.querySelectorAll('#board-1 [aria-sort]').length") == 1
    names = browser.run(METHODS)
    assert names == browser.run(f"{METHODS}.sort((a, b) => a.localeCompare(b, 'en', {{numeric: true}}))")
    browser.run(f"{heading(1)}.querySelector('button').click()")
    # the last column: training seconds; rows without a number would come last in either order
    grids = "[...document.querySelectorAll('#efficiency table')][0]"
    browser.run(f"{grids}.querySelectorAll('thead button')[1].click()")
    groups = (
        f"[...{grids}.tBodies].map(b => [...b.rows].map(r => r.cells[1] && Number(r.cells[1].dataset.v)))"
    )
    for group in browser.run(groups):
        values = [value for value in group if value is not None]
        assert values == sorted(values, reverse=True)


def test_filters(browser: Page) -> None:
    everything = browser.run(METHODS)
    assert set(HOSTILE) < set(everything)
    put(browser, ".find", "input", "SCRIPT")
    assert browser.run(METHODS) == [HOSTILE[0]]
    status = browser.run("document.getElementById('status').textContent")
    assert status == f"1 of {len(everything)} methods shown"
    put(browser, ".find", "input", "")
    put(browser, ".family", "change", "group:distilled into one encoder")
    assert browser.run(METHODS) == ["tncse_d"]
    put(browser, ".family", "change", f"name:{HOSTILE[1]}")
    assert browser.run(METHODS) == [HOSTILE[1]]
    put(browser, ".family", "change", "")
    assert browser.run(METHODS) == everything


@pytest.mark.parametrize(
    ("toggle", "selector", "at_first"),
    [
        ("with-sd", ".sd", True),
        ("with-intervals", "td.interval", False),
        ("with-published", "tr.published", False),
        ("with-cost", "td.cost", True),
    ],
)
def test_toggles(browser: Page, toggle: str, selector: str, at_first: bool) -> None:
    box = f"document.querySelector('#board-1 [data-class={toggle}]')"
    assert shown(browser, selector) is at_first
    browser.run(f"{box}.focus()")
    browser.press(" ", 32)
    assert shown(browser, selector) is not at_first
    browser.run(f"{box}.click()")
    assert shown(browser, selector) is at_first


def test_themes_and_print(browser: Page) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(colour)
    browser.show_as(1280, 900, "dark")
    dark = browser.run(colour)
    assert light != dark
    browser.run("document.getElementById('theme').click()")
    assert browser.run(colour) == light
    browser.show_as(1280, 900, "light")
    browser.run("document.getElementById('theme').click()")
    assert browser.run(colour) == dark
    browser.show_as(1280, 900, media="print")
    assert browser.run(colour) == "rgb(255, 255, 255)"
    assert not shown(browser, ".controls")
    browser.show_as(1280, 900)
    browser.run("document.getElementById('theme').click()")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_never_scrolls_sideways(browser: Page, width: int) -> None:
    browser.show_as(width, 844)
    hidden = (
        "[...document.querySelectorAll('.toggle')].filter(b => !b.defaultChecked).forEach(b => b.click())"
    )
    browser.run(hidden)
    assert browser.run("document.documentElement.scrollWidth") <= width
    browser.run(hidden)
    browser.show_as(1280, 900)


def test_readers_find_their_way(browser: Page) -> None:
    """Tables have captions and headings with a scope, figures a name and their origin."""
    assert browser.run("[...document.querySelectorAll('table')].every(t => t.caption && t.tHead)")
    assert browser.run("[...document.querySelectorAll('th')].every(t => t.scope)")
    assert browser.run("[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))")
    assert browser.run(
        "[...document.querySelectorAll('figure')].every(f => f.querySelector('.provenance li'))"
    )
    assert browser.run(
        "[...document.querySelectorAll('.scroll')].every(s => s.tabIndex === 0 && s.ariaLabel)"
    )
    ids = browser.run("[...document.querySelectorAll('section')].map(s => s.id)")
    assert ids == [section.name for section in SECTIONS]  # here all of them have something to show
    assert len(browser.run("[...document.querySelectorAll('figure')].map(f => f.id)")) == len(
        set(browser.run("[...document.querySelectorAll('figure')].map(f => f.id)"))
    )


def test_hostile_names_are_text(browser: Page, campaign: Campaign) -> None:
    headings = browser.run(
        "[...document.querySelectorAll('#board-1 tbody')].map(b => b.rows[0].cells[0].textContent)"
    )
    assert set(HOSTILE) < set(headings)
    assert "secret" not in report(campaign, "html")  # words of a sentence stay out
    assert browser.complaints() == []


def check_compiles(text: str, folder: Path) -> None:
    """A document compiles, reads no file and overflows nothing."""
    latex = shutil.which("pdflatex")
    assert latex, "needs LaTeX: apt-get install --no-install-recommends texlive-latex-recommended"
    (folder / "t.tex").write_text(text, encoding="utf-8")
    (folder / "x.tex").write_text("an \\undefinedcommand that must not be read")
    command = [latex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "t.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "x.tex" not in done.stdout
    assert "Overfull \\hbox" not in done.stdout
    assert "Float too large" not in done.stdout
    assert (folder / "t.pdf").stat().st_size > 5000


@pytest.mark.parametrize("name", ["", *(n.replace("SWEEP", "caels") for n in TABLES)])
def test_every_table_compiles(campaign: Campaign, tmp_path: Path, name: str) -> None:
    check_compiles(report(campaign, "latex", name or None, standalone=True), tmp_path)


def test_the_diagram_of_groups_compiles(campaign: Campaign, tmp_path: Path) -> None:
    (figure,) = (figure for figure in all_figures(campaign) if figure.name == "mini-sts7-groups")
    assert set(HOSTILE) < set(figure.rows)
    check_compiles(document(critical_difference(figure)), tmp_path)


def test_every_figure_is_drawn_and_twice_the_same(
    cli: Cli, campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command draws all, here as SVG alone; one figure of each kind becomes all three files, twice."""
    source, drawn = str(campaign.store.root.parent), tmp_path / "drawn"
    with monkeypatch.context() as patch:
        patch.setattr("bench.reports.figures.draw._FORMATS", {"svg": {"Date": None}})
        code, _, err = cli("report", "--results", source, "--campaign", "camp", "--figures", str(drawn))
    assert code == 0, err
    figures = all_figures(make_campaign(campaign.store, campaign.store.records()))
    names = {figure.name for figure in figures}
    assert names == {path.stem for path in drawn.glob("*.svg")}
    assert {
        "mini-sts7-seeds",
        "mini-sts7-plane",
        "mini-sts7-cosines",
        "gradient-gd-infonce",
        "gradient-m_mhe-seed-1-angles",
    } < names
    one_a_kind = {figure.kind: figure for figure in figures}
    assert len(one_a_kind) == 5
    once, again = (draw(list(one_a_kind.values()), tmp_path / name) for name in ("once", "again"))
    assert [path.suffix for path in again if path.suffix != ".tex"] == [".pdf", ".png", ".svg"] * 5
    assert [path.stem for path in again if path.suffix == ".tex"] == [one_a_kind["ranking"].name]
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]
