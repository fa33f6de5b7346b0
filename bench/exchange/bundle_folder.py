"""Lay a bundle out as a folder to work in: results, the source of plug-ins beside them; runs none of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.card import MethodCard, Option, check_card
from bench.config import sweep_manifest as manifest
from bench.config.profiles import DEFAULT
from bench.data.suites import SUITES
from bench.errors import BenchError, DataError, InputError, NewerRecordError
from bench.exchange.bundle_contents import check_contents, write_results
from bench.records.filesystem import create_folder_atomically
from bench.records.record import EXTERNAL, RunRecord
from bench.records.store import ResultStore
from bench.verify import archive

RESULTS = "results"
"""Folder of the campaign; plug-ins lie beside it, as ``--plugin`` takes no code from below the results."""
_WRITTEN: dict[str, Callable[..., Any]] = {"MethodCard": MethodCard, "Option": Option}


@dataclass(frozen=True)
class Unpacked:
    """What a bundle held.

    Args:
        campaign: Name of its campaign.
        needs: What it takes to repeat its cells and isn't in it: each with the option that names it.
        cards: For each plug-in file, the cards that can be read without running it, and whether all could.
        by: Who sent it, by the sender's own word; empty where it doesn't say.
    """

    campaign: str
    needs: tuple[tuple[str, str], ...]
    cards: Mapping[str, tuple[tuple[MethodCard, ...], bool]]
    by: str


def unpack_bundle(file: Path, into: Path) -> Unpacked:
    """Write records, grids of sweeps, plug-ins and profiles of a bundle to a new folder, whole or not at all.

    Its form is checked as by ``bench merge``, and that it holds nothing but what its records name; whether
    these are sound is for ``bench verify`` to say.
    The sender's reports stay in the bundle: they can be made again, and a page from anybody is none to open.

    Args:
        file: The bundle, from anybody.
        into: A folder that is empty or isn't there.

    Raises:
        InputError: not a bundle, or one that holds a damaged record or what its records don't call for;
            something is in the folder.
        OSError: it can't be written.
    """
    bundle = archive.read_bundle(file)
    campaign = ResultStore(into / RESULTS, bundle.campaign).campaign
    if into.is_symlink() or (into.exists() and (not into.is_dir() or any(into.iterdir()))):
        raise InputError("this is there already", where=str(into), expected="a folder that is new or empty")
    with create_folder_atomically(into) as folder:
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
    """Read the records, and the grids too; what is wrong is the bundle's, whose folder nobody will see."""
    try:
        records = store.records()
        manifest.load_manifests(store.root)
    except DataError as error:
        what = str(BenchError(error.what, where=error.where, expected=error.expected))
        hint = error.hint if isinstance(error, NewerRecordError) else archive.ASK_AGAIN
        raise InputError(what.replace(f"{store.root}/", ""), where=where, hint=hint) from error
    return records


def list_requirements(records: Sequence[RunRecord]) -> tuple[tuple[str, str], ...]:
    """What it takes to repeat records and comes neither with them nor with bench, each with what names it."""
    found: dict[tuple[str, str], None] = {}
    for record in records:
        profile, _, other = record.profile.partition("@")
        if record.backbone and (other or record.name in EXTERNAL):
            found[f"model {_format_name(record.backbone)}", "--model"] = None
        elif record.backbone and profile != DEFAULT:
            found[f"model {_format_name(record.backbone)}", f"that of profile {profile}"] = None
        stages = record.training.get("stages", {}).values()
        texts = [record.training.get("corpus"), *(stage.get("text") for stage in stages)]
        seed = (record.world or {}).get("seed")
        for text in texts[:1] + [text for text in texts[1:] if text and "pairs" in text]:
            if text and text.get("name") not in (f"mini-{seed}.txt", f"mini-{seed}-pairs.tsv"):
                what, option = ("pairs", "--pairs") if "pairs" in text else ("training text", "--corpus")
                found[f"{what} {_format_name(text)}", option] = None
        if record.suite not in SUITES.names() or not SUITES.get(record.suite).embedded:
            found[f"evaluation data of {record.suite}", "--data"] = None
    return tuple(found)


def _format_name(facts: Mapping[str, Any]) -> str:
    """Name of a file or folder, with the first digits of its hash."""
    return f"{facts.get('name')} (sha256 {str(facts.get('sha256'))[:12]})"


def read_cards(source: bytes) -> tuple[tuple[MethodCard, ...], bool]:
    """Read the cards in a plug-in's source that are written out as such; runs nothing of it.

    Returns:
        The cards; and False if there are none, or others that the code makes as it runs.
    """
    found: list[MethodCard] = []
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if _callee_name(node) == "MethodCard"]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return (), False
    for call in calls:
        with suppress(ValueError, TypeError, RecursionError, InputError):
            card = _evaluate_card(call)
            check_card(SimpleNamespace(card=card, build=len))
            found.append(card)
    return tuple(found), bool(calls) and len(found) == len(calls)


def _callee_name(node: ast.AST) -> str:
    """Name of what a call calls, "" for any other node."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _evaluate_card(node: ast.AST) -> Any:
    """Value of a card, of an option, or of what is written out in them; raises ValueError for all else."""
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(map(_evaluate_card, node.elts))
    if not isinstance(node, ast.Call) or _callee_name(node) not in _WRITTEN:
        return ast.literal_eval(node)
    named = {keyword.arg: _evaluate_card(keyword.value) for keyword in node.keywords if keyword.arg}
    if len(named) < len(node.keywords):
        raise ValueError("keywords that the code makes")
    return _WRITTEN[_callee_name(node)](*map(_evaluate_card, node.args), **named)
