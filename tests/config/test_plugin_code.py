"""What identifies a plug-in's method: which edits leave it, and which files count as a whole."""

from __future__ import annotations

import pytest

from bench.config.plugin_code import explain_whole_file, hash_method_code
from tests.support.conformance import RIGHT

FILE = '''
"""A method."""
from __future__ import annotations
import math
from dataclasses import dataclass, field
from bench import losses
from bench.lazy import torch
from bench.method_card import MethodCard, Option
from bench.registry import add_method

TAU = 0.05
SHARED = TAU
UNUSED = [1, 2]


@dataclass
class Config:
    size: int = 3
    names: list[str] = field(default_factory=list)


def loss(x, tau=SHARED):
    """Return a loss."""
    return helper(x) / tau


def helper(x):
    return x * math.pi


class Base:
    scale = 1

    def step(self, x):
        return loss(x)


@add_method
class Mine(Base):
    card = MethodCard(name="mine", kind="method", summary="s", version=1, options=(Option("a", 1, "b"),))

    def build(self, context):
        return Config(), f"{TAU:>{3}}"
'''
OTHER = """
@add_method
class Other(Mine):
    card = MethodCard(name="other", kind="method", summary="s", version=1)

    @property
    def size(self):
        return 3

    def build(self, context):
        return exec_free(1)


def exec_free(x: int, y=UNUSED) -> int:
    return x
"""


def code(text: str, kind: str = "Mine") -> str:
    return hash_method_code(text.encode(), kind)


def swap(old: str, new: str, text: str = FILE) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


PLAIN = code(FILE)
SAME = {
    "a comment": swap("TAU = 0.05", "TAU = 0.05  # temperature"),
    "a docstring": swap("Return a loss.", "Return it."),
    "no docstring": swap('    """Return a loss."""\n', ""),
    "layout": swap("return helper(x) / tau", "return (helper(x)\n        / tau)"),
    "another quote": swap('"a", 1', "'a', 1"),
    "an unused constant": swap("[1, 2]", "[1, 2, 3]"),
    "another constant": f"{FILE}\nLIMIT = -(2**3)\nTABLE = {{'a': (1, 2)}}\nf = lambda x, y=TAU: x\n",
    "another method": FILE + OTHER,
    "another import": swap("import math", "import math\nimport numpy as np\nfrom bench import nn"),
    "another function": f"{FILE}\ndef g(x: torch.Tensor, *, y: int | None = 1) -> dict[str, int]: exit()\n",
    "another dataclass": f"{FILE}\n@dataclass(frozen=True)\nclass More:\n    x: int = 1\n",
    "another module": f"{FILE}\nclass Net(torch.nn.Module):\n    def __init__(self): super().__init__()\n",
    "a script's part": f"{FILE}\nif __name__ == '__main__':\n    exec('1')\n",
}
CHANGED = {
    "a constant": swap("0.05", "0.06"),
    "a constant behind another": swap("SHARED = TAU", "SHARED = 0.1"),
    "a default": swap("tau=SHARED", "tau=1"),
    "a function behind another": swap("x * math.pi", "x * math.e"),
    "a base": swap("scale = 1", "scale = 2"),
    "a dataclass": swap("size: int = 3", "size: int = 4"),
    "an import": swap("import math", "from scipy import constants as math"),
    "a format": swap("{TAU:>{3}}", "{TAU:>{4}}"),
    "a card": swap('"b"', '"c"'),
    "a decorator": swap("def helper", "@staticmethod\ndef helper"),
    "annotations": swap("from __future__ import annotations\n", ""),
    "a second definition": f"{FILE}\ndef helper(x): return 0\n",
    "a hidden builtin": f"{FILE.replace('x * math.pi', 'abs(x) * math.pi')}\ndef abs(x): return 0\n",
    "an attribute's assignment": f"{FILE}\nBase.scale = 3\n",
    "a deletion": f"{FILE}\ndel UNUSED\n",
    "a condition": f"{FILE}\nif TAU:\n    helper = loss\n",
    "a loop": f"{FILE}\nfor helper in [loss]: pass\n",
    "a call": f"{FILE}\nprint(Mine)\n",
    "a call in a constant": f"{FILE}\nx = Mine()\n",
    "an augmented constant": f"{FILE}\nTAU += 1\n",
    "an assignment expression": f"{FILE}\n[(TAU := 3) for _ in [1]]\n",
    "an unpacking": f"{FILE}\nTAU, y = 1, 2\n",
    "a default that acts": f"{FILE}\ndef g(x=Base().step(1)): pass\n",
    "a function's decorator": f"{FILE}\n@Base\ndef g(): pass\n",
    "a class whose body acts": f"{FILE}\nclass C:\n    print(Base)\n",
    "a class whose decorator acts": f"{FILE}\n@Base\nclass C: pass\n",
    "a method whose instance acts": FILE + OTHER.replace("@property\n    def size", "def __init__"),
    "a method whose card acts": FILE + OTHER.replace('"s"', "print()"),
    "a method that computes its card": FILE + OTHER.replace("def size", "def card"),
    "a try": f"{FILE}\ntry:\n    TAU = 2\nexcept ValueError:\n    pass\n",
    "a with": f"{FILE}\nwith torch.no_grad() as helper: pass\n",
    "a match": f"{FILE}\nmatch 1:\n    case helper: pass\n",
    "a quoted annotation": swap("size: int = 3", "size: 'Size' = 3") + "\nSize = 3\n",
}
ACTING = {
    "a class of a class whose members act": (
        "from enum import Enum\nclass E(Enum):\n    def __init__(self, x): print(x)\n",
        "class F(E): A = 1\n",
    ),
    "a class of a replaced class": ("@print\nclass E: pass\n", "class F(E): pass\n"),
    "a card that names an instance": (
        "class S(str):\n    def __hash__(self): return print()\ns = S('x')\nx = s\n",
        OTHER.replace('"other"', "x"),
    ),
    "a registered class whose base acts": (
        "class E:\n    def __init__(self): print()\n",
        OTHER.replace("(Mine)", "(E)"),
    ),
    "an import of a package that acts": ("", "import transformers\n"),
}
WHOLE = {
    "a patched module": "import functools\nfunctools.reduce = loss",
    "a module patched in a function": "from functools import reduce\ndef g(m): m.reduce = loss",
    "a patched constructor": "def g(c): c.__init__ = loss",
    "a class of classes": "class M(type): pass",
    "a class of classes by its name": "from abc import ABCMeta\nclass M(ABCMeta): pass",
    "a computed base": "class C(type(Base)): pass",
    "a base of an argument": "def g(b):\n    class C(b): pass",
    "warnings with their line": "import warnings",
    "a line": "def g(error): return error.lineno",
    "a line in a format": "x = '%(lineno)d'",
    "a file's size": "def g(path): return path.stat()",
    "a format that is passed on": "x = map(str.format, [])",
    "a module that loads code": "from torch.utils.cpp_extension import load",
    "exec": "exec('1')",
    "eval under another name": "e = eval",
    "getattr": "x = getattr(Base, 'sc' + 'ale')",
    "getattr of a private name": "x = getattr(Base, '__dict__')",
    "setattr": "def g(): setattr(Base, 'scale', 3)",
    "globals": "def g(): globals()['TAU'] = 3",
    "global": "def g():\n    global TAU\n    TAU = 3",
    "a change in a function": "def g(): Base.scale = 3",
    "an item's change in a function": "def g(): UNUSED[0] = 3",
    "a change in a class": "class C:\n    Base.scale = 4",
    "a change of a module": "def g(): torch.backends.x = 3",
    "an import in a function": "def g(): import json",
    "an import in a class": "class C: import json",
    "an import of sys": "import sys",
    "an import of importlib": "from importlib import import_module",
    "an unknown module": "import helpers",
    "a star": "from math import *",
    "a relative import": "from . import x",
    "a frame's globals in a format": "def g(): yield\nx = '{0.gi_frame.f_globals[TAU]}'.format(g())",
    "an attribute in a format": "x = '{0.scale}'.format(Base)",
    "an item in a format": "x = '{0[0]}'.format(UNUSED)",
    "an attribute in a format's width": "x = '{0:{1.scale}}'.format(1, Base)",
    "an attribute in a format's mapping": "x = '{a.scale}'.format_map({'a': Base})",
    "a generator's line": "def g(): yield\nx = repr(g().gi_code)",
    "a docstring that numpy prints": "import numpy as np\ndef g(w): np.info(Base, output=w)",
    "a private module": "from torch._sources import get_source_lines_and_file",
    "a module's own module": "x = torch.os",
    "a private part of a module": "x = torch._C",
    "the registry": "from bench.registry import METHODS",
    "the loaded files": "from bench.config import plugins",
    "bench itself": "import bench",
    "a metaclass": "class C(metaclass=Base): pass",
    "a hook of subclasses": "class C:\n    def __init_subclass__(cls): pass",
    "a descriptor's name": "class C:\n    def __set_name__(self, owner, name): pass",
    "a module's getattr": "def __getattr__(name): return 3",
    "a mangled name": "_Mine__x = 3\nclass D:\n    def f(self): return __x",
    "its own file": "x = __file__",
    "its own text": "def g(): return open('mine.py').read()",
    "a path's text": "from pathlib import Path\ndef g(): return Path('mine.py').read_text()",
    "its docstring": "def g(): return Mine.__doc__",
    "a function's globals": "def g(): return loss.__globals__",
    "globals in a format": "x = '{0.__globals__}'",
    "a format that isn't literal": "def g(x): return x.format(loss)",
    "a made class": "C = type('C', (), {})",
    "source read by a compiler": "@torch.jit.script\ndef g(): pass",
}
STATE = """
import functools, operator, re
import numpy as np
from dataclasses import dataclass, field

TABLE = {"a": 1}
STOP = {"x"}
ITEMS = [1]
ROWS = np.zeros(3)
LIMIT, TYPES, RX, SIZES = 2**3, (np.float32, "a"), re.compile("a"), frozenset({1, 2})


class Held:
    n = 0
    names = []


class Plain:
    n = 0

    def __init__(self, n):
        self.n = n
        self.rows = [n]

    @classmethod
    def make(cls):
        return cls(1)

    @property
    def size(self):
        return type(self).__name__, self.rows


@dataclass
class Settings:
    n: int = 1
    names: list[str] = field(default_factory=list)


def get(name="a"):
    return TABLE[name]


def collect(x, into=[]):
    into.append(x)
    return into


@functools.cache
def cached():
    return []


def pure(x, limit=LIMIT):
    out = {}
    out["a"] = len(x)
    out.update(b=limit)
    return out


class Mine:
    def build(self, context):
        return USED, self.card.n, LIMIT, Plain(1).n


class Other:
    def build(self, context):
        OTHER
        return self
"""
# What both methods use, and what the other one does.
SHARED = {
    "an update": ("STOP", "STOP.update({'b'})"),
    "an item of a shared function": ("get()", "get(); x = get; x"),
    "an operator": ("ITEMS", "operator.setitem(ITEMS, 0, 2)"),
    "a loop": ("TABLE", "for d in (TABLE,): d['k'] = 1"),
    "an alias": ("ITEMS", "x = ITEMS; x.append(1)"),
    "an array": ("ROWS", "ROWS.fill(1)"),
    "a class's list": ("Held", "Held.names.append(1)"),
    "a class by an instance": ("Plain.n", "type(Plain(1)).n = 1"),
    "a class by its bases": ("Plain.n", "type(self).mro()[1].n = 1"),
    "a class in a tuple": ("Plain", "for c in (Plain,): c.n = 1"),
    "a class that is passed": ("Plain.n", "x = Plain; x.n = 1"),
    "a class as an instance": ("Plain.n", "Plain.__init__(Plain, 3)"),
    "a method that bench calls": ("1", "for c in (Mine,): c.stages = 1"),
    "an attribute that both have": ("1", "self.h = context; self.h.n = 3"),
    "a default": ("collect(1)", "collect(2)"),
    "a cache": ("cached()", "cached().append(2)"),
    "a replaced self": ("1", "self = Mine; self.card = 3"),
}
APART = {
    "its own list": ("LIMIT", "STOP.update({'b'})"),
    "constants": ("LIMIT, TYPES, RX, SIZES", "LIMIT, TYPES, RX, SIZES"),
    "pure functions": ("pure(context)", "return pure(self)"),
    "classes": ("Plain.make(), Settings()", "return Plain(2).size, Settings(3), Plain.make()"),
    "instances": ("Plain(1)", "self.n = Plain(3); self.rows = [1]; self.rows[0] = 2"),
    "checks": ("Plain", "if isinstance(context, Plain) or type(context) is Held: raise ValueError"),
}


def both(used: str, other: str) -> str:
    return STATE.replace("USED", used).replace("OTHER", other)


@pytest.mark.parametrize(("used", "other"), SHARED.values(), ids=SHARED)
def test_what_another_method_may_change_makes_the_whole_file_count(used: str, other: str) -> None:
    compile(both(used, other), "mine.py", "exec")
    assert code(both(used, other)) == ""
    assert explain_whole_file(both(used, other).encode(), "Mine")


@pytest.mark.parametrize(("used", "other"), APART.values(), ids=APART)
def test_methods_that_share_what_stays_are_apart(used: str, other: str) -> None:
    text = both(used, other)
    assert explain_whole_file(text.encode(), "Mine") == ""
    assert code(text) == code(both(used, "pass")) != ""


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_it_stays(text: str) -> None:
    assert code(text) == PLAIN != ""


@pytest.mark.parametrize("text", CHANGED.values(), ids=CHANGED)
def test_it_changes(text: str) -> None:
    assert code(text) not in ("", PLAIN)
    compile(text, "mine.py", "exec")


@pytest.mark.parametrize(("first", "second"), ACTING.values(), ids=ACTING)
def test_what_acts_at_import_counts_unused(first: str, second: str) -> None:
    compile(f"{FILE}\n{first}{second}", "mine.py", "exec")
    assert code(f"{FILE}\n{first}{second}") != code(f"{FILE}\n{first}") != ""


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_the_whole_file_counts(text: str) -> None:
    compile(text, "mine.py", "exec")
    assert code(f"{FILE}\n{text}\n") == ""


def test_a_class_is_found_by_its_name_and_read_in_its_encoding() -> None:
    assert code(FILE, "Missing") == code("class Mine(:") == code("x = 1\n\0") == ""
    assert code("def f():\n    class Mine: pass") == ""
    latin, utf8 = (f"# coding: {name}\nclass Mine: x = 'é'".encode(name) for name in ("latin-1", "utf-8"))
    assert hash_method_code(latin, "Mine") == hash_method_code(utf8, "Mine") != ""
    assert hash_method_code(latin.replace(b"latin-1", b"cp437"), "Mine") != hash_method_code(latin, "Mine")


def test_it_is_the_same_in_all_versions_of_python() -> None:
    assert PLAIN == "faa37d477f39e2d77ac12c15b2cec275e04353accbc9d5077c84cb6b103d932a"
    assert code(RIGHT)[:16] == "46d62bd16e264aaa"
