"""Verify records: each from its own file and predictions, and each campaign as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.data.mteb_names import is_mteb
from bench.data.suites import SUITES, reference_fingerprints
from bench.errors import BenchError, InputError, NotComparableError
from bench.eval.rescore import rescore, tasks_of
from bench.nn.folder import content_hash
from bench.records.integrity import copies, faults, seal_fault
from bench.records.provenance import plugin_files
from bench.records.record import EXTERNAL, RunRecord, from_json
from bench.records.store import ResultStore
from bench.registry import METHODS
from bench.run.kept import folder_of
from bench.verify.findings import Verified
from bench.verify.stages import planned_keys, with_keys, wrong_stages

Wrong = tuple[str, str, str]
"""Check, what is wrong, what to do about it."""
_AGAIN = "delete the file and run the cell again"
SIDE_SCORES = "of which no predictions are kept:"
"""In a line on scores that stand beside a suite's own, such as those of the last checkpoint."""
_NOT_RECORDS = ("stats", "mteb")
"""Folders of a campaign that hold what can be made again from its records, or is another program's."""


@dataclass(frozen=True)
class Settings:
    """How records are verified.

    Args:
        data: Evaluation data; default BENCH_DATA, then ./data.
        seal: Seal what has no seal and no fault.
        plugins: sha256 of the plug-in files at hand, by the files' names.
        progress: Called with finished records.
    """

    data: Path | None = None
    seal: bool = False
    plugins: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[int], None] = lambda _: None


def record_files(target: Path) -> dict[Path, list[Path]]:
    """Return the files of records at or below a path, by the campaign's folder.

    Raises:
        InputError: there are none.
    """
    below = [target] if target.is_file() else sorted(target.rglob("*.json"))
    found: dict[Path, list[Path]] = {}
    for path in below:
        hidden = any(part.startswith(".") for part in path.relative_to(target).parts)
        file = path.absolute()
        if not hidden and len(file.parents) > 4 and _is_run(file.parent.name):
            found.setdefault(file.parents[3], []).append(file)
    if not found:
        raise InputError(
            "no records here",
            where=str(target),
            expected="results, a campaign's folder, a folder below it, or a record's .json",
        )
    return found


def _is_run(folder: str) -> bool:
    return folder == "no-seed" or folder.startswith("seed-")


def verify(target: Path, settings: Settings) -> tuple[Verified, list[tuple[str, RunRecord]]]:
    """Verify every record at or below a path.

    Args:
        target: A results folder, a campaign, a folder below it, or a record's file.
        settings: How.

    Returns:
        What was found; and the finished records without a finding, by their files' names.

    Raises:
        InputError: no records.
    """
    verified, readable = Verified(), dict[str, RunRecord]()
    base = target.absolute() if target.is_dir() else target.absolute().parent
    for root, files in record_files(target).items():
        store = ResultStore(root.parent, root.name)
        of_campaign: dict[str, RunRecord] = {}
        for file in files:
            where = file.relative_to(base).as_posix()
            verified.records.append(where)
            record = _verify_file(store, file, where, settings, verified)
            if record is not None:
                of_campaign[where] = record
            settings.progress(1)
        _add_copies(of_campaign, verified)
        if base in (root, *root.parents):
            external = (record.place for record in of_campaign.values() if record.name in EXTERNAL)
            kept = {folder_of(store, place) for place in external}
            for stray in _strays(root, files, kept):
                hint = "delete it, or move it out of the results folder"
                name = stray.relative_to(base).as_posix()
                verified.add(name, [("stray", "no record names this file", hint)])
        readable |= of_campaign
    wrong = {finding.where for finding in verified.findings}
    return verified, [(where, r) for where, r in readable.items() if where not in wrong and r.status == "ok"]


def _add_copies(records: Mapping[str, RunRecord], verified: Verified) -> None:
    names = {id(record): where for where, record in records.items()}
    for first, second, why in copies(list(records.values())):
        what = f"this and {names[id(first)]} {why}"
        verified.add(names[id(second)], [("copy", what, "delete the copy: it is no further result")])


def _verify_file(
    store: ResultStore, file: Path, where: str, settings: Settings, verified: Verified
) -> RunRecord | None:
    """Check one file; None where it can't be read at all."""
    try:
        if file.is_symlink():
            raise BenchError("a link, not a file")
        text = file.read_text(encoding="utf-8")
        record = from_json(text, str(file))
    except (OSError, UnicodeDecodeError, BenchError) as error:
        verified.add(where, [("shape", str(error), _AGAIN)])
        return None
    wrong = [*_stated(store, file, record), *_known(record), *_plugins(record, settings, verified)]
    wrong += _encoder(folder_of(store, record.place), record)
    scores = verified.scores
    if not any(check == "place" for check, *_ in wrong):  # else its predictions are not those next to it
        wrong += _measured(store, record, settings, verified)
    seal = seal_fault(record, text)
    planned = _planned(record, settings, verified) if not wrong else None
    sound = not wrong and verified.scores > scores  # never sealed without a look at its scores
    if settings.seal and seal is not None and seal.check == "unsealed" and sound:
        store.seal(with_keys(record, planned) if planned else record)
        verified.sealed.append(where)
    elif seal is not None:
        wrong.append((seal.check, seal.what, seal.hint))
    elif planned is not None and (odd := wrong_stages(record, planned)):
        what = f"the key of {', '.join(odd)} is not that of its options, text and seed"
        wrong.append(("stages", what, _AGAIN))
    verified.add(where, wrong)
    return record


def _stated(store: ResultStore, file: Path, record: RunRecord) -> Iterator[Wrong]:
    """What a record says against itself and its place."""
    for fault in faults(record):
        yield fault.check, fault.what, fault.hint
    if store.path(record.place) != file:
        what = f"this record of {record.method} is in another's place"
        yield "place", what, "move the copy out of the results folder"
    if record.status != "ok":
        yield "score", f"the cell failed: {record.reason}", _AGAIN


def _known(record: RunRecord) -> Iterator[Wrong]:
    """What a record says against its method's card, its suite and the reference data."""
    if record.name in METHODS.names():
        card = METHODS.get(record.name).card
        if record.version > card.version:
            what = f"version {record.version} of {record.name}; this bench has {card.version}"
            yield "method", what, _AGAIN
        known = {option.name for option in card.options}
        if record.version == card.version and (odd := sorted(record.options.keys() - known)):
            yield "method", f"{record.name} has no option {', '.join(odd)}", _AGAIN
    if record.method != record.name and record.method in METHODS.names():
        yield "method", f"it calls itself {record.method}, but {record.name} made it", _AGAIN
    reference = reference_fingerprints()
    for task, facts in record.tasks.items():
        if facts["reference"] and task in reference and facts["sha256"] != reference[task]["sha256"]:
            yield "data", f"{task} is said to be the reference version, and isn't", _AGAIN
    tasks = SUITES.get(record.suite).tasks if record.suite in SUITES.names() else ()
    if tasks and set(tasks) != set(record.tasks):
        yield "tasks", f"it has {', '.join(record.tasks)}; {record.suite} has {', '.join(tasks)}", _AGAIN


def _plugins(record: RunRecord, settings: Settings, verified: Verified) -> Iterator[Wrong]:
    """What the plug-in files at hand say against a record that came from some."""
    for method, sha256 in plugin_files(record.provenance).items():
        file = str(record.provenance["plugins"][method]["file"])
        at_hand = settings.plugins.get(file)
        if at_hand is None:
            verified.unchecked[f"plug-in {file} of {method}: not at hand, name it with --plugin"] += 1
        elif at_hand != sha256:
            what = f"{file} at hand is not the file that {method} came from (sha256 {sha256[:12]})"
            yield "method", what, "name that file with --plugin"


def _encoder(folder: Path, record: RunRecord) -> Iterator[Wrong]:
    """What the encoder that is kept next to a record says against it."""
    if not folder.is_dir() or record.name not in EXTERNAL:
        return
    try:
        found = content_hash(folder)
    except BenchError as error:
        yield "weights", error.what, _AGAIN
        return
    if found != (record.backbone or {}).get("sha256"):
        yield "weights", "the encoder next to it is not the one that it is of", _AGAIN


def _measured(
    store: ResultStore, record: RunRecord, settings: Settings, verified: Verified
) -> Iterator[Wrong]:
    """What predictions and gold scores say against a record."""
    if record.status != "ok":
        return
    if record.predictions is None and not (is_mteb(record.suite) and store.is_whole(record.place, record)):
        yield "predictions", "it names no predictions, so nothing shows its scores", _AGAIN
        return
    if record.predictions is None:
        verified.unchecked[f"scores of {record.suite}: no predictions are kept"] += len(record.scores)
        return
    try:
        predictions = store.predictions(record)
    except BenchError as error:
        yield "predictions", error.what, "run the cell again"
        return
    try:
        tasks = tasks_of(record, settings.data)
    except NotComparableError as error:
        yield "data", error.what, "name the data that it was measured on with --data"
        return
    except BenchError as error:
        verified.unchecked[f"scores of {record.suite}: {error.what}"] += len(record.scores)
        return
    found = rescore(record, tasks, predictions)
    verified.scores += found.checked
    for kind in found.unchecked:
        verified.unchecked[f"scores of {record.suite} {SIDE_SCORES} {kind}"] += 1
    for wrong in found.wrong:
        yield "score", wrong, "the record was edited, or scored by another program: run the cell again"


def _planned(record: RunRecord, settings: Settings, verified: Verified) -> dict[str, str] | None:
    """The keys that the training stages of a record should have; None where that can't be told."""
    if not record.training.get("stages"):
        return None
    try:
        return planned_keys(record, settings.data)
    except BenchError as error:
        verified.unchecked[f"keys of training stages: {error.what}"] += 1
        return None


def _strays(root: Path, files: Sequence[Path], kept: set[Path]) -> Iterator[Path]:
    """Files in the cells' folders of a campaign that no record names, but for the encoders kept there."""
    named = kept | {name for file in files for name in (file, file.with_suffix(".npz"))}
    for path in sorted(root.glob("*/*/*/*")):
        top = path.relative_to(root).parts[0]
        hidden = top.startswith(".") or path.name.startswith(".")  # locks, and what a killed process left
        if top not in _NOT_RECORDS and not hidden and path not in named:
            yield path
