"""What `bench pack` left in its copy of the code: which commit it is of, and where the backbones lie."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = "packed.json"
ROUNDED = "rounded.json"
"""In a model's folder whose weights were rounded: {"weights": "float16", "sha256": the model's before}."""
_CODE = Path(__file__).resolve().parents[1]


@cache
def packed() -> dict[str, Any]:
    """Return {"commit", "dirty", "backbones": {profile: folder}} in a packed copy, else nothing."""
    try:
        facts: dict[str, Any] = json.loads((_CODE / FILE).read_text(encoding="utf-8"))
    except OSError:
        return {}
    return facts


def packed_backbone(profile: str) -> str | None:
    """Folder of a profile's own backbone in a packed copy, None in another."""
    folder = packed().get("backbones", {}).get(profile)
    return str(_CODE.parent / folder) if folder else None


def rounding(folder: Path) -> dict[str, str]:
    """What `bench pack` rounded in a model's folder, nothing in any other."""
    try:
        found: dict[str, str] = json.loads((folder / ROUNDED).read_text(encoding="utf-8"))
    except OSError:
        return {}
    return found
