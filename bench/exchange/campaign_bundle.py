"""Bundles: made from a campaign, checked, and unpacked as a working folder; their code stays untouched."""

from __future__ import annotations

import ast
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import metadata, resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.config import profiles
from bench.config import sweep_manifest as manifest
from bench.config.profiles import DEFAULT
from bench.config.run_spec import Plugin
from bench.data.cased.texts import EMBEDDED_TEXT
from bench.data.suites import SUITES
from bench.errors import BenchError, DataError, InputError, NewerRecordError
from bench.eval.recomputation import load_sound_records
from bench.method_card import MethodCard, Option, check_card
from bench.records import sealed_plan
from bench.records.environment import plugin_file_hashes, strip_paths
from bench.records.filesystem import create_folder_atomically, read_regular_file
from bench.records.imported import is_imported
from bench.records.record import EXTERNAL, RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import make_campaign
from bench.reports.report import TableOptions, render_report
from bench.reports.short_report import render_short_report
from bench.verify import archive
from bench.verify.findings import Verification, verification_json
from bench.verify.record_checks import VerifySettings, verify_records
from bench.verify.record_paths import find_record_files
from bench.verify.sentence_checks import check_sentences
from bench.verify.side_files import SIDE_FILES

RESULTS = "results"  # plug-ins lie next to it: ``--plugin`` refuses code from below the results
_WRITTEN: dict[str, Callable[..., Any]] = {"MethodCard": MethodCard, "Option": Option}


def make_bundle(
    store: ResultStore,
    data: Path | None,
    plugins: Sequence[Plugin] = (),
    progress: Callable[[int], None] = lambda _: None,
    by: str | None = None,
) -> tuple[Verification, bytes | None]:
    """Verify a campaign and bundle it; returns the verification and the bundle, None after any finding.

    ``plugins`` are all files that a method of its records came from, ``by`` is the sender, one line of text.
    Raises InputError for a missing campaign, missing or further plug-in files, an unprintable sender or a
    bundle that is too large, DataError for a file that quotes a sentence of the records' suites.
    """
    sender = "" if by is None else archive.check_sender(by)
    sources = _plugin_sources(plugins)
    if not store.root.is_dir():
        store.records()  # raises an error that lists the campaigns
    verified, _ = verify_records(store.root, VerifySettings(data=data, plugins=sources, progress=progress))
    if verified.findings:
        return verified, None
    records = store.records()
    if imported := [record.method for record in records if is_imported(record)]:
        what = f"{imported[0]} was made elsewhere: a bundle has runs that somebody can repeat"
        hint = "send the source, which bench import reads there too"
        raise InputError(what, where=f"campaign {store.campaign}", hint=hint)
    _check_plugins(records, sources)
    files = _result_files(store, records)
    files |= _render_reports(store.campaign, files, data)
    files |= {f"{archive.PLUGINS}{name}": source for name, source in sources.items()}
    files |= {f"{archive.PROFILES}{name}.toml": read_profile_text(name) for name in list_profiles(records)}
    files[archive.ENVIRONMENT] = list_distributions().encode()
    bundled = {what: n for what, n in verified.unchecked.items() if not what.startswith(SIDE_FILES)}
    # what a rerun here can show depends on the machine
    whole = replace(verified, unchecked=Counter(bundled), repeatable=[], unrepeatable={})
    report = verification_json(whole)
    files[archive.VERIFIED] = strip_paths(report).encode()
    check_sentences({**files, "--by": sender.encode()}, records, data, f"campaign {store.campaign}")
    return verified, archive.assemble_bundle(store.campaign, files, sender)


def read_campaign_folder(folder: Path) -> tuple[archive.Bundle, list[str]]:
    """Read a campaign's folder as a bundle of finished records and sweeps; list the failed cells' files."""
    roots = sorted(find_record_files(folder)[0])
    if len(roots) > 1:
        expected = f"the folder of one: {', '.join(root.name for root in roots)}"
        raise InputError(f"{len(roots)} campaigns", where=str(folder), expected=expected)
    store = ResultStore(roots[0].parent, roots[0].name)
    records = store.records()
    failed = [record for record in records if record.status != "ok"]
    files = _result_files(store, [record for record in records if record.status == "ok"])
    hashes = "".join(f"{name}\0{sha256(files[name]).hexdigest()}\n" for name in sorted(files))
    names = [store.path(record.place).relative_to(store.root).as_posix() for record in failed]
    return archive.Bundle(store.campaign, files, sha256(hashes.encode()).hexdigest()), names


def list_plugin_files(records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the plug-in files that records name, each with one of its methods."""
    return {
        str(record.provenance["plugins"][method]["file"]): method
        for record in records
        for method in plugin_file_hashes(record.provenance)
    }


def list_profiles(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the records' profiles, stripped of the hash of another backbone."""
    return sorted({record.profile.partition("@")[0] for record in records})


def read_profile_text(name: str) -> bytes:
    """Return the TOML of a shipped profile; raises InputError for a user's file."""
    profiles.load_shipped_profile(name)
    return resources.files(profiles.__name__).joinpath(f"{name}.toml").read_bytes()


def list_distributions() -> str:
    """Return name==version of every installed distribution, sorted, a line each."""
    lines: dict[str, str] = {}
    for distribution in metadata.distributions():  # the first of a name is the one that imports find
        vendored = "_vendor" in Path(str(distribution.locate_file(""))).parts  # setuptools' copies
        if not vendored and (name := distribution.metadata["Name"]):
            lines.setdefault(name.lower().replace("_", "-"), f"{name}=={distribution.version}\n")
    return "".join(lines[name] for name in sorted(lines))


def _plugin_sources(plugins: Sequence[Plugin]) -> dict[str, bytes]:
    sources: dict[str, bytes] = {}
    for plugin in plugins:
        if not plugin.path:
            expected = "the file of a method, FILE.py"
            raise InputError(f"'{plugin.name}' is a package", where="--plugin", expected=expected)
        if sources.setdefault(plugin.name, plugin.source) != plugin.source:
            raise InputError(f"two files are called '{plugin.name}'", where="--plugin")
    return sources


def _check_plugins(records: Sequence[RunRecord], given: Mapping[str, bytes]) -> None:
    """Check that exactly the records' files are given; verification compared them."""
    named = list_plugin_files(records)
    for file in sorted(named.keys() - given.keys()):
        what = f"the file '{file}' of method {named[file]} is missing"
        expected = "every file that a method of the campaign came from"
        raise InputError(what, where="--plugin", expected=expected)
    for file in sorted(given.keys() - named.keys()):
        raise InputError(f"no record of the campaign came from '{file}'", where="--plugin")


def check_contents(
    bundle: archive.Bundle, store: ResultStore, records: Sequence[RunRecord], where: str
) -> None:
    """Check that a bundle, written to ``store``, holds exactly what its records name; raises InputError."""
    wanted = {f"{archive.PLUGINS}{name}" for name in list_plugin_files(records)}
    wanted |= {f"{archive.PROFILES}{name}.toml" for name in list_profiles(records)}
    wanted |= _result_paths(store, records).keys()
    for name in sorted(wanted ^ (bundle.files.keys() - archive.ALWAYS)):
        lacks = f"its records name '{name}', which it lacks"
        what = lacks if name in wanted else f"nothing in it names '{name}'"
        raise InputError(what, where=where, hint=archive.ASK_AGAIN)


def _result_files(store: ResultStore, records: Sequence[RunRecord]) -> dict[str, bytes]:
    """Return the bytes of records, predictions, grids of sweeps and the plan, by their names in a bundle."""
    return {name: read_regular_file(path) for name, path in _result_paths(store, records).items()}


def _result_paths(store: ResultStore, records: Sequence[RunRecord]) -> dict[str, Path]:
    paths = []
    for record in records:
        path = store.path(record.place)
        paths += [path, path.with_suffix(".npz")] if record.predictions else [path]
    files = {f"{archive.RECORDS}{path.relative_to(store.root).as_posix()}": path for path in paths}
    grids = sorted((store.root / manifest.FOLDER).glob("*.json"))
    files |= {f"{archive.SWEEPS}{path.name}": path for path in grids}
    plan = store.root / sealed_plan.FILE
    return files | ({archive.PLAN: plan} if plan.exists() else {})


def _render_reports(campaign: str, results: Mapping[str, bytes], data: Path | None) -> dict[str, bytes]:
    """Render the reports from bundled results and the data, so that everybody with both can repeat it."""
    with tempfile.TemporaryDirectory() as folder:
        store = ResultStore(Path(folder), campaign)
        write_results(results, store.root)
        records = load_sound_records(store, data)
        source = make_campaign(store, records, manifest.load_manifests(store.root))
        texts = {"text": render_short_report(source, TableOptions(), details=True)}
        texts["html"] = render_report(source, "html")
        return {name: texts[form].encode() for name, form in archive.REPORTS.items()}


def write_results(results: Mapping[str, bytes], root: Path) -> None:
    """Write records, predictions, grids and the plan of a bundle as a campaign's folder."""
    for name, content in results.items():
        if name == archive.PLAN or name.startswith((archive.RECORDS, archive.SWEEPS)):
            path = root / name.removeprefix(archive.RECORDS)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@dataclass(frozen=True)
class Unpacked:
    """Contents of a bundle."""

    campaign: str
    needs: tuple[tuple[str, str], ...]  # missing inputs to repeat its cells, each with its option
    cards: Mapping[str, tuple[tuple[MethodCard, ...], bool]]  # by file; True if no card needs the code to run
    by: str  # the sender, by its own word; "" if not given


def unpack_bundle(file: Path, into: Path, commit: Callable[[], object] = lambda: None) -> Unpacked:
    """Write records, sweeps, plug-ins and profiles of a bundle to a new or empty folder, as a whole.

    ``commit`` is called just before the whole folder gets its name.
    The sender's reports are left out: a page from a stranger should stay closed. Raises InputError.
    """
    bundle = archive.read_bundle(file)
    campaign = ResultStore(into / RESULTS, bundle.campaign).campaign
    if into.is_symlink() or (into.exists() and (not into.is_dir() or any(into.iterdir()))):
        raise InputError("it already exists", where=str(into), expected="a folder that is new or empty")
    with create_folder_atomically(into, commit) as folder:
        store = ResultStore(folder / RESULTS, campaign)
        write_results(bundle.files, store.root)
        records = _read_records(store, str(file))
        check_contents(bundle, store, records, str(file))
        for name, content in bundle.files.items():
            if name.startswith((archive.PLUGINS, archive.PROFILES, archive.ENVIRONMENT)):
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(content)
    sources = bundle.below(archive.PLUGINS)
    cards = {name: read_cards(source) for name, source in sources.items()}
    return Unpacked(campaign, list_requirements(records), cards, bundle.by)


def _read_records(store: ResultStore, where: str) -> list[RunRecord]:
    """Read the records, and the grids too; an error names the bundle in place of the temporary folder."""
    try:
        records = store.records()
        manifest.load_manifests(store.root)
        sealed_plan.load_plan(store.root)
    except DataError as error:
        what = str(BenchError(error.what, where=error.where, expected=error.expected))
        hint = error.hint if isinstance(error, NewerRecordError) else archive.ASK_AGAIN
        raise InputError(what.replace(f"{store.root}/", ""), where=where, hint=hint) from error
    return records


def list_requirements(records: Sequence[RunRecord]) -> tuple[tuple[str, str], ...]:
    """Return the missing inputs to repeat records, each with the option that names it."""
    needs: dict[tuple[str, str], None] = {}
    for record in records:
        profile, _, other = record.profile.partition("@")
        if record.backbone and (other or record.name in EXTERNAL):
            needs[f"model {_format_name(record.backbone)}", "--model"] = None
        elif record.backbone and profile != DEFAULT:
            needs[f"model {_format_name(record.backbone)}", f"that of profile {profile}"] = None
        stages = record.training.get("stages", {}).values()
        pairs = [text for stage in stages if "pairs" in (text := stage.get("text") or {})]
        seed = (record.world or {}).get("seed")
        for text in (record.training.get("corpus"), *pairs):
            if text and text.get("name") not in (f"mini-{seed}.txt", f"mini-{seed}-pairs.tsv", EMBEDDED_TEXT):
                what, option = ("pairs", "--pairs") if "pairs" in text else ("training text", "--corpus")
                needs[f"{what} {_format_name(text)}", option] = None
        if record.suite not in SUITES.names() or not SUITES.get(record.suite).embedded:
            needs[f"evaluation data of {record.suite}", "--data"] = None
    return tuple(needs)


def _format_name(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('name')} (sha256 {str(facts.get('sha256'))[:12]})"


def read_cards(source: bytes) -> tuple[tuple[MethodCard, ...], bool]:
    """Read the literal cards in a plug-in's source; False if some are made by code, or all are missing."""
    cards: list[MethodCard] = []
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if _callee_name(node) == "MethodCard"]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return (), False
    for call in calls:
        with suppress(ValueError, TypeError, RecursionError, InputError):
            card = _evaluate_card(call)
            check_card(SimpleNamespace(card=card, build=len))
            cards.append(card)
    return tuple(cards), bool(calls) and len(cards) == len(calls)


def _callee_name(node: ast.AST) -> str:
    """Return the name that a call calls, "" for any other node."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _evaluate_card(node: ast.AST) -> Any:
    """Return the value of a card, an option or a literal in them; raises ValueError otherwise."""
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(map(_evaluate_card, node.elts))
    if not isinstance(node, ast.Call) or _callee_name(node) not in _WRITTEN:
        return ast.literal_eval(node)
    named = {keyword.arg: _evaluate_card(keyword.value) for keyword in node.keywords if keyword.arg}
    if len(named) < len(node.keywords):
        raise ValueError("keywords that the code makes")
    return _WRITTEN[_callee_name(node)](*map(_evaluate_card, node.args), **named)
