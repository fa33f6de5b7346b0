"""``bench check --history``: verdicts of builds from files, their order, limits and charts."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.gate import verdict_history
from bench.gate.history_page import draw_history_chart, render_history
from bench.gate.judge import judge
from bench.gate.verdict import AVERAGE, CellVerdict, Drop, Gate, Question, Status
from bench.gate.verdict_history import Build, CellHistory, GatePoint, History, read_history
from bench.gate.verdict_tables import format_gate_json
from bench.render.formats import FORMATS
from tests.support.campaigns import make_record
from tests.support.chromium import chromium
from tests.support.cli import Cli, refusal
from tests.support.markup import Skeleton
from tests.support.messages import missing_facts

HOSTILE = '<b>&"x"|`[y](z)\x1b[31m\x00\ud800\n::error::</title><script>'
SEEDS = (1, 2, 3)


def cell(
    then: float | None = 0.6,
    now: float = 0.598,
    status: Status = Status.OK,
    half: float | None = None,
    method: str = "short",
    **more: Any,
) -> CellVerdict:
    """A cell whose interval of the drop has this half width."""
    drops = {}
    if then is not None:
        ends = () if half is None else (then - now - half, then - now + half)
        drops = {AVERAGE: Drop(then, now, *ends)}
    key = more.pop("key", ("mini", method, "toy"))
    return CellVerdict(key, status, SEEDS, SEEDS, drops, None if half is None else "paired t", **more)


def build(date: str | None, *cells: CellVerdict, **more: Any) -> Gate:
    facts = {"bench": "0.2", "commit": "c0ffee" * 6} | ({} if date is None else {"date": date})
    return Gate(cells, 0.005, 0.95, **{"build": facts} | more)


def write(
    folder: Path, name: str, gate: Gate, change: Callable[[dict[str, Any]], object] | None = None
) -> None:
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = format_gate_json(gate)
    if change is not None:
        data = json.loads(text)
        change(data)
        text = json.dumps(data)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    """Four builds of two cells, whose names don't sort as their dates; the reference changes in the third."""
    folder = tmp_path / "verdicts"
    words: dict[str, Any] = {"method": "words", "question": Question.RECOMPUTE}
    fell, failed = (
        cell(now=0.3, status=Status.REGRESSION, half=0.2, limit=0.03),
        cell(None, status=Status.FAILED),
    )
    gates = {
        "d/verdict": build("2026-01-01T00:30:00+02:00", cell(half=0.01, sees=0.015), cell(0.2, 0.2, **words)),
        "c/verdict": build("2026-01-01T08:00:00+00:00", fell),
        "b/deep/er/verdict": build(
            "2026-01-02T08:00:00+00:00", cell(0.62, 0.621, half=0.012), overall=total()
        ),
        "a": build("2026-01-03T08:00:00+00:00", failed, overall=total()),
    }
    for name, gate in gates.items():
        write(folder, name, gate)
    return folder


def total() -> CellVerdict:
    return cell(0.5, 0.499, half=0.02, key=("", "average of 2 cells", ""), sees=0.008)


def table(out: str, title: str) -> list[list[str]]:
    """Rows of the table with this title, split at two blanks, without its header."""
    lines = out.split(f"{title}\n\n")[1].split("\n\n")[0].splitlines()
    return [re.split(r"\s{2,}", line.strip()) for line in lines[2:]]


SHORT, AVERAGES = "short on toy (profile mini)", "average over the cells"


def test_rows_are_builds_by_date(cli: Cli, builds: Path) -> None:
    code, out, err = cli("check", "--history", str(builds))
    assert (code, err) == (0, "")
    assert table(out, "Builds") == [
        ["2025-12-31 22:30", "c0ffeec0ff", "0.2", "PASSED", "2", "0", "0", "d/verdict"],
        ["2026-01-01 08:00", "c0ffeec0ff", "0.2", "FAILED", "1", "1", "0", "c/verdict"],
        ["2026-01-02 08:00", "c0ffeec0ff", "0.2", "PASSED", "1", "0", "0", "b/deep/er/verdict"],
        ["2026-01-03 08:00", "c0ffeec0ff", "0.2", "FAILED", "1", "1", "0", "a"],
    ]
    assert table(out, SHORT) == [
        ["2025-12-31 22:30", "c0ffeec0ff", "ok", "60.00", "59.80", "+0.20", "59.00", "1.50"],
        ["2026-01-01 08:00", "c0ffeec0ff", "REGRESSION", "60.00", "30.00", "+30.00", "57.00", "-"],
        ["2026-01-02 08:00", "c0ffeec0ff", "ok", "62.00*", "62.10", "-0.10", "60.80", "-"],
        ["2026-01-03 08:00", "c0ffeec0ff", "FAILED", *["-"] * 5],
    ]
    words, average = table(out, SHORT.replace("short", "words")), table(out, AVERAGES)
    assert [row[3:5] for row in words] == [["20.00", "20.00"]]
    assert [row[6:] for row in average] == [["48.00", "0.80"]] * 2
    assert out.index(AVERAGES) > out.index("words on toy")
    assert missing_facts(out, "dates (UTC)", "* The reference's", "strict") == ["strict"]


def test_without_a_date_the_order_is_that_of_names(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "verdicts"
    for number, date in ((10, "2026-01-01"), (9, "2026-01-02"), (100, None)):
        write(folder, f"build-{number}", build(date, cell(now=number / 1000)))
    out = cli("check", "--history", str(folder))[1]
    assert [row[0] for row in table(out, SHORT)] == ["build-9", "build-10", "build-100"]
    assert not missing_facts(out, "file names", "1 of 3")
    (folder / "build-100.json").unlink()
    out = cli("check", "--history", str(folder))[1]
    assert [row[0] for row in table(out, SHORT)] == ["2026-01-01 00:00", "2026-01-02 00:00"]


@pytest.mark.parametrize(
    ("half", "limit", "below"),
    [
        (None, None, 0.595),  # the tolerance alone
        (0.01, None, 0.59),
        (0.01, 0.02, 0.59),
        (0.02, 0.01, 0.59),  # the smaller of both is enough
        (None, 0.02, 0.58),
        (0.001, 0.02, 0.595),  # never less than the tolerance
    ],
)
@pytest.mark.parametrize("now", [0.1, 0.6, 0.7])
def test_the_score_below_which_the_gate_fails(
    half: float | None, limit: float | None, below: float, now: float
) -> None:
    point = GatePoint(made(), cell(now=now, half=half, limit=limit))
    assert point.below == pytest.approx(below)


def made(name: str = "x", date: datetime | None = None, **changes: Any) -> Build:
    given: dict[str, Any] = {"cells": (), **changes}
    return Build(name, date, "", "", "PASSED", 0, 0.005, False, **given)


def test_the_limit_is_where_the_gate_itself_fails() -> None:
    """The same spread over seeds about another drop: just above the limit it passes, just below it fails."""
    then = [record(value, seed) for seed, value in enumerate((0.60, 0.63, 0.57), 1)]
    moves = (0.002, -0.006, 0.004)
    for worse, status in ((0.0, Status.OK), (0.0001, Status.REGRESSION), (-0.0001, Status.UNCLEAR)):
        start = judge(then, shifted(moves, 0.0)).cells[0]
        allowed = GatePoint(made(), start).allowed_drop
        assert allowed is not None
        assert allowed > 0.005
        found = judge(then, shifted(moves, (allowed + worse) if worse else 0.0)).cells[0]
        assert found.status == status


def shifted(moves: tuple[float, ...], drop: float) -> list[Any]:
    values = np.add((0.60, 0.63, 0.57), moves) - drop
    return [record(float(value), seed) for seed, value in enumerate(values, 1)]


def record(value: float, seed: int) -> Any:
    return make_record("noise", seed, {"T1": value}, suite="toy", corpus=None)


def test_what_the_gate_writes_is_read_whole(tmp_path: Path) -> None:
    then = [record(value, seed) for seed, value in enumerate((0.60, 0.63, 0.57), 1)]
    gate = judge(then, shifted((0.01, -0.02, 0.03), 0.004))
    facts = {"date": "2026-01-01", "commit": "c", "bench": "1"}
    gate = replace(gate, overall=total(), strict=True, build=facts)
    write(tmp_path, "one", gate)
    (found,) = read_history(tmp_path).builds
    assert (found.cells, found.overall) == (gate.cells, gate.overall)
    date = datetime(2026, 1, 1, tzinfo=UTC)
    assert found == Build("one", date, "c", "1", found.sentence, 0, 0.005, True, gate.cells, gate.overall)


def test_a_verdict_of_an_older_bench_is_read(cli: Cli, tmp_path: Path) -> None:
    def aged(data: dict[str, Any]) -> None:
        for name in ("format", "build", "overall", "strict", "rescored", "verdicts"):
            del data[name]
        for one in data["cells"]:
            for name in ("question", "stage", "sees"):
                del one[name]

    fixed = replace(cell(method="fixed"), seeds=(None,), new_seeds=(None,))
    write(tmp_path, "old", build(None, cell(), fixed), aged)
    found = json.loads(cli("check", "--history", str(tmp_path), "--format", "json")[1])
    questions = {one["method"]: one["builds"][0]["question"] for one in found["cells"]}
    assert questions == {"short": "retrain", "fixed": "recompute"}
    assert found["ordered_by"] == "file name"


def test_methods_choose_the_cells(cli: Cli, builds: Path) -> None:
    out = cli("check", "--history", str(builds), "--methods", "words,average")[1]
    assert missing_facts(out, SHORT, "words on toy", "average over") == [SHORT]
    assert "'words'?" in refusal(cli, "check", "--history", str(builds), "--methods", "wrods")


def test_csv_and_json_hold_every_digit(cli: Cli, builds: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("check", "--history", str(builds), "--format", "csv")[1])))
    assert len(rows) == 7
    short = [row for row in rows if row["method"] == "short"]
    assert [row["reference"] for row in short] == ["0.6", "0.6", "0.62", ""]
    assert [float(row["drop"]) for row in short[:3]] == [0.6 - 0.598, 0.3, 0.62 - 0.621]
    assert [row["reference_changed"] for row in short] == ["False", "False", "True", "False"]
    assert float(short[1]["fails_below"]) == pytest.approx(0.57)
    assert (short[0]["sees"], short[0]["date"]) == ("0.015", "2025-12-31T22:30:00+00:00")
    data = json.loads(cli("check", "--history", str(builds), "--format", "json")[1])
    assert [one["build"] for one in data["builds"]] == ["d/verdict", "c/verdict", "b/deep/er/verdict", "a"]
    assert data["ordered_by"] == "date"
    (line,) = (one for one in data["cells"] if one["method"] == "short")
    assert [point["new"] for point in line["builds"]] == [0.598, 0.3, 0.621, None]
    assert [one["average"] for one in data["cells"]] == [False, False, True]


WRONG: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda data: data.pop("cells"), "'cells'"),
    (lambda data: data.update(cells=[3]), "'cells[0]'"),
    (lambda data: data["cells"][0].update(status="fine"), "'cells[0].status'"),
    (lambda data: data["cells"][0].update(question="why"), "'cells[0].question'"),
    (lambda data: data["cells"][0].pop("drops"), "'cells[0].drops'"),
    (lambda data: data["cells"][0]["drops"]["avg"].update(new="x"), "'cells[0].drops.avg.new'"),
    (lambda data: data["cells"][0]["drops"]["avg"].update(new=float("nan")), "NaN"),
    (lambda data: data["cells"][0]["drops"]["avg"].update(low=float("inf")), "Infinity"),
    (lambda data: data["cells"][0]["drops"]["avg"].update(reference=2), "'cells[0].drops.avg.reference'"),
    (lambda data: data["cells"][0].update(sees=-1), "'cells[0].sees'"),
    (lambda data: data.update(overall=[]), "'overall'"),
    (lambda data: data.update(exit_code=True), "'exit_code'"),
    (lambda data: data.update(tolerance=-0.1), "'tolerance'"),
    (lambda data: data.update(build={"date": 3}), "'build.date'"),
    (lambda data: data.update(build={"date": "yesterday"}), "'yesterday' is no date"),
    (lambda data: data.update(build={"date": "0001-01-01T00:00:00+23:00"}), "is no date"),
    (lambda data: data.update(format=3), "newer bench; update bench"),
]


@pytest.mark.parametrize(("change", "fact"), WRONG)
def test_a_damaged_verdict_is_one_line_that_names_it(
    cli: Cli, tmp_path: Path, change: Callable[[dict[str, Any]], object], fact: str
) -> None:
    write(tmp_path / "v", "good", build("2026-01-01", cell()))
    write(tmp_path / "v", "sub/bad", build("2026-01-01", cell()), change)
    said = refusal(cli, "check", "--history", str(tmp_path / "v"))
    assert missing_facts(said, fact, Path("sub", "bad.json"), "good") == ["good"]


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[]", "'.' is missing"),
        (b'{"cells": 1e999}', "is missing"),
        (b'{"profile": "mini", "method": "x"}', "move other files"),
    ],
)
def test_other_files_are_refused_by_name(cli: Cli, tmp_path: Path, content: bytes, fact: str) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "other.json").write_bytes(content)
    assert not missing_facts(refusal(cli, "check", "--history", str(tmp_path / "v")), fact, "other.json")


def test_files_and_folders_have_their_limits(
    cli: Cli, builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden.json").write_text("x")
    (tmp_path / "empty" / "notes.txt").write_text("x")
    assert "no verdict" in refusal(cli, "check", "--history", str(tmp_path / "empty"))
    for path in (tmp_path / "nowhere", builds / "a.json"):
        assert "no folder" in refusal(cli, "check", "--history", str(path))
    monkeypatch.setattr(verdict_history, "MOST", 3)
    assert "has 4 files" in refusal(cli, "check", "--history", str(builds))
    monkeypatch.setattr(verdict_history, "MOST", 4)
    monkeypatch.setattr(verdict_history, "LARGEST", 500)
    assert "larger than" in refusal(cli, "check", "--history", str(builds))


def line_of(*cells: CellVerdict) -> CellHistory:
    found = History(tuple(made(f"b{place}", cells=(one,)) for place, one in enumerate(cells)), by_date=False)
    (line,) = found.lines()
    return line


def drawn(*cells: CellVerdict) -> ElementTree.Element:
    return ElementTree.fromstring(draw_history_chart(line_of(*cells), 1, lambda point: point.build.file))  # noqa: S314


def marks(svg: ElementTree.Element, style: str) -> list[tuple[float, float]]:
    """Where the paths of a class begin."""
    paths = (str(each.get("d")) for each in svg if each.get("class") == style and each.tag == "path")
    found = (re.findall(r"-?[0-9.]+", path)[:2] for path in paths)
    return [(float(x), float(y)) for x, y in found]


def test_the_chart_marks_builds_and_draws_the_band() -> None:
    svg = drawn(
        cell(),
        cell(now=0.61),
        cell(now=0.59, status=Status.UNCLEAR, half=0.02),
        cell(now=0.585, status=Status.REGRESSION),
        cell(None, status=Status.MISSING),
        cell(0.62, 0.621),
    )
    passed = marks(svg, "passed")
    assert [len(marks(svg, style)) for style in ("passed", "unsure", "failed")] == [3, 1, 1]
    assert passed[0][0] < passed[1][0] < passed[2][0]
    assert passed[0][1] > passed[1][1] > passed[2][1]  # higher scores stand higher
    assert len(marks(svg, "band")) == 2  # the missing build is a gap
    (reference, later), (fails, _) = marks(svg, "reference"), marks(svg, "fails")
    assert reference[1] < passed[0][1] < fails[1]
    assert later[1] < reference[1]
    assert [each.get("class") for each in svg].count("step") == 1
    title, about = svg[0], svg[1]
    assert (title.tag, str(title.text).startswith(SHORT), about.tag) == ("title", True, "desc")
    assert not missing_facts(about.text, "6 builds", "62.10", "58.50 in b3", "Failed: b3, b4")
    assert svg.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"


def test_one_broken_build_does_not_flatten_the_chart() -> None:
    calm = [cell(now=0.6 + move) for move in (0.004, -0.004, 0.003)]
    alone, beside = drawn(*calm), drawn(*calm, cell(now=0.05, status=Status.REGRESSION))
    heights = [[y for _, y in marks(svg, "passed")] for svg in (alone, beside)]
    spread = [max(ys) - min(ys) for ys in heights]
    assert spread[1] == pytest.approx(spread[0])
    assert "5.00" in [each.text for each in beside if each.get("class") == "tick"]
    near = drawn(*calm, cell(now=0.585, status=Status.REGRESSION))
    assert "58.50" not in [each.text for each in near if each.get("class") == "tick"]
    for status in Status:  # nothing to draw at all
        drawn(cell(None, status=status))
    drawn(cell(0.0, 0.0))


def hostile(folder: Path, name: str) -> History:
    facts = {"date": "2026-01-01", "bench": name, "commit": name}
    write(folder, "one", build(None, cell(method=name, stage=name, reasons=(name,)), build=facts))
    return read_history(folder)


@pytest.mark.parametrize("form", ["text", "markdown", "html", "csv", "json"])
def test_hostile_names_are_harmless(tmp_path: Path, form: str) -> None:
    found = hostile(tmp_path, HOSTILE)
    out = render_history(found, found.lines(), form)
    assert out.replace("\n", "").isprintable()
    assert not re.search(r"(?m)^\s*::", out)
    if form == "html":
        mild = hostile(tmp_path, "mild[a=b,c=d]")
        page = render_history(mild, mild.lines(), form)
        kinds = Skeleton(out).kinds()
        assert kinds <= Skeleton(page).kinds()
        assert not {kind[0] for kind in kinds} & {"script", "link", "img", "b"}
        assert "default-src 'none'" in out
        assert "<b>&" in Skeleton(out).text
    if form == "csv":
        assert len(list(csv.DictReader(io.StringIO(out)))) == 1
    if form == "json":
        assert json.loads(out)["cells"][0]["method"] == HOSTILE
    assert form in (*FORMATS, "html")


@pytest.mark.slow
def test_the_history_in_a_browser(builds: Path, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "history.html"
    path.write_text(cli("check", "--history", str(builds), "--format", "html")[1], encoding="utf-8")
    with chromium() as browser:
        browser.show_as(400, 800, "dark")
        browser.open(path)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert browser.run("document.querySelectorAll('svg').length") == 3
        assert {address.split(":")[0] for address in browser.requests()} == {"file"}
        assert browser.complaints() == []
