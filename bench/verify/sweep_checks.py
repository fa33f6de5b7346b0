"""Verify grids of sweeps: each cell has its sweep's method."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.profiles import Profile
from bench.config.run_spec import MethodRequest
from bench.config.sweep_manifest import FOLDER, Manifest, load_manifest
from bench.config.sweeps import SWEEPS, Backbone
from bench.errors import BenchError, InputError
from bench.method_card import OptionValue
from bench.plan.cell_expansion import profile_options
from bench.registry import discover
from bench.verify.findings import Problem, Verification
from bench.verify.record_paths import describe_non_file

_MOST_LAYERS = 128
_HINT = "delete it and run bench sweep again: finished cells are kept"


def verify_grids(root: Path, base: Path, verified: Verification) -> None:
    """Add findings on the grids of a campaign, with file names relative to ``base``.

    A grid may lack cells of the sweep: another bench knew fewer methods, another backbone has fewer layers.
    Suites, seeds and options that ``--set`` gave to all cells stay unchecked.
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
            what = f"defaults in grids of sweeps: profile {manifest.profile} is unknown here"
            verified.unchecked[what] += 1
        verified.add(where, _check_cells(manifest, profile))


def _check_cells(manifest: Manifest, profile: Profile | None) -> Iterator[Problem]:
    known: dict[tuple[str, str], str] = {}
    for layers in range(1, _MOST_LAYERS + 1):
        points = SWEEPS[manifest.sweep].points(Backbone(layers, pooler=True))
        known |= {(point.row, point.column): point.method for point in points}
    for row, column, method in manifest.points:
        wanted = known.get((row, column))
        if wanted is None:
            yield "grid", f"sweep {manifest.sweep} has no cell '{row}', '{column}'", _HINT
        elif not _matches_cell(method, wanted, profile):
            what = f"cell '{row}', '{column}' of sweep {manifest.sweep} is of {wanted}, not of {method}"
            yield "grid", what, _HINT


def _matches_cell(method: str, text: str, profile: Profile | None) -> bool:
    """True if a method's id, which omits the profile's defaults, is of the sweep's method."""
    (wanted,) = parse_methods(text)
    try:
        (recorded,) = parse_methods(method, recorded=True)
        if (recorded.name, recorded.argument, recorded.alias) != (wanted.name, wanted.argument, None):
            return False
        given, own = _wanted_options(wanted, wanted), _wanted_options(recorded, wanted)
        card = discover().get(wanted.name).card
        base = profile_options(card, profile, own) if profile else given
    except (InputError, ValueError):  # another text, or several methods
        return False
    return all((base | own)[name] == value for name, value in given.items())


def _wanted_options(request: MethodRequest, wanted: MethodRequest) -> dict[str, OptionValue]:
    """Values of a request's options that the wanted one has too."""
    card, names, values = discover().get(wanted.name).card, dict(wanted.options), {}
    for name, value in request.options:
        if name in names:
            values[name] = card.option(name, request.text).parse(value, request.text)
    return values
