"""Which data sets mteb's sources declare for its tasks, read without importing mteb, which takes seconds."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.data.mteb_names import MtebName


def declared_data_sets(tasks: Sequence[MtebName]) -> list[str] | None:
    """Return the hub's name of each task's data set, or None if mteb itself has to be asked.

    It has to where the sources don't say all of them in so many words: for a task that isn't there or is made
    of others, for data sets that are computed, for subsets and splits that no source names.
    """
    named = b"|".join(re.escape(task.name.encode()) for task in tasks)
    mentioned = re.compile(rb"name\s*=\s*[\"'](?:" + named + rb")[\"']")
    found: dict[str, set[str]] = {}
    for source in _read_sources():
        if mentioned.search(source):
            for name, path in _parse_declarations(source):
                said = {part for task in tasks if task.name == name for part in (*task.subsets, task.split)}
                if all(re.search(rf"[\"']{re.escape(part)}[\"']".encode(), source) for part in said if part):
                    found.setdefault(name, set()).add(path)
    paths = [found.get(task.name, set()) for task in tasks]
    return [path for each in paths for path in each] if all(len(each) == 1 for each in paths) else None


def _read_sources() -> Iterator[bytes]:
    mteb = importlib.util.find_spec("mteb")
    for place in (mteb.submodule_search_locations or ()) if mteb else ():
        for file in Path(place, "tasks").rglob("*.py"):
            yield file.read_bytes()


def _parse_declarations(source: bytes) -> Iterator[tuple[str, str]]:
    """Names and data sets of the text tasks that a file describes by constants."""
    module = ast.parse(source)
    assigned = {
        ast.unparse(target): node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "TaskMetadata":
            said = _parse_fields(node, assigned)
            dataset = said.get("dataset")
            path = _string_constant(_parse_fields(dataset, assigned).get("path")) if dataset else None
            name, kinds = _string_constant(said.get("name")), said.get("modalities")
            text = "**" not in said if kinds is None else ast.unparse(kinds) == "['text']"
            if name and path and text:
                yield name, path


def _parse_fields(table: ast.expr, assigned: Mapping[str, ast.expr]) -> dict[str, ast.expr]:
    """What a call or a dictionary names; "**" stands for what it takes from where no constant is."""
    found: dict[str, ast.expr] = {}
    if isinstance(table, ast.Call):
        named = [(argument.arg, argument.value) for argument in table.keywords]
    elif isinstance(table, ast.Dict):
        named = [(_string_constant(key), value) for key, value in zip(table.keys, table.values, strict=True)]
    else:
        named = [(None, table)]
    for name, value in named:
        if name is not None:
            found[name] = value
        elif (known := assigned.get(ast.unparse(value))) is not None:
            found |= _parse_fields(known, {})
        else:
            found["**"] = value
    return found


def _string_constant(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
