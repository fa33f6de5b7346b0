"""Whether a row's name says of options what its record does: no key has the name, and tables show it."""

from __future__ import annotations

from collections.abc import Iterator

from bench.card import MethodCard
from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.spec import METHOD_NAME
from bench.errors import InputError
from bench.plan.cells import profile_options
from bench.plan.job import MATCHED
from bench.records.filesystem import model_stem
from bench.records.integrity import AGAIN
from bench.records.record import RunRecord
from bench.registry import METHODS
from bench.verify.findings import Problem, Verification


def check_method_id(record: RunRecord, verified: Verification) -> Iterator[Problem]:
    """Yield what the name of a registered method's row says otherwise; a name of the user's own says nothing.

    Options that the name should say and doesn't are unchecked: the profile may have been another then.
    """
    if METHOD_NAME.fullmatch(record.method) and record.method != record.name:
        return
    card = METHODS.get(record.name).card
    said = _id_options(record, card)
    if said is None:
        yield "method", f"it calls itself {record.method}, which no row of {record.name} is called", AGAIN
        return
    had = {name: str(value).strip() for name, value in record.options.items()}
    for name, value in said.items():
        if name in had and had[name] != value:
            yield "method", f"its name says {name}={value}, and it was made with {name}={had[name]}", AGAIN
        elif name not in had and name != "match":  # that is in no record: the steps that it gives are
            yield "method", f"its name says {name}={value}, and it has no such option", AGAIN
    if more := sorted(_omitted_options(record, card) - said.keys() - set(MATCHED if "match" in said else ())):
        what = f"it doesn't say {', '.join(more)}, and profile {record.profile} has another value"
        verified.unchecked[f"name of row {record.method}: {what}"] += 1


def matched_method(record: RunRecord) -> str | None:
    """Return the method that a row's name says it is as long as, None where it says none."""
    if METHOD_NAME.fullmatch(record.method):
        return None
    return (_id_options(record, METHODS.get(record.name).card) or {}).get("match")


def _id_options(record: RunRecord, card: MethodCard) -> dict[str, str] | None:
    """Options in a row's name, with what stands after a colon; None for a name that no run gives."""
    stems: list[tuple[str, dict[str, str]]] = [(card.name, {})]
    if card.takes_path and record.backbone:
        name, sha256 = record.backbone["name"], record.backbone["sha256"]
        older = f"{name.split('/')[-1]}-{sha256[:8]}"  # before a comma or bracket in it was left out
        each = dict.fromkeys((model_stem(name, sha256), older))
        stems = [(f"{card.name}-{stem}" if card.named_rows else stem, {}) for stem in each]
    if card.takes_methods and card.short_option in record.options:
        methods = str(record.options[card.short_option])
        stems.insert(0, (f"{card.name}:{methods}", {card.short_option: methods}))
    for stem, short in stems:
        rest = record.method.removeprefix(stem)
        if not record.method.startswith(stem) or rest[:1] not in ("", "["):
            continue
        try:
            requests = parse_methods(f"{card.name}{rest}", recorded=True)
        except InputError:
            return None
        return short | dict(requests[0].options) if len(requests) == 1 else None
    return None


def _omitted_options(record: RunRecord, card: MethodCard) -> set[str]:
    """Options that aren't those of the record's profile, as far as that is known."""
    name = record.profile.partition("@")[0]
    if name not in profiles.profile_names() or record.version != card.version:
        return set()
    try:
        own = profile_options(card, profiles.load_shipped_profile(name), record.options)
    except InputError:
        return set()
    return {name for name, value in record.options.items() if name in own and own[name] != value}
