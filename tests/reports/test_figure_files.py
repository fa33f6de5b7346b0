"""Figures as files: the SVG of the page with its title, its legend and its doubts, as PDF and PNG too."""

from __future__ import annotations

import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.errors import InputError
from bench.render import svg
from bench.render.figure import SCORES, Figure, Series
from bench.render.figure_files import draw_figures, draw_heatmaps, draw_picture, picture_style

DOUBT = f"{SCORES}2 records were not recomputed"
LINES = (Series("first", (0.0, 1.0), (1.0, 2.0)), Series("second", (0.0, 1.0), (2.0, 1.0)))


def picture(**fields: object) -> Figure:
    facts: dict[str, object] = {"provenance": ("campaign: x", DOUBT), "series": LINES} | fields
    return Figure("f", "curves", "A title", "lines", "step", "score", **facts)  # type: ignore[arg-type]


def texts(drawing: str) -> list[str]:
    return [str(element.text) for element in ElementTree.fromstring(drawing).iter() if element.text]  # noqa: S314


def test_a_file_has_the_drawing_of_the_page_in_its_colours() -> None:
    drawing = draw_picture(picture())
    assert "".join(svg.draw_body(picture())[0]) in drawing
    assert "var(" not in drawing
    assert ".c1 { color: #c04e00; }" in picture_style()
    root = ElementTree.fromstring(drawing)  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"


def test_a_file_has_title_legend_and_doubts() -> None:
    found = texts(draw_picture(picture()))
    assert found.count("A title") == 2  # drawn, and as the SVG's own
    assert found[-2:] == ["first", "second"]
    assert DOUBT in found
    assert "campaign: x" not in found
    assert DOUBT not in texts(draw_picture(picture(provenance=("campaign: x",))))


def test_long_titles_break() -> None:
    whole = draw_picture(picture())
    long = draw_picture(Figure("f", "s", "word " * 60, "lines", "x", "y", (), LINES))
    assert (
        max(map(len, [text for text in texts(long) if text.startswith("word word") and len(text) < 200])) < 95
    )
    heights = [float(ElementTree.fromstring(text).get("height", "")) for text in (whole, long)]  # noqa: S314
    assert heights[1] > heights[0] + 30


def test_formats_and_equal_bytes(tmp_path: Path) -> None:
    once, again = (draw_figures([picture()], tmp_path / name) for name in ("once", "again"))
    assert [path.name for path in once] == ["f.pdf", "f.png", "f.svg"]
    pdf, png, drawing = (path.read_bytes() for path in once)
    places = [pdf.index(b"\n%d 0 obj" % number) + 1 for number in range(1, pdf.count(b" 0 obj") + 1)]
    assert [int(line.split()[0]) for line in pdf.split(b"\n") if line.endswith(b" n\r")] == places
    assert int(pdf.split()[-2]) == pdf.rindex(b"xref\n0 ")
    root = ElementTree.fromstring(drawing)  # noqa: S314 - our own
    size = struct.unpack(">II", png[16:24])
    assert size == tuple(2 * float(root.get(side, "")) for side in ("width", "height"))
    assert [path.read_bytes() for path in again] == [pdf, png, drawing]


def test_maps_of_attention_have_every_layer(tmp_path: Path) -> None:
    weights = [[0.0, 1.0], [0.5, 0.5]]
    draw_heatmaps(["[CLS]", "<b>"], [weights] * 4, "maps", tmp_path / "maps.svg")
    found = texts((tmp_path / "maps.svg").read_text(encoding="utf-8"))
    assert [text for text in found if text.startswith("layer")] == [f"layer {i}" for i in range(1, 5)]
    assert found.count("<b>") == 8  # a row and a column of each
    drawn = (tmp_path / "maps.svg").read_text(encoding="utf-8")
    assert all(f'fill="{colour}" shape' in drawn for colour in ("#440154", "#1f9e89", "#fde725"))


def test_nothing_to_draw_and_unwritable_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for figures, folder, told in (
        ([], tmp_path, "nothing to draw"),
        ([picture()], tmp_path / "file", "can't"),
    ):
        with pytest.raises(InputError, match=told):
            draw_figures(figures, folder)
