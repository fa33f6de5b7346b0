"""The page from a loss to a table, followed word for word on a shortened profile."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.docs_commands import TEXTS, blocks
from tests.support.shortened import shortened

PAGE = "first-method.md"
MOST = 10  # commands that the way may take


@pytest.mark.slow
def test_the_page_word_for_word(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = next(content for language, content in blocks(TEXTS[PAGE]) if language == "sh").splitlines()
    assert len([line for line in lines if line.startswith("bench ")]) <= MOST
    said = {}
    with shortened():
        for line in lines:
            if line.startswith("cd "):
                monkeypatch.chdir(line.removeprefix("cd "))
                continue
            words, _, file = line.partition(" > ")
            words = words.replace(" --workers 2", "")  # other processes are not shortened
            code, out, err = cli(*shlex.split(words)[1:])
            assert code == 0, (line, out, err)
            said[shlex.split(words)[1]] = out
            if file:
                Path(file).write_text(out, encoding="utf-8")
    assert "A = align_uniform (seeds 1-3), B = simcse (seeds 1-3)" in said["compare"]
    assert "no difference shown" in said["compare"]
    page, table = Path("report.html").read_text(), Path("table.tex").read_text()
    assert all(title in page for title in ("Losses: mini", "Dev curves: mini"))
    assert r"SimCSE~\citep{gao2021simcse} &" in table
    assert r"align\_uniform &" in table
    assert table.index("SimCSE~") < table.index(r"align\_uniform &")
    assert r"\label{tab:main}" in table
    assert Path("local.bench.zip").stat().st_size > 10_000
    seeds = sorted(path.parent.name for path in Path("results").rglob("align_uniform/*/mini.json"))
    assert seeds == ["seed-1", "seed-2", "seed-3"]
