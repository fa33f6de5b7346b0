"""``bench pretrain`` and ``bench tune``: how a profile's backbone and learning rates are made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import (
    PATH,
    check_device,
    check_precision,
    data_option,
    device_options,
    executor_options,
    make_spec,
    plugin_option,
    precision_option,
    progress_bar,
    set_option,
)
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.request.profiles import Profile


@click.command()
@click.option("--profile", default="mini", help="A profile with a [pretrain] table.")
@click.option("--world-seed", type=click.IntRange(0), help="World of profile mini; default 1.")
@click.option("--seed", type=click.IntRange(0), default=1)
@device_options()
@precision_option("--precision", "Arithmetic of the transformer; loss and weights keep fp32.")
@data_option("For minilm-mlm's text; default BENCH_DATA.")
@click.option("--out", type=PATH, required=True, help="Folder to write.")
def pretrain(
    profile: str, seed: int, device: str, threads: int, precision: str, out: Path, **given: Any
) -> None:
    """Pretrain a profile's own BERT with its masked-LM head, or give a finished one a head.

    Profile mini's backbone was made by it; minilm-mlm is what diffcse and infocse need in profile minilm.
    """
    from bench.nn.threads import torch_threads
    from bench.request import profiles
    from bench.train.precision import training_at

    chosen = profiles.load(profile)
    if not chosen.pretrain:
        raise InputError(
            f"the backbone of profile '{profile}' comes from elsewhere",
            where="bench pretrain --profile",
            expected=f"one of {', '.join(n for n in profiles.names() if profiles.load(n).pretrain)}",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the folder is not empty", where=f"--out {out}", expected="a new folder")
    check_precision(precision, device, "--precision")
    check_device(device)
    train, command = _from_nothing(chosen, **given) if "layers" in chosen.pretrain else _head(chosen, **given)
    total = chosen.pretrain["steps"] * chosen.pretrain["batch_size"]
    command += "" if precision == "fp32" else f" --precision {precision}"
    with (
        torch_threads(threads, needs_torch=True),
        training_at(precision),
        progress_bar("pretrain", total) as advance,
    ):
        facts = train(
            seed=seed,
            out=out,
            command=f"bench pretrain --profile {profile}{command} --seed {seed} --out DIR",
            device=device,
            progress=advance,
        )
    size = (out / "model.safetensors").stat().st_size / 1e6
    accuracy = f"masked accuracy {facts['masked_accuracy']:.3f}, " if "masked_accuracy" in facts else ""
    click.echo(
        f"{out}: {facts['parameters']:,} parameters, {size:.1f} MB, loss {facts['loss_curve'][-1][1]:.3f}, "
        f"{accuracy}{facts['cpu_seconds']:.0f} CPU s"
    )


Train = Callable[..., dict[str, Any]]


def _from_nothing(profile: Profile, world_seed: int | None, data_dir: Path | None) -> tuple[Train, str]:
    """What trains a new BERT on the mini world's text, and what of its command the world adds."""
    from bench.data.mini.text import pretraining_text
    from bench.data.mini.world import DEFAULT_SEED, World
    from bench.train.pretrain import PretrainSettings
    from bench.train.pretrain import pretrain as train_backbone

    if data_dir is not None:
        raise InputError("this profile's text is not read from data", where=f"--data {data_dir}")
    world = DEFAULT_SEED if world_seed is None else world_seed
    settings = PretrainSettings(**profile.pretrain)
    return partial(train_backbone, pretraining_text(World(world)), settings), f" --world-seed {world}"


def _head(profile: Profile, world_seed: int | None, data_dir: Path | None) -> tuple[Train, str]:
    """What gives the profile's backbone a head, trained on its text below the data folder."""
    from bench.data.suites import data_folder
    from bench.nn.folder import resolve
    from bench.request.profiles import backbone_reference
    from bench.train.pretrain import MlmSettings, add_head, read_documents

    if world_seed is not None:
        raise InputError("this text does not come from a made-up world", where=f"--world-seed {world_seed}")
    where, name = f"profile {profile.name}", profile.backbone["name"]
    backbone = resolve(backbone_reference(profile), where=where, name=name)
    data = data_folder(data_dir)
    if data is None:
        raise InputError(f"the text {profile.corpus['file']} is needed", expected="--data DIR or BENCH_DATA")
    corpus = read_documents(data / profile.corpus["file"])
    return partial(add_head, backbone, corpus, MlmSettings(**profile.pretrain)), ""


@click.command()
@click.argument("method")
@click.option("--option", default="lr", help="Option to choose, a stage's as STAGE.OPTION.")
@click.option("--values", required=True, help="Comma-separated, at most 6.")
@click.option("--seed", type=int, default=100, help="Not one of 1-5, which are reported.")
@click.option("--profile", help="Default mini.")
@data_option("Default BENCH_DATA.")
@set_option
@plugin_option
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Values side by side; default 1, with Ray as many as the cluster has room for.",
)
@executor_options
@click.option("--results", type=PATH, default=Path("results"), help="Where training stages are kept.")
def tune(method: str, option: str, values: str, seed: int, **options: Any) -> None:
    """Choose a METHOD's learning rate on the dev set alone, with the budget every method gets.

    Prints the dev score of each value, then the lines for the profile's TOML.
    """
    from bench.run.tune import tune_option

    ray = options["executor"] == "ray"
    given = {"methods": method, "seeds": (seed,), "suites": None, "copies": (), "device": "cpu", "threads": 1}
    spec = make_spec({**options, **given, "workers": options["workers"] or (0 if ray else 1)})

    def report(value: float, outcome: float | str) -> None:
        text = f"FAILED, {outcome}" if isinstance(outcome, str) else f"dev {100 * outcome:.2f}"
        click.echo(f"{option}={value:g}: {text}", err=True)

    click.echo(tune_option(spec, option, [text.strip() for text in values.split(",")], report), nl=False)
