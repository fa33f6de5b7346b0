"""A file of the model, the data or the training text vanishes or changes in mid-run; then it is back."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.checks import check_kept, expect, finished, records
from tests.faults.corrupt import flip
from tests.faults.runs import ROOT, SIMCSE, TRAINED, Work, finish, start, undisturbed
from tests.faults.scripts import Parts, script
from tests.support.transfer_data import write_similarity

BACKBONE = ROOT / "bench" / "data" / "mini" / "backbone"
DATA = Work(
    "data", ("--methods", "fault_plain[wait=0.5]", "--seeds", "1-2", "--data", "data", "--accept-data")
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
    file: str
    harm: Callable[[Path], object]
    work: Work
    options: tuple[str, ...]
    when: int
    reasons: tuple[str, ...]


def _change(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content.replace(b"house", b"river").replace(b"weights", b"wEights"))


SICK = "data/SICK/SICK_trial.txt"
MODEL, WEIGHTS = "model/model.safetensors", "backbone/model.safetensors"
ONE, TWO = ("--workers", "1"), ("--workers", "2")
LOSSES = {
    "model vanishes": Loss(MODEL, Path.unlink, TRAINED, ONE, 4, _CHANGED),
    "model changes": Loss(MODEL, _change, TRAINED, ONE, 4, _CHANGED),
    "model changes, two workers": Loss(MODEL, _change, TRAINED, TWO, 5, _CHANGED),
    "weights vanish": Loss(WEIGHTS, Path.unlink, REAL, ONE, 2, ("model.safetensors", *_CHANGED)),
    "weights change": Loss(WEIGHTS, partial(flip, position=-1, bit=0), REAL, ONE, 2, _CHANGED),
    "data vanish": Loss(SICK, Path.unlink, DATA, ONE, 1, ()),
    "text vanishes": Loss("corpus.txt", Path.unlink, TRAINED, ONE, 2, ()),
}


def vanish(folder: Path, loss: Loss) -> Counter[str]:
    whole, scratch = folder / "undisturbed", folder / "disturbed"
    suites = ("--suite", "toy,sickr-dev") if loss.work is DATA else ()
    for root in (whole, scratch):
        root.mkdir(parents=True)
        if loss.work is DATA:
            write_similarity(root / "data")
        if loss.work is REAL:
            shutil.copytree(BACKBONE, root / "backbone")
    expected = undisturbed(loss.work, whole, *suites, *loss.options)
    command = loss.work.command(scratch, *suites, *loss.options)
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
        expect(any(reason in said for reason in loss.reasons), f"the reason of a failed cell: {said}")
    finish(scratch, command, expected)
    return Counter({"failed with the reason": len(failed), "finished all the same": len(after) - len(failed)})


def everything(folder: Path, options: dict[str, int]) -> Parts:
    for number in range(options["rounds"]):
        for name, loss in LOSSES.items():
            yield name, vanish(folder / f"{name}-{number}", loss) + Counter({"files": 1})


if __name__ == "__main__":
    script(__doc__, everything, rounds=1)
