"""What a record says against its method's card, its suite and the reference data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.card import SUPERVISED
from bench.config import profiles
from bench.data.mteb_names import is_mteb
from bench.data.suites import MINI_SUITES, SUITES, reference_fingerprints
from bench.errors import DataError, InputError
from bench.eval.suite_measures import measure_of
from bench.execution.repetition import parse_record_members
from bench.records.environment import plugin_file_hashes
from bench.records.fingerprint import training_arithmetic
from bench.records.integrity import AGAIN
from bench.records.record import RunRecord, is_supervised
from bench.registry import METHODS
from bench.stages import ARITHMETIC, ComposedMethod
from bench.verify.findings import Problem, Verification
from bench.verify.method_id_checks import check_method_id

_OTHER_NAME = "give the plug-in's method another name, and run the cell again"


def check_metadata(record: RunRecord, verified: Verification) -> Iterator[Problem]:
    """Yield what is wrong of that; a method or profile that isn't known here is unchecked."""
    if record.name in METHODS.names():
        yield from _check_card(record)
        yield from _check_members(record)
        yield from _check_labels(record)
        yield from check_method_id(record, verified)
    elif record.name not in plugin_file_hashes(record.provenance):  # these are asked for by their file
        verified.unchecked[f"method {record.name}: unknown here"] += 1
    yield from _check_plugins(record)
    profile = record.profile.partition("@")[0]
    if profile not in profiles.profile_names():
        verified.unchecked[f"profile {profile}: unknown here"] += 1
    if (other := METHODS.called(record.method)) not in (None, record.name):
        yield (
            "method",
            f"it calls itself {record.method}, a name of {other}, but {record.name} made it",
            AGAIN,
        )
    if "mteb" in record.provenance and not is_mteb(record.suite):
        yield "method", f"mteb is said to have computed it, which doesn't compute suite {record.suite}", AGAIN
    if record.world is None and record.suite in MINI_SUITES:
        yield "tasks", f"it doesn't say of which world suite {record.suite} is", AGAIN
    if training_arithmetic(record) > ARITHMETIC:
        what = f"trained by arithmetic {training_arithmetic(record)}; this bench has {ARITHMETIC}"
        yield "method", what, "upgrade cse-bench"
    version, newest = record.evaluation.get("version", 1), measure_of(record.suite).version
    if version > newest:
        yield "method", f"version {version} of the evaluation; this bench has {newest}", "upgrade cse-bench"
    yield from _check_data(record)


def _check_card(record: RunRecord) -> Iterator[Problem]:
    """Version, options, and no seed where the method draws nothing."""
    method = METHODS.get(record.name)
    card = method.card
    if record.version > card.version:
        what = f"version {record.version} of {record.name}; this bench has {card.version}"
        yield "method", what, AGAIN
    yield from _check_options(record.name, record.version, record.options)
    if card.takes_methods and not record.training.get("members"):
        yield "method", f"{record.name} builds on other methods, and it names none", AGAIN
    if card.deterministic and record.seed is not None and not isinstance(method, ComposedMethod):
        what = f"{record.name} draws nothing, so that it has no seeds, and this is seed {record.seed}"
        yield "method", what, AGAIN


def _check_options(name: str, version: int | None, options: Mapping[str, Any]) -> Iterator[Problem]:
    """Options that the card of that version doesn't have, and values that none of its runs takes."""
    card = METHODS.get(name).card
    if version != card.version:
        return
    has = {option.name: option for option in card.options}
    if odd := sorted(options.keys() - has.keys()):
        yield "method", f"{name} has no option {', '.join(odd)}", AGAIN
    for option in filter(has.__contains__, options):
        where, value = f"option {option} of {name}", options[option]
        try:
            if has[option].parse(value, where) != value:
                yield "method", f"{where}: {value!r} is no value of its type", AGAIN
        except InputError as error:
            yield "method", str(error), AGAIN


def _check_members(record: RunRecord) -> Iterator[Problem]:
    """The same of the methods that it builds on; where these can't be told, that is said elsewhere."""
    try:
        members = parse_record_members(record)
    except InputError:
        return
    for request, member in members:
        if request.name in METHODS.names():
            yield from _check_options(request.name, member.get("version"), member["options"])


def _check_plugins(record: RunRecord) -> Iterator[Problem]:
    """Methods that are said to come from a plug-in, as whose cells they would escape every repetition."""
    own = set(METHODS.names_from("bench"))
    try:
        built_on = {record.name, *(request.name for request, _ in parse_record_members(record))}
    except InputError:  # of a folder's name, which may be a plug-in's
        built_on = {""}
    said = record.provenance.get("plugins")
    for name in said if isinstance(said, dict) else ():
        if name in own:
            yield "method", f"{name} is said to come from a plug-in, and is bench's own", _OTHER_NAME
        elif built_on <= own:
            yield "method", f"it names a plug-in of {name}, which it doesn't build on", AGAIN


def _check_labels(record: RunRecord) -> Iterator[Problem]:
    """Whether it learned from labels, as the cards of its method and of those below it say."""
    try:
        names = {record.name, *(request.name for request, _ in parse_record_members(record))}
    except DataError as error:
        yield "method", error.what, error.hint or AGAIN
        return
    except InputError:  # the name of a folder that can't be asked for
        names = {record.name, ""}
    here = names & set(METHODS.names())
    learned = [name for name in sorted(here) if METHODS.get(name).card.kind == SUPERVISED]
    if learned and not is_supervised(record):
        what = f"it doesn't say that it learned from labels, and {learned[0]} does"
        yield "notes", what, AGAIN
    stages = record.training.get("stages", {}).values()
    from_pairs = any("pairs" in stage.get("text", {}) for stage in stages)
    if record.training.get("supervised") and names == here and not learned and not from_pairs:
        yield "notes", f"it says that it learned from labels, and {record.name} doesn't", AGAIN


def _check_data(record: RunRecord) -> Iterator[Problem]:
    """Data that are said to be the reference, and tasks that aren't the suite's."""
    reference = reference_fingerprints()
    for task, facts in record.tasks.items():
        if facts["reference"] and task in reference and facts["sha256"] != reference[task]["sha256"]:
            yield "data", f"{task} is said to be the reference version, and isn't", AGAIN
    tasks = SUITES.get(record.suite).tasks if record.suite in SUITES.names() else ()
    if tasks and set(tasks) != set(record.tasks):
        yield "tasks", f"it has {', '.join(record.tasks)}; {record.suite} has {', '.join(tasks)}", AGAIN
