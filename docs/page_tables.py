"""The tables of the pages, from the program and committed records: ``python docs/refresh.py`` writes them.

A page has a table between ``<!-- NAME: WHAT -->`` and ``<!-- /NAME -->``, so that its text can be read
without the site; tests/docs make each anew and compare. Names are those of ``TABLES``; they take

- ``leaderboard: CAMPAIGN``;
- ``rows: CAMPAIGN``: the commands that make them, where the campaign has its profile's name;
- ``rates: PROFILE``: what ``bench tune`` found for its methods;
- ``devices: CAMPAIGN,CAMPAIGN``: the same rows on two devices, ``devices.table``;
- ``same seeds: CAMPAIGN,CAMPAIGN``: the same cells on two devices, ``devices.same_seeds``;
- ``gpu steps: FILE`` of benchmarks: training steps as train_step.py printed them there;
- ``gpu compiled: FILE`` of benchmarks: the same of compiled.py;
- ``claims: CAMPAIGN``: the papers' leads over SimCSE against its records, ``claims.table``;
- ``questions: CAMPAIGN`` and a question a line, answered together, ``questions.table``;
- ``coverage: METHODS | DESIGNS | TARGETS``: what was measured of procedures, by names of coverage.csv with
  semicolons between, the last two left out for all;
- ``shared sentences: errors`` or ``coverage``: of test pairs that share sentences, by task;
- nothing, the others, such as ``backbones``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import backbones
import claims
import devices
import evidence
import item_clusters
import papers
import profile_costs
import questions
from click.testing import CliRunner
from rows import markdown_table

from bench.cli.main import cli
from bench.comparison.selection import format_seeds
from bench.config import profiles
from bench.papers import paper_compute as scale
from bench.plan.cell_expansion import profile_options
from bench.records.fingerprint import FACTS
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.registry import discover
from bench.render.grid import SCALE
from bench.verify.findings import CHECKS

RESULTS = Path(__file__).parents[1] / "results"
EPOCH_HOURS = 125
"""Core-hours of SimCSE's epoch on BERT-base, as reproduce.md computes them."""
_WIDTH = 120


def filled(page: str) -> str:
    """Return a page with every table as it is now.

    Raises:
        BenchError: what a table asks for isn't in the records.
        ValueError: so.
        SystemExit: so, of a leaderboard.
    """

    def made(found: re.Match[str]) -> str:
        begin, name, what, end = found.groups()
        return f"{begin}\n{TABLES[name](*[what] if what else []).strip()}\n\n{end}"

    return _MARK.sub(made, page)


def leaderboard(campaign: str) -> str:
    """A campaign's leaderboard as markdown."""
    where = ["--results", str(RESULTS), "--campaign", campaign]
    done = CliRunner().invoke(cli, ["report", *where, "--table", "leaderboard", "--format", "markdown"])
    if done.exception:
        raise SystemExit(f"docs: no leaderboard of {campaign}: {done.exception}")
    return done.output


def rows_made(campaign: str) -> str:
    """The commands that make a campaign's rows, one for all of a suite that have the same seeds."""
    seeds: dict[str, dict[str, set[int]]] = {}
    for record in ResultStore(RESULTS, campaign).records():
        found = seeds.setdefault(record.suite, {}).setdefault(record.method, set())
        found.update([] if record.seed is None else [record.seed])
    commands, own = [], profiles.load_profile(campaign).suites
    for suite, rows in sorted(seeds.items(), key=lambda row: (row[0] not in own, row[0])):
        together: dict[tuple[int, ...], list[str]] = {}
        most = max(rows.values(), key=len)  # with which those go that have none
        for method in sorted(rows, key=lambda name: ("[" in name, name)):
            together.setdefault(tuple(sorted(rows[method] or most)), []).append(method)
        options = "--probes all" if suite in own else f"--suite {suite}"
        for some, methods in sorted(together.items(), key=lambda row: -len(row[0])):
            listed = format_seeds(some).partition(" ")[2]
            start = f"bench run --profile {campaign} --seeds {listed} --campaign {campaign} {options}"
            commands.append(_wrapped(start, methods))
    return "\n".join(["```sh", *commands, "```\n"])


def _wrapped(start: str, methods: Sequence[str]) -> str:
    """A command of these methods in lines of at most ``_WIDTH``, where their names allow it."""
    lines = [f'{start} --methods "']
    for method in methods:
        piece = method + ('"' if method == methods[-1] else ",")
        if len(lines[-1]) + len(piece) >= _WIDTH:
            lines[-1] += "\\"
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def rates_table(profile: str) -> str:
    """Dev scores of the values that each option of a profile's methods was chosen from, as markdown."""
    tuned = profiles.load_profile(profile).tuning
    values = sorted({value for row in tuned for value, _ in row["dev"]})
    rows = []
    for row in tuned:
        dev = dict(row["dev"])
        best = max(dev, key=dev.__getitem__)
        cells = [f"{100 * dev[value]:.2f}" if value in dev else "" for value in values]
        marked = [f"**{cell}**" if value == best else cell for value, cell in zip(values, cells, strict=True)]
        rows.append((f"`{row['method']}`", f"`{row['option']}`", *marked))
    return markdown_table(("method", "option", *(f"{value:g}" for value in values)), rows)


def made_table() -> str:
    """Loss along the training that made the backbone of minilm-lm, as markdown."""
    made = profiles.load_profile("minilm-lm").backbone["made"]
    steps, losses = zip(*made["loss"], strict=True)
    row = ("loss of the steps before", *(f"{loss:.2f}" for loss in losses))
    said = f"Masked accuracy on unseen lines {made['masked_accuracy']:.3f}; the weights: `{made['weights']}`."
    return f"{markdown_table(('step', *map(str, steps)), [row])}\n{said}\n"


def mlm_table() -> str:
    """Dev scores over the steps of language modelling that made the backbone, as markdown."""
    of_steps: dict[int, list[RunRecord]] = {}
    start = profiles.load_profile("minilm-lm").backbone["from"]
    for record in ResultStore(RESULTS, "mlm-steps").records():
        named = record.backbone or {}
        steps = 0 if named["sha256"] == start else int(named["name"].removeprefix("lm"))
        of_steps.setdefault(steps, []).append(record)
    rows = []
    for steps, found in sorted(of_steps.items()):
        scores = {
            name: [SCALE * (r.score("avg") or 0) for r in found if r.method in (name, f"{name}[lr=3e-05]")]
            for name in _CURVE
        }
        cells = [" and ".join(f"{score:.2f}" for score in sorted(own)) for own in scores.values()]
        rows.append((f"{steps:,}", *cells))
    return markdown_table(("steps", *_CURVE.values()), rows)


_CURVE = {
    "untrained": "untrained, [CLS]",
    "untrained[pooling=avg]": "untrained, mean",
    "simcse": "SimCSE, 60 steps, two seeds",
}


def relative_costs() -> dict[str, float]:
    """CPU time of a seed of each method on the million sentences, in epochs of SimCSE.

    The sum over stages of CPU seconds a training sentence in campaign ``mini-equal`` times the epochs in
    profile ``bert-base``, over SimCSE's of the same seed; the mean over seeds. Methods that read no sentences
    of it in some stage have none.
    """
    records = [
        r
        for r in ResultStore(RESULTS, "mini-equal").records()
        if r.method == r.name and (stages := r.training.get("stages"))
        if all(stage["sentences_seen"] for stage in stages.values())
    ]
    unit = {record.seed: _cost(record) for record in records if record.name == "simcse"}
    records = [record for record in records if record.seed in unit]
    names = dict.fromkeys(record.name for record in records)
    return {name: fmean(_cost(r) / unit[r.seed] for r in records if r.name == name) for name in names}


def cost_table() -> str:
    """Those costs, and the core-hours that they come to, as markdown."""
    rows = [
        (f"`{name}`", f"{cost:.1f}", f"{5 * round(EPOCH_HOURS * cost / 5):,}")
        for name, cost in sorted(relative_costs().items(), key=lambda item: (item[1], item[0]))
    ]
    return markdown_table(("method", "epochs of SimCSE", "core-hours a seed, computed"), rows)


def checks_table() -> str:
    """What verification checks, from the program's own table, as markdown."""
    return markdown_table(("check", "it holds that"), list(CHECKS.items()))


def facts_table() -> str:
    """What determines a result, from the program's own table, as markdown."""
    header = ("fact", "part of the key", "the gate compares", "seeds are averaged")
    rows = [
        (
            fact.name,
            "yes" if fact.keyed else "no",
            "no" if fact.breaks else "yes",
            "no" if fact.keyed and fact.in_family else "yes",
        )
        for fact in FACTS
    ]
    return markdown_table(header, rows)


def scale_table() -> str:
    """Hours of the papers' methods on one GPU, by arithmetic, as markdown."""
    header = ("method", "passes x tokens of each stage", "hours a seed", "of its own stages")
    return markdown_table(header, scale.hour_rows())


def grid_table() -> str:
    """Hours and money of the papers' whole grids, by arithmetic, as markdown."""
    grids = {profile: scale.grid_hours(profile) for profile in ("bert-base", "roberta-base")}
    whole, (_, alone) = sum(grids.values()), scale.longest_method("bert-base")
    count = len(scale.trained_methods("bert-base"))
    named = (
        (f"{count} trained methods x {scale.SEEDS} seeds, BERT-base", grids["bert-base"]),
        ("the same, RoBERTa-base", grids["roberta-base"]),
        ("both", whole),
    )
    rows = [(name, f"{h:.0f} h", f"{h / 8:.0f} h", f"{max(h / 64, alone):.0f} h") for name, h in named]
    table = markdown_table(("grid", "one H200", "eight, cells side by side", "64"), rows)
    money = f"At 3 an hour both grids come to about {round(3 * whole, -1):.0f}."
    return f"{table}\nIn money: hours of one H200 times its price. {money}\n"


def _cost(record: RunRecord) -> float:
    """CPU seconds a sentence of the training text."""
    seconds, total = record.timing["training_cpu_seconds"], 0.0
    profile, methods = profiles.load_profile("bert-base"), discover()
    for role, stage in record.training["stages"].items():
        last = role.rpartition("/")[2]
        card = methods.get(last if last in methods.names() else record.name).card
        epochs = int(profile_options(card, profile).get("epochs", 1))
        total += epochs * seconds[role] / stage["sentences_seen"]
    return total


TABLES: dict[str, Callable[..., str]] = {
    "leaderboard": leaderboard,
    "rows": rows_made,
    "rates": rates_table,
    "shared sentences": lambda what: {
        "errors": item_clusters.table,
        "coverage": item_clusters.coverage_by_task,
    }[what](),
    "devices": lambda campaigns: devices.table(RESULTS, campaigns),
    "same seeds": lambda campaigns: devices.same_seeds(RESULTS, campaigns),
    "gpu steps": lambda log: devices.steps_table(RESULTS.parent / "benchmarks" / log),
    "gpu compiled": lambda log: devices.compiled_table(RESULTS.parent / "benchmarks" / log),
    "claims": lambda campaign: claims.table(RESULTS, campaign),
    "questions": lambda asked: questions.table(RESULTS, *asked.split("\n", 1)),
    "coverage": lambda what: evidence.table(*what.split("|")),
    "backbones": backbones.table,
    "profile costs": profile_costs.table,
    "papers": papers.sections,
    "cost": cost_table,
    "scale": scale_table,
    "grids": grid_table,
    "facts": facts_table,
    "checks": checks_table,
    "mlm steps": mlm_table,
    "mlm made": made_table,
}
"""What makes a table, by the name of its marks."""
_MARK = re.compile(rf"(<!-- ({'|'.join(TABLES)})(?:: ([^>]+?))?\s*-->\n).*?(<!-- /\2 -->)", re.S)
