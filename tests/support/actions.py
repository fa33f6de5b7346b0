"""Workflow files and the composite action: read, and their steps run as GitHub runs them, on stubs."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.docs_commands import ROOT

ACTION = ROOT / "action.yml"
WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
PINNED = re.compile(r"actions/[a-z-]+(/[a-z]+)?@v\d+|[\w.-]+/[\w./-]+@[0-9a-f]{40}")
"""GitHub's own actions by their major version, everybody else's by their commit."""
Step = dict[str, Any]

STUB = f"""#!{sys.executable} -ES
import json, os, pathlib, sys
words = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
bodies = [pathlib.Path(word[6:]).read_text() for word in words if word.startswith("body=@")]
with open(os.environ["CALLS"], "a") as stream:
    print(json.dumps([words, bodies]), file=stream)
for word in words:
    if word.startswith("--summary=") and "SUMMARY" in os.environ:
        pathlib.Path(word.partition("=")[2]).write_bytes(pathlib.Path(os.environ["SUMMARY"]).read_bytes())
if words[0] == "gh" and "--paginate" in words:
    print(os.environ.get("FOUND", ""))
sys.exit(int(os.environ.get("CODE_" + words[0], 0)))
"""


def read(text: str) -> dict[Any, Any]:
    """A YAML file; ``on`` is the key True, as YAML 1.1 has it."""
    found: dict[Any, Any] = importlib.import_module("yaml").safe_load(text)
    return found


def evaluate(text: Any, context: Mapping[str, Any]) -> Any:
    """A value of a workflow with its ``${{ }}``; the value itself where it is nothing but one."""
    whole = re.fullmatch(r"\$\{\{(.*?)\}\}", str(text).strip())
    if whole:
        return expression(whole[1], context)
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: _shown(expression(found[1], context)), str(text))


def expression(text: str, context: Mapping[str, Any]) -> Any:
    """What an expression gives: names with dots are looked up, and are null where they are not there."""

    def look(name: str) -> Any:
        return context.get(name)

    code = re.sub(
        r"\b(?:inputs|github|steps|runner|env|vars)(?:\.[\w*-]+)+", lambda m: f"look({m[0]!r})", text
    )
    code = re.sub(r"!(?!=)", " not ", code.replace("||", " or ").replace("&&", " and "))
    names = {
        "look": look,
        "cancelled": lambda: False,
        "contains": lambda items, item: item in (items or ()),
        "format": lambda form, *values: form.format(*values),
    }
    return eval(code.strip(), {"__builtins__": {}}, names)  # noqa: S307 - our own files


def _shown(value: Any) -> str:
    if value is None or value is False:
        return "" if value is None else "false"
    return "true" if value is True else str(value)


class Runner:
    """Runs the action's steps in a folder, with stubs in place of bench, python and gh."""

    def __init__(
        self, folder: Path, *, found: str = "", summary: str | None = "## bench check\n", **codes: int
    ) -> None:
        self.folder, self.calls, self.used = folder, folder / "calls", list[tuple[str, dict[str, Any]]]()
        self.workspace = folder / "work space"
        (folder / "bin").mkdir()
        self.workspace.mkdir()
        for name in ("bench", "python", "gh"):
            (folder / "bin" / name).write_text(STUB)
            (folder / "bin" / name).chmod(0o755)
        self.output = ""
        if summary is not None:
            (folder / "summary").write_text(summary, encoding="utf-8")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("BENCH", "PYTHON"))},
            **{f"CODE_{name}": str(code) for name, code in codes.items()},
            **({} if summary is None else {"SUMMARY": str(folder / "summary")}),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "CALLS": str(self.calls),
            "FOUND": found,
            "TMPDIR": str(folder),
            "GITHUB_STEP_SUMMARY": str(folder / "step summary.md"),
            "GITHUB_REPOSITORY": "them/theirs",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_RUN_ID": "7",
        }

    def run(self, inputs: Mapping[str, str], **context: Any) -> int:
        """Run all steps; returns the exit code of the first that failed, else 0."""
        action, code = read(ACTION.read_text()), 0
        facts = {f"inputs.{name}": "" if "${{" in of["default"] else of["default"]
                 for name, of in action["inputs"].items()}  # fmt: skip
        facts |= {f"inputs.{name}": value for name, value in inputs.items()}
        facts |= {"github.action_path": str(ROOT), "runner.os": "Linux"}
        facts |= {name.replace("__", "."): value for name, value in context.items()}
        for step in action["runs"]["steps"]:
            wanted = str(step.get("if", "true"))
            asked = wanted if "${{" in wanted else f"${{{{ {wanted} }}}}"
            if code and "cancelled()" not in wanted:
                continue
            if wanted != "true" and not evaluate(asked, facts):
                continue
            code = self._step(step, facts) or code
        return code

    def _step(self, step: Step, facts: Mapping[str, Any]) -> int:
        if "uses" in step:
            with_ = {name: evaluate(value, facts) for name, value in step["with"].items()}
            self.used.append((step["uses"], with_))
            return 0
        given = {name: _shown(evaluate(value, facts)) for name, value in step["env"].items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", step["run"]],  # noqa: S607
            cwd=self.workspace,
            env=self.environment | given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.output += done.stdout + done.stderr
        return done.returncode

    def called(self, name: str) -> list[list[str]]:
        """Arguments of every call of a stub."""
        return [words[1:] for words, _ in self._lines() if words[0] == name]

    def bodies(self) -> list[str]:
        """The comments that were written."""
        return [body for _, bodies in self._lines() for body in bodies]

    def _lines(self) -> Iterator[tuple[list[str], list[str]]]:
        for line in self.calls.read_text().splitlines() if self.calls.exists() else ():
            yield json.loads(line)
