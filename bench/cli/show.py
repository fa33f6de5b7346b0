"""`bench list` and `bench show`."""

from __future__ import annotations

import click

from bench.cli.options import loaded_plugins, plugin_option


@click.command("list")
@click.argument("what", type=click.Choice(["methods", "suites", "profiles", "sweeps", "probes"]))
def list_(what: str) -> None:
    """List methods, suites, profiles, sweeps or probes."""
    rows: list[tuple[str, str]]
    if what == "methods":
        from bench.registry import discover

        rows = [(name, method.card.summary) for name, method in discover()]
    elif what == "suites":
        from bench.data.suites import SUITES

        rows = [(name, suite.summary) for name, suite in SUITES]
        rows += [
            ("mteb:TASK,TASK", "any tasks of mteb, each NAME, NAME[SUBSET+SUBSET] or NAME[SUBSET]@SPLIT"),
            (
                "local:FILE.toml",
                "sts, classification, retrieval, reranking and bitext tasks from files (mteb)",
            ),
        ]
    elif what == "profiles":
        from bench.request import profiles

        rows = [(name, profiles.load(name).summary) for name in profiles.names()]
    elif what == "sweeps":
        from bench.sweeps.grids import SWEEPS

        rows = [(sweep.name, f"{sweep.question} ({sweep.source})") for sweep in SWEEPS.values()]
    else:
        from bench.probes import PROBES

        rows = [
            *((probe.name, probe.summary) for probe in PROBES.values()),
            ("overlap", "training text against test sets: bench data overlap TEXT"),
            ("gradient", "what the gradient paradigm's figures draw: bench gradient"),
        ]
    width = max(len(name) for name, _ in rows)
    for name, summary in rows:
        click.echo(f"{name:{width}}  {summary}")


@click.command()
@click.argument("method")
@plugin_option
def show(method: str, plugins: tuple[str, ...]) -> None:
    """Show a method's card: sources, equations, options, deviations."""
    from bench.registry import discover

    loaded_plugins(plugins)
    card = discover().get(method, where="bench show").card
    click.echo(f"{card.name} ({card.kind}, version {card.version}): {card.summary}")
    click.echo("one run, no seed" if card.deterministic else "seeded")
    for title, lines in (
        ("paper", (card.paper,)),
        ("code", (card.code,)),
        ("computes", card.equations),
        ("deviations", card.deviations),
        ("published as", tuple(f"{name} ({options})" for name, options in card.published_names)),
    ):
        for line in filter(None, lines):
            click.echo(f"{title + ':':14}{line}")
    for option in card.options:
        choices = f" [{', '.join(option.choices)}]" if option.choices else ""
        click.echo(f"option        {option.name}={option.default}{choices}  {option.help}")
