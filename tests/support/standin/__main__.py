"""Run everything on the stand-in, or a GPU, and write what was found: python -m tests.support.standin -h."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.support.standin.guard import begin


def main() -> None:
    """Read the arguments, make this process one with a device, run what is asked for in it."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.standin", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to work, and where PART.json is written")
    parser.add_argument("parts", nargs="+", choices=("faults", "methods", "lowered", "works"))
    parser.add_argument("--bert", type=Path, help="model folder")
    parser.add_argument("--mlm", type=Path, help="folder of a masked language model of its vocabulary")
    parser.add_argument("--transfer", type=Path, help="data folder of transfer tasks")
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--real", action="store_true", help="on this machine's GPU; nothing is counted there")
    given = parser.parse_args()
    if not given.real:
        begin(given.folder)

    import torch

    torch.set_num_threads(1)
    from tests.support.standin.methods import Material

    material = Material(given.bert, given.mlm, given.transfer, given.folder)
    for part in given.parts:
        (given.folder / f"{part}.json").write_text(json.dumps(_found(part, given.only, material)))


def _found(part: str, only: str, material: object) -> object:
    from tests.support.standin import faults, methods, works

    assert isinstance(material, methods.Material)
    if part == "faults":
        return faults.planted()
    if part in ("methods", "lowered"):
        cases = methods.cases(rest=part == "lowered")
        return [methods.compared(case, material) for case in cases if only in case.name]
    return [works.compared(work, material) for work in works.works() if only in work.name]


if __name__ == "__main__":
    main()
