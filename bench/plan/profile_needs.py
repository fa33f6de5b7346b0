"""The needs of a method that a profile's backbone can't meet, by its ``[architecture]`` without weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.config.profiles import Profile
from bench.errors import InputError
from bench.method_card import NEEDS, MethodCard, Need, OptionValue
from bench.nn.folder_facts import FolderFacts, read_folder_facts
from bench.plan.backbones import find_sufficient_options, fulfils_need, method_needs
from bench.registry import METHODS

_OWN = "backbone"  # of an option that names a model: the profile's own


def describe_unmet_needs(
    card: MethodCard, options: Mapping[str, OptionValue], profile: Profile
) -> str | None:
    """Return what the profile's backbone lacks for a method, in words; None where its sizes show nothing."""
    if not profile.architecture:
        return None
    facts = _read_facts(json.dumps(dict(profile.architecture), sort_keys=True))
    if refused := _check_backbone(card, options, facts):
        return refused

    def lacking(need: Need, given: Mapping[str, OptionValue]) -> bool:
        named = bool(need.of) and given.get(need.of) != _OWN
        return not named and not fulfils_need(facts, need.what, given)

    unmet = [need.what for need in method_needs(card, options) if lacking(need, options)]
    if not unmet:
        return None
    asked = ", and ".join(NEEDS[what] for what in dict.fromkeys(unmet))
    text = f"needs {asked}, which {profile.backbone['name']} ({facts.kind}) lacks"
    changes = find_sufficient_options(card, options, lacking)
    if changes:
        settings = ",".join(f"{name}={str(value).lower()}" for name, value in changes.items())
        text += f"; {settings} does without"
    return text


def _check_backbone(card: MethodCard, options: Mapping[str, OptionValue], facts: FolderFacts) -> str | None:
    """Return why a method's own check refuses an architecture; None if it has none or accepts it."""
    check = getattr(METHODS.get(card.name), "check_backbone", None)
    try:
        if check is not None:
            check(facts, dict(options))
    except InputError as error:
        return error.what
    return None


@cache
def _read_facts(config: str) -> FolderFacts:
    """Return the facts of a ``config.json``; what only weights or a tokenizer show is None."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(config, encoding="utf-8")
        return read_folder_facts(Path(folder))
