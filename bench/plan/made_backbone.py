"""A profile's own backbone: a folder that is there, or one that ``bench pretrain`` makes on first use."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.config import profiles
from bench.config.profiles import Profile
from bench.errors import DataError
from bench.nn.folder import PRETRAINING, MadeModel, ModelFolder, content_hash, resolve, shape
from bench.records.fingerprint import digest

THREADS = 2
"""A made backbone is made with as many, whatever its run has: else its last bits would depend on the run."""
_SEED = 1
_VERSION = 1  # to raise with whatever changes the weights that a recipe makes


def profile_backbone(profile: Profile, data: Path | None) -> ModelFolder:
    """Find a profile's backbone.

    Args:
        profile: The profile.
        data: Data folder, for the text of a backbone that is still to be made.

    Returns:
        The folder; of a backbone that is to be made first, where it is going to be, without a hash.

    Raises:
        InputError: it isn't installed.
        DataError: what lies in its place was made otherwise.
    """
    where, name = f"profile {profile.name}", profile.backbone["name"]
    if not profiles.makes_backbone(profile):
        return resolve(profiles.backbone_reference(profile), where=where, name=name)
    recipe = _recipe(profile)
    path = Path(profiles.backbone_reference(profile) or kept_backbones() / f"{name}-{recipe[:12]}")
    words = ["pretrain", "--profile", profile.backbone["profile"], "--steps", str(profile.backbone["steps"])]
    words += ["--seed", str(_SEED), "--threads", str(THREADS)]
    words += ["--data", str(data)] if data else []
    if not path.exists():
        return MadeModel(path, name, "", recipe, tuple(words))
    check_made(path, recipe)
    return MadeModel(path, name, content_hash(path), recipe, tuple(words))


def other_weights(profile: Profile, models: Iterable[ModelFolder | None]) -> str | None:
    """Say where a made backbone isn't the one that the profile names; None where nothing is to be said."""
    own = next((model for model in models if isinstance(model, MadeModel)), None)
    made = profile.backbone.get("made")
    if own is None or made is None or not (weights := own.path / "model.safetensors").is_file():
        return None
    with weights.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found == made["weights"]:
        return None
    return (
        f"{own.name}: weights {found[:12]}, where the committed records have {made['weights'][:12]}: made by "
        "another kind of processor, or another torch; figures will be near theirs, not equal"
    )


def backbone_shape(profile: Profile, model: ModelFolder) -> tuple[int, bool]:
    """Return what :func:`bench.nn.folder.shape` does, also of a backbone that is still to be made."""
    if model.sha256:
        return shape(model.path)
    layers, _ = shape(Path(profiles.backbone_reference(profiles.load(profile.backbone["profile"]))))
    return layers, False  # a language model has no pooler


def kept_backbones() -> Path:
    """Return the folder of the backbones that were made here: BENCH_CACHE, else the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BENCH_CACHE") or Path(cache) / "cse-bench") / "backbones"


def check_made(path: Path, recipe: str) -> None:
    """Raise DataError unless the folder holds what the recipe makes, by what its training said of itself."""
    try:
        facts = json.loads((path / PRETRAINING).read_text(encoding="utf-8"))
        made = _digest(facts["settings"], facts["seed"], facts["backbone"]["sha256"], facts["text"]["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{PRETRAINING} does not say how this model was made", where=path.name, hint=f"remove {path}"
        ) from error
    if made != recipe:
        raise DataError(
            "this model was made from another model, text or settings than the profile says",
            where=path.name,
            expected=f"recipe {recipe[:12]}, and this is {made[:12]}",
            hint=f"remove {path}",
        )


def _recipe(profile: Profile) -> str:
    own = profile.backbone
    settings = {**profiles.load(own["profile"]).pretrain, "steps": own["steps"]}
    return _digest(settings, _SEED, own["from"], own["text"])


def _digest(settings: Mapping[str, Any], seed: int, model: str, text: str) -> str:
    numbers = {name: float(value) for name, value in settings.items()}
    return digest({"version": _VERSION, "settings": numbers, "seed": seed, "from": model, "text": text})
