"""``bench probe --along``: probes at every dev evaluation of trainings made anew."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import check_device, make_spec, print_json, print_stderr
from bench.cli.terminal import progress_bar
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.probes.probe_data import ProbeData
    from bench.training_probes.evaluations import ProbedEvaluation, TrainingProbes


def probe_training(
    methods: tuple[str, ...],
    names: str,
    form: str,
    heatmaps: Path | None,
    out: Path | None,
    options: dict[str, Any],
) -> None:
    """Train anew, probing; print the evaluations, and how the probes go with the dev score."""
    from bench.cli.terminal import format_grids
    from bench.config import profiles
    from bench.data.source import DataSource
    from bench.execution.record_probes import load_probe_data
    from bench.plan.plan import make_plan
    from bench.probes.interface import ProbeOptions
    from bench.training_probes.evaluations import TrainingProbes
    from bench.training_probes.run import check_probed_plan, probe_trainings
    from bench.training_probes.tables import (
        evaluation_grids,
        evaluation_relations,
        within_relations,
    )

    if heatmaps is not None or options["sentence"] is not None:
        where = "--sentence" if heatmaps is None else "--heatmaps"
        raise InputError("there are no attention maps along a training", where=where)
    wanted = _parse_quantities(names)
    plan = make_plan(make_spec({**options, "methods": ",".join(methods)}))
    spec = plan.spec
    check_device(spec.device)
    check_probed_plan(plan)
    dev = spec.dev or profiles.load_profile(spec.profile).dev
    data = load_probe_data(options["suite"] or dev, DataSource.of_run(spec))
    how = ProbeOptions(strict=options["strict"], groups=options["groups"], per_head=options["per_head"])
    found = _read_evaluations(out, spec.profile, dev, data, wanted, strict=how.strict)
    for more in probe_trainings(plan, data, wanted, how, progress_bar, found):
        found += more
        _save_evaluations(out, TrainingProbes(spec.profile, dev, tuple(found)))
    if not found:
        raise InputError("no training made a dev evaluation", where="--along", hint="lower eval_every")
    if form == "json":
        relations = evaluation_relations(found, spec.profile, dev)
        within = within_relations(found)
        print_json(
            {
                "evaluations": list(map(asdict, found)),
                "mechanism": list(map(asdict, relations)),
                "within": list(map(asdict, within)),
            }
        )
    else:
        click.echo(format_grids(evaluation_grids(found, spec.profile, dev)), nl=False)


def _parse_quantities(names: str) -> tuple[str, ...]:
    """Probes that ``--probes`` names, of those with a quantity that may go with the score."""
    from bench.probes import parse_probes
    from bench.reports.tables.relation import QUANTITIES

    known = tuple(dict.fromkeys(one.probe for one in QUANTITIES))
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
    """Evaluations that a file has already; raises InputError for one of something else."""
    from bench.training_probes.evaluations import read_training_probes

    if out is None or not out.exists():
        return []
    kept = read_training_probes(out)
    asked = {*wanted, "version", "data"}
    if (kept.profile, kept.dev) != (profile, dev) or any(
        one.probes["data"] != data.facts or set(one.probes) != asked for one in kept.evaluations
    ):
        raise InputError(
            f"{out} has other probes, of profile {kept.profile} with dev set {kept.dev}",
            where=f"--out {out}",
            expected=f"{', '.join(wanted)} on {data.suite}, profile {profile}, dev set {dev}",
            hint="give another file",
        )
    golds = {one.probes["alignment"]["gold"] for one in kept.evaluations if "alignment" in one.probes}
    if any(gold.startswith("above") != strict for gold in golds):
        raise InputError(
            f"{out} has the alignment of pairs whose gold score is {', '.join(sorted(golds))}",
            where=f"--out {out}",
            expected="the same pairs, with --strict or without it as before",
            hint="give another file",
        )
    return list(kept.evaluations)


def _save_evaluations(out: Path | None, found: TrainingProbes) -> None:
    from bench.training_probes.evaluations import write_training_probes

    if out is not None:
        try:
            write_training_probes(out, found)
        except OSError as error:
            raise InputError(f"{out} can't be written: {error.strerror}", where=f"--out {out}") from error
