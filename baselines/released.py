"""``released:NAME``: a checkpoint that its authors published, evaluated as they evaluate it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bench import nn
from bench.data.released_checkpoints import ReleasedTower, find_checkpoint
from bench.encoder import Encoder
from bench.errors import InputError
from bench.method_card import BuildContext, MethodCard, Option, OptionValue
from bench.nn.model_folder import hash_model, resolve_folder
from bench.registry import add_method

FOLDERS = "BENCH_CHECKPOINTS"
"""Environment variable: where folders of the authors' downloads are."""


def find_tower_folder(tower: ReleasedTower, where: str) -> Path:
    """Return the folder of one encoder: below ``BENCH_CHECKPOINTS``, otherwise in the local hub cache."""
    given = os.environ.get(FOLDERS)
    if given and tower.folder and (Path(given) / tower.folder).is_dir():
        return Path(given) / tower.folder
    if not tower.hub:
        raise InputError(
            f"the checkpoint's folder {tower.folder} is missing",
            where=where,
            expected=f"{FOLDERS}=DIR, the folder into which the authors' download was copied",
        )
    if not tower.revision:
        return resolve_folder(tower.hub, where=where).path
    from huggingface_hub.constants import HF_HUB_CACHE

    snapshots = Path(HF_HUB_CACHE) / f"models--{tower.hub.replace('/', '--')}" / "snapshots"
    folders = sorted(snapshots.glob(f"{tower.revision}*"))  # the cache has commits under their whole names
    if len(folders) != 1:
        raise InputError(
            f"'{tower.hub}' at revision {tower.revision} is not in the local model cache",
            where=where,
            hint=f"download it first with: hf download {tower.hub}",
        )
    return folders[0]


@add_method
class Released:
    """A published checkpoint; several towers are added."""

    card = MethodCard(
        name="released",
        family="any-encoder",
        instead="no training; the checkpoint that a method's authors published",
        kind="external",
        summary="released:NAME, a checkpoint that its authors published; reports show their figures too",
        version=1,
        equations=("one encoder, or the weighted sum of the towers' vectors",),
        options=(Option("name", "", "the checkpoint, an entry of bench/data/released.toml"),),
        deviations=("weights come from the local model cache or from folders below BENCH_CHECKPOINTS",),
        deterministic=True,
        needs_backbone=False,
        short_option="name",
        takes_methods=True,
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Name the towers, by number, as ``hf:`` methods."""
        entry = find_checkpoint(str(options["name"]), where="--methods released:NAME")
        where = f"--methods released:{entry.name}"
        members = {}
        for number, tower in enumerate(entry.towers, start=1):
            path = str(find_tower_folder(tower, where))
            if any(char in path for char in "[],"):
                raise InputError(f"the folder '{path}' has a bracket or comma in its name", where=where)
            template = f",template={entry.template}" if entry.template else ""
            members[str(number)] = f"hf:{path}[pooling={entry.pooling}{template}]"
        return members

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder or the sum, with the hash of each tower among its facts."""
        entry = find_checkpoint(str(context.options["name"]))
        encoders = [context.members[role] for role in sorted(context.members, key=int)]
        encoder = encoders[0]
        if len(encoders) > 1:
            encoder = nn.SumEncoder(encoders, [tower.weight for tower in entry.towers])
        folders = [find_tower_folder(tower, f"released:{entry.name}") for tower in entry.towers]
        hashes = [hash_model(folder)[:12] for folder in folders]
        encoder.facts = {
            **encoder.facts,
            "checkpoint": "+".join(tower.name for tower in entry.towers),
            "weights_sha256": "+".join(hashes),
        }
        return encoder
