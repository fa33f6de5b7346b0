"""The page in a real browser, and every table through LaTeX."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.records.store import ResultStore
from bench.render.critical_difference import ranking_picture
from bench.render.figure_files import draw_figures
from bench.render.formats import quote_formula
from bench.render.grid import format_score
from bench.render.latex import DEVIATIONS, latex_document
from bench.render.svg import KINDS
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_records import figure_names
from bench.reports.formats.paper_latex import STYLES, PaperStyle
from bench.reports.report import TableOptions, all_figures, render_report
from bench.reports.sections import SECTIONS, TABLES
from bench.reports.tables.leaderboard import all_leaderboards
from tests.support.campaigns import HOSTILE, make_record
from tests.support.chromium import Page, chromium
from tests.support.cli import Cli

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(campaign: Campaign, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page, loaded."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_report(campaign, "html"), encoding="utf-8")
    with chromium() as opened:
        opened.show_as(1280, 900)
        opened.open(path)
        opened.run(OPEN_TAB % "table")
        yield opened


OPEN_TAB = "document.querySelector('.tabs a[href=\"#tab-%s\"]').click()"
METHODS = "[...document.querySelectorAll('#board-1 tbody')].filter(b => !b.hidden).map(b => b.dataset.id)"
AVERAGES = (
    "[...document.querySelectorAll('#board-1 tbody')].map(b => parseFloat(b.rows[0].cells[1].textContent))"
)


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
    assert browser.run("document.querySelectorAll('script:not([type=\"application/json\"])').length") == 1
    assert browser.run("document.querySelectorAll('img, link, iframe, object, [src], [style]').length") == 0
    assert "leaderboard" in browser.run("document.title")


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
    assert browser.run(f"{heading(1)}.getAttribute('aria-sort')") == "descending"
    browser.run(f"{heading(1)}.querySelector('button').focus()")
    browser.press("Enter", 13)
    assert browser.run(AVERAGES) == sorted(start)
    assert browser.run(f"{heading(1)}.getAttribute('aria-sort')") == "ascending"
    assert "ascending" in browser.run("document.getElementById('status').textContent")
    browser.run(f"{heading(0)}.querySelector('button').focus()")
    browser.press(" ", 32)
    assert browser.run("document.querySelectorAll('#board-1 [aria-sort]').length") == 1
    shown_names = METHODS.replace("dataset.id", "dataset.method")
    names = browser.run(shown_names)
    assert names == browser.run(f"{shown_names}.sort((a, b) => a.localeCompare(b, 'en', {{numeric: true}}))")
    browser.run(f"{heading(1)}.querySelector('button').click()")
    # the last column: training seconds; rows without a number would come last in either order
    grids = "[...document.querySelectorAll('#efficiency .grid table')][0]"
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
    assert status.startswith(f"1 of {len(everything)} ")
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


DOWNLOAD = """new Promise(done => {
  const make = URL.createObjectURL;
  URL.createObjectURL = blob => { blob.text().then(done); URL.createObjectURL = make; return make(blob); };
  document.querySelector('%s .csv').click();
})"""


def downloaded(browser: Page, place: str) -> list[list[str]]:
    """Rows of what a table's button makes."""
    return list(csv.reader(io.StringIO(browser.run(DOWNLOAD % place))))


def test_a_table_as_csv(browser: Page, campaign: Campaign) -> None:
    header, *rows = downloaded(browser, "#board-1")
    (table, *_) = all_leaderboards(campaign)  # variants are hidden
    assert header[:4] == ["id", "method", "avg", "avg sd"]
    assert [row[0] for row in rows] == [row.method for row in table.rows]
    for made, row in zip(rows, table.rows, strict=True):
        cell = row.cells["avg"]
        assert made[2:4] == [format_score(cell.mean), "" if cell.sd is None else f"{100 * cell.sd:.2f}"]
    put(browser, ".find", "input", "simcse")
    assert [row[0] for row in downloaded(browser, "#board-1")[1:]] == ["simcse"]
    put(browser, ".find", "input", "")


def test_no_cell_of_a_csv_is_computed(browser: Page) -> None:
    texts = [
        "=1+1",
        " =x",
        "@a",
        "+b",
        "-0.05",
        "+1.20*",
        "-",
        "-1,234.5",
        "\uff1dx",
        "-1\u00b10.20",
        'a,"b"',
    ]
    texts += ["-0.10 [-0.20, +0.01]", "+x [1]", "plain", "-1e-05"]
    cell = "document.querySelector('#pairs-1 .listed tbody').rows[0].cells[5]"
    was = browser.run(f"{cell}.textContent")
    for text in texts:
        browser.run(f"{cell}.textContent = {json.dumps(text)}")
        header, first, *_ = downloaded(browser, "#pairs-1 details")
        assert first[header.index("test")] == quote_formula(text.strip()), text
    browser.run(f"{cell}.textContent = {json.dumps(was)}")


def later(expression: str) -> str:
    """The value of an expression in a tenth of a second."""
    return f"new Promise(r => setTimeout(() => r({expression}), 100))"


def reloaded(browser: Page, hash_: str) -> None:
    """Load the page again with another end of its address."""
    browser.run(f"location.hash = {json.dumps(hash_)}")
    browser.call("Page.reload")
    while not browser.run("document.readyState === 'complete' && document.querySelector('.csv') !== null"):
        pass


def test_what_was_chosen_stands_in_the_address(browser: Page) -> None:
    everything = browser.run(METHODS)
    browser.run(f"{heading(0)}.querySelector('button').click()")
    put(browser, ".family", "change", f"name:{HOSTILE[1]}")
    browser.run("document.querySelector('#board-1 [data-class=with-sd]').click()")
    browser.run("document.querySelector('#figure-mini-sts7-plane .keys button').click()")
    shown_before = browser.run("location.hash")
    reloaded(browser, shown_before)
    assert browser.run(METHODS) == [HOSTILE[1]]
    assert browser.run(f"{heading(0)}.getAttribute('aria-sort')") == "ascending"
    assert not shown(browser, ".sd")
    assert browser.run("document.querySelectorAll('#figure-mini-sts7-plane .series.off').length") == 1
    browser.run(OPEN_TAB % "methods")
    tab, _, chosen = browser.run(later("location.hash")).partition("?")
    assert tab == "#tab-methods"
    assert sorted(chosen.split("&")) == sorted(shown_before.partition("?")[2].split("&"))
    browser.run("location.hash = 'seeds?'")
    assert browser.run(later(METHODS)) == everything
    assert browser.run("location.hash") == "#seeds"
    assert browser.complaints() == []


def test_an_address_is_only_text(browser: Page) -> None:
    everything = browser.run(METHODS)
    evil = "<img src=x onerror=alert(1)>"
    for text in (
        f"{evil}?board-1.find=</script>{evil}",
        "%?%%%&&&==",
        f"x?sort-0=ascending {evil}&sort-0=1&board-1.family=name:{evil}&__proto__=1&constructor=2",
        "?figure-mini-sts7-plane.hidden=99.-1.constructor.__proto__&board-1.with-sd=maybe",
        "?" + "a=b&" * 20_000,
    ):
        reloaded(browser, text)
        assert browser.run("document.querySelectorAll('img').length") == 0
        assert browser.complaints() == []
        assert browser.run(METHODS) == ([] if "find" in text else everything)
    reloaded(browser, "?")


def test_legends_and_the_pointer(browser: Page) -> None:
    figure = "#figure-mini-sts7-plane"
    browser.run(OPEN_TAB % "analysis")
    series = f"document.querySelector('{figure} .series[data-s=\"0\"]')"
    browser.run(f"document.querySelector('{figure} .keys button').focus({{preventScroll: true}})")
    told = browser.run(f"document.querySelector('{figure} .readout').textContent")
    browser.press("Enter", 13)
    assert browser.run(f"getComputedStyle({series}).display") == "none"
    assert browser.run(f"document.querySelector('{figure} .keys button').ariaPressed") == "false"
    browser.press(" ", 32)
    assert browser.run(f"getComputedStyle({series}).display") == "inline"
    browser.run("document.activeElement.blur()")
    browser.move(f'{figure} .series[data-s="0"] .point')
    assert browser.run(f"document.querySelector('{figure} .readout').textContent") == told
    assert browser.run(f"{series}.classList.contains('on')")
    browser.run(OPEN_TAB % "ranks")
    browser.move(".signs td.p")
    said = browser.run("document.querySelector('.pairs .readout').textContent")
    assert re.search(r" less .*: \+\d+\.\d\d, interval \[.* differs \(", said)
    browser.move("h1")
    browser.run(OPEN_TAB % "table")


FOREST = "[...document.querySelectorAll('.forest tbody tr')].filter(r => r.checkVisibility())"
SEEN = """JSON.stringify([...document.querySelectorAll('.cards, .forest, .heat, .grids, #board-1')].map(
  e => e.innerHTML.replace(/<g id="[^"]*">/g, '')))"""


def pick(browser: Page, baseline: str) -> str:
    """Pick a baseline as a person would, and return what the page says."""
    select = "document.querySelector('.pick-baseline')"
    browser.run(f"{select}.value = {json.dumps(baseline)}; {select}.dispatchEvent(new Event('change'))")
    return str(browser.run("document.getElementById('status').textContent"))


def test_a_picked_baseline_shows_its_own_tests(browser: Page, campaign: Campaign) -> None:
    before = browser.run(SEEN)
    choices = browser.run("[...document.querySelectorAll('.pick-baseline option')].map(o => o.value)")
    first = browser.run("document.querySelector('.pick-baseline').value")
    other = next(choice for choice in choices if choice not in ("", first))
    said = pick(browser, other)
    assert browser.run(SEEN) != before
    assert f"baseline-1={other}" in browser.run("decodeURIComponent(location.hash)")
    records = campaign.records
    (table, *_) = all_leaderboards(replace(campaign, all_rows=True, baseline=other))
    for row in table.rows:
        text = browser.run(
            f"[...document.querySelectorAll('.forest tbody tr')].find(r => r.dataset.id === "
            f"{json.dumps(row.method)}).querySelector('td.answer').textContent"
        )
        if row.against is not None and row.against.p is not None:
            assert text.startswith(f"{100 * row.against.difference:+.2f} ")
            assert text.endswith(row.against.answer), row.method
    assert records
    assert said.startswith("Against ")
    pick(browser, first)
    assert browser.run(SEEN) == before  # the script draws what the program drew


def test_tabs_by_keyboard_and_by_link(browser: Page) -> None:
    shown_tab = "[...document.querySelectorAll('.tab')].filter(t => t.checkVisibility()).map(t => t.id)"
    browser.run("document.querySelector('.tabs a').click()")
    assert browser.run(shown_tab) == ["tab-differences"]
    browser.run("document.querySelector('.tabs a').focus()")
    browser.press("ArrowRight", 39)
    assert browser.run(shown_tab) == ["tab-tasks"]
    assert browser.run("document.activeElement.getAttribute('aria-selected')") == "true"
    browser.run("location.hash = 'probes'")
    assert browser.run(later(shown_tab)) == ["tab-analysis"]
    browser.run("history.replaceState(null, '', '#'); " + OPEN_TAB % "table")


def test_the_first_screen_has_the_answer(browser: Page) -> None:
    browser.run("document.querySelector('.tabs a').click(); scrollTo(0, 0)")
    for width, height in ((1400, 900), (390, 844)):
        browser.show_as(width, height)
        inside = f"r.getBoundingClientRect().bottom <= {height}"
        assert browser.run(f"{FOREST}.filter(r => {inside}).length") >= 8
        assert browser.run(f"{FOREST}.some(r => r.classList.contains('baseline') && {inside})")
        assert browser.run(f"[...document.querySelectorAll('.cards li')].every(r => {inside})")
        assert browser.run("document.documentElement.scrollWidth") <= width
    browser.show_as(1280, 900)
    browser.run(OPEN_TAB % "table")


def test_a_table_is_copied_as_latex(browser: Page, tmp_path: Path) -> None:
    copied = browser.run(
        "new Promise(done => { navigator.clipboard.writeText = async text => done(text); "
        "document.querySelectorAll('.board .tools button')[2].click() })"
    )
    assert copied.startswith("\\begin{tabular}")
    copied = copied.encode("latin-1", "replace").decode("latin-1")  # letters that LaTeX's fonts have
    packages = "\\usepackage[paperwidth=200cm,textwidth=190cm]{geometry}\\usepackage{booktabs}"
    page = f"\\documentclass{{article}}{packages}"
    check_compiles(f"{page}\\begin{{document}}\\tiny\n{copied}\\end{{document}}", tmp_path)


def test_a_row_leads_to_its_card(browser: Page) -> None:
    link = "document.querySelector('#board-1 tbody th a')"
    card = browser.run(f"document.getElementById({link}.hash.slice(1)).id")
    browser.run(f"{link}.click()")
    assert browser.run(later(f"document.getElementById({json.dumps(card)}).open"))
    browser.run("history.replaceState(null, '', '#')")


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
    browser.show_as(1280, 900, "dark", media="print")
    assert browser.run(colour) == "rgb(255, 255, 255)"
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
    for selector, holds in {
        "table": "e.caption && e.tHead",
        "th": "e.scope",
        "svg": "e.ariaLabel || e.ariaHidden",
        "figure": "e.querySelector('.provenance li')",
        ".scroll": "e.tabIndex === 0 && e.ariaLabel",
    }.items():
        assert browser.run(f"[...document.querySelectorAll('{selector}')].every(e => {holds})"), selector
    ids = browser.run("[...document.querySelectorAll('.tab > section')].map(s => s.id)")
    assert sorted(ids) == sorted(
        section.name for section in SECTIONS if section.tab
    )  # here all have something to show
    figures = browser.run("[...document.querySelectorAll('figure')].map(f => f.id)")
    assert len(figures) == len(set(figures))


def test_hostile_names_are_text(browser: Page, campaign: Campaign) -> None:
    headings = browser.run(
        "[...document.querySelectorAll('#board-1 tbody')].map(b => b.rows[0].cells[0].textContent)"
    )
    assert set(HOSTILE) < set(headings)
    assert "secret" not in render_report(campaign, "html")  # words of a sentence stay out
    assert browser.complaints() == []


def test_a_page_without_simcse_is_whole_once_a_baseline_is_picked(browser: Page, tmp_path: Path) -> None:
    records = []
    for place, method in enumerate(("mhe", "mhs", "barlow")):
        for seed in (1, 2, 3):
            scores = {task: 0.6 + 0.02 * place + 0.001 * seed * (place + 1) for task in ("STS12", "STSB")}
            records.append(make_record(method, seed, scores))
    store, pages = ResultStore(tmp_path, "few"), {}
    for name, baseline in (("picked", None), ("made", "mhe")):
        pages[name] = tmp_path / f"{name}.html"
        text = render_report(make_campaign(store, records, baseline=baseline), "html")
        pages[name].write_text(text, encoding="utf-8")
    before = browser.run("location.href")
    browser.open(pages["picked"])
    assert browser.run("document.querySelector('.unpicked').checkVisibility()")
    pick(browser, "mhe")
    assert not browser.run("document.querySelector('.unpicked').checkVisibility()")
    seen = "document.querySelector('{}').innerText"
    texts = [browser.run(seen.format(part)) for part in (".cards", ".forest tbody", ".grids")]
    browser.run("document.querySelector('.tabs a[href=\"#tab-tasks\"]').click()")
    texts.append(browser.run(seen.format(".heat")))
    browser.open(pages["made"])
    made = [browser.run(seen.format(part)) for part in (".cards", ".forest tbody", ".grids")]
    browser.run("document.querySelector('.tabs a[href=\"#tab-tasks\"]').click()")
    made.append(browser.run(seen.format(".heat")))
    assert texts == made
    browser.open(Path(before.removeprefix("file://").partition("#")[0]))
    browser.run(OPEN_TAB % "table")


def test_all_pairs_are_no_reason_to_say_that_nothing_is_tested(tmp_path: Path) -> None:
    records = [make_record(m, seed, {"STSB": 0.5 + 0.01 * seed}) for m in ("a", "b") for seed in (1, 2)]
    source = make_campaign(ResultStore(tmp_path, "camp"), records)
    page = render_report(replace(source, family_kind="all"), "html")
    assert "All pairs are tested" in page
    assert "No row is tested" not in page


@pytest.mark.long
def test_many_methods_fit(browser: Page, tmp_path: Path) -> None:
    store = ResultStore(tmp_path, "many")
    records = [
        make_record(f"method{i}[option=value{i}]", seed, {"STSB": 0.3 + 0.01 * i + 0.0001 * seed * (i % 7)})
        for i in range(54)
        for seed in (1, 2)
    ]
    page = tmp_path / "many.html"
    page.write_text(render_report(make_campaign(store, records), "html"), encoding="utf-8")
    browser.show_as(1400, 900)
    browser.open(page)
    wide = browser.run(
        "[...document.querySelectorAll('#leaderboard .scroll, #significance .scroll')]"
        ".filter(s => s.scrollWidth > s.clientWidth).map(s => s.ariaLabel)"
    )
    assert wide == []


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
    check_compiles(render_report(campaign, "latex", name or None, standalone=True), tmp_path)


@pytest.mark.parametrize("sd", DEVIATIONS)
@pytest.mark.parametrize("name", STYLES)
def test_a_papers_table_compiles(campaign: Campaign, tmp_path: Path, name: str, sd: str) -> None:
    cites = {HOSTILE[0]: "key_a:1"}
    look = TableOptions(("STS12", "avg", "seeds", "rank"), style=PaperStyle(name, cites=cites), sd=sd)
    check_compiles(
        render_report(replace(campaign, baseline="simcse"), "latex", look=look, standalone=True), tmp_path
    )


def test_the_diagram_of_groups_compiles(campaign: Campaign, tmp_path: Path) -> None:
    every = tuple(dict.fromkeys(record.method for record in campaign.records))
    figures = all_figures(replace(campaign, named=every))
    (figure,) = (figure for figure in figures if figure.name == "mini-sts7-groups")
    assert set(figure_names(campaign, HOSTILE).values()) < set(figure.rows)
    check_compiles(latex_document(ranking_picture(figure)), tmp_path)


@pytest.mark.long
def test_every_figure_is_drawn_and_twice_the_same(
    cli: Cli, campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, drawn = str(campaign.stores[0].root.parent), tmp_path / "drawn"
    with monkeypatch.context() as patch:
        patch.setattr("bench.render.figure_files.FORMATS", ("svg",))
        code, _, err = cli("report", "--results", source, "--campaign", "camp", "--figures", str(drawn))
    assert code == 0, err
    figures = all_figures(make_campaign(campaign.stores[0], campaign.stores[0].records()))
    names = {figure.name for figure in figures}
    assert names == {path.stem for path in drawn.glob("*.svg")}
    assert {f"mini-sts7-{name}" for name in ("seeds", "plane", "cosines")} < names
    assert {"gradient-gd-infonce", "gradient-m_mhe-seed-1-angles"} < names
    one_a_kind = {figure.kind: figure for figure in figures}
    assert set(one_a_kind) == set(KINDS)
    once, again = (draw_figures(list(one_a_kind.values()), tmp_path / name) for name in ("once", "again"))
    assert [path.suffix for path in again if path.suffix != ".tex"] == [".pdf", ".png", ".svg"] * len(KINDS)
    assert [path.stem for path in again if path.suffix == ".tex"] == [one_a_kind["ranking"].name]
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]
