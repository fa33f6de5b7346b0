"""The package is laid out and imported as the architecture says."""

from __future__ import annotations

import ast
import importlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAPPED = ("baselines", "methods", "reports")
LAYERS = (
    (
        "errors",
        "card",
        "child_processes",
        "spec",
        "encoder",
        "numerics",
        "shape",
        "record_shape",
        "record",
        "profiles",
        "provenance",
    ),
    ("registry", "plugins", "store", "stages", "data"),
    ("nn",),
    ("train", "eval", "probes", "stats"),
    (
        "training_data",
        "cells",
        "jobs",
        "plan",
        "builder",
        "probing",
        "evaluation",
        "runner",
        "estimate",
        "inputs",
        "rerun",
        "senteval_compat",
        "tune",
        "sweeps",
        "executors",
    ),
    (
        "campaign_stats",
        "check",
        "comparable",
        "compare",
        "conformance",
        "conformance_card",
        "conformance_checks",
        "conformance_encoder",
        "conformance_subject",
        "diff",
        "gate",
        "levels",
        "limits",
        "reference",
        "sides",
        "verdict",
    ),
    ("cli", "__main__"),  # and every cli_*
)
MAY_IMPORT = {
    "baselines": {
        "errors",
        "card",
        "spec",
        "encoder",
        "registry",
        "stages",
        "data",
        "nn",
        "train",
        "baselines",
    },
    "methods": {
        "errors",
        "card",
        "spec",
        "encoder",
        "registry",
        "stages",
        "data",
        "nn",
        "train",
        "baselines",
        "methods",
    },
    "reports": {"errors", "record", "shape", "store", "stats", "data", "sweeps", "gate", "reports"},
}


def sources() -> list[tuple[str, Path]]:
    """All modules of the product with their first folder or module name below ``bench``."""
    files = [(path.relative_to(ROOT / "bench").parts[0], path) for path in (ROOT / "bench").rglob("*.py")]
    files += [(folder, path) for folder in MAPPED for path in (ROOT / folder).rglob("*.py")]
    names = [(name.removesuffix(".py"), path) for name, path in files]
    return [("cli" if name.startswith("cli_") else name, path) for name, path in names]


def imported(path: Path) -> set[str]:
    """Every imported module, at any depth of the code, as an absolute name."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rank(part: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if part in layer)


def violations(part: str, names: set[str]) -> list[str]:
    """Imports of ``part`` that the layers forbid."""
    found = []
    for name in sorted(names):
        head, _, rest = name.partition(".")
        if head in MAPPED:
            found.append(name)
        if head != "bench" or not rest or rest == "__version__":
            continue
        target = rest.split(".")[0]
        if part in MAY_IMPORT:
            allowed = target in MAY_IMPORT[part]
        elif part in LAYERS[-1]:
            allowed = True
        elif target in MAPPED:
            allowed = False  # core meets the plug-ins through registry.discover() only
        else:
            allowed = rank(target) <= rank(part)
        if not allowed:
            found.append(name)
    return found


def test_every_import_keeps_the_layers() -> None:
    checked = 0
    for part, path in sources():
        if part != "__init__":
            assert violations(part, imported(path)) == [], path
            checked += 1
    assert checked > 30


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("record", "bench.store.ResultStore"),
        ("data", "bench.eval.sts"),
        ("runner", "bench.baselines.untrained"),
        ("baselines", "bench.runner"),
        ("reports", "bench.eval.sts"),
        ("eval", "baselines.untrained"),
    ],
)
def test_the_layer_check_sees_a_violation(part: str, name: str) -> None:
    assert violations(part, {name}) == [name]


def test_reports_and_results_side_never_name_torch_and_run_side_never_jinja() -> None:
    for part, path in sources():
        heads = {name.split(".")[0] for name in imported(path)}
        if part in ("reports", "stats", "store", "record"):
            assert not heads & {"torch", "transformers", "sentence_transformers"}, path
        elif part not in LAYERS[-1]:
            assert not heads & {"jinja2", "matplotlib"}, path


def test_packages_in_pyproject_are_the_folders() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("bench", *MAPPED)
        for path in (ROOT / top).rglob("__init__.py")
    }
    expected = {f"bench.{name}" if name.split(".")[0] in MAPPED else name for name in folders}
    assert set(config["packages"]) == expected


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_data_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "results", ".*_cache")
    shutil.copytree(ROOT, source, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("cse_bench-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (path for top in ("bench", *MAPPED) for path in (ROOT / top).rglob("*")):
        if path.suffix in (".py", ".toml", ".json", ".typed", ".safetensors", ".csv", ".html", ".css", ".js"):
            relative = path.relative_to(ROOT).as_posix()
            assert (relative if relative.startswith("bench/") else f"bench/{relative}") in names
    assert not any(name.startswith(("tests", "benchmarks", *MAPPED)) for name in names)


@pytest.mark.parametrize("folder", MAPPED)
def test_mapped_folders_refuse_their_bare_name(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert importlib.import_module(f"bench.{folder}").__name__ == f"bench.{folder}"
    monkeypatch.syspath_prepend(str(ROOT))
    with pytest.raises(ImportError, match=f"import 'bench.{folder}'"):
        importlib.import_module(folder)


def heavy_after(*arguments: str) -> set[str]:
    """Run the command line and return which heavy packages it imported."""
    code = (
        "import sys\nfrom bench.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy={'torch','transformers','mteb','pandas','scipy','matplotlib','numpy','rich','datasets','sklearn'}\n"
        "print('HEAVY', *sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tempfile.gettempdir(),
    )
    last = done.stdout.strip().splitlines()[-1].split()
    assert last[0] == "HEAVY", done
    return set(last[1:])


def test_help_imports_nothing_heavy() -> None:
    assert heavy_after("--help") == set()
    assert heavy_after("run", "--help") == set()


@pytest.mark.slow
def test_report_never_imports_torch(tmp_path: Path) -> None:
    results = str(tmp_path)
    assert "torch" not in heavy_after("run", "--methods", "noise", "--suite", "toy", "--results", results)
    for form in ("text", "markdown", "csv", "json", "latex", "html"):
        imports = heavy_after("report", "--results", results, "--format", form)
        assert "pandas" in imports
        assert not imports & {"torch", "transformers"}


def test_the_network_is_blocked() -> None:
    import socket

    with pytest.raises(OSError, match="blocked by the tests"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    with pytest.raises(OSError, match="blocked by the tests"):
        socket.create_connection(("example.org", 80), timeout=1)
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "blocked by the tests" in done.stderr
