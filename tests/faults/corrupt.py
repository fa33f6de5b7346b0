"""Damage on the disk: to finished stages, to predictions, to records; then the same command again."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from bench.errors import DataError
from bench.execution.stage_cache import is_complete_stage
from bench.records.record import record_to_json
from bench.records.store import ResultStore
from tests.faults.checks import check_one_line, check_whole, expect, finished, stable
from tests.faults.runs import PLAIN, TRAINED, run, undisturbed
from tests.faults.scripts import Parts, script

Damage = Callable[[Path], object]


def flip(file: Path, position: int = -100, bit: int = 3) -> None:
    content = bytearray(file.read_bytes())
    content[position % len(content)] ^= 1 << bit
    file.write_bytes(content)


def truncate(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def _empty_folder(file: Path) -> None:
    for entry in file.parent.iterdir():
        entry.unlink()


FILES: dict[str, Damage] = {"flipped": flip, "truncated": truncate, "emptied": empty, "missing": Path.unlink}
STAGES: dict[str, tuple[str, Damage]] = {
    **{
        f"{file} {name}": (file, do)
        for file in ("part-1", "facts.json", "MANIFEST.json")
        for name, do in FILES.items()
    },
    "stage emptied": ("part-1", _empty_folder),
    "stage missing": ("part-1", lambda file: shutil.rmtree(file.parent)),
    "file added": ("part-1", lambda file: file.with_name("part-9").write_bytes(b"more")),
}


def stages(folder: Path, damages: Sequence[str] = tuple(STAGES)) -> Counter[str]:
    expected, log = undisturbed(TRAINED, folder, "--seeds", "1"), folder / "log"
    command = TRAINED.command(folder, "--seeds", "1")
    content = {path: _content(path) for path in _stages(folder)}
    names = list(damages)
    while names:
        together = [names.pop(0) for _ in range(min(len(names), len(content)))]
        for name, stage in zip(together, sorted(content), strict=False):
            file, damage = STAGES[name]
            damage(stage / file)
            expect(not is_complete_stage(stage), f"{name}: not found")
        log.write_text("")
        campaign = f"after-{len(names)}"
        done = run(folder, [*command, "--campaign", campaign])
        expect(done.code == 0, f"{together}: {done.error[-500:]}")
        trained = log.read_text().count("train")
        expect(trained == len(together), f"{together}: trained {log.read_text().split()}")
        expect(stable(folder, campaign) == expected, f"{together}: other bytes")
        expect({path: _content(path) for path in _stages(folder)} == content, f"{together}: another stage")
    return Counter({"damaged stages": len(damages)})


def _stages(folder: Path) -> list[Path]:
    return [path for path in (folder / "results" / ".stages").iterdir() if not path.name.startswith(".")]


def _content(stage: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in stage.glob("part-*")}


def predictions(folder: Path) -> Counter[str]:
    fact = "seed-2/toy.json: items left out, its predictions are missing or belong to another record"

    def check(name: str) -> None:
        done = run(folder, ["stats", "--draws", "100"])
        expect(done.code == 0 and fact in done.error, f"bench stats, {name}: {done.error[-500:]}")

    return _damage_cells(folder, "toy.npz", FILES, check)


def records(folder: Path) -> Counter[str]:
    def check(name: str) -> None:
        if name != "missing":
            check_one_line(run(folder, ["report"]), "seed-2/toy.json", "this")

    return _damage_cells(folder, "toy.json", {**FILES, "flipped": partial(flip, position=0)}, check)


def _damage_cells(
    folder: Path, name: str, damages: dict[str, Damage], check: Callable[[str], None]
) -> Counter[str]:
    expected, command = undisturbed(PLAIN, folder), PLAIN.command(folder)
    for what, damage in damages.items():
        file = next((folder / "results").glob(f"*/*/fault_plain*/seed-2/{name}"))
        before = finished(folder)
        damage(file)
        check(what)
        done = run(folder, command)
        expect(done.code == 0, f"{what}: {done.error[-500:]}")
        named = ": replaces " in done.error or (what, name) == ("missing", "toy.json")
        expect(named, f"{what}: not named: {done.error[-500:]}")
        check_whole(folder, expected)
        changed = {path.parent.name for path, stamp in finished(folder).items() if before.get(path) != stamp}
        expect(changed == {"seed-2"}, f"{what}: made again: {sorted(changed)}")
    return Counter({f"damaged {name} files": len(damages)})


def flips(folder: Path, count: int, seed: int = 1) -> Counter[str]:
    """Change single bits of a record: each is found when it is read, or changes nothing that it says."""
    undisturbed(PLAIN, folder)
    store = ResultStore(folder / "results", "local")
    first = store.records()[0]
    file = next(store.root.glob("*/fault_plain*/seed-1/toy.json"))
    whole, rng, counts = file.read_bytes(), np.random.default_rng(seed), Counter[str]()
    for _ in range(count):
        position, bit = int(rng.integers(len(whole))), int(rng.integers(8))
        flip(file, position, bit)
        try:
            kept = store.records()[0]
        except DataError:
            counts["flipped bits found"] += 1
        else:
            same = record_to_json(kept, timing=False) == record_to_json(first, timing=False)
            expect(same, f"bit {bit} of byte {position} of a record was changed unseen")
            counts["flipped bits without effect"] += 1
        file.write_bytes(whole)
    return counts


def everything(folder: Path, options: dict[str, int]) -> Parts:
    yield "stages", stages(folder / "stages")
    yield "predictions", predictions(folder / "predictions")
    yield "records", records(folder / "records")
    yield "flips", flips(folder / "flips", options["flips"], options["seed"])


if __name__ == "__main__":
    script(__doc__, everything, flips=200, seed=1)
