"""``bench site`` as a program: what it writes again, refuses, says of damage, and never touches."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.records.store import ResultStore
from bench.site.site_files import SiteOutput, open_site
from tests.support.campaigns import make_record
from tests.support.messages import missing_facts, numbers_in
from tests.support.site import add, contents, dead_links, failed, make_site, read, real, small, times

ATOM = "{http://www.w3.org/2005/Atom}"
Made = tuple[Path, Path]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Results of two campaigns and their site, made without evaluation data as in the tests."""
    folder = tmp_path_factory.mktemp("first")
    small(folder / "results", "one")
    small(folder / "results", "two", "mhe", "m_mhe")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BENCH_DATA", raising=False)
        code, out, _ = make_site(folder / "results", folder / "site")
    assert (code, counts(out)) == (1, [2, 0])
    return folder / "results", folder / "site"


@pytest.fixture
def made(first: Made, tmp_path: Path) -> Made:
    """Copies of both, to be changed."""
    for path in first:
        shutil.copytree(path, tmp_path / path.name)
    return tmp_path / "results", tmp_path / "site"


def counts(out: str) -> list[float]:
    """The numbers of campaigns made and kept, and of files removed, in the last line."""
    return numbers_in(out.rpartition(": ")[2])


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def test_one_edited_record_makes_its_campaign_again(made: Made) -> None:
    results, site = made
    before = times(site)
    assert counts(make_site(results, site)[1]) == [0, 2]
    assert times(site) == before
    store = ResultStore(results, "one")
    add(store, make_record("simcse", 1, {"STS12": 0.61, "STSB": 0.62}))
    assert counts(make_site(results, site)[1]) == [1, 1]
    changed = {path for path, when in times(site).items() if before.get(path) != when}
    assert {"campaigns/one/index.html", "campaigns/one/pairs.js", "methods/simcse.html"} <= changed
    assert not {path for path in changed if path.startswith("campaigns/two/") or path == "methods/mhe.html"}
    path = store.path(store.records()[-1].place)
    assert path.read_bytes() == (site / "campaigns/one/records" / path.relative_to(store.root)).read_bytes()


def test_records_below_a_linked_folder_make_their_campaign_again(tmp_path: Path) -> None:
    results, site = tmp_path / "results", tmp_path / "site"
    store = ResultStore(results, "linked")
    for method in ("simcse", "mhe"):
        for seed in (1, 2):
            add(store, make_record(method, seed, {"STS12": 0.6, "STSB": 0.5 + 0.01 * seed}))
    outside = tmp_path / "mhe"
    (store.root / "mini/mhe").rename(outside)
    (store.root / "mini/mhe").symlink_to(outside)
    (outside / "again").symlink_to(outside)  # a circle is walked once
    make_site(results, site)
    assert counts(make_site(results, site)[1])[:2] == [0, 1]
    path = next(outside.glob("seed-1/*.json"))
    path.write_text(path.read_text().replace("0.6", "0.9"))
    assert counts(make_site(results, site)[1])[:2] == [1, 0]


def test_what_a_killed_build_leaves_of_a_withdrawn_campaign_is_removed(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, site = made
    shutil.copytree(results / "one", results / "private")
    put, done = SiteOutput.put, list[str]()

    def killed(self: SiteOutput, path: str, content: bytes) -> None:
        if len(done) > 3:
            raise KeyboardInterrupt
        put(self, path, content)
        done.append(path)

    with monkeypatch.context() as patch:
        patch.setattr(SiteOutput, "put", killed)
        assert make_site(results, site)[0] != 0
    assert (site / done[0]).is_file()
    assert done[0].startswith("campaigns/private/")
    shutil.rmtree(results / "private")
    make_site(results, site)
    assert not (site / "campaigns/private").exists()
    assert dead_links(site) == []


@pytest.mark.parametrize("at", ["campaigns/two/", "index.html"])
def test_a_killed_build_keeps_every_finished_campaign(
    first: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    results, site, put = first[0], tmp_path / "site", SiteOutput.put

    def killed(output: SiteOutput, path: str, content: bytes) -> None:
        if path.startswith(at):
            raise KeyboardInterrupt
        put(output, path, content)

    for _ in range(2):  # the second one ends there too
        with monkeypatch.context() as patch:
            patch.setattr(SiteOutput, "put", killed)
            assert make_site(results, site)[0] not in (0, 1)
    before = times(site / "campaigns/one")

    def computed(*_: object, **__: object) -> object:
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:  # the slow parts of the unfinished campaign are kept too
        patch.setattr("bench.site.campaign_files.compare_method_pairs", computed)
        patch.setattr("bench.site.command._verify_campaign", computed)
        code, out, _ = make_site(results, site)
    assert (code, counts(out)) == (1, [1, 1] if at == "campaigns/two/" else [0, 2])
    assert times(site / "campaigns/one") == before
    assert contents(site) == contents(first[1])


def test_progress_of_other_records_is_computed_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    results, site = made
    shutil.rmtree(site)
    with monkeypatch.context() as patch:
        patch.setattr(SiteOutput, "complete", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert make_site(results, site)[0] not in (0, 1)
    assert (site / ".progress/one.pairs.json").is_file()
    add(ResultStore(results, "one"), make_record("simcse", 1, {"STS12": 0.61, "STSB": 0.62}))
    make_site(results, site)
    make_site(results, site.with_name("new"))
    assert contents(site) == contents(site.with_name("new"))
    assert not (site / ".progress").exists()


def test_what_is_gone_is_removed_and_nothing_else(made: Made) -> None:
    results, site = made
    (site / "CNAME").write_text("example.org\n")
    (site / "campaigns/two/mine.txt").write_text("mine\n")
    shutil.rmtree(results / "two")
    _, out, _ = make_site(results, site)
    assert (counts(out)[0], len(counts(out))) == (0, 3)  # the last: files removed
    there = contents(site)
    assert [path for path in there if path.startswith("campaigns/two/")] == ["campaigns/two/mine.txt"]
    assert ("CNAME" in there, [path for path in there if "mhe" in path]) == (True, [])
    assert not (site / "campaigns/two/tables").exists()
    assert dead_links(site) == []


@pytest.mark.parametrize(
    "path", ["index.html", "campaigns/one/index.html", "campaigns/one/campaign.json", "site.js"]
)
def test_an_edited_file_of_the_site_is_made_again(made: Made, path: str) -> None:
    results, site = made
    before = contents(site)
    for damage in (lambda file: file.write_text("edited"), Path.unlink):
        damage(site / path)
        make_site(results, site)
        assert contents(site) == before


def test_an_edited_list_of_files_leads_nowhere(made: Made) -> None:
    results, site = made
    before, outside = contents(site), site.parent / "outside.txt"
    outside.write_text("not bench's")
    paths = ["../outside.txt", str(outside), "campaigns/../../outside.txt"]
    paths += ["a\0b", "\ud800", "", ".", "campaigns"]

    def lead_out(data: dict[str, Any]) -> None:
        data["files"] |= dict.fromkeys(paths, sha256(outside.read_bytes()).hexdigest())
        data["campaigns"]["../outside"] = "x"

    edit(site / "site.json", lead_out)
    code, _, err = make_site(results, site)
    assert (code, "internal error" in err, outside.read_text()) == (1, False, "not bench's")
    assert contents(site) == before


def test_an_edited_entry_leads_nowhere(made: Made) -> None:
    results, site = made
    before = contents(site)
    path = site / "campaigns/one/campaign.json"

    def in_the_list(data: dict[str, Any]) -> None:
        data["files"]["campaigns/one/campaign.json"] = sha256(path.read_bytes()).hexdigest()

    for change in (
        lambda: edit(path, lambda data: data.update(campaign="../../../x")),
        lambda: edit(path, lambda data: data.update(lines=[{"method": "x"}])),
        lambda: path.write_bytes(b"\xff\xfe"),
    ):
        change()
        edit(site / "site.json", in_the_list)
        code, _, err = make_site(results, site)
        assert (code, "internal error" in err) == (1, False)
        assert contents(site) == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": []}', '{"files": {}}', "[" * 100_000, "\udcff"])
def test_a_list_of_files_that_is_none_is_refused(first: Made, tmp_path: Path, text: str) -> None:
    out = tmp_path / "site"
    out.mkdir()
    (out / "site.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    code, said, err = make_site(first[0], out)
    assert (code, said, err.count("\n")) == (2, "", 1)
    assert missing_facts(err, f"--out {out}: ", "empty folder") == []
    assert list(contents(out)) == ["site.json"]


def test_another_folder_is_refused(first: Made, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for results, out, fact in (
        (first[0], tmp_path, "not empty"),
        (first[0], tmp_path / "thesis.tex", "can't be used"),
        (tmp_path / "no results", tmp_path / "new", "no campaign here"),
    ):
        code, _, err = make_site(results, out)
        assert (code, fact in err, err.count("\n")) == (2, True, 1)
    assert list(contents(tmp_path)) == ["thesis.tex"]


@pytest.mark.parametrize(
    "url",
    [
        *("example.org", "ftp://example.org", "https://", "https:///bench", "http://[x"),
        *("http://example.org:port/", "https://example.org/?a=1", "https://example.org/#x"),
        *("https://exa mple.org/", "https://example.org/\x01", "https://example.org/\n"),
        *('https://example.org/"<b>', "javascript:alert(1)"),
    ],
)
def test_an_address_that_is_none_is_refused(first: Made, tmp_path: Path, url: str) -> None:
    code, _, err = make_site(first[0], tmp_path / "site", "--url", url)
    assert (code, err.count("\n"), err.rstrip("\n").isprintable()) == (2, 1, True), err
    assert "--url" in err
    assert not (tmp_path / "site").exists()


def test_runs_without_a_finding_are_verified(tmp_path: Path) -> None:
    results, site = tmp_path / "results", tmp_path / "site"
    store = real(results)
    code, out, err = make_site(results, site)
    assert (code, counts(out), missing_facts(err, "sitemap", "--url")) == (0, [1, 0], [])
    entry = json.loads((site / "campaigns/real/campaign.json").read_text())
    assert (entry["check"]["status"], entry["error"]) == ("verified", "")
    assert (entry["records"], entry["failed"]) == (9, 0)
    assert "verified" in read(site / "index.html").text
    lost = next(r for r in store.records() if r.method == "simcse" and r.seed == 3)
    reason = "RuntimeError: out of luck"
    add(store, replace(lost, status="failed", reason=reason, scores=(), predictions=None))
    code, _, err = make_site(results, site)
    assert (code, missing_facts(err, "in doubt", "campaign real")) == (1, [])
    assert "out of luck" in read(site / "campaigns/real/index.html").text
    path = next((store.root / "mini/simcse/seed-1").glob("*.json"))
    path.write_text(path.read_text()[:500])
    code, _, err = make_site(results, site)
    assert (code, missing_facts(err, "in doubt", "campaign real")) == (1, [])
    page = read(site / "campaigns/real/index.html").text
    assert missing_facts(page, "Unreadable: simcse seed 1: ", "not a run record", "1 shape") == []
    entry = json.loads((site / "campaigns/real/campaign.json").read_text())
    assert entry["check"]["status"] == "faults"
    assert (entry["records"], entry["failed"]) == (7, 2)
    assert str(tmp_path) not in "".join(
        content.decode(errors="replace") for content in contents(site).values()
    )
    assert dead_links(site) == []
    code, out, _ = make_site(results, site)
    assert (code, counts(out)) == (1, [0, 1])


def test_a_failed_cell_is_no_zero(tmp_path: Path) -> None:
    small(tmp_path / "results", "one")
    add(ResultStore(tmp_path / "results", "one"), *(failed("mhe", seed) for seed in (1, 2)))
    make_site(tmp_path / "results", tmp_path / "site")
    entry = json.loads((tmp_path / "site/campaigns/one/campaign.json").read_text())
    (line,) = (line for line in entry["lines"] if line["method"] == "mhe")
    assert line["of"] == sum(one["rank"] is not None for one in entry["lines"]) == 2
    assert (line["mean"], line["rank"], entry["failed"], entry["records"]) == (None, None, 2, 4)
    page = (tmp_path / "site/methods/mhe.html").read_text()
    assert re.search('<td title="[^"]+">-</td>', page)
    used = (tmp_path / "site/campaigns/one/index.html").read_text().split('type="application/json">')[1]
    steps = json.loads(used.partition("</script>")[0])["steps"]
    assert [sorted(row[0] for row in step) for step in steps] == [["esimcse", "simcse"]] * 2
    assert "4 records, 2 failed" in read(tmp_path / "site/index.html").text
    places = (tmp_path / "site/data/compare.js").read_text()
    assert "mhe" not in places


def test_a_campaign_that_can_not_be_reported_is_shown_as_such(tmp_path: Path) -> None:
    real(tmp_path / "results")
    other = make_record("mhe", 1, {"STS12": 0.5})
    add(small(tmp_path / "results", "mixed"), other)
    code, out, err = make_site(tmp_path / "results", tmp_path / "site", "--url", "https://example.org")
    assert (code, counts(out), err.count("can't be shown"), "2 versions" in err) == (1, [2, 0], 1, True)
    for page in ("index.html", "campaigns/mixed/index.html"):
        assert "2 versions" in read(tmp_path / "site" / page).text
    files = {path.name for path in (tmp_path / "site/campaigns/mixed").iterdir()}
    assert files == {"campaign.json", "index.html"}
    assert dead_links(tmp_path / "site") == []
    code, out, _ = make_site(tmp_path / "results", tmp_path / "site", "--url", "https://example.org")
    assert (code, counts(out)) == (1, [1, 1])  # it is tried again
    ResultStore(tmp_path / "results", "mixed").path(other.place).unlink()
    make_site(tmp_path / "results", tmp_path / "site", "--url", "https://example.org")
    assert "2 versions" not in read(tmp_path / "site/index.html").text


def test_what_machines_read(tmp_path: Path) -> None:
    who = '<b>&"x" ]]> é 中文'
    for place, name in enumerate(("one", "two")):
        record = make_record("a&b <x>", 1, {"STS12": 0.5})
        record.timing.update(
            merged={"by": who, "bundle": "b" * 64, "campaign": name},
            started=f"2026-01-0{place + 1}T00:00:00+00:00",
        )
        add(ResultStore(tmp_path / "results", name), record)
    arguments = ("--url", "https://example.org/bench", "--title", "a <b> & c\x01\x1b[31m")
    code, _, err = make_site(tmp_path / "results", tmp_path / "site", *arguments)
    assert (code, "internal error" in err) == (1, False)
    feed = ElementTree.fromstring((tmp_path / "site/feed.xml").read_text())  # noqa: S314 - our own
    assert [e.findtext(f"{ATOM}title") for e in feed.iter(f"{ATOM}entry")] == ["two", "one"]
    assert {e.text for e in feed.iter(f"{ATOM}name")} == {who}
    assert feed.findtext(f"{ATOM}updated") == "2026-01-02T00:00:00+00:00"
    pages = ElementTree.fromstring((tmp_path / "site/sitemap.xml").read_text())  # noqa: S314
    listed = {element.text or "" for element in pages.iter() if element.tag.endswith("loc")}
    html = {path for path in contents(tmp_path / "site") if path.endswith(".html")}
    assert {address.removeprefix("https://example.org/bench/") for address in listed} == html
    assert "Sitemap: https://example.org/bench/sitemap.xml" in (tmp_path / "site/robots.txt").read_text()


def test_the_same_results_give_the_same_bytes(first: Made, tmp_path: Path) -> None:
    results, site = first
    open_site(tmp_path / "killed").put("campaigns/one/index.html", b"<p>half")
    assert counts(make_site(results, tmp_path / "killed")[1]) == [2, 0]
    shutil.copytree(results, tmp_path / "elsewhere")
    extra = small(tmp_path / "elsewhere", "extra")
    make_site(tmp_path / "elsewhere", tmp_path / "out")
    shutil.rmtree(extra.root)
    make_site(tmp_path / "elsewhere", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "killed") == contents(site)


def test_data_that_come_later_are_verified_with(
    first: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    make_site(first[0], tmp_path / "site")
    (tmp_path / "later/senteval").mkdir(parents=True)
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "later"))
    assert counts(make_site(first[0], tmp_path / "site")[1]) == [2, 0]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "later/senteval/STS12").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/file").write_text("a")
    assert counts(make_site(first[0], tmp_path / "site")[1]) == [2, 0]  # data below a link
    assert counts(make_site(first[0], tmp_path / "site")[1]) == [0, 2]


def test_names_of_pages_hide_none(tmp_path: Path) -> None:
    small(tmp_path / "results", "methods", "index", "compare")
    make_site(tmp_path / "results", tmp_path / "site")
    assert "2 methods" in read(tmp_path / "site/methods/index.html").text
    assert dead_links(tmp_path / "site") == []
    assert len(list((tmp_path / "site/methods").iterdir())) == 3
    for page, here in (("methods/compare.html", 0), ("compare.html", 1), ("methods/index.html", 1)):
        assert (tmp_path / "site" / page).read_text().count("aria-current") == here, page
