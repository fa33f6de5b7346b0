"""The site in a real browser, from its files: widths, search, theme, slider, comparison, items."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from bench.records.store import ResultStore
from bench.site.pair_verdict import PairVerdict
from tests.support.campaigns import HOSTILE, make_record
from tests.support.chromium import Page, PageLeftError, chromium
from tests.support.messages import numbers_in
from tests.support.site import add, hostile, make_site, taken

pytestmark = pytest.mark.slow
STATUS = "document.getElementById('status').textContent"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of a campaign of hostile names, and of one of two profiles."""
    folder = tmp_path_factory.mktemp("site")
    hostile(folder / "results")
    for profile in ("mini", "minilm"):
        for seed in (1, 2, 3):
            record = make_record("simcse", seed, {"STS12": 0.5 + 0.01 * seed}, profile=profile)
            other = make_record("mhe", seed, {"STS12": 0.6 - 0.01 * seed}, profile=profile)
            add(ResultStore(folder / "results", "two"), record, replace(other, profile=profile))
    code, _, err = make_site(folder / "results", folder / "site")
    assert (code, "can't be shown" in err, "internal error" in err) == (1, False, False)
    return folder / "site"


@pytest.fixture(scope="module")
def started() -> Iterator[Page]:
    with chromium() as page:
        yield page


@pytest.fixture
def browser(started: Page) -> Iterator[Page]:
    """A page that complains of nothing and asks only for files, whatever a test does."""
    started.events.clear()
    started.show_as(1400, 900)
    yield started
    assert started.complaints() == []
    assert {address.partition(":")[0] for address in started.requests()} <= {"file", "blob"}


def wait(browser: Page, condition: str) -> None:
    """Until a script's work shows."""
    for _ in range(100):
        with suppress(PageLeftError):  # a link was followed: ask the next page
            if browser.run(condition):
                return
        time.sleep(0.03)
    raise AssertionError(f"never: {condition}; {browser.run('document.body.innerText')[:1500]}")


def go(browser: Page, path: Path, place: str = "") -> None:
    """Load a page anew, at a place."""
    browser.call("Page.navigate", url="about:blank")
    browser.open(path)
    if place:
        browser.run(f"location.hash = {json.dumps(place)}")


def as_typed(*names: str) -> str:
    return ",".join(quote(name, safe="") for name in names)


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (390, "dark"),
        (1400, "light"),
        pytest.param(390, "light", marks=pytest.mark.long),
        pytest.param(1400, "dark", marks=pytest.mark.long),
    ],
)
def test_every_page_at_every_width(browser: Page, site: Path, width: int, theme: str) -> None:
    browser.show_as(width, 900, theme)
    browser.open(site / "index.html")
    browser.run("localStorage.clear()")
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 15
    for path in pages:
        browser.open(path)
        where = path.relative_to(site)
        wide = browser.run("document.documentElement.scrollWidth")
        assert wide <= width, f"{where}: {wide}"
        assert browser.run("document.title") != "owned", where
        active = browser.run("document.querySelectorAll('img, iframe, object, [style], [onerror]').length")
        assert active == 0, where
        assert browser.run("document.styleSheets.length") == 1, where
        assert browser.run("typeof bench") == "object", where  # the script ran
        ground = browser.run("getComputedStyle(document.body).backgroundColor")
        light = sum(int(part) for part in ground.strip("rgb()").split(",")[:3]) > 382
        assert light == (theme == "light"), where
    assert browser.complaints() == []


def test_search_by_keyboard(browser: Page, site: Path) -> None:
    go(browser, site / "campaigns/two/index.html")
    browser.press("/", 191)
    assert browser.run("document.activeElement.id") == "search"
    browser.call("Input.insertText", text="SCRIPT")
    wait(browser, "!document.getElementById('found').hidden")
    names = "[...document.querySelectorAll('#found a')].map(a => a.textContent)"
    assert HOSTILE[0] in browser.run(names)
    assert "found" in browser.run(STATUS)
    browser.press("Escape", 27)
    assert browser.run("document.getElementById('found').hidden")
    browser.run("document.getElementById('search').value = ''")
    browser.call("Input.insertText", text="no such thing")
    wait(browser, "!document.getElementById('found').hidden")
    assert browser.run(names) == []
    assert "nothing" in browser.run("document.getElementById('found').textContent")
    browser.run("document.getElementById('search').select()")
    browser.call("Input.insertText", text="mhe")
    wait(browser, f"{names}[0] === 'MHE'")
    browser.press("ArrowDown", 40)
    assert browser.run("document.activeElement.textContent") == "MHE"
    browser.run("document.getElementById('search').focus()")
    browser.press("Enter", 13)
    wait(browser, "location.pathname.endsWith('/methods/mhe.html') && document.readyState === 'complete'")
    assert browser.run("document.querySelector('h1').textContent") == "MHE"


def test_a_theme_is_kept_from_page_to_page(browser: Page, site: Path) -> None:
    browser.open(site / "index.html")
    browser.run("localStorage.clear()")
    go(browser, site / "index.html")
    assert browser.run("document.getElementById('theme').textContent") == "Dark"
    browser.run("document.getElementById('theme').click()")
    wait(browser, "localStorage.getItem('theme') === 'dark'")
    go(browser, site / "methods/simcse.html")
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    assert browser.run("document.getElementById('theme').textContent") == "Light"
    browser.run("localStorage.setItem('theme', '<b>')")
    go(browser, site / "index.html")
    assert browser.run("document.documentElement.dataset.theme ?? null") is None
    browser.run("localStorage.clear()")


SAID = "[...document.querySelectorAll('#compared .said')].map(p => p.textContent)"
CHOSEN = "[...document.querySelectorAll('#compare select')].map(s => s.selectedOptions[0].{})"


def expected_verdicts(site: Path, a: str, b: str) -> list[str]:
    """The sentences on A - B in all campaigns, by the Python that defines them."""
    texts = []
    for campaign, profile, suite, *_ in taken(site / "data/compare.js")["places"]:
        for block in taken(site / f"campaigns/{campaign}/pairs.js"):
            rows = block["rows"]
            if (block["profile"], block["suite"]) != (profile, suite) or not {a, b} <= set(rows):
                continue
            i, j = rows.index(a), rows.index(b)
            (line,) = (line for line in block["pairs"] if set(line[:2]) == {i, j})
            _, _, answer, difference, low, high, n, m, test, p, corrected = line
            ends = None if low is None else (low, high)
            test = block["texts"][test]
            verdict = PairVerdict(difference, ends, (n, m), test, p, corrected, block["tested"])
            assert verdict.answer == block["texts"][answer]
            first, second = block["names"][i], block["names"][j]
            aside = {block["names"][k]: block["aside"][str(k)] for k in (i, j) if str(k) in block["aside"]}
            told = verdict if line[0] == i else verdict.reverse()
            texts.append(told.describe(first, second, aside))
    return texts


@pytest.mark.parametrize("other", HOSTILE)
def test_two_methods_by_address_in_both_orders(browser: Page, site: Path, other: str) -> None:
    browser.show_as(390, 844)
    for names in ((other, "simcse"), ("simcse", other)):
        go(browser, site / "compare.html", as_typed(*names))
        wait(browser, f"{SAID}.length > 0")
        assert browser.run(CHOSEN.format("title")) == list(names)
        assert browser.run(CHOSEN.format("textContent")) == [n.replace("simcse", "SimCSE") for n in names]
        said = browser.run(SAID)
        assert said == expected_verdicts(site, *names)
        first = names[0].replace("simcse", "SimCSE")
        assert all(text.startswith(f"{first} is ") for text in said)
        assert browser.run("document.title") != "owned"
        assert browser.run("document.querySelectorAll('#compared img, #compared script').length") == 0
        assert browser.run("location.hash") == f"#{as_typed(*names)}"
        assert browser.run("document.documentElement.scrollWidth") <= 390


def test_every_answer_reads_as_python_defines_it(browser: Page, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    store = ResultStore(tmp_path / "results", "answers")
    for i in range(5):
        for seed in range(1, 6):
            score = 0.5 + 0.008 * i + 0.006 * float(rng.normal())
            add(store, make_record(f"m{i}", seed, {"STS12": score}))
    for seed in (1, 2, 3):
        for method, score in (("m1[steps=3]", 0.7), ("m1[steps=4]", 0.5)):
            scores = {"STS12": score + 0.001 * seed * seed}
            add(store, make_record(method, seed, scores, options={"steps": method[-2]}))
    add(store, make_record("once", 1, {"STS12": 0.5}), make_record("fixed", None, {"STS12": 0.3}))
    _, _, err = make_site(tmp_path / "results", tmp_path / "site")
    assert "can't be shown" not in err, err
    (block,) = taken(tmp_path / "site/campaigns/answers/pairs.js")
    answers = {block["texts"][line[2]] for line in block["pairs"]}
    assert answers == {"both", "alone", "neither", "aside ahead", "aside open", "untested"}
    for a, b in permutations(block["rows"], 2):
        browser.run("document.getElementById('compared')?.replaceChildren()")
        if a == block["rows"][0] and b == block["rows"][1]:
            go(browser, tmp_path / "site/compare.html", as_typed(a, b))
        else:
            browser.run(f"location.hash = {json.dumps(as_typed(a, b))}")
        wait(browser, f"{SAID}.length === 1 && {CHOSEN.format('title')}.join() === {json.dumps(f'{a},{b}')}")
        assert browser.run(SAID) == expected_verdicts(tmp_path / "site", a, b)


def test_swapping_turns_the_pair_and_the_command_can_be_copied(browser: Page, site: Path) -> None:
    go(browser, site / "compare.html", as_typed("simcse", HOSTILE[2]))
    wait(browser, f"{SAID}.length > 0")
    browser.run("document.getElementById('compare-swap').focus()")
    browser.press("Enter", 13)
    wait(browser, f"{CHOSEN.format('title')}[1] === 'simcse' && {SAID}.length > 0")
    assert browser.run(SAID) == expected_verdicts(site, HOSTILE[2], "simcse")
    assert browser.run("decodeURIComponent(location.hash)") == f"#{HOSTILE[2]},simcse"
    command = browser.run("document.querySelector('#compared .command code').textContent")
    assert shlex.split(command)[:6] == ["bench", "compare", HOSTILE[2], "simcse", "--campaign", "hostile"]
    browser.run("document.querySelector('#compared .command button').click()")
    assert browser.run("getSelection().toString()") == command
    assert browser.run(STATUS) == "copied"


def test_printed_names_work_in_an_address_too(browser: Page, site: Path) -> None:
    go(browser, site / "compare.html", as_typed("SimCSE", "MHE"))
    wait(browser, f"{SAID}.length === 2")
    assert browser.run(CHOSEN.format("title")) == ["simcse", "mhe"]


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_the_first_verdict_is_on_the_first_screen(browser: Page, site: Path, width: int, height: int) -> None:
    browser.show_as(width, height)
    go(browser, site / "index.html")
    bottom = "document.querySelector('.campaign .top-verdict').getBoundingClientRect().bottom"
    assert 0 < browser.run(bottom) < height
    card = "document.querySelector('.campaign a')"
    browser.run(f"{card}.focus()")
    browser.press("Enter", 13)
    wait(browser, "location.pathname.includes('/campaigns/') && document.readyState === 'complete'")


def test_names_in_an_address_that_nobody_has(browser: Page, site: Path) -> None:
    for page, place, said in (
        ("compare", as_typed("simcse", "<img src=x>"), "No campaign here has <img src=x>."),
        ("compare", as_typed("no", "nobody"), "No campaign here has no nor nobody."),
        ("compare", "simcse", "No campaign here has two such methods."),
        ("compare", "50%,simcse", "No campaign here has 50%."),
        ("compare", as_typed("simcse", "simcse"), "Choose two methods."),
        ("items", as_typed("hostile/0", "simcse", "<b>nobody"), "No pairs of <b>nobody in hostile."),
        ("items", as_typed("nowhere/0", "simcse", "mhe"), "No pairs of nowhere/0 here."),
    ):
        go(browser, site / f"{page}.html", place)
        shown = "#compared > *" if page == "compare" else "#browsed > *"
        lines = f"[...document.querySelectorAll('{shown}')].map(e => e.textContent)"
        wait(browser, f"{lines}[0] === {json.dumps(said)}")
        assert page == "compare" or browser.run(f"{lines}.length") == 1


def test_the_first_stop_of_the_keyboard_skips_and_paper_shows_no_controls(browser: Page, site: Path) -> None:
    controls = "[...document.querySelectorAll('.top, .controls, .tools, .files')]"
    visible = f"{controls}.filter(e => e.checkVisibility()).length"
    for path in ("index.html", "campaigns/hostile/index.html", "compare.html", "methods/simcse.html"):
        go(browser, site / path)
        browser.press("Tab", 9)
        assert browser.run("document.activeElement.className") == "skip", path
        assert browser.run("document.activeElement.getBoundingClientRect().top >= 0"), path
        browser.press("Enter", 13)
        wait(browser, "location.hash === '#content'")
        browser.press("Tab", 9)
        assert browser.run("!document.activeElement.closest('.top')"), path
        browser.press("Tab", 9)
        assert browser.run("document.querySelector('main').contains(document.activeElement)"), path
        assert browser.run(visible) > 0
        browser.show_as(1400, 900, media="print")
        assert browser.run(visible) == 0, path
        browser.show_as(1400, 900)
        browser.call("Page.printToPDF")
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.call("Emulation.setEmulatedMedia", features=features)
    go(browser, site / "campaigns/hostile/index.html", "seeds-used")
    assert browser.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert browser.run("document.getAnimations().length") == 0
    wait(browser, "document.getElementById('seeds-used').checkVisibility()")


def test_a_link_of_the_pairs_compares_them(browser: Page, site: Path) -> None:
    go(browser, site / "campaigns/hostile/index.html")
    link = "document.querySelector('.pairs .listed tbody a')"
    names = browser.run(f"[0, 1].map(i => {link}.closest('tr').cells[i].textContent)")
    browser.run(f"{link}.closest('details').open = true; {link}.click()")
    wait(
        browser,
        "location.pathname.endsWith('/compare.html') && !!document.querySelector('#compared .verdict')",
    )
    assert browser.run(CHOSEN.format("title")) == names


def test_pairs_of_sentences_by_address(browser: Page, site: Path) -> None:
    go(browser, site / "items.html", as_typed("hostile/0", HOSTILE[0], "simcse"))
    first = "document.querySelector('#browsed tbody tr')"
    wait(browser, f"{first} !== null && {STATUS}.startsWith('<script>')")
    chosen = "['a', 'b'].map(n => document.getElementById('items-' + n).selectedOptions[0].textContent)"
    assert browser.run(chosen) == [HOSTILE[0], "simcse"]
    data = taken(site / "campaigns/hostile/items-0.js")
    (task,) = data["tasks"]
    one, other = (task["ranks"][data["rows"].index(name)] for name in (HOSTILE[0], "simcse"))
    most = max(range(len(one)), key=lambda at: (abs(other[at] - one[at]), -at))
    cells = browser.run(f"[...{first}.cells].map(c => c.innerText)")
    assert float(cells[0]) == pytest.approx(other[most] - one[most], abs=0.06)
    assert [float(cell) for cell in cells[1:3]] == [one[most], other[most]]
    assert cells[5].splitlines() == task["texts"][most]
    assert float(cells[4]) == task["gold"][most]
    higher = sum(gold > task["gold"][most] for gold in task["gold"])
    same = task["gold"].count(task["gold"][most])
    assert float(cells[3]) == higher + (same + 1) / 2
    browser.run(
        "const s = document.getElementById('items-b'); s.selectedIndex = 3;"
        "s.dispatchEvent(new Event('change'))"
    )
    assert browser.run("decodeURIComponent(location.hash)").startswith("#hostile/0,<script>")


def test_the_slider_shows_fewer_seeds_and_the_list_one_leaderboard(browser: Page, site: Path) -> None:
    go(browser, site / "campaigns/hostile/index.html", "seeds-used")
    place = "document.querySelector('.used')"
    text = f"{place}.querySelector('table').innerText"
    whole = browser.run(text)
    browser.run(f"{place}.querySelector('input').focus()")
    browser.press("ArrowLeft", 37)
    two = browser.run(text)
    assert numbers_in(browser.run(STATUS)) == [2, 3, 1, 2]
    browser.press("ArrowLeft", 37)
    one = browser.run(text)
    assert len({whole, two, one}) == 3
    assert numbers_in(browser.run(STATUS)) == [1, 3, 1]
    assert "Nothing can be tested" not in whole
    assert "can be tested" in browser.run(f"{place}.innerText")
    value = browser.run(f"{place}.querySelector('input').getAttribute('aria-valuetext')")
    assert numbers_in(value) == [1, 3, 1]
    assert HOSTILE[0] in one
    data = browser.run(f"JSON.parse({place}.querySelector('script').textContent)")
    averages = browser.run(f"[...{place}.querySelectorAll('tbody tr')].map(r => r.cells[1].textContent)")
    assert averages == [f"{100 * row[1]:.2f}" for row in data["steps"][0]]
    go(browser, site / "campaigns/two/index.html", "leaderboard")
    boards = "[...document.querySelectorAll('#leaderboard .board')].map(b => b.checkVisibility())"
    assert browser.run(boards) == [True, False]
    select = "document.getElementById('pick-place')"
    browser.run(f"{select}.value = '2'; {select}.dispatchEvent(new Event('change'))")
    assert browser.run(boards) == [False, True]
    hash_ = browser.run("location.hash.slice(1)")
    assert "suite=2" in hash_
    go(browser, site / "campaigns/two/index.html", hash_)
    wait(browser, f"JSON.stringify({boards}) === '[false,true]'")
    browser.run(f"{select}.value = '1'; {select}.dispatchEvent(new Event('change'))")
    assert browser.run(boards) == [True, False]
