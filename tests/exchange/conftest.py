"""What tests of exchanged results share: mteb, skipped where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench.eval.mteb_setup import import_mteb


@pytest.fixture(scope="session")
def mteb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """mteb with another cache folder than the user's, which importing it makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        pytest.importorskip("mteb", reason="needs mteb: pip install 'cse-bench[mteb]'")
        yield import_mteb()
