"""Rows, their order, names and columns; and the table that a paper prints."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.config import profiles
from bench.errors import InputError
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.registry import discover
from bench.render.formats import parse_columns, select_columns
from bench.render.grid import CAPTION, Grid, ScoreCell
from bench.render.latex import limit_deviations
from bench.render.method_names import printed_name
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import suite_figures
from bench.reports.formats.paper_latex import PaperStyle, render_paper_tables, text_width
from bench.reports.method_choice import name_methods, paper_name
from bench.reports.report import TableOptions, render_report
from bench.reports.tables.baseline_family import find_best
from bench.reports.tables.leaderboard import BOLD
from bench.reports.tables.pairwise_tests import ABOVE, BELOW
from bench.reports.tables.paper_tables import (
    MOST_WORDS,
    SUITES,
    SYNTHETIC,
    PaperTable,
    paper_tables,
)
from bench.reports.tables.row_tests import run_pairwise_tests
from tests.support.campaigns import HOSTILE, make_record
from tests.support.cli import Cli
from tests.support.messages import missing_facts
from tests.support.standings import alone, campaign, seeds

DASH = "\N{EN DASH}"
FORMS = ("text", "markdown", "csv", "json", "latex", "html")


def three(tmp_path: Path) -> Campaign:
    """TNCSE far above SimCSE, and word overlap, which has no seeds, below."""
    runs = [*seeds("simcse", 0.70, 0.71, 0.72), *seeds("tncse", 0.80, 0.81, 0.82), alone("word_overlap", 0.1)]
    return name_methods(campaign(tmp_path, *runs, baseline="simcse"), "published", ())


@pytest.fixture
def stored(tmp_path: Path) -> ResultStore:
    """The campaign ``local`` on disk, in the folder of ``cli``."""
    store = ResultStore(tmp_path / "results", "local")
    for record in (
        *seeds("simcse", 0.7, 0.72),
        *seeds("tncse[rtt=none]", 0.8, 0.82),
        *seeds("mine", 0.6, 0.61),
    ):
        store.write(record.place, record, {"STSB": np.full(10, record.seed, dtype=np.float32)})
    return store


def test_rows_and_their_order_are_those_asked_for_in_every_format(cli: Cli, stored: ResultStore) -> None:
    asked = ("report", "--methods", "simcse,tncse[rtt=none]", "--names", "published")
    for form in FORMS:
        code, out, err = cli(*asked, "--order", "given", "--format", form)
        assert code == 0, err
        body = out[out.index("<body") :] if form == "html" else out
        if form == "text":
            body = out.partition("sts7, profile")[2]
        assert not re.search(r"\bmine\b", body)
        assert body.index("SimCSE") < body.index("TNCSE")
        if form != "html":  # its filters are by registered names
            assert "simcse" not in re.sub(r"wiki1m_for_simcse|[Dd]iagram.*", "", body)
    best_first = cli(*asked, "--details")[1].partition("sts7, profile")[2]
    assert best_first.index("TNCSE") < best_first.index("SimCSE")
    assert not missing_facts(best_first, "2 of 3 methods", "--methods", "Holm over 1 ")
    assert "Holm over 3 " in cli("report", "--details")[1]
    assert "chosen" not in cli("report", "--details")[1]
    rows = list(csv.DictReader(io.StringIO(cli(*asked, "--columns", "seed,method", "--format", "csv")[1])))
    assert [list(row) for row in rows[:1]] == [["seed", "method"]]
    assert json.loads(cli(*asked, "--format", "json")[1])[0]["rows"][0]["method"] == "TNCSE, rtt=none"


def test_figures_gains_and_differences_have_the_names(tmp_path: Path) -> None:
    source = replace(three(tmp_path), given=("word_overlap", "simcse", "tncse"))
    drawn = {figure.name: figure for figure in suite_figures(source)}
    assert drawn["mini-sts7-seeds"].rows == ("Word overlap", "SimCSE", "TNCSE")
    assert drawn["mini-sts7-groups"].rows == ("TNCSE", "SimCSE", "Word overlap")  # they stand at their ranks
    assert "TNCSE 81.00" in drawn["mini-sts7-groups"].alt
    assert [one.name for one in drawn["mini-sts7-dev"].series] == ["SimCSE", "TNCSE"]
    source = campaign(tmp_path, *seeds("mhe", 0.5, 0.52), *seeds("m_mhe", 0.6, 0.63))
    source = name_methods(source, "published", ())
    assert "mMHE - MHE" in render_report(source, "text", "gains")
    assert {"mMHE", "MHE"} <= set(render_report(source, "text", "significance").split())
    (gains,) = (figure for figure in suite_figures(source) if figure.section == "gains")
    assert gains.rows == ("MHE",)


def test_a_file_names_methods_and_papers_name_the_others(cli: Cli, stored: ResultStore) -> None:
    file = Path("names.toml")
    file.write_text('mine = "Ours  $x$"\n', encoding="utf-8-sig")  # with an editor's byte order mark
    out = cli("report", "--names", "names.toml", "--format", "markdown")[1]
    assert [f"| {name} |" in out for name in ("Ours \\$x\\$", "SimCSE", "TNCSE¹")] == [True] * 3
    for text, expected in (
        ('mien = "x"', "unknown method 'mien' (did you mean 'mine'?)"),
        ("mine = 5", "no name for 'mine'"),
        ('mine = " "', "no name for 'mine'"),
        ('mine = "SimCSE"', "mine and simcse would both be called 'SimCSE'"),
        ("mine", "TOML"),
    ):
        file.write_text(text, encoding="utf-8")
        code, _, err = cli("report", "--names", "names.toml")
        assert (code, expected in err, err.count("\n")) == (2, True, 1), err
    assert not missing_facts(cli("report", "--names", "nowhere")[2], "nowhere", "'published'")


@pytest.mark.parametrize(
    ("method", "name", "options", "backbone", "expected"),
    [
        ("jtcse_uc_d", "jtcse_uc_d", {}, "bert-base-uncased", "JTCSE+UC D"),
        ("simcse[match=tncse]", "simcse", {}, "bert-base-uncased", "SimCSE, match=tncse"),
        ("mine", "simcse", {}, "bert-base-uncased", "mine"),
        ("untrained", "untrained", {"pooling": "cls"}, "roberta-base", "RoBERTa-base ([CLS])"),
        (
            *("untrained[pooling=avg_first_last]", "untrained", {"pooling": "avg_first_last"}),
            *("bert-base-uncased", "BERT-base (first-last avg.)"),
        ),
        ("whitening", "whitening", {}, "mini-bert", "mini-bert-whitening"),
        ("st:model", "st", {}, "x", "st:model"),
        ("released:x", "released", {"name": "tncse_d_bert"}, "x", "TNCSE D (BERT-base, released)"),
    ],
)
def test_names_that_papers_print(
    method: str, name: str, options: dict[str, object], backbone: str, expected: str
) -> None:
    one = make_record(method, 1, {"STSB": 0.5}, name=name, options=options, backbone=backbone)
    assert paper_name([one]) == expected


def test_every_published_name_of_a_card_is_printed() -> None:
    assert all(profiles.load_profile(name).title for name in profiles.profile_names())
    names = {name for _, method in discover() for name, _ in method.card.published_names}
    assert len(names) > 20
    assert all(printed_name(name) != name for name in names)
    assert len({printed_name(name) for name in names}) == len(names)


def test_columns_are_chosen_by_name_in_their_order() -> None:
    first = Grid("a", ("method", "STSB", "avg", "cpu s"), (("x", "1", "2", "3"),), ())
    other = Grid("b", ("method", "MR", "Avg."), (("x", "4", "5"),), ())
    found = select_columns([first, other], parse_columns("avg, STS-B,CPU s"))
    assert [grid.header for grid in found] == [("method", "avg", "STSB", "cpu s"), ("method", "Avg.")]
    assert found[0].rows == (("x", "2", "1", "3"),)
    assert select_columns([first, other], parse_columns("STSB")) == [
        Grid("a", ("method", "STSB"), (("x", "1"),), ())
    ]
    assert select_columns([first], parse_columns("method,avg"))[0].header == ("method", "avg")
    assert select_columns([first], parse_columns(None)) == [first]
    for text in ("STSB,STS-B", "avg,", ""):
        with pytest.raises(InputError, match=r"twice|without a name"):
            parse_columns(text)
    with pytest.raises(InputError, match="no column 'sts'") as error:
        select_columns([first], parse_columns("sts"))
    assert not missing_facts(error.value.expected, *first.header)


def test_columns_of_a_whole_report_and_where_there_are_none(cli: Cli, stored: ResultStore) -> None:
    def row(*arguments: str) -> list[str]:
        out = cli("report", "--columns", "avg,STS-B", *arguments)[1]
        return next(re.split(r" [|&] ", line) for line in out.splitlines() if "STS" in line)[:2]

    assert row("--format", "markdown") == ["| method", "avg"]
    assert row("--table", "sts7", "--format", "latex") == ["method", r"\multicolumn{2}{c}{Avg.}"]
    assert row("--style", "acl") == ["Model", r"\multicolumn{2}{c}{Avg.}"]
    assert "Model & seeds &" in cli("report", "--columns", "seeds,avg", "--style", "acl")[1]
    for form, hint in (("html", "switches"), ("json", "--table leaderboard")):
        assert not missing_facts(cli("report", "--columns", "avg", "--format", form)[2], "--columns", hint)


def caption(table: PaperTable) -> str:
    """The caption, whose length is limited."""
    text, omitted = table.fit_caption()
    assert len(text.split()) <= MOST_WORDS
    assert not any(sentence in text for sentence in omitted)
    return text


def test_the_caption_says_what_was_done(tmp_path: Path) -> None:
    (table,) = paper_tables(three(tmp_path))
    settings = (
        "Spearman \N{MULTIPLICATION SIGN} 100",
        SUITES["sts7"],
        profiles.load_profile("mini").title,
        "mean \N{PLUS-MINUS SIGN} SD over 3 seeds",
    )
    marks = ("Bold: may be the best", f"{ABOVE} above, {BELOW} below SimCSE", "(95% confidence)")
    assert not missing_facts(caption(table), *settings, *marks)
    assert not missing_facts(" ".join(table.remarks), BOLD, f"seeds 1{DASH}3", "95% intervals")
    assert table.grid.header == ("Model", "STS12", "STS-B", "Avg.")
    plain = replace(three(tmp_path), baseline=None)
    assert not missing_facts(caption(paper_tables(plain)[0]), "Bold: may be the best of its column (95%")
    assert "mean over 3 seeds" in caption(paper_tables(plain, sd="none")[0])
    pairs = campaign(tmp_path, *seeds("a", 0.5, 0.6, stage="s"), *seeds("b", 0.5, 0.61, 0.7, stage="s"))
    assert f"over 2{DASH}3 seeds" in caption(paper_tables(pairs)[0])
    assert f"Rows have seeds 1, 2: a; seeds 1{DASH}3: b." in paper_tables(pairs)[0].remarks
    (same,) = paper_tables(replace(pairs, baseline="a"))  # a row that is open has no dagger
    assert ABOVE not in caption(same)
    (single,) = paper_tables(campaign(tmp_path, *seeds("a", 0.5), *seeds("b", 0.6)))
    assert caption(single).endswith(f"; 1 seed. {CAPTION}")


def test_the_caption_has_the_rows_backbones_and_the_records_notes(tmp_path: Path) -> None:
    mine = make_record("mine", None, {"STSB": 0.7}, name="hf", backbone="ckpt", corpus=None)
    other = make_record("ckpt-1234", None, {"STSB": 0.6}, name="st", backbone="ckpt", corpus=None)
    (table,) = paper_tables(campaign(tmp_path, mine, other))
    assert "checkpoints as they are." in caption(table)
    assert "embedded world" not in caption(table)
    trained = make_record("simcse", 1, {"STSB": 0.7})
    (table,) = paper_tables(campaign(tmp_path, mine, other, trained))
    assert "embedded world" in caption(table)
    assert not missing_facts(" ".join(table.sentences), "other models:", "mine, ckpt-1234.")
    (table,) = paper_tables(campaign(tmp_path, trained))
    assert "heckpoints" not in caption(table)
    noted = [replace(one, notes=("Made up.",)) for one in seeds("a", 0.5, 0.6)]
    (table,) = paper_tables(campaign(tmp_path, *noted))
    assert caption(table).endswith(" Made up.")
    more = [*noted, make_record("a", 1, {"STSB": 0.5}, profile="bert-base")]
    (both,) = paper_tables(campaign(tmp_path, *more))
    assert caption(both).endswith(" embedded world: Made up.")
    own = render_paper_tables([table], PaperStyle(caption=r"My \textbf{own}"))
    assert r"\caption{My \textbf{own}}" in own
    assert "% Made up.\n" in own


def test_a_caption_has_forty_words_and_the_rest_is_a_comment(tmp_path: Path) -> None:
    long = "word " * MOST_WORDS + "end."
    noted = [replace(one, notes=(long, "Short.")) for one in seeds("a", 0.5, 0.6)]
    (table,) = paper_tables(campaign(tmp_path, *noted))
    assert caption(table).endswith(" Short.")
    assert f"% Not in the caption: {long}\n" in render_paper_tables([table], PaperStyle())
    synthetic = [replace(one, world={"seed": 1}) for one in seeds("a", 0.5, 0.6)]
    assert SYNTHETIC in caption(paper_tables(campaign(tmp_path, *synthetic))[0])


def body(text: str) -> list[list[str]]:
    """The cells of the rows below the heading."""
    lines = [line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r" \\")]
    return [line.split(" & ") for line in lines[1:]]


def test_numbers_end_and_deviations_begin_at_one_place(tmp_path: Path) -> None:
    runs = [
        *seeds("a", 0.1, 0.5),
        *seeds("b", 0.8, 0.81, 0.82),
        *seeds("c", 0.7, 0.71, 0.72),
        alone("d", 0.05),
    ]
    for baseline in (None, "c"):
        source = campaign(tmp_path, *runs, baseline=baseline)
        text = render_paper_tables(paper_tables(source, sd="all"), PaperStyle())
        assert "phantom" not in text
        assert text.count(r"r@{}l") == 3
        signs = set()
        for row in body(text):
            for number, tail in zip(row[1::2], row[2::2], strict=True):
                assert re.fullmatch(r"(\\textbf\{)?\d+\.\d\d\}?", number)
                assert re.fullmatch(r"(\{\\scriptsize\$\\pm\$\d+\.\d\d\})?(\$\^\{\\d?dagger\}\$)?", tail)
                signs.add("dagger" in tail)
        assert signs == {False, baseline is not None}


@pytest.mark.parametrize(("sd", "per_row"), [(None, 1), ("avg", 1), ("all", 3), ("none", 0)])
@pytest.mark.parametrize("asked", [("--style", "acl"), ("--table", "sts7", "--format", "latex")])
def test_deviations_stand_where_they_were_asked_for(
    cli: Cli, stored: ResultStore, asked: tuple[str, ...], sd: str | None, per_row: int
) -> None:
    code, out, err = cli("report", *asked, *(("--sd", sd) if sd else ()))
    assert code == 0, err
    rows = [line for line in out.splitlines() if line.startswith(("SimCSE &", "mine &", "TNCSE"))]
    assert len(rows) == 3
    assert [line.count(r"$\pm$") for line in rows] == [per_row] * 3


def test_a_table_without_an_average_keeps_its_deviations() -> None:
    grid = Grid("t", ("m", "x"), (("a", ScoreCell(0.5, 0.1, 2)),), ())
    assert limit_deviations(grid, "avg") == limit_deviations(grid, "all") == grid
    assert limit_deviations(grid, "none").rows == (("a", ScoreCell(0.5, None, 2)),)


def test_bold_rows_may_be_the_best(tmp_path: Path) -> None:
    runs = [
        *seeds("simcse", 0.70, 0.71, 0.72),
        *seeds("tncse", 0.80, 0.81, 0.82),
        *seeds("jtcse", 0.81, 0.79, 0.81),
    ]
    source = campaign(tmp_path, *runs)
    best = find_best(run_pairwise_tests(source, source.records), "avg")
    assert best == {"tncse", "jtcse"}
    (table,) = paper_tables(source)
    rows = body(render_paper_tables([table], PaperStyle()))
    assert {row[0] for row in rows if row[-2].startswith(r"\textbf")} == best


def test_rules_stand_between_families(tmp_path: Path) -> None:
    runs = [
        alone("word_overlap", 0.9),
        *seeds("simcse", 0.70, 0.71),
        *seeds("mine", 0.5, 0.51),
        *seeds("esimcse", 0.72, 0.73),
        *seeds("tncse", 0.80, 0.81),
        make_record("st:x", None, {"STS12": 0.95, "STSB": 0.95}, name="st", corpus=None),
        make_record("sup_simcse", 1, {"STS12": 0.99, "STSB": 0.99}, name="sup_simcse"),
    ]
    runs[-1].training["supervised"] = True

    assert families(campaign(tmp_path, *runs, all_rows=True)) == [
        [r"word\_overlap"],
        ["st:x"],
        ["esimcse", "simcse"],
        ["tncse", "mine"],
        [r"sup\_simcse"],
    ]
    order = ("mine", "simcse", "tncse")
    chosen = [run for run in runs if run.method in order]
    given = campaign(tmp_path, *chosen, given=order, named=order)
    assert families(given) == [["mine"], ["simcse"], ["tncse"]]


def families(source: Campaign) -> list[list[str]]:
    """The names between the rules of the only table."""
    (table,) = paper_tables(source)
    text = render_paper_tables([table], PaperStyle())
    return [[row[0] for row in body("x \\\\\n" + part)] for part in text.split(r"\midrule")[1:]]


def test_fifteen_rows_of_seven_tasks_fit_one_column(tmp_path: Path) -> None:
    tasks = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
    methods = (
        *("untrained", "word_overlap", "simcse", "esimcse", "diffcse", "promptbert", "infocse", "mixcse"),
        *("arccon", "pcl", "tncse", "tncse_uc", "jtcse", "jtcse_uc", "met"),
    )
    runs, backbone = [], "all-MiniLM-L6-v2-lm"
    for place, method in enumerate(methods):
        for seed in (1, 2, 3):
            scores = {task: 0.6 + place / 100 + seed / 300 for task in tasks}
            runs.append(make_record(method, seed, scores, profile="minilm-lm", backbone=backbone))
    source = name_methods(campaign(tmp_path, *runs, baseline="simcse"), "published", ())
    (table,) = paper_tables(source)
    text = render_paper_tables([table], PaperStyle("acl"))
    assert r"\begin{table}[t]" in text
    assert r"\centering\scriptsize" in text  # 8 of 11 points
    assert "S12--16, SB, SR: STS12--16, STS-B, SICK-R. Bold" in text
    (printed,) = re.findall(r"\\caption\{(.*)\}", text)
    assert len(printed.split()) <= MOST_WORDS
    assert "Untrained ({[}CLS{]})" in text
    assert len(body(text)) == 15
    for row in body(text):
        numbers = [re.sub(r"[^\d.]", "", cell) for cell in row[1:-1]]
        assert [len(number.partition(".")[2]) for number in numbers] == [1] * 7 + [2]
    assert r"\begin{table*}" in render_paper_tables(paper_tables(source, sd="all"), PaperStyle("acl"))


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("SimCSE", 3446),
        ("TNCSE+UC", 5120),
        ("73.31", 2250),
        ("-0.07", 2083),
        ("(avg.)", 2360),
        ("WMlj", 2389),
    ],
)
def test_widths_are_those_of_times(text: str, thousandths: int) -> None:
    """By the metrics of Adobe's Times-Roman."""
    assert round(1000 * text_width(text)) == thousandths


def test_styles_labels_citations_and_documents(tmp_path: Path) -> None:
    table = paper_tables(three(tmp_path), ("STSB", "avg"))
    acl = render_paper_tables(table, PaperStyle("acl", None, "tab:main", {"simcse": "gao2021"}))
    assert r"SimCSE~\citep{gao2021} &" in acl
    assert acl.index(r"\end{tabular}") < acl.index(r"\caption{") < acl.index(r"\label{tab:main}")
    assert r"\begin{table}[t]" in acl  # it fits into one column of the page
    booktabs = render_paper_tables(table, PaperStyle("booktabs", None, "", {"simcse": "gao2021"}))
    assert r"SimCSE~\cite{gao2021} &" in booktabs
    assert booktabs.index(r"\caption{") < booktabs.index(r"\begin{tabular}")
    assert r"\label" not in booktabs
    scores = dict.fromkeys((f"T{n}" for n in range(17)), 0.5)
    wide = make_campaign(ResultStore(tmp_path, "c"), [make_record("simcse", 1, scores)])
    assert r"\begin{table*}" in render_paper_tables(paper_tables(wide), PaperStyle("acl"))
    runs = [make_record("a", 1, {"MR": 0.5}, suite=suite) for suite in ("sts7", "transfer7")]
    found = paper_tables(campaign(tmp_path, *runs))
    assert render_paper_tables(found, PaperStyle()).count(r"\caption{") == 2
    for style in (PaperStyle(label="x"), PaperStyle(caption="x")):
        with pytest.raises(InputError, match="2 tables, of sts7, transfer7"):
            render_paper_tables(found, style)
    whole = render_report(
        three(tmp_path), "latex", look=TableOptions(style=PaperStyle("acl")), standalone=True
    )
    assert r"\usepackage{booktabs,graphicx,natbib}" in whole
    assert whole.endswith("\\end{document}\n")


def test_a_block_a_profile(tmp_path: Path) -> None:
    runs = [
        make_record("simcse", n, {"STSB": 0.7 + n / 100}, profile=p)
        for n in (1, 2)
        for p in ("bert-base", "x")
    ]
    (table,) = paper_tables(campaign(tmp_path, *runs))
    assert table.grid.groups == ((0, "BERT-base"), (1, "bert-base-uncased"))
    text = render_paper_tables([table], PaperStyle())
    assert text.count(r"\midrule") == 4
    assert r"\multicolumn{4}{@{}c@{}}{\textit{BERT-base}} \\" in text


def test_each_block_has_its_own_seeds(tmp_path: Path) -> None:
    def block(profile: str, last: int) -> list[RunRecord]:
        return [
            make_record("simcse", n, {"STSB": 0.7 + n / 100}, profile=profile) for n in range(1, last + 1)
        ]

    def seed_line(*blocks: tuple[str, int]) -> str:
        records = [one for name, last in blocks for one in block(name, last)]
        (table,) = paper_tables(campaign(tmp_path, *records))
        return " ".join(remark for remark in table.remarks if "Rows have" in remark)

    lines = seed_line(("minilm", 3), ("minilm-lm", 5))
    assert lines == f"MiniLM: Rows have seeds 1{DASH}3. MiniLM-LM: Rows have seeds 1{DASH}5."
    assert seed_line(("minilm", 3), ("minilm-lm", 3)) == f"Rows have seeds 1{DASH}3."
    assert "MiniLM (minilm): Rows" in seed_line(("minilm", 3), ("minilm-mlm", 2))
    (table,) = paper_tables(campaign(tmp_path, *block("minilm", 3), *block("minilm-mlm", 2)))
    assert table.grid.groups == ((0, "MiniLM (minilm)"), (1, "MiniLM (minilm-mlm)"))


def test_methods_are_counted_where_they_are(cli: Cli, stored: ResultStore) -> None:
    for record in (
        make_record("simcse", 1, {"MR": 0.8}, suite="transfer7", metric="accuracy"),
        make_record("other", 1, {"MR": 0.7}, suite="transfer7", metric="accuracy"),
        make_record("another", 1, {"MR": 0.7}, suite="transfer7", metric="accuracy"),
        make_record("simcse", 1, {"STSB": 0.7}, profile="x"),
    ):
        stored.write(record.place, record, {})
    code, out, err = cli("report", "--methods", "simcse", "--format", "markdown")
    assert code == 0, err
    assert out.count("chosen by --methods") == out.count("1 of 3 methods") == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--label a}b", "'a}b' is no key"),
        ("--cite simcse=a,b}", "'b}' names no key"),
        ("--cite simcse=a}", "'a}' is no key"),
        ("--cite simsce=a", "unknown method 'simsce' (did you mean 'simcse'?)"),
        ("--cite simcse=a,simcse=b", "'simcse' is cited twice"),
        ("--style acl --format markdown", "--style is for LaTeX"),
        ("--cite simcse=a --format text", "--cite is for LaTeX"),
        ("--style acl --table sts7", "--style is for the leaderboard"),
        ("--methods simcse,simsce", "unknown method 'simsce' (did you mean 'simcse'?)"),
        ("--methods simcse,simcse", "'simcse' is listed twice"),
        ("--methods mine --baseline simcse", "unknown method 'simcse'"),
        ("--order given", "no methods are given"),
        ("--sd none", "--sd is for LaTeX"),
        ("--sd all --format html", "--sd is for LaTeX"),
        ("--sd some --format latex", "'some' is not one of 'avg', 'all', 'none'"),
        ("--columns avg,x", "no column 'x'"),
    ],
)
def test_what_cannot_be_is_one_line(cli: Cli, stored: ResultStore, options: str, expected: str) -> None:
    code, out, err = cli("report", *options.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert expected in err


def test_hostile_names_are_inert_in_a_paper() -> None:
    grid = Grid("x", ("Model", "T"), tuple((name, "1") for name in HOSTILE), ())
    text = render_paper_tables(
        [PaperTable("x", grid, HOSTILE, HOSTILE, ("a\nb\x1b",), (1,))], PaperStyle(cites={HOSTILE[0]: "k"})
    )
    assert r"\input{" not in text
    assert "% a\\nb\\x1b\n" in text
    assert text.replace("\n", "").isprintable()
