"""What tests of the evaluation share: mteb, a local suite, transfer tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.data.data_source import DataSource
from bench.data.suites import load_transfer
from bench.data.tasks import LabelledTask
from bench.eval.mteb_setup import import_mteb
from tests.support.local_suite import write_local_suite
from tests.support.transfer_data import write_transfer


@pytest.fixture(scope="session")
def mteb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """mteb with another cache folder than the user's, which importing it makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        yield import_mteb()


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of one task of each kind."""
    return write_local_suite(tmp_path)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with transfer tasks."""
    return write_transfer(tmp_path_factory.mktemp("transfer") / "downstream").parent


@pytest.fixture(scope="session")
def transfer_tasks(data: Path) -> dict[str, LabelledTask]:
    return {task.id: task for task in load_transfer("transfer7", DataSource(data, accept_changed=True))}
