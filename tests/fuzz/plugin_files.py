"""Plug-in files: wrong cards, wrong encoders, failing code; and the results that they leave."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.config import plugins
from bench.registry import METHODS, discover
from tests.fuzz import core
from tests.fuzz.core import ANSWER, Dice, RuleError
from tests.fuzz.mutate import bytes_of

_SOURCE = '''"""A plug-in."""
import hashlib
import numpy as np
from bench.method_card import BuildContext, MethodCard, Option
from bench.registry import add_method


class Vectors:
    dim = 8
    facts = {"attention": "none"}

    def __init__(self, seed):
        self.seed = seed

    def encode(self, sentences, batch_tokens=None, progress=None):
        hashes = [hashlib.sha256(f"{self.seed} {s}".encode()).digest()[:8] for s in sentences]
        rows = np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(len(sentences), 8)
        return np.asarray(rows, dtype=np.float32)


@add_method
class Mine:
    card = MethodCard(
        name="mine", kind="external", summary="bytes of a hash", version=1, needs_backbone=False,
        paper="none", equations=("h(s)",), deterministic=False,
        options=(Option("scale", 1.0, "no effect"), Option("how", "plain", "a choice", ("plain", "odd"))),
    )

    def build(self, context: BuildContext):
        return Vectors(context.seed)
'''
_CHANGES = r"""
name="mine"
    name="" | name="a b" | name="../x" | name="all" | name=5 | name=None | name="noise" | name="simcse"
    name="x\\n" | name="x" * 300 | name="a,b" | name="a[b]" | name="\\ud800" | name="hf" | name="<b>"
    name="mine", | - | name=["mine"] | name="ensemble"
kind="external"
    kind=5 | kind=None | kind="test" | -
summary="bytes of a hash"
    summary=None | summary=5 | summary="a\\nb\\x1b[2J" | summary="\\ud800"
version=1
    version=0 | version=-1 | version="1" | version=None | version=1.5 | version=True | -
needs_backbone=False
    needs_backbone=None | takes_path=True | needs_backbone="no" | takes_methods=True
paper="none"
    paper=5 | paper=None | paper=("a", "b") | unknown="x" | code="\\x1b"
equations=("h(s)",)
    equations="h(s)" | equations=None | equations=(5,) | deviations=(None,)
deterministic=False
    deterministic=True | deterministic="yes" | deterministic=None | short_option="scale"
    short_option="nothing" | short_option="how" | auxiliaries=("scale",) | auxiliaries=("nothing",)
    published_names=("a",) | padding_matters=5
Option("scale", 1.0, "no effect")
    Option("a b", 1.0, "h") | Option("scale", None, "h") | Option("scale", [], "h") | 5 | None
    Option("scale", float("nan"), "h") | Option("scale", 1, "h", minimum=5) | Option("how", 1, "h")
    Option("", 1, "h") | Option(5, 1, "h") | Option("scale", 1, None) | Option("one.lr", 1.0, "h")
    Option("scale", 1, "h", minimum="a") | Option("steps", 3, "h") | Option("match", "", "h")
    Option("scale", 10**30, "h") | Option("scale", "a,b]", "h") | Option("lr", 1e300, "h")
("plain", "odd")
    ("odd",) | 5 | "plain" | (None,) | () | {}
options=(
    options=[ | options=5 or ( | options=None and (
@add_method
    - | @add_method\n@add_method | add_method(5) | @add_method() | add_method(None)
class Mine:
    class Mine(int): | def Mine(): | class Mine(Vectors): | class Mine(Exception):
card = MethodCard
    kard = MethodCard | card = None and MethodCard | card = {} or MethodCard | card = lambda: MethodCard
def build(self, context: BuildContext)
    def build(self) | def built(self, context) | def build(self, context, more)
    build = None\n    def b(self) | def __init__(self, x)
return Vectors(context.seed)
    return None | return Vectors | return 5 | raise RuntimeError("x\\ny") | return context
    raise SystemExit(7) | return self.build(context) | 1 / 0 | import nothing
dim = 8
    dim = 7 | dim = "8" | dim = None | dim = 0 | - | dim = -1
facts = {"attention": "none"}
    facts = None | facts = 5 | - | facts = {"x": float("nan")} | facts = {"parts": "two"} | facts = []
    facts = {5: 1} | facts = {"x": np.float32(1)} | facts = {"x": {1, 2}} | facts = {"x": "\\ud800"}
    facts = {"x": 10**30} | facts = {"x": None} | facts = {"parts": 2} | facts = {(1, 2): 3, "a": 4}
return np.asarray(rows, dtype=np.float32)
    return None | return rows | return np.asarray(rows, dtype=np.float64) | return np.asarray(rows)
    return np.full((len(rows), 8), np.nan, np.float32) | return np.zeros((len(rows), 8), np.float32)
    return np.asarray(rows[1:], np.float32) | return np.asarray(rows, np.float32).T | return np.array('x')
    return np.ones((len(rows), 8), np.float32) * np.inf | raise MemoryError | raise KeyError('x')
    return np.asarray(rows, np.float32) * np.float32(1e38)
import hashlib
    import nothing_of_that_name | raise ValueError("x\\ny") | raise SystemExit(7) | raise KeyError
    raise KeyboardInterrupt | def f(): f()\nf() | import hashlib, warnings; warnings.warn('x')
    raise Exception | from __future__ import nothing | import sys; sys.modules.clear | \timport x
    class E(Exception):\n    def __str__(self): raise self\nraise E | import hashlib; exit()
    import os; os.environ['X'] | from bench.errors import *\nraise DataError('x')
"""
"""A text of the good file, and below it its replacements; - is nothing."""


def _changes() -> dict[str, list[str]]:
    changes = {}
    for place, texts in re.findall(r"^(\S.*)\n((?: .*\n)+)", _CHANGES, re.MULTILINE):
        new = re.split(r"\s*\n\s*|\s+\|\s+", texts.strip())
        changes[place] = ["" if text == "-" else text.encode().decode("unicode_escape") for text in new]
    return changes


class PluginFiles:
    """Files under ``--plugin``, and the results that they leave."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.changes = folder, _changes()
        discover()
        self.registered = dict(METHODS._items)

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        os.chdir(self.folder)
        shutil.rmtree("results", ignore_errors=True)
        raw = _SOURCE.encode()
        for step in steps:
            if step.chance(0.08):
                raw = bytes_of(raw, step)
                log.append("bytes")
            else:
                place = step.choice(sorted(self.changes))
                new = step.choice(self.changes[place])
                raw = raw.replace(place.encode(), new.encode("utf-8", "surrogatepass"), 1)
                log.append(f"{place!a} -> {new!a}")
        Path("mine.py").write_bytes(raw)
        try:
            return self._use(dice, steps, log)
        finally:
            self._forget()

    def _use(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        asked = ("mine", "mine", "mine[scale=2]", "mine[how=odd]", "mine:odd", "x=mine", "noise,mine")
        methods = dice.choice(asked)
        run = ["run", "--methods", methods, "--suite", "toy", "--seeds", "1", "--plugin", "mine.py"]
        commands = (["show", "mine", "--plugin", "mine.py"], [*run, "--dry-run"], run, run, run)
        arguments = dice.choice(commands) if not dice.chance(0.04) else ["conformance", "mine.py"]
        log.append(f"bench {' '.join(arguments)}")
        outcome = core.bench(*arguments, may_warn=True)
        if not steps and outcome.code != 0 and methods != "mine:odd":
            raise RuleError(f"a good plug-in is refused: {outcome.err}")
        if Path("results/local").is_dir() and list(Path("results/local").glob("*/*/*/*.json")):
            report = core.bench("report", "--format", dice.choice(("text", "csv", "json", "html")))
            if report.code != 0:
                raise RuleError(f"what it wrote can't be read: {report.err}")
        return ANSWER if outcome.code == 0 else outcome.kind

    def _forget(self) -> None:
        METHODS._items.clear()
        METHODS._items.update(self.registered)
        for name in list(plugins._FILES):
            sys.modules.pop(name, None)
        plugins._FILES.clear()
