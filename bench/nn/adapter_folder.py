"""Folders of an adapter: they hold no model, and name the one that it belongs to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.nn.lora_settings import CONFIG
from bench.nn.model_folder import ModelFolder, hash_model
from bench.nn.untrusted_folder import read_settings

BASE = "adapter_base.json"
"""The file that names the base model: its name and hash; in the stage cache its folder too."""
SCHEMA = 1


def is_adapter(folder: Path) -> bool:
    """Test for a folder that holds an adapter in place of a model."""
    return (folder / CONFIG).is_file()


def write_adapter(model: Any, tokenizer: Any, folder: Path, base: ModelFolder) -> None:
    """Write a stage's adapter folder: adapter, tokenizer, and the base with its path."""
    from bench.nn import lora

    name, sha256 = base.name or base.path.resolve().name, base.sha256 or hash_model(base.path)
    lora.write_lora(model, folder, name)
    tokenizer.save_pretrained(folder)
    facts = {"schema": SCHEMA, "name": name, "sha256": sha256, "path": str(base.path.resolve())}
    (folder / BASE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def find_base(folder: Path) -> ModelFolder:
    """Find the base model of a stage's adapter folder.

    Raises InputError where it is missing or has changed.
    """
    facts, where = read_settings(folder / BASE), f"{folder.name}/{BASE}"
    if facts.get("schema") != SCHEMA or not all(isinstance(facts.get(k), str) for k in ("name", "sha256")):
        raise InputError("it doesn't name a base model", where=where, expected=f"schema {SCHEMA}")
    name, path = facts["name"], facts.get("path")
    if not isinstance(path, str) or not Path(path).is_dir():
        raise InputError(f"the base model {name} of this adapter is not there", where=where)
    sha256 = hash_model(Path(path))
    if sha256 != facts["sha256"]:
        what = f"the base model {name} has changed since the adapter was trained"
        expected = f"hash {facts['sha256'][:12]}, not {sha256[:12]}"
        raise InputError(what, where=where, expected=expected)
    return ModelFolder(Path(path), name, sha256)
