"""The house: which rooms there are, and which way their imports go."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from bench.records.environment import CHECKOUT_FOLDERS
from tests.support.house import ROOT, module_files

FEATURES = (
    "training_probes",
    "gate",
    "gradient",
    "papers",
    "verify",
    "exchange",
    "imports",
    "site",
    "conformance",
)
"""Rooms that a run does without: no room but those of FEATURES and FACE imports one."""
FACE = ("__main__", "api", "__init__")
ROOMS = (  # each imports only from those before it; a room is a folder or a module of bench/
    *("errors", "version", "schema", "encoder", "method_card", "stages", "registry", "stats", "records"),
    *("config", "data", "render", "lazy", "nn", "losses", "eval", "senteval_compat", "comparison"),
    *("training", "probes"),
    *("plan", "reports", "baselines", "methods", "execution", "cli"),
    *FEATURES,
    *FACE,  # the last is what `import bench` offers; no room imports it
)
STRICTER = {  # rooms that import less than what stands before them
    "stats": {"errors"},
    "baselines": {"plan", "comparison", "records", "config", "reports", "probes", "render"},
    "methods": {"plan", "comparison", "records", "reports", "probes", "render"},
    "reports": {"plan", "nn", "eval", "training"},
}
"""``stats``: all it may import; the others: what they may not."""


def imported(source: str, known: Mapping[str, Path]) -> set[str]:
    """Modules of ours that a source imports, at any depth of the code and for type checks alone too."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            names |= {(str(node.module), alias.name) for alias in node.names}
    found = set()
    for module, name in names:
        if module.split(".")[0] != "bench":
            continue
        inner = module.removeprefix("bench").removeprefix(".")
        candidates = (f"{inner}.{name}" if inner else name, inner)
        ways = [way for each in candidates for way in (each, f"{each}.__init__" if each else "__init__")]
        found.add(next((way for way in ways if way in known), inner))
    return found


def room(module: str) -> str:
    """The room in which a module stands."""
    return module.split(".")[0]


def upward(graph: Mapping[str, set[str]]) -> Iterator[str]:
    """Imports that go up, or that a room is denied."""
    for module, targets in graph.items():
        for target in targets:
            here, there = room(module), room(target)
            if here == there:
                continue
            denied = STRICTER.get(here, set())
            strict = there not in denied if here == "stats" else there in denied
            if there not in ROOMS or ROOMS.index(there) > ROOMS.index(here) or strict:
                yield f"{module} -> {target}"


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of modules or of rooms, empty where there is none."""
    rooms: dict[str, set[str]] = {}
    for module, targets in graph.items():
        rooms.setdefault(room(module), set()).update(room(target) for target in targets)
    for each in (graph, {name: targets - {name} for name, targets in rooms.items()}):
        try:
            TopologicalSorter(each).prepare()
        except CycleError as error:
            return [str(name) for name in error.args[1]]
    return []


@pytest.fixture(scope="module")
def house() -> dict[str, set[str]]:
    known = module_files()
    return {name: imported(path.read_text(encoding="utf-8"), known) for name, path in known.items()}


def test_every_import_goes_down(house: dict[str, set[str]]) -> None:
    assert len(house) > 200
    assert sum(map(len, house.values())) > 1000
    assert {room(name) for name in house} == set(ROOMS)
    assert list(upward(house)) == []


def private_imports(module: str, source: str) -> Iterator[str]:
    """Names with an underscore that a module takes from another room."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("bench."):
            path = str(node.module).removeprefix("bench.")
            names = [*path.split("."), *(alias.name for alias in node.names)]
            private = [name for name in names if name.startswith("_") and name != "__version__"]
            yield from (f"{module} -> {path}.{name}" for name in private if room(path) != room(module))


def test_a_room_is_imported_by_its_public_names() -> None:
    sources = {name: path.read_text(encoding="utf-8") for name, path in module_files().items()}
    assert [found for name, source in sources.items() for found in private_imports(name, source)] == []
    assert list(private_imports("plan.plan", "from bench.nn.model_folder import _parts")) == [
        "plan.plan -> nn.model_folder._parts"
    ]


def test_no_core_room_imports_a_feature(house: dict[str, set[str]]) -> None:
    core = {name for name in house if room(name) not in (*FEATURES, *FACE)}
    assert not {f"{name} -> {target}" for name in core for target in house[name] if room(target) in FEATURES}


def test_the_architecture_names_files_that_are_there() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:bench|baselines|methods|reports|benchmarks|tests)/[\w/]*(?:\.pyi?)?)`", page)
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []
    rooms = page.partition("## The rooms")[2].partition("## The way")[0]
    assert [
        name for name in ROOMS if name not in rooms and name not in ("version", "__main__", "__init__")
    ] == []
    assert page.count("\n") <= 120


def test_there_is_no_circle(house: dict[str, set[str]]) -> None:
    assert circle(house) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("records.record", "from bench.plan.cell_expansion import Cell"),
        ("records.record", "from bench.plan import cell"),
        ("data.tasks", "def f():\n    from bench.eval import sts"),
        ("eval.sts", "import bench.execution.runner"),
        ("execution.runner", "from bench import load"),
        ("plan.plan", "from bench.baselines.simcse import info_nce"),
        ("baselines.simcse", "from bench.records.store import ResultStore"),
        ("stats.seeds", "from bench.schema import number"),
        ("reports.campaign", "from bench.nn.model_folder import resolve"),
        (
            "method_card",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bench.registry import METHODS",
        ),
    ],
)
def test_an_import_that_goes_up_is_seen(module: str, line: str) -> None:
    assert len(list(upward({module: imported(line, module_files())}))) == 1


def test_a_circle_inside_a_room_and_between_rooms_is_seen(house: dict[str, set[str]]) -> None:
    inside = {**house, "plan.cell": house["plan.cell"] | {"plan.plan"}}
    assert {"plan.cell", "plan.plan"} <= set(circle(inside))
    assert circle({"cli.check": {"cli.files"}, "cli.files": {"run.x"}, "run.y": {"cli.main"}})


def test_every_room_of_the_tests_is_a_room_of_the_house() -> None:
    own = {"support", "docs", "benchmarks", "faults", "fuzz", "security"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").exists()}
    assert folders - own <= set(ROOMS)
    loose = {path.name for path in (ROOT / "tests").glob("*.py")}
    assert loose == {
        *("__init__.py", "conftest.py", "test_doctests.py", "test_house.py"),
        *("test_packaging.py", "test_registry.py"),
    }


def test_no_test_imports_another() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests"):
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                assert not any(part.startswith("test_") for name in names for part in name.split(".")), path


def test_reports_and_results_side_never_name_torch_and_run_side_never_jinja() -> None:
    for name, path in module_files().items():
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        heads = {
            alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names
        }
        heads |= {str(node.module).split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
        if room(name) in ("reports", "render", "stats", "records", "comparison", "config"):
            assert not heads & {"torch", "transformers", "sentence_transformers"}, path
        if room(name) not in ("reports", "render"):
            assert not heads & {"jinja2", "vl_convert"}, path


@pytest.mark.parametrize("folder", CHECKOUT_FOLDERS)
def test_mapped_folders_refuse_their_bare_name(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert importlib.import_module(f"bench.{folder}").__name__ == f"bench.{folder}"
    monkeypatch.syspath_prepend(str(ROOT))
    with pytest.raises(ImportError, match=f"import 'bench.{folder}'"):
        importlib.import_module(folder)


def heavy_after(*lines: str) -> set[str]:
    """Run command lines in one process and return which heavy packages they imported."""
    code = (
        "import shlex, sys\nfrom bench.cli.main import main\n"
        "for line in sys.argv[1:]:\n"
        "    try:\n        main(shlex.split(line))\n    except SystemExit as stopped:\n"
        "        assert not stopped.code, line\n"
        "heavy={'torch','transformers','mteb','pandas','scipy','vl_convert','numpy','rich','datasets','sklearn'}\n"
        "print('HEAVY', *sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *lines],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tempfile.gettempdir(),
    )
    last = done.stdout.strip().splitlines()[-1].split()
    assert last[0] == "HEAVY", done
    return set(last[1:])


def test_help_imports_nothing_heavy() -> None:
    assert heavy_after("--help", "run --help") == set()


@pytest.mark.slow
def test_report_never_imports_torch(tmp_path: Path) -> None:
    results = shlex.quote(str(tmp_path))
    assert "torch" not in heavy_after(f"run --methods noise --suite toy --results {results}")
    forms = ("text", "markdown", "csv", "json", "latex", "html")
    imports = heavy_after(*(f"report --results {results} --format {form}" for form in forms))
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
