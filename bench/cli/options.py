"""Options that commands share, and the specification that they give."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bench.errors import InputError

if TYPE_CHECKING:
    from bench.request.spec import Plugin, RunSpec

F = TypeVar("F", bound=Callable[..., Any])
MOST_WORKERS = 2
"""Default of --workers on a machine with more cores: each worker holds a model and its optimiser."""


class NumberRange(click.FloatRange):
    """A range of numbers; "nan", which is neither below nor above it, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; fails as click does."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid float range.", param, ctx)
        return number


_RESULTS = (
    click.option(
        "--results",
        type=click.Path(path_type=Path),
        default=Path("results"),
        show_default=True,
        help="Where the campaigns are.",
    ),
    click.option("--campaign", default="local", show_default=True, help="Folder of records below --results."),
)
plugin_option = click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE.py|PACKAGE",
    help="Methods from a file, whose code this runs, or from an installed package. Repeatable.",
)
_SPEC = (
    click.option("--profile", help="See `bench list profiles`; default mini."),
    click.option(
        "--suite",
        "suites",
        help="Comma-separated: `bench list suites`, mteb:TASK,TASK, local:FILE.toml. Default: the profile's.",
    ),
    click.option(
        "--data", "data_dir", type=click.Path(path_type=Path), help="Evaluation data; default BENCH_DATA."
    ),
    click.option("--accept-data", is_flag=True, help="Evaluate data that differ from the reference version."),
    click.option("--backbone", help="Model folder (or cached hub name) instead of the profile's."),
    click.option(
        "--set", "overrides", multiple=True, metavar="METHOD[.STAGE].OPTION=VALUE", help="Repeatable."
    ),
    plugin_option,
    click.option("--corpus", type=click.Path(path_type=Path), help="Training text instead of the profile's."),
    click.option(
        "--copy",
        "copies",
        multiple=True,
        metavar="NAME=FILE",
        help="Round-trip translation of the training text, for stages that learn from copy NAME. Repeatable.",
    ),
    click.option("--dev", help="Suite of one task to select checkpoints on, instead of the profile's."),
    click.option(
        "--world-seed", type=click.IntRange(0), help="World of the mini suites and text; default 1."
    ),
    click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True),
    click.option(
        "--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Torch threads a cell."
    ),
    click.option(
        "--ranks",
        type=click.IntRange(1, 64),
        default=1,
        show_default=True,
        envvar="BENCH_RANKS",
        help="Processes that train a cell together on its whole batch; with cuda one a GPU.",
    ),
    click.option(
        "--train-precision",
        type=click.Choice(["fp32", "tf32", "bf16"]),
        default="fp32",
        show_default=True,
        help="Arithmetic of the transformers in training; losses and weights keep fp32, dev scores too.",
    ),
    click.option(
        "--transfer-solver",
        type=click.Choice(["exact", "sgd"]),
        default="exact",
        show_default=True,
        help="Transfer tasks: the optimum, or SentEval's Adam with early stopping.",
    ),
    click.option(
        "--precision",
        type=click.Choice(["fp32", "bf16", "fp16"]),
        default="fp32",
        show_default=True,
        help="Arithmetic of the encoder in evaluation; the record says what less than fp32 changes.",
    ),
    *_RESULTS,
)


def results_options(function: F) -> F:
    """Add --results and --campaign."""
    return _decorated(function, _RESULTS)


def spec_options(function: F) -> F:
    """Add what says where a cell comes from: profile, data, texts, overrides, device, results."""
    return _decorated(function, _SPEC)


def executor_options(function: F) -> F:
    """Add --executor and --ray-address."""
    options = (
        click.option(
            "--executor",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help="Where cells run: here, or on a Ray cluster whose nodes share the folder.",
        ),
        click.option(
            "--ray-address",
            metavar="HOST:PORT|auto|local",
            help="Head node of the cluster; auto: the one that this machine is part of; local: one that "
            "starts here for the run. Default RAY_ADDRESS, else auto.",
        ),
    )
    return _decorated(function, options)


def workers_option(function: F) -> F:
    """Add --workers; not given, it is as many as there are cores for, at most two."""
    option = click.option(
        "--workers",
        type=click.IntRange(1, 256),
        envvar="BENCH_WORKERS",
        help="Cells side by side; default BENCH_WORKERS, else 2 where the cores suffice, with Ray as many as "
        "the cluster has room for.",
    )
    return _decorated(function, (option,))


def _decorated(function: F, options: tuple[Callable[[F], F], ...]) -> F:
    for option in reversed(options):  # click shows them in this order
        function = option(function)
    return function


def make_spec(options: dict[str, Any]) -> RunSpec:
    """Return the specification that options give, ``methods`` and ``seeds`` (text or numbers) among them.

    Raises:
        InputError: a value that is none, or a suite that is named twice.
    """
    from bench.data.mteb_names import split_suites, suite_label
    from bench.data.suites import SUITES
    from bench.probes import parse_probes
    from bench.request.parse import parse_copies, parse_methods, parse_override, parse_seeds
    from bench.request.profiles import DEFAULT
    from bench.request.spec import RunSpec

    suites, seeds = options["suites"], options["seeds"]
    if suites is not None and not suites.isprintable():
        raise InputError(f"{suites!a} has a character that can't be printed", where="--suite")
    names = split_suites(suites, SUITES.names()) if suites is not None else ()
    if len(set(map(suite_label, names))) < len(names):
        raise InputError(f"'{suites}' names a suite twice", where="--suite")
    check_precision(options.get("train_precision", "fp32"), options["device"], "--train-precision")
    return RunSpec(
        methods=parse_methods(options["methods"]),
        seeds=parse_seeds(seeds) if isinstance(seeds, str) else seeds,
        profile=DEFAULT if options["profile"] is None else options["profile"],
        suites=names,
        backbone=options["backbone"],
        overrides=tuple(parse_override(text) for text in options["overrides"]),
        device=options["device"],
        threads=options["threads"],
        ranks=options.get("ranks", 1),
        train_precision=options.get("train_precision", "fp32"),
        corpus=options["corpus"],
        copies=parse_copies(options["copies"]),
        dev=options["dev"],
        world_seed=options["world_seed"],
        data=options["data_dir"],
        accept_data=options["accept_data"],
        results=options["results"],
        campaign=options["campaign"],
        executor=options.get("executor", "local"),
        ray_address=ray_address(options.get("executor", "local"), options.get("ray_address")),
        workers=options.get("workers") or _default_workers(options),
        force=options.get("force", False),
        probes=parse_probes(options["probes"]) if options.get("probes") else (),
        transfer_solver=options.get("transfer_solver", "exact"),
        precision=options.get("precision", "fp32"),
        keep_vectors=options.get("keep_vectors", False),
        plugins=loaded_plugins(options.get("plugins", ()), options["results"]),
    )


def loaded_plugins(texts: Sequence[str], results: Path = Path("results")) -> tuple[Plugin, ...]:
    """Load what ``--plugin`` names; raises InputError."""
    if not texts:
        return ()
    from bench.request.plugins import load_plugins, read_plugin

    plugins = tuple(read_plugin(text, results) for text in dict.fromkeys(texts))
    load_plugins(plugins)
    return plugins


def _default_workers(options: dict[str, Any]) -> int:
    if options.get("executor") == "ray":
        return 0
    if options["device"] != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    taken = int(options["threads"]) * int(options.get("ranks", 1))
    return max(1, min(MOST_WORKERS, cores // taken))


def ray_address(executor: str, given: str | None) -> str:
    """Return ``--ray-address``, "" for none; raises InputError where no Ray is asked for."""
    if given and executor != "ray":
        raise InputError(f"cells run here, not at {given}", where="--ray-address", hint="add --executor ray")
    return given or ""


def check_precision(precision: str, device: str, where: str) -> None:
    """Raise InputError for tf32 on a device that hasn't got it."""
    if precision == "tf32" and device == "cpu":
        raise InputError("a CPU has no tf32", where=f"{where} tf32", expected="fp32 or bf16")


def check_device(device: str, ranks: int = 1) -> None:
    """Raise InputError for cuda where torch sees none, or fewer than processes that train together."""
    if device == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device", where="--device cuda", hint="use --device cpu")
    if ranks > 1:
        from bench.train.launch import check_devices

        check_devices(ranks, device)


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar over sentences on stderr, nothing where that is not a terminal; no total where it isn't known."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        counter = bar.add_task(what, total=total)
        yield lambda n: bar.advance(counter, n)
