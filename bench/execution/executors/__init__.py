"""Where cells run."""

from __future__ import annotations

from collections.abc import Callable

from bench.config.spec import RunSpec
from bench.execution.executors.local import Executor, InProcess, WorkerProcesses


def executor_for(spec: RunSpec, sharing: Callable[[], int] = lambda: 1) -> Executor:
    """Return what runs a specification's tasks; no executor and no number of workers changes a score.

    Args:
        spec: The specification.
        sharing: Says how many tasks share a GPU, where the specification leaves that open.
    """
    if spec.executor == "local":
        workers = spec.workers or sharing()
        return InProcess() if workers == 1 else WorkerProcesses(workers, spec.plugins)
    from bench.execution.executors.ray import RayTasks

    return RayTasks(
        spec.results,
        spec.ray_address,
        spec.workers,
        spec.plugins,
        cpus=spec.threads * spec.ranks,
        gpus=spec.ranks if spec.device == "cuda" else 0,
        sharing=1 if spec.device != "cuda" or spec.ranks > 1 else spec.per_gpu or sharing(),
    )
