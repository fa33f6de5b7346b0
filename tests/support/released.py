"""A made-up hub of published checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


def hub_folder(root: Path, hub: str, commit: str, source: Path) -> Path:
    """Put a model into a hub cache as a download would."""
    repository = root / f"models--{hub.replace('/', '--')}"
    shutil.copytree(source, repository / "snapshots" / commit)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    return repository / "snapshots" / commit


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty local hub."""
    root = tmp_path / "hub"
    root.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(root))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(root), raising=False)
    return root
