"""The notebook of the docs runs from its first cell to its last, in a kernel of its own."""

from __future__ import annotations

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

import bench
from tests.support.house import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
SHORTEN = """
import sys
sys.path.insert(0, {root!r})
from tests.support.shortened import shortened
_short = shortened()
_short.__enter__()
"""


@pytest.mark.long
@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_WORKERS", "1")  # in the kernel, where the profile is cut short
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    first = nbformat.v4.new_code_cell(SHORTEN.format(root=str(ROOT)))  # type: ignore[no-untyped-call]
    book.cells.insert(0, first)
    client = nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"][1:]
    assert len(cells) == 10
    shown = [{kind for output in cell.outputs for kind in output.get("data", {})} for cell in cells]
    assert sum("text/html" in kinds for kinds in shown) >= 6
    kinds = [[output.output_type for output in cell.outputs] for cell in cells]
    assert [each for each in kinds if each not in ([], ["execute_result"])] == []  # nothing is printed
    results = bench.results(tmp_path / "results" / "local")
    assert results.missing == 0
    assert {record.name for record in results.records} == {"align_uniform", "simcse", "untrained"}
    drawing = next(
        output.data["text/html"]
        for output in cells[8].outputs
        if "forest" in cells[8].source and "text/html" in output.data
    )
    assert "data:image/svg+xml;base64," in drawing


def test_the_committed_notebook_shows_what_it_printed() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    book = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(book)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert sum(bool(cell.outputs) for cell in cells) == 8  # all but the two that define classes
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    assert not re.search(r"/(home|root|tmp|work)/", text)
    assert len(text) < 400_000
