"""What an installation holds, wherever it was built from: a checkout without links, a zip, an sdist."""

from __future__ import annotations

import email
import os
import re
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
from markdown_it import MarkdownIt

from bench.records.environment import CHECKOUT_FOLDERS
from tests.support.house import ROOT, package_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN = ("run", "--methods", "untrained,simcse", "--seeds", "1", "--suite", "toy", "--set", "simcse.steps=2")


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


def description(metadata: str) -> str:
    """Return the long description of a METADATA or PKG-INFO file."""
    text = email.message_from_string(metadata).get_payload()
    assert isinstance(text, str)
    return text


def links(markdown: str) -> list[tuple[str, str]]:
    """Return ("href" or "src", target) of every link and image, in their order."""
    found = []
    for block in MarkdownIt("commonmark").enable("table").parse(markdown):
        for token in (block, *(block.children or ())):
            assert "html" not in token.type or "<!--" in token.content
            found += [(name, str(token.attrs[name])) for name in ("href", "src") if name in token.attrs]
    return found


def is_relative(target: str) -> bool:
    return re.match(r"[a-z]+:|#", target) is None


def anchors(markdown: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", markdown, re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_long_description_is_the_readme_with_absolute_links(tmp_path: Path) -> None:
    code = (
        f"from setuptools import build_meta; build_meta.prepare_metadata_for_build_wheel({str(tmp_path)!r})"
    )
    run(sys.executable, "-c", code, cwd=ROOT)
    (file,) = tmp_path.glob("*.dist-info/METADATA")
    shown = description(file.read_text(encoding="utf-8"))
    own, absolute = links(README), links(shown)
    assert len([target for _, target in own if is_relative(target)]) > 30
    assert not [target for _, target in absolute if is_relative(target)]
    (repository,) = PROJECT["urls"].values()
    kinds = {"href": "blob", "src": "raw"}
    for (name, target), (new_name, new) in zip(own, absolute, strict=True):
        below = f"{repository}/{kinds[name]}/v{PROJECT['version']}/{target}"
        assert (new_name, new) == (name, below if is_relative(target) else target)
    words = re.compile(r"\]\([^)]*\)")
    assert words.sub("", shown).strip() == words.sub("", README).strip()


def test_the_example_of_absolute_links_holds() -> None:
    run(sys.executable, "-m", "doctest", "setup.py", cwd=ROOT)


@pytest.mark.campaigns
def test_every_relative_link_of_the_readme_has_its_file_and_heading() -> None:
    for _, target in links(README):
        path, _, anchor = target.partition("#")
        if not is_relative(target):
            continue
        assert (ROOT / path).is_file(), target
        assert not anchor or anchor in anchors((ROOT / path).read_text(encoding="utf-8")), target


def test_the_metadata_agree_with_the_citation_and_ci() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^  - (?!name)(.*)$", citation, re.M) == PROJECT["keywords"]
    assert re.findall(r"^  - name: (.*)$", citation, re.M) == [one["name"] for one in PROJECT["authors"]]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    versions = re.findall(r'python-version: "(.*)"', workflow)
    named = [name.rpartition(" :: ")[2] for name in PROJECT["classifiers"] if ":: Python :: 3." in name]
    assert versions == named
    targets = re.findall(r"run: make (\S+)", workflow)
    assert "test" in targets
    assert {*targets} <= {*re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)}


def test_the_listed_packages_are_the_folders() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders = {installed.rpartition("/")[0].replace("/", ".") for installed, _ in package_files()}
    assert sorted(listed["packages"]) == sorted(folders)
    assert {*listed["package-dir"]} == {"bench", *(f"bench.{name}" for name in CHECKOUT_FOLDERS)}


@pytest.mark.long
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
def test_wheel_and_sdist_have_the_long_description(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel, tarfile.open(built["sdist"]) as sdist:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        (member,) = (one for one in sdist if one.name.count("/") == 1 and one.name.endswith("/PKG-INFO"))
        file = sdist.extractfile(member)
        assert file is not None
        shown = {description(text.decode()).strip() for text in (wheel.read(name), file.read())}
    assert len(shown) == 1
    assert "](docs/" not in shown.pop()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_an_installation_does_the_main_job(kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    binaries = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    (purelib,) = (tmp_path / "env").rglob("site-packages")
    # Dependencies come from this environment, its editable bench does not: Python reads no nested .pth file
    (purelib / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    empty = tmp_path / "empty"
    empty.mkdir()
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(binaries / "python", *install, "--ignore-installed", built[kind], cwd=empty)
    where = run(binaries / "python", "-c", "import bench, bench.methods as m; print(m.__file__)", cwd=empty)
    assert Path(where.strip()).is_relative_to(purelib)
    (metadata,) = purelib.glob("cse_bench-*.dist-info/METADATA")
    shown = description(metadata.read_text(encoding="utf-8"))
    assert len(links(shown)) == len(links(README))
    assert not [target for _, target in links(shown) if is_relative(target)]
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
    assert {"simcse", "tncse", "jtcse"} <= {line.partition(" ")[0] for line in out.splitlines()}
