"""Where cells run."""

from __future__ import annotations

from bench.request.spec import RunSpec
from bench.run.executors.local import Executor, InProcess, WorkerProcesses


def executor_for(spec: RunSpec) -> Executor:
    """Return what runs a specification's tasks; no executor and no number of workers changes a score."""
    if spec.executor == "local":
        return InProcess() if spec.workers == 1 else WorkerProcesses(spec.workers, spec.plugins)
    from bench.run.executors.ray import RayTasks

    return RayTasks(
        spec.results,
        spec.ray_address,
        spec.workers,
        spec.plugins,
        cpus=spec.threads * spec.ranks,
        gpus=0 if spec.device == "cpu" else spec.ranks,
    )
