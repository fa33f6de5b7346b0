"""Conformance: the checks that every method has to pass, for anybody to run on a method of their own."""

from __future__ import annotations

import re
import sys
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.config.plugins import load_plugin, read_plugin
from bench.config.spec import ALL_METHODS
from bench.conformance import declaration_checks, encoder_checks  # noqa: F401 - they add their checks
from bench.conformance.check_registry import CHECKS, Check
from bench.conformance.subject import Subject, preserve_random_states
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.nn.device import torch_threads
from bench.records.environment import strip_paths
from bench.registry import METHODS, discover
from bench.stages import TrainedMethod

PASSED, FAILED, NOT_RUN, NO_CASE = "passed", "failed", "not run", "no case"


@dataclass(frozen=True)
class Finding:
    """What a check found of a method.

    Args:
        method: The method as it was asked for.
        check: The check's name.
        verdict: PASSED, FAILED, NOT_RUN (a check before it failed) or NO_CASE (it is about other methods).
        reason: Where it failed: what was expected, what was seen, what to do, on one line.
    """

    method: str
    check: str
    verdict: str
    reason: str = ""


def load_methods(plugin: str) -> tuple[str, ...]:
    """Methods that an argument of ``bench conformance`` names, loaded: a file's, a package's, one, or all.

    Raises:
        InputError: nothing of that name, or a plug-in that can't be loaded.
    """
    registry = discover()
    if plugin == ALL_METHODS:
        cards = [method.card for _, method in registry]
        return tuple(card.name for card in cards if card.stands_alone)
    if re.split(r"[:\[]", plugin)[0] in registry.names():
        return (plugin,)
    return load_plugin(read_plugin(plugin, Path("results")), registry.names())


def check_method(text: str, folder: Path) -> list[Finding]:
    """Run all checks on one registered method, in profile mini with two training steps.

    Args:
        text: The method as in ``--methods``; its plug-in is loaded already (:mod:`bench.config.plugins`).
        folder: Empty folder for stages and records; methods that share it train what they share once.

    Raises:
        InputError: no such method or option, or a method that needs a model or other methods after a colon.
    """
    subject, found = Subject(text, folder), list[Finding]()
    with preserve_random_states(), ExitStack() as stack:
        for check in CHECKS:
            if check.name == "build":
                cells = [job.cell for job in subject.planned.jobs]
                torch = any(cell.model is not None or cell.trains for cell in cells)
                stack.enter_context(torch_threads(1, needs_torch=torch))
            finding, crashed = _run_check(check, subject)
            found.append(finding)
            if (check.name == "keys" and crashed) or (check.name == "build" and finding.verdict == FAILED):
                return found + [Finding(text, later.name, NOT_RUN) for later in CHECKS[len(found) :]]
    return found


def _run_check(check: Check, subject: Subject) -> tuple[Finding, bool]:
    """The finding of one check, and whether it was an error."""
    crashed, verdict, seen = False, PASSED, None
    try:
        if _applies_to(check, subject):
            seen = check.look(subject)
        else:
            verdict = NO_CASE
    except (Exception, SystemExit) as error:  # whatever a method raises is a finding
        if check.name == "keys" and isinstance(error, InputError):
            raise  # no such option, no such model
        crashed, seen = True, _describe_error(error, subject)
    if seen is None:
        return Finding(subject.text, check.name, verdict), crashed
    reason = f"expected {check.promise}; seen: {seen}; {check.advice}"
    return Finding(subject.text, check.name, FAILED, " ".join(strip_paths(reason).split())), crashed


def _applies_to(check: Check, subject: Subject) -> bool:
    if check.of == "train":
        return isinstance(subject.method, TrainedMethod)
    if check.of == "seeded":
        return subject.seeded
    return check.of == "all" or isinstance(subject.build(), Encoder)


def _describe_error(error: BaseException, subject: Subject) -> str:
    """An error in words, with the line of the method's own file that it passed through last."""
    file = getattr(sys.modules.get(METHODS.origin(subject.card.name)), "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f" ({Path(str(file)).name}:{lines[-1]})" if lines else ""
    return f"{error if isinstance(error, BenchError) else f'{type(error).__name__}: {error}'}{place}"
