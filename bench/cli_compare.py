"""``bench compare``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("first")
@click.argument("second")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--campaign", default="local", show_default=True)
@click.option("--profile", help="Only this profile.")
@click.option("--suite", help="Only this suite.")
@click.option(
    "--level", type=click.FloatRange(0.5, 0.999), default=0.95, show_default=True, help="Of the intervals."
)
def compare(
    first: str,
    second: str,
    results: Path,
    campaign: str,
    profile: str | None,
    suite: str | None,
    level: float,
) -> None:
    """Say whether the seeds of methods FIRST and SECOND (ids as in the report) show a difference."""
    from bench.compare import compare as compare_methods
    from bench.store import ResultStore

    records = [
        record
        for record in ResultStore(results, campaign).records()
        if (profile is None or record.profile == profile) and (suite is None or record.suite == suite)
    ]
    for comparison in compare_methods(records, first, second, level):
        click.echo(f"{comparison.profile} · {comparison.suite} · {first} - {second}")
        for task, d in comparison.differences.items():
            interval = f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]"
            click.echo(f"  {task:8} {100 * d.difference:+7.2f}  {interval}")
        click.echo("  Welch's interval (Student's against a deterministic method), tasks not corrected.")
        click.echo(comparison.verdict(level))
