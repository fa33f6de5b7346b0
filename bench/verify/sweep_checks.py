"""Verify the grids that sweeps left: each cell stands for the method that its sweep has there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.card import OptionValue
from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.profiles import Profile
from bench.config.spec import MethodRequest
from bench.config.sweep_manifest import FOLDER, Manifest, load_manifest
from bench.config.sweeps import SWEEPS, Backbone
from bench.errors import BenchError, InputError
from bench.plan.cells import profile_options
from bench.registry import discover
from bench.verify.findings import Problem, Verification
from bench.verify.record_paths import describe_non_file

_MOST_LAYERS = 128
_HINT = "delete it and run bench sweep again: finished cells are kept"


def verify_grids(root: Path, base: Path, verified: Verification) -> None:
    """Add what is wrong with the grids of a campaign.

    A grid may lack cells that the sweep has: another bench knew fewer methods, another backbone has fewer
    layers. Suites and seeds can't be checked, nor options that ``--set`` gave to all cells.

    Args:
        root: The campaign's folder.
        base: The folder that files are named from.
        verified: Gets the findings, and the profiles that are unknown here.
    """
    for path in sorted((root / FOLDER).glob("*.json")):
        where = path.relative_to(base).as_posix()
        if odd := describe_non_file(path):
            verified.add(where, [("grid", odd, _HINT)])
            continue
        try:
            manifest = load_manifest(path)
        except BenchError as error:
            verified.add(where, [("grid", error.what, error.hint or "")])
            continue
        try:
            profile = profiles.load_profile(manifest.profile.partition("@")[0])
        except InputError:
            profile = None
            verified.unchecked[
                f"defaults in grids of sweeps: profile {manifest.profile} is unknown here"
            ] += 1
        verified.add(where, _check_cells(manifest, profile))


def _check_cells(manifest: Manifest, profile: Profile | None) -> Iterator[Problem]:
    grid = SWEEPS[manifest.sweep].points
    known = {
        (point.row, point.column): point.method
        for layers in range(1, _MOST_LAYERS + 1)
        for point in grid(Backbone(layers, pooler=True))
    }
    for row, column, method in manifest.points:
        asked = known.get((row, column))
        if asked is None:
            yield "grid", f"sweep {manifest.sweep} has no cell '{row}', '{column}'", _HINT
        elif not _matches_cell(method, asked, profile):
            what = f"cell '{row}', '{column}' of sweep {manifest.sweep} is of {asked}, not of {method}"
            yield "grid", what, _HINT


def _matches_cell(method: str, asked: str, profile: Profile | None) -> bool:
    """True if a method's id is of what a sweep asks for; an id leaves out what the profile gives anyway."""
    (wanted,) = parse_methods(asked)
    try:
        (found,) = parse_methods(method, recorded=True)
        if (found.name, found.argument, found.alias) != (wanted.name, wanted.argument, None):
            return False
        given = _wanted_options(wanted, wanted)
        said = _wanted_options(found, wanted)
        card = discover().get(wanted.name).card
        base = profile_options(card, profile, said) if profile else given
    except (InputError, ValueError):  # no method's id, or several
        return False
    return all((base | said)[name] == value for name, value in given.items())


def _wanted_options(request: MethodRequest, wanted: MethodRequest) -> dict[str, OptionValue]:
    """Values of a request's options, of those that the wanted one names."""
    card, names = discover().get(wanted.name).card, dict(wanted.options)
    return {
        name: card.option(name, request.text).parse(value, request.text)
        for name, value in request.options
        if name in names
    }
