"""Method classes of a session: their text, their registration for a run, and what a run keeps of them."""

from __future__ import annotations

import importlib.util
import json
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench.config.method_ids import parse_methods
from bench.config.notebook_methods import plugin_of_class, register_classes
from bench.config.plugin_code import hash_method_code
from bench.config.run_spec import Plugin, RunSpec
from bench.errors import InputError
from bench.execution.cell_run import Outcome
from bench.execution.runner import run_plan
from bench.plan.plan import make_plan
from bench.registry import METHODS, add_method, discover
from tests.support.cli import Cli, refusal
from tests.support.house import ROOT
from tests.support.messages import check_error, missing_facts
from tests.support.session import CELLS, TEXT

Load = Callable[[str], ModuleType]
NAME = re.compile(r"mine-[0-9a-f]{8}\.py")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Run a text as the module ``session`` with a file."""

    def load(text: str) -> ModuleType:
        file = tmp_path / "session.py"
        file.write_text(text)
        linecache.checkcache(str(file))
        spec = importlib.util.spec_from_file_location("session", file)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "session", module)
        exec(compile(text, str(file), "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - ours
        return module

    return load


def sourceless(text: str = TEXT) -> type[Any]:
    """Make the class ``Mine`` of the session without a file."""
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec(compile(text, "<text>", "exec", dont_inherit=True), names)  # noqa: S102 - ours
    kind: type[Any] = names["Mine"]
    return kind


def source(kind: type[Any]) -> str:
    plugin = plugin_of_class(kind)
    assert plugin is not None
    return plugin.source.decode()


def run(results: Path, plugins: tuple[Plugin, ...], **given: Any) -> list[Outcome]:
    outcomes: list[Outcome] = []
    spec = RunSpec(parse_methods("mine"), (1, 2), "mini", ("toy",), results=results, plugins=plugins, **given)
    run_plan(make_plan(spec), on_outcome=outcomes.append)
    return outcomes


def test_a_text_has_what_the_class_reaches_in_an_order_that_runs(session: Load) -> None:
    text = source(session(TEXT).Mine)
    found = re.findall(r"(?m)^(?:class|def)? ?(\w+)(?=[:(]| = )", text)
    assert {"Base", "Hashed", "NAMES", "OPTIONS", "make", "zero", "Mine"} == set(found)
    assert found.index("Base") < found.index("Hashed")
    assert found.index("OPTIONS") < found.index("Mine") == len(found) - 1
    assert "NAMES = {'x', 'y'}\n" in text
    assert "# a comment" in text
    assert "TYPE" not in text
    assert text.count("@add_method\n") == 1
    names: dict[str, Any] = {"__name__": "written"}
    exec(compile(text, "written.py", "exec"), names)  # noqa: S102 - ours
    assert names["Mine"].card == session(TEXT).Mine.card
    METHODS.forget("written")


def test_a_text_is_that_of_the_class_wherever_it_stands(session: Load) -> None:
    text = source(session(TEXT).Mine)
    decorated = f"from bench.registry import add_method\n{TEXT}".replace("class M", "@add_method\nclass M")
    elsewhere = "\n\n\nx = 1\n".join([*CELLS[:2], CELLS[5], CELLS[4], *CELLS[2:4]])
    assert source(session(elsewhere).Mine) == source(session(decorated).Mine) == text
    METHODS.forget("session")
    other = source(session(TEXT.replace("dim = 8", "dim = 9")).Mine)
    assert hash_method_code(other.encode(), "Mine") != hash_method_code(text.encode(), "Mine") != ""


def test_a_class_that_derives_from_a_method_has_its_source_too(session: Load) -> None:
    text = source(session(TEXT).Second)
    assert text.count("@add_method\n") == 1
    assert text.index("class Mine:") < text.index("@add_method\nclass Second(Mine):")


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ("zero = lambda names: len(names) - 2", "zero = torch.zeros(1)", ["'zero'", "torch.Tensor"]),
        ("NAMES, SCALES = ", "NAMES, SCALES = float('nan'), ", ["'NAMES'", "float"]),
        ("def make(seed):", "def make(seed, f=[len][0].__class__):", []),
    ],
)
def test_what_has_no_source_is_named(session: Load, old: str, new: str, facts: list[str]) -> None:
    text = TEXT.replace(old, new).replace('float(\'nan\'), {"y", "x"}, ', "float('nan'), ")
    kind = session(text).Mine
    if not facts:
        assert plugin_of_class(kind) is not None
        return
    error = check_error(lambda: plugin_of_class(kind), where="Mine", kind=InputError)
    assert not missing_facts(str(error), *facts, "without source", "inside")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda m: setattr(m.Mine, "extra", 3), "Mine.extra"),
        (lambda m: setattr(m.Base, "dim", 9), "Base.dim"),
        (lambda m: setattr(m.Hashed, "row", m.Base.encode), "Hashed.row"),
        (lambda m: setattr(m.make, "__defaults__", (3,)), "make"),
        (lambda m: setattr(m, "OPTIONS", ()), "Mine.card"),
    ],
)
def test_what_changed_after_its_definition_is_refused(
    session: Load, change: Callable[[Any], None], name: str
) -> None:
    module = session(TEXT)
    change(module)
    with pytest.raises(InputError) as caught, register_classes([module.Mine]):
        pass
    assert not missing_facts(str(caught.value), "Mine: ", name, "again")
    assert "mine" not in METHODS.names()


RICH = """
import abc, contextlib, dataclasses, enum, fractions, functools, math, pathlib, re, typing
from collections import OrderedDict, deque


def power(n):
    def decorate(function):
        @functools.wraps(function)
        def inner(*given):
            return function(*given) ** n
        return inner
    return decorate


FACTOR = 1
BIG = -(10**5000)
MARK = "a"


def first(x):
    return x


@power(FACTOR)
def helper(x, f=first):
    return f(x)


@functools.lru_cache(maxsize=3)
def cached(x: "int") -> int:
    return np.float32(x) + math.pi


@contextlib.contextmanager
def context():
    yield


class Color(enum.Enum):
    RED = 1
    BLUE = 3


class Pair(typing.NamedTuple):
    a: int = 1
    b: tuple[int, ...] = (1, 2)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def f(self): ...


@dataclasses.dataclass(frozen=True)
class Data(Abstract):
    n: int = 1
    more: list[Color] = dataclasses.field(default_factory=list)

    def f(self):
        return super().f(), [x for x in self.more if x is not None]


class Plain:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n


class Upper:
    k = 1


class Rich(Upper):
    card = MethodCard(name="mine", kind="method", summary="s", version=1, needs_backbone=False)
    BIG = BIG
    MARK = MARK
    array, number, tensor = np.arange(3.0), np.float64(1), torch.arange(3)
    act, root = np.tanh, math.sqrt
    partial = functools.partial(pow, 2)
    pattern = re.compile("a+")
    plain = Plain(1)
    several = {"a": [Data(), Pair(), Color.RED], 1: {2.0, "b"}, None: frozenset({1})}
    standard = (fractions.Fraction(1, 2), pathlib.PurePath("a"), deque([1]), OrderedDict(a=1), range(3))
    mark = object()
    other: typing.Optional[Data] = None
    functions = (lambda x: x, lambda x: x**3)

    class Inner:
        k = 1

        def f(self):
            return self.k

    @property
    def size(self):
        return self.k

    @functools.cached_property
    def table(self):
        return MARK

    @staticmethod
    def static(x):
        return x

    @torch.no_grad()
    def build(self, context):
        try:
            return helper(1), cached(2), Plain(3), Abstract, Color, Pair, self.static(first(BIG))
        finally:
            context()

    def score(self, x):
        return np.zeros(x, dtype=np.float32)
"""


def replace_helper(module: Any) -> None:
    module.helper = module.power(3)(module.helper)


def redefine(module: Any, text: str) -> None:
    exec(compile(text, "<cell>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - ours


CHANGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "a wrapped function": (replace_helper, "helper"),
    "a wrapped method": (lambda m: setattr(m.Rich, "score", m.power(3)(m.Rich.score)), "Rich.score"),
    "an argument of a decorator": (lambda m: setattr(m, "FACTOR", 3), "helper"),
    "a default": (lambda m: setattr(m.helper.__wrapped__, "__defaults__", (m.cached,)), "helper"),
    "an attribute of a function": (lambda m: setattr(m.first, "n", 1), "first"),
    "a base": (lambda m: setattr(m.Upper, "k", 3), "Upper.k"),
    "another ufunc": (lambda m: setattr(m.Rich, "act", m.np.exp), "Rich.act"),
    "another builtin": (lambda m: setattr(m.Rich, "root", m.math.exp), "Rich.root"),
    "a partial": (lambda m: setattr(m.Rich, "partial", m.functools.partial(pow, 3)), "Rich.partial"),
    "a pattern": (lambda m: setattr(m.Rich, "pattern", re.compile("b+")), "Rich.pattern"),
    "flags": (lambda m: setattr(m.Rich, "pattern", re.compile("a+", re.I)), "Rich.pattern"),
    "an instance": (lambda m: setattr(m.Rich.plain, "n", 3), "Rich.plain.n"),
    "a nested class": (lambda m: setattr(m.Rich.Inner, "k", 2), "Rich.Inner.k"),
    "its function": (lambda m: setattr(m.Rich.Inner, "f", m.first), "Rich.Inner.f"),
    "an array": (lambda m: m.Rich.array.fill(1), "Rich.array"),
    "a tensor": (lambda m: m.Rich.tensor.fill_(1), "Rich.tensor"),
    "a number's type": (lambda m: setattr(m.Upper, "k", 1.0), "Upper.k"),
    "an order": (lambda m: m.Rich.several.update(a=m.Rich.several.pop("a")), "Rich.several"),
    "functions": (lambda m: setattr(m.Rich, "functions", m.Rich.functions[::-1]), "Rich.functions"),
    "a shared list": (lambda m: setattr(m.Rich, "standard", (*m.Rich.standard[:-1], range(4))), "standard"),
    "an inner list": (lambda m: m.Rich.several["a"].append(1), "Rich.several"),
    "a getter": (lambda m: setattr(m.Rich, "size", property(lambda self: 3)), "Rich.size"),
    "another constant": (lambda m: setattr(m, "MARK", "b"), "Rich.MARK"),
}


@pytest.mark.parametrize(("change", "name"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_what_a_class_computes_is_refused(
    session: Load, change: Callable[[Any], None], name: str
) -> None:
    module = session(f"{CELLS[0]}{RICH}")
    with register_classes([module.Rich]) as (_, _, in_process):
        assert not in_process
    change(module)
    with pytest.raises(InputError) as caught, register_classes([module.Rich]):
        pass
    assert not missing_facts(str(caught.value), "Rich: ", name, "again")


def test_one_list_under_two_names_is_refused(session: Load) -> None:
    text = "\n\nONE = [1]\nTWO = ONE\n\n\ndef zero(names):\n    return len(TWO) - len(ONE)\n"
    kind = session(TEXT + text).Mine
    with pytest.raises(InputError, match="are one object"), register_classes([kind]):
        pass
    with register_classes([session(TEXT + text.replace("[1]", "(1, 2)")).Mine]) as (plugins, _, _):
        assert b"TWO = (1, 2)" in plugins[0].source


def test_a_patch_of_a_module_is_refused(session: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    module = session(TEXT)
    monkeypatch.setattr(module.np.random, "default_rng", module.make)
    with pytest.raises(InputError, match=r"numpy\.random\.default_rng"), register_classes([module.Mine]):
        pass


def test_a_base_that_was_defined_again_is_refused_unless_it_is_the_same(
    session: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = session(f"{CELLS[0]}{RICH}")
    for k in (1, 3):
        text = f"class Upper:\n    k = {k}\n    def g(self): return 1\n"
        text = text if k == 3 else "class Upper:\n    k = 1\n"
        monkeypatch.setitem(linecache.cache, "<cell>", (len(text), None, [text], "<cell>"))
        redefine(module, text)
        if k == 1:
            with register_classes([module.Rich]):
                continue
        with pytest.raises(InputError, match="Upper"), register_classes([module.Rich]):
            pass


def test_the_class_in_use_is_taken_of_two_in_a_file(session: Load) -> None:
    later = "class Upper:\n    k = 3\n\n\nclass Other(Upper):\n    k = 4\n"
    module = session(f"{CELLS[0]}{RICH}")
    before = source(module.Rich)
    module = session(f"{CELLS[0]}{RICH}\n\nLAST = Upper\n\n\n{later}\n\nUpper = LAST\n")
    with register_classes([module.Rich]) as (plugins, _, _):
        assert plugins[0].source.decode() == before


def test_what_nothing_can_compare_is_named(session: Load) -> None:
    module = session(f"{CELLS[0]}{RICH.replace('mark = object()', 'mark = torch.Generator()')}")
    with pytest.raises(InputError) as caught, register_classes([module.Rich]):
        pass
    assert not missing_facts(str(caught.value), "Rich: ", "Rich.mark", "Generator", "inside build")


@pytest.mark.parametrize("name", ["all", "a,b", "a=b", "a:b", "a[b]", "a b", "", "-x", "../x"])
def test_a_name_that_methods_cannot_spell_is_refused(session: Load, name: str) -> None:
    kind = session(TEXT.replace('name="mine"', f"name={name!r}")).Mine
    for register in (lambda: register_classes([kind]).__enter__(), lambda: add_method(kind)):
        error = check_error(register, kind=InputError)
        assert not missing_facts(str(error), "Mine", repr(name), "letters, digits")


def test_classes_are_registered_for_the_length_of_the_block(session: Load) -> None:
    before = [(name, METHODS.origin(name)) for name in discover().names()]
    module = session(TEXT)
    with register_classes([module.Second, module.Mine]) as (plugins, names, in_process):
        assert (names, in_process, len(plugins)) == (("second", "mine"), False, 2)
        assert METHODS.get("mine").card == module.Mine.card
        first = plugins[1]
    assert [(name, METHODS.origin(name)) for name in METHODS.names()] == before
    redefined = session(TEXT.replace("hashed sentences", "others"))
    with register_classes([redefined.Mine]) as (plugins, _, _):
        assert METHODS.get("mine").card.summary == "others"
        assert plugins[0] != first
    add_method(redefined.Mine)  # as its own decorator
    with register_classes([redefined.Mine]):
        assert METHODS.origin("mine") != "session"
    assert METHODS.origin("mine") == "session"
    METHODS.forget("session")
    with register_classes([type(METHODS.get("simcse"))]) as registered:
        assert registered == ((), ("simcse",), False)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (('name="mine"', 'name="simcse"'), ["'simcse'", "twice", "bench.baselines.simcse"]),
        (("    card = ", "    tag = "), ["Mine is not a method", "a card"]),
    ],
)
def test_a_class_that_is_no_method_of_its_own_leaves_nothing(
    session: Load, change: tuple[str, str], facts: list[str]
) -> None:
    kind, before = session(TEXT.replace(*change)).Mine, discover().names()
    with pytest.raises(InputError) as caught, register_classes([kind]):
        pass
    assert not missing_facts(str(caught.value), *facts)
    assert METHODS.names() == before


def test_a_class_in_a_function_is_refused(session: Load) -> None:
    body = "\n".join(f"    {line}" for line in CELLS[2].strip().splitlines())
    kind = session(f"{TEXT}\ndef f():\n{body}\n    return Mine").f()
    with pytest.raises(InputError, match="inside a function"), register_classes([kind]):
        pass


def test_a_run_keeps_the_text_and_equals_that_of_its_file(session: Load, tmp_path: Path, cli: Cli) -> None:
    with register_classes([session(TEXT).Mine]) as (plugins, _, _):
        outcomes = run(tmp_path / "results", plugins)
    (kept,) = (tmp_path / "results/local/plugins").iterdir()
    assert NAME.fullmatch(kept.name)
    assert kept.read_bytes() == plugins[0].source
    found = tmp_path / "results/local/mini/mine/seed-1/toy.json"
    facts = json.loads(found.read_text())["provenance"]["plugins"]["mine"]
    assert (facts["file"], facts["class"], len(facts["code"])) == (kept.name, "Mine", 64)
    assert "results folder" in refusal(cli, "verify", str(found), "--rerun", "--plugin", str(kept))
    copy = tmp_path / kept.name
    copy.write_bytes(kept.read_bytes())
    assert cli("verify", str(found), "--rerun", "--plugin", copy.name)[0] == 0
    assert cli("verify", "results", "--plugin", copy.name, "--rerun", "1")[0] == 0
    command = ("run", "--methods", "mine", "--seeds", "1-2", "--suite", "toy", "--plugin", copy.name)
    assert "done already" in cli(*command)[2]
    assert cli(*command, "--campaign", "other")[0] == 0
    for outcome in outcomes:
        assert outcome.record is not None
        path = tmp_path / f"results/other/mini/mine/seed-{outcome.record.seed}/toy.json"
        assert json.loads(path.read_text())["key"] == outcome.record.key


def test_a_class_without_source_runs_here_and_is_marked(tmp_path: Path, cli: Cli) -> None:
    kind = sourceless()
    with register_classes([kind]) as (plugins, names, in_process):
        assert (plugins, names, in_process) == ((), ("mine",), True)
        outcomes = run(tmp_path / "results", plugins)
        assert [outcome.state for outcome in outcomes] == ["ran", "ran"]
        assert run(tmp_path / "results", plugins) == []  # the same definition: done
        for other in ({"workers": 2}, {"workers": 0}, {"ranks": 2}):
            with pytest.raises(InputError, match="no source"):
                run(tmp_path / "results", plugins, campaign="other", **other)
    assert "mine" not in METHODS.names()
    path = tmp_path / "results/local/mini/mine/seed-1/toy.json"
    record = json.loads(path.read_text())
    assert record["notes"][1:] == ["mine: the class of mine had no source: not repeatable."]
    assert set(record["provenance"]["plugins"]["mine"]) == {"class", "session"}
    with register_classes([sourceless()]) as (plugins, _, _):  # another definition may be another method
        assert run(tmp_path / "results", plugins) == []
    assert "without source" in refusal(cli, "verify", str(path), "--rerun")
    code, out, _ = cli("verify", "results", "--format", "json")
    reasons = set(json.loads(out)["unrepeatable"].values())
    assert (code, reasons) == (0, {"method mine: a class without source, which nothing repeats"})


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (('name="mine"', 'name="simcse"'), ["Mine", "'simcse'", "twice", "bench.baselines.simcse"]),
        (
            ("    def build(", "    def __init__(self): 1 / 0\n\n    def build("),
            ["Mine", "made", "division by zero"],
        ),
        (("    def build(", "    def make("), ["Mine is not a method", "build(context)"]),
    ],
)
def test_a_wrong_class_without_source_leaves_nothing(change: tuple[str, str], facts: list[str]) -> None:
    kind, before = sourceless(TEXT.replace(*change)), discover().names()
    with pytest.raises(InputError) as caught, register_classes([kind]):
        pass
    assert not missing_facts(str(caught.value), *facts)
    assert METHODS.names() == before


SCRIPT = '''
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from tests.support.session import CELLS
RUN = """
from pathlib import Path
from bench.config.notebook_methods import register_classes
from tests.config.test_notebook_methods import run
with register_classes([Mine]) as (plugins, _, in_process):
    print(in_process, [outcome.state for outcome in run(Path("results"), plugins, workers=2)])
"""
if __name__ == "__main__":
    shell = InteractiveShell.instance()
    for cell in (*CELLS, RUN):
        shell.run_cell(cell, store_history=True).raise_error()
'''


@pytest.mark.long  # a script gives one to workers in tests/api/test_classes.py
@pytest.mark.slow
def test_workers_run_a_class_of_a_notebooks_cell(session: Load, tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    (tmp_path / "script.py").write_text(SCRIPT)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # the script imports tests
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == "False ['ran', 'ran']", done.stderr
    (kept,) = (tmp_path / "results/local/plugins").iterdir()
    assert kept.read_text() == source(session(TEXT).Mine)  # a script's class of the same text
