"""``bench pretrain`` and ``bench tune``: how a profile's backbone and learning rates are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.options import (
    PATH,
    NumberRange,
    check_device,
    check_precision,
    data_option,
    device_options,
    executor_options,
    make_spec,
    precision_option,
    print_stderr,
    train_options,
)
from bench.cli.strict_options import Panel, strict_option
from bench.cli.terminal import progress_bar
from bench.errors import CellFailedError, InputError, printable
from bench.records.filesystem import hold_output, pretraining_lock

if TYPE_CHECKING:
    from bench.config.profiles import Profile
    from bench.data.corpus import Corpus
    from bench.training.prepared_text import PreparedText
    from bench.training.pretraining import PretrainSettings


Train = Callable[..., dict[str, Any]]


@bench_command()
@strict_option(
    "--profile",
    default="mini",
    shell_complete=completion.profile,
    panel=Panel.MAIN,
    help="A profile with a [pretrain] table.",
)
@strict_option(
    "--world-seed",
    type=click.IntRange(0),
    panel=Panel.DATA,
    rare=True,
    help="Seed of profile mini's synthetic text; default 1.",
)
@strict_option(
    "--corpus",
    type=PATH,
    metavar="FILE",
    panel=Panel.DATA,
    help="Another text, .txt or .txt.xz, a document a line.",
)
@strict_option(
    "--layers",
    type=click.IntRange(1, 256),
    panel=Panel.MODEL,
    help="Layers of a new BERT; default the profile's.",
)
@strict_option(
    "--hidden", type=click.IntRange(1, 16_384), panel=Panel.MODEL, help="Its width; default the profile's."
)
@strict_option(
    "--heads",
    type=click.IntRange(1, 1024),
    panel=Panel.MODEL,
    help="Its attention heads; default: of width 64.",
)
@strict_option(
    "--max-length",
    type=click.IntRange(3, 4096),
    panel=Panel.MODEL,
    help="Its positions, and the tokens read of each line; default the profile's.",
)
@strict_option(
    "--split",
    is_flag=True,
    panel=Panel.DATA,
    rare=True,
    help="Split longer lines into several rows, in place of truncation.",
)
@strict_option(
    "--steps", type=click.IntRange(1), panel=Panel.TRAINING, help="Optimiser steps; default the profile's."
)
@strict_option(
    "--minutes",
    type=NumberRange(0, 100_000, min_open=True),
    panel=Panel.TRAINING,
    help="Train this long instead; the rate follows the clock, so runs differ.",
)
@strict_option(
    "--prepare",
    is_flag=True,
    panel=Panel.DATA,
    rare=True,
    help="Only write the tokenised text and its counts to --out.",
)
@strict_option(
    "--prepared",
    type=PATH,
    metavar="FOLDER",
    panel=Panel.DATA,
    rare=True,
    help="Train on the text that --prepare wrote.",
)
@strict_option(
    "--give-up",
    is_flag=True,
    panel=Panel.TRAINING,
    rare=True,
    help="Stop if the loss hardly fell in 500 steps.",
)
@strict_option("--seed", type=click.IntRange(0), default=1, panel=Panel.MAIN, help="Random seed.")
@device_options()
@precision_option("--precision", "Arithmetic of the transformer; loss and weights keep fp32.")
@data_option("For minilm-mlm's text; default BENCH_DATA.")
@strict_option("--out", type=PATH, required=True, panel=Panel.MAIN, help="Folder to write.")
def pretrain_command(
    profile: str,
    seed: int,
    steps: int | None,
    minutes: float | None,
    device: str,
    threads: int,
    precision: str,
    prepare: bool,
    give_up: bool,
    out: Path,
    **given: Any,
) -> None:
    """Pretrain a profile's own BERT, or add a masked-LM head.

    Profile mini's backbone was made with it; diffcse and infocse need minilm-mlm in profile minilm. Every
    minute the model is saved in OUT-unfinished; the finished one is in OUT. After five minutes of training,
    every five minutes, at Ctrl-C and at SIGTERM its state is saved, from which the same command goes on.
    """
    began = time.monotonic()
    from bench.config import profiles
    from bench.nn.device import torch_threads
    from bench.training.mixed_precision import train_at_precision
    from bench.training.pretraining import pretrain

    chosen = profiles.load_profile(profile)
    if not chosen.pretrain:
        pretrained = [name for name in profiles.profile_names() if profiles.load_profile(name).pretrain]
        what, expected = f"profile '{profile}' has no [pretrain] table", f"one of {', '.join(pretrained)}"
        raise InputError(what, where="bench pretrain --profile", expected=expected)
    _check_output_folder(out)
    check_precision(precision, device, "--precision")
    check_device(device)
    if steps is not None and minutes is not None:
        what = "training ends by steps or by time"
        raise InputError(what, where="--steps and --minutes", expected="one of them")
    if steps is not None:
        chosen = replace(chosen, pretrain={**chosen.pretrain, "steps": steps})
    if prepare:
        return _prepare_text(chosen, out, threads, **given)
    train: Train
    if "layers" in chosen.pretrain:
        text, settings, split, command = _load_text(chosen, **given)
        train = partial(pretrain, text, settings, split=split)
    else:
        train, command = _plan_head(chosen, **given)
    total = None if minutes else chosen.pretrain["steps"] * chosen.pretrain["batch_size"]
    if steps is not None:
        command += f" --steps {steps}"
    if minutes is not None:
        command += f" --minutes {minutes:g}"
    if precision != "fp32":
        command += f" --precision {precision}"
    with (
        hold_output(out, pretraining_lock(out)),
        _describe_interrupt(out),
        torch_threads(threads, needs_torch=True),
        train_at_precision(precision),
        progress_bar("pretrain", total) as advance,
    ):
        facts = train(
            seed=seed,
            out=out,
            command=f"bench pretrain --profile {profile}{command} --seed {seed} --out DIR",
            device=device,
            minutes=minutes,
            began=began,
            give_up=give_up,
            progress=advance,
            say=print_stderr,
        )
    return _print_result(out, facts)


@contextmanager
def _describe_interrupt(out: Path) -> Iterator[None]:
    """Add what is kept to Ctrl-C and SIGTERM within the block."""
    from bench.training.pretraining import checkpoint_path

    try:
        yield
    except KeyboardInterrupt as error:
        kept, model = checkpoint_path(out), out.with_name(f"{out.name}-unfinished")
        note = "a training's first five minutes have no checkpoint: the command starts again"
        if kept.exists():
            note = f"repeat the command to resume from {kept}"
        error.add_note(note + (f"; {model} has the model of the last minute" if model.exists() else ""))
        raise


def _print_result(out: Path, facts: Mapping[str, Any]) -> None:
    """Print the size and loss, with a warning where the loss is close to that of token frequencies."""
    from bench.training.pretraining import LEARNED

    size = (out / "model.safetensors").stat().st_size / 1e6
    accuracy = f"masked accuracy {facts['masked_accuracy']:.3f}, " if "masked_accuracy" in facts else ""
    loss, known = facts["loss_curve"][-1][1], facts["frequency_loss"]
    click.echo(
        f"{out}: {facts['parameters']:,} parameters, {size:.1f} MB, loss {loss:.3f} "
        f"after {facts['settings']['steps']:,} steps, {accuracy}{facts['cpu_seconds']:.0f} CPU s"
    )
    if loss > LEARNED * known:
        how = "barely better" if loss < known else "no better"
        print_stderr(
            f"{out}: {how} than token frequencies, whose loss is {known:.3f}: "
            "use more steps, a smaller rate or a longer warm-up"
        )


def _check_output_folder(out: Path) -> None:
    """Raise InputError unless a new folder can be written, before hours of training."""
    from bench.records.filesystem import check_new_folder

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the folder is not empty", where=f"--out {out}", expected="a new folder")
    try:
        check_new_folder(out)
    except OSError as error:
        raise InputError(f"it can't be written: {error.strerror}", where=f"--out {out}") from error


def _prepare_text(profile: Profile, out: Path, threads: int, **given: Any) -> None:
    from bench.nn.device import torch_threads
    from bench.training.prepared_text import prepare_text, save_prepared_text

    if "layers" not in profile.pretrain:
        what = f"profile '{profile.name}' adds a head to a finished model"
        expected = "a profile that makes a new BERT, such as mini"
        raise InputError(what, where="--prepare", expected=expected)
    if given["prepared"] is not None:
        raise InputError("it is prepared already", where="--prepare and --prepared", expected="one of them")
    text, settings, split, _ = _load_text(profile, **given)
    sizes = {name: getattr(settings, name) for name in TEXT_SIZES}
    with torch_threads(threads, needs_torch=True):
        prepared = prepare_text(cast("Corpus", text), **sizes, split=split, say=print_stderr)
    save_prepared_text(prepared, out)
    tokens = sum(map(len, prepared.rows))
    click.echo(
        f"{out}: {len(prepared.rows):,} rows, {tokens:,} tokens, a vocabulary of "
        f"{len(prepared.tokenizer):,}; train on it with --prepared {out}"
    )


TEXT_SIZES = ("max_length", "vocabulary", "hidden")


def _load_text(
    profile: Profile,
    world_seed: int | None,
    corpus: Path | None,
    prepared: Path | None,
    data_dir: Path | None,
    split: bool,
    **sizes: int | None,
) -> tuple[Corpus | PreparedText, PretrainSettings, bool, str]:
    """Return the text of a new BERT, its settings, whether lines are split, and the options of all that."""
    from bench.data.data_source import DEFAULT_SEED, World
    from bench.data.mini.world_text import pretraining_text
    from bench.training.prepared_text import load_prepared_text
    from bench.training.pretraining import PretrainSettings, read_pretraining_text

    if data_dir is not None:
        raise InputError("this profile's text is not read from data", where=f"--data {data_dir}")
    if corpus is not None and world_seed is not None:
        raise InputError("this text is not synthetic", where=f"--world-seed {world_seed}")
    if prepared is not None and (corpus is not None or world_seed is not None or split):
        expected = "no --corpus, --world-seed or --split"
        raise InputError("the text is prepared", where=f"--prepared {prepared}", expected=expected)
    chosen = _choose_sizes(profile.pretrain, **sizes)
    settings = PretrainSettings(**profile.pretrain | chosen)
    text: Corpus | PreparedText
    world = None
    if prepared is not None:
        text = load_prepared_text(prepared)
        split, name = text.sizes["split"], text.text["name"]
        world = text.text["world"] and text.text["world"]["seed"]
        text.check({size: getattr(settings, size) for size in TEXT_SIZES}, where=f"--prepared {prepared}")
    elif corpus is not None:
        text, name = read_pretraining_text(corpus), corpus.name
    else:
        world = DEFAULT_SEED if world_seed is None else world_seed
        text = pretraining_text(World(world))
    command = f" --corpus {name}" if world is None else f" --world-seed {world}"
    command += "".join(f" --{size.replace('_', '-')} {number}" for size, number in chosen.items())
    return text, settings, split, command + (" --split" if split else "")


def _choose_sizes(
    known: Mapping[str, Any], hidden: int | None, heads: int | None, **others: int | None
) -> dict[str, int]:
    """Return the given sizes, and the heads that follow from a width."""
    given = {**others, "hidden": hidden, "heads": heads}
    chosen = {name: number for name, number in given.items() if number is not None}
    width = chosen.get("hidden", known["hidden"])
    if hidden is not None and heads is None:
        chosen["heads"] = next(n for n in range(max(1, width // 64), 0, -1) if width % n == 0)
    if width % chosen.get("heads", known["heads"]):
        what, where = f"{chosen['heads']} heads can't share a width of {width}", f"--heads {chosen['heads']}"
        raise InputError(what, where=where, expected="a divisor of the width")
    return chosen


def _plan_head(
    profile: Profile,
    world_seed: int | None,
    corpus: Path | None,
    prepared: Path | None,
    data_dir: Path | None,
    split: bool,
    **sizes: int | None,
) -> tuple[Train, str]:
    """Return what trains a head for the profile's backbone, and the options that its command needs."""
    from bench.config.profiles import backbone_reference
    from bench.data.data_source import data_folder
    from bench.nn.model_folder import resolve_folder
    from bench.training.masked_lm_training import MlmSettings
    from bench.training.pretraining import read_documents, read_pretraining_text, train_mlm_head

    name = profile.backbone["name"]
    if world_seed is not None:
        raise InputError("this text is not synthetic", where=f"--world-seed {world_seed}")
    if split:
        what = f"a head for {name} reads the start of a line"
        raise InputError(what, where="--split", expected="--profile mini")
    if prepared is not None:
        where, expected = f"--prepared {prepared}", "--corpus FILE"
        raise InputError(f"a head for {name} reads plain text", where=where, expected=expected)
    for size, number in sizes.items():
        if number is not None:
            where = f"--{size.replace('_', '-')} {number}"
            raise InputError(f"{name} has its sizes", where=where, expected="--profile mini")
    backbone = resolve_folder(backbone_reference(profile), where=f"profile {profile.name}", name=name)
    if corpus is not None and data_dir is not None:
        raise InputError("the text is the one of --corpus", where=f"--data {data_dir}")
    if corpus is not None:
        text = read_pretraining_text(corpus)
    elif (data := data_folder(data_dir)) is not None:
        text = read_documents(data / profile.corpus["file"])
    else:
        expected = "--data DIR or BENCH_DATA, or --corpus FILE"
        raise InputError(f"the text {profile.corpus['file']} is needed", expected=expected)
    command = "" if corpus is None else f" --corpus {corpus.name}"
    return partial(train_mlm_head, backbone, text, MlmSettings(**profile.pretrain)), command


@bench_command()
@click.argument("methods", metavar="METHOD[,METHOD...]", shell_complete=completion.methods)
@strict_option(
    "--option", default="lr", panel=Panel.MAIN, help="Option to choose, a stage's as STAGE.OPTION."
)
@strict_option("--values", required=True, panel=Panel.MAIN, help="Comma-separated, at most 6.")
@strict_option(
    "--first", panel=Panel.MAIN, help="Values to try first; then only neighbours of the best one are tried."
)
@strict_option(
    "--seed",
    type=click.IntRange(0),
    default=100,
    panel=Panel.MAIN,
    help="Any seed but 1-10, which are reported.",
)
@train_options
@strict_option(
    "--workers",
    type=click.IntRange(1, 256),
    panel=Panel.DEVICES,
    help="Values in parallel; default 1, with Ray as many as fit the cluster.",
)
@executor_options
@strict_option(
    "--results", type=PATH, default=Path("results"), panel=Panel.MAIN, help="Folder of the training stages."
)
def tune_command(
    methods: str, option: str, values: str, first: str | None, seed: int, **options: Any
) -> None:
    """Choose a learning rate on the dev set.

    Each METHOD gets the same budget. Prints the dev score of each value, then the lines for the profile's
    TOML.
    """
    from bench.execution.tuning import tune_option

    check_device(options["device"], options["ranks"])
    workers = options["workers"] or (0 if options["executor"] == "ray" else 1)
    given = {"methods": methods, "seeds": (seed,), "suites": None, "workers": workers}
    spec = make_spec({**options, **given})

    def report(method: str, value: float, outcome: float | str) -> None:
        text = f"FAILED, {outcome}" if isinstance(outcome, str) else f"dev {100 * outcome:.2f}"
        print_stderr(f"{method}, {option}={value!r}: {text}")

    grid = list(map(str.strip, values.split(",")))
    begin = list(map(str.strip, first.split(","))) if first else []
    failed = []
    for request in spec.methods:
        method = replace(spec, methods=(request,))
        try:
            click.echo(tune_option(method, option, grid, partial(report, printable(request.text)), begin))
        except CellFailedError as error:
            failed.append(error)  # after the other methods
    if failed:
        raise CellFailedError("; ".join(map(str, failed)))
