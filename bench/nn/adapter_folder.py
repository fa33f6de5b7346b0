"""Folders of adapters: they hold no model, and name the one that they belong to.

That base model is found on this machine, and checked by its hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.config import profiles
from bench.errors import InputError
from bench.nn.folder_checks import list_weight_files
from bench.nn.folder_facts import read_json_object
from bench.nn.lora_settings import CONFIG, WEIGHTS
from bench.nn.model_files import find_cached_model, hash_files, read_hub_name
from bench.nn.untrusted_folder import list_inner_folders, read_settings

BASE = "adapter_base.json"
"""The file by which bench names an adapter's base: name, hash, and in the stage cache its path."""
SCHEMA = 1
_REFERENCE = re.compile(r"[\w .@+,()=\[\]/\\:-]{1,1000}")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,99}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_offered: ContextVar[tuple[Path, ...]] = ContextVar("offered", default=())


@dataclass(frozen=True)
class AdapterBase:
    """The base model of an adapter on this machine."""

    path: Path
    name: str  # hub name, name in adapter_base.json, or the folder's last name
    sha256: str
    place: str = ""  # folder of its adapter in the model's folder, "" for the folder itself


class NamedModel(Protocol):
    """A model on this machine with its name and hash, such as a ``ModelFolder``."""

    @property
    def path(self) -> Path:
        """Return its folder."""
        ...

    @property
    def name(self) -> str:
        """Return its name in records."""
        ...

    @property
    def sha256(self) -> str:
        """Return its hash."""
        ...


def is_adapter(folder: Path) -> bool:
    """Test for a folder with an adapter in place of a whole model."""
    return (folder / CONFIG).is_file()


def list_adapters(folder: Path) -> list[Path]:
    """Return a model folder's adapters: the folder, its modules' folders, or the parts of a sum."""
    places = [folder]
    modules = read_json_object(folder / "modules.json", list)
    paths = [module.get("path") for module in modules if isinstance(module, dict)]
    parts = read_json_object(folder / "twin.json").get("parts")
    paths += parts if isinstance(parts, list) else []
    inner = [folder / path for path in paths if isinstance(path, str) and "\0" not in path]
    inside = folder.resolve()
    for place in list_inner_folders([place for place in inner if place.resolve().is_relative_to(inside)]):
        if place.resolve().is_relative_to(inside):
            places.append(place)
    return [
        place
        for place in {place.resolve(): place for place in reversed(places)}.values()
        if is_adapter(place)
    ]


def find_bases(folder: Path) -> tuple[AdapterBase, ...]:
    """Return the base of each adapter of a model folder; () for a folder without adapters."""
    bases = []
    for place in list_adapters(folder):
        base = find_base(place)
        inner = "" if place == folder else place.relative_to(folder).as_posix()
        bases.append(AdapterBase(base.path, base.name, base.sha256, inner))
    return tuple(sorted(bases, key=lambda base: base.place))


def hash_with_bases(folder: Path, bases: Sequence[AdapterBase]) -> str:
    """Return the hash of a folder's files, and of its adapters' bases."""
    sha256 = hash_files(folder)
    if not bases:
        return sha256
    lines = [sha256, *(f"{base.place}\0{base.sha256}" for base in bases)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def find_base(folder: Path) -> AdapterBase:
    """Find an adapter's base model on this machine: a folder, or a hub name in the local cache.

    The base has the hash of ``adapter_base.json``, if that is there. Raises InputError for a missing base,
    another base, an adapter as base, and for names that lead elsewhere.
    """
    settings = read_settings(folder / CONFIG)
    pin = read_settings(folder / BASE) if (folder / BASE).exists() else {}
    where = f"{folder.name}/{BASE if pin else CONFIG}"
    if pin:
        _check_pin(pin, where)
    reference = _check_reference(settings, pin, f"{folder.name}/{CONFIG}")
    found: list[AdapterBase] = []
    for path in _list_candidates(folder, reference, pin, settings.get("revision")):
        base = _read_base(folder, path, pin.get("name"))
        if not pin or base.sha256 == pin["sha256"]:
            return base
        found.append(base)
    for path in _list_profile_backbones() if pin else ():
        if hash_base(path) == pin["sha256"]:
            return _read_base(folder, path, pin["name"])
    name = pin.get("name") or reference
    if found:
        what = f"its base model is {name} of sha256 {pin['sha256'][:12]}, and the one here "
        what += f"({found[0].path}) has {found[0].sha256[:12]}"
        raise InputError(what, where=where, expected="the base model that it was trained on")
    ways = f"a folder '{_last_name(name)}' next to {folder.name}"
    hub = _HUB_NAME.fullmatch(name) and "/" in name
    raise InputError(
        f"its base model '{name}' is not on this machine",
        where=where,
        expected=f"{ways}, or {name} in the local model cache" if hub else ways,
        hint=f"download it with: hf download {name}" if hub else None,
    )


def write_adapter(model: Any, tokenizer: Any, folder: Path, base: NamedModel) -> None:
    """Write a stage's adapter folder: adapter, tokenizer, and the base with its path."""
    from bench.nn import lora

    name, sha256 = base.name or base.path.resolve().name, base.sha256 or hash_base(base.path)
    lora.write_lora(model, folder, name)
    tokenizer.save_pretrained(folder)
    write_base(folder, AdapterBase(base.path, name, sha256), path=str(base.path.resolve()))


def copy_adapter(source: Path, target: Path) -> None:
    """Copy an adapter's configuration and weights; its base gets the hub name, or a name without a path."""
    base, settings = find_base(source), read_settings(source / CONFIG)
    settings["base_model_name_or_path"] = base.name
    text = json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False)
    (target / CONFIG).write_text(f"{text}\n", encoding="utf-8", newline="\n")
    shutil.copyfile(source / WEIGHTS, target / WEIGHTS)
    write_base(target, base)


def write_base(folder: Path, base: NamedModel, **more: str) -> None:
    """Write the file that names an adapter's base."""
    facts = {"schema": SCHEMA, "name": base.name, "sha256": base.sha256, **more}
    (folder / BASE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8", newline="\n")


@contextmanager
def offer_bases(paths: Sequence[Path]) -> Iterator[None]:
    """Look for bases in these folders too, within the block; their hashes are checked as ever."""
    before = _offered.set((*_offered.get(), *paths))
    try:
        yield
    finally:
        _offered.reset(before)


def _check_pin(pin: dict[str, Any], where: str) -> None:
    name, sha256 = pin.get("name"), pin.get("sha256")
    whole = isinstance(name, str) and isinstance(sha256, str) and _SHA256.fullmatch(sha256)
    if pin.get("schema") != SCHEMA or not whole:
        expected = f"schema {SCHEMA}, the base's name and its sha256"
        raise InputError("it names no base model", where=where, expected=expected)
    _check_name(name, where)


def _check_reference(settings: dict[str, Any], pin: dict[str, Any], where: str) -> str:
    """Return the name or path of the base in the adapter's settings."""
    reference = settings.get("base_model_name_or_path")
    if not reference and pin:
        return str(pin["name"])
    if not isinstance(reference, str) or not reference:
        what = f"it names no base model (base_model_name_or_path = {reference!r})"
        raise InputError(what, where=where, expected="a folder, or a hub name in the local model cache")
    _check_name(reference, where)
    revision = settings.get("revision")
    if revision is not None and not (isinstance(revision, str) and _REVISION.fullmatch(revision)):
        raise InputError(
            f"its revision of the base is {str(revision)[:100]!r}", where=where, expected="a commit"
        )
    return reference


def _check_name(name: object, where: str) -> None:
    text = str(name)
    if not isinstance(name, str) or not _REFERENCE.fullmatch(text) or "://" in text or "\n" in text:
        what = f"its base model is {text[:100]!r}"
        expected = "a folder, or a hub name in the local model cache"
        raise InputError(what, where=where, expected=expected)


def _list_candidates(folder: Path, reference: str, pin: dict[str, Any], revision: object) -> Iterator[Path]:
    """Yield the folders that may be a base, each once."""
    names = dict.fromkeys((reference, str(pin.get("name") or reference)))
    paths = [*_offered.get()]
    if isinstance(pin.get("path"), str):
        paths.append(Path(pin["path"]))
    paths += map(Path, names)
    if os.path.isabs(reference) and (hub := read_hub_name(Path(reference))):
        names[hub] = None
    seen: set[Path] = set()
    for name in filter(_HUB_NAME.fullmatch, names):
        try:
            paths.append(find_cached_model(name, "", None if revision is None else str(revision)))
        except InputError:
            continue
    inside = folder.resolve()
    paths += [parent / _last_name(name) for parent in (inside.parent, inside.parent.parent) for name in names]
    for path in paths:
        try:
            real = path.resolve()
            is_model = (path / "config.json").is_file() or is_adapter(path)
        except (OSError, ValueError):  # no path on this machine
            continue
        if is_model and real not in seen and (real != inside or path == Path(reference)):
            seen.add(real)
            yield path


def _list_profile_backbones() -> Iterator[Path]:
    """Yield the backbones of the profiles that are on this machine."""
    for profile in profiles.profile_names():
        try:
            reference = profiles.backbone_reference(profiles.load_profile(profile))
        except InputError:  # a package that isn't installed
            continue
        if reference and os.path.isdir(reference):
            yield Path(reference)


def _read_base(folder: Path, path: Path, name: str | None) -> AdapterBase:
    """Return a base with its hash; raises InputError for an adapter or a folder without weights."""
    where = f"{folder.name}/{CONFIG}"
    if is_adapter(path):
        what = (
            "it is its own base model"
            if path.resolve() == folder.resolve()
            else (f"its base model {path.name} is an adapter too")
        )
        hint = "merge the base with its own base first: bench export hf:BASE --out DIR"
        raise InputError(what, where=where, expected="a whole model", hint=hint)
    if not list_weight_files(path):
        raise InputError(f"its base model {path.name} has no weights", where=where)
    return AdapterBase(path, read_hub_name(path) or name or path.resolve().name, hash_base(path))


_hashes: dict[tuple[object, ...], str] = {}


def hash_base(folder: Path) -> str:
    """Return a base model's hash, computed once for unchanged files."""
    stamps = []
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        state = file.stat()
        stamps.append((str(file), state.st_size, state.st_mtime_ns, state.st_ino))
    key = tuple(stamps)
    if key not in _hashes:
        _hashes[key] = hash_files(folder)
    return _hashes[key]


def _last_name(name: str) -> str:
    """Return the last part of a path or hub name."""
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1]
