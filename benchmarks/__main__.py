"""Run every benchmark, one after the other, each in a process of its own, and write the table of claims.

    python benchmarks [--data data]                 # three quarters of an hour on a free machine
    python benchmarks --only memory --only stats    # to the screen, no file is written
    python benchmarks --quick                       # tiny sizes: do they work?
    python benchmarks --device cuda --precision bf16    # what takes them, to the screen

The table goes between the marks ``<!-- speed-table -->`` and ``<!-- /speed-table -->`` of docs/speed.md, and
some of its rows between those of README.md. Exit code 1: a goal is missed or a benchmark failed.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from claim import Claim, parse

from bench.data.data_source import data_folder
from bench.records import environment as provenance

HERE = Path(__file__).resolve().parent
PAGE, README = HERE.parent / "docs" / "speed.md", HERE.parent / "README.md"
IN_README = ("sts_eval", "transfer MR", "train_step simcse", "train_step tncse", "heap", "probes")
"""Rows that stand in README.md too, one that gains nothing and one that costs more among them."""
START, END = "<!-- speed-table -->", "<!-- /speed-table -->"


@dataclass(frozen=True)
class Script:
    """A benchmark.

    Args:
        name: Its file.
        options: Its options.
        quick: Its options for a try without data, None where there is none.
        data: It takes ``--data``, which the measurement needs.
        device: It takes ``--device``.
        precision: It takes ``--precision``.
    """

    name: str
    options: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = None
    data: bool = False
    device: bool = False
    precision: bool = False


SCRIPTS = (
    Script("sts_eval", data=True, device=True),
    Script("st_eval", quick=("--suite", "toy"), data=True, device=True),
    Script("transfer", ("--folds", "1"), ("--rows", "100", "--folds", "1", "--goal", "0"), data=True),
    Script(
        "train_step",
        quick=("--profile", "mini", "--steps", "1", "--only", "simcse"),
        data=True,
        device=True,
        precision=True,
    ),
    Script(
        "st_train",
        quick=("--profile", "mini", "--steps", "2", "--rounds", "1"),
        data=True,
        device=True,
        precision=True,
    ),
    Script("compiled", quick=("--profile", "mini", "--steps", "1"), data=True, device=True, precision=True),
    Script("heap", quick=("--profile", "mini", "--rounds", "1", "--steps", "1"), data=True),
    Script("probes", quick=("--profile", "mini", "--pairs", "20", "--rounds", "1"), data=True),
    Script("stats", ("--only", "speed"), ("--only", "speed", "--peer-draws", "2", "--draws", "100")),
    Script("stats", ("--only", "clusters"), ("--only", "clusters", "--draws", "100")),
    Script("coverage", quick=("--quick",)),
    Script("gradient_probe", quick=("--peer-cells", "1")),
    Script("report", quick=("--methods", "4", "--seeds", "2", "--rounds", "1", "--rows", "9")),
    Script("site_build", quick=("--campaigns", "2", "--methods", "2", "--seeds", "2")),
    Script("end_to_end", quick=("--methods", "word_overlap", "--seeds", "1", "--suite", "toy")),
    Script(
        "cost_curves",
        quick=("--method", "word_overlap", "--methods", "word_overlap", "--seeds", "1", "--suite", "toy"),
    ),
    Script("loading", quick=("--megabytes", "2", "--loads", "bf16:fp32", "bin:fp32")),
    Script("memory", quick=("--sizes", "1000", "2000", "--dim", "8")),
    Script("training_memory", ("--peer",), quick=("--sizes", "4", "8", "--chunk", "2", "--steps", "1")),
    Script("import_mteb", quick=("--models", "3", "--copies", "2", "--check", "2")),
)


def run(
    script: Script, data: Path | None, quick: bool, device: str = "cpu", precision: str = "fp32"
) -> tuple[list[Claim], str]:
    """Run a script, its output on the screen; its claims, and why it failed ("" if it didn't)."""
    options = list((script.quick or ()) if quick else script.options)
    if script.data and data is not None and not quick:
        options += ["--data", str(data)]
    if device != "cpu":
        options += ["--device", device]
    if precision != "fp32":
        options += ["--precision", precision]
    command = [sys.executable, str(HERE / f"{script.name}.py"), *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    claims = []
    for line in done.stdout.splitlines():
        found = parse(line)
        if found is None:
            print(line, flush=True)
        else:
            claims.append(found)
    reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return claims, reason if done.returncode else ""


def takes(script: Script, device: str, precision: str) -> bool:
    """True for a script that measures on the device, at the precision."""
    return (script.device or device == "cpu") and (script.precision or precision == "fp32")


def figure(value: float) -> str:
    """Three digits or more, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def row(claim: Claim) -> str:
    """A claim as a row of the table."""
    peer = "" if claim.peer is None else figure(claim.peer)
    ratio = "" if claim.ratio is None else f"{claim.ratio:.3g}"
    met = {True: "yes", False: "**no**", None: ""}[claim.met]
    cells = (claim.name, claim.what, figure(claim.ours), peer, claim.unit, ratio, claim.goal, met)
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """Date, processor, versions and commit, without a name or a path of the machine."""
    facts = provenance.collect_provenance(device="cpu", threads=1)
    timing = provenance.build_timing(started=datetime.now(UTC).timestamp(), wall=0, cpu=0)
    git, versions = facts["git"], facts["versions"]
    commit = "no commit" if git["commit"] is None else f"commit {git['commit'][:12]}"
    named = ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers", "numpy", "scipy"))
    return (
        f"{timing['started'][:10]}, {timing['processor']}, {timing['cores']} cores, "
        f"{facts['platform']}, Python {platform.python_version()}, {named}, "
        f"{commit}{' and changes' if git['dirty'] else ''}"
    )


def table(claims: Sequence[Claim], failures: Sequence[str]) -> str:
    """The table in markdown, with where and when it was measured."""
    head = "| benchmark | what: compared with | ours | peer | unit | ratio | goal | met |"
    lines = [machine() + ".", "", head, "|---|---|---:|---:|---|---:|---|---|", *map(row, claims)]
    return "\n".join([*lines, *(["", *(f"Failed: {failure}." for failure in failures)] if failures else [])])


def place(text: str, files: Sequence[Path]) -> None:
    """Put the table between the marks of each file that has them."""
    for file in files:
        content = file.read_text(encoding="utf-8") if file.is_file() else ""
        before, start, rest = content.partition(START)
        _, end, after = rest.partition(END)
        if start and end:
            file.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Run what is asked for, print the table, write it where all of it was measured."""
    names = [script.name for script in SCRIPTS]
    parser = argparse.ArgumentParser(
        prog="python benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", action="append", choices=names)
    parser.add_argument("--quick", action="store_true", help="tiny sizes; writes nothing")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    given = parser.parse_args()
    where = (given.device, given.precision)
    data = data_folder(given.data)
    claims: list[Claim] = []
    failures: list[str] = []
    for script in SCRIPTS:
        if given.only and script.name not in given.only:
            continue
        if (given.quick and script.quick is None) or not takes(script, *where):
            continue
        print(f"{script.name} ...", file=sys.stderr, flush=True)
        found, reason = run(script, data, given.quick, *where)
        claims += found
        failures += [f"{script.name}, {reason}"] if reason else []
    text = table(claims, failures)
    print(text)
    if not given.only and not given.quick and where == ("cpu", "fp32"):
        place(text, [PAGE])
        place(table([claim for claim in claims if claim.name in IN_README], failures), [README])
    if failures or any(claim.met is False for claim in claims):
        sys.exit(1)


if __name__ == "__main__":
    main()
