"""What a model folder's card says of its licence, of what it was trained on and of its scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_LONGEST = 1_000_000  # bytes of a card that is read


def read_model_card(folder: Path) -> dict[str, Any]:
    """Return "license" and "training_datasets" as far as the front matter of a folder's README.md says them.

    Nothing is raised for a card that is missing, damaged or of another form: it says nothing.
    """
    from huggingface_hub import metadata_load

    try:
        card = folder / "README.md"
        said = metadata_load(card) if card.is_file() and card.stat().st_size <= _LONGEST else None
    except Exception:  # YAML's many, the disk's, a text of another encoding
        return {}
    if not isinstance(said, dict):
        return {}
    found: dict[str, Any] = {}
    if isinstance(licence := said.get("license"), str) and licence.isprintable():
        found["license"] = licence
    names = said.get("datasets")
    if isinstance(names, list) and all(isinstance(name, str) and name.isprintable() for name in names):
        found["training_datasets"] = names
    return found


def format_front_matter(about: Mapping[str, Any]) -> str:
    """Return the same and the YAML of "model_index" as lines of a front matter, nothing for what isn't known.

    >>> print(format_front_matter({"license": "mit", "training_datasets": ["wiki.txt"]}))
    license: "mit"
    datasets: ["wiki.txt"]
    <BLANKLINE>
    """
    lines = {"license": about.get("license"), "datasets": about.get("training_datasets")}
    known = "".join(f"{name}: {_format_yaml(value)}\n" for name, value in lines.items() if value is not None)
    return known + str(about.get("model_index", ""))


def _format_yaml(value: str | Sequence[str]) -> str:
    return json.dumps(value if isinstance(value, str) else list(value), ensure_ascii=False)
