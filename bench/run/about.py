"""What is known of a model beyond its numbers: its licence, and the texts it was trained on."""

from __future__ import annotations

from typing import Any

from bench.nn.readme import about_folder
from bench.run.builder import Builder


def about_model(builder: Builder) -> dict[str, Any]:
    """What a cell's model is licensed as, as far as the one that it starts from says it, and trained on.

    An encoder that isn't trained here has what its folder's card says.
    """
    cell = builder.cell
    found = about_folder(cell.model.path) if cell.model is not None and cell.model.path.is_dir() else {}
    facts = builder.facts()
    if "corpus" in facts:
        texts = [facts["corpus"], *(s["text"] for s in facts.get("stages", {}).values() if "text" in s)]
        found["training_datasets"] = list(dict.fromkeys(text["name"] for text in texts))
    elif not cell.card.takes_path:
        found["training_datasets"] = []
    return found
