"""docs/reproduce.md says what the items say."""

from __future__ import annotations

import runpy
from pathlib import Path

from bench.papers.items import items

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_generated_from_the_items() -> None:
    text = (DOCS / "reproduce.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(DOCS / "papers.py"))["page"](text) == text, "run: python docs/papers.py"
    assert all(f"bench reproduce {item.id} " in text for item in items().values() if not item.nothing)
