"""Facts of a model from ``model_meta.json``, of a folder from its licence and its git checkout."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.errors import printable
from bench.imports.mteb_files import ResultTree, is_inside
from bench.imports.mteb_result_file import read_text

_LARGEST = 10**15  # parameters, dimensions or tokens
_LICENCES = {
    "CC0 1.0": "CC0-1.0",
    "MIT License": "MIT",
    "Apache License": "Apache-2.0",
    "Attribution 4.0 International": "CC-BY-4.0",
    "Attribution-ShareAlike 4.0": "CC-BY-SA-4.0",
    "BSD 3-Clause": "BSD-3-Clause",
}
_HEADING_LINES = 6  # lines of a licence in which its name stands
_MOST_CHARACTERS = 1 << 20  # of a text file of git's
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH = re.compile(r"refs/[\w./-]+", re.ASCII)
_REMOTE = re.compile(r'\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)\s*$', re.MULTILINE)


def read_model_name(data: Any, folder: str) -> str:
    """Return a model's name: the stated one where it gives the folder's name, otherwise the folder's."""
    stated = data.get("name") if isinstance(data, dict) else None
    if isinstance(stated, str) and stated.replace("/", "__").replace(" ", "_") == folder:
        return printable(stated)
    return printable(folder.replace("__", "/", 1))


def read_model_facts(data: Any) -> dict[str, Any]:
    """Return the known facts of a model, without those of another type than expected."""
    if not isinstance(data, dict):
        return {}
    facts: dict[str, Any] = {}
    for name in ("n_parameters", "embed_dim", "max_tokens"):
        value = data.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _LARGEST:
            facts[name] = int(value)
    if isinstance(data.get("open_weights"), bool):
        facts["open_weights"] = data["open_weights"]
    released = read_text(data.get("release_date"))
    if _is_date(released):
        facts["release_date"] = released
    if licence := read_text(data.get("license")):
        facts["licence"] = licence
    return facts


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def describe_source(tree: ResultTree, used: Iterable[tuple[str, str]], newest: str) -> dict[str, str]:
    """Return where results come from, with the hash of the used files.

    Args:
        tree: The folder.
        used: Path and sha256 of each file behind a row.
        newest: Newest date of the files, "" for none.
    """
    digest = hashlib.sha256()
    for path, sha256 in sorted(set(used)):
        digest.update(f"{sha256}  {path}\n".encode("utf-8", "surrogateescape"))
    source = {
        "kind": "mteb",
        "label": printable(tree.folder.resolve().name),
        "sha256": digest.hexdigest(),
        **_read_checkout(tree),
        "licence": _read_licence(tree),
        "date": newest[:10],
    }
    return {name: value for name, value in source.items() if value}


def _read_licence(tree: ResultTree) -> str:
    for folder in _list_tops(tree):
        for name in ("LICENSE", "LICENSE.txt", "LICENSE.md"):
            heading = " ".join(_read_file(tree, folder / name).split("\n")[:_HEADING_LINES])
            for words, licence in _LICENCES.items():
                if words in heading:
                    return licence
    return ""


def _list_tops(tree: ResultTree) -> list[Path]:
    """Return the folders in which a checkout may start."""
    return [tree.folder, *(root.parent for root in tree.roots if root.parent != tree.folder.parent)]


def _read_checkout(tree: ResultTree) -> Mapping[str, str]:
    """Return repository and commit of a git checkout, read from its files."""
    for folder in _list_tops(tree):
        git = folder / ".git"
        head = _read_file(tree, git / "HEAD").strip()
        branch = head.removeprefix("ref: ")
        if branch != head and _BRANCH.fullmatch(branch) and ".." not in branch:
            head = _read_file(tree, git / branch).strip() or _find_packed(tree, git, branch)
        if not _COMMIT.fullmatch(head):
            continue
        remote = _REMOTE.search(_read_file(tree, git / "config"))
        return {"repository": _clean_address(remote[1]) if remote else "", "commit": head}
    return {}


def _find_packed(tree: ResultTree, git: Path, branch: str) -> str:
    for line in _read_file(tree, git / "packed-refs").splitlines():
        commit, _, name = line.partition(" ")
        if name == branch:
            return commit
    return ""


def _clean_address(address: str) -> str:
    """Return an address on the web without user, password and query; "" for any other."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    return printable(f"https://{host}{parts.path}").removesuffix(".git")


def _read_file(tree: ResultTree, path: Path) -> str:
    """Return the text of a regular file in the folder, "" if there is none."""
    try:
        if not path.is_file() or not is_inside(path, tree):
            return ""
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_CHARACTERS)
    except OSError:
        return ""
