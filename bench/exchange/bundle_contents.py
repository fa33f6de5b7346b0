"""What goes into a bundle, and which of it the records themselves call for."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib import metadata, resources
from pathlib import Path

from bench.config import profiles
from bench.config import sweep_manifest as manifest
from bench.config.spec import Plugin
from bench.errors import InputError
from bench.records.environment import plugin_file_hashes, strip_paths
from bench.records.filesystem import read_regular_file
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import make_campaign
from bench.reports.report import render_report
from bench.verify import archive
from bench.verify.findings import Verification
from bench.verify.record_checks import SIDE_FILES, VerifySettings, verify_records
from bench.verify.record_paths import record_files
from bench.verify.sentence_checks import check_sentences
from bench.verify.verification_formats import verification_json


def make_bundle(
    store: ResultStore,
    data: Path | None,
    plugins: Sequence[Plugin] = (),
    progress: Callable[[int], None] = lambda _: None,
    by: str | None = None,
) -> tuple[Verification, bytes | None]:
    """Verify a campaign and make a bundle of it; runs no plug-in's code.

    Args:
        store: The campaign.
        data: Evaluation data; default BENCH_DATA, then ./data.
        plugins: Every file that a method of its records came from.
        progress: Called with verified records.
        by: Who sends it: one line of text, None to leave it out.

    Returns:
        What verification found; and the bundle, None if it found anything.

    Raises:
        InputError: no such campaign, a plug-in file that isn't given or that no record came from, more than
            a bundle may hold, or no sender that can be printed.
        DataError: a file that quotes a sentence of the records' suites.
    """
    said = "" if by is None else archive.check_sender(by)
    sources = _plugin_sources(plugins)
    hashes = {name: sha256(source).hexdigest() for name, source in sources.items()}
    if not store.root.is_dir():
        store.records()  # says which campaigns there are
    verified, _ = verify_records(store.root, VerifySettings(data=data, plugins=hashes, progress=progress))
    if verified.findings:
        return verified, None
    records = store.records()
    _check_plugins(records, hashes)
    files = _result_files(store, records)
    files |= _render_reports(store.campaign, files)
    files |= {f"{archive.PLUGINS}{name}": source for name, source in sources.items()}
    files |= {f"{archive.PROFILES}{name}.toml": read_profile_text(name) for name in list_profiles(records)}
    files[archive.ENVIRONMENT] = list_distributions().encode()
    held = {what: n for what, n in verified.unchecked.items() if not what.startswith(SIDE_FILES)}  # not in it
    whole = replace(verified, unchecked=Counter(held))
    files[archive.VERIFIED] = strip_paths(verification_json(whole)).encode()
    check_sentences({**files, "--by": said.encode()}, records, data, f"campaign {store.campaign}")
    return verified, archive.assemble_bundle(store.campaign, files, said)


def read_campaign_folder(folder: Path) -> tuple[archive.Bundle, list[str]]:
    """Read a campaign of one's own as if it came in a bundle: its finished records, and its grids of sweeps.

    Args:
        folder: A campaign's folder, or a results folder with one campaign.

    Returns:
        The bundle, without plug-ins and profiles; and the files of failed cells, which it lacks.

    Raises:
        InputError: no records, or several campaigns.
        DataError: a damaged record.
    """
    roots = sorted(record_files(folder))
    if len(roots) > 1:
        raise InputError(
            f"{len(roots)} campaigns",
            where=str(folder),
            expected=f"the folder of one: {', '.join(root.name for root in roots)}",
        )
    store = ResultStore(roots[0].parent, roots[0].name)
    records = store.records()
    failed = [record for record in records if record.status != "ok"]
    files = _result_files(store, [record for record in records if record.status == "ok"])
    listed = "".join(f"{name}\0{sha256(files[name]).hexdigest()}\n" for name in sorted(files))
    digest = sha256(listed.encode())
    names = [store.path(record.place).relative_to(store.root).as_posix() for record in failed]
    return archive.Bundle(store.campaign, files, digest.hexdigest()), names


def list_plugin_files(records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the plug-in files that records name, each with a method that came from it."""
    return {
        str(record.provenance["plugins"][method]["file"]): method
        for record in records
        for method in plugin_file_hashes(record.provenance)
    }


def list_profiles(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the records' profiles, without the hash of another backbone."""
    return sorted({record.profile.partition("@")[0] for record in records})


def read_profile_text(name: str) -> bytes:
    """Return a profile's TOML as it is installed here; raises InputError for one of a file."""
    profiles.load_shipped_profile(name)
    return resources.files(profiles.__name__).joinpath(f"{name}.toml").read_bytes()


def list_distributions() -> str:
    """Return name==version of every installed distribution, sorted, a line each."""
    found: dict[str, str] = {}
    for each in metadata.distributions():  # of one that is there twice, the first is what imports find
        vendored = (
            "_vendor" in Path(str(each.locate_file(""))).parts
        )  # setuptools adds its copies to the path
        if not vendored and (name := each.metadata["Name"]):
            found.setdefault(name.lower().replace("_", "-"), f"{name}=={each.version}\n")
    return "".join(found[name] for name in sorted(found))


def _plugin_sources(plugins: Sequence[Plugin]) -> dict[str, bytes]:
    """Sources of the given files by their names."""
    sources: dict[str, bytes] = {}
    for plugin in plugins:
        if not plugin.path:
            raise InputError(
                f"'{plugin.name}' is a package", where="--plugin", expected="the file of a method, FILE.py"
            )
        if sources.setdefault(plugin.name, plugin.source) != plugin.source:
            raise InputError(f"two files are called '{plugin.name}'", where="--plugin")
    return sources


def _check_plugins(records: Sequence[RunRecord], given: Mapping[str, str]) -> None:
    """Check that the given files are those that the records came from; verification compared the hashes."""
    named = list_plugin_files(records)
    for file in sorted(named.keys() - given.keys()):
        raise InputError(
            f"{named[file]} came from the file '{file}', which is not given",
            where="--plugin",
            expected="every file that a method of the campaign came from",
        )
    for file in sorted(given.keys() - named.keys()):
        raise InputError(f"no record of the campaign came from '{file}'", where="--plugin")


def check_contents(
    bundle: archive.Bundle, store: ResultStore, records: Sequence[RunRecord], where: str
) -> None:
    """Check that a bundle holds what :func:`bundle` takes along for its records, and nothing else.

    Args:
        bundle: As it was read.
        store: Where its records and grids were written.
        records: Its records.
        where: For messages.

    Raises:
        InputError: a plug-in, a profile or predictions that it lacks, or that no record names.
    """
    wanted = {f"{archive.PLUGINS}{name}" for name in list_plugin_files(records)}
    wanted |= {f"{archive.PROFILES}{name}.toml" for name in list_profiles(records)}
    wanted |= _result_paths(store, records).keys()
    for name in sorted(wanted ^ (bundle.files.keys() - archive.ALWAYS)):
        lacks = f"its records name '{name}', which it lacks"
        what = lacks if name in wanted else f"nothing in it names '{name}'"
        raise InputError(what, where=where, hint=archive.ASK_AGAIN)


def _result_files(store: ResultStore, records: Sequence[RunRecord]) -> dict[str, bytes]:
    """Records, predictions and grids of sweeps, by their names in a bundle."""
    return {name: read_regular_file(path) for name, path in _result_paths(store, records).items()}


def _result_paths(store: ResultStore, records: Sequence[RunRecord]) -> dict[str, Path]:
    """Their files, by the same names."""
    paths = []
    for record in records:
        path = store.path(record.place)
        paths += [path, path.with_suffix(".npz")] if record.predictions else [path]
    files = {f"{archive.RECORDS}{path.relative_to(store.root).as_posix()}": path for path in paths}
    grids = sorted((store.root / manifest.FOLDER).glob("*.json"))
    return files | {f"{archive.SWEEPS}{path.name}": path for path in grids}


def _render_reports(campaign: str, results: Mapping[str, bytes]) -> dict[str, bytes]:
    """Render the reports from what goes into the bundle alone, so that they can be made again from it."""
    with tempfile.TemporaryDirectory() as folder:
        store = ResultStore(Path(folder), campaign)
        write_results(results, store.root)
        source = make_campaign(store, store.records(), manifest.load_manifests(store.root))
        return {name: render_report(source, form).encode() for name, form in archive.REPORTS.items()}


def write_results(results: Mapping[str, bytes], root: Path) -> None:
    """Write records, predictions and grids of a bundle as a campaign's folder."""
    for name, content in results.items():
        if name.startswith((archive.RECORDS, archive.SWEEPS)):
            path = root / name.removeprefix(archive.RECORDS)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
