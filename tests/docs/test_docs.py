"""README and docs: their commands exist and run, their figures are the records', their pages are whole."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import claims
import click
import command_page
import generate
import page_tables as tables
import pytest
import refresh

import bench
from bench.cli.main import cli as group
from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.sweeps import SWEEPS
from bench.errors import InputError
from bench.method_card import MethodCard
from bench.records.record import RunRecord, Score
from bench.records.store import ResultStore
from bench.registry import discover
from bench.render.grid import SCALE
from tests.support import docs_commands as docs
from tests.support.chromium import chromium
from tests.support.cli import every_option
from tests.support.messages import missing_facts
from tests.support.site import call


def rows_of(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def made(what: str) -> list[list[str]]:
    return rows_of(tables.filled(marked(what)))


def marked(what: str) -> str:
    return f"<!-- {what} -->\n<!-- /{what.partition(':')[0]} -->\n"


def shown() -> list[Any]:
    """Command and quoted lines of every output in a page; those that draw items take long."""
    fast = ("--seeds-only", "--dry-run", "bench report")
    found = []
    for page, text in docs.TEXTS.items():
        for number, (command, quoted) in enumerate(docs.SHOWN.findall(text)):
            marks = () if any(word in command for word in fast) else pytest.mark.long
            found.append(pytest.param(page, command, quoted, marks=marks, id=f"{page}-{number}"))
    return found


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the committed records as a clone has them: no draws of the items are stored."""
    folder, ignored = tmp_path_factory.mktemp("clone"), shutil.ignore_patterns("stats", "local", ".*")
    shutil.copytree(docs.ROOT / "results", folder / "results", ignore=ignored)
    return folder


def test_names_in_the_text_exist() -> None:
    named = {span for text in docs.TEXTS.values() for span in docs.spans(text)}
    known = {"--help", "--help-all", "--version", "--debug", "--depth"}  # the last one is git's
    known |= {name for option in every_option() for name in option.opts}
    own = [span for span in named if not span.startswith("python -m ")]  # no scripts
    assert {word.split("=")[0] for span in own for word in span.split() if word.startswith("--")} <= known
    methods = [span for span in named if re.fullmatch(r"[a-z_]+\[[^ ]+\]", span)]
    methods = [span for span in methods if not re.search(r"METHOD|\.\.\.|st:", span)]
    for request in (request for span in methods for request in parse_methods(span)):
        docs.check_method(request)
    assert len(methods) > 8
    name = re.compile(r"--profile (?!\S*\.toml)([a-z](?:[\w.-]*\w)?)")
    found = {word for text in docs.TEXTS.values() for word in name.findall(text)}
    assert {"minilm", "bert-base"} <= found <= set(profiles.profile_names())
    assert set(SWEEPS) <= set(docs.spans(docs.TEXTS["sweeps.md"]))


@cache
def output_of(command: str) -> str:
    """What a command prints on the committed records, below the present folder."""
    code, out, _ = call(*shlex.split(command)[1:])
    assert code == 0, command
    return out


def test_commands_are_found() -> None:
    found = [command for page in docs.PAGES for command in docs.commands(page)]
    assert len([command for command in found if command.in_block]) > 60
    assert {command.words[1] for command in found} >= set(group.commands)
    text = "```sh\nbench run \\\n    --methods simcse  # why\n```\nSee `bench\nlist methods`.\n"
    block, span = (c.words for c in docs.commands(Path("x.md"), text))
    assert (block, span) == (["bench", "run", "--methods", "simcse"], ["bench", "list", "methods"])


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda page: page.name)
def test_every_command_parses_and_names_what_exists(page: Path) -> None:
    for command in docs.commands(page):
        try:
            named = docs.parsed(command.words, whole=command.in_block)
            if page.name not in docs.OWN_TEST:
                docs.check_names(*named)
        except Exception as error:
            raise AssertionError(f"{command}: {error}") from error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("bench run --methods simcse --sets x.y=1", click.NoSuchOption),
        ("bench run --seeds 1", click.MissingParameter),
        ("bench runs simcse", KeyError),
        ("bench run --methods simces", InputError),
        ("bench run --methods simcse[batchsize=3]", InputError),
        ("bench run --methods ensemble:simcse+tncs", InputError),
        ("bench run --methods simcse --suite sts8", InputError),
        ("bench run --methods simcse --profile minilmm", InputError),
        ("bench run --methods simcse --set tncse.sub3.lr=1", InputError),
        ("bench sweep cael", InputError),
    ],
)
def test_a_wrong_command_is_seen(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        docs.check_names(*docs.parsed(docs.Command(Path("x.md"), text, True).words))


def test_every_method_has_a_page_with_equations_options_and_defaults() -> None:
    cards: list[MethodCard] = [method.card for method in generate.own_methods()]
    pages = generate.method_pages()
    assert len(pages) == len(cards) + 1 > 40
    for card in cards:
        page = pages[f"methods/{card.name}.md"]
        assert f"[`{card.name}`]({card.name}.md)" in pages["methods/index.md"]
        assert all(line in page for line in card.equations)
        assert page.count("\n| `") == len(card.options), card.name
        assert all(f"| `{option.name}` |" in page for option in card.options)
        assert card.deviations == () or "## Differences" in page
    for name in ("simcse", "whitening", "untrained", "tncse_d", "jtcse", "esimcse", "infonce", "m_mhe"):
        assert pages[f"methods/{name}.md"].split("## Published scores")[1].startswith("\n\nsts7"), name
    page = pages["methods/simcse.md"]
    same, bare = ("bert-base", "deberta-v3-base", "modernbert-base"), ("cased", "minilm-mlm")
    others = [name for name in profiles.profile_names() if name not in (*same, *bare)]
    (head,) = (row for row in rows_of(page) if row[:2] == ["option", "default"])
    (rate,) = (row for row in rows_of(page) if row[0] == "`lr`")
    assert head[2:-1] == [f"`{name}`" for name in others]
    assert (rate[1], rate[head.index("`mini`")]) == ("`3e-05`", "`0.0001`")
    assert missing_facts(page, "in `bert-base`, `deberta-v3-base`, `modernbert-base`") == []
    assert "76.25" in page.split("## Published scores")[1]
    for name, text in {**docs.TEXTS, **pages, "mkdocs.yml": (docs.ROOT / "mkdocs.yml").read_text()}.items():
        assert not re.search(r"(?<![\w.])/(work|tmp|home|root|opt|usr|mnt|Users)\b", text), name
        assert not re.search(r"index-url|pypi\.|localhost|127\.0\.0\.1", text), name


def test_every_command_is_on_the_page_of_commands_with_all_its_options() -> None:
    page = command_page.command_page()
    parts = {part.partition("\n")[0]: part for part in page.split("\n### ")[1:]}
    named = {f"bench {name}": command for name, command in group.commands.items()}
    for path, command in list(named.items()):
        below = command.commands if isinstance(command, click.Group) else {}
        named |= {f"{path} {name}": inner for name, inner in below.items()}
    assert parts.keys() == named.keys()
    for path, command in named.items():
        options = {option.opts[0] for option in command.params if isinstance(option, click.Option)}
        assert set(re.findall(r"^\| `(--?[a-z][\w-]*)", parts[path], re.M)) == options, path
    assert re.findall(r"^\| ([^`-].*?) \|", parts["bench run"], re.M)[:2] == ["Options", "Data and models"]


TABLED = [
    pytest.param(name, marks=pytest.mark.long if name in ("results.md", "campaign.md") else ())
    for name, text in docs.TEXTS.items()
    if "\n<!-- /" in text
]


@pytest.mark.slow
@pytest.mark.campaigns
@pytest.mark.parametrize("page", TABLED)
def test_tables_are_those_of_program_and_records(page: str) -> None:
    assert tables.filled(docs.TEXTS[page]) == docs.TEXTS[page], f"run: python docs/refresh.py docs/{page}"


def test_every_mark_has_its_end() -> None:
    with_end = {*tables.TABLES, "speed-table"}
    for name, text in docs.TEXTS.items():
        opened = ""
        for mark in re.findall(r"^<!-- (.*?)\s*-->$", text, re.M | re.S):
            kind = mark.partition(":")[0]
            assert kind == f"/{opened}" if opened else kind in with_end | {"shows", "costs"}, (
                f"{name}: {mark}"
            )
            opened = kind if kind in with_end else ""
        assert not opened, name


@pytest.mark.campaigns
def test_a_table_comes_between_its_marks() -> None:
    page = tables.filled(f"a\n{marked('leaderboard: mini')}b\n{marked('cost')}c\n")
    rows = [row[:3] for row in rows_of(page)]
    assert ["tncse", "5", "63.69±0.68"] in rows
    assert ["`simcse`", "1.0", "125"] in rows
    assert tables.filled(page) == page
    assert [line for line in page.splitlines() if len(line) == 1] == ["a", "b", "c"]
    with pytest.raises(SystemExit, match="no leaderboard of nothing"):
        tables.leaderboard("nothing")


def test_plots_are_drawn_from_records(monkeypatch: pytest.MonkeyPatch) -> None:
    plot = generate.drawn("<!-- costs: mini -->")
    assert plot.startswith('<figure class="plot"><svg viewBox=')
    assert "<title>SimCSE: " in plot
    monkeypatch.setattr(generate, "suite_figures", lambda campaign: [])
    with pytest.raises(SystemExit, match="no costs of mini"):
        generate.drawn("<!-- costs: mini -->")


@pytest.mark.slow
@pytest.mark.campaigns
@pytest.mark.parametrize(("page", "command", "quoted"), shown())
def test_quoted_output_is_what_the_command_prints(
    page: str, command: str, quoted: str, monkeypatch: pytest.MonkeyPatch, clone: Path
) -> None:
    monkeypatch.chdir(clone)
    assert quoted.rstrip() in output_of(command), page


REPORTS: list[Any] = [(name, "markdown", "md") for name in ("mini", "minilm", "views")]
REPORTS += [
    pytest.param("minilm-lm", form, suffix, marks=pytest.mark.long)
    for form, suffix in (("markdown", "md"), ("latex --standalone", "tex"))
]
REPORTS.append(pytest.param("minilm-lm-h100", "html", "html", marks=pytest.mark.long))


@pytest.mark.slow
@pytest.mark.parametrize(("campaign", "form", "suffix"), REPORTS)
def test_committed_reports_are_what_the_command_prints(
    campaign: str, form: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(docs.ROOT)
    kept = (docs.ROOT / "results" / campaign / f"report.{suffix}").read_text(encoding="utf-8")
    assert output_of(f"bench report --campaign {campaign} --format {form}") == kept


@pytest.mark.slow
def test_the_readmes_picture_is_what_the_program_draws() -> None:
    drawn = refresh.draw_forest(docs.ROOT / "results")
    assert drawn == (docs.ROOT / "docs" / refresh.PICTURE).read_text(encoding="utf-8")


def test_the_committed_report_of_items_is_what_its_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(docs.ROOT)
    text = docs.TEXTS["reproduce.md"].replace("\\\n", "")
    (command,) = re.findall(r"^bench reproduce .*--show .*(?= > results/reproduce/report.md)", text, re.M)
    kept = (docs.ROOT / "results/reproduce/report.md").read_text(encoding="utf-8")
    assert output_of(command) == kept


@pytest.mark.campaigns
@pytest.mark.parametrize(
    ("campaign", "method", "printed"),
    [
        ("mini-equal", "untrained[pooling=mask]", "80.91"),
        ("mini-equal", "promptbert", "83.54"),
        ("mini-equal", "m_barlow", "50.97"),
    ],
)
def test_averages_in_the_text_are_the_records(campaign: str, method: str, printed: str) -> None:
    records = ResultStore(docs.ROOT / "results", campaign).records()
    records = [r for r in records if r.method == method and not r.suite.startswith("transfer")]
    values = [value for r in records if (value := r.score("avg")) is not None]
    assert f"{SCALE * sum(values) / len(values):.2f}" == printed
    assert printed in docs.TEXTS["results.md"]


@pytest.mark.campaigns
@pytest.mark.parametrize("campaign", ["mini-equal", "minilm-lm"])
def test_forty_five_unsupervised_methods_have_a_row(campaign: str) -> None:
    registry = discover()
    own = {name for name, method in registry if method.card.kind not in ("supervised", "external")}
    assert len(own & {record.name for record in ResultStore(docs.ROOT / "results", campaign).records()}) > 45


@pytest.mark.parametrize(("method", "low", "high"), [("simcse", "38.4", "65.4"), ("esimcse", "-3.0", "60.1")])
def test_what_a_rate_does_is_what_was_tuned(method: str, low: str, high: str) -> None:
    (row,) = (row for row in profiles.load_profile("mini-equal").tuning if row["method"] == method)
    dev = dict(row["dev"])
    assert [f"{SCALE * dev[rate]:.1f}" for rate in (1e-4, 3e-4)] == [low, high]
    assert missing_facts(docs.TEXTS["results.md"].split("### What a rate does")[1], low, high) == []


@pytest.mark.parametrize("loss", ["mhe", "barlow", "vicreg"])
def test_what_a_ratio_does_is_what_was_tuned(loss: str) -> None:
    dev = {(r["method"], r["option"]): dict(r["dev"]) for r in profiles.load_profile("mini-equal").tuning}
    ratios = dev[f"m_{loss}", "ratio"]
    assert ratios[1.5] < 0.05
    assert max(ratios.values()) > max(dev[loss, "lr"].values())


@pytest.mark.campaigns
def test_variants_have_the_options_that_were_tuned_for_them() -> None:
    records = ResultStore(docs.ROOT / "results", "mini-equal").records()
    grids = [row for row in profiles.load_profile("mini-equal").tuning if "[form=paper]" in row["method"]]
    for row in grids:
        best = max(row["dev"], key=lambda pair: pair[1])[0]
        name = row["method"].partition("[")[0]
        found = {r.options[row["option"]] for r in records if r.name == name and r.options["form"] == "paper"}
        assert found == {best}, row["method"]
    assert len(grids) == 8


@pytest.mark.campaigns
def test_leads_and_spreads_of_the_twins_in_the_text_are_the_records() -> None:
    store, plain = ResultStore(docs.ROOT / "results", "minilm-lm"), "tncse[icnce=False,ictn=False,nce=False]"
    of: dict[str, dict[int, float]] = {}
    for record in store.records():
        if record.seed is not None and record.suite == "sts7":
            of.setdefault(record.method, {})[record.seed] = SCALE * (record.score("avg") or 0)
    text = " ".join(docs.TEXTS["results.md"].split())

    def among(first: str, second: str) -> list[float]:
        return sorted(score - of[second][seed] for seed, score in of[first].items())

    longer = f"{plain[:-1]},sub1.steps=120,sub2.steps=120]"
    part = among(longer, plain)
    whole = [of["tncse"][seed] - of[plain][seed] for seed in of[longer]]
    leads, behind = among("tncse", plain), among("tncse", "jtcse")
    matched = among("simcse[match=tncse]", "jtcse")
    assert len(part) == len(leads) == len(behind) == len(matched) == 8
    assert behind[0] > 0
    single, two = (
        sorted(round(stdev(of[name].values()), 1) for name in names)
        for names in (
            ("simcse", "simcse[match=tncse]", "simcse[steps=280]"),
            ("tncse", "jtcse", plain, longer),
        )
    )
    assert two[0] == two[-1]
    facts = (
        f"{fmean(part):.1f} of the {fmean(whole):.1f} points",
        f"by {leads[0]:.1f} to {leads[-1]:.1f} points",
        f"by {fmean(behind):.1f} points on average",
        f"by {matched[0]:.1f} to {matched[-1]:.1f} points",
        f"by {single[0]} to {single[-1]} over seeds",
        f"ensembles of two by {two[0]}.",
    )
    assert missing_facts(text, *facts) == []


def test_a_quote_is_made_anew_only_where_it_no_longer_holds() -> None:
    old = "a 1\nb 2\n"
    assert refresh.quoted(f"{old}\na 3\nb 4\n", old) == old  # not on to the last like b 2
    assert refresh.quoted("a 5\nb 2\n", old) == old.replace("1", "5")


@pytest.mark.campaigns
def test_questions_are_answered_together(monkeypatch: pytest.MonkeyPatch, clone: Path) -> None:
    monkeypatch.chdir(clone)
    asked = "questions: mini\njtcse vs tncse: Better?\ntncse_d vs tncse: Is the student?\n"
    _, _, first, second = made(asked)
    assert first[:5] == ["Better?", "`jtcse` - `tncse`", "5 pairs", "4 of 5", "+0.13"]
    assert second[:5] == ["Is the student?", "`tncse_d` - `tncse`", "5 pairs", "5 of 5", "+3.28"]
    assert ("equal" in first[-1], "0.5" in first[-1], second[-1]) == (True, True, "yes")
    alone = output_of("bench compare tncse_d tncse --campaign mini --seeds-only --details").split("p = ")[1]
    assert float(second[6]) == pytest.approx(2 * float(alone[:6]), abs=2e-4)  # Holm's, of two
    asked = (
        "questions: mini-equal\n"
        "tncse vs tncse[icnce=False,ictn=False,nce=False]: Better?\nesimcse vs simcse: Better?\n"
    )
    _, _, equal, open_ = made(asked)
    assert missing_facts(equal[-1], "no, ", "second is ahead", "0.5") == []
    assert open_[-1] == "not shown"
    unpaired = made("questions: mini\nsimcse vs untrained: Does it learn?\n")[-1]
    assert unpaired[2:4] == ["3 and 1", ""]  # no pairs to be ahead in
    with pytest.raises(ValueError, match="'jtcse tncse' is no question"):
        made("questions: mini\njtcse tncse\n")


def test_claims_are_held_against_the_records_together(monkeypatch: pytest.MonkeyPatch, clone: Path) -> None:
    monkeypatch.chdir(clone)
    rows = made("claims: mini")[2:]
    (row,) = (row for row in rows if row[0] == "`tncse`")
    assert row[1:3] == ["+3.33", "-0.24"]  # 79.58 and 76.25 are printed
    assert row[-1] == "contradicted"
    command = "bench compare tncse simcse --campaign mini --seeds-only --claim 3.33"
    together = f"{command} --level {1 - 0.05 / len(rows):.6f}"
    (said,) = (line for line in output_of(together).splitlines() if "contradict a lead" in line)
    assert f"at most {row[5]} points" in said
    leads = [float(row[1]) for row in rows]
    assert leads == sorted(leads, reverse=True)
    assert min(leads) > 0


def test_a_method_of_one_seed_has_no_claim(tmp_path: Path) -> None:
    shutil.copytree(docs.ROOT / "results" / "mini", tmp_path / "mini", ignore=shutil.ignore_patterns("stats"))
    for seed in range(2, 6):
        shutil.rmtree(tmp_path / "mini" / "mini" / "tncse" / f"seed-{seed}")
    left = claims.table(tmp_path, "mini")
    assert ("| `tncse` |" in left, "| `jtcse` |" in left) == (False, True)


def test_the_steps_of_language_modelling_are_those_of_the_records() -> None:
    table = {row[0]: row[1:] for row in made("mlm steps")}
    assert table["0"] == ["79.73", "86.72", "83.48 and 83.88"]
    assert table["360"] == ["72.45", "63.42", "78.54 and 79.21"]
    (simcse,) = (row for row in made("rates: minilm-lm") if row[:2] == ["`simcse`", "`lr`"])
    assert "77.34,79.10,**81.44**,81.30" in ",".join(simcse)


@pytest.mark.parametrize(
    ("campaign", "first", "second", "printed"),
    [
        ("mini", "tncse", "tncse[icnce=False,ictn=False,nce=False]", "-0.13 [-0.29, +0.03]"),
        ("mini", "jtcse", "tncse[icnce=False,ictn=False,nce=False]", "-0.00 [-0.13, +0.12]"),
        ("mini", "tncse_d", "tncse", "+3.28 [+2.08, +4.48]"),
    ],
)
def test_differences_in_the_text_are_the_records(
    campaign: str, first: str, second: str, printed: str, monkeypatch: pytest.MonkeyPatch, clone: Path
) -> None:
    monkeypatch.chdir(clone)
    command = f'bench compare "{first}" "{second}" --campaign {campaign} --seeds-only'
    difference, interval = printed.split(" ", 1)
    assert f"  {difference} {interval}  " in output_of(command)
    assert printed in " ".join(docs.TEXTS["results.md"].split())


def test_records_page_has_every_field() -> None:
    text = docs.TEXTS["records.md"]
    fields, scores = text.split("## Fields")[1].split("### scores")
    named = re.findall(r"^\| `(\w+)` \|", fields, re.M)
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(RunRecord))
    named = re.findall(r"^\| `(\w+)` \|", scores.split("### training")[0], re.M)
    assert named == [field.name for field in dataclasses.fields(Score)]


def test_python_examples_print_what_stands_below_them() -> None:
    example = re.compile(r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", re.S)
    pairs = [pair for text in docs.TEXTS.values() for pair in example.findall(text)]
    for code, printed in pairs:
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            exec(compile(code, "docs", "exec"), {})  # noqa: S102 - our own page
        assert stdout.getvalue() == printed
    assert len(pairs) == 2


def test_docs_say_the_version_and_the_extras() -> None:
    config = tomllib.loads((docs.ROOT / "pyproject.toml").read_text())["project"]
    assert f"version: {config['version']}\n" in (docs.ROOT / "CITATION.cff").read_text()
    assert config["version"] == bench.__version__
    assert f"version, {bench.__version__}" in (docs.ROOT / "CHANGELOG.md").read_text()
    named = {extra for text in docs.TEXTS.values() for extra in re.findall(r"cse-bench\[(\w+)\]", text)}
    assert named <= set(config["optional-dependencies"])


@pytest.mark.long
@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=docs.ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(script|link|img|iframe)[^>]+(src|href)="(https?:)?//', text), page
        assert "<!-- costs" not in text  # drawn
    look_up(tmp_path / "site")


def look_up(site: Path) -> None:
    """The search works from a folder, no table breaks a word, and nothing is asked of another machine."""
    found = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.pathname)"
    with chromium() as page:
        page.show_as(1280, 900)
        page.open(site / "index.html")
        box = "document.querySelector('[data-md-component=search-query]')"
        page.run(f"{box}.focus(); {box}.value = 'whitening'; {box}.dispatchEvent(new Event('keyup'))")
        page.run(
            "new Promise(done => { const look = () => document.querySelector('.md-search-result__link')"
            " ? done() : setTimeout(look, 100); look(); setTimeout(done, 20000) })"
        )
        assert any(path.endswith("/methods/whitening.html") for path in page.run(found))
        page.open(site / "methods" / "tncse.html")
        words = "[...document.querySelectorAll('article table code')].filter(c => !/\\s/.test(c.textContent))"
        broken = f"{words}.filter(c => c.getClientRects().length > 1).length"
        assert (page.run(f"{words}.length") > 20, page.run(broken)) == (True, 0)
        assert {address.split(":")[0] for address in page.requests()} <= {"file", "data"}


def test_commands_that_are_not_run_are_few_and_said_why() -> None:
    found = [command for page in docs.PAGES for command in docs.commands(page)]
    for pattern, _ in docs.NOT_RUN:
        assert any(re.search(pattern, command.text) for command in found), pattern
    found = [command for command in found if command.page.name not in docs.OWN_TEST and command.in_block]
    left = [command for command in found if docs.why_not_run(command) is not None]
    assert len(left) <= 44
