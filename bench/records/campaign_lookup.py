"""Recognise ``--results`` or ``--campaign`` that are a level too deep or too high."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.errors import InputError

_OF_ONE_RUN = re.compile(r"no-seed|seed-\d+")
_RESULTS, _PLAN = "results", "plan.json"
_MOST = 200  # entries of a folder that are looked at


def is_campaign_folder(folder: Path) -> bool:
    """Return whether a folder is a campaign's: PROFILE/METHOD/SEED/SUITE.json or a sealed plan is in it."""
    try:
        if (folder / _PLAN).is_file():
            return True
        files = islice(folder.glob("*/*/*/*.json"), _MOST)
        return any(_OF_ONE_RUN.fullmatch(file.parent.name) for file in files)
    except OSError:
        return False


def check_campaign_options(results: Path, campaign: str | None) -> None:
    """Raise InputError for ``--results`` or ``--campaign`` at another level than they should be."""
    misplaced = find_misplaced_campaign(results, campaign) if campaign is not None else None
    misplaced = misplaced or find_misplaced_results(results, campaign)
    if misplaced is not None:
        raise misplaced


def find_misplaced_results(results: Path, campaign: str | None = None) -> InputError | None:
    """Return the error of a ``--results`` that is a campaign, or a folder above the one of campaigns.

    Args:
        results: The folder as it was given.
        campaign: Campaign that isn't there, None for a command that reads them all.
    """
    if is_campaign_folder(results):
        what, options = "this is a campaign, not a folder of campaigns", _format_options(results)
        return InputError(what, where=f"--results {results}", hint=f"type {options}")
    for folder in _list_folders(results):
        names = [campaign] if campaign is not None else [inner.name for inner in _list_folders(folder)]
        if campaign is None and folder.name != _RESULTS:
            continue
        if any(is_campaign_folder(folder / name) for name in names):
            what = "the campaigns are one level below"
            where = f"--results {results}"
            return InputError(what, where=where, hint=f"type --results {shlex.quote(str(folder))}")
    return None


def find_misplaced_campaign(results: Path, campaign: str) -> InputError | None:
    """Return the error of a ``--campaign`` that is the path of a campaign's folder."""
    for folder in (results / campaign, Path(campaign)):
        if "/" in campaign.replace(os.sep, "/") and is_campaign_folder(folder):
            what = f"'{campaign}' is the path of a campaign, not its name"
            return InputError(what, where="--campaign", hint=f"type {_format_options(folder)}")
    return None


def _format_options(campaign: Path) -> str:
    """Return the options that name a campaign's folder."""
    whole = campaign if campaign.name not in ("", "..") else Path(os.path.abspath(campaign))
    name = shlex.quote(whole.name)
    if whole.parent == Path(_RESULTS):
        return f"--campaign {name}"
    return f"--results {shlex.quote(str(whole.parent))} --campaign {name}"


def _list_folders(folder: Path) -> Iterator[Path]:
    """Yield visible folders in a folder, its ``results`` first."""
    try:
        entries = sorted(islice(folder.iterdir(), _MOST), key=lambda path: (path.name != _RESULTS, path))
    except OSError:
        return
    for path in entries:
        if path.is_dir() and not path.name.startswith("."):
            yield path
