"""Front matter of a model folder's card: licence, training datasets, scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LONGEST = 1_000_000  # bytes of a card that is read


def read_model_card(folder: Path) -> dict[str, Any]:
    """Return "license" and "training_datasets" from the front matter of a README.md, if readable."""
    from huggingface_hub import metadata_load

    try:
        card = folder / "README.md"
        matter = metadata_load(card) if card.is_file() and card.stat().st_size <= _LONGEST else None
    except Exception:  # YAML's many, the disk's, a text of another encoding
        return {}
    if not isinstance(matter, dict):
        return {}
    values: dict[str, Any] = {}
    if isinstance(licence := matter.get("license"), str) and licence.isprintable():
        values["license"] = licence
    names = matter.get("datasets")
    if isinstance(names, list) and all(isinstance(name, str) and name.isprintable() for name in names):
        values["training_datasets"] = names
    return values


def format_front_matter(about: Mapping[str, Any]) -> str:
    """Format :func:`read_model_card`'s values and the YAML of "model_index" as lines of a front matter.

    >>> print(format_front_matter({"license": "mit", "training_datasets": ["wiki.txt"]}))
    license: "mit"
    datasets: ["wiki.txt"]
    <BLANKLINE>
    """
    lines = ""
    for name, key in (("license", "license"), ("datasets", "training_datasets")):
        if (value := about.get(key)) is not None:
            lines += f"{name}: {json.dumps(value, ensure_ascii=False)}\n"
    return lines + str(about.get("model_index", ""))
