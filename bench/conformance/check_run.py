"""Run the conformance checks on a method."""

from __future__ import annotations

import re
import sys
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.config.plugins import load_plugin, read_plugin
from bench.config.run_spec import ALL_METHODS
from bench.conformance import declaration_checks, encoder_checks, training_checks  # noqa: F401 - they add checks
from bench.conformance.check_registry import CHECKS, Check, NoCaseError
from bench.conformance.subject import Subject, preserve_random_states
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.nn.device import torch_threads
from bench.records.environment import strip_paths
from bench.registry import METHODS, discover
from bench.stages import TrainedMethod

_NO_GRADIENT = "does not require grad"  # torch's words for a loss without a graph
PASSED, FAILED, NOT_RUN, NO_CASE = "passed", "failed", "not run", "no case"


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    method: str  # as given, such as "simcse[lr=1e-4]"
    check: str
    verdict: str  # PASSED, FAILED, NOT_RUN (an earlier check failed) or NO_CASE (for other methods only)
    reason: str = ""  # of a failure, on one line: expected, seen, advice; why a check has no case


def load_methods(plugin: str) -> tuple[str, ...]:
    """Return the methods of an argument: those of a file or package, which is loaded, one method, or all."""
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
        text: The method as in ``--methods``; load its plug-in first (:mod:`bench.config.plugins`).
        folder: Empty folder for stages and records; methods that share it share stages.

    Raises:
        InputError: an unknown method or option, or a method that needs a model or methods after a colon.
    """
    subject, findings = Subject(text, folder), list[Finding]()
    with preserve_random_states(), ExitStack() as stack:
        for check in CHECKS:
            if check.name == "build":
                cells = [job.cell for job in subject.planned.jobs]
                torch = any(cell.model is not None or cell.trains for cell in cells)
                stack.enter_context(torch_threads(1, needs_torch=torch))
            finding, crashed = _run_check(check, subject)
            findings.append(finding)
            if (check.name == "keys" and crashed) or (check.name == "build" and finding.verdict == FAILED):
                return findings + [Finding(text, later.name, NOT_RUN) for later in CHECKS[len(findings) :]]
    return findings


def _run_check(check: Check, subject: Subject) -> tuple[Finding, bool]:
    """Return the finding of a check, and whether it raised an error."""
    crashed, verdict, seen = False, PASSED, None
    try:
        if _applies_to(check, subject):
            seen = check.look(subject)
        else:
            verdict = NO_CASE
    except NoCaseError as error:
        return Finding(subject.text, check.name, NO_CASE, str(error)), False
    except (Exception, SystemExit) as error:  # any error of a method is a finding
        if check.name == "keys" and isinstance(error, InputError):
            raise  # an unknown option or model
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
    """Return the message of an error, with the last line of the method's file in its traceback."""
    file = getattr(sys.modules.get(METHODS.origin(subject.card.name)), "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f" ({Path(str(file)).name}:{lines[-1]})" if lines else ""
    hint = "; the encoder is detached, or under torch.no_grad()" if _NO_GRADIENT in str(error) else ""
    return f"{error if isinstance(error, BenchError) else f'{type(error).__name__}: {error}'}{place}{hint}"
