"""Where the product's modules lie in the checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.records.environment import CHECKOUT_FOLDERS

ROOT = Path(__file__).parents[2]


def package_files() -> Iterator[tuple[str, Path]]:
    """Yield every file of the product with its path in an installation, such as "bench/methods/tncse.py"."""
    for top in ("bench", *CHECKOUT_FOLDERS):
        for path in sorted((ROOT / top).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                relative = path.relative_to(ROOT).as_posix()
                yield (relative if top == "bench" else f"bench/{relative}"), path


def module_files() -> dict[str, Path]:
    """Return every module of the product by its name in ``bench``, such as "plan.cell"."""
    return {
        installed.removeprefix("bench/").removesuffix(".py").replace("/", "."): path
        for installed, path in package_files()
        if path.suffix == ".py"
    }
