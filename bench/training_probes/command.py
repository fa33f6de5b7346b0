"""``bench probe --along``: probes at every dev evaluation of repeated trainings."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import check_device, make_spec, print_json, print_stderr
from bench.cli.terminal import progress_bar
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.probes.interface import ProbeData
    from bench.training_probes.evaluations import ProbedEvaluation


def probe_training(
    methods: tuple[str, ...],
    names: str,
    form: str,
    heatmaps: Path | None,
    out: Path | None,
    options: dict[str, Any],
) -> None:
    """Train and probe; print the evaluations, and correlations of probes with the dev score."""
    from bench.cli.terminal import format_grids
    from bench.config import profiles
    from bench.data.source import DataSource
    from bench.execution.record_probes import load_probe_data
    from bench.plan.plan import make_plan
    from bench.probes.interface import ProbeOptions
    from bench.training_probes.evaluations import TrainingProbes, write_training_probes
    from bench.training_probes.run import check_probed_plan, probe_trainings
    from bench.training_probes.tables import evaluation_grids, evaluation_relations, within_relations

    if heatmaps is not None or options["sentence"] is not None:
        where = "--sentence" if heatmaps is None else "--heatmaps"
        raise InputError("attention maps are not drawn with --along", where=where)
    wanted = _parse_quantities(names)
    plan = make_plan(make_spec({**options, "methods": ",".join(methods)}))
    spec = plan.spec
    check_device(spec.device)
    check_probed_plan(plan)
    dev = spec.dev or profiles.load_profile(spec.profile).dev
    data = load_probe_data(options["suite"] or dev, DataSource.of_run(spec))
    how = ProbeOptions(strict=options["strict"], groups=options["groups"], per_head=options["per_head"])
    evaluations = _read_evaluations(out, spec.profile, dev, data, wanted, strict=how.strict)
    for probed in probe_trainings(plan, data, wanted, how, progress_bar, evaluations):
        evaluations += probed
        if out is not None:
            try:
                write_training_probes(out, TrainingProbes(spec.profile, dev, tuple(evaluations)))
            except OSError as error:
                raise InputError(f"{out} can't be written: {error.strerror}", where=f"--out {out}") from error
    if not evaluations:
        raise InputError("no training made a dev evaluation", where="--along", hint="lower eval_every")
    if form != "json":
        click.echo(format_grids(evaluation_grids(evaluations, spec.profile, dev)), nl=False)
        return
    blocks: dict[str, list[Any]] = {
        "evaluations": evaluations,
        "mechanism": evaluation_relations(evaluations, spec.profile, dev),
        "within": within_relations(evaluations),
    }
    print_json({name: list(map(asdict, rows)) for name, rows in blocks.items()})


def _parse_quantities(names: str) -> tuple[str, ...]:
    """Parse ``--probes``, restricted to probes with a quantity to correlate with the score."""
    from bench.probes import parse_probes
    from bench.reports.tables.relation import QUANTITIES

    known = tuple(dict.fromkeys(quantity.probe for quantity in QUANTITIES))
    wanted = known if names.strip() == "all" else parse_probes(names, print_stderr)
    if other := set(wanted) - set(known):
        raise InputError(
            f"{', '.join(sorted(other))} along a training",
            where="--probes",
            expected=f"of {', '.join(known)}",
        )
    return wanted


def _read_evaluations(
    out: Path | None, profile: str, dev: str, data: ProbeData, wanted: tuple[str, ...], *, strict: bool
) -> list[ProbedEvaluation]:
    """Read the evaluations of an existing file; raises InputError for other settings."""
    from bench.training_probes.evaluations import read_training_probes

    if out is None or not out.exists():
        return []
    kept = read_training_probes(out)
    probes = [evaluation.probes for evaluation in kept.evaluations]
    names = {*wanted, "version", "data"}
    same = all(facts["data"] == data.facts and set(facts) == names for facts in probes)
    if not same or (kept.profile, kept.dev) != (profile, dev):
        raise InputError(
            f"{out} has other probes, of profile {kept.profile} with dev set {kept.dev}",
            where=f"--out {out}",
            expected=f"{', '.join(wanted)} on {data.suite}, profile {profile}, dev set {dev}",
            hint="give another file",
        )
    golds = {facts["alignment"]["gold"] for facts in probes if "alignment" in facts}
    if any(gold.startswith("above") != strict for gold in golds):
        raise InputError(
            f"{out} has the alignment of pairs whose gold score is {', '.join(sorted(golds))}",
            where=f"--out {out}",
            expected="the same pairs, with --strict or without it as before",
            hint="give another file",
        )
    return list(kept.evaluations)
