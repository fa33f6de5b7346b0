"""What an installation holds, wherever it was built from: a checkout without links, a zip, an sdist."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from bench.records.provenance import CHECKOUT_FOLDERS
from tests.support.house import ROOT, package_files

RUN = ("run", "--methods", "untrained,simcse", "--seeds", "1-2", "--suite", "toy", "--set", "simcse.steps=2")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command in a folder, without what this process adds to the path of modules; return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**environment, "PYTHONNOUSERSITE": "1", "BENCH_WORKERS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout as a zip gives it: no links, no history."""
    target = tmp_path_factory.mktemp("zip") / "cse-bench"
    ignored = shutil.ignore_patterns(".*", "!.ci", "build", "*.egg-info", "results", "__pycache__", "data")
    shutil.copytree(ROOT, target, ignore=lambda folder, names: ignored(folder, names) - own(folder))
    assert not [path for path in target.rglob("*") if path.is_symlink()]
    return target


def own(folder: str) -> set[str]:
    """Names that are ours in spite of a pattern: bench/data, tests/data, .ci, .github."""
    return {".ci", ".github"} if Path(folder) == ROOT else {"data"}


@pytest.fixture(scope="module")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build wheel and sdist from the copy; return the two files."""
    out = tmp_path_factory.mktemp("dist")
    # Each hook in a process of its own, as build front ends do it, and nothing fetched
    for hook in ("build_sdist", "build_wheel"):
        code = f"from setuptools import build_meta; build_meta.{hook}({str(out)!r})"
        run(sys.executable, "-c", code, cwd=checkout)
    (wheel,), (sdist,) = out.glob("cse_bench-*.whl"), out.glob("cse_bench-*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def test_the_listed_packages_are_the_folders() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders = {installed.rpartition("/")[0].replace("/", ".") for installed, _ in package_files()}
    assert sorted(listed["packages"]) == sorted(folders)
    assert {*listed["package-dir"]} == {"bench", *(f"bench.{name}" for name in CHECKOUT_FOLDERS)}


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_product(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {installed for installed, _ in package_files()}


@pytest.mark.slow
def test_the_sdist_holds_what_its_tests_need(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {path.relative_to(ROOT).as_posix() for _, path in package_files()} <= names
    for folder in ("tests", "docs", "benchmarks", ".github"):
        inside = (path for path in (ROOT / folder).rglob("*") if path.is_file())
        wanted = {path.relative_to(ROOT).as_posix() for path in inside if "__pycache__" not in path.parts}
        assert wanted <= names, folder
    assert {"Makefile", "README.md", "LICENSE", ".ci/run", "mkdocs.yml", "action.yml"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_an_installation_does_the_main_job(kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    binaries = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    (purelib,) = (tmp_path / "env").rglob("site-packages")
    # Dependencies come from this environment; its editable bench doesn't, as Python reads no nested .pth files
    (purelib / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    empty = tmp_path / "empty"
    empty.mkdir()
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(binaries / "python", *install, "--ignore-installed", built[kind], cwd=empty)
    where = run(binaries / "python", "-c", "import bench, bench.methods as m; print(m.__file__)", cwd=empty)
    assert Path(where.strip()).is_relative_to(purelib)
    run(binaries / "bench", *RUN, cwd=empty)
    report = run(binaries / "bench", "report", "--format", "csv", cwd=empty)
    assert {"simcse[steps=2]", "untrained"} <= {
        cell for line in report.splitlines() for cell in line.split(",")
    }
    assert "tncse" in run(binaries / "bench", "list", "methods", cwd=empty)


@pytest.mark.slow
def test_a_bare_checkout_runs(checkout: Path) -> None:
    code = "import sys; sys.path.insert(0, '.'); from bench.cli.main import main; main(['list', 'methods'])"
    out = run(sys.executable, "-c", code, cwd=checkout)
    assert {"simcse", "tncse", "jtcse"} <= {line.split()[0] for line in out.splitlines()}
