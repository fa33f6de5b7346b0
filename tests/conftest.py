"""Fixtures: no network, a tiny BERT, a plug-in with test methods, the evaluation data where there is any."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.config import plugins
from bench.registry import METHODS, discover
from tests.support.cli import last_of_each

HERE = Path(__file__).parent
pytest_plugins = [  # fixtures that several rooms use
    "tests.support.hostile",
    "tests.support.hub",
    "tests.support.language_models",
    "tests.support.released",
    "tests.support.senteval_toy",
    "tests.support.training",
    "tests.support.zoo",
]
os.environ["BENCH_WORKERS"] = "1"  # in this process, where a test can see and change what runs
runpy.run_path(str(HERE / "support" / "block_network" / "sitecustomize.py"))

PLUGIN = '''
"""Methods for tests: no network, no torch."""
import hashlib, os, time
from pathlib import Path
import numpy as np
from bench.method_card import BuildContext, MethodCard, Option
from bench.registry import add_method
from bench.stages import StageSpec


class Noise:
    """Seeded random vectors; equal sentences get equal vectors."""

    def __init__(self, seed, dim=8):
        self.seed, self.dim, self.facts = seed, dim, {}

    def encode(self, sentences, batch_tokens=None, progress=None):
        digests = [list(hashlib.sha256(f"{self.seed} {s}".encode()).digest()) for s in sentences]
        rows = [np.random.default_rng(digest).normal(size=self.dim) for digest in digests]
        return np.asarray(rows, dtype=np.float32).reshape(len(rows), self.dim)


def log_build(name, seed):
    """Append one line a build, so that a test can count them over all processes."""
    if "NOISE_LOG" in os.environ:
        with open(os.environ["NOISE_LOG"], "a") as stream:
            stream.write(f"{name} {seed}\\n")


@add_method
class NoiseMethod:
    card = MethodCard(
        name="noise", kind="test", summary="random vectors", version=1, needs_backbone=False,
        options=(Option("scale", 1.0, "no effect"), Option("wait", 0.0, "seconds before encoding")),
    )

    def build(self, context: BuildContext):
        log_build("noise", context.seed)
        time.sleep(context.options["wait"])
        return Noise(context.seed)


@add_method
class BrokenMethod:
    card = MethodCard(name="broken", kind="test", summary="even seeds fail", version=1, needs_backbone=False)

    def build(self, context: BuildContext):
        log_build("broken", context.seed)
        if context.seed % 2 == 0:
            raise RuntimeError(f"no luck with {Path(__file__).resolve()}")
        return Noise(context.seed)


class Collapsed(Noise):
    def encode(self, sentences, batch_tokens=None, progress=None):
        return np.ones((len(sentences), self.dim), dtype=np.float32)


@add_method
class CollapsedMethod:
    card = MethodCard(name="collapsed", kind="test", summary="one vector for all", version=1,
                      needs_backbone=False, deterministic=True)

    def build(self, context: BuildContext):
        return Collapsed(0)


def two_steps(context):
    raise RuntimeError("no training here")


@add_method
class PairMethod:
    card = MethodCard(name="pair", kind="test", summary="two stages", version=1,
                      options=(Option("steps", 1, "steps", minimum=0),
                               Option("batch_size", 8, "sentences", minimum=1)))

    def stages(self, options):
        config = tuple(options.items())
        return tuple(StageSpec(role, "pair", 1, config, two_steps) for role in ("one", "two"))

    def build(self, context: BuildContext):
        return Noise(context.seed)


@add_method
class DyingMethod:
    card = MethodCard(name="dying", kind="test", summary="kills its process", version=1, needs_backbone=False)

    def build(self, context: BuildContext):
        os._exit(9)
'''


DATA = Path(os.environ["BENCH_DATA"]).resolve() if os.environ.get("BENCH_DATA") else None
"""The folder of evaluation data, None where there is none."""
LARGE = ("mini-equal", "minilm-lm", "minilm-lm-h100")
"""Committed campaigns that the sdist leaves out, for their size."""
ABSENT = [name for name in LARGE if not (HERE.parent / "results" / name).is_dir()]


def pytest_configure() -> None:
    """Refuse a folder that lacks evaluation data, before any test runs; raises UsageError."""
    parts = (
        "senteval",
        "stsb_multi",
        "corpus/wiki.txt",
        "corpus/general.txt.xz",
        "corpus/sick_unlabelled.txt",
    )
    lacking = [] if DATA is None else [part for part in parts if not (DATA / part).exists()]
    if lacking:
        what = f"BENCH_DATA={DATA} lacks {', '.join(lacking)} (CONTRIBUTING.md, Evaluation data)"
        raise pytest.UsageError(f"{what}; unset it to skip the tests that need data")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that reads evaluation data with ``data``; skip what lacks its data or campaigns."""
    if "data_dir" in getattr(item, "fixturenames", ()):
        item.add_marker("data")
    if DATA is None and item.get_closest_marker("data"):
        item.add_marker(pytest.mark.skip(reason="needs evaluation data: set BENCH_DATA to their folder"))
    if ABSENT and item.get_closest_marker("campaigns"):
        item.add_marker(pytest.mark.skip(reason=f"the sdist leaves out results/{', '.join(ABSENT)}"))


@pytest.fixture(autouse=True)
def only_marked_tests_see_data(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take BENCH_DATA from a test without the mark ``data``, which has to pass without it."""
    if request.node.get_closest_marker("data") is None:
        monkeypatch.delenv("BENCH_DATA", raising=False)


@pytest.fixture(scope="module")
def score_memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's cache folder of a file's tests, for recomputed scores."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_memory(score_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what tests recompute in a folder of theirs."""
    monkeypatch.setattr("bench.eval.score_memory.user_cache_folder", lambda: score_memory)


@pytest.hookimpl(trylast=True)  # when those that are not asked for are gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every worker begin with its share of the longest tests, so that none is left alone with one."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ranks: dict[int, list[pytest.Item]] = {0: [], 1: [], 2: []}
    for item in items:
        marks = [item.get_closest_marker(name) is not None for name in ("minutes", "slow")]
        ranks[marks.index(True) if any(marks) else 2].append(item)
    longest, slow, fast = ranks.values()
    order: list[pytest.Item] = []
    for number in range(workers):
        part = slice(number * len(slow) // workers, (number + 1) * len(slow) // workers)
        chunk = longest[number::workers] + slow[part]
        size = (len(items) - len(order)) // (workers - number)  # what --dist worksteal gives to this worker
        rest = max(0, size - len(chunk))
        order += chunk + fast[:rest]
        del fast[:rest]
    items[:] = order + fast


@pytest.fixture(scope="session", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the test methods through an entry point, for this process and for those it starts."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "bench_test_methods.py").write_text(PLUGIN)
    info = folder / "bench_test_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-test-methods\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bench.methods]\ntests = bench_test_methods\n")
    sys.path.insert(0, str(folder))
    paths = [str(HERE / "support" / "block_network"), str(folder), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HOME"] = str(tmp_path_factory.mktemp("hf"))
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    return folder


@pytest.fixture(autouse=True)
def own_methods(plugin: Path) -> Iterator[None]:
    """Forget what a test loads: another one may name its method alike."""
    discover()
    methods, files = dict(METHODS._items), dict(plugins._FILES)
    yield
    METHODS._items, plugins._FILES = methods, files


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the evaluation data; a test that takes this is marked ``data``."""
    assert DATA is not None
    return DATA


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of 3 layers x 16 with random weights, a pooler and a word-level vocabulary."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    from bench.data.toy_suite import make_toy_task

    folder = tmp_path_factory.mktemp("tiny") / "tiny-bert"
    words = sorted(
        {w for pair in make_toy_task().all_pairs() for s in pair for w in s.lower().strip(".").split()}
    )
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        '"',
        ".",
        "this",
        "sentence",
        "of",
        "means",
        *words,
    ]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=40,
            initializer_range=0.5,
        )
        model = BertModel(config)
    model.save_pretrained(folder)
    BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=40).save_pretrained(folder)
    return folder


Bench = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Run the installed command in a fresh folder: bench("run", ...) -> CompletedProcess."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bench", *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=900,
        )

    return run


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: cli("run", ...) -> (exit code, stdout, stderr).

    Of an option that may be given once the last one counts, as most calls add to a base, but with ``as_is``.
    """
    from bench.cli.main import main

    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, as_is: bool = False) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments) if as_is else last_of_each(arguments))
        output = capsys.readouterr()
        return int(stopped.value.code or 0), output.out, output.err

    return run
