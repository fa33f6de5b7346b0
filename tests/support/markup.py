"""Pages as their elements and texts."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser


class Skeleton(HTMLParser):
    """A page's elements with their attributes, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def kinds(self) -> set[tuple[str, ...]]:
        return {(tag, *attributes) for tag, attributes in self.elements}

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.elements if name == tag)
