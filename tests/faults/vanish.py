"""A file of the model, of the data or of the training text vanishes or changes in mid-run; then it is back.

``python -m tests.faults.vanish``
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.data.toy import toy_task
from tests.faults.checks import check_kept, expect, finished, records, stable
from tests.faults.runs import ROOT, SIMCSE, TRAINED, Work, finish, run, start
from tests.faults.scripts import script

BACKBONE = ROOT / "bench" / "data" / "mini" / "backbone"
DATA = Work(
    "data",
    ("--methods", "fault_plain[wait=0.5]", "--seeds", "1-2", "--data", "data", "--accept-data"),
)
"""A suite of a file next to the toy suite; a worker reads the file after its first cell on the toy suite."""
REAL = Work(
    "real simcse",
    ("--methods", "fault_plain[wait=0.5],simcse", "--backbone", "backbone", *SIMCSE.arguments[2:]),
)
"""SimCSE on a copy of mini's backbone; its second seed loads it after the plain method's."""
_CHANGED = ("changed since the run was planned",)


@dataclass(frozen=True)
class Loss:
    """What is lost in mid-run.

    Args:
        file: Of the scratch folder.
        harm: What happens to it.
        work: The run.
        options: More of its command line.
        when: It happens when the log of the run has this many lines.
        reasons: Of the cells that fail, one of these by the moment; none where the file was read for good.
    """

    file: str
    harm: Callable[[Path], object]
    work: Work
    options: tuple[str, ...]
    when: int
    reasons: tuple[str, ...]


def _change(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content.replace(b"on the hill", b"in the lake").replace(b"weights", b"wEights"))


def _flip(file: Path) -> None:
    """Change one bit of one weight."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


SICK = "data/SICK/SICK_trial.txt"
LOSSES = {
    "model vanishes": Loss("model/model.safetensors", Path.unlink, TRAINED, ("--workers", "1"), 4, _CHANGED),
    "model changes": Loss("model/model.safetensors", _change, TRAINED, ("--workers", "1"), 4, _CHANGED),
    "model changes, two workers": Loss(
        "model/model.safetensors", _change, TRAINED, ("--workers", "2"), 5, _CHANGED
    ),
    "weights vanish": Loss(
        "backbone/model.safetensors",
        Path.unlink,
        REAL,
        ("--workers", "1"),
        2,
        ("model.safetensors", *_CHANGED),
    ),
    "weights change": Loss("backbone/model.safetensors", _flip, REAL, ("--workers", "1"), 2, _CHANGED),
    "data vanish": Loss(SICK, Path.unlink, DATA, ("--workers", "2"), 1, ("this data file is missing",)),
    "data change": Loss(SICK, _change, DATA, ("--workers", "2"), 1, _CHANGED),
    "data vanish, one process": Loss(SICK, Path.unlink, DATA, ("--workers", "1"), 1, ()),
    "text vanishes": Loss("corpus.txt", Path.unlink, TRAINED, ("--workers", "1"), 2, ()),
}


def vanish(folder: Path, loss: Loss) -> Counter[str]:
    """Harm a file in mid-run, put it back, and run the same command again.

    Args:
        folder: A new folder.
        loss: What is lost.

    Returns:
        How many cells failed with the reason, and how many were finished all the same.

    Raises:
        NotSurvivedError: what didn't hold.
    """
    whole, scratch = folder / "undisturbed", folder / "disturbed"
    for each in (whole, scratch):
        each.mkdir(parents=True)
        _make_data(each / "data")
        if loss.work is REAL:
            shutil.copytree(BACKBONE, each / "backbone")
    done = run(whole, _command(loss, whole))
    expect(done.code == 0, f"the undisturbed run failed: {done.error[-500:]}")
    expected = stable(whole)

    command = _command(loss, scratch)
    started = start(scratch, command, FAULT_WAIT="0.1")
    file, log = scratch / loss.file, scratch / "log"
    started.wait_for(log, lines=loss.when)
    content, before = file.read_bytes(), finished(scratch)
    loss.harm(file)
    done = started.wait()
    file.write_bytes(content)
    after = records(scratch)
    failed = [record for record in after if record.status == "failed"]
    check_kept(before, finished(scratch))
    expect(len(after) == len(records(whole)), f"{len(after)} records: {done.error[-500:]}")
    expect(bool(failed) == bool(loss.reasons), f"{len(failed)} cells failed: {done.error[-500:]}")
    expect(done.code == (1 if failed else 0), f"exit code {done.code}: {done.error[-500:]}")
    expect("Traceback" not in done.error, done.error[-800:])
    for record in failed:
        said = record.reason or ""
        expect(
            any(reason in said for reason in loss.reasons), f"the reason of a failed cell: {record.reason}"
        )
    finish(scratch, command, expected)
    return Counter({"failed with the reason": len(failed), "finished all the same": len(after) - len(failed)})


def _command(loss: Loss, folder: Path) -> list[str]:
    suites = ("--suite", "toy,sickr-dev") if loss.work is DATA else ()
    return loss.work.command(folder, *suites, *loss.options)


def _make_data(folder: Path) -> None:
    """SentEval's layout with the toy suite's pairs in the place of SICK's."""
    (folder / "SICK").mkdir(parents=True)
    (subset,) = toy_task().subsets
    rows = [
        f"{number}\t{first}\t{second}\t{1 + 0.8 * gold:.1f}\tNEUTRAL"
        for number, (first, second, gold) in enumerate(
            zip(subset.first, subset.second, subset.gold, strict=True), start=1
        )
    ]
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    (folder / "SICK" / "SICK_trial.txt").write_text("\n".join([header, *rows]) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Lose every file."""

    def survive(folder: Path, options: dict[str, int]) -> Counter[str]:
        counts = Counter[str]()
        for number in range(options["rounds"]):
            for name, loss in LOSSES.items():
                found = vanish(folder / f"{name}-{number}", loss)
                print(f"{name}: {dict(found)}", flush=True)
                counts += found + Counter({"files": 1})
        return counts

    return script(__doc__, survive, arguments, rounds=1)


if __name__ == "__main__":
    raise SystemExit(main())
