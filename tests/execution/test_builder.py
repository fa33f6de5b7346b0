from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bench.card import MethodCard
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.stage_cache import StageCache
from bench.plan.cell import Cell
from bench.stages import Stage
from tests.support.train import spec

CARD = MethodCard(name="m", kind="test", summary="", version=1)


def test_stages_free_of_other_processes_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = (spec("sub1"), spec("sub2"), spec("joint", inputs=("sub1", "sub2")))
    stages = tuple(Stage(s, 1, s.role[-1] * 64) for s in specs)
    order: list[tuple[str, list[str]]] = []
    second = threading.Event()

    def note(self: EncoderBuilder, stage: Stage, inputs: dict[str, Path], out: Path) -> dict[str, Any]:
        order.append((stage.spec.role, sorted(inputs)))
        if stage.spec.role == "sub2":
            second.set()
        return {}

    monkeypatch.setattr(EncoderBuilder, "_train_stage", note)
    builder = EncoderBuilder(Cell("mini", "m", CARD, (), None, 1, stages), "cpu", None, StageCache(tmp_path))
    elsewhere = FileLock(tmp_path / f".{stages[0].key}.lock")
    elsewhere.acquire()
    worker = threading.Thread(target=builder.folders)
    worker.start()
    assert second.wait(10)  # trained although the first is locked
    elsewhere.release()
    worker.join(10)
    assert order == [("sub2", []), ("sub1", ["sub2"]), ("joint", ["sub1", "sub2"])]
    assert list(builder.folders()) == ["sub2", "sub1", "joint"]
