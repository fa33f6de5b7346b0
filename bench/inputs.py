"""What a plan reads: every model, text and data set, for ``bench run --dry-run``."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cells import Cell
from bench.nn.folder import ModelFolder
from bench.plan import Plan
from bench.stages import TRAIN


def inputs(plan: Plan) -> list[tuple[str, str]]:
    """Return what each input is for and what it is, in one line; one that is missing has stopped the plan."""
    rows: dict[tuple[str, str], None] = {}
    for cell in {id(job.cell): job.cell for job in plan.jobs}.values():
        rows |= dict.fromkeys((what, _named(folder.name, folder.sha256)) for what, folder in _models(cell))
    texts = sorted({stage.spec.text for job in plan.jobs for stage in job.cell.all_stages})
    if plan.training is not None and texts:
        for name in texts:
            text = plan.training.texts[name]
            rows["training text" if name == TRAIN else f"text {name}", _named(text.name, text.sha256)] = None
        rows["dev set", _named(plan.training.dev.id, plan.training.dev.sha256)] = None
    for suite, tasks in plan.suites.items():
        rows["suite", f"{suite}: {', '.join(task.id for task in tasks)}"] = None
    return list(rows)


def _models(cell: Cell) -> Iterator[tuple[str, ModelFolder]]:
    if cell.model is not None:
        yield ("backbone" if cell.card.needs_backbone else "model"), cell.model
    for option, folder in cell.auxiliaries:
        yield f"{cell.card.name}.{option}", folder
    for _, member in cell.members:
        yield from _models(member)


def _named(name: str, sha256: str) -> str:
    return f"{name}, sha256 {sha256[:12]}"
