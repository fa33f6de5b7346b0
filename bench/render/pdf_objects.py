"""Put the objects of a PDF into one order: svg2pdf writes equal fonts and opacities in any.

Its objects are plain text up to their streams, with a table of their places at the end (PDF 1.7, 7.5).
"""

from __future__ import annotations

import re

_HEAD = b"%PDF-1.5\n%\x80\x80\x80\x80\n\n"
"""The version that pdfTeX includes without a warning; svg2pdf uses nothing newer."""
_REFERENCE = re.compile(rb"\b(\d+) 0 R\b")
_RESOURCES = re.compile(rb"(?:^ */[A-Za-z]+\d+ \d+ 0 R\n){2,}", re.MULTILINE)
"""Lines of fonts, opacities or pictures, by their names in the content."""


def sort_pdf_objects(pdf: bytes) -> bytes:
    """Return the PDF with its objects numbered in the order in which its catalogue leads to them."""
    start = int(pdf[pdf.rindex(b"startxref") :].split()[1])
    table, trailer = pdf[start:].split(b"trailer", 1)
    places = [int(line.split()[0]) for line in table.split(b"\n") if line.strip().endswith(b" n")]
    ends = dict(zip(sorted(places), [*sorted(places)[1:], start], strict=True))
    objects: dict[int, tuple[bytes, bytes]] = {}
    for place in places:
        head, _, body = pdf[place : ends[place]].partition(b" 0 obj")
        head_part, stream, content = body.partition(b"\nstream")
        objects[int(head)] = _RESOURCES.sub(_sort_lines, head_part), stream + content
    order: dict[int, int] = {}
    waiting = [int(number) for number in reversed(_REFERENCE.findall(trailer))]
    while waiting:
        place = waiting.pop()
        if place not in order:
            order[place] = len(order) + 1
            waiting += [int(found) for found in reversed(_REFERENCE.findall(objects[place][0]))]

    def renumber(text: bytes) -> bytes:
        return _REFERENCE.sub(lambda found: b"%d 0 R" % order[int(found[1])], text)

    parts = [_HEAD]
    rows = [b"0000000000 65535 f\r\n"]
    at = len(parts[0])
    for old, new in order.items():
        text, stream = objects[old]
        parts.append(b"%d 0 obj%b%b" % (new, renumber(text), stream))
        rows.append(b"%010d 00000 n\r\n" % at)
        at += len(parts[-1])
    size = re.sub(rb"/Size \d+", b"/Size %d" % len(rows), renumber(trailer.split(b"startxref")[0]))
    end = b"xref\n0 %d\n%btrailer%bstartxref\n%d\n%%%%EOF" % (len(rows), b"".join(rows), size, at)
    return b"".join([*parts, end])


def _sort_lines(found: re.Match[bytes]) -> bytes:
    return b"".join(sorted(found[0].splitlines(keepends=True)))
