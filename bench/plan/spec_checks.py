"""What a specification can't ask: overrides, copies, batches and names that its cells can't have."""

from __future__ import annotations

from collections.abc import Sequence

from bench.card import MethodCard
from bench.config import profiles
from bench.config.method_ids import find_unquoted_path, quoting_hint, split_argument
from bench.config.spec import MethodRequest, RunSpec
from bench.data.training_data import TrainingData
from bench.errors import InputError, not_one_of
from bench.nn.model_folder import resolve_file, resolve_folder
from bench.plan.cell import Cell
from bench.plan.cells import make_bare_cell
from bench.registry import METHODS
from bench.stages import copy_name

_MOST = 3  # methods that a refusal names


def find_method_cards(requests: Sequence[MethodRequest]) -> list[MethodCard]:
    """Return the card of each method; raises InputError for an unknown one, which may be part of a path."""
    found = []
    for index, request in enumerate(requests):
        try:
            found.append(METHODS.get(request.name, where="--methods").card)
        except InputError as error:
            hint = _path_hint(requests[index - 1], request) if index else None
            raise InputError(
                error.what, where=error.where, expected=error.expected, hint=hint or error.hint
            ) from error
    return found


def _path_hint(before: MethodRequest, request: MethodRequest) -> str | None:
    """What to type where an unknown method is the rest of a path before the comma; None where it isn't."""
    text, card = f"{before.text},{request.text}", METHODS.get(before.name).card
    if not card.takes_path or before.in_quotes:
        return None
    if (unquoted := find_unquoted_path(text)) is None:
        try:
            path, _ = split_argument(before, card)
            (resolve_file if card.takes_file else resolve_folder)(path or "", where=before.text)
        except InputError:
            return quoting_hint(text)
    return unquoted.error.hint if unquoted else None


def check_overrides(spec: RunSpec, cells: Sequence[Cell]) -> None:
    """Raise InputError for an override of a method that isn't there.

    A member of one may be overridden, and a method whose length another is matched to.
    """
    known = {request.name for request in spec.methods} | {r.alias for r in spec.methods if r.alias}
    known |= {name for cell in cells for name in cell.member_names}
    options = [option for request in spec.methods for option in request.options]
    options += [(override.option, override.value) for override in spec.overrides]
    for match in {value for name, value in options if name == "match" and value}:
        other = make_bare_cell(MethodRequest(match, match), spec, profiles.load_profile(spec.profile), 0)
        known |= {match, *other.member_names}
    for override in spec.overrides:
        if override.method not in known:
            raise not_one_of(
                f"no method '{override.method}' in --methods",
                override.method,
                sorted(known),
                where=f"--set {override.text}",
            )


def check_copies(spec: RunSpec, cells: Sequence[Cell]) -> None:
    """Raise InputError for a ``--copy`` that no stage trains on."""
    used = {copy_name(stage.spec.text) for cell in cells for stage in cell.all_stages}
    for name, path in spec.copies:
        if name not in used:
            names = ", ".join(sorted(used - {""}))
            raise InputError(
                f"no stage here trains on a translated copy '{name}'",
                where=f"--copy {name}={path}",
                expected=f"one of {names}" if names else None,
            )


def check_batches(spec: RunSpec, cells: Sequence[Cell], training: TrainingData | None) -> None:
    """Raise InputError for stages whose text is shorter than one batch: they would train on smaller ones.

    A stage without ``batch_size`` has no batches, one with ``batch_size`` 1 takes any text.
    """
    short: dict[tuple[str, int, int], dict[str, None]] = {}
    for cell in cells:
        for role, _, stage in cell.named_stages:
            size = dict(stage.spec.config).get("batch_size")
            text = training.texts[stage.spec.text] if training else None
            if text is not None and isinstance(size, int) and len(text.sentences) < size:
                name = cell.method if role == cell.card.name else f"{cell.method} ({role})"
                unit = "pair" if text.partners else "sentence"
                short.setdefault((unit, len(text.sentences), size), {})[name] = None
    if short:
        faults = (
            f"the training text has {count:,} {unit}{'s' * (count != 1)}, less than a batch of "
            f"{size:,} of {_format_some_names(list(names))}"
            for (unit, count, size), names in short.items()
        )
        unit, most, _ = min(short, key=lambda each: each[1])
        option, given = ("--pairs", spec.pairs) if unit == "pair" else ("--corpus", spec.corpus)
        raise InputError(
            "; ".join(faults),
            where=f"{option} {given}" if given else f"profile {spec.profile}",
            hint=f"give a longer text, or smaller batches, as with --set METHOD.batch_size={most}",
        )


def _format_some_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
