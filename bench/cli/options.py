"""Options that commands share; one is given once."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.messages import print_stderr as print_stderr
from bench.cli.strict_options import F, Panel, config_option, strict_option
from bench.errors import InputError, printable, suggest_name
from bench.records.filesystem import write_atomically

if TYPE_CHECKING:
    from bench.config.run_spec import Plugin, RunSpec

MOST_WORKERS = 2
"""Default of --workers on a machine with more cores: each worker holds a model and its optimiser."""


class NumberRange(click.FloatRange):
    """A range of numbers that refuses "nan"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; fails as click does."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid float range.", param, ctx)
        return number


PATH = click.Path(path_type=Path)
POSITIVE_POINTS = NumberRange(0, 100, min_open=True)


def combine_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return one decorator that adds several options, shown in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def data_option(about: str = "Evaluation data; default BENCH_DATA.") -> Callable[[F], F]:
    """Return --data, which commands get as ``data_dir``."""
    return strict_option("--data", "data_dir", type=PATH, panel=Panel.MAIN, help=about)


def require_option(about: str) -> Callable[[F], F]:
    """Return --require, a level of ``bench.verify.repeatability.LEVELS``."""
    levels = click.Choice(["recomputed", "repeatable"])
    about += " recomputed: ranked scores from predictions; repeatable: a rerun here can show them."
    given: dict[str, Any] = {"type": levels, "default": "recomputed", "show_default": True, "help": about}
    return strict_option("--require", "level", panel=Panel.MAIN, **given)


def device_options(threads: str = "Torch threads.") -> Callable[[F], F]:
    """Return --device and --threads with its help."""
    devices = click.Choice(["cpu", "cuda", "mps"])
    return combine_options(
        strict_option(
            "--device",
            type=devices,
            default="cpu",
            panel=Panel.DEVICES,
            help="Device; mps: a Mac's GPU.",
        ),
        strict_option(
            "--threads",
            type=click.IntRange(1, 256),
            default=1,
            metavar="N",
            panel=Panel.DEVICES,
            rare=True,
            help=threads,
        ),
    )


def format_option(*forms: str) -> Callable[[F], F]:
    """Return --format, which commands get as ``form``; the first is the default."""
    return strict_option(
        "--format",
        "form",
        type=click.Choice(forms),
        default=forms[0],
        panel=Panel.MAIN,
        help="Format of the output.",
    )


details_option = strict_option(
    "--details", is_flag=True, panel=Panel.OUTPUT, help="Also print every note, column and further statistic."
)


def seeds_option(default: str) -> Callable[[F], F]:
    """Return --seeds."""
    about = "Seeds, such as 1-5 or 1,3,7-9."
    return strict_option("--seeds", default=default, panel=Panel.MAIN, help=about)


def level_option(about: str) -> Callable[[F], F]:
    """Return --level of intervals."""
    given: dict[str, Any] = {"type": NumberRange(0.5, 0.999), "default": 0.95, "help": about}
    return strict_option("--level", panel=Panel.TESTS, rare=True, **given)


def precision_option(name: str, about: str, *more: str) -> Callable[[F], F]:
    """Return the option of the arithmetic in training; ``more``: choices besides fp32, tf32 and bf16."""
    choices = click.Choice(["fp32", "tf32", "bf16", *more])
    given: dict[str, Any] = {"type": choices, "default": "fp32", "help": about}
    return strict_option(name, panel=Panel.TRAINING, rare=True, **given)


results_option = strict_option(
    "--results", type=PATH, default=Path("results"), panel=Panel.MAIN, help="Folder of campaigns."
)
campaign_option = strict_option(
    "--campaign",
    default="local",
    shell_complete=completion.campaign,
    panel=Panel.MAIN,
    help="Folder below --results.",
)
results_options = combine_options(results_option, campaign_option)
filter_options = combine_options(
    strict_option(
        "--profile",
        shell_complete=completion.recorded_profile,
        panel=Panel.MAIN,
        help="Only this profile.",
    ),
    strict_option(
        "--suite", shell_complete=completion.recorded_suite, panel=Panel.MAIN, help="Only this suite."
    ),
)
draws_option = strict_option(
    "--draws",
    type=click.IntRange(100, 100_000),
    default=10_000,
    metavar="N",
    panel=Panel.TESTS,
    rare=True,
    help="Bootstrap draws of the items.",
)
item_options = combine_options(
    level_option("Confidence level of the intervals."),
    draws_option,
    data_option(),
    format_option("text", "json"),
)
set_option = strict_option(
    "--set",
    "overrides",
    multiple=True,
    metavar="METHOD[.STAGE].OPTION=VALUE",
    panel=Panel.MAIN,
    help="Set an option of a method. Repeatable.",
)
plugin_option = strict_option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE.py|PACKAGE",
    panel=Panel.DATA,
    help="Methods of a file, whose code this runs, or of an installed package. Repeatable.",
)
text_column_option = strict_option(
    "--text-column",
    metavar="NAME",
    panel=Panel.DATA,
    rare=True,
    help="Column of a --corpus that is a table; default: the only one, text or sentence.",
)
train_options = combine_options(
    strict_option(
        "--profile",
        shell_complete=completion.profile,
        panel=Panel.MAIN,
        help="Backbone, texts, budget; default mini.",
    ),
    data_option(),
    strict_option(
        "--accept-data",
        is_flag=True,
        panel=Panel.DATA,
        rare=True,
        help="Accept data that differ from the reference version.",
    ),
    strict_option("--backbone", panel=Panel.DATA, help="Model folder or hub name; default: the profile's."),
    set_option,
    plugin_option,
    strict_option(
        "--corpus",
        type=PATH,
        panel=Panel.DATA,
        help="Training text; default: the profile's.",
    ),
    text_column_option,
    strict_option(
        "--copy",
        "copies",
        multiple=True,
        metavar="NAME=FILE",
        panel=Panel.DATA,
        rare=True,
        help="Round-trip translation of the training text, for stages that learn from copy NAME. Repeatable.",
    ),
    strict_option(
        "--pairs",
        type=PATH,
        metavar="FILE",
        panel=Panel.DATA,
        rare=True,
        help="Labelled pairs or triplets (.tsv, .csv, .jsonl), not the profile's, for supervised methods.",
    ),
    strict_option(
        "--dev",
        shell_complete=completion.suite,
        panel=Panel.DATA,
        rare=True,
        help="Suite of one task, or local:FILE with scored pairs, that selects checkpoints.",
    ),
    strict_option(
        "--world-seed",
        type=click.IntRange(0),
        metavar="SEED",
        panel=Panel.DATA,
        rare=True,
        help="Seed of the synthetic mini data; default 1.",
    ),
    device_options("Torch threads a cell."),
    strict_option(
        "--ranks",
        type=click.IntRange(1, 64),
        default=1,
        envvar="BENCH_RANKS",
        metavar="N",
        panel=Panel.DEVICES,
        rare=True,
        help="Processes that share each batch of a cell; with cuda one a GPU.",
    ),
    precision_option(
        "--train-precision",
        "Arithmetic of the transformers in training; losses, optimiser and dev scores stay in fp32.",
        "bf16-weights",
    ),
    strict_option(
        "--compile",
        "compiled",
        type=click.Choice(["none", "inductor", "graphs"]),
        default="none",
        panel=Panel.TRAINING,
        rare=True,
        help="Compile training steps: torch.compile, or with cuda a CUDA graph for each padded length.",
    ),
)
"""What a training depends on."""
spec_options = combine_options(
    train_options,
    strict_option(
        "--suite",
        "suites",
        shell_complete=completion.suites,
        panel=Panel.MAIN,
        help="Test sets: `bench list suites`, mteb:TASK, local:FILE; default: the profile's.",
    ),
    strict_option(
        "--transfer-solver",
        type=click.Choice(["exact", "sgd"]),
        default="exact",
        panel=Panel.EVALUATION,
        rare=True,
        help="Classifier of transfer tasks: the exact optimum, or SentEval's Adam with early stopping.",
    ),
    strict_option(
        "--precision",
        type=click.Choice(["fp32", "bf16", "fp16"]),
        default="fp32",
        panel=Panel.EVALUATION,
        rare=True,
        help="Arithmetic of the encoder in evaluation.",
    ),
    results_options,
)
executor_options = combine_options(
    strict_option(
        "--executor",
        type=click.Choice(["local", "ray"]),
        default="local",
        panel=Panel.DEVICES,
        rare=True,
        help="Run cells here, or on a Ray cluster with a shared folder.",
    ),
    strict_option(
        "--ray-address",
        metavar="HOST:PORT|auto|local",
        panel=Panel.DEVICES,
        rare=True,
        help="Head node of the cluster; auto: this machine's cluster; local: start one here. "
        "Default RAY_ADDRESS, else auto.",
    ),
    strict_option(
        "--per-gpu",
        type=click.IntRange(1, 256),
        metavar="N",
        panel=Panel.DEVICES,
        rare=True,
        help="Cells that share a GPU, with Ray and cuda; default: as many as fit this machine's GPU memory, "
        "1 without a GPU.",
    ),
)
workers_option = strict_option(
    "--workers",
    type=click.IntRange(1, 256),
    envvar="BENCH_WORKERS",
    metavar="N",
    panel=Panel.DEVICES,
    help="Cells in parallel; default BENCH_WORKERS, or by cores or GPU memory.",
)
run_options = combine_options(spec_options, workers_option, executor_options, config_option)


def make_spec(options: dict[str, Any]) -> RunSpec:
    """Return the specification that options give, ``methods`` and ``seeds`` (text or numbers) among them."""
    from bench.config.compressed_rows import add_compressed_rows
    from bench.config.method_ids import parse_copies, parse_methods, parse_overrides, parse_seeds
    from bench.config.profiles import DEFAULT
    from bench.config.run_spec import RunSpec
    from bench.data.mteb_names import split_suites, suite_label
    from bench.data.suites import SUITES
    from bench.probes import parse_probes

    suites, seeds = options["suites"], options["seeds"]
    if suites is not None and not suites.isprintable():
        raise InputError(f"{suites!a} has a character that can't be printed", where="--suite")
    names = split_suites(suites, SUITES.names()) if suites is not None else ()
    if len(set(map(suite_label, names))) < len(names):
        raise InputError(f"'{suites}' names a suite twice", where="--suite")
    _check_device_options(options)
    field_names = {field.name for field in fields(RunSpec)}
    given = {name: value for name, value in options.items() if name in field_names and value is not None}
    if isinstance(seeds, str):
        seeds = parse_seeds(seeds)
    parsed = {
        "plugins": load_plugin_options(options.get("plugins", ()), options["results"]),
        "methods": add_compressed_rows(
            parse_methods(options["methods"]), options.get("dims"), options.get("quantize")
        ),
        "seeds": seeds,
        "profile": DEFAULT if options["profile"] is None else options["profile"],
        "suites": names,
        "overrides": parse_overrides(options["overrides"]),
        "copies": parse_copies(options["copies"]),
        "data": options["data_dir"],
        "workers": options.get("workers") or _default_workers(options),
        "probes": parse_probes(options["probes"], print_stderr) if options.get("probes") else (),
    }
    spec = RunSpec(**given | parsed)
    warn_unused_tables(spec.profile)
    return spec


def _check_device_options(options: Mapping[str, Any]) -> None:
    """Raise InputError for options of devices, processes and clusters that exclude each other."""
    device, ranks, on_ray = options["device"], options.get("ranks", 1), options.get("executor") == "ray"
    check_precision(options.get("train_precision", "fp32"), device, "--train-precision")
    check_precision(options.get("precision", "fp32"), device, "--precision")
    if options.get("precision_effect") and options["precision"] == "fp32":
        expected = "--precision bf16 or fp16 as well"
        raise InputError("fp32 is not a lower precision", where="--precision-effect", expected=expected)
    compiled, per_gpu = options.get("compiled", "none"), options.get("per_gpu")
    address, where = options.get("ray_address"), f"--compile {compiled}"
    if device == "mps" and ranks > 1:
        raise InputError("MPS is one GPU, for one process", where=f"--ranks {ranks}", expected="--ranks 1")
    if device == "mps" and on_ray:
        expected = "--executor local, or --device cpu or cuda"
        raise InputError("Ray has no MPS devices", where="--executor ray --device mps", expected=expected)
    if compiled != "none" and device == "mps":
        raise InputError("MPS can't compile steps", where=where, expected="none")
    if compiled == "graphs" and device == "cpu":
        raise InputError("a CPU has no CUDA graphs", where=where, expected="inductor or none")
    if compiled != "none" and ranks > 1:
        raise InputError(f"{ranks} processes train a cell", where=where, expected="--ranks 1")
    if address and not on_ray:
        what = f"cells run here, not at {address}"
        raise InputError(what, where="--ray-address", hint="add --executor ray")
    if per_gpu and (not on_ray or device != "cuda"):
        expected = "--executor ray --device cuda as well"
        hint = "on this machine, --workers sets the cells that share the GPU"
        raise InputError("it is for GPUs of a Ray cluster", where="--per-gpu", expected=expected, hint=hint)
    if (per_gpu or 1) > 1 and ranks > 1:
        raise InputError("a cell of several ranks takes whole GPUs", where="--per-gpu", expected="no --ranks")


def warn_unused_tables(profile: str) -> None:
    """Warn of tables of unregistered methods, once plug-ins are loaded: they may be of other plug-ins."""
    from bench.config import profiles
    from bench.registry import discover

    known = discover().names()
    for name in sorted(profiles.load_profile(profile).methods.keys() - set(known)):
        warning = f"profile {profile}: [methods.{name}] is ignored, there is no such method"
        near = suggest_name(name, known)
        print_stderr(printable(f"{warning} ({near})" if near else warning))


def load_plugin_options(texts: Sequence[str], results: Path = Path("results")) -> tuple[Plugin, ...]:
    """Load what ``--plugin`` names; raises InputError."""
    if not texts:
        return ()
    from bench.config.plugins import load_plugins, read_plugin

    plugins = tuple(read_plugin(text, results) for text in dict.fromkeys(texts))
    load_plugins(plugins)
    return plugins


def _default_workers(options: Mapping[str, Any]) -> int:
    """Return the number of workers; 0 lets the run choose, by GPU memory or by the cluster."""
    if options.get("executor") == "ray":
        return 0
    ranks = int(options.get("ranks", 1))
    if options["device"] != "cpu":
        return 0 if options["device"] == "cuda" and ranks == 1 else 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_WORKERS, cores // (int(options["threads"]) * ranks)))


def check_precision(precision: str, device: str, where: str) -> None:
    """Raise InputError for tf32 on a CPU, and for anything but fp32 on MPS."""
    if precision == "tf32" and device == "cpu":
        raise InputError("a CPU has no tf32", where=f"{where} tf32", expected="fp32 or bf16")
    if precision != "fp32" and device == "mps":
        raise InputError("MPS computes in fp32", where=f"{where} {precision}", expected="fp32")


def check_device(device: str, ranks: int = 1) -> None:
    """Raise InputError unless torch finds such a GPU for every rank."""
    if device == "cpu":
        return
    from bench.nn.device import check_available

    check_available(device, where=f"--device {device}")
    if ranks > 1:
        from bench.training.process_group import check_devices

        check_devices(ranks, device)


def print_json(value: Any) -> None:
    """Print a value as JSON to stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def write_file(path: Path, text: str, where: str, *, append: bool = False) -> None:
    """Write or extend a text file atomically, with the folders above it; raises InputError at ``where``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if append and path.exists() else b""
        write_atomically(path, before + text.encode("utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}", where=where) from error
