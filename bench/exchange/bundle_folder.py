"""Bundles laid out as a working folder: results and the source of plug-ins; runs no code of a bundle."""

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

RESULTS = "results"  # plug-ins lie next to it: ``--plugin`` refuses code from below the results
_WRITTEN: dict[str, Callable[..., Any]] = {"MethodCard": MethodCard, "Option": Option}


@dataclass(frozen=True)
class Unpacked:
    """Contents of a bundle."""

    campaign: str
    needs: tuple[tuple[str, str], ...]  # missing inputs to repeat its cells, each with its option
    cards: Mapping[str, tuple[tuple[MethodCard, ...], bool]]  # by file; True if no card needs the code to run
    by: str  # the sender, by its own word; "" if not given


def unpack_bundle(file: Path, into: Path) -> Unpacked:
    """Write records, sweeps, plug-ins and profiles of a bundle to a new folder, whole or not at all.

    ``bench verify`` checks whether the records are sound. The sender's reports are left out: they can be made
    again, and a page from a stranger should stay closed.

    Args:
        file: The bundle, from anybody.
        into: A folder that is empty or missing.

    Raises:
        InputError: not a bundle, a damaged record, files that the records don't name, or a full folder.
        OSError: it can't be written.
    """
    bundle = archive.read_bundle(file)
    campaign = ResultStore(into / RESULTS, bundle.campaign).campaign
    if into.is_symlink() or (into.exists() and (not into.is_dir() or any(into.iterdir()))):
        raise InputError("it already exists", where=str(into), expected="a folder that is new or empty")
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
    """Read the records, and the grids too; an error names the bundle in place of the temporary folder."""
    try:
        records = store.records()
        manifest.load_manifests(store.root)
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
            if text and text.get("name") not in (f"mini-{seed}.txt", f"mini-{seed}-pairs.tsv"):
                what, option = ("pairs", "--pairs") if "pairs" in text else ("training text", "--corpus")
                needs[f"{what} {_format_name(text)}", option] = None
        if record.suite not in SUITES.names() or not SUITES.get(record.suite).embedded:
            needs[f"evaluation data of {record.suite}", "--data"] = None
    return tuple(needs)


def _format_name(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('name')} (sha256 {str(facts.get('sha256'))[:12]})"


def read_cards(source: bytes) -> tuple[tuple[MethodCard, ...], bool]:
    """Read the literal cards in a plug-in's source without running it.

    Returns:
        The cards; and False if there are none, or others that the code makes as it runs.
    """
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
