"""``bench pretrain`` and ``bench tune``: how a profile's backbone and learning rates are made."""

from __future__ import annotations

from pathlib import Path

import click

from bench.errors import InputError


@click.command()
@click.option("--profile", default="mini", show_default=True, help="A profile with a [pretrain] table.")
@click.option("--world-seed", type=click.IntRange(0), help="World of profile mini; default 1.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Torch threads.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
def pretrain(profile: str, world_seed: int | None, seed: int, device: str, threads: int, out: Path) -> None:
    """Pretrain a profile's own backbone: a BERT with its masked-language-model head."""
    from bench import profiles
    from bench.cli import check_device, progress_bar
    from bench.data.mini.world import DEFAULT_SEED, make_world, pretraining_text
    from bench.runner import torch_threads

    settings = profiles.load(profile).pretrain
    if not settings:
        raise InputError(
            f"the backbone of profile '{profile}' comes from elsewhere",
            where="bench pretrain --profile",
            expected=f"one of {', '.join(n for n in profiles.names() if profiles.load(n).pretrain)}",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the folder is not empty", where=f"--out {out}", expected="a new folder")
    check_device(device)
    world = DEFAULT_SEED if world_seed is None else world_seed
    from bench.train.pretrain import PretrainSettings
    from bench.train.pretrain import pretrain as train_backbone

    made = PretrainSettings(**settings)
    with (
        torch_threads(threads, needs_torch=True),
        progress_bar("pretrain", made.steps * made.batch_size) as advance,
    ):
        facts = train_backbone(
            pretraining_text(make_world(world)),
            made,
            seed=seed,
            out=out,
            command=f"bench pretrain --profile {profile} --world-seed {world} --seed {seed} --out DIR",
            device=device,
            progress=advance,
        )
    size = (out / "model.safetensors").stat().st_size / 1e6
    click.echo(
        f"{out}: {facts['parameters']:,} parameters, {size:.1f} MB, loss {facts['loss_curve'][-1][1]:.3f}, "
        f"{facts['cpu_seconds']:.0f} CPU s"
    )


@click.command()
@click.argument("method")
@click.option(
    "--option", default="lr", show_default=True, help="Option to choose, a stage's as STAGE.OPTION."
)
@click.option("--values", required=True, help="Comma-separated, at most 6.")
@click.option("--seed", type=int, default=100, show_default=True, help="Not one of 1-5, which are reported.")
@click.option("--profile", help="Default mini.")
@click.option("--data", "data_dir", type=click.Path(path_type=Path), help="Default BENCH_DATA.")
@click.option("--set", "overrides", multiple=True, metavar="METHOD[.STAGE].OPTION=VALUE", help="Repeatable.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Where training stages are kept.",
)
def tune(
    method: str,
    option: str,
    values: str,
    seed: int,
    profile: str | None,
    data_dir: Path | None,
    overrides: tuple[str, ...],
    workers: int,
    results: Path,
) -> None:
    """Choose a METHOD's learning rate on the dev set alone, with the budget every method gets.

    Prints the dev score of each value, then the lines for the profile's TOML.
    """
    from bench.profiles import DEFAULT
    from bench.spec import RunSpec, parse_methods, parse_override
    from bench.tune import as_toml, tune_option

    spec = RunSpec(
        methods=parse_methods(method),
        seeds=(seed,),
        profile=DEFAULT if profile is None else profile,
        overrides=tuple(parse_override(text) for text in overrides),
        data=data_dir,
        results=results,
        workers=workers,
    )

    def report(value: float, outcome: float | str) -> None:
        text = f"FAILED, {outcome}" if isinstance(outcome, str) else f"dev {100 * outcome:.2f}"
        click.echo(f"{option}={value:g}: {text}", err=True)

    click.echo(
        as_toml(tune_option(spec, option, [text.strip() for text in values.split(",")], report)), nl=False
    )
