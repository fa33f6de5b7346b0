"""What ``mkdocs build`` runs: adds the pages and plots that docs/generate.py and command_page.py make."""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from command_page import PAGE, command_page
from generate import drawn, method_pages

PAGES = method_pages()
GENERATED = {**PAGES, PAGE: command_page()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every method's page into the navigation, below their index."""
    for section in config.nav or []:
        for pages in section.values():
            if isinstance(pages, list) and "methods/index.md" in pages:
                place = pages.index("methods/index.md")
                pages[place] = {"All methods": list(PAGES)}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for path, text in GENERATED.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the plots."""
    return drawn(markdown)
