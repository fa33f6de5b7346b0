"""Check a record against its method's card, its suite, the reference data, and its row's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.run_spec import METHOD_NAME
from bench.data.mteb_names import is_mteb
from bench.data.suites import MINI_SUITES, SUITES, reference_fingerprints
from bench.errors import DataError, InputError
from bench.eval.suite_measures import measure_of
from bench.execution.repetition import parse_record_members
from bench.method_card import MethodCard
from bench.plan.cell_expansion import profile_options
from bench.plan.job import MATCHED
from bench.records.environment import plugin_file_hashes
from bench.records.filesystem import model_stem
from bench.records.fingerprint import training_arithmetic
from bench.records.imported import is_imported
from bench.records.integrity import AGAIN
from bench.records.record import RunRecord
from bench.registry import METHODS
from bench.stages import ARITHMETIC, ComposedMethod
from bench.verify.findings import Problem, Verification

_OTHER_NAME = "give the plug-in's method another name, and run the cell again"
_UPGRADE = "upgrade cse-bench"


def check_metadata(record: RunRecord, verified: Verification) -> Iterator[Problem]:
    """Yield such problems; unknown methods and profiles are unchecked."""
    if record.name in METHODS.names():
        yield from _check_card(record)
        yield from _check_members(record)
        yield from check_method_id(record, verified)
    elif is_imported(record):
        verified.as_recorded["imported rows: names, revisions and sizes, as their source says"] += 1
    elif record.name not in plugin_file_hashes(record.provenance):  # which --plugin checks by their file
        verified.unchecked[f"method {record.name}: unknown here"] += 1
    yield from _check_plugins(record)
    profile = record.profile.partition("@")[0]
    if profile not in profiles.profile_names() and not is_imported(record):
        verified.unchecked[f"profile {profile}: unknown here"] += 1
    if (other := METHODS.called(record.method)) not in (None, record.name) and not is_imported(record):
        what = f"it calls itself {record.method}, a name of {other}, but {record.name} made it"
        yield "method", what, AGAIN
    if "mteb" in record.provenance and not is_mteb(record.suite):
        yield "method", f"mteb is said to have computed it, which doesn't compute suite {record.suite}", AGAIN
    if record.world is None and record.suite in MINI_SUITES:
        yield "tasks", f"it doesn't say of which world suite {record.suite} is", AGAIN
    if training_arithmetic(record) > ARITHMETIC:
        what = f"trained by arithmetic {training_arithmetic(record)}; this bench has {ARITHMETIC}"
        yield "method", what, _UPGRADE
    version, newest = record.evaluation.get("version", 1), measure_of(record.suite).version
    if version > newest:
        yield "method", f"version {version} of the evaluation; this bench has {newest}", _UPGRADE
    yield from _check_data(record)


def _check_card(record: RunRecord) -> Iterator[Problem]:
    """Version, options (members' too), and seeds of deterministic methods."""
    name, method = record.name, METHODS.get(record.name)
    card = method.card
    if record.version > card.version:
        yield "method", f"version {record.version} of {name}; this bench has {card.version}", AGAIN
    yield from _check_options(name, record.version, record.options)
    if card.deterministic and record.seed is not None and not isinstance(method, ComposedMethod):
        what = f"{name} draws nothing, so that it has no seeds, and this is seed {record.seed}"
        yield "method", what, AGAIN
    try:
        members = parse_record_members(record)
    except InputError:  # _check_members reports it
        return
    for request, member in members:
        if request.name in METHODS.names():
            yield from _check_options(request.name, member.get("version"), member["options"])


def _check_options(name: str, version: int | None, options: Mapping[str, Any]) -> Iterator[Problem]:
    """Options that the card of that version lacks, and values that its runs refuse."""
    card = METHODS.get(name).card
    if version != card.version:
        return
    known = {option.name: option for option in card.options}
    if unknown := sorted(options.keys() - known.keys()):
        yield "method", f"{name} has no option {', '.join(unknown)}", AGAIN
    for option in filter(known.__contains__, options):
        where, value = f"option {option} of {name}", options[option]
        try:
            if known[option].parse(value, where) != value:
                yield "method", f"{where}: {value!r} is no value of its type", AGAIN
        except InputError as error:
            yield "method", str(error), AGAIN


def _member_names(record: RunRecord) -> set[str]:
    """Its method and all members; "" for a folder's name. Raises DataError for a name of several methods."""
    try:
        return {record.name, *(request.name for request, _ in parse_record_members(record))}
    except DataError:
        raise
    except InputError:
        return {record.name, ""}


def _check_plugins(record: RunRecord) -> Iterator[Problem]:
    """Bench's methods declared as a plug-in's, whose cells would escape every repetition."""
    own = set(METHODS.names_from("bench"))
    try:
        methods = _member_names(record)
    except DataError:
        methods = {""}
    plugins = record.provenance.get("plugins")
    for name in plugins if isinstance(plugins, dict) else ():
        if name in own:
            yield "method", f"{name} is said to come from a plug-in, and is bench's own", _OTHER_NAME
        elif methods <= own:
            yield "method", f"it names a plug-in of {name}, which it doesn't build on", AGAIN


def _check_members(record: RunRecord) -> Iterator[Problem]:
    """Members that are not one method each."""
    try:
        _member_names(record)
    except DataError as error:
        yield "method", error.what, error.hint or AGAIN


def _check_data(record: RunRecord) -> Iterator[Problem]:
    """Data that are said to be the reference, and tasks of another suite."""
    reference = reference_fingerprints()
    for task, facts in record.tasks.items():
        if facts["reference"] and task in reference and facts["sha256"] != reference[task]["sha256"]:
            yield "data", f"{task} is said to be the reference version, and isn't", AGAIN
    tasks = SUITES.get(record.suite).tasks if record.suite in SUITES.names() else ()
    if tasks and set(tasks) != set(record.tasks):
        yield "tasks", f"it has {', '.join(record.tasks)}; {record.suite} has {', '.join(tasks)}", AGAIN


def check_method_id(record: RunRecord, verified: Verification) -> Iterator[Problem]:
    """Yield contradictions between a row's name, which tables show and keys omit, and its options.

    A user's own name omits options. Options that the name should have are unchecked, as the profile may have
    been another then.
    """
    if METHOD_NAME.fullmatch(record.method) and record.method != record.name:
        return
    card = METHODS.get(record.name).card
    named = _id_options(record, card)
    if named is None:
        yield "method", f"it calls itself {record.method}, which no row of {record.name} is called", AGAIN
        return
    options = {name: str(value).strip() for name, value in record.options.items()}
    for name, value in named.items():
        if name in options and options[name] != value:
            what = f"its name says {name}={value}, and it was made with {name}={options[name]}"
            yield "method", what, AGAIN
        elif name not in options and name != "match":  # records have the steps of a match instead
            yield "method", f"its name says {name}={value}, and it has no such option", AGAIN
    matched = set(MATCHED if "match" in named else ())
    if omitted := sorted(_omitted_options(record, card) - named.keys() - matched):
        what = f"it doesn't say {', '.join(omitted)}, and profile {record.profile} has another value"
        verified.unchecked[f"name of row {record.method}: {what}"] += 1


def matched_method(record: RunRecord) -> str | None:
    """Return the method whose length a row's name claims, if any."""
    if METHOD_NAME.fullmatch(record.method):
        return None
    return (_id_options(record, METHODS.get(record.name).card) or {}).get("match")


def _id_options(record: RunRecord, card: MethodCard) -> dict[str, str] | None:
    """Options in a row's name, with the text after a colon, if a run gives such a name."""
    stems: dict[str, dict[str, str]] = {}
    if card.takes_methods and card.short_option in record.options:
        methods = str(record.options[card.short_option])
        stems[f"{card.name}:{methods}"] = {card.short_option: methods}
    if card.takes_path and record.backbone:
        name, sha256 = record.backbone["name"], record.backbone["sha256"]
        older = f"{name.split('/')[-1]}-{sha256[:8]}"  # with commas and brackets
        for stem in (model_stem(name, sha256), older):
            stems[f"{card.name}-{stem}" if card.named_rows else stem] = {}
    else:
        stems[card.name] = {}
    for stem, short in stems.items():
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
    """Options with other values than in the record's profile, if that is known."""
    name = record.profile.partition("@")[0]
    if name not in profiles.profile_names() or record.version != card.version:
        return set()
    try:
        own = profile_options(card, profiles.load_shipped_profile(name), record.options)
    except InputError:
        return set()
    return {name for name, value in record.options.items() if name in own and own[name] != value}
