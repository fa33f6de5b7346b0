"""The modules that make the pages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from tests.support.docs_commands import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="session")
def docs_module() -> Iterator[Callable[[str], ModuleType]]:
    """From a name to the module of ``docs``, where they find each other."""
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module
    sys.path.remove(str(DOCS))
