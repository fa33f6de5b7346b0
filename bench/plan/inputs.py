"""What plans read of the disk: suites, training data, backbones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from bench.data.suites import data_folder
from bench.data.training import TrainingData, read_training_data
from bench.eval.suite import SuiteTask, measure_of
from bench.nn.folder import ModelFolder, resolve
from bench.plan.backbone import profile_backbone
from bench.request import profiles
from bench.request.profiles import Profile
from bench.request.spec import RunSpec


class Inputs:
    """Reads each suite, each training text and each backbone once, however many plans are made from it.

    For one look at many records, as ``bench verify`` takes it; what is changed in between isn't seen.
    """

    def __init__(self) -> None:
        self._suites: dict[object, list[SuiteTask]] = {}
        self._texts: dict[object, TrainingData | None] = {}
        self._backbones: dict[object, ModelFolder] = {}

    def suite(self, name: str, spec: RunSpec, world_seed: int) -> list[SuiteTask]:
        """Read and check a suite's tasks; see :meth:`bench.eval.measure.Measure.load`."""
        data = data_folder(spec.data)
        key = name, data, spec.accept_data, world_seed
        if key not in self._suites:
            measure = measure_of(name)
            self._suites[key] = measure.load(data, accept_data=spec.accept_data, world_seed=world_seed)
        return self._suites[key]

    def training(self, spec: RunSpec, trained: Sequence[str], texts: Collection[str]) -> TrainingData | None:
        """Read text and dev set; see :func:`bench.data.training.read_training_data`."""
        of_all = replace(spec, methods=(), seeds=(), suites=(), overrides=(), backbone=None)
        key = of_all, bool(trained), frozenset(texts)
        if key not in self._texts:
            self._texts[key] = read_training_data(spec, profiles.load(spec.profile), trained, texts)
        return self._texts[key]

    def backbone(self, spec: RunSpec, profile: Profile) -> ModelFolder:
        """Find and hash the backbone; see :func:`bench.plan.backbone.profile_backbone`."""
        data = data_folder(spec.data)
        key = spec.backbone, profile.name, data
        if key not in self._backbones:
            self._backbones[key] = (
                profile_backbone(profile, data)
                if spec.backbone is None
                else resolve(spec.backbone, where="--backbone")
            )
        return self._backbones[key]
