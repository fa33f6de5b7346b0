"""Run everything on the stand-in, or a GPU, and write what was found: python -m tests.support.standin -h."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from tests.support.standin.guard import begin
from tests.support.standin.target import KINDS, choose

PARTS = ("faults", "methods", "lowered", "variants", "works", "command")


def main() -> None:
    """Read the arguments, make this process one with a device, run what is asked for in it."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.standin", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to work, and where PART.json is written")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--bert", type=Path, help="model folder")
    parser.add_argument("--mlm", type=Path, help="folder of a masked language model of its vocabulary")
    parser.add_argument("--transfer", type=Path, help="data folder of transfer tasks")
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--fp32", action="store_true", help="names that don't contain bf16")
    parser.add_argument("--device", choices=KINDS, default="cuda", help="which one; default cuda")
    parser.add_argument("--real", action="store_true", help="on this machine's GPU; nothing is counted there")
    given = parser.parse_args()
    choose(given.device)
    if not given.real:
        begin(given.folder, given.device)

    import torch

    torch.set_num_threads(1)
    from tests.support.standin.methods import Material

    material = Material(given.bert, given.mlm, given.transfer, given.folder)
    for part in given.parts:
        found = _found(
            part, material, lambda name: given.only in name and not (given.fp32 and "bf16" in name)
        )
        (given.folder / f"{part}.json").write_text(json.dumps(found))


def _found(part: str, material: object, wanted: Callable[[str], bool]) -> object:
    from tests.support.standin import command, faults, methods, works

    assert isinstance(material, methods.Material)
    if part == "faults":
        return faults.planted()
    if part == "command":
        return command.run_cells(material.out)
    if part in ("methods", "lowered", "variants"):
        cases = methods.variants() if part == "variants" else methods.cases(rest=part == "lowered")
        return [methods.compared(case, material) for case in cases if wanted(case.name)]
    return [works.compared(work, material) for work in works.works() if wanted(work.name)]


if __name__ == "__main__":
    main()
