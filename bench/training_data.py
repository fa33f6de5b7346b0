"""What the methods that train get: the training text, and the dev set on which checkpoints are selected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.data.corpus import Corpus, read_corpus
from bench.data.mini.world import COPIES, DEFAULT_SEED, make_world, training_copy, training_text
from bench.data.suites import data_folder, load_suite
from bench.data.tasks import PairTask
from bench.errors import InputError
from bench.profiles import Profile
from bench.spec import RunSpec
from bench.stages import TRAIN


@dataclass(frozen=True)
class TrainingData:
    """The texts, and the dev set for selecting checkpoints.

    Args:
        texts: "train", and where there are any the round-trip translated copies of it.
        dev: The dev set.
    """

    texts: Mapping[str, Corpus]
    dev: PairTask

    @property
    def corpus(self) -> Corpus:
        """The training text itself."""
        return self.texts[TRAIN]


def load_training_data(spec: RunSpec, profile: Profile, method: str) -> TrainingData:
    """Read the profile's training text and dev set, or those the specification names.

    Args:
        spec: The specification.
        profile: Its profile.
        method: A method that trains, for messages.

    Raises:
        InputError: no text, or a dev suite of several tasks.
        DataError: damaged data.
    """
    data = data_folder(spec.data)
    seed = DEFAULT_SEED if spec.world_seed is None else spec.world_seed
    name = spec.dev or profile.dev
    tasks = load_suite(name, data, accept_data=spec.accept_data, world_seed=seed)[1]
    if len(tasks) != 1:
        raise InputError(f"'{name}' has {len(tasks)} tasks", where="--dev", expected="a suite of one task")
    if spec.corpus is not None:
        return TrainingData({TRAIN: read_corpus(spec.corpus)}, tasks[0])
    if uses_world(profile):
        world = make_world(seed)
        copies = {copy: training_copy(world, copy) for copy in COPIES}
        return TrainingData({TRAIN: training_text(world), **copies}, tasks[0])
    if data is None:
        raise InputError(
            f"{method} needs a training text", expected="--corpus FILE, or --data DIR or BENCH_DATA"
        )
    exclude = profile.corpus.get("exclude_lines")
    corpus = read_corpus(data / profile.corpus["file"], (exclude[0], exclude[1]) if exclude else None)
    return TrainingData({TRAIN: corpus}, tasks[0])


def uses_world(profile: Profile) -> bool:
    """True if the profile's training text comes from the mini world."""
    return "world" in profile.corpus
