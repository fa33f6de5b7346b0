"""Records edited by somebody who knows how records are sealed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.records.integrity import sealed
from bench.records.record import from_json, to_json

Edit = Callable[[dict[str, Any]], object]


def forge(path: Path, edit: Edit, seal: str = "recomputed") -> None:
    """Edit a record; the seal is "kept" as it was, "stripped", or made anew with the key ("recomputed")."""
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data)
    if seal == "stripped":
        del data["timing"]["record_sha256"]
    text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    path.write_text(to_json(sealed(from_json(text, str(path)))) if seal == "recomputed" else text)
