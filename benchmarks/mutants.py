"""What the gate catches: errors planted one by one into a copy of the code, each judged by ``bench check``.

Every error of benchmarks/mutations.py gets a copy of the package, and the gate runs there as a process of its
own, against the committed reference. First it judges a copy with nothing planted, which has to pass.

    nice python benchmarks/mutants.py --out mutants.json               # hours; goes on where it stopped
    nice python benchmarks/mutants.py --out mutants.json --elsewhere   # and as on another CPU
    python benchmarks/mutants.py --only pearson,cls_is_the_mean        # some of them
    nice python benchmarks/mutants.py --false-alarms seeds.json        # gates over unchanged code that fail

"caught": exit code 1 with a verdict. "refused": exit code 2 or 3, which stops a build too, but as input that
can't be judged; counted on its own. Exit code 1 without a verdict, and any other, is a crash. The reference's
versions have to be installed, as other ones leave trained cells unverified.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mutations import MUTATIONS, DoesNotApplyError, Mutation

from bench.records.environment import CHECKOUT_FOLDERS
from bench.records.filesystem import write_atomically
from bench.records.integrity import seal_record
from bench.records.record import record_to_json
from bench.records.store import ResultStore

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "results" / "reference"
NOTHING = "(nothing)"
"""Name of the copy without an error."""
CAUGHT, MISSED, REFUSED, CRASHED, SLOW = "caught", "missed", "refused", "crashed", "too slow"
STALE = "does not apply"
GOAL = 22 / 24
"""Smallest share of the errors that the gate has to catch."""
ELSEWHERE = "another processor"
_BAD = ("regression", "changed", "unverified", "failed", "missing")


@dataclass(frozen=True)
class Row:
    """What the gate said of one error.

    Args:
        name: The mutation's name, or NOTHING.
        group: Its group.
        outcome: "caught", "missed", "refused", "crashed", "too slow" or "does not apply".
        by: Question and verdict of the first cell that failed, such as "recompute: changed"; or "".
        stage: First stage whose numbers differ, as that cell's verdict names it, or "".
        points: Largest change of a cell's average, new - reference, x 100; None where none is known.
        cpu_seconds: Of all processes of the gate.
        said: The verdict in one line, or the last line of stderr.
    """

    name: str
    group: str
    outcome: str
    by: str = ""
    stage: str = ""
    points: float | None = None
    cpu_seconds: float = 0.0
    said: str = ""


@dataclass(frozen=True)
class Ran:
    """How a process ended.

    Args:
        code: Its exit code; None where it was stopped at the limit.
        verdict: What it wrote to --json, None where that isn't there.
        error: Last line of stderr.
        cpu_seconds: Of it and its children.
    """

    code: int | None
    verdict: Mapping[str, Any] | None
    error: str
    cpu_seconds: float


def judged(name: str, group: str, ran: Ran) -> Row:
    """Tell caught, missed, refused and crashed apart.

    Args:
        name: The mutation's name.
        group: Its group.
        ran: How its gate ended.
    """
    cpu, verdict = ran.cpu_seconds, ran.verdict
    if ran.code is None:
        return Row(name, group, SLOW, cpu_seconds=cpu, said=ran.error)
    if ran.code in (2, 3):
        said = str(verdict["sentence"]) if verdict else ran.error
        return Row(name, group, REFUSED, f"exit code {ran.code}", cpu_seconds=cpu, said=said)
    if ran.code not in (0, 1) or verdict is None:
        return Row(name, group, CRASHED, f"exit code {ran.code}", cpu_seconds=cpu, said=ran.error)
    cells = [*verdict["cells"], *([verdict["overall"]] if verdict.get("overall") else [])]
    cells += verdict.get("wrong_values", [])
    bad = [cell for cell in cells if cell["status"] in _BAD]
    if (ran.code == 1) != bool(bad):
        return Row(name, group, CRASHED, "exit code and verdict differ", cpu_seconds=cpu, said=ran.error)
    by = f"{bad[0].get('question', 'retrain')}: {bad[0]['status']}" if bad else ""
    stage = str((bad[0].get("stage") if bad else "") or "")
    outcome = CAUGHT if bad else MISSED
    return Row(name, group, outcome, by, stage, moved(cells), cpu, str(verdict["sentence"]))


def moved(cells: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the largest change of an average, new - reference, in points; None where none was compared."""
    found = [-100 * float(cell["drops"]["avg"]["drop"]) for cell in cells if "avg" in cell.get("drops", {})]
    return max(found, key=abs, default=None)


def copy_code(source: Path, target: Path) -> None:
    """Copy the package as the checkout lays it out: four folders side by side."""
    for folder in ("bench", *CHECKOUT_FOLDERS):
        shutil.copytree(source / folder, target / folder)


def plant(mutation: Mutation | None, target: Path) -> None:
    """Copy the package, and put an error into the copy; raises DoesNotApplyError."""
    text = None if mutation is None else mutation.applied(ROOT)
    copy_code(ROOT, target)
    if mutation is not None and text is not None:
        (target / mutation.file).write_text(text, encoding="utf-8")


def run_gate(code: Path, reference: Path, options: Sequence[str], limit: float) -> Ran:
    """Run the gate of a copy against a reference.

    Args:
        code: Folder of the copy; the verdict is written next to the package.
        reference: The reference's folder.
        options: Further options of bench check.
        limit: Wall seconds after which it is stopped.
    """
    verdict = code / "verdict.json"
    command = [sys.executable, "-m", "bench", "check", "--reference", str(reference), "--json", str(verdict)]
    paths = os.pathsep.join(filter(None, (str(code), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    before = os.times()
    process = subprocess.Popen(  # noqa: S603
        [*command, *options],
        cwd=code,  # python -m looks there first
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=limit)
        returned: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its workers too
        _, errors = process.communicate()
        returned = None
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    last = (errors.strip().splitlines() or [""])[-1]
    found = json.loads(verdict.read_text(encoding="utf-8")) if verdict.is_file() else None
    return Ran(returned, found, last.replace(str(code), "COPY")[:300], round(used, 1))


def tried(mutation: Mutation | None, reference: Path, options: Sequence[str], limit: float) -> Row:
    """Plant an error and let the gate judge."""
    name, group = (NOTHING, "") if mutation is None else (mutation.name, mutation.group)
    with tempfile.TemporaryDirectory(prefix="bench-mutant-") as folder:
        code = Path(folder).resolve() / "copy"
        code.mkdir()
        try:
            plant(mutation, code)
        except DoesNotApplyError as error:
            return Row(name, group, STALE, said=str(error))
        return judged(name, group, run_gate(code, reference, options, limit))


@contextmanager
def from_elsewhere(reference: Path) -> Iterator[Path]:
    """A copy of a reference whose records say that another processor made them."""
    with tempfile.TemporaryDirectory(prefix="bench-reference-") as folder:
        copy = Path(folder) / "reference"
        shutil.copytree(reference, copy)
        store = ResultStore(copy.parent, copy.name)
        for record in store.records():
            other = replace(record, timing={**record.timing, "processor": ELSEWHERE})
            write_atomically(store.path(record.place), record_to_json(seal_record(other)).encode("utf-8"))
        yield copy


def fingerprint(reference: Path, options: Sequence[str], elsewhere: bool) -> str:
    """Return the sha256 of everything but the errors that decides the rows: code, reference, options."""
    digest = hashlib.sha256(repr((list(options), elsewhere)).encode())
    files = [path for folder in ("bench", *CHECKOUT_FOLDERS) for path in (ROOT / folder).rglob("*.py")]
    for path in sorted({*files, *(path for path in reference.rglob("*") if path.is_file())}):
        if "/.locks/" not in path.as_posix():
            digest.update(path.as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


class Table:
    """The rows so far, kept in a file that a later run goes on from.

    Args:
        file: JSON; None keeps nothing.
        key: What the rows depend on besides their error.
        column: "here" or "elsewhere".
    """

    def __init__(self, file: Path | None, key: str, column: str) -> None:
        self.file, self.key, self.column = file, key, column
        self.kept: dict[str, Any] = {}
        if file is not None and file.exists():
            self.kept = json.loads(file.read_text(encoding="utf-8"))

    def find(self, mutation: Mutation | None) -> Row | None:
        """Return an error's row if it was judged by the same code, reference and options."""
        found = self.kept.get(self.column, {}).get(self._name(mutation))
        if found is None or (found["key"], found["mutation"]) != (self.key, self._digest(mutation)):
            return None
        return Row(**found["row"])

    def add(self, mutation: Mutation | None, row: Row) -> None:
        """Keep a row, and write the file."""
        entry = {"key": self.key, "mutation": self._digest(mutation), "row": asdict(row)}
        self.kept.setdefault(self.column, {})[self._name(mutation)] = entry
        if self.file is not None:
            write_atomically(self.file, (json.dumps(self.kept, indent=1, sort_keys=True) + "\n").encode())

    @staticmethod
    def _name(mutation: Mutation | None) -> str:
        return NOTHING if mutation is None else mutation.name

    @staticmethod
    def _digest(mutation: Mutation | None) -> str:
        return hashlib.sha256(repr(mutation).encode()).hexdigest()


def cells_of(row: Row | None) -> str:
    """Verdict, points and CPU seconds of a row in the table."""
    if row is None:
        return "| | | "
    said = f"{row.by}{f', {row.stage}' if row.stage else ''}"
    verdict = said if row.outcome == CAUGHT else f"**{row.outcome.upper()}**{f' ({said})' if said else ''}"
    if row.name == NOTHING and row.outcome == MISSED:
        verdict = "passes"
    points = "" if row.points is None else f"{round(row.points, 2) + 0.0:+.2f}"
    return f"| {verdict} | {points} | {row.cpu_seconds:.0f} "


def shown(columns: Mapping[str, Sequence[Row]]) -> str:
    """Return the table in markdown: a row an error, three columns a place."""
    names = list(dict.fromkeys((row.name, row.group) for rows in columns.values() for row in rows))
    head = "".join("| caught by | points | CPU s " for _ in columns)
    lines = [f"| planted error | group {head}|", f"|---|---{'|---|---:|---:' * len(columns)}|"]
    for name, group in names:
        found = (next((row for row in rows if row.name == name), None) for rows in columns.values())
        lines.append(f"| {name} | {group} {''.join(map(cells_of, found))}|")
    return "\n".join(lines)


def totals(place: str, rows: Sequence[Row]) -> str:
    """Count the outcomes in one line."""
    planted = [row for row in rows if row.name != NOTHING]
    counts = Counter(row.outcome for row in planted)
    others = (REFUSED, MISSED, CRASHED, SLOW, STALE)
    rest = "".join(f", {counts[each]} {each}" for each in others if counts[each])
    seconds = sum(row.cpu_seconds for row in rows)
    return f"{place}: {counts[CAUGHT]} of {len(planted)} caught{rest}; {seconds:,.0f} CPU s"


def passed(rows: Sequence[Row]) -> bool:
    """True if the gate passes unchanged code, catches its share of the errors, and none broke the run."""
    planted = [row for row in rows if row.name != NOTHING]
    unchanged = all(row.outcome == MISSED for row in rows if row.name == NOTHING)
    broken = any(row.outcome in (CRASHED, SLOW, STALE) for row in planted)
    judgeable = [row for row in planted if row.outcome != REFUSED]
    return unchanged and not broken and sum(r.outcome == CAUGHT for r in judgeable) >= GOAL * len(judgeable)


def chosen(only: str | None) -> list[Mutation | None]:
    """Return the errors of these names, all by default, behind the copy without one."""
    if only is None:
        return [None, *MUTATIONS]
    by_name: dict[str, Mutation | None] = {NOTHING: None, **{each.name: each for each in MUTATIONS}}
    if missing := [name for name in only.split(",") if name not in by_name]:
        raise SystemExit(f"--only: no planted error '{missing[0]}'; expected some of {', '.join(by_name)}")
    return [by_name[name] for name in only.split(",")]


def column(given: argparse.Namespace, place: str, reference: Path) -> list[Row]:
    """Judge every error that isn't judged yet, a line each on the screen as it ends."""
    options = [] if given.plain else ["--strict"]
    options += ["--methods", given.methods] if given.methods else []
    table = Table(given.out, fingerprint(given.reference, options, place == "elsewhere"), place)
    rows = []
    for mutation in chosen(given.only):
        row = table.find(mutation)
        if row is None:
            row = tried(mutation, reference, options, given.limit)
            table.add(mutation, row)
        rows.append(row)
        print(f"{place}: {row.name}, {row.outcome}, {row.by or row.said}", file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Plant, judge, print; or count false alarms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="campaign folder")
    parser.add_argument("--only", metavar="NAME,...", help=f"some errors; {NOTHING} for the unchanged copy")
    parser.add_argument("--methods", metavar="METHOD,...", help="only these rows of the reference")
    parser.add_argument("--elsewhere", action="store_true", help="a column as on another CPU too")
    parser.add_argument("--plain", action="store_true", help="the gate without --strict")
    parser.add_argument("--limit", type=float, default=1800, help="wall seconds of a gate")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON that keeps the rows")
    parser.add_argument("--false-alarms", type=Path, metavar="FILE", help="JSON that keeps the pool of seeds")
    parser.add_argument("--pool", type=int, default=24, help="seeds a row in that pool")
    parser.add_argument("--gates", type=int, default=4000, help="gates over unchanged code, each way")
    given = parser.parse_args()
    given.reference = given.reference.resolve()
    if given.false_alarms is not None:
        from alarms import count_alarms

        sys.exit(count_alarms(given.reference, given.false_alarms, seeds=given.pool, gates=given.gates))
    columns = {"here": column(given, "here", given.reference)}
    if given.elsewhere:
        with from_elsewhere(given.reference) as reference:
            columns["elsewhere"] = column(given, "elsewhere", reference)
    print(shown(columns))
    for place, rows in columns.items():
        print(totals(place, rows))
    sys.exit(int(not passed(columns["here"])))


if __name__ == "__main__":
    main()
