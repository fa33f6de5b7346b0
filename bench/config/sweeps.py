"""Sweeps: a question, and the grid of methods that answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from bench.errors import InputError, unknown_name
from bench.method_card import DROPOUT, FIRST_TOKEN
from bench.registry import discover
from bench.stages import ComposedMethod, TrainedMethod


@dataclass(frozen=True)
class Backbone:
    """Number of transformer layers, and whether a pretrained pooler is there."""

    layers: int
    pooler: bool


@dataclass(frozen=True)
class SweepPoint:
    """One cell of a grid: labels of its row and column, and the method as in ``--methods``."""

    row: str
    column: str
    method: str


Grid = Callable[[Backbone], Iterable[SweepPoint]]


@dataclass(frozen=True)
class Sweep:
    """A named grid of methods that answers a question."""

    name: str
    question: str
    source: str  # table or figure of a paper that asks the same
    axis: str  # what the rows are
    points: Grid  # from the backbone to the grid, row by row
    task: str = "avg"  # task whose score is shown, where the suite has it
    numeric: bool = False  # rows are numbers: the figure is a line
    norms: bool = False  # the table also has the mean norm of [CLS]
    curves: bool = False  # the figure is dev score and effective rank against step
    surface: bool = False  # surface of a formula
    of_decoders: str = ""  # the sweep that asks the same of causal decoders


TWINS = ("tncse", "jtcse")
MODIFIED = ("mhe", "mhs", "barlow", "vicreg")
UNSEE = ("unsee_byol", "unsee_barlow", "unsee_vicreg", "unsee_corinfomax")
SWEEPS: dict[str, Sweep] = {}


def add_sweep(question: str, source: str, axis: str, name: str = "", **more: Any) -> Callable[[Grid], Grid]:
    """Add a sweep under the name of the function that gives its grid; arguments as in :class:`Sweep`."""

    def add(points: Grid) -> Grid:
        key = name or points.__name__.removeprefix("_")
        SWEEPS[key] = Sweep(key, question, source, axis, points, **more)
        return points

    return add


def single_encoders() -> list[str]:
    """Return the baselines whose training of an encoder, on a text of their choice, makes one."""
    names = []
    for name, method in discover():
        chooses_text = {"text", "pooling"} <= {option.name for option in method.card.options}
        trained = isinstance(method, TrainedMethod) and not method.card.deterministic
        of_encoders = method.card.kind == "baseline" and not method.card.needs_decoder
        if trained and chooses_text and of_encoders:
            names.append(name)
    return names


def decoder_encoders() -> list[str]:
    """Return those of :func:`single_encoders` that can train the last token of a causal decoder."""
    names = []
    for name in single_encoders():
        method = discover().get(name)
        if "train_pooling" not in method.card.defaults or hasattr(method, "check_backbone"):
            continue
        options = method.card.defaults | {"train_pooling": "last"}
        needs = {need.what for need in method.card.needs if need.holds(options)}
        if needs - {FIRST_TOKEN, DROPOUT} or isinstance(method, ComposedMethod):
            continue
        try:
            if isinstance(method, TrainedMethod):
                method.stages(options)
        except InputError:
            continue
        names.append(name)
    return names


@add_sweep(
    "Which terms of the joint loss help, from all to none (the plain ensemble)?",
    "TNCSE, Table 4; JTCSE, Table X",
    "terms",
)
def _loss_terms(backbone: Backbone) -> Iterable[SweepPoint]:
    for terms in product((True, False), repeat=3):
        names = [name for name, on in zip(("nce", "icnce", "ictn"), terms, strict=True) if on]
        off = [f"{name}=false" for name in ("nce", "icnce", "ictn") if name not in names]
        for twin in TWINS:
            yield SweepPoint(" + ".join(names) or "none", twin, f"{twin}[{','.join(off)}]" if off else twin)


@add_sweep("How many cross-attention layers?", "JTCSE, Table IX", "cross-attention layers", numeric=True)
def _caels(backbone: Backbone) -> Iterable[SweepPoint]:
    counts = [0, *(n for n in range(1, backbone.layers + 1) if backbone.layers % n == 0)]
    return (SweepPoint(str(count), "jtcse", f"jtcse[caels={count}]") for count in counts)


@add_sweep(
    "How does each trained method fare under another pooling at inference?",
    "JTCSE, Table XI; TNCSE, supplement Table II-1",
    "method",
    of_decoders="decoder_pooling",
)
def _pooling(backbone: Backbone) -> Iterable[SweepPoint]:
    poolings = ("cls", "avg", "avg_first_last", *(("pooler",) if backbone.pooler else ()))
    for method in ("untrained", *single_encoders(), *TWINS):
        for pooling in poolings:
            yield SweepPoint(method, pooling, f"{method}[pooling={pooling}]")


@add_sweep(
    "How does a causal decoder fare under another pooling at inference, trained by its last token?",
    "SGPT compares weighted_mean with last",
    "method",
)
def _decoder_pooling(backbone: Backbone) -> Iterable[SweepPoint]:
    poolings = ("last", "weighted_mean", "avg")
    for pooling in poolings:
        yield SweepPoint("untrained", pooling, f"untrained[pooling={pooling}]")
    for method, pooling in product(decoder_encoders(), poolings):
        yield SweepPoint(method, pooling, f"{method}[train_pooling=last,pooling={pooling}]")
    yield SweepPoint("prompteol_cse", "last", "prompteol_cse")


@add_sweep(
    "What do SICK's unlabelled sentences, the test pairs' among them, add?",
    "TNCSE, Table 6; JTCSE, Table VIII",
    "method",
)
def _sick(backbone: Backbone) -> Iterable[SweepPoint]:
    for method in (*single_encoders(), *TWINS):
        more = "sick=true" if method in TWINS else "text=train+sick"
        yield SweepPoint(method, "without", method)
        yield SweepPoint(method, "with SICK", f"{method}[{more}]")


@add_sweep("Does the tensor-norm loss help one encoder alone?", "TNCSE, Table 5", "loss", task="STSB")
def _single(backbone: Backbone) -> Iterable[SweepPoint]:
    yield SweepPoint("simcse", "score", "simcse[text=train+sick]")
    yield SweepPoint("NCE", "score", "tncse_single[ictn=false]")
    yield SweepPoint("NCE + LTN", "score", "tncse_single")


@add_sweep(
    "What if the last layers' LayerNorms are removed?",
    "TNCSE, Figure 5; JTCSE, Figure 8",
    "layers without",
    numeric=True,
    norms=True,
)
def _layer_norms(backbone: Backbone) -> Iterable[SweepPoint]:
    for dropped, twin in product(range(min(6, backbone.layers) + 1), TWINS):
        option = f"drop_norms={dropped}" if dropped else "ltn_input=cls"
        yield SweepPoint(str(dropped), twin, f"{twin}[{option}]")
    for twin in TWINS:
        yield SweepPoint("0", f"{twin}, pooler", twin)


@add_sweep(
    "Are two copies of a baseline, one a translated text, as good as a twin?",
    "TNCSE, Table 3; JTCSE, Table VII",
    "ensemble",
)
def _dual_ensembles(backbone: Backbone) -> Iterable[SweepPoint]:
    for method in single_encoders():
        pair = f"ensemble:{method}[text=a+sick]+{method}[text=b+sick]"
        yield SweepPoint(f"{method} x 2", "score", pair)
    for twin in TWINS:
        yield SweepPoint(twin, "score", f"{twin}[sick=true]")


@add_sweep(
    "Do two spans of a text make better views than two dropout masks, at equal sentences?",
    "Cropping, there on texts of several sentences",
    "views",
)
def _crop_views(backbone: Backbone) -> Iterable[SweepPoint]:
    yield SweepPoint("spans", "score", "crop[dropout=0]")
    yield SweepPoint("spans and dropout", "score", "crop")
    yield SweepPoint("dropout", "score", "crop[views=dropout]")
    yield SweepPoint("dropout, of one span", "score", "crop[views=dropout_span]")


@add_sweep(
    "What does each of the three steps add to a non-contrastive loss?", "Gradient paradigm, Table 5", "loss"
)
def _modified_steps(backbone: Backbone) -> Iterable[SweepPoint]:
    for loss in MODIFIED:
        yield SweepPoint(loss, "original", loss)
        last = "r=false" if loss == "mhs" else "w=false,r=false"
        yield SweepPoint(loss, "+ GD", f"m_{loss}[{last}]")
        if loss != "mhs":  # its weights are at the nearest row alone from the start
            yield SweepPoint(loss, "+ W", f"m_{loss}[r=false]")
        yield SweepPoint(loss, "+ R", f"m_{loss}")


def _add_paradigm_sweep(axis: str, option: str, what: str, values: Iterable[float]) -> None:
    points = tuple(SweepPoint(f"{value:g}", "paradigm", f"paradigm[{option}={value:g}]") for value in values)
    question = f"Which {what}? --suite stsb-dev shows what the paper does"
    name, source = f"paradigm_{axis}", "Gradient paradigm, Figure 6"
    add_sweep(question, source, axis, name, task="STSB-dev", numeric=True)(lambda _: points)


_add_paradigm_sweep("m", "m", "margin of gradient dissipation", (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1))
_add_paradigm_sweep("tau", "tau", "temperature of the weights", (0.01, 0.03, 0.05, 0.1, 0.3, 0.5, 1, 3))
_add_paradigm_sweep("r", "ratio", "ratio of the positive", (0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2))


@add_sweep(
    "Which batch and rate of the modified losses? Choose with --suite stsb-dev",
    "Gradient paradigm, Tables 6 and 7, first stage",
    "setting",
    task="STSB-dev",
)
def _modified_grid_1(backbone: Backbone) -> Iterable[SweepPoint]:
    for batch, lr, loss in product((64, 128, 256, 512), (5e-6, 1e-5, 3e-5, 5e-5), MODIFIED):
        fixed = "m=0.3,ratio=1" if loss == "mhs" else "m=0.3,tau=0.05,ratio=1"
        method = f"m_{loss}[batch_size={batch},lr={lr:g},{fixed}]"
        yield SweepPoint(f"batch {batch}, lr {lr:g}", f"m_{loss}", method)


@add_sweep(
    "Which m, tau and r at the profile's batch and rate? Choose with --suite stsb-dev",
    "Gradient paradigm, Tables 6 and 7, second stage",
    "setting",
    task="STSB-dev",
)
def _modified_grid_2(backbone: Backbone) -> Iterable[SweepPoint]:
    for m, ratio, loss in product((0.27, 0.3, 0.33, 0.37), (1, 1.25, 1.5, 1.75, 2), MODIFIED):
        row, given = f"m {m:g}, r {ratio:g}", f"m={m:g},ratio={ratio:g}"
        if loss == "mhs":
            yield SweepPoint(row, f"m_{loss}", f"m_{loss}[{given}]")
            continue
        for tau in (0.01, 0.03, 0.05):
            yield SweepPoint(row, f"m_{loss}, tau {tau:g}", f"m_{loss}[{given},tau={tau:g}]")


@add_sweep(
    "Which architecture keeps a non-contrastive objective from collapsing?",
    "UNSEE, Figures 2-4, there with lr 3e-5, batch 64, 32 tokens",
    "architecture",
    curves=True,
)
def _unsee_architectures(backbone: Backbone) -> Iterable[SweepPoint]:
    for architecture, method in product(("projection", "online_projection", "single_projection"), UNSEE):
        yield SweepPoint(architecture, method, f"{method}[architecture={architecture}]")


def _add_depth_sweep(name: str, question: str, source: str, settings: str = "") -> None:
    points = tuple(
        SweepPoint(str(layers), method, f"{method}[{settings}layers={layers}]")
        for layers, method in product(range(1, 6), UNSEE)
    )
    add_sweep(question, source, "blocks", name, numeric=True, curves=True)(lambda _: points)


for _figure, _architecture in enumerate(("projection", "online_projection", "single_projection"), 2):
    _add_depth_sweep(
        f"unsee_depth_{_architecture}",
        f"How many blocks of the MLP with architecture {_architecture}, at SimCSE's settings?",
        f"UNSEE, Figure {_figure}",
        f"architecture={_architecture},lr=3e-05,batch_size=64,max_length=32,",
    )
_add_depth_sweep("unsee_mlp", "How many blocks of the MLP?", "UNSEE, Figure 5")


@add_sweep(
    "How does LTN's norm factor depend on the ratio k of two lengths and their cosine?",
    "TNCSE, Figure 2; JTCSE, Figure 3",
    "k",
    surface=True,
)
def _norm_ratio(backbone: Backbone) -> Iterable[SweepPoint]:
    return ()


def find_sweep(name: str) -> Sweep:
    """Return a sweep; raises InputError with a suggestion for an unknown name."""
    if name not in SWEEPS:
        raise unknown_name("sweep", name, SWEEPS, where="bench sweep")
    return SWEEPS[name]
