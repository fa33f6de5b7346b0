"""Every stage that a registered method trains: a few steps on the CPU and on the device, side by side."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder
from bench.registry import discover
from bench.stages import StageContext, StageSpec, TrainedMethod
from bench.training import loop, sentence_encoder
from bench.training.mixed_precision import train_at_precision
from tests.support.modules import left_out
from tests.support.standin.device import TALLY
from tests.support.standin.patches import device
from tests.support.standin.target import played
from tests.support.training import options_of, toy_score, toy_sentences

LOWERED = ("diffcse", "jtcse", "m_mhe", "simcse")
"""Methods that CI trains in bf16 too: towers, heads and losses of several kinds; the rest is a long test."""
WITH_MASTERS = {"diffcse": False, "jtcse": True, "promptbert": False, "simcse": True}
"""Methods that step in bfloat16 weights too, several kinds of towers, and whether CI tries it."""
VARIANTS: tuple[tuple[str, dict[str, OptionValue]], ...] = (
    ("diffcse", {"replacement": "sample"}),
    ("iscse", {"grouping": "pddp"}),
    ("whitenedcse", {"engine": "cholesky", "grad_through_whitening": True}),
    ("whitenedcse", {"engine": "lowrank"}),
)
"""Options that take float64 or a decomposition which a method's defaults don't take."""
STEPS = 3
_SHORT: dict[str, OptionValue] = {
    "dropout": 0.0,
    "batch_size": 8,
    "steps": STEPS,
    "eval_every": 2,
    "max_length": 20,
    "groups": 4,  # of whitenedcse: a divisor of the tiny width
    "generator_dropout": False,  # diffcse's; the device draws other masks
    "buffer": 12,  # iscse's memory: full in the second step
    "neighbours": 4,
    "decoder_layers": 2,  # of denosent and infocse
    "noise": 0.0,  # denosent's: the device draws other masks
    "tau": 0.5,  # or losses at dropout 0 are differences of nothing
}


@dataclass(frozen=True)
class Material:
    """What stages are trained from.

    Args:
        bert: Model folder.
        mlm: Folder of a masked language model of the same vocabulary.
        transfer: Data folder of transfer tasks.
        out: Where stages are written.
    """

    bert: Path
    mlm: Path
    transfer: Path
    out: Path


@dataclass(frozen=True)
class Case:
    """A stage of some methods, at a precision."""

    methods: tuple[str, ...]
    stage: StageSpec
    precision: str
    variant: str = ""

    @property
    def name(self) -> str:
        """As tests name it."""
        return "/".join(filter(None, (self.methods[0], self.stage.role, self.variant, self.precision)))


def cases(*, rest: bool = False) -> Iterator[Case]:
    """Every kind of stage of every registered method; what several train alike, such as a student, once.

    Args:
        rest: Those that are left out without it: in bf16, and methods that CI leaves out.
    """
    registry, methods, alike = discover(), defaultdict[Any, list[str]](list), left_out()
    stages: dict[Any, StageSpec] = {}
    for name, method in registry:
        if isinstance(method, TrainedMethod) and registry.origin(name).startswith("bench."):
            for stage in (stage for stage in method.stages(options_of(name)) if stage.seeded):
                key = stage.kind, getattr(stage.train, "__func__", stage.train)
                methods[key].append(name)
                stages.setdefault(key, stage)
    for key, stage in stages.items():
        names = tuple(dict.fromkeys(methods[key]))
        in_ci = names[0] in LOWERED
        precisions = ["fp32"] if rest == (names[0] in alike and not in_ci) else []
        if rest != in_ci:
            precisions.append("bf16")
        if WITH_MASTERS.get(names[0], rest) != rest:
            precisions.append("bf16-weights")
        yield from (Case(names, stage, precision) for precision in precisions)


def variants() -> Iterator[Case]:
    """Methods with other options than their defaults."""
    registry = discover()
    for name, options in VARIANTS:
        method = registry.get(name)
        assert isinstance(method, TrainedMethod)
        (stage,) = method.stages(options_of(name, **options))
        yield Case((name,), stage, "fp32", "+".join(map(str, options.values())))


def compared(case: Case, material: Material) -> dict[str, Any]:
    """Losses and dev scores of a case on both sides, and for each step what the host waited for."""
    found: dict[str, Any] = {"name": case.name, "methods": case.methods}
    found["cpu"] = run(case, material, "cpu")
    with device():
        found["device"] = run(case, material, played())
    return found


def run(case: Case, material: Material, where: str) -> dict[str, Any]:
    """Train a case for a few steps.

    Returns:
        "losses" and "dev" (scores), or "error"; "steps", what each one made the host wait for.
    """
    laps: list[Any] = []
    found: dict[str, Any] = {"steps": laps}
    folder = Path(tempfile.mkdtemp(dir=material.out))
    context = context_of(case, material, folder, where, lambda _: laps.append(TALLY.lap()))
    try:
        with train_at_precision(case.precision), counting_steps():
            facts = case.stage.train(context)
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
        return found
    losses = json.loads((folder / "losses.json").read_text())
    return found | {"losses": losses, "dev": [score for _, score in facts["dev_curve"]]}


@contextmanager
def counting_steps() -> Iterator[None]:
    """Count what training steps do, not dev evaluations and copies of weights between them."""
    train = loop.train

    def counted(*args: Any, dev_score: Callable[[], float], **kwargs: Any) -> Any:
        TALLY.lap()
        return train(*args, dev_score=uncounted(dev_score), **kwargs)

    with without_copies(), patch.object(sentence_encoder, "train", counted):
        yield


@contextmanager
def without_copies() -> Iterator[None]:
    """Leave out the copies of weights that a training keeps."""
    with patch.object(loop, "copy_state", uncounted(loop.copy_state)):
        yield


def uncounted(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose reads and copies are not counted."""

    def paused(*args: Any) -> Any:
        with TALLY.paused():
            return call(*args)

    return paused


def context_of(
    case: Case, material: Material, out: Path, where: str, progress: Callable[[int], None]
) -> StageContext:
    """What a case's stage gets, on the CPU or on the device."""
    stage, sentences = case.stage, toy_sentences()
    config: Mapping[str, OptionValue] = dict(stage.config)
    config = {name: _SHORT.get(name, value) for name, value in config.items()}
    on_stages = {role: material.bert for role in stage.inputs}
    return StageContext(
        config=config,
        seed=1,
        role=stage.role,
        model=material.bert,
        device=where,
        sentences=sentences,
        corpus="toy",
        dev_score=toy_score,
        inputs={role: _finished(folder, out) for role, folder in on_stages.items()},
        out=out,
        progress=progress,
        members={role: TransformerEncoder(material.bert, "avg", device=where) for role in stage.inputs},
        auxiliaries=dict.fromkeys(("generator", "mlm_head"), material.mlm),
        partners=sentences[::-1],
        negatives=(*sentences[1:], sentences[0]),
    )


def _finished(model: Path, out: Path) -> Path:
    """A folder as a stage that ended leaves it."""
    folder = Path(tempfile.mkdtemp(dir=out.parent))
    (folder / "selected").symlink_to(model)
    return folder
