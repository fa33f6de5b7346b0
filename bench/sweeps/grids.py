"""Sweeps: a question, and the grid of methods that answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

from bench.errors import unknown
from bench.registry import discover
from bench.stages import TrainedMethod


@dataclass(frozen=True)
class Backbone:
    """What a grid depends on.

    Args:
        layers: Transformer layers.
        pooler: True if it has a pretrained pooler.
    """

    layers: int
    pooler: bool


@dataclass(frozen=True)
class Point:
    """One cell of a grid.

    Args:
        row: Its row's label.
        column: Its column's label.
        method: The method, as in ``--methods``.
    """

    row: str
    column: str
    method: str


@dataclass(frozen=True)
class Sweep:
    """A named grid.

    Args:
        name: Its name.
        question: What it answers.
        source: Table or figure of a paper that asks the same.
        axis: What the rows are.
        points: From the backbone to the grid, row by row.
        task: Task whose score is shown, where the suite has it; else the average.
        numeric: True if the rows are numbers: the figure is a line, not bars.
        norms: True if the table also has the mean norm of [CLS].
        curves: True if the figure is dev score and effective rank against step; the table has the rank too.
        surface: True for the surface of a formula: it has no cells.
    """

    name: str
    question: str
    source: str
    axis: str
    points: Callable[[Backbone], Iterable[Point]]
    task: str = "avg"
    numeric: bool = False
    norms: bool = False
    curves: bool = False
    surface: bool = False


TWINS = ("tncse", "jtcse")


def _loss_terms(backbone: Backbone) -> Iterable[Point]:
    for terms in product((True, False), repeat=3):
        names = [name for name, on in zip(("nce", "icnce", "ictn"), terms, strict=True) if on]
        off = [f"{name}=false" for name in ("nce", "icnce", "ictn") if name not in names]
        for twin in TWINS:
            yield Point(" + ".join(names) or "none", twin, f"{twin}[{','.join(off)}]" if off else twin)


def _caels(backbone: Backbone) -> Iterable[Point]:
    counts = [0, *(n for n in range(1, backbone.layers + 1) if backbone.layers % n == 0)]
    return (Point(str(count), "jtcse", f"jtcse[caels={count}]") for count in counts)


def _pooling(backbone: Backbone) -> Iterable[Point]:
    poolings = ("cls", "avg", "avg_first_last", *(("pooler",) if backbone.pooler else ()))
    for method in ("untrained", *single_encoders(), *TWINS):
        for pooling in poolings:
            yield Point(method, pooling, f"{method}[pooling={pooling}]")


def _sick(backbone: Backbone) -> Iterable[Point]:
    for method in (*single_encoders(), *TWINS):
        more = "sick=true" if method in TWINS else "text=train+sick"
        yield Point(method, "without", method)
        yield Point(method, "with SICK", f"{method}[{more}]")


def _single(backbone: Backbone) -> Iterable[Point]:
    yield Point("simcse", "score", "simcse[text=train+sick]")
    yield Point("NCE", "score", "tncse_single[ictn=false]")
    yield Point("NCE + LTN", "score", "tncse_single")


def _layer_norms(backbone: Backbone) -> Iterable[Point]:
    for dropped, twin in product(range(min(6, backbone.layers) + 1), TWINS):
        yield Point(str(dropped), twin, f"{twin}[drop_norms={dropped}]" if dropped else twin)


def _dual_ensembles(backbone: Backbone) -> Iterable[Point]:
    for method in single_encoders():
        pair = f"ensemble:{method}[text=a+sick]+{method}[text=b+sick]"
        yield Point(f"{method} x 2", "score", pair)
    for twin in TWINS:
        yield Point(twin, "score", f"{twin}[sick=true]")


MODIFIED = ("mhe", "mhs", "barlow", "vicreg")


def _modified_steps(backbone: Backbone) -> Iterable[Point]:
    for loss in MODIFIED:
        yield Point(loss, "original", loss)
        last = "r=false" if loss == "mhs" else "w=false,r=false"
        yield Point(loss, "+ GD", f"m_{loss}[{last}]")
        if loss != "mhs":  # its weights are at the nearest row alone from the start
            yield Point(loss, "+ W", f"m_{loss}[r=false]")
        yield Point(loss, "+ R", f"m_{loss}")


def _paradigm(option: str, values: Iterable[float]) -> Callable[[Backbone], Iterable[Point]]:
    points = tuple(Point(f"{value:g}", "paradigm", f"paradigm[{option}={value:g}]") for value in values)
    return lambda _: points


def _modified_grid_1(backbone: Backbone) -> Iterable[Point]:
    for batch, lr, loss in product((64, 128, 256, 512), (5e-6, 1e-5, 3e-5, 5e-5), MODIFIED):
        fixed = "m=0.3,ratio=1" if loss == "mhs" else "m=0.3,tau=0.05,ratio=1"
        method = f"m_{loss}[batch_size={batch},lr={lr:g},{fixed}]"
        yield Point(f"batch {batch}, lr {lr:g}", f"m_{loss}", method)


def _modified_grid_2(backbone: Backbone) -> Iterable[Point]:
    for m, ratio, loss in product((0.27, 0.3, 0.33, 0.37), (1, 1.25, 1.5, 1.75, 2), MODIFIED):
        row, given = f"m {m:g}, r {ratio:g}", f"m={m:g},ratio={ratio:g}"
        if loss == "mhs":
            yield Point(row, f"m_{loss}", f"m_{loss}[{given}]")
            continue
        for tau in (0.01, 0.03, 0.05):
            yield Point(row, f"m_{loss}, tau {tau:g}", f"m_{loss}[{given},tau={tau:g}]")


UNSEE = ("unsee_byol", "unsee_barlow", "unsee_vicreg", "unsee_corinfomax")


def _unsee_architectures(backbone: Backbone) -> Iterable[Point]:
    for architecture, method in product(("projection", "online_projection", "single_projection"), UNSEE):
        yield Point(architecture, method, f"{method}[architecture={architecture}]")


def _unsee_mlp(backbone: Backbone) -> Iterable[Point]:
    for layers, method in product(range(1, 6), UNSEE):
        yield Point(str(layers), method, f"{method}[layers={layers}]")


def single_encoders() -> list[str]:
    """Registered baselines whose training, on a text of their choice, makes one encoder."""
    return [
        name
        for name, method in discover()
        if isinstance(method, TrainedMethod)
        and method.card.kind == "baseline"
        and not method.card.deterministic
        and {"text", "pooling"} <= {option.name for option in method.card.options}
    ]


SWEEPS = {
    sweep.name: sweep
    for sweep in (
        Sweep(
            "loss_terms",
            "Which terms of the joint loss help, from all to none (the plain ensemble)?",
            "TNCSE, Table 4; JTCSE, Table X",
            "terms",
            _loss_terms,
        ),
        Sweep(
            "caels",
            "How many cross-attention layers?",
            "JTCSE, Table IX",
            "cross-attention layers",
            _caels,
            numeric=True,
        ),
        Sweep(
            "pooling",
            "How does each trained method fare under another pooling at inference?",
            "JTCSE, Table XI; TNCSE, supplement Table II-1",
            "method",
            _pooling,
        ),
        Sweep(
            "sick",
            "What do SICK's unlabelled sentences, the test pairs' among them, add?",
            "TNCSE, Table 6; JTCSE, Table VIII",
            "method",
            _sick,
        ),
        Sweep(
            "single",
            "Does the tensor-norm loss help one encoder alone?",
            "TNCSE, Table 5",
            "loss",
            _single,
            task="STSB",
        ),
        Sweep(
            "layer_norms",
            "What if the last layers' LayerNorms are removed?",
            "TNCSE, Figure 5; JTCSE, Figure 8",
            "layers without",
            _layer_norms,
            numeric=True,
            norms=True,
        ),
        Sweep(
            "dual_ensembles",
            "Are two copies of a baseline, one a translated text, as good as a twin?",
            "TNCSE, Table 3; JTCSE, Table VII",
            "ensemble",
            _dual_ensembles,
        ),
        Sweep(
            "modified_steps",
            "What does each of the three steps add to a non-contrastive loss?",
            "Gradient paradigm, Table 5",
            "loss",
            _modified_steps,
        ),
        Sweep(
            "paradigm_m",
            "Which margin of gradient dissipation? --suite stsb-dev shows what the paper does",
            "Gradient paradigm, Figure 6",
            "m",
            _paradigm("m", (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)),
            task="STSB-dev",
            numeric=True,
        ),
        Sweep(
            "paradigm_tau",
            "Which temperature of the weights? --suite stsb-dev shows what the paper does",
            "Gradient paradigm, Figure 6",
            "tau",
            _paradigm("tau", (0.01, 0.03, 0.05, 0.1, 0.3, 0.5, 1, 3)),
            task="STSB-dev",
            numeric=True,
        ),
        Sweep(
            "paradigm_r",
            "Which ratio of the positive? --suite stsb-dev shows what the paper does",
            "Gradient paradigm, Figure 6",
            "r",
            _paradigm("ratio", (0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2)),
            task="STSB-dev",
            numeric=True,
        ),
        Sweep(
            "modified_grid_1",
            "Which batch and rate of the modified losses? Choose with --suite stsb-dev",
            "Gradient paradigm, Tables 6 and 7, first stage",
            "setting",
            _modified_grid_1,
            task="STSB-dev",
        ),
        Sweep(
            "modified_grid_2",
            "Which m, tau and r at the profile's batch and rate? Choose with --suite stsb-dev",
            "Gradient paradigm, Tables 6 and 7, second stage",
            "setting",
            _modified_grid_2,
            task="STSB-dev",
        ),
        Sweep(
            "unsee_architectures",
            "Which architecture keeps a non-contrastive objective from collapsing?",
            "UNSEE, Figures 2-4, there with lr 3e-5, batch 64, 32 tokens",
            "architecture",
            _unsee_architectures,
            curves=True,
        ),
        Sweep(
            "unsee_mlp",
            "How many blocks of the MLP?",
            "UNSEE, Figure 5",
            "blocks",
            _unsee_mlp,
            numeric=True,
            curves=True,
        ),
        Sweep(
            "norm_ratio",
            "How does LTN's norm factor depend on the ratio k of two lengths and their cosine?",
            "TNCSE, Figure 2; JTCSE, Figure 3",
            "k",
            lambda _: (),
            surface=True,
        ),
    )
}


def get(name: str) -> Sweep:
    """Return a sweep; raises InputError with a suggestion for an unknown name."""
    if name not in SWEEPS:
        raise unknown("sweep", name, SWEEPS, where="bench sweep")
    return SWEEPS[name]
